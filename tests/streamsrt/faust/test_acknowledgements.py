"""Agents that acknowledge events themselves, and lists with the times of their records."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()


from streamsrt.faust import TestApp  # noqa: E402


@pytest.mark.parametrize("by", ["event", "stream"])
def test_what_is_not_acknowledged_comes_again_after_a_crash(by: str) -> None:
    app, seen = an_app(), []
    open_events: dict[str, Any] = {}

    @app.agent(app.topic("orders", value_type=str, value_serializer="raw"))
    async def keep(stream: Any) -> None:
        by_hand = stream.noack()
        async for event in by_hand.events():
            seen.append(event.value)
            open_events[event.value] = event
            for item in ("b", "a") if event.value == "c" else ():
                done = open_events.pop(item)
                if by == "event":
                    assert (done.ack(), done.ack()) == (True, False)
                else:
                    await by_hand.ack(done)

    with TestApp(app) as test:
        test.send("orders", value="a")
        test.send("orders", value="b")
        test.driver.commit()
        test.driver.restart(clean=False)
        assert seen == ["a", "b", "a", "b"], "nothing was committed"
        test.send("orders", value="c")
        test.driver.commit()
        test.driver.restart(clean=False)
        assert seen[4:] == ["c", "c"], "what is before the first open record is"


def test_an_acknowledgement_behind_a_commit_is_in_the_next_one() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("orders", value_type=str, value_serializer="raw"))
    async def keep(stream: Any) -> None:
        async for event in stream.noack().events():
            seen.append(event)

    with TestApp(app) as test:
        test.send("orders", value="a")
        test.driver.commit()
        (only,) = seen
        only.ack()
        test.driver.commit()
        test.driver.restart(clean=False)
    assert len(seen) == 1


def test_what_a_filter_passes_over_and_what_an_agent_fails_at_holds_nothing_back() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("orders", value_type=int))
    async def keep(stream: Any) -> None:
        async for event in stream.noack().filter(lambda number: number > 0).events():
            seen.append(event.value)
            if event.value == 7:
                raise ValueError("no luck")
            event.ack()

    with TestApp(app) as test:
        for number in (-1, 7, 1):
            test.send("orders", value=number)
        test.driver.pipe_raw("orders", None, b"{", 0)
        test.driver.commit()
        test.driver.restart(clean=False)
    assert seen == [7, 1]


def test_lists_of_events_that_the_agent_acknowledges() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("orders", value_type=int))
    async def keep(stream: Any) -> None:
        async for events in stream.noack_take(2, within=60):
            seen.append([event.value for event in events])
            for event in events:
                if event.value == 1:
                    event.ack()

    with TestApp(app) as test:
        for number in (1, 2, 3, 4):
            test.send("orders", value=number)
        test.driver.commit()
        assert [number for part in seen for number in part] == [1, 2, 3, 4]
        before = len(seen)
        test.driver.restart(clean=False)
        assert [number for part in seen[before:] for number in part] == [2, 3, 4]


def test_values_get_the_times_of_their_records() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("orders"))
    async def keep(stream: Any) -> None:
        async for values in stream.take_with_timestamp(10, within=60, timestamp_field_name="at"):
            seen.extend(values)

    with TestApp(app) as test:
        test.send("orders", value={"item": "tea"}, timestamp=1.5)
        test.send("orders", value=["no dictionary"], timestamp=2)
        test.driver.commit()
    assert seen == [{"item": "tea", "at": 1.5}, ["no dictionary"]]
