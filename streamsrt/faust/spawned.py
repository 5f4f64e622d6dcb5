"""Tasks that the program itself begins, with ``asyncio.create_task`` and all that uses it.

1. They run beside the agents, as in Faust: no commit waits for one that nobody awaits.
2. The event loop runs for them while there are any, however little the agents have to do.
3. What one sends and writes belongs to the task whose agent or timer has begun it; it is cancelled when that task ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Generic, NamedTuple, TypedDict, TypeVar, Unpack, cast

from streamsrt.faust.locations import caller

T = TypeVar("T")
_Task = asyncio.Task[None]
"""Whatever it returns: nobody here asks for it."""


class _Options(TypedDict, total=False):
    name: str | None
    context: Context | None


class _Begun(NamedTuple, Generic[T]):
    """Who has begun a task, and where in the program: ``file:line``."""

    owner: T | None
    location: str


class Spawned(Generic[T]):
    """Those of one process. ``owner``: returns what has begun the one that begins now, or None. ``hear``: is told of it."""

    def __init__(self, owner: Callable[[], T | None], hear: Callable[[T | None], None]) -> None:
        self._owner = owner
        self._hear = hear
        self._running: dict[_Task, _Begun[T]] = {}

    def factory(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[object, object, object],
        **options: Unpack[_Options],
    ) -> _Task:
        """Makes a task of that loop (:meth:`asyncio.loop.set_task_factory`)."""
        task = cast(_Task, asyncio.Task(work, loop=loop, **options))
        begun = self._running[task] = _Begun(self._owner(), caller())
        task.add_done_callback(self._running.pop)
        self._hear(begun.owner)
        return task

    @property
    def is_running(self) -> bool:
        """Whether there are any."""
        return bool(self._running)

    def location(self) -> str:
        """Where the program has begun the one that runs: ``file:line``; empty if none runs."""
        begun = self._running.get(cast(_Task, asyncio.current_task()))
        return "" if begun is None else begun.location

    def of(self, owner: T) -> list[_Task]:
        """Those of one owner."""
        return [task for task, begun in self._running.items() if begun.owner is owner]

    def keeps(self, owner: T) -> bool:
        """Whether the loop has to run for one of that owner, or of none."""
        return any(begun.owner is owner or begun.owner is None for begun in self._running.values())

    def all(self) -> list[_Task]:
        """All of them."""
        return list(self._running)
