"""A member of a classic consumer group that runs a topology: the same program on any broker from Kafka 2.8 on.

- ``assigned``       what a response to SyncGroup means for the member that gets it
- ``endpoints``      which members answer queries: what a member with an endpoint asks the coordinator, and what follows
- ``java_members``   Java's members of a group that one of our members leads: their metadata, converted to ours
- ``layout``         the format of subscriptions and assignments of members of a classic group, as bytes
- ``leading``        what the leader of a classic group does between its JoinGroup and its SyncGroup, as a pure machine
- ``left``           records that versions without members have left unread, when a group starts again
- ``member``         an active membership of a classic group: the member's machine, the leader's while it leads, and log
                     lines
- ``placing``        computes the tasks of each member of a classic group for one generation
- ``requests``       the requests of a member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup
- ``sending``        when a member of a classic group sends which request: at most one on each lane
- ``session``        a member of a classic consumer group as a pure state machine: ``step(session, event, now_ms) ->
                     Step``
- ``state``          the state of a member of a classic group (``Session``), its events, and their results
- ``stream_layout``  the format of subscriptions and assignments in groups with Java's Kafka Streams: protocol
                     ``stream``, as bytes
- ``stream_telling`` the assignments of a group with Java's members at the end of a generation, as bytes
- ``telling``        the assignments of a classic group at the end of a generation, as bytes, and what the leader
                     remembers
- ``values``         the values that the members of a classic group and their leader exchange
- ``verdicts``       which version of the program a group runs, which one may follow, and who can't be part of it
- ``view``           what a leader knows of its group: owned tasks, previous assignments, and topologies
"""
