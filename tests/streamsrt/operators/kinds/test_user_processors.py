"""What a processor is told of its application and its task, and the metrics that it makes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from streamsrt.errors import ConfigError, UserError
from streamsrt.operators.engine.handlers import ExceptionHandlers, log_and_continue
from streamsrt.testing.mock_processor_context import MockProcessorContext
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import Headers, RecordColumns
from tests.streamsrt.operators.programs import Written, final_rows, new_task
from topology import Processor, ProcessorContext, PunctuationType, Record, Store, StreamsBuilder, Topology, serdes
from topology.spec.stores import ValueAndTimestamp
from topology.spec.windows import Windowed

CONFIG = {"application.id": "shop", "app.limit": 3, "app.mode": "strict", "default.key.serde": "string"}


class Counts(Processor[str, str, str, str]):
    """Counts what comes, how quickly, and how long values are; keeps values in a file of the task's."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        metrics = context.metrics
        self.seen = metrics.counter("seen", group="shop", description="all values", currency="EUR")
        self.orders = metrics.rate("orders", group="shop")
        self.lengths = metrics.latency("length", group="shop")

    def process(self, record: Record[str, str]) -> None:
        self.seen.add()
        self.orders.add(2)
        self.lengths.record(len(record.value))
        with open(self.context.state_dir / "values", "a", encoding="utf-8") as file:
            file.write(record.value)
        self.context.forward(record)


class Fills(Counts):
    """The same, for a global store."""

    def process(self, record: Record[str, str]) -> None:
        self.seen.add(10)
        self.time_ms = self.context.current_system_time_ms()


def program(made: list[Any], kind: str) -> Topology:
    def supplier() -> Any:
        made.append(Fills() if kind == "global" else Counts())
        return made[-1]

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    if kind == "global":
        names = Store("names", key=serdes.string, value=serdes.string)
        builder.add_global_store(names, "names", supplier, key=serdes.string, value=serdes.string, name="count")
        stream.to("out")
    elif kind == "process":
        stream.process(supplier, name="count").to("out", key=serdes.string, value=serdes.string)
    else:
        stream.process_values(supplier, name="count").to("out", key=serdes.string, value=serdes.string)
    return builder.build()


@pytest.mark.parametrize("kind", ["process", "process_values", "global"])
def test_a_processor_knows_the_settings(kind: str) -> None:
    made: list[Any] = []
    with TopologyTestDriver(program(made, kind), CONFIG):
        context = made[0].context
        assert context.app_configs_with_prefix("app.") == {"limit": 3, "mode": "strict"}
        assert context.app_configs_with_prefix("application.") == {"id": "shop"}
        assert context.app_configs_with_prefix("commit.") == {}
        everything = context.app_configs()
        assert (everything["application.id"], everything["app.limit"]) == ("shop", 3)
        assert everything["commit.interval.ms"] == 30_000
        assert context.key_serde is serdes.string
        with pytest.raises(ConfigError, match=r"no value serde for 'count'.*default\.value\.serde"):
            _ = context.value_serde


@pytest.mark.parametrize("kind", ["process", "process_values"])
def test_each_task_has_a_directory_that_ends_with_the_driver(kind: str) -> None:
    made: list[Any] = []
    driver = TopologyTestDriver(program(made, kind), CONFIG, partitions=2)
    source = driver.create_input_topic("in", serdes.string, serdes.string)
    for partition, value in ((0, "a"), (1, "b"), (0, "c")):
        source.pipe_input("k", value, partition=partition)
    places: list[Path] = [processor.context.state_dir for processor in made]
    assert [(place / "values").read_text() for place in places] == ["ac", "b"]
    driver.restart()
    driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "d", partition=0)
    assert (made[2].context.state_dir / "values").read_text() == "d"
    driver.close()


@pytest.mark.parametrize("kind", ["process", "process_values"])
def test_what_a_processor_counts_is_a_metric(kind: str) -> None:
    made: list[Any] = []
    with TopologyTestDriver(program(made, kind), CONFIG, initial_wall_clock_ms=50_000) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        source.pipe_key_values([("k", "four"), ("k", "tw"), ("k", "six six")])
        driver.advance_wall_clock_time(2_000)
        found = {each.name: each for each in driver.metrics()}
        assert {name: metric.value for name, metric in found.items()} == {
            "seen-total": 3,
            "orders-total": 6,
            "orders-rate": 3.0,
            "length-latency-avg": pytest.approx(13 / 3),
            "length-latency-max": 7,
            "length-total": 3,
            "length-rate": 1.5,
        }
        assert {each.group for each in found.values()} == {"shop"}
        tags = {"task-id": made[0].context.task_id, "processor-node-id": "count"}
        assert found["seen-total"].tags == {**tags, "currency": "EUR"}
        assert found["orders-rate"].tags == tags
        assert found["seen-total"].description == "all values"
        assert (made[0].lengths.count, made[0].lengths.total) == (3, 13)


def test_processors_of_global_stores_count_too_and_know_the_time() -> None:
    made: list[Any] = []
    with TopologyTestDriver(program(made, "global"), CONFIG, initial_wall_clock_ms=7) as driver:
        assert made[0].context.current_system_time_ms() == 7
        driver.advance_wall_clock_time(5)
        driver.create_input_topic("names", serdes.string, serdes.string).pipe_input("k", "v")
        values = {each.name: each.value for each in driver.metrics()}
        assert (values["seen-total"], made[0].time_ms) == (10, 12)
        assert made[0].context.state_dir.is_dir()


def test_the_same_metric_is_the_same_object() -> None:
    metrics = MockProcessorContext().metrics
    counter = metrics.counter("seen", kind="a")
    counter.add()
    assert metrics.counter("seen", kind="a") is counter
    assert metrics.counter("seen", kind="b") is not counter
    assert metrics.counter("seen", group="other", kind="a").total == 0
    assert metrics.counter("seen", kind="a").total == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda metrics: metrics.counter("a b"), "mock: 'a b' can't be the name of a metric: use a letter"),
        (lambda metrics: metrics.rate("a", group=""), "'' can't be the name of a group"),
        (lambda metrics: metrics.latency("a", é="1"), "'é' can't be the name of a tag"),
        (lambda metrics: metrics.counter("a", group="stream-task-metrics"), "are reserved for metrics of the runtime"),
        (lambda metrics: metrics.counter("a", task_id="1"), "task_id are tags that the runtime sets"),
        (lambda metrics: (metrics.counter("a"), metrics.rate("a")), "already exists with another kind"),
    ],
)
def test_metrics_that_can_not_be_are_refused(wrong: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        wrong(MockProcessorContext().metrics)


def test_the_context_of_a_test_has_it_all(tmp_path: Path) -> None:
    context = MockProcessorContext(application_id="shop", config={"app.limit": 3, "default.key.serde": serdes.long})
    processor = Counts()
    processor.init(context)
    context.set_current_system_time(99)
    context.process(processor, Record("k", "four", 5))
    context.process(processor, Record("k", "tw", 5))
    assert context.app_configs_with_prefix("app.") == {"limit": 3}
    assert context.app_configs()["application.id"] == "shop"
    assert context.key_serde is serdes.long
    with pytest.raises(ConfigError, match=r"default\.value\.serde is not set"):
        _ = context.value_serde
    assert (context.state_dir / "values").read_text() == "fourtw"
    assert context.metrics.counter("seen", group="shop", currency="EUR").total == 2
    assert context.metrics.latency("length", group="shop").total == 6
    own = MockProcessorContext(state_dir=tmp_path)
    assert own.state_dir == tmp_path
    assert own.application_id == "mock"


class Ticks(Processor[str, int, str, object]):
    """Counts values per key, forwards what it knows of each record, and now and then what it has counted."""

    def init(self, context: ProcessorContext[str, object]) -> None:
        self.context = context
        self.counts = context.get_state_store("counts")
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[str, int]) -> None:
        value, metadata = record.value, self.context.record_metadata
        assert metadata is not None
        if value == 13:
            raise ArithmeticError("unlucky")
        self.counts.put(record.key, None if value == 2 else (self.counts.get(record.key) or 0) + 1)
        known = [value, self.counts.get(record.key), metadata.offset, self.context.current_stream_time_ms()]
        self.context.forward(record.with_value({1} if value == 1 else known))
        if value == 3:
            self.context.forward(record.with_timestamp(5).with_value(None))
            self.context.forward(record.with_headers((("h", b"1"),)).with_value("headers"))

    def tick(self, now_ms: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, now_ms))


@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("caching", [False, True])
def test_a_processor_right_behind_its_source_does_what_it_does_behind_a_step(with_headers: bool, caching: bool) -> None:
    draw = random.Random(1)
    values = [draw.choice([b"x", *(n.to_bytes(4, "big") for n in (1, 2, 3, 13, 20, 21))]) for _ in range(300)]
    keys = [draw.choice([b"a", b"b", b"c", b"\xff"]) for _ in values]
    times = [1_000 + n + draw.randrange(8) for n in range(len(values))]
    headers: list[Headers] | None = [(("n", b"%d" % n),) for n in range(len(values))] if with_headers else None

    told = {"__streams.errors.exception", "__streams.errors.offset", "__streams.errors.message"}

    def ran(is_direct: bool) -> tuple[Any, ...]:
        builder = StreamsBuilder()
        builder.add_state_store(Store("counts", key=serdes.string, value=serdes.long, caching=caching))
        stream = builder.stream("in", key=serdes.string, value=serdes.integer)
        if not is_direct:
            stream = stream.filter(lambda key, value: True)
        counted = stream.process(Ticks, stores=["counts"], name="ticks")
        counted.to("out", key=serdes.string, value=serdes.json, name="written")
        skips = ExceptionHandlers(
            deserialization=log_and_continue,
            processing=log_and_continue,
            production=log_and_continue,
            dead_letter_topic="letters",
        )
        written = Written()
        task = new_task(builder.build(), written, handlers=skips)
        task.add_batch("in", 0, RecordColumns(keys, values, times, 0, len(keys), None, headers))
        while task.process(70, 0):
            task.prepare_commit()
            task.post_commit(None)
        letters = [
            (*row[:3], {name: value for name, value in row[3] if name in told}) for row in written.topics.pop("letters")
        ]
        return written.topics, letters, final_rows(task), task.counters()

    direct = ran(True)
    assert len(direct[1]) > 100
    failed = "failed_deserialization", "failed_processing", "failed_production"
    assert all(direct[3][name] > 10 for name in failed)
    assert direct == ran(False)


class Keeps(Processor[str, Any, str, object]):
    """Keeps each value in its store. ``arguments``: what its store wants beside key and value."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def init(self, context: ProcessorContext[str, object]) -> None:
        self.store: Any = context.get_state_store("kept")

    def process(self, record: Record[str, Any]) -> None:
        match self.kind:
            case "session":
                self.store.put(Windowed(record.key, 0, 5), record.value)
            case "window" | "versioned":
                self.store.put(record.key, record.value, 0)
            case "timestamped":
                self.store.put(record.key, ValueAndTimestamp(record.value, 3))
            case _:
                self.store.put(record.key, record.value)


KEPT: dict[str, dict[str, Any]] = {
    "plain": {},
    "timestamped": {"timestamped": True},
    "limited": {"max_entries": 2},
    "window": {"kind": "window", "retention": 60_000, "window_size": 1_000},
    "session": {"kind": "session", "retention": 60_000},
    "versioned": {"kind": "versioned", "retention": 60_000},
}


@pytest.mark.parametrize("kind", KEPT)
def test_a_value_that_can_not_be_written_is_a_fault_of_its_record(kind: str) -> None:
    """The handler may skip it, and the row stays what it was."""
    builder = StreamsBuilder()
    builder.add_state_store(Store("kept", key=serdes.string, value=serdes.long, **KEPT[kind]))
    source = builder.stream("in", key=serdes.string, value=serdes.json)
    source.process(lambda: Keeps(kind), stores=["kept"])
    with TopologyTestDriver(builder.build(), {"processing.exception.handler": "continue"}) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for key, value in (("a", 1), ("a", "text"), ("b", "text"), ("c", 3)):
            topic.pipe_input(key, value)
        rows = [(each.key and each.key[:1], each.value) for each in driver.producer_history]
        assert rows == [(b"a", bytes(7) + b"\1"), (b"c", bytes(7) + b"\3")]
