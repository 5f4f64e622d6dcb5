"""The member's half of the streams rebalance protocol, as a pure machine.

- ``classic``            a member of a classic consumer group that runs a topology: the same program on any broker from
                         Kafka 2.5 on
- ``deltas``             what has to happen to get from the tasks that are open to the tasks that are assigned
- ``errors``             why a member can't be part of its group, each with what to do about it
- ``member``             a membership in progress: the session's state, and the log lines that its events deserve
- ``requests``           the requests of a member: what a heartbeat carries, and when task offsets are reported
- ``session``            the member's half of KIP-1071 as a pure state machine: ``step(session, event, now_ms) ->
                         Step``
- ``session_events``     what a membership hears in either protocol: the events that both sessions share
- ``state``              what a member knows (``Session``), what can happen to it, and what follows (``Step``): values
                         only
- ``statuses``           what the statuses of a heartbeat's answer mean for whoever runs the application: why nothing
                         happens, and what to do
- ``topology_metadata``  a topology as the group coordinator gets to know it:
                         ``StreamsGroupHeartbeatRequest.Topology``
- ``values``             what a member of a streams group is told and tells: the settings, tasks, commands and events
                         of the membership
"""
