"""Assigned tasks that can't be opened yet, because another process of this instance has not closed their stores.

They are tried again; the other tasks continue meanwhile. A task that is not open is not reported as open.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from streamsrt.errors import StreamsError
from streamsrt.membership.values import Role
from streamsrt.membership.values import Task as TaskKey

logger = logging.getLogger(__name__)

OPEN_BACKOFF_MS = 100


class WaitingTasks:
    """By task, its assigned role and the error that keeps it from being opened."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._tasks: dict[TaskKey, tuple[Role, StreamsError]] = {}
        self._since_ms: dict[TaskKey, int] = {}
        """When each was due for the first time."""
        self._retry_at_ms = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def clear(self) -> None:
        """Forgets all of them, because of a new assignment."""
        self._tasks.clear()
        self._since_ms.clear()

    def add(self, key: TaskKey, role: Role, error: StreamsError) -> None:
        """Adds a task that can't be opened, and logs it once."""
        if key not in self._tasks:
            logger.warning("task %s_%d can't be opened yet, trying again: %s", *key, error)
        self._tasks[key] = role, error

    def due(self, now_ms: int) -> Iterator[tuple[TaskKey, Role]]:
        """Yields the tasks to retry now; the caller reports success to :meth:`opened`. Raises the error of a task that
        has waited for the whole time-out."""
        if not self._tasks or now_ms < self._retry_at_ms:
            return
        for key, (_, error) in self._tasks.items():
            if now_ms - self._since_ms.setdefault(key, now_ms) >= self._timeout_ms:
                raise error
        self._retry_at_ms = now_ms + OPEN_BACKOFF_MS
        yield from [(key, role) for key, (role, _) in sorted(self._tasks.items())]

    def opened(self, key: TaskKey) -> None:
        """Removes a task that was opened."""
        self._tasks.pop(key, None)
        self._since_ms.pop(key, None)

    def texts(self) -> tuple[str, ...]:
        """Describes for people why each of them waits."""
        return tuple(f"task {key[0]}_{key[1]} can't be opened yet: {error}" for key, (_, error) in self._tasks.items())
