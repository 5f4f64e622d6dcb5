"""The event loop of the agents of one process.

1. It runs on the thread that calls it, and is paused in between: no lock is needed for stores and sends.
2. It exists from the start of the first agent to the end of the last one.
3. Tasks that are made here are no tasks of the program: the loop's task factory does not see them.
4. What ends a program (``sys.exit``) leaves asyncio's loop at once. It fails here as a mistake does: what was begun is
   undone, and the loop can still run to end the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar

from streamsrt.errors import ProcessingError
from streamsrt.faust.locations import raised_at, said

SENDER: ContextVar[str] = ContextVar("SENDER", default="")
"""What runs, in words, where it is no agent: a timer, a task. It is to blame for what it sends."""


@contextmanager
def _alone() -> Iterator[None]:
    """Lets a loop run inside the callback of another one, as in a simulation."""
    around = asyncio._get_running_loop()
    if around is None:
        yield
        return
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(around)


@contextmanager
def _no_exit() -> Iterator[None]:
    """Makes a ProcessingError of ``sys.exit``, with the exit code that the program has asked for."""
    try:
        yield
    except SystemExit as error:
        text = "" if error.code is None else repr(error.code)
        failure = ProcessingError(
            f"the application called sys.exit({text}){said(raised_at(error))}: what was begun and not committed is done "
            "again after the next start. app.stop() ends an application in order"
        )
        failure.exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise failure from error


def _seen(task: asyncio.Task[None]) -> None:
    """What it raised has left the loop, or is told already."""
    if not task.cancelled():
        task.exception()


async def _ended(workers: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*workers, return_exceptions=True)


class Host:
    """One loop, shared by all agents of the process."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0

    def enter(self) -> asyncio.AbstractEventLoop:
        """One agent more uses it."""
        self._users += 1
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def leave(self, workers: list[asyncio.Task[None]]) -> bool:
        """An agent ends, and with it its ``workers``. Returns whether it was the last one."""
        loop = self._loop
        assert loop is not None
        for worker in workers:
            worker.cancel()
        if workers:
            self.run(_ended(workers))
        self._users -= 1
        if self._users:
            return False
        self.run(loop.shutdown_asyncgens())
        loop.close()
        self._loop = None
        return True

    def start(self, work: Coroutine[object, object, None], context: Context) -> asyncio.Task[None]:
        """Lets a worker begin with the next iteration of the loop."""
        assert self._loop is not None
        task = asyncio.Task(work, loop=self._loop, context=context)
        task.add_done_callback(_seen)
        return task

    def iterate(self, times: int = 1) -> None:
        """Does what is ready, and waits for nothing."""
        assert self._loop is not None
        with _alone():
            for _ in range(times):
                end = self._loop.call_soon(self._loop.stop)
                with _no_exit():
                    try:
                        self._loop.run_forever()
                    finally:
                        end.cancel()

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Turns until the work is done."""
        assert self._loop is not None
        with _alone(), _no_exit():
            self._loop.run_until_complete(asyncio.Task(work, loop=self._loop))

    def wait(self, wait_s: float | None) -> None:
        """Turns until :meth:`wake`, for so long at most (None: for as long as it takes)."""
        loop = self._loop
        assert loop is not None
        timer = None if wait_s is None else loop.call_later(wait_s, loop.stop)
        try:
            with _alone(), _no_exit():
                loop.run_forever()
        finally:
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """Ends a :meth:`wait`."""
        assert self._loop is not None
        self._loop.stop()
