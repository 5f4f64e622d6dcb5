"""What must hold at every moment, and at the end.

1. Of the members that the group knows, no two have an active task open that reads the same source partition or writes
   the same changelog partition, whatever the ids and epochs of the tasks. The coordinator never gives a task to two
   members. What a member of a streams group has open belongs to it: the coordinator gave it and was not told that it is
   closed.
2. A committed offset never goes back. What an instance takes as committed is committed, at least once: with exactly once
   the coordinator of a transaction may decide before all know.
3. After the faults, the group becomes stable within a bounded time, everything in the source and repartition topics is
   processed and committed, and no transaction stays open.
4. Then, with exactly once, each store has what its changelog has (:mod:`streamsrt.testing.simulator.stored_rows`), those of
   standbys as far as they have come.
5. A reader of committed records gets the results of one uninterrupted run (:func:`compare`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from streamsrt.testing.simulator.broker import BrokerLife, GroupView, Stored
from streamsrt.testing.simulator.instance import Instance
from streamsrt.testing.simulator.stored_rows import difference
from streamsrt.testing.simulator.values import Compare, Output, Outputs
from streamsrt.wire.records import decode_batches
from topology.graph.nodes import internal_topic_name
from topology.graph.topology import Topology

TopicPartition = tuple[str, int]


class ViolationError(Exception):
    """An invariant is violated. The message says which, where and how."""


class Monitor:
    """Checks the instances and the broker. ``broker`` returns None while the broker is down.

    ``others``: topics that the application writes to without a sink of its topology.
    """

    def __init__(
        self,
        application_id: str,
        topology: Topology,
        broker: Callable[[], BrokerLife | None],
        others: Iterable[str] = (),
    ) -> None:
        self._application_id = application_id
        self._broker = broker
        self._checked: dict[str, tuple[frozenset[TopicPartition], str]] = {}
        """By instance, what was open there when it was compared with all others, and its member id."""
        self._committed: dict[TopicPartition, int] = {}
        self._read_topics = sorted(
            {topic for each in topology.subtopologies for topic in each.source_topics}
            | {
                internal_topic_name(application_id, topic.name)
                for each in topology.subtopologies
                for topic in each.repartition_source_topics
            }
        )
        self.written_topics = sorted(
            {
                sink.topic
                for each in topology.subtopologies
                for sink in each.sinks
                if sink.topic is not None and not sink.repartition
            }.union(others)
        )

    # ------------------------------------------------------------------------------------------------------- ownership

    def check(self, instance: Instance, others: Iterable[Instance]) -> None:
        """Checks an instance after an iteration. Raises ViolationError."""
        claims = _claims(instance)
        if self._checked.get(instance.name) == (claims, instance.member_id):
            return
        broker = self._broker()
        group = None if broker is None else broker.group(self._application_id)
        if group is None or instance.member_id not in group.epochs:
            # What it has open is compared when it is a member of the group, perhaps again.
            self._checked.pop(instance.name, None)
            return
        self._checked[instance.name] = claims, instance.member_id
        self._check_others(instance, claims, others, group)
        for task, owners in group.owners.items():
            if len(owners) > 1:
                raise ViolationError(f"the coordinator gave task {task[0]}_{task[1]} to {' and '.join(owners)}")

    def _check_others(
        self, instance: Instance, claims: frozenset[TopicPartition], others: Iterable[Instance], group: GroupView
    ) -> None:
        for other in others:
            if other is instance or not other.is_alive or other.member_id not in group.epochs:
                continue
            both = claims & _claims(other)
            if both:
                listed = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(both))
                raise ViolationError(
                    f"owned twice: {instance.name} and {other.name}, both members of the group, have tasks open for {listed}"
                )

    def check_rights(self, instances: Iterable[Instance]) -> None:
        """Checks that what members of a streams group have open belongs to them. Raises ViolationError."""
        broker = self._broker()
        group = None if broker is None else broker.group(self._application_id)
        for instance in instances:
            manager, member_id = instance.manager, instance.member_id
            if group is None or manager is None or instance.protocol != "streams" or member_id not in group.epochs:
                continue
            for owned in manager:
                if owned.is_active and member_id not in group.owners.get(owned.key, ()):
                    raise ViolationError(f"{instance.name} has task {owned} open, which the coordinator has taken back")

    # --------------------------------------------------------------------------------------------------------- offsets

    def check_offsets(self) -> None:
        """Checks committed offsets. Raises ViolationError if one went back."""
        broker = self._broker()
        if broker is None:
            return
        committed = broker.committed(self._application_id)
        for tp, offset in self._committed.items():
            now = committed.get(tp)
            if now is None or now < offset:
                raise ViolationError(f"the committed offset of {tp[0]}-{tp[1]} went back from {offset} to {now}")
        self._committed = committed

    def check_taken_as_committed(self, instance: Instance) -> None:
        """Checks what an instance takes as committed. Raises ViolationError."""
        broker, taken = self._broker(), instance.committed_offsets
        if broker is None or not taken:
            return
        committed = broker.committed(self._application_id)
        for tp, offset in taken.items():
            if committed.get(tp, -1) < offset:
                raise ViolationError(
                    f"{instance.name} takes {tp[0]}-{tp[1]} as committed up to {offset}, and it is up to {committed.get(tp)}"
                )

    # ---------------------------------------------------------------------------------------------------------- settled

    def why_not_settled(self, instances: Iterable[Instance]) -> str:
        """Describes unfinished work; empty if there is none."""
        broker = self._broker()
        if broker is None:
            return "the broker is down"
        group = broker.group(self._application_id)
        if group is None or group.state != "Stable":
            return f"the group is {'absent' if group is None else group.state}"
        for instance in instances:
            if not instance.is_alive or instance.member_id not in group.epochs:
                return f"{instance.name} is not a member of the group"
            if instance.manager is None or not instance.manager.is_settled:
                return f"tasks of {instance.name} are not running"
        return self._backlog(broker)

    def wrong_rows(self, instances: Iterable[Instance]) -> str:
        """Describes a row in which a store differs from its changelog; empty if there is none."""
        broker = self._broker()
        managers = [(each.name, each.manager) for each in instances]
        found = [
            f"{name}: {wrong}"
            for name, manager in managers
            if broker is not None and manager is not None and (wrong := difference(manager, broker))
        ]
        return found[0] if found else ""

    def _backlog(self, broker: BrokerLife) -> str:
        committed = broker.committed(self._application_id)
        for topic in self._read_topics:
            for partition, (end, stable_end) in enumerate(broker.ends(topic)):
                if stable_end < end:
                    return f"a transaction on {topic}-{partition} is undecided"
                at = committed.get((topic, partition), 0)
                if at < end and _records_behind(broker.read(topic, partition), at):
                    return f"{topic}-{partition} is committed up to {at} of {end}"
        for topic in sorted(broker.topics()):
            for partition, (end, stable_end) in enumerate(broker.ends(topic)):
                if stable_end < end:
                    return f"a transaction on {topic}-{partition} is undecided"
        return ""

    # ---------------------------------------------------------------------------------------------------------- outputs

    def outputs(self, broker: BrokerLife) -> dict[str, list[Output]]:
        """Returns the outputs that a reader of committed records gets, by topic."""
        found: dict[str, list[Output]] = {}
        for topic in self.written_topics:
            records = found[topic] = []
            for partition in range(len(broker.ends(topic))):
                stored = broker.read(topic, partition)
                for columns in decode_batches(stored.batches, aborted=stored.aborted):
                    records += [
                        Output(partition, *row)
                        for row in zip(columns.keys, columns.values, columns.timestamps, strict=True)
                    ]
        return found


def _claims(instance: Instance) -> frozenset[TopicPartition]:
    """Returns the source and changelog partitions of the active tasks that are open in an instance."""
    if instance.manager is None:
        return frozenset()
    claimed: set[TopicPartition] = set()
    for owned in instance.manager:
        if owned.is_active:
            claimed.update(owned.task.source_partitions)
            for spec in owned.subtopology.stores:
                changelog = owned.task.restore_target(spec.name)
                if changelog is not None:
                    claimed.add(changelog)
    return frozenset(claimed)


def _records_behind(stored: Stored, offset: int) -> bool:
    """Whether there are records after an offset, apart from transaction markers."""
    return any(columns.keys for columns in decode_batches(stored.batches, from_offset=offset, aborted=stored.aborted))


# ------------------------------------------------------------------------------------------------------------- comparison


def compare(how: Compare, found: Outputs, expected: Outputs) -> str | None:
    """Compares the outputs key by key; returns the difference, None if there is none.

    ``each``: the values of a key are those of the other run, in the same order. ``last``: the last one is. ``none lost``: a
    key has as many values at least.
    """
    for topic in sorted({*found, *expected}):
        theirs, ours = _by_key(expected.get(topic, ())), _by_key(found.get(topic, ()))
        for key in sorted({*theirs, *ours}, key=lambda each: each or b""):
            wrong = _wrong(how, ours.get(key, []), theirs.get(key, []))
            if wrong:
                return f"{topic}, key {key!r}: {wrong}{_order_only(how, found, expected)}"
    return None


def _order_only(how: Compare, found: Outputs, expected: Outputs) -> str:
    """Returns advice for outputs in which each key has the right final value, but other values in between."""
    if how != "each" or compare("last", found, expected) is not None:
        return ""
    return (
        ". The last value of each key is the right one: only what came before it differs, as where a join takes its sides "
        "in another order. If your program promises no more, compare with --compare last (compare='last')"
    )


def _by_key(records: Iterable[Output]) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return found


def _wrong(how: Compare, found: list[bytes | None], expected: list[bytes | None]) -> str | None:
    if how == "none lost":
        return f"{len(found)} records, expected at least {len(expected)}" if len(found) < len(expected) else None
    if how == "last":
        found, expected = found[-1:], expected[-1:]
    if found == expected:
        return None
    at = next(
        (number for number, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other),
        min(len(found), len(expected)),
    )
    return (
        f"{len(found)} values, expected {len(expected)}; from value {at} on it is "
        f"{_shown(found[at:])} instead of {_shown(expected[at:])}"
    )


def _shown(values: list[bytes | None]) -> str:
    return ", ".join(map(repr, values[:4])) + (", ..." if len(values) > 4 else "") if values else "nothing"
