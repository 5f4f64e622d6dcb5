"""Members of the classic protocol in a streams group, and groups that change between the two protocols.

- ``conversion``      groups that change between the classic and the streams protocol (KIP-1071, "Online Migration")
- ``members``         members of the classic protocol in a streams group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
                      (KIP-1071)
- ``own_conversion``  a classic group of members of this runtime becomes a streams group: the tasks of each member, and
                      the version that continues
- ``own_layout``      subscriptions and assignments of members of this runtime in the classic protocol: the layout
                      ``streamsrt-1``
- ``own_members``     members of this runtime in a streams group by the classic protocol: their reports and their
                      assignments
- ``user_data``       the user data of Kafka Streams in the classic protocol: its subscription and assignment, inside
                      those of a consumer
"""
