"""What the loop says about exceptions that nobody waited for: which of them are errors of this package's own code."""

from __future__ import annotations

import asyncio

import pytest

from streamsrt.client.spawned import defect_in, spawn


async def _raises(error: BaseException) -> None:
    raise error


async def _waits(event: asyncio.Event) -> None:
    await event.wait()


def test_what_a_spawned_task_raises_is_told_with_the_task() -> None:
    async def run() -> list[dict[str, object]]:
        told: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        failing, waiting = spawn(_raises(OSError("gone"))), spawn(_waits(asyncio.Event()))
        await asyncio.wait([failing])
        waiting.cancel()
        await asyncio.wait([waiting])
        return told

    (context,) = asyncio.run(run())
    assert str(defect_in(context)) == "gone", "one that is cancelled is not told"


@pytest.mark.parametrize(
    ("context", "is_defect"),
    [
        ({"handle": object(), "exception": KeyError("k")}, True),
        ({"handle": object(), "exception": ConnectionResetError()}, False),
        ({"handle": object(), "exception": asyncio.InvalidStateError()}, False),
        ({"transport": object(), "exception": ValueError()}, False),
        ({"message": "something else"}, False),
    ],
)
def test_callbacks_count_and_transports_do_not(context: dict[str, object], is_defect: bool) -> None:
    assert (defect_in(context) is not None) is is_defect
