"""Members of the classic protocol in a streams group, and groups that change between the two protocols.

- ``conversion``  groups that change between the classic and the streams protocol (KIP-1071, "Online Migration")
- ``members``     members of the classic protocol in a streams group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
                  (KIP-1071)
- ``user_data``   what Kafka Streams says within the classic protocol: its subscription and its assignment, inside of
                  a consumer's
"""
