"""The member's side of the streams rebalance protocol, as a pure machine.

- ``classic``            a member of a classic consumer group that runs a topology: the same program on any broker from
                         Kafka 2.8 on
- ``deltas``             the steps from the open tasks to the assigned tasks
- ``errors``             why a member can't be part of its group, each with what to do about it
- ``member``             an active membership: the session's state, and the log lines for its events
- ``requests``           the requests of a member: what a heartbeat contains, and when task offsets are reported
- ``session``            the member's side of KIP-1071 as a pure state machine: ``step(session, event, now_ms) -> Step``
- ``session_events``     the events that the sessions of both protocols share
- ``shared_endpoints``   what the log says of two instances with one ``application.server``
- ``state``              the state of a member (``Session``), its events, and their results (``Step``): values only
- ``state_marks``        marks of what a version keeps, which each member tells the group
- ``state_settings``     what its stores are set to, which each member tells beside the marks
- ``statuses``           what the statuses in a heartbeat's response mean for the operator: why nothing is processed,
                         and what to do
- ``told_parts``         the subtopologies that a member of a classic group tells
- ``topology_metadata``  a topology as it is sent to the group coordinator: ``StreamsGroupHeartbeatRequest.Topology``
- ``values``             the interface of a membership: its settings, tasks, commands and events
"""
