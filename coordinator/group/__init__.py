"""The group coordinator's state machines: values in, values out, time as an argument.

- ``builder``        a group that records are being applied to, for the group types with state in mappings by member
- ``classic``        groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
- ``committed``      committed offsets as records make them: current ones, and those of open transactions
- ``config``         settings of the group coordinator under Kafka's names, with Kafka's defaults and bounds
- ``consumer``       consumer groups (KIP-848): the consumer rebalance protocol, and classic members in the same group
- ``expiry``         expiry of committed offsets, and of groups without members and offsets
- ``fencing``        who may commit and fetch offsets of a group: members by generation or member epoch, others while it
                     is empty
- ``heartbeats``     what heartbeats of members with server-side assignment must have, whatever the group's type
- ``listing``        ListGroups and DeleteGroups, for all group types
- ``machine``        the machine of all groups of one partition of ``__consumer_offsets``
- ``members``        what the members of all group types with server-side assignment have in common, and the sender of a
                     request
- ``offsets``        committed offsets of all groups, whatever their type: commit, fetch, delete
- ``refusal``        a refused request: an error code and a text, and no change
- ``settings``       reads the settings of groups: tables of Kafka's names, with defaults and bounds, and one message
                     for each mistake
- ``state``          state of all groups of one partition of ``__consumer_offsets``, whatever their type, as records
                     make it
- ``streams``        the streams rebalance protocol (KIP-1071): the machine of streams groups
- ``transactional``  TxnOffsetCommit: offsets that count when the transaction of their producer commits
- ``values``         inputs and outputs of a group machine: values, nothing else
- ``waits``          waits by the machine's clock, which may be set back
"""
