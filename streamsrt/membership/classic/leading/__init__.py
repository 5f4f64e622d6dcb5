"""What the leader of a classic group does between its JoinGroup and its SyncGroup, as a pure machine.

``begin(...) -> LeadingStep``, then ``step(leading, event, now_ms) -> LeadingStep`` with the answer to each effect, until
there is an outcome.

1. All decisions follow from the members' metadata, the topics, and the settings of the leader: it makes no difference
   who leads, except for requests that the leader's memory saves.
2. If the next target can't be computed, all members keep the tasks that they claim, and nobody gets new ones: the target
   needs the text of a version which is missing (one member of it is asked to send it), a static member is in doubt, or
   the topics can't be listed. The group does not wait for the text of the next version, because the member that was
   asked may be dead: it continues with its own version, unless a static member with the next version has tasks waiting
   for it. Where nobody runs the
   group's version, the tasks of the newest older one that somebody runs are assigned.
3. Another version becomes the group's only when its topics exist and are correct. A version that could not run is
   refused, and the existing members continue. A group that starts again accepts its version, and waits for the topics.
4. A version is the group's for the members that are told of it. So a generation whose assignments are not stored has
   changed nothing.
5. While topics are missing, only members of older versions, whose topics all exist, have tasks.
6. At the deadline, a third of the session timeout, the leader continues with what it knows: task positions without end
   offsets, a status for missing topics, or the existing assignment.
7. Only members that must send their topology are told to join again, and the leader itself: after a failure, when a
   member is away or in doubt, and at intervals while tasks warm up.
8. If a version runs alone, the leader checks what older versions have left unread in repartition topics that it does not
   have: once, and again when older members are gone. A version that begins is refused then, unless that may be lost, or
   it starts together with versions that read it; of one that runs, tasks wait
   (:mod:`~streamsrt.membership.classic.unread_records`).
9. All subscriptions and assignments together are one record of the broker. Near its limit reasons are left out; beyond it
   the outcome warns.

The time is that of any clock in milliseconds that does not go back. Source: KIP-1071 and KIP-441 for what members are told;
``StreamsPartitionAssignor``.

- ``creation``  internal topics that the leader has created, and its messages about those that it could not create
- ``machine``   ``begin`` and ``step``: which version runs, on which topics, after which questions
- ``outcome``   how a generation ends: all members keep the tasks that they claim, or tasks are assigned
- ``values``    a generation in progress at the leader, the effects that it requests, and their results
"""

from streamsrt.membership.classic.leading.machine import DOUBT_MS, begin, step
from streamsrt.membership.classic.leading.outcome import DRAINING_MS, IN_FLIGHT_MS
from streamsrt.membership.classic.leading.values import (
    CountLeft,
    CreateTopics,
    Effect,
    EndOffsets,
    EndOffsetsListed,
    Event,
    Leading,
    LeadingStep,
    LeftCounted,
    ListTopics,
    TopicsCreated,
    TopicsListed,
    TopicsUnknown,
)

__all__ = [
    "DOUBT_MS",
    "DRAINING_MS",
    "IN_FLIGHT_MS",
    "CountLeft",
    "CreateTopics",
    "Effect",
    "EndOffsets",
    "EndOffsetsListed",
    "Event",
    "Leading",
    "LeadingStep",
    "LeftCounted",
    "ListTopics",
    "TopicsCreated",
    "TopicsListed",
    "TopicsUnknown",
    "begin",
    "step",
]
