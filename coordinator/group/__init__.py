"""The group coordinator's state machines: values in, values out, time as an argument.

- ``builder``        a group that records are being applied to, for the group types whose state is in mappings by
                     member
- ``classic``        groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
- ``committed``      committed offsets as records make them: what counts now, and what counts when a transaction
                     commits
- ``config``         settings of the group coordinator under Kafka's names, with Kafka's defaults and bounds
- ``consumer``       consumer groups (KIP-848): the consumer rebalance protocol, and members of the classic one in the
                     same group
- ``expiry``         committed offsets that nobody has needed for a long time, and groups that nothing is left of
- ``fencing``        who may commit and fetch offsets of a group: members by generation or member epoch, others while
                     it is empty
- ``listing``        ListGroups and DeleteGroups, over all group types; what a group of each type calls itself
- ``machine``        the machine of all groups of one partition of ``__consumer_offsets``
- ``members``        what the members of every group type with server-side assignment have in common, and who a
                     request is from
- ``offsets``        committed offsets of all groups, whatever their type: commit, fetch, delete
- ``refusal``        how a request is refused: an error code and a text, and nothing changes
- ``settings``       how settings of groups are read: tables of Kafka's names, with defaults and bounds, and one
                     message for each mistake
- ``state``          state of all groups of one partition of ``__consumer_offsets``, whatever their type, as records
                     make it
- ``streams``        the streams rebalance protocol (KIP-1071): the machine of streams groups
- ``transactional``  TxnOffsetCommit: offsets that count when the transaction of their producer commits
- ``values``         what goes into a group machine and what comes out of it: values, nothing else
"""
