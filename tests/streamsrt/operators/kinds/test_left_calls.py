"""Calls that had not begun when an instance ends: left where nobody has seen anything of their records, else made."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.errors import ProcessingError
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.kinds.test_batches import Running
from tests.streamsrt.operators.kinds.test_call_windows import work
from topology import KStream, Processor, ProcessorContext, Record, Store, StreamsBuilder, Topology, serdes

pytestmark = pytest.mark.waits

PATIENCE_S = 30.0
CONCURRENCY = 2
RECORDS = 12
Stream = KStream[Any, Any]


class Slow:
    """A function whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.under_way = threading.Semaphore(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._may_end: asyncio.Event | None = None

    async def map(self, value: Any) -> Any:
        self._loop = asyncio.get_running_loop()
        self._may_end = self._may_end or asyncio.Event()
        self.calls.append(value)
        self.under_way.release()
        await self._may_end.wait()
        return value

    def let_go(self) -> None:
        assert self._loop is not None
        assert self._may_end is not None
        self._loop.call_soon_threadsafe(self._may_end.set)


def topology_of(build: Callable[[Stream], Stream], *topics: str) -> Topology:
    builder = StreamsBuilder()
    stream: Stream = builder.stream(list(topics) or "in", key=serdes.string, value=serdes.json)
    build(stream).to("out", key=serdes.string, value=serdes.json)
    return builder.build()


def ended(slow: Slow, topology: Topology, *topics: str, **config: Any) -> tuple[Running, dict[str, int]]:
    """A task that is asked to end while the first calls run, and the offsets that it commits."""
    running = Running(topology, **config)
    for topic in topics or ("in",):
        values = [serdes.json.serialize(f"{topic}{number}") for number in range(RECORDS)]
        running.task.add_batch(topic, 0, RecordColumns([b"k"] * RECORDS, values, [1] * RECORDS, 0, RECORDS))
    while len(slow.calls) < CONCURRENCY:
        work(running)
    running.task.leave_queued_calls()
    asked = [slow.let_go]
    running.task.while_calling(lambda: asked.pop()() if asked else None)
    done = running.task.prepare_commit()
    assert not running.task.is_calling
    return running, {topic: offset for (topic, _), (offset, _) in done.offsets.items()}


def values_of(running: Running, topic: str = "out") -> list[Any]:
    return [row[1] for row in running.out(topic)]


STEPS: dict[str, Callable[[Stream], Stream]] = {
    "nothing": lambda stream: stream,
    "map_values": lambda stream: stream.map_values(lambda value: value),
    "filter": lambda stream: stream.filter(lambda key, value: value not in ("in0", "in3")),
    "select_key": lambda stream: stream.select_key(lambda key, value: value),
    "peek": lambda stream: stream.peek(lambda key, value: None),
}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_only_calls_that_run_are_waited_for(step: str, ordered: bool) -> None:
    slow = Slow()
    topology = topology_of(
        lambda stream: STEPS[step](stream).map_async(slow.map, concurrency=CONCURRENCY, ordered=ordered)
    )
    running, committed = ended(slow, topology)
    assert len(slow.calls) == CONCURRENCY, "those that run, and no other one"
    expected = [f"in{n}" for n in range(committed["in"]) if step != "filter" or n not in (0, 3)]
    assert sorted(values_of(running)) == sorted(slow.calls) == expected
    assert running.task.left_records > 0
    running.task.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_record_has_all_its_calls_or_none(ordered: bool) -> None:
    slow = Slow()
    topology = topology_of(
        lambda stream: stream.flat_map_values(lambda value: [value + each for each in "abc"]).map_async(
            slow.map, concurrency=CONCURRENCY, ordered=ordered
        )
    )
    running, committed = ended(slow, topology)
    assert committed == {"in": 1}, "two of its three calls were under way"
    assert sorted(values_of(running)) == ["in0a", "in0b", "in0c"]
    running.task.close()


def test_each_partition_has_its_own_end() -> None:
    slow = Slow()
    topics = ("in", "on")
    topology = topology_of(lambda stream: stream.map_async(slow.map, concurrency=8), *topics)
    running = Running(topology)
    for topic in topics:
        values = [serdes.json.serialize(f"{topic}{number}") for number in range(RECORDS)]
        running.task.add_batch(topic, 0, RecordColumns([b"k"] * RECORDS, values, list(range(RECORDS)), 0, RECORDS))
    while len(slow.calls) < 8:
        work(running)
    running.task.leave_queued_calls()
    asked = [slow.let_go]
    running.task.while_calling(lambda: asked.pop()() if asked else None)
    committed = {topic: offset for (topic, _), (offset, _) in running.task.prepare_commit().offsets.items()}
    assert running.task.left_records > 0
    assert Counter(values_of(running)) == Counter(
        f"{topic}{number}" for topic, end in committed.items() for number in range(end)
    )
    running.task.close()


def _beside(slow: Slow, stream: Stream) -> Stream:
    stream.to("side", key=serdes.string, value=serdes.json)
    return stream.map_async(slow.map, concurrency=CONCURRENCY)


def _state_behind(slow: Slow, stream: Stream) -> Stream:
    called = stream.map_async(slow.map, concurrency=CONCURRENCY)
    return called.group_by_key().count(store=Store("n", key=serdes.string, value=serdes.long)).to_stream()


class Passing(Processor[Any, Any, Any, Any]):
    """A processor of the user's may keep what it likes."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record)


def _processor_before(slow: Slow, stream: Stream) -> Stream:
    return stream.process(Passing).map_async(slow.map, concurrency=CONCURRENCY)


def _lookup_before(slow: Slow, stream: Stream) -> Stream:
    found = stream.join_lookup(lambda keys: {}, lambda value, _: value, on=lambda _, value: value, how="left")
    return found.map_async(slow.map, concurrency=CONCURRENCY)


def _two(slow: Slow, stream: Stream) -> Stream:
    first = stream.map_async(slow.map, concurrency=CONCURRENCY)
    return first.map_async(slow.map, concurrency=CONCURRENCY)


def _branches(slow: Slow, stream: Stream) -> Stream:
    stream.filter(lambda key, value: value == "in1").to("side", key=serdes.string, value=serdes.json)
    return stream.filter(lambda key, value: True).map_async(slow.map, concurrency=CONCURRENCY)


@pytest.mark.parametrize("build", [_beside, _state_behind, _processor_before, _lookup_before, _two, _branches])
def test_all_are_made_where_a_result_state_or_other_calls_may_tell_of_them(
    build: Callable[[Slow, Stream], Stream],
) -> None:
    slow = Slow()
    running, committed = ended(slow, topology_of(lambda stream: build(slow, stream)))
    assert running.task.left_records == 0
    assert set(slow.calls) == {f"in{number}" for number in range(committed["in"])}
    assert committed["in"] > CONCURRENCY
    running.task.close()


def test_all_are_made_where_a_later_record_has_a_dead_letter() -> None:
    slow = Slow()

    def refuse(value: str) -> str:
        if value == "in3":
            raise ValueError(value)
        return value

    topology = topology_of(lambda stream: stream.map_values(refuse).map_async(slow.map, concurrency=CONCURRENCY))
    handlers = ExceptionHandlers(processing=log_and_continue, dead_letter_topic="letters")
    running, committed = ended(slow, topology, handlers=handlers)
    assert committed["in"] > 3
    assert values_of(running) == [f"in{number}" for number in range(committed["in"]) if number != 3]
    assert len(running.written.topics["letters"]) == 1
    running.task.close()


def test_a_failure_of_a_call_that_runs_leaves_the_others_uncommitted() -> None:
    slow = Slow()

    async def broken(value: str) -> str:
        await slow.map(value)
        raise ArithmeticError(value)

    topology = topology_of(lambda stream: stream.map_async(broken, concurrency=CONCURRENCY))
    with pytest.raises(ProcessingError, match="at in-0 offset 0,") as failed:
        ended(slow, topology)
    assert not failed.value.is_in_order
    assert len(slow.calls) == CONCURRENCY
