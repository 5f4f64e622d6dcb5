"""A member of a classic consumer group that runs a topology: the same program on any broker from Kafka 2.5 on.

- ``assigned``  what an answer to SyncGroup means for the member that gets it
- ``layout``    what members of a classic group write into their subscriptions and assignments, as bytes
- ``requests``  the requests of a member of a classic group: what it says when it joins
- ``sending``   when a member of a classic group sends what: one request on each lane at most
- ``session``   a member of a classic consumer group as a pure state machine: ``step(session, event, now_ms) -> Step``
- ``state``     what a member of a classic group knows (``Session``), what can happen to it, and what follows
- ``values``    what the members of a classic group tell their leader, and what the leader tells them
"""
