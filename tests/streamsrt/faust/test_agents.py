"""Agents: what they are given, in which order, and what becomes of their exceptions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from streamsrt.errors import ProcessingError, UserError
from streamsrt.wire.records import RecordColumns
from tests.streams_server import next_turn
from tests.streamsrt.faust.apps import an_app
from tests.streamsrt.faust.needed import require_faust

require_faust()

import faust  # noqa: E402

from streamsrt.faust import TestApp  # noqa: E402


def test_values_events_items_and_numbers() -> None:
    app = an_app()
    lines = app.topic("lines", key_type=str, value_type=str, value_serializer="raw")
    seen: list[Any] = []

    @app.agent(lines)
    async def values(stream: Any) -> None:
        async for value in stream:
            seen.append(("value", value, stream.current_event.key, faust.current_event().value))

    @app.agent(lines)
    async def events(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            place = (message.topic, message.partition, message.offset, message.timestamp)
            seen.append(("event", event.key, event.value, event.headers, *place))

    @app.agent(lines)
    async def items(stream: Any) -> None:
        async for key, value in stream.items():
            seen.append(("item", key, value))

    @app.agent(lines)
    async def numbers(stream: Any) -> None:
        async for number, value in stream.enumerate(1):
            seen.append(("number", number, value))

    with TestApp(app) as test:
        test.send("lines", key="k", value="one", timestamp=1.5, headers=(("h", b"x"),))
        test.send("lines", value="two")
    assert sorted(seen, key=str) == sorted(
        [
            ("value", "one", "k", "one"),
            ("value", "two", None, "two"),
            ("event", "k", "one", {"h": b"x"}, "lines", 0, 0, 1.5),
            ("event", None, "two", {}, "lines", 0, 1, 0.0),
            ("item", "k", "one"),
            ("item", None, "two"),
            ("number", 1, "one"),
            ("number", 2, "two"),
        ],
        key=str,
    )


def test_what_is_filtered_is_neither_seen_nor_echoed() -> None:
    app = an_app()
    numbers, copies = app.topic("numbers", value_type=int), app.topic("copies", value_type=int)
    seen: list[int] = []

    @app.agent(numbers)
    async def even(stream: Any) -> None:
        async for number in stream.filter(lambda number: number % 2 == 0).echo(copies):
            seen.append(number)

    with TestApp(app) as test:
        for number in range(5):
            test.send("numbers", value=number)
        assert test.received("copies") == [(None, 0), (None, 2), (None, 4)]
    assert seen == [0, 2, 4]


def test_what_an_agent_yields_goes_to_its_sinks_and_back_to_those_who_asked() -> None:
    app = an_app()
    doubled = app.topic("doubled", value_type=int)
    told: list[int] = []

    async def tell(value: int) -> None:
        await next_turn()
        told.append(value)

    @app.agent(app.topic("numbers", value_type=int), sink=[doubled, tell])
    async def double(stream: Any) -> AsyncIterator[int]:
        async for number in stream:
            yield number * 2

    with TestApp(app) as test:
        test.send("numbers", value=4)
        asked = {"Faust-Ag-ReplyTo": b"answers", "Faust-Ag-CorrelationId": b"7"}
        test.send("numbers", value=5, headers=tuple(asked.items()))
        assert test.received("doubled") == [(None, 8), (None, 10)]
        (answer,) = test.driver.output_queue("answers")
        assert orjson.loads(answer.value or b"")["value"] == 10
        assert orjson.loads(answer.value or b"")["correlation_id"] == "7"
    assert told == [8, 10]


@pytest.mark.parametrize("raises", [False, True])
def test_what_ends_while_another_task_lets_the_loop_turn_is_in_the_commit(raises: bool) -> None:
    app, gate = an_app(), asyncio.Event()

    @app.agent(app.topic("numbers", value_type=int))
    async def copy(stream: Any) -> None:
        async for number in stream:
            await gate.wait()
            await app.send("copies", value=number)
            if raises and number:
                raise ProcessingError("for good")

    with TestApp(app, partitions=2) as test:
        tasks = test.driver._tasks
        for number, task in enumerate(tasks):
            task.add_batch("numbers", number, RecordColumns([None], [b"%d" % number], [1], 0, 1))
            task.process(1, 1, finishes=False)
        gate.set()
        while tasks[0].is_calling:
            tasks[0].await_calls(0.01)
        if raises:
            with pytest.raises(ProcessingError, match="for good"):
                tasks[1].prepare_commit()
        else:
            tasks[1].prepare_commit()
        sent = [each.value for each in test.driver.producer_history if each.topic == "copies"]
    assert sent == ([b"0"] if raises else [b"0", b"1"])


def test_an_agent_that_raises_goes_on_behind_the_record() -> None:
    app = an_app()
    starts: list[int] = []
    seen: list[str] = []

    @app.agent(app.topic("lines", value_type=str))
    async def fragile(stream: Any) -> None:
        starts.append(len(seen))
        async for line in stream:
            if line == "bad":
                raise ValueError("no such line")
            seen.append(line)

    with TestApp(app, {"errors.dead.letter.queue.topic.name": "letters"}) as test:
        for line in ("one", "bad", "two"):
            test.send("lines", key=b"k", value=line)
        (letter,) = test.driver.output_queue("letters")
        assert (letter.key, letter.value) == (b"k", b'"bad"')
        headers = dict(letter.headers)
        assert headers["__streams.errors.exception"] == b"ValueError"
        assert headers["__streams.errors.offset"] == b"1"
        assert test.driver.counters()["failed_processing"] == 1
    assert seen == ["one", "two"]
    assert starts == [0, 1]


def test_an_exception_stops_the_application_where_the_handler_says_so() -> None:
    app = an_app()

    @app.agent(app.topic("lines", value_type=str))
    async def fragile(stream: Any) -> None:
        async for _ in stream:
            raise ValueError("no such line")

    with (
        TestApp(app, {"processing.exception.handler": "fail"}) as test,
        pytest.raises(ProcessingError, match=r"ValueError: no such line \(at lines-0 offset 0"),
    ):
        test.send("lines", value="bad")


def test_records_that_can_not_be_decoded_are_passed_over() -> None:
    app = an_app()
    seen: list[int] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def numbers(stream: Any) -> None:
        async for number in stream:
            seen.append(number)

    with TestApp(app) as test:
        for raw in (b"1", b"{", b"3"):
            test.driver.pipe_raw("numbers", None, raw, 0)
        assert test.driver.counters()["failed_deserialization"] == 1
    assert seen == [1, 3]


def test_an_agent_that_raises_before_its_first_record_is_not_called_again() -> None:
    app = an_app()

    @app.agent(app.topic("lines"))
    async def broken(stream: Any) -> None:
        raise ValueError("no connection")

    with (
        TestApp(app) as test,
        pytest.raises(ProcessingError, match=r"test_agents\.py:\d+\) raised ValueError: no conn"),
    ):
        test.send("lines", value="a")


def test_an_agent_that_returns_is_an_error() -> None:
    app = an_app()

    @app.agent(app.topic("lines"))
    async def first_only(stream: Any) -> None:
        async for _ in stream:
            break

    with TestApp(app) as test, pytest.raises(ProcessingError, match=r"first_only .*test_agents\.py:\d+\) has returned"):
        test.send("lines", value="a")


@pytest.mark.parametrize("concurrency", [1, 3])
def test_agents_that_await_keep_the_order_of_each_key(concurrency: int) -> None:
    app = an_app()
    done: dict[str, list[int]] = {}
    at_once, most = 0, 0

    @app.agent(app.topic("jobs", key_type=str, value_type=int), concurrency=concurrency)
    async def work(stream: Any) -> None:
        nonlocal at_once, most
        async for key, number in stream.items():
            at_once += 1
            most = max(most, at_once)
            for _ in range(1 + number % 5):
                await next_turn()
            await asyncio.get_running_loop().run_in_executor(None, len, "")
            at_once -= 1
            done.setdefault(key, []).append(number)

    with TestApp(app) as test:
        for number in range(30):
            test.driver.pipe_raw("jobs", b"key-%d" % (number % 4), b"%d" % number, 0)
    assert done == {f"key-{key}": list(range(key, 30, 4)) for key in range(4)}
    assert most == 1, "the driver processes record by record"


def test_a_batch_is_worked_on_by_all_workers_at_once() -> None:
    app = an_app()
    most = at_once = 0

    @app.agent(app.topic("jobs", key_type=str, value_type=int), concurrency=3)
    async def work(stream: Any) -> None:
        nonlocal most, at_once
        async for _ in stream:
            at_once += 1
            most = max(most, at_once)
            await next_turn()
            at_once -= 1

    with TestApp(app) as test:
        task = test.driver._tasks[0]
        keys: list[bytes | None] = [b"key-%d" % number for number in range(30)]
        values: list[bytes | None] = [b"1"] * 30
        task.add_batch("jobs", 0, RecordColumns(keys, values, [0] * 30, 0, 30))
        task.process(100, 0)
        assert task.prepare_commit().offsets["jobs", 0][0] == 30
    assert most == 3


def test_acknowledging_by_hand_is_no_harm() -> None:
    app = an_app()
    seen: list[Any] = []

    @app.agent(app.topic("lines", value_type=str))
    async def by_hand(stream: Any) -> None:
        async for event in stream.events():
            async with event:
                seen.append((event.value, event.ack(), await stream.ack(event)))

    with TestApp(app) as test:
        test.send("lines", value="a")
        test.send("lines", value="b")
    assert seen == [("a", True, True), ("b", True, True)]


ALONE = """
import asyncio, faust
from streamsrt.faust import TestApp

app = faust.App("shop", broker="kafka://localhost:9092")
seen = []

@app.agent(app.topic("numbers", value_type=int), sink=[seen.append])
async def double(stream):
    async for number in stream:
        yield number * 2

with TestApp(app) as test:
    test.send("numbers", value=1)
    print(seen)

async def alone():
    async with double.test_context() as agent:
        event = await agent.put(21)
        print(agent.results[event.message.offset])

asyncio.run(alone())
"""


def test_agents_are_tested_by_themselves_as_before() -> None:
    """In a process of its own: what faust opens for it stays open."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["[2]", "42"], done.stderr


def give(test: TestApp, values: list[bytes]) -> None:
    """Several records of the topic ``numbers`` at once."""
    (task,) = test.driver._tasks
    keys: list[bytes | None] = [None] * len(values)
    task.add_batch("numbers", 0, RecordColumns(keys, [*values], [0] * len(values), 0, len(values)))
    task.process(100, 0, finishes=False)


def test_values_are_taken_many_at_a_time() -> None:
    app = an_app()
    seen: list[list[int]] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def take(stream: Any) -> None:
        async for numbers in stream.filter(lambda number: number != 3).take(4, within=3600):
            assert stream.current_event.value == numbers[-1]
            seen.append(numbers)

    with TestApp(app) as test:
        (task,) = test.driver._tasks
        give(test, [b"%d" % number for number in range(5)] + [b"{"] + [b"%d" % number for number in range(5, 11)])
        assert seen == [[0, 1, 2, 4], [5, 6, 7, 8]]
        assert task.is_calling, "two wait for two more"
        assert task.prepare_commit().offsets["numbers", 0][0] == 12
        assert seen[2:] == [[9, 10]], "a commit does not wait for them"
        assert not task.is_calling


def test_values_are_not_waited_for_longer_than_wanted() -> None:
    app = an_app()
    seen: list[list[int]] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def take(stream: Any) -> None:
        async for events in stream.take_events(100, within=0.05):
            seen.append([event.value for event in events])

    with TestApp(app) as test:
        (task,) = test.driver._tasks
        give(test, [b"1", b"2"])
        while task.is_calling:
            task.await_calls(5.0)
    assert seen == [[1, 2]]


def test_what_was_taken_fails_together() -> None:
    app = an_app()

    @app.agent(app.topic("numbers", value_type=int))
    async def take(stream: Any) -> None:
        async for numbers in stream.take(3, within=3600):
            if 1 in numbers:
                raise ValueError("one")

    with TestApp(app, {"errors.dead.letter.queue.topic.name": "letters"}) as test:
        give(test, [b"%d" % number for number in range(6)])
        (task,) = test.driver._tasks
        assert not task.is_calling
        assert [each.value for each in test.driver.producer_history] == [b"0", b"1", b"2"]


def test_the_current_event_is_that_of_the_last_value_taken() -> None:
    """What was filtered out behind it was nobody's: a reply would go to whoever asked for that."""
    app = an_app()
    seen: list[Any] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def take(stream: Any) -> AsyncIterator[int]:
        async for numbers in stream.filter(lambda number: number != 2).take(10, within=3600):
            event = stream.current_event
            seen.append((numbers, event.value, event.message.offset))
            yield sum(numbers)

    with TestApp(app) as test:
        give(test, [b"1", b"2"])
        test.driver.commit()
        assert seen == [([1], 1, 0)]


def test_acknowledging_the_current_event_of_a_list_is_not_another_ones() -> None:
    app = an_app()

    @app.agent(app.topic("numbers", value_type=int))
    async def take(stream: Any) -> None:
        async for _ in stream.noack().filter(lambda number: number != 2).take(10, within=3600):
            stream.current_event.ack()

    with TestApp(app) as test:
        (task,) = test.driver._tasks
        give(test, [b"1", b"2"])
        assert task.prepare_commit().offsets["numbers", 0][0] == 2


def test_values_before_one_whose_processor_raises_are_taken() -> None:
    app = an_app()
    seen: list[Any] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def take(stream: Any) -> None:
        async for numbers in stream.filter(lambda number: 1 / (number - 3)).take(4, within=3600):
            seen.append((numbers, stream.current_event.value))

    with TestApp(app, {"errors.dead.letter.queue.topic.name": "letters"}) as test:
        give(test, [b"%d" % number for number in range(1, 7)])
        test.driver.commit()
        assert seen == [([1, 2], 2), ([4, 5, 6], 6)]
        assert [each.value for each in test.driver.producer_history] == [b"3"]


class Telling(faust.App):
    """An application that hears of errors, and fails at it."""

    async def _on_agent_error(self, agent: Any, error: BaseException) -> None:
        raise LookupError("nobody to tell")


def test_an_agent_whose_on_error_raises_ends_the_application() -> None:
    app = Telling("shop", broker="kafka://localhost:9092")

    @app.agent(app.topic("numbers", value_type=int))
    async def count(stream: Any) -> None:
        async for number in stream:
            raise ValueError(number)

    said = r"^on_error of agent .* raised LookupError: nobody to tell, when it was told ValueError: 1"
    with TestApp(app) as test, pytest.raises(ProcessingError, match=said):
        test.send("numbers", value=1)


def test_agents_send_to_each_other_and_can_not_wait_for_answers() -> None:
    app = an_app()
    seen: list[int] = []

    @app.agent(app.topic("numbers", value_type=int))
    async def first(stream: Any) -> None:
        async for number in stream:
            if number == 3:
                await getattr(second, "as" + "k")(number)
            await second.cast(number)
            await second.send(value=number, reply_to="answers")

    @app.agent(app.topic("more", value_type=int))
    async def second(stream: Any) -> AsyncIterator[int]:
        async for number in stream:
            seen.append(number)
            yield number

    with TestApp(app) as test:
        test.send("numbers", value=1)
        assert seen == [1, 1]
        assert len(test.driver.output_queue("answers")) == 1
        with pytest.raises(UserError, match=r"^ask, map or join in an agent .*test_agents\.py:\d+\) is not supported"):
            test.send("numbers", value=3)
