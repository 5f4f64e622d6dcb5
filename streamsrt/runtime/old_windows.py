"""The warning about windows and versions of old records: the broker deletes them from their changelog before the store
drops them.

A store drops windows by stream time. A broker deletes records of a changelog by its own clock and their timestamps: those of
last month's input are deleted within minutes. The windows are then only in the state directory. In the same way, it keeps
only the latest version of a key in the changelog of a versioned store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamsrt.membership.values import Task as TaskKey
from streamsrt.tasks.manager.owned_task import OwnedTask
from topology.graph.internal_topics import deleted_after_ms
from topology.graph.nodes import Subtopology
from topology.graph.store_kinds import Cleanup, store_traits

_LAG = "min.compaction.lag.ms"


class OldWindows:
    """What a stream thread has to say of its tasks: once for each subtopology."""

    def __init__(self) -> None:
        self._kept_ms: dict[str, dict[str, int]] = {}
        """By subtopology, how long the changelogs keep windows and versions; none where it was said."""
        self._processed: dict[TaskKey, int] = {}

    def lines(self, tasks: Iterable[tuple[OwnedTask, Mapping[str, int]]], now_ms: int) -> list[str]:
        """Returns the lines to log now, given tasks and their counters. What a task processed earlier may become old."""
        found: list[str] = []
        for owned, counters in tasks:
            number, processed = owned.key[0], counters["processed"]
            if number not in self._kept_ms:
                self._kept_ms[number] = _kept_ms(owned.subtopology)
            kept_ms, newest_ms = self._kept_ms[number], owned.task.stream_time_ms
            has_processed = processed > self._processed.get(owned.key, 0)
            self._processed[owned.key] = processed
            if kept_ms and has_processed and 0 <= newest_ms < now_ms - min(kept_ms.values()):
                self._kept_ms[number] = {}
                found.append(_line(owned, kept_ms))
        return found


def _kept_ms(part: Subtopology) -> dict[str, int]:
    of_versions = _of_versions(part)
    found = {}
    for topic in part.changelog_topics:
        configs = dict(topic.configs)
        limit_ms = int(configs[_LAG]) if topic.name in of_versions else deleted_after_ms(configs)
        if limit_ms is not None and not topic.is_source:
            found[topic.name] = limit_ms
    return found


def _of_versions(part: Subtopology) -> set[str]:
    """The changelogs in which the broker keeps versions for a time."""
    return {spec.changelog_name for spec in part.stores if store_traits(spec).cleanup is Cleanup.HISTORY}


def _line(owned: OwnedTask, kept_ms: dict[str, int]) -> str:
    least_ms = min(kept_ms.values())
    shortest = [name for name, limit_ms in kept_ms.items() if limit_ms == least_ms]
    names = ", ".join(shortest)
    if _of_versions(owned.subtopology).intersection(shortest):
        return (
            f"task {owned}: its records are older than its changelog keeps their versions ({names}: {_LAG}={least_ms}): "
            "the broker keeps the latest version of each key, and an instance that restores the store has no earlier one. "
            f"Before the first run, give the Store changelog_config={{'{_LAG}': ...}} with more than the age of the oldest "
            f"records; alter {_LAG} of changelogs that exist, unless it is larger there, as after a backfill"
        )
    return (
        f"task {owned}: its records are older than its changelog keeps them ({names}: retention.ms={least_ms}): the broker "
        "deletes their windows, and an instance that restores them counts anew. Before the first run, set "
        "windowstore.changelog.additional.retention.ms to more than the age of the oldest records; alter retention.ms of "
        "changelogs that exist, unless it is larger there, as after a backfill"
    )
