"""With the deserialization handler ``strict``, bytes that a serde can't read stop the application, whatever reads them."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from streamsrt.errors import ConfigError, DeserializationError
from streamsrt.operators.engine.handlers import ExceptionHandlers, strict
from streamsrt.operators.kinds.counting import SHORT_RUN_RECORDS
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.test_every_operator import PROGRAMS, topology_of
from tests.streamsrt.operators.ways import Run
from topology import KStream, StreamsBuilder, TimeWindows, Topology, serdes

SETTING = "deserialization.exception.handler"
POISON = b"\xff"

Steps = Callable[[KStream[Any, Any]], Any]

READ_NOTHING: dict[str, Steps] = {
    "to": lambda stream: stream.to("out"),
    "merge": lambda stream: stream.merge(stream).to("out"),
    "count": lambda stream: stream.group_by_key().count(),
    "count in windows": lambda stream: stream.group_by_key().windowed_by(TimeWindows(10)).count(),
    "repartition": lambda stream: stream.repartition(name="again").to("out"),
    "nothing": lambda stream: None,
}


def reading(steps: Steps, serde: serdes.Serde[Any] = serdes.json) -> Topology:
    builder = StreamsBuilder()
    steps(builder.stream("in", key=serdes.string, value=serde))
    return builder.build()


def stop_at(topology: Topology, topic: str, key: bytes, value: bytes, setting: str, **options: Any) -> str:
    """Why the application stops at that record; empty if it does not."""
    with TopologyTestDriver(topology, {SETTING: setting, "statestore.cache.max.bytes": 0}, **options) as driver:
        try:
            driver.pipe_raw(topic, key, value, 5)
        except DeserializationError as error:
            return str(error)
        return ""


both_ways = pytest.mark.parametrize("generate", [True, False], ids=["generated", "nodes"])


@both_ways
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_operation_stops_at_a_key_and_at_a_value_that_can_not_be_read(program: str, generate: bool) -> None:
    topology = topology_of(program)
    topics = sorted({topic for part in topology.subtopologies for topic in part.source_topics} & {"left", "right"})
    assert topics
    for topic in topics:
        where = f"(at {topic}-0 offset 0, in "
        assert where in stop_at(topology, topic, POISON, b"x", "strict", generate=generate)
        assert where in stop_at(topology, topic, b"a", POISON, "strict", generate=generate)


@both_ways
@pytest.mark.parametrize("steps", READ_NOTHING)
@pytest.mark.parametrize(("serde", "value"), [(serdes.json, b"{broken"), (serdes.long, b"1234567")])
def test_steps_that_read_nothing_stop_too(steps: str, serde: serdes.Serde[Any], value: bytes, generate: bool) -> None:
    assert stop_at(reading(READ_NOTHING[steps], serde), "in", b"k", value, "strict", generate=generate)


@pytest.mark.parametrize("steps", READ_NOTHING)
def test_the_default_lets_bytes_pass_that_no_step_reads(steps: str) -> None:
    """As the documentation says."""
    assert stop_at(reading(READ_NOTHING[steps]), "in", b"k", b"{broken", "fail") == ""


@pytest.mark.parametrize("windows", [None, TimeWindows(1000)])
def test_a_long_run_that_is_only_counted_stops_where_it_can_not_be_read(windows: TimeWindows | None) -> None:
    def count(stream: KStream[Any, Any]) -> None:
        grouped = stream.group_by_key()
        (grouped if windows is None else grouped.windowed_by(windows)).count(store="rows")

    rows = [Piped("in", "a", '"x"', at, ()) for at in range(4 * SHORT_RUN_RECORDS)]
    rows[-2] = Piped("in", "a", "{broken", len(rows) - 2, ())
    run = Run(reading(count), handlers=ExceptionHandlers(deserialization=strict))
    with pytest.raises(DeserializationError, match=f"offset {len(rows) - 2}"):
        run.feed(rows, [len(rows)])
    assert run.task.buffered_records == 2


@pytest.mark.parametrize("steps", READ_NOTHING)
def test_what_can_be_read_gives_the_same_results(steps: str) -> None:
    written = []
    for setting in ("strict", "fail"):
        with TopologyTestDriver(reading(READ_NOTHING[steps], serdes.long), {SETTING: setting}) as driver:
            for key, value in [(b"a", pack(">q", 7)), (None, pack(">q", 8)), (b"b", None), (b"a", pack(">q", 9))]:
                driver.pipe_raw("in", key, value, 5)
            written.append(driver.producer_history)
    assert written[0] == written[1]


def test_it_sends_dead_letters() -> None:
    config = {SETTING: "strict", "errors.dead.letter.queue.topic.name": "letters"}
    with TopologyTestDriver(reading(READ_NOTHING["to"]), config) as driver:
        with pytest.raises(DeserializationError):
            driver.pipe_raw("in", b"k", b"{broken", 5)
        (letter,) = driver.producer_history
    assert (letter.topic, letter.value, dict(letter.headers)["__streamsrt.letter.response"]) == (
        "letters",
        b"{broken",
        b"fail",
    )


@pytest.mark.parametrize("stage", ["processing", "production"])
def test_the_other_handlers_know_no_such_word(stage: str) -> None:
    with pytest.raises(ConfigError, match=f"{stage}.exception.handler='strict'. Give 'fail', 'continue' or"):
        TopologyTestDriver(reading(READ_NOTHING["to"]), {f"{stage}.exception.handler": "strict"})
