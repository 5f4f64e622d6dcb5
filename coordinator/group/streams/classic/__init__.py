"""Members of the classic protocol in a streams group, and groups that change between the two protocols.

- ``conversion``      groups that change between the classic and the streams protocol (KIP-1071, "Online Migration")
- ``members``         members of the classic protocol in a streams group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
                      (KIP-1071)
- ``own_conversion``  a classic group of members of this runtime becomes a streams group: what each member has, and which
                      version goes on
- ``own_layout``      what members of this runtime say within the classic protocol, and what they are told: the layout
                      ``streamsrt-1``
- ``own_members``     members of this runtime that are in a streams group by the classic protocol: what they say, and what
                      they are told
- ``user_data``       what Kafka Streams says within the classic protocol: its subscription and its assignment, inside of
                      a consumer's
"""
