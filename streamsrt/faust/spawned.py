"""Tasks that the program itself begins, with ``asyncio.create_task`` and all that uses it.

1. They run beside the agents, as in Faust: no commit waits for one that nobody awaits.
2. The event loop turns for them while there are any, however little the agents have to do.
3. What one sends and writes belongs to the task whose agent or timer has begun it; it is cancelled when that task ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Generic, TypedDict, TypeVar, Unpack, cast

from streamsrt.faust.places import caller

T = TypeVar("T")
_Task = asyncio.Task[None]
"""Whatever it returns: nobody here asks for it."""


class _Options(TypedDict, total=False):
    name: str | None
    context: Context | None


class Spawned(Generic[T]):
    """Those of one process. ``owner``: returns what has begun the one that begins now, or None. ``hear``: is told of it."""

    def __init__(self, owner: Callable[[], T | None], hear: Callable[[T | None], None]) -> None:
        self._owner = owner
        self._hear = hear
        self._running: dict[_Task, T | None] = {}
        self._places: dict[_Task, str] = {}

    def factory(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[object, object, object],
        **options: Unpack[_Options],
    ) -> _Task:
        """Makes a task of that loop (:meth:`asyncio.loop.set_task_factory`)."""
        task = cast(_Task, asyncio.Task(work, loop=loop, **options))
        owner = self._running[task] = self._owner()
        self._places[task] = caller()
        task.add_done_callback(self._end)
        self._hear(owner)
        return task

    def _end(self, task: _Task) -> None:
        del self._running[task], self._places[task]

    def place(self) -> str:
        """Where the program has begun the one that runs: ``file:line``; empty if none runs."""
        task = asyncio.current_task()
        return "" if task is None else self._places.get(task, "")

    def of(self, owner: T) -> list[_Task]:
        """Those of one owner."""
        return [task for task, each in self._running.items() if each is owner]

    def keeps(self, owner: T) -> bool:
        """Whether the loop has to turn for one of that owner, or of none."""
        return any(each is owner or each is None for each in self._running.values())

    def all(self) -> list[_Task]:
        """All of them."""
        return list(self._running)
