"""What an instance of a new version reads to restore its stores, and how long one instance alone takes for that.

1. A task that is the same in both versions stays where it is, and nothing is read.
2. A store that starts empty reads the topics that the group has not read yet. What the group has read is not read again,
   unless somebody resets the offsets.
3. The speed is measured with the largest of the topics, on this machine.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from streamsrt.cli.restore_speed import measured_records_per_s
from streamsrt.cli.topology_versions import RunningGroup
from streamsrt.client.network import NetworkThread
from topology.graph.diff import StateChange, TopologyDiff, Verdict, is_restored_in_place
from topology.graph.outline import TopologyOutline

ALONE = "time for a single instance to restore the store"


@dataclass(frozen=True, slots=True)
class RestoredState:
    """``topics``: those that an instance reads to have a store. ``records_per_second``: None where nothing is read."""

    running: RunningGroup
    topics: Mapping[StateChange, tuple[str, ...]]
    records_per_second: float | None

    def records(self, change: StateChange) -> int | None:
        """How many records are read for it; None where nothing is read, or where it is not known."""
        topics = self.topics[change]
        counts = [self.running.topics[name]["records"] for name in topics if name in self.running.topics]
        return sum(counts) if topics and len(counts) == len(topics) else None

    def seconds(self, change: StateChange) -> float | None:
        """How long that takes."""
        count, speed = self.records(change), self.records_per_second
        return None if count is None or not speed else round(count / speed, 1)


def restored_state(
    network: NetworkThread, running: RunningGroup, before: TopologyOutline, new: TopologyOutline, found: TopologyDiff
) -> RestoredState:
    """What the instances of ``new`` restore, measured here and now."""
    stay = {part.id for part in found.subtopologies if part.change == "same"}
    topics = {each: _read(each, before, new, running, stay) for each in found.state}
    speed = None if found.verdict is Verdict.SAME else _speed(network, running, topics)
    return RestoredState(running, topics, speed)


def _read(
    change: StateChange, before: TopologyOutline, new: TopologyOutline, running: RunningGroup, stay: Container[str]
) -> tuple[str, ...]:
    """The topics that an instance reads to have a store; none where its tasks stay where they are. ``stay``: the
    subtopologies of which they do."""
    if change.kind != "store" or change.fate not in ("carried over", "resumed", "rebuilt"):
        return ()
    if change.fate == "rebuilt":
        return change.read_anew
    store = next(each for each in new.stores if each.name == change.name)
    if change.fate == "resumed":
        return (f"{running.name}-{store.changelog}",)
    was = next(each for each in before.stores if each.kept_as == store.kept_as)
    owner = next((part.id for part in new.subtopologies if change.name in part.stores), None)
    if owner is None or store.changelog is None or (owner in stay and not is_restored_in_place(was, store)):
        return ()
    internal = f"{running.name}-{store.changelog}"
    return (internal if internal in running.topics else store.changelog,)


def _speed(network: NetworkThread, running: RunningGroup, reads: Mapping[StateChange, tuple[str, ...]]) -> float | None:
    topics = {name for each in reads.values() for name in each if name in running.topics}
    if not topics:
        return None
    largest = max(sorted(topics), key=lambda name: running.topics[name]["records"])
    return measured_records_per_s(network, largest, running.topics[largest]["partitions"])
