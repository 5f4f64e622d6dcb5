"""The warning about windows of old records: the broker deletes them from their changelog before the store drops them.

A store drops windows by stream time. A broker deletes records of a changelog by its own clock and their timestamps: those of
last month's input are deleted within minutes. The windows are then only in the state directory.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamsrt.tasks.manager.owned_task import OwnedTask
from topology.graph.nodes import InternalTopic, Subtopology


class OldWindows:
    """What a stream thread has to say of its tasks: once for each subtopology."""

    def __init__(self) -> None:
        self._limits_ms: dict[str, int | None] = {}

    def lines(self, tasks: Iterable[OwnedTask], now_ms: int) -> list[str]:
        """Returns the lines to log now."""
        found: list[str] = []
        for owned in tasks:
            number = owned.key[0]
            if number not in self._limits_ms:
                self._limits_ms[number] = _limit_ms(owned.subtopology)
            limit_ms, newest_ms = self._limits_ms[number], owned.task.stream_time_ms
            if limit_ms is not None and 0 <= newest_ms < now_ms - limit_ms:
                self._limits_ms[number] = None
                found.append(_line(owned, limit_ms))
        return found


def _retention_ms(topic: InternalTopic) -> int | None:
    configs = dict(topic.configs)
    retention_ms = int(configs.get("retention.ms") or -1)
    return retention_ms if "delete" in (configs.get("cleanup.policy") or "") and retention_ms >= 0 else None


def _changelogs(part: Subtopology) -> dict[str, int]:
    kept = ((topic.name, _retention_ms(topic)) for topic in part.changelog_topics if not topic.is_source)
    return {name: retention_ms for name, retention_ms in kept if retention_ms is not None}


def _limit_ms(part: Subtopology) -> int | None:
    return min(_changelogs(part).values(), default=None)


def _line(owned: OwnedTask, limit_ms: int) -> str:
    names = ", ".join(name for name, kept_ms in _changelogs(owned.subtopology).items() if kept_ms == limit_ms)
    return (
        f"task {owned}: its records are older than its changelog keeps them ({names}: retention.ms={limit_ms}): the broker "
        "deletes their windows, and an instance that restores them counts anew. Before the first run, set "
        "windowstore.changelog.additional.retention.ms to more than the age of the oldest records; alter retention.ms of "
        "changelogs that exist"
    )
