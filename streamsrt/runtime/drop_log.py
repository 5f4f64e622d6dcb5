"""Logs which records were dropped and why: at most one line per task and reason every ten seconds, with the count.

Kafka Streams logs each dropped record. Here, drops are counted by task, reason and batch, and logged from the counts:
many late or invalid records are one line now and then, and logging costs a record nothing. For records that an
exception handler skipped, the line has the last failure: what failed, and where. The remaining counts are logged when a
task closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from streamsrt.wording import counted

INTERVAL_MS = 10_000
_MANY_LATE = 100
_LARGE_SHARE_LATE = 0.05
"""From how many late records on, and from which part of what its subtopology processed, it is worth an advice."""

_REASONS: Mapping[str, str] = {
    "dropped_null": "their key or value is null. A record counts in each step that drops it",
    "unkeyed": "they have no key and precede a repartition topic (no metric counts them, as in Kafka Streams)",
    "dropped_late": "they came after their window had closed, or are older than what their store keeps. Where late() is "
    "called, it has the former",
    "dropped_outdated": "a newer change of the same key superseded them. This is harmless, except that an inner "
    "join by foreign key may then keep an outdated result of a row that has lost its match. If that matters to you, use "
    "left_join and filter out the results without a match (see 'Tables' in examples/operators/joins.md)",
    "dropped_timestamp": "their timestamp is negative",
    "failed_deserialization": "they can't be deserialized and the deserialization handler continues",
    "failed_processing": "processing them failed and the processing handler continues",
    "failed_production": "their results can't be written and the production handler continues",
    "refused": "the cluster refuses them and the production handler continues",
    "shortened_letters": "dead letters that are too large for their topic were written without their value, and some "
    "without their key or headers, too: their headers __streams.errors.omitted.* name what is missing",
}


class Drops(NamedTuple):
    """The drop counts of one task since it was opened. ``last``: the last failure, by counter."""

    who: str
    of: str
    counters: Mapping[str, int]
    last: Mapping[str, str] = MappingProxyType({})


def has_drops(counters: Mapping[str, int]) -> bool:
    """Whether there is anything to log of a task with these counters."""
    return any(map(counters.get, _REASONS))


class DropLog:
    """The drop counts already logged for each task. A task that is reopened counts from zero."""

    def __init__(self) -> None:
        self._logged: dict[tuple[str, str], tuple[int, int]] = {}

    def lines(self, all_drops: Iterable[Drops], now_ms: int) -> list[str]:
        """Returns the lines to log now. ``all_drops``: the counts of each open task."""
        found: list[str] = []
        logged: dict[tuple[str, str], tuple[int, int]] = {}
        for drops in all_drops:
            for name in _REASONS:
                count, key = drops.counters.get(name, 0), (drops.who, name)
                before, at_ms = self._logged.get(key, (0, now_ms - INTERVAL_MS))
                if count < before:
                    before = 0
                if count > before and now_ms - at_ms >= INTERVAL_MS:
                    found.append(_line(drops, name, count - before))
                    before, at_ms = count, now_ms
                logged[key] = before, at_ms
        self._logged = logged
        return found

    def rest(self, drops: Drops) -> list[str]:
        """Returns the lines for a task that closes, with the counts not logged yet. If it is reopened, it counts from
        zero."""
        found: list[str] = []
        for name in _REASONS:
            before, _ = self._logged.pop((drops.who, name), (0, 0))
            count = drops.counters.get(name, 0)
            if count > before:
                found.append(_line(drops, name, count - before))
        return found


def _line(drops: Drops, name: str, count: int) -> str:
    last = f". The last one: {drops.last[name]}" if name in drops.last else ""
    if name == "shortened_letters":
        return f"{drops.who}: {count} {_REASONS[name]}{last}"
    return f"{drops.who}: dropped {counted(count, 'record')}{drops.of}: {_REASONS[name]}{last}"


def late_records_advice(subtopology_counters: Mapping[str, Mapping[str, int]]) -> str:
    """Returns advice for a run in which a subtopology dropped many records as late, empty if there were few.

    ``subtopology_counters``: the totals of each subtopology, by its id. The late records are a share of what the same
    subtopology processed: a record before a repartition topic can't be late behind it.
    """
    affected = {
        name: (late, processed)
        for name, counters in sorted(subtopology_counters.items())
        if (late := counters.get("dropped_late", 0)) >= _MANY_LATE
        and late >= (processed := counters.get("processed", 0)) * _LARGE_SHARE_LATE
    }
    if not affected:
        return ""
    shares = ", ".join(
        f"{late:,} of {processed:,} records in subtopology {name}" + (f" ({late / processed:.0%})" if processed else "")
        for name, (late, processed) in affected.items()
    )
    return (
        f"{shares} came after their window had closed and were not counted. A window closes by the stream time of its "
        "task. Behind a repartition topic or a foreign-key join, tasks that catch up with a backlog write at their own "
        "pace, so what the slower ones write is late: give the windows a longer grace period (grace=), or take the late "
        "records as a stream with late()"
    )
