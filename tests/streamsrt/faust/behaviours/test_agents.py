"""Agents: how they are declared, called, sent to, answered and supervised."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import orjson
import pytest
from mode.supervisors import CrashingSupervisor, ForfeitOneForOneSupervisor, OneForAllSupervisor

import streamsrt.faust
from streamsrt.errors import ProcessingError, UserError
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402
from faust.agents import current_agent  # noqa: E402
from faust.exceptions import ImproperlyConfigured  # noqa: E402
from faust.types.tuples import TP  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402
from tests.streamsrt.faust.behaviours.hearing import heard  # noqa: E402
from tests.streamsrt.faust.test_agents import give  # noqa: E402


class Word(faust.Record):
    """What agents are sent."""

    text: str


async def ignore(stream: Any) -> None:
    """Hears nothing."""
    async for _ in stream:
        pass


class Doubling:
    """An agent that is an object, and one that is a method."""

    async def __call__(self, stream: Any) -> AsyncIterator[int]:
        async for value in stream:
            yield value * 2

    async def method(self, stream: Any) -> AsyncIterator[int]:
        async for value in stream:
            yield value * 2


def returning(stream: Any) -> AsyncIterator[int]:
    """A plain function that returns a generator."""
    return Doubling()(stream)


@pytest.mark.parametrize(
    "fun",
    [Doubling(), Doubling().method, returning, partial(Doubling())],
    ids=["object", "method", "function", "partial"],
)
def test_whatever_can_be_called_with_a_stream_is_an_agent(fun: Any) -> None:
    app = an_app()
    out = app.topic("out")
    app.agent(app.topic("in"), name="agent", sink=[out])(fun)
    with TestApp(app) as test:
        test.send("in", value=4)
        assert test.received(out) == [(None, 8)]


def test_sinks_are_agents_topics_and_functions() -> None:
    app, seen = an_app(), []
    topic = app.topic("out", value_type=int)

    @app.agent(app.topic("other", value_type=int))
    async def other(stream: Any) -> None:
        async for value in stream:
            seen.append(("agent", value))

    async def later(value: int) -> None:
        await next_turn()
        seen.append(("later", value))

    def now(value: int) -> None:
        seen.append(("now", value))

    @app.agent(app.topic("in", value_type=int), sink=[other, topic, now])
    async def give_on(stream: Any) -> AsyncIterator[int]:
        async for value in stream:
            yield value

    give_on.add_sink(later)
    give_on.add_sink(later)
    with TestApp(app) as test:
        test.send("in", value=3)
        assert test.received(topic) == [(None, 3)]
    assert sorted(seen) == [("agent", 3), ("later", 3), ("now", 3)]


def test_sinks_of_an_agent_that_does_not_yield_are_refused() -> None:
    app = an_app()
    app.agent(app.topic("in"), sink=[print], name="quiet")(ignore)
    with pytest.raises(
        UserError, match=r"^sink= of agent quiet \(.*test_agents\.py:\d+\), which does not yield, is not"
    ):
        streamsrt.faust.topology(app)


@pytest.mark.parametrize(
    "given", [{"schema": faust.Schema(key_type=bytes)}, {"key_type": bytes}, {"value_type": bytes}]
)
def test_a_topic_has_its_types_itself(given: Any) -> None:
    app = an_app()
    with pytest.raises(AssertionError):
        app.agent(app.topic("in"), **given)(ignore)


def test_partitions_by_themselves_have_one_call_each() -> None:
    with pytest.raises(ImproperlyConfigured):
        an_app().agent(isolated_partitions=True, concurrency=2)(ignore)


def test_the_active_partition_is_that_of_the_record() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("in"), isolated_partitions=True)
    async def alone(stream: Any) -> None:
        async for event in stream.events():
            assert stream.active_partitions == {event.message.tp}
            seen.append(event.message.tp)

    @app.agent(app.topic("in"))
    async def shared(stream: Any) -> None:
        async for _ in stream:
            assert stream.active_partitions is None

    with TestApp(app, partitions=4) as test:
        for number in range(20):
            test.send("in", value=number, partition=number % 4)
        assert not test.driver.counters()["failed_processing"]
    assert sorted(seen) == sorted(TP("in", number % 4) for number in range(20))


@pytest.mark.parametrize(("concurrency", "count"), [(2, 10), (10, 100), (100, 1000)])
def test_calls_at_once_share_the_records_and_double_none(concurrency: int, count: int) -> None:
    app = an_app()
    seen: list[int] = []
    calls: list[int] = []

    @app.agent(app.topic("numbers", value_type=int), concurrency=concurrency)
    async def work(stream: Any) -> None:
        number, own = len(calls), 0
        calls.append(0)
        async for value in stream:
            own += 1
            calls[number] = own
            seen.append(value)

    with TestApp(app) as test:
        give_all = [b"%d" % number for number in range(count)]
        for first in range(0, count, 100):
            give(test, give_all[first : first + 100])
        test.driver.commit()
    assert sorted(seen) == list(range(count))
    assert calls == [count // concurrency] * concurrency, "without keys they take turns"


def test_the_current_agent_is_known_while_it_works() -> None:
    app, seen = an_app(), []
    assert current_agent() is None

    @app.agent(app.topic("in"))
    async def agent(stream: Any) -> None:
        seen.append(current_agent() is agent)
        async for _ in stream:
            seen.append(current_agent() is agent)

    with TestApp(app) as test:
        test.send("in", value=1)
    assert seen == [True, True]
    assert current_agent() is None


def test_an_agent_without_a_topic_has_one_of_its_name() -> None:
    app, seen = an_app(), []

    @app.agent(name="shop.words", value_type=Word)
    async def words(stream: Any) -> None:
        async for word in stream:
            seen.append(word)

    with TestApp(app) as test:
        test.send(words.channel, value=Word("tea"))
    assert seen == [Word("tea")]
    assert words.get_topic_names() == ("shop-shop.words",)
    assert app.agents["shop.words"] is words


def test_an_agent_reads_several_topics() -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("first", "second", value_type=int))
    async def both(stream: Any) -> None:
        async for event in stream.events():
            seen.append((event.message.topic, event.value))

    with TestApp(app) as test:
        test.send("first", value=1)
        test.send("second", value=2)
    assert seen == [("first", 1), ("second", 2)]


def test_casts_have_a_key_a_partition_a_time_and_headers() -> None:
    app = an_app()
    other = app.agent(app.topic("other", key_type=str, value_type=int), name="other")(ignore)

    @app.agent(app.topic("in"))
    async def cast(stream: Any) -> None:
        async for value in stream:
            await other.cast(value, key="k", partition=1, timestamp=2.5, headers={"h": b"x"})
            await other.send(value=value, key="j", partition=0, headers={"g": b"y"})

    with TestApp(app, partitions=2) as test:
        test.send("in", value=7)
        rows = [(each.key, each.partition, dict(each.headers)) for each in test.driver.output_queue("other")]
        times = [each.timestamp for each in test.driver.output_queue("other")]
    assert rows == [(b"k", 1, {"h": b"x"}), (b"j", 0, {"g": b"y"})]
    assert times[0] == 2500


@pytest.mark.parametrize("by_headers", [True, False])
@pytest.mark.parametrize("value", [7, Word("tea")], ids=["number", "model"])
def test_requests_are_answered_where_they_say(by_headers: bool, value: Any) -> None:
    app, seen = an_app(), []

    @app.agent(app.topic("questions", key_type=str), use_reply_headers=by_headers, name="answering")
    async def answering(stream: Any) -> AsyncIterator[Any]:
        async for each in stream:
            seen.append(each)
            yield each

    asked: list[Any] = []

    @app.agent(app.topic("in"))
    async def asking(stream: Any) -> None:
        async for _ in stream:
            with pytest.raises(TypeError):
                await answering.ask_nowait(value)
            promise = await answering.ask_nowait(value, key="k", reply_to=app.topic("answers"), correlation_id="7")
            asked.append((promise.reply_to, promise.correlation_id, promise.done()))

    with TestApp(app) as test:
        test.send("in", value=1)
        (answer,) = test.driver.output_queue("answers")
        raw = orjson.loads(answer.value or b"")
    assert asked == [("answers", "7", False)]
    assert seen == [value]
    assert (raw["correlation_id"], raw["key"]) == ("7", "k")
    assert raw["value"] == (7 if value == 7 else {"text": "tea", "__faust": {"ns": Word._options.namespace}})


def test_the_applications_own_handler_hears_of_what_agents_raise() -> None:
    told: list[Any] = []

    class Told(faust.App):
        async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:
            told.append((agent.name, str(exc)))

    app = Told("shop", broker="kafka://localhost:9092")

    @app.agent(app.topic("in"), name="fragile")
    async def fragile(stream: Any) -> None:
        async for _ in stream:
            raise ValueError("no luck")

    with TestApp(app) as test:
        test.send("in", value=1)
    assert told == [("fragile", "no luck")]


def test_an_agent_that_is_cancelled_begins_again() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            seen.append(value)
            if value == 1:
                raise asyncio.CancelledError

    assert heard(work, 1, 2) == [1, 2]


@pytest.mark.parametrize("where", ["agent", "app"])
def test_a_crashing_supervisor_stops_the_application(where: str) -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for _ in stream:
            raise ValueError("no luck")

    app = an_app(**({"agent_supervisor": CrashingSupervisor} if where == "app" else {}))
    options = {"supervisor_strategy": CrashingSupervisor} if where == "agent" else {}
    message = r"raised ValueError: no luck at in-0 offset 0, and its supervisor is CrashingSupervisor"
    with pytest.raises(ProcessingError, match=message):
        heard(work, 1, app=app, **options)


def test_a_supervisor_of_all_calls_goes_on_like_that_of_one() -> None:
    async def work(stream: Any, seen: list[Any]) -> None:
        async for value in stream:
            seen.append(value)
            if value == 1:
                raise ValueError("no luck")

    assert heard(work, 1, 2, supervisor_strategy=OneForAllSupervisor) == [1, 2]


def test_a_supervisor_that_gives_up_agents_is_refused() -> None:
    app = an_app()
    app.agent(app.topic("in"), supervisor_strategy=ForfeitOneForOneSupervisor, name="lost")(ignore)
    with pytest.raises(
        UserError, match=r"the supervisor ForfeitOneForOneSupervisor of agent lost \(.*leave records unread"
    ):
        streamsrt.faust.topology(app)


def test_an_agent_describes_and_copies_itself() -> None:
    app = an_app()
    agent = app.agent(app.topic("in"), name="agent", concurrency=3)(ignore)
    info = agent.info()
    assert (info["name"], info["concurrency"], info["channel"]) == ("agent", 3, agent.channel)
    assert info["isolated_partitions"] is False
    assert agent.clone(concurrency=1).concurrency == 1
    assert agent.label.startswith("Agent: ")


ALONE = """
import asyncio, faust
from functools import partial

app = faust.App("shop", broker="kafka://localhost:9092")
told = []

class Doubling:
    async def __call__(self, stream):
        async for value in stream:
            yield value * 2

def returning(stream):
    return Doubling()(stream)

async def quiet(stream):
    async for value in stream:
        told.append(value)

async def main():
    for number, fun in enumerate((Doubling(), partial(Doubling()), returning)):
        agent = app.agent(app.topic(f"t{number}"), name=f"a{number}", sink=[told.append])(fun)
        async with agent.test_context() as context:
            event = await context.put(21)
            print(context.results[event.message.offset])
    agent = app.agent(app.topic("t"), name="quiet")(quiet)
    async with agent.test_context() as context:
        await context.put(7)
    agent = app.agent(app.topic("many"), name="many", concurrency=3)(Doubling())
    async with agent.test_context() as context:
        for value in range(6):
            await context.put(value)
        print(sorted(context.results.values()))
    print(told)

asyncio.run(main())
"""


def test_agents_of_every_kind_are_tested_by_themselves() -> None:
    """In a process of its own: what Faust opens for it stays open."""
    program = "import streamsrt.faust\n" + ALONE
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:5] == ["42", "42", "42", "[0, 2, 4, 6, 8, 10]", "[42, 42, 42, 7]"], done.stderr
