"""Tasks on the network thread that nobody waits for.

If one of them raised something that its code does not expect, an application would go on without heartbeats, fetches or
acknowledgements, and without a word. Such an exception goes to the loop's exception handler, and from there to the
processing thread, which ends the application with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping

_OURS = "streamsrt"


def spawn(coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Runs it as a task. What it raises is reported to the loop."""
    task = asyncio.create_task(coroutine)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        task.get_loop().call_exception_handler({"message": f"{task} failed", "exception": error, _OURS: True})


def defect_in(context: Mapping[str, object]) -> BaseException | None:
    """The exception that a spawned task or a callback of the loop has raised, out of what the loop says; None: it tells
    something else, such as the failure of a transport, which closes its connection. A callback that comes too late for a
    future leaves nothing undone."""
    error = context.get("exception")
    if not isinstance(error, BaseException):
        return None
    is_callback = "handle" in context and not isinstance(error, OSError | asyncio.InvalidStateError)
    return error if _OURS in context or is_callback else None
