"""The streams rebalance protocol (KIP-1071): the machine of streams groups.

- ``assignment``        the target assignment of a whole group: what the assignor says, as records of what changed
- ``assignor``          task assignors: one interface, and the table of those that there are
- ``classic``           members of the classic protocol in a streams group, and groups that change between the two
                        protocols
- ``configuration``     what a topology means for the topics that there are: tasks, internal topics, and what is wrong
- ``creation``          when the coordinator creates the internal topics of a group, and lets them keep their records
                        longer
- ``departure``         how members go: for good, for a while, or because they were silent or did not give tasks back
- ``describe``          what StreamsGroupDescribe and ListGroups say about a streams group
- ``heartbeat``         one heartbeat of a streams group (KIP-1071, "Request Handling")
- ``highly_available``  the assignor ``highly_available``: tasks with state run where their state is, and move once it
                        is where they are to go
- ``patterns``          source topics by pattern: what the patterns of a topology mean for the topics that there are
- ``placement``         puts tasks on members, a role at a time: what the assignors have in common
- ``preflight``         whether a topology that a member brings may become that of a group that runs another one
- ``reasons``           why a group gets a new assignment, and what moves with it, in words
- ``reconcile``         moves one member a step towards its target, as set algebra
- ``records``           records of a streams group, made from state values
- ``response``          answers to heartbeats
- ``state``             state of streams groups: what the records say (hard) and what has to be learnt again after a
                        load (soft)
- ``sticky``            the assignor ``sticky``: few moves, equal loads
- ``task_offsets``      what members report of their changelogs, and when that calls for a new assignment (KIP-1071)
- ``tasks``             tasks as values: who runs what, in which role, and how that stands in messages
- ``topology``          the topology of a streams group as its members describe it, as a value
- ``validation``        what a heartbeat must look like before any state is looked at, in Kafka's order and words
"""
