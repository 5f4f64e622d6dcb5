"""The streams rebalance protocol (KIP-1071): the machine of streams groups.

- ``assignment``        the target assignment of a whole group, as records of what changed
- ``classic``           members of the classic protocol in a streams group, and groups that change between the two
                        protocols
- ``config``            settings of streams groups: those that hold for one group, and what its machine asks of all
                        settings
- ``creation``          when the coordinator creates the internal topics of a group, and extends their retention
- ``departure``         members that leave a streams group: for good, temporarily, or because of a session or rebalance
                        timeout
- ``describe``          what StreamsGroupDescribe and ListGroups say about a streams group
- ``heartbeat``         one heartbeat of a streams group (KIP-1071, "Request Handling")
- ``holders``           who holds a task that a member is to have, whatever version of the topology it runs
- ``in_flight``         what of an upgrade waits for records in repartition topics that the newest topology of the group
                        does not have
- ``preflight``         whether a topology that a member brings may replace the topology of a group that runs another
                        one
- ``reasons``           why a group gets a new assignment, and what moves with it, as text
- ``records``           records of a streams group, made from state values
- ``response``          answers to heartbeats
- ``returning``         whether a member with an older version than the group's may join again
- ``state``             state of streams groups: what the records say (hard) and what has to be learnt again after a
                        load (soft)
- ``statuses``          the status codes of KIP-1071, with details, that a member gets beside its tasks
- ``task_offsets``      what members report of their changelogs, and when that calls for a new assignment (KIP-1071)
- ``validation``        what a heartbeat must look like before any state is looked at, in Kafka's order and words
"""
