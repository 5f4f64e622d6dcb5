"""Consumer groups (KIP-848): the consumer rebalance protocol, and classic members in the same group.

- ``assignment``        the target assignment of a whole group: what its assignor says, as records of what changed
- ``assignor``          input and output of a server-side assignor: the broker's ``ConsumerGroupPartitionAssignor``
- ``change``            a change of a consumer group in the making: what a heartbeat or a JoinGroup of one member
                        leads to
- ``classic_members``   members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and
                        LeaveGroup (KIP-848, "Supporting Online Consumer Group Upgrade")
- ``classic_requests``  requests of the classic protocol to a consumer group, as the machine of all groups gets them
- ``config``            settings of consumer groups: ``group.consumer.*`` of the broker, and ``consumer.*`` of single
                        groups, which override some of them
- ``departure``         members that leave a consumer group: for good, temporarily, or because of a session or rebalance
                        timeout
- ``describe``          what ConsumerGroupDescribe and ListGroups say about a consumer group
- ``embedded``          the ConsumerProtocol bytes that classic members of type ``consumer`` send and receive
- ``heartbeat``         one heartbeat of a consumer group (KIP-848, "Request Handling")
- ``migration``         groups that change between the classic and the consumer protocol while their members roll
                        (KIP-848, "Consumer Group Upgrade")
- ``partitions``        partitions as the protocol knows them, by topic id, and as messages and records carry them
- ``range_assignor``    ``range``: contiguous partitions of each topic, equal numbers of different topics at the same
                        member
- ``reconcile``         moves one member a step towards its target, as set algebra
- ``records``           records of a consumer group, made from state values
- ``requests``          what the machine of all groups hands to consumer groups: requests, timers, and the timers of a
                        group after a load
- ``response``          answers to heartbeats of consumer groups
- ``state``             state of consumer groups: what the records say (hard) and what has to be learnt again after a
                        load (soft)
- ``subscription``      what a group subscribes to: names, regular expressions, and the topics that they mean now
- ``timers``            the timers of consumer groups
- ``uniform``           ``uniform``: equal numbers of partitions for all members, with as few moves as possible
- ``validation``        what a heartbeat must look like before any state is looked at, in Kafka's order and words
"""
