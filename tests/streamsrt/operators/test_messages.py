"""What a program's mistakes look like while records are processed: the step, its line, and what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, ProductionError
from streamsrt.testing.mock_processor_context import MockProcessorContext
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import KStream, Processor, ProcessorContext, StreamsBuilder, TimeWindows, TopologyError, serdes

Mistake = Callable[[KStream[str, str]], object]


def wrong_value(stream: Any) -> None:
    stream.to("out", value=serdes.long)  # here


def wrong_key(stream: Any) -> None:
    stream.select_key(lambda key, value: 5).repartition(name="r").to("out")  # here


def wrong_aggregate(stream: Any) -> None:
    stream.group_by_key().aggregate(str, lambda key, value, total: total + value, store="s", value=serdes.long)  # here


def wrong_window(stream: Any) -> None:
    grouped = stream.map_values(len).group_by_key(value=serdes.string).windowed_by(TimeWindows(5))
    grouped.reduce(lambda total, value: total + value)  # here


def wrong_row(stream: Any) -> None:
    stream.map_values(len).to_table(store="s", value=serdes.string)  # here


def raises(stream: Any) -> None:
    stream.map_values(lambda value: value + 1).to("out")  # here


def no_processor(stream: Any) -> None:
    stream.process(lambda: 5)  # here


def no_pair(stream: Any) -> None:
    stream.map(lambda key, value: 5).to("out", key=serdes.string, value=serdes.string)  # here


class Scheduling(Processor[Any, Any, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any]) -> None:
        context.schedule(60, "wall", print)  # type: ignore[arg-type]  # a mistake


MISTAKES: dict[Mistake, tuple[type[Exception], str]] = {
    wrong_value: (
        ProductionError,
        "the serde takes values of type int, not str (error: required argument is not an integer)",
    ),
    wrong_key: (ProductionError, "the serde takes values of type str, not int (TypeError: "),
    wrong_aggregate: (
        ProductionError,
        "can't take a value of type str: error: required argument is not an integer. It is",
    ),
    wrong_window: (ProductionError, "in partition 0, and serdes.string writes the store's values"),
    wrong_row: (ProductionError, "store 's' of "),
    raises: (ProcessingError, "in node KSTREAM-MAPVALUES-0000000001 ("),
    no_processor: (TopologyError, "returned 5, which is not a Processor"),
    no_pair: (ProcessingError, "in node KSTREAM-MAP-0000000001 ("),
}


def line_of(mistake: Mistake) -> str:
    lines, start = inspect.getsourcelines(mistake)
    (offset,) = [offset for offset, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return f"{__file__}:{start + offset}"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_told_with_the_line_of_its_step(mistake: Mistake) -> None:
    kind, message = MISTAKES[mistake]
    builder = StreamsBuilder()
    mistake(builder.stream("in", key=serdes.string, value=serdes.string))
    topology = builder.build()

    def run() -> None:
        with TopologyTestDriver(topology) as driver:
            driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "v")

    with pytest.raises(kind) as raised:
        run()
    assert message in str(raised.value)
    assert line_of(mistake) in str(raised.value)


def test_a_value_that_is_too_large_for_its_store_is_shown_with_its_key() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.json).group_by_key(value=serdes.json)
    grouped.reduce(lambda total, value: total + value, store="tot", value=serdes.long)
    handlers = {"processing.exception.handler": "continue", "production.exception.handler": "continue"}

    def run() -> None:
        with TopologyTestDriver(builder.build(), handlers) as driver:
            topic = driver.create_input_topic("in", serdes.string, serdes.json)
            for key, value in (("small", 1), ("large", 2**63 - 1), ("large", 1)):
                topic.pipe_input(key, value)

    with pytest.raises(
        ProductionError, match=r"It is 9223372036854775808 of key 'large' in partition 0, and serdes.long"
    ):
        run()


def test_a_schedule_names_what_it_takes_and_the_line_that_makes_it() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process(Scheduling, name="minutes")
    with pytest.raises(TopologyError, match=r"PunctuationType.STREAM_TIME or .*, not 'wall'") as raised:
        TopologyTestDriver(builder.build())
    _, start = inspect.getsourcelines(Scheduling)
    assert str(raised.value).startswith(f"{__file__}:{start + 2}: minutes: ")
    context = MockProcessorContext()
    with pytest.raises(TopologyError, match=r"test_messages.py:\d+: schedule\(\): .*, not 'wall'"):
        Scheduling().init(context)


def test_a_timestamp_that_is_no_number_is_told_with_its_source() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string, timestamp_extractor=lambda record, time: "x").to("out")

    def run() -> None:
        with TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "v")

    with pytest.raises(
        ProcessingError, match=r"extractor of KSTREAM-SOURCE-0000000000 \(.*test_messages.py:\d+\) returned 'x'"
    ):
        run()


@pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])
@pytest.mark.parametrize(
    ("serde", "value", "said"),
    [
        (serdes.long, "7", "the serde takes values of type int, not str (error: "),
        (serdes.integer, 7.5, "the serde takes values of type int, not float (error: "),
        (serdes.double, "7", "the serde takes values of type float, not str (error: "),
        (serdes.string, 7, "the serde takes values of type str, not int (TypeError: "),
    ],
    ids=["long", "integer", "double", "string"],
)
def test_a_value_of_another_type_is_told_with_both_types(
    serde: serdes.Serde[Any], value: object, said: str, generate: bool
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).map_values(lambda _: value).to("out", value=serde)
    refused = pytest.raises(ProductionError, match=re.escape(f"a result can't be written: {said}"))
    with TopologyTestDriver(builder.build(), generate=generate) as driver, refused:
        driver.pipe_raw("in", b"k", b"v", 0)
