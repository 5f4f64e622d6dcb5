"""A member of a classic consumer group that runs a topology: the same program on any broker from Kafka 2.8 on.

- ``endpoints``           which members answer queries: what a member with an endpoint asks the coordinator, and what
                          follows
- ``java_assignments``    the assignments of a group with Java's members at the end of a generation, as bytes
- ``java_members``        Java's members of a group that one of our members leads: their metadata, converted to ours
- ``layout``              the format of subscriptions and assignments of members of a classic group, as bytes
- ``leader_assignments``  the assignments of a classic group at the end of a generation, as bytes, and what the leader
                          remembers
- ``leading``             what the leader of a classic group does between its JoinGroup and its SyncGroup, as a pure
                          machine
- ``member``              an active membership of a classic group: the member's machine, the leader's while it leads,
                          and log lines
- ``received_assignment`` interprets a response to SyncGroup: which assignment the member takes, if any
- ``recovery``            how a member of a classic group goes on after an error, or ends: it tries again, joins anew, or
                          leaves
- ``request_schedule``    decides when a member of a classic group sends which request: at most one on each lane
- ``requests``            the requests of a member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
- ``session``             a member of a classic consumer group as a pure state machine: ``step(session, event, now_ms)
                          -> Step``
- ``state``               the state of a member of a classic group (``Session``), its events, and their results
- ``state_checks``        refuses a version that would misread what members of earlier versions keep
- ``stream_layout``       the format of subscriptions and assignments in groups with Java's Kafka Streams: protocol
                          ``stream``, as bytes
- ``task_assignment``     computes the tasks of each member of a classic group for one generation
- ``unread_records``      records that versions without members have left unread, when a group starts again
- ``values``              the values that the members of a classic group and their leader exchange
- ``version_checks``      decides which version of the program a group runs, which one may follow, and which members are
                          refused
- ``view``                what a leader knows of its group: owned tasks, previous assignments, and topologies
"""
