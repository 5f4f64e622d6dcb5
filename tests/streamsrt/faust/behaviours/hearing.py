"""One agent over one topic, and what it hears."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from streamsrt.faust import TestApp
from tests.streamsrt.faust.apps import an_app

Work = Callable[[Any, list[Any]], Awaitable[None]]


def heard(
    work: Work, *values: Any, app: Any = None, topic: Any = None, commits: bool = True, **options: Any
) -> list[Any]:
    """What the agent adds to its list when it is given the values, one record each: of key ``k``, at 1, 2, 3 ... seconds.

    ``options``: of the agent. ``commits``: whether each record is committed before the next one.
    """
    app = an_app() if app is None else app
    topic = app.topic("in", key_type=str) if topic is None else topic
    seen: list[Any] = []

    async def agent(stream: Any) -> None:
        await work(stream, seen)

    app.agent(topic, **options)(agent)
    with TestApp(app) as test:
        for number, value in enumerate(values, 1):
            test.send(topic, key="k", value=value, timestamp=number, headers=(("h", b"x"),))
            if commits:
                test.driver.commit()
        test.driver.commit()
    return seen
