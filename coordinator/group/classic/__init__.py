"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

- ``config``        settings of classic groups, which are the same for all of them
- ``describe``      the response to DescribeGroups for a classic group
- ``fencing``       who is a member of a classic group, by its id and its instance
- ``join``          JoinGroup of a classic group: who may join, with which id, and whether it causes a rebalance
- ``membership``    SyncGroup, Heartbeat and LeaveGroup of a classic group, and members that time out
- ``records``       records of a classic group: one, in Kafka's layout (key version 2)
- ``state``         state of classic groups: the last stored generation (hard), and the rebalance in progress (soft)
- ``subscription``  what members of type ``consumer`` say about themselves in their protocols (Kafka's ConsumerProtocol)
- ``change``        one event of a classic group in progress: the changed group, and the resulting responses
"""
