"""``sys.exit`` in an application: the instance ends with that exit code, and nothing of what was begun is kept."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from streamsrt.errors import ProcessingError
from streamsrt.membership.values import Tasks
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import MakeRig

require_faust()

import faust  # noqa: E402

import streamsrt.faust  # noqa: E402

ROUNDS = 50

Declare = Callable[[faust.App, Any], None]


def in_an_agent(app: faust.App, topic: Any) -> None:
    @app.agent(topic)
    async def leave(stream: Any) -> None:
        async for _ in stream:
            sys.exit(4)


def in_a_sink(app: faust.App, topic: Any) -> None:
    def leave(_: object) -> None:
        sys.exit(4)

    @app.agent(topic, sink=[leave])
    async def answer(stream: Any) -> Any:
        async for value in stream:
            yield value


def in_a_task_of_an_agent(app: faust.App, topic: Any) -> None:
    async def leave() -> None:
        await next_turn()
        sys.exit(4)

    @app.agent(topic)
    async def begin(stream: Any) -> None:
        begun = None
        async for _ in stream:
            begun = begun or asyncio.create_task(leave())


def in_a_timer(app: faust.App, topic: Any) -> None:
    reading(app, topic)

    @app.timer(0.01)
    async def leave() -> None:
        sys.exit(4)


def in_a_task(app: faust.App, topic: Any) -> None:
    reading(app, topic)

    @app.task
    async def leave() -> None:
        sys.exit(4)


def in_a_listener(app: faust.App, topic: Any) -> None:
    reading(app, topic)

    @app.on_partitions_assigned.connect(weak=False)
    async def leave(_: Any, *__: Any, **___: Any) -> None:
        sys.exit(4)


def reading(app: faust.App, topic: Any) -> None:
    @app.agent(topic)
    async def read(stream: Any) -> None:
        async for _ in stream:
            pass


def run(make_rig: MakeRig, declare: Declare) -> InProcessNetwork:
    """Runs an application over five records, until it ends itself, or too long."""
    app = an_app(web_enabled=False)
    declare(app, app.topic("in", value_serializer="raw", value_type=bytes))
    network = InProcessNetwork({"in": 1})
    rig = make_rig(topology=streamsrt.faust.topology(app), network=network)
    network.write(("in", 0), [(None, b"%d" % number) for number in range(5)])
    rig.give(Tasks(active=rig.tasks(0)))
    rounds = count()

    def is_over(_: object) -> bool:
        rig.clock_ms += 20
        return next(rounds) > ROUNDS

    rig.thread.run(is_over)
    return network


@pytest.mark.parametrize(
    "declare", [in_an_agent, in_a_sink, in_a_task_of_an_agent, in_a_timer, in_a_task, in_a_listener]
)
def test_sys_exit_anywhere_fails_with_its_line_and_its_exit_code(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture, declare: Declare
) -> None:
    with pytest.raises(ProcessingError, match=rf"called sys\.exit\(4\) \({__file__}:\d+\)") as failed:
        run(make_rig, declare)
    assert failed.value.exit_code == 4
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("argument", "says", "exit_code"),
    [(None, r"sys\.exit\(\)", 0), (0, r"sys\.exit\(0\)", 0), ("no disk", r"sys\.exit\('no disk'\)", 1)],
)
def test_the_exit_code_is_what_python_would_take(
    make_rig: MakeRig, argument: object, says: str, exit_code: int
) -> None:
    def declare(app: faust.App, topic: Any) -> None:
        @app.agent(topic)
        async def leave(stream: Any) -> None:
            async for _ in stream:
                raise SystemExit(argument)

    with pytest.raises(ProcessingError, match=says) as failed:
        run(make_rig, declare)
    assert failed.value.exit_code == exit_code
