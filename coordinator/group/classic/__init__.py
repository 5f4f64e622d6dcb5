"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

- ``config``        settings of classic groups, for all of them: no group has settings of its own
- ``describe``      what DescribeGroups says about a classic group
- ``fencing``       who is a member of a classic group, by its id and its instance
- ``join``          JoinGroup of a classic group: who may join, under which id, and whether it takes a rebalance
- ``membership``    SyncGroup, Heartbeat and LeaveGroup of a classic group, and members that fall silent
- ``records``       records of a classic group: one, in Kafka's layout (key version 2)
- ``state``         state of classic groups: the last generation that was written down (hard), and the rebalance in
                    progress (soft)
- ``subscription``  what members of type ``consumer`` say about themselves in their protocols (Kafka's
                    ConsumerProtocol)
- ``change``          one event of a classic group in the making: the group as it becomes, and what goes out because of
                    it
"""
