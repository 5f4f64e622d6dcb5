"""What becomes of running state when one version of a topology follows another.

1. State belongs to a store's name and its changelog. A store that both versions have, with the same bytes, is *carried
   over*: no matter in which subtopology it is now, nothing is restored that was there.
2. A store that is new to the application, or whose changelog has another name, starts empty: it is *rebuilt*, from what
   is read from now on, or by a backfill of the history.
3. A store or repartition topic that only the old version has is *orphaned*: its topic stays until someone deletes it.
4. A store of the same name with other bytes in it is *incompatible*: the new version would misread what the old one
   wrote, so it needs another name. So does a repartition topic with another fixed number of partitions.
5. The topology epoch is raised by one whenever the digests differ, and only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

from topology.graph.outline import StoreOutline, SubtopologyOutline, TopologyOutline

Fate: TypeAlias = Literal["carried over", "rebuilt", "orphaned", "incompatible"]

_BYTES = ("kind", "key_serde", "value_serde", "timestamped", "window_size_ms", "retain_duplicates")


class Verdict(IntEnum):
    """The worst of what was found; also the exit code of ``streamsrt topology diff``."""

    SAME = 0
    CARRIED_OVER = 10
    REBUILT_OR_ORPHANED = 11
    INCOMPATIBLE = 12


@dataclass(frozen=True, slots=True)
class StateChange:
    """What becomes of one store or repartition topic, and why."""

    kind: Literal["store", "repartition topic"]
    name: str
    fate: Fate
    reason: str


@dataclass(frozen=True, slots=True)
class SubtopologyChange:
    """What becomes of one subtopology: ``same``, ``changed``, ``new`` or ``gone``."""

    id: str
    change: Literal["same", "changed", "new", "gone"]
    number_before: int | None
    number_after: int | None


@dataclass(frozen=True, slots=True)
class TopologyDiff:
    """The comparison of two versions. ``epoch_needed`` is what the new version has to run with."""

    subtopologies: tuple[SubtopologyChange, ...]
    state: tuple[StateChange, ...]
    epoch_before: int
    epoch_needed: int
    verdict: Verdict


def diff(old: TopologyOutline, new: TopologyOutline) -> TopologyDiff:
    """Compares two versions of an application's topology."""
    state = (*_stores(old, new), *_repartition_topics(old, new))
    if old.digest == new.digest:
        verdict = Verdict.SAME
    elif any(change.fate == "incompatible" for change in state):
        verdict = Verdict.INCOMPATIBLE
    elif any(change.fate != "carried over" for change in state):
        verdict = Verdict.REBUILT_OR_ORPHANED
    else:
        verdict = Verdict.CARRIED_OVER
    return TopologyDiff(
        subtopologies=tuple(_subtopologies(old, new)),
        state=state,
        epoch_before=old.epoch,
        epoch_needed=old.epoch if verdict is Verdict.SAME else old.epoch + 1,
        verdict=verdict,
    )


def _subtopologies(old: TopologyOutline, new: TopologyOutline) -> Iterator[SubtopologyChange]:
    before: dict[str, SubtopologyOutline] = {each.id: each for each in old.subtopologies}
    for each in new.subtopologies:
        known = before.pop(each.id, None)
        if known is None:
            yield SubtopologyChange(each.id, "new", None, each.number)
        else:
            change: Literal["same", "changed"] = "same" if known.digest == each.digest else "changed"
            yield SubtopologyChange(each.id, change, known.number, each.number)
    for gone in before.values():
        yield SubtopologyChange(gone.id, "gone", gone.number, None)


def _stores(old: TopologyOutline, new: TopologyOutline) -> Iterator[StateChange]:
    before = {store.name: store for store in old.stores}
    for store in new.stores:
        known = before.pop(store.name, None)
        if known is None:
            yield StateChange("store", store.name, "rebuilt", "new: it starts empty")
        else:
            yield StateChange("store", store.name, *_fate(known, store))
    for gone in before.values():
        topic = f"its changelog {gone.changelog} stays until it is deleted" if gone.changelog else "it had no changelog"
        yield StateChange("store", gone.name, "orphaned", f"gone: {topic}")


def _fate(old: StoreOutline, new: StoreOutline) -> tuple[Fate, str]:
    changed = [field for field in _BYTES if getattr(old, field) != getattr(new, field)]
    if changed:
        what = ", ".join(f"{field} {getattr(old, field)} -> {getattr(new, field)}" for field in changed)
        return "incompatible", f"{what}: give the new store another name"
    if old.changelog != new.changelog:
        return (
            "rebuilt",
            f"its changelog was {old.changelog or 'none'} and is {new.changelog or 'none'}: it starts empty",
        )
    if old.persistent != new.persistent:
        return "carried over", "restored from its changelog, since it moves between memory and disk"
    if old.retention_ms != new.retention_ms:
        return (
            "carried over",
            f"retention {old.retention_ms} -> {new.retention_ms} ms; what had expired does not come back",
        )
    return "carried over", ""


def _repartition_topics(old: TopologyOutline, new: TopologyOutline) -> Iterator[StateChange]:
    before = dict(old.repartition_topics)
    for name, partitions in new.repartition_topics.items():
        if name not in before:
            yield StateChange("repartition topic", name, "rebuilt", "new: the coordinator creates it")
            continue
        known = before.pop(name)
        if known != partitions:
            reason = f"partitions {known or 'derived'} -> {partitions or 'derived'}: give the repartition another name"
            yield StateChange("repartition topic", name, "incompatible", reason)
        else:
            yield StateChange("repartition topic", name, "carried over", "")
    for name in before:
        yield StateChange("repartition topic", name, "orphaned", "gone: records that nobody has read stay in it")
