"""What the leader of a classic group does between its JoinGroup and its SyncGroup, as a pure machine.

``begin(...) -> LeadingStep``, then ``step(leading, event, now_ms) -> LeadingStep`` with the answer to each effect, until
there is an outcome.

1. All decisions follow from the members' metadata, the topics, and the settings of the leader: it makes no difference
   who leads, except for requests that the leader's memory saves.
2. If the next target can't be computed, all members keep the tasks that they claim, and no new ones are assigned. Reasons
   are: the topology of a version is missing (the leader requests it from one member), a static member is in doubt, or
   the topics can't be listed. The group does not wait for the topology of the next version, because that member may be
   dead: it continues with its own version, unless a static member with the next version has tasks waiting for it. If no
   member runs the group's version, the tasks of the newest older version that has members are assigned.
3. Another version becomes the group's only when its topics exist and are correct. A version that could not run is
   refused, and the existing members continue. A group that starts again accepts its version, and waits for the topics.
4. A new version takes effect with the assignments that name it. A generation whose assignments are not stored changes
   nothing.
5. While topics are missing, only members of older versions, whose topics all exist, have tasks.
6. At the deadline, a third of the session timeout, the leader continues with what it knows: task positions without end
   offsets, a status for missing topics, or the existing assignment.
7. Only two kinds of members have to join again: those that must send their topology, and the leader. The leader joins
   again after a failure, when a member is away or in doubt, and at intervals while tasks warm up.
8. If a version runs alone, the leader counts the records that older versions have left unread in repartition topics that
   this version does not have: once, and again when older members have left. If there are any, a version that begins is
   refused, unless the records may be lost or members that read them start with it; if the version already runs, tasks
   wait (:mod:`~streamsrt.membership.classic.unread_records`).
9. All subscriptions and assignments together are one record in the broker's log. Near the size limit, reasons are left
   out; beyond it, the outcome has a warning.

Times are those of any clock in milliseconds that does not go back. Source: KIP-1071 and KIP-441 for statuses and
assignments; ``StreamsPartitionAssignor``.

- ``creation``  internal topics that the leader has created, and its messages about those that it could not create
- ``machine``   ``begin`` and ``step``: which version runs, on which topics, after which requests
- ``outcome``   how a generation ends: all members keep the tasks that they claim, or tasks are assigned
- ``values``    a generation in progress at the leader, the effects that it requests, and their results
"""

from streamsrt.membership.classic.leading.machine import DOUBT_MS, begin, step
from streamsrt.membership.classic.leading.outcome import DRAINING_MS, IN_FLIGHT_MS
from streamsrt.membership.classic.leading.values import (
    CountUnread,
    CreateTopics,
    Effect,
    EndOffsets,
    EndOffsetsListed,
    Event,
    Leading,
    LeadingStep,
    ListTopics,
    TopicsCreated,
    TopicsListed,
    TopicsUnknown,
    UnreadCounted,
)

__all__ = [
    "DOUBT_MS",
    "DRAINING_MS",
    "IN_FLIGHT_MS",
    "CountUnread",
    "CreateTopics",
    "Effect",
    "EndOffsets",
    "EndOffsetsListed",
    "Event",
    "Leading",
    "LeadingStep",
    "ListTopics",
    "TopicsCreated",
    "TopicsListed",
    "TopicsUnknown",
    "UnreadCounted",
    "begin",
    "step",
]
