"""Says in the log which records were dropped and why: by task and reason a line every ten seconds at most, with the count.

Kafka Streams logs each record that it drops. Here drops are counted by task, reason and batch, and the log follows the
counts: a flood of late records is a line now and then, and costs a record nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

INTERVAL_MS = 10_000

_REASONS: Mapping[str, str] = {
    "dropped_null": "of a null key or value",
    "dropped_late": "they came after their window had closed, or after a newer one of the same key",
    "dropped_timestamp": "of a negative timestamp",
    "failed_deserialization": "they can't be deserialized and the deserialization handler goes on",
    "failed_processing": "processing them failed and the processing handler goes on",
    "failed_production": "their results can't be written and the production handler goes on",
}


class DropLog:
    """What was said of which task. A task that is opened again counts from zero."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[int, int]] = {}

    def lines(self, tasks: Iterable[tuple[str, str, Mapping[str, int]]], now_ms: int) -> list[str]:
        """What is to be said now. ``tasks``: id, input partitions, counters of each that is open."""
        found: list[str] = []
        said: dict[tuple[str, str], tuple[int, int]] = {}
        for task_id, inputs, counters in tasks:
            for name, reason in _REASONS.items():
                count, key = counters.get(name, 0), (task_id, name)
                before, at_ms = self._said.get(key, (0, now_ms - INTERVAL_MS))
                if count < before:
                    before = 0
                if count > before and now_ms - at_ms >= INTERVAL_MS:
                    found.append(f"task {task_id}: {count - before} records of {inputs} were dropped: {reason}")
                    before, at_ms = count, now_ms
                said[key] = before, at_ms
        self._said = said
        return found
