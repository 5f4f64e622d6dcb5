"""What processor nodes write is handed over once per run, in the order in which it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamsrt.errors import MissingTopicError, ProductionError
from streamsrt.operators.engine.gathered_output import GatheredOutput
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from tests.streamsrt.operators.programs import Piped, Written, columns_of, new_task
from topology import ProcessorContext, Record, StreamsBuilder, Topology, serdes

HEADERS = (("h", b"1"),)


class Columns:
    """Keeps what it gets, call by call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def collect(self, *columns: Any, **placed: Any) -> None:
        self.calls.append((*columns, *placed.values()))


def gathering(found: Columns) -> GatheredOutput:
    output = GatheredOutput(found.collect, lambda topic: 4)
    output.is_gathering = True
    return output


def test_records_of_a_topic_are_handed_over_together() -> None:
    found = Columns()
    output = gathering(found)
    output.to("a").append(b"k", b"1", 10, ())
    output.to("b", 3).append(b"r", None, 11, ())
    output.to("a").append(b"l", b"2", 12, HEADERS)
    output.to("a").append(b"m", b"3", 13, ())
    assert found.calls == []
    output.hand_over()
    assert sorted(found.calls) == [
        ("a", [b"k", b"l", b"m"], [b"1", b"2", b"3"], [10, 12, 13], [(), HEADERS, ()], None),
        ("b", [b"r"], [None], [11], None, 3),
    ]
    output.hand_over()
    assert len(found.calls) == 2


def test_they_keep_their_order_however_they_are_placed() -> None:
    found = Columns()
    output = gathering(found)
    output.to("a").append(b"1", b"", 1, ())
    output.to("a").append(b"2", b"", 2, (), [0, 1])
    output.to("a").append(b"3", b"", 3, ())
    output.to("a", 2).append(b"4", b"", 4, ())
    output.collect("a", [b"5"], [b""], [5], partition=[1])
    output.to("a").append(b"6", b"", 6, (), 3)
    output.hand_over()
    assert [(keys, placed) for _, keys, *_, placed in found.calls] == [
        ([b"1", b"2", b"3"], [None, [0, 1], None]),
        ([b"4"], 2),
        ([b"5"], [1]),
        ([b"6"], [3]),
    ]


def test_within_another_use_nothing_is_handed_over() -> None:
    found = Columns()
    output = GatheredOutput(found.collect, lambda topic: 4)
    with output:
        with output:
            output.to("a").append(b"k", b"1", 10, ())
        assert found.calls == []
    assert len(found.calls) == 1


def test_outside_of_a_run_nothing_waits() -> None:
    found = Columns()
    output = GatheredOutput(found.collect, lambda topic: 1)
    output.to("a").append(b"k", b"1", 10, ())
    assert found.calls == [("a", [b"k"], [b"1"], [10], None, None)]


def test_a_missing_topic_is_found_where_it_is_written_to() -> None:
    def missing(topic: str) -> int:
        raise MissingTopicError(topic)

    found = Columns()
    output = GatheredOutput(found.collect, missing)
    output.is_gathering = True
    for _ in range(2):
        with pytest.raises(MissingTopicError):
            output.to("a").append(b"k", b"1", 10, ())
        with pytest.raises(MissingTopicError):
            output.to("a").append(b"k", b"1", 10, (), 0)
    output.to("log", 0).append(b"k", b"1", 10, ())
    output.hand_over()
    assert found.calls == [("log", [b"k"], [b"1"], [10], None, 0)]


# ------------------------------------------------------------------------------------------------- in a task


class Upper:
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


def uppercased() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string).process(Upper)
    stream.to("out", key=serdes.string, value=serdes.string)
    return builder.build()


ROWS = [Piped("in", "a", value, 1, ()) for value in ("x", "y", None, "z")]


def test_what_was_written_before_a_failure_is_handed_over() -> None:
    written = Written()
    task = new_task(uppercased(), written)
    task.add_batch("in", 0, columns_of(ROWS, 7))
    with pytest.raises(Exception, match="at in-0 offset 9"):
        task.process(100, 0)
    assert [value for _, value, *_ in written.topics["out"]] == [b"X", b"Y"]
    assert task.prepare_commit().ends == {("in", 0): 9}


def test_of_a_run_whose_records_the_collector_refuses_nothing_is_done() -> None:
    class Refusing(Written):
        def add(self, topic: str, keys: Sequence[bytes | None], *columns: Any) -> None:
            raise ProductionError("no", topic, 0)

    task = new_task(uppercased(), Refusing())
    task.add_batch("in", 0, columns_of(ROWS[:2], 7))
    with pytest.raises(ProductionError) as failure:
        task.process(100, 0)
    assert task.buffered_records == 2
    assert not failure.value.is_in_order


@pytest.mark.parametrize("generate", [True, False])
def test_no_record_is_skipped_where_the_collector_has_no_topic(generate: bool) -> None:
    """Those that are handed over together are not the last one's."""

    class Missing(Written):
        def add(self, topic: str, keys: Sequence[bytes | None], *columns: Any) -> None:
            raise MissingTopicError("gone")

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.map_values(str.upper).to("out", key=serdes.string, value=serdes.string)
    handlers = ExceptionHandlers(processing=log_and_continue, production=log_and_continue)
    task = new_task(builder.build(), Missing(), generate=generate, handlers=handlers)
    task.add_batch("in", 0, columns_of(ROWS[:2], 7))
    with pytest.raises(MissingTopicError) as failure:
        task.process(100, 0)
    assert task.counters()["dropped"] == 0
    assert not failure.value.is_in_order
