"""A member of a classic consumer group that runs a topology: the same program on any broker from Kafka 2.5 on.

- ``assigned``       what an answer to SyncGroup means for the member that gets it
- ``endpoints``      who answers queries in a classic group: what a member that serves queries asks of the coordinator, and
                     what follows
- ``java_members``   Java's members of a group that a member of ours leads: what they said, in the words that our members use
- ``layout``         what members of a classic group write into their subscriptions and assignments, as bytes
- ``leading``        what the leader of a classic group does between its JoinGroup and its SyncGroup, as a pure machine
- ``left``           what versions that nobody runs have left unread, when a group starts anew
- ``member``         a membership of a classic group in progress: the member's machine, the leader's while it leads, and the
                     log lines
- ``placing``        who is to run what in a classic group, and what of that each member gets in this generation
- ``requests``       the requests of a member of a classic group: what it says when it joins
- ``sending``        when a member of a classic group sends what: one request on each lane at most
- ``session``        a member of a classic consumer group as a pure state machine: ``step(session, event, now_ms) -> Step``
- ``state``          what a member of a classic group knows (``Session``), what can happen to it, and what follows
- ``stream_layout``  what members of a classic group write where Java's Kafka Streams is in it, as bytes
- ``stream_telling`` what the members of a group with Java's are told at the end of a generation, as bytes
- ``telling``        what each member of a classic group is told at the end of a generation, as bytes, and what the leader
                     keeps of it
- ``values``         what the members of a classic group tell their leader, and what the leader tells them
- ``verdicts``       which version of the program a group runs, which one it may go on to, and who cannot be part of it
- ``view``           what a leader sees of its group: who has what, who was told what, and which topologies it knows
"""
