"""A wrapper around every processor node: it sees what comes to each, may change it, and else changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.app import KafkaStreams
from streamsrt.errors import ConfigError, ProcessingError
from streamsrt.operators.engine.handlers import ErrorContext, HandlerResponse
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.test_every_operator import PROGRAMS, Row, contents, outcome, rows, topology_of
from topology import (
    OperatorProcessor,
    Processor,
    ProcessorContext,
    ProcessorWrapper,
    Record,
    StreamsBuilder,
    TableRecord,
    Topology,
    TopologyError,
    serdes,
)
from topology.spec.processor_wrapper import AnyProcessor, ProcessorSupplier

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
KEY = "processor.wrapper.class"


class Counting(Processor[Any, Any, Any, Any]):
    """Counts what comes to a node."""

    def __init__(self, name: str, inner: AnyProcessor, counts: Counter[str]) -> None:
        self.name, self.inner, self.counts = name, inner, counts

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.counts[f"{self.name} began"] += 1
        self.inner.init(context)

    def process(self, record: Record[Any, Any]) -> None:
        self.counts[self.name] += 1
        self.inner.process(record)

    def close(self) -> None:
        self.counts[f"{self.name} ended"] += 1
        getattr(self.inner, "close", lambda: None)()


def counting(counts: Counter[str]) -> ProcessorWrapper:
    return lambda name, supplier: lambda: Counting(name, supplier(), counts)


def nodes_of(topology: Topology) -> set[str]:
    parts = (*topology.subtopologies, *topology.global_subtopologies)
    return {node.name for part in parts for node in part.nodes if hasattr(node, "operation")}


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=4, deadline=None)
@given(rows, st.sampled_from([0, 1 << 20]))
def test_a_wrapper_that_counts_changes_nothing(program: str, piped: list[Row], cache_max_bytes: int) -> None:
    counts: Counter[str] = Counter()
    plain, wrapped = topology_of(program), topology_of(program, **{KEY: counting(counts)})
    assert wrapped.describe() == plain.describe()
    assert wrapped.digest == plain.digest
    results = [
        outcome(topology, piped, None, cache_max_bytes=cache_max_bytes, generate=generate)
        for topology, generate in ((plain, False), (wrapped, False), (wrapped, True))
    ]
    assert results[1] == results[0]
    assert results[2] == results[0]
    for name in nodes_of(wrapped):
        assert counts[f"{name} began"] >= 2, name
        assert counts[f"{name} ended"] == counts[f"{name} began"], name


def everything(counts: Counter[str]) -> Topology:
    """A stateless step, an aggregation, joins and tables."""
    builder = StreamsBuilder()
    words = builder.stream("words", **TEXT).filter(lambda k, v: v != "no", name="filter")
    yes, no = words.split(name="is-").branch(lambda k, v: v < "m", name="low").default_branch(name="high").values()
    names = builder.table("names", store="names", **TEXT).map_values(str.upper, name="upper")
    yes.join(names, lambda word, name: f"{word} {name}", name="join").to("joined", **TEXT)
    names.group_by(lambda k, v: (v, k), name="group", **TEXT).count(store="counts", name="count")
    no.group_by_key().count(store="high", name="count-high").to_stream(name="stream").to(
        "counted", key=serdes.string, value=serdes.long
    )
    return builder.build({KEY: counting(counts)})


def test_every_node_counts_what_comes_to_it() -> None:
    counts: Counter[str] = Counter()
    topology = everything(counts)
    with TopologyTestDriver(topology, {"statestore.cache.max.bytes": 0}) as driver:
        for value in (b"ann", b"bob", b"bob"):
            driver.pipe_raw("names", b"k", value, 1)
        for value in (b"a", b"no", b"z", b"z"):
            driver.pipe_raw("words", b"k", value, 2)
        assert [(record.key, record.value) for record in driver.output_queue("joined")] == [(b"k", b"a BOB")]
        assert list(contents(driver, "counts")) == [("ANN", 0), ("BOB", 1)]
        assert list(contents(driver, "high")) == [("k", 2)]
    assert {name: counts[name] for name in ("filter", "is-", "is-low", "is-high", "join", "upper", "group")} == {
        "filter": 4,
        "is-": 3,
        "is-low": 1,
        "is-high": 2,
        "join": 1,
        "upper": 3,
        "group": 3,
    }
    assert {name for name in nodes_of(topology) if not counts[name]} == set()


class Changing(Processor[Any, Any, Any, Any]):
    """Changes, drops and adds records around what is inside."""

    def __init__(self, inner: AnyProcessor) -> None:
        self.inner = inner

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.inner.init(Shouting(context))
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "drop":
            return
        if record.value == "twice":
            self.inner.process(record)
        self.inner.process(record.with_value(f"{record.value}!").with_headers((("seen", b"1"),)))


class Shouting:
    """A context that changes what an operator forwards, and passes on all else."""

    def __init__(self, context: ProcessorContext[Any, Any]) -> None:
        self.context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        self.context.forward(record.with_value(record.value.upper()), child)


def test_a_wrapper_changes_what_comes_and_what_goes() -> None:
    asked: list[str] = []

    def wrapper(name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        asked.append(name)
        return (lambda: Changing(supplier())) if name in ("say", "to-") else supplier

    builder = StreamsBuilder()
    said = builder.stream("in", **TEXT).map_values(lambda v: f"say {v}", name="say")
    said.split(name="to-").branch(lambda k, v: v.startswith("SAY T"), name="t").default_branch(name="rest")["to-t"].to(
        "out", **TEXT
    )
    topology = builder.build({KEY: wrapper})
    assert asked == ["say", "to-", "to-t", "to-rest"]
    with TopologyTestDriver(topology) as driver:
        for value in (b"drop", b"twice", b"other"):
            driver.pipe_raw("in", b"k", value, 5)
        records = [(record.value, record.timestamp, record.headers) for record in driver.output_queue("out")]
    headers = (("seen", b"1"),)
    assert records == [(b"SAY TWICE!", 5, headers), (b"SAY TWICE!!", 5, headers)]


def test_old_values_survive_a_changed_record() -> None:
    seen: list[tuple[str, Any, Any]] = []

    class Bang(Processor[Any, Any, Any, Any]):
        def __init__(self, name: str, inner: AnyProcessor) -> None:
            self.name, self.inner = name, inner

        def init(self, context: ProcessorContext[Any, Any]) -> None:
            self.inner.init(context)

        def process(self, record: Record[Any, Any]) -> None:
            seen.append((self.name, record.value, getattr(record, "old_value", None)))
            same = record.with_key(record.key).with_timestamp(record.timestamp + 1).with_value(record.value)
            self.inner.process(same)

    builder = StreamsBuilder()
    table = builder.table("rows", store="rows", name="table", **TEXT)
    table.group_by(lambda k, v: (v, k), name="group", **TEXT).count(store="counts", name="count")
    topology = builder.build({KEY: lambda name, supplier: lambda: Bang(name, supplier())})
    with TopologyTestDriver(topology, {"statestore.cache.max.bytes": 0}) as driver:
        for value in (b"x", b"y", None):
            driver.pipe_raw("rows", b"k", value, 1)
        assert list(contents(driver, "counts")) == [("x", 0), ("y", 0)]
        moved = [record for record in driver.producer_history if record.topic.endswith("-repartition")]
        assert {record.timestamp for record in moved} == {3}
    assert [each[1:] for each in seen if each[0] == "group"] == [("x", None), ("y", "x"), (None, "y")]


def test_a_wrapper_that_raises_is_asked_about() -> None:
    class Refusing(Counting):
        def process(self, record: Record[Any, Any]) -> None:
            if record.value == "bad":
                raise ValueError("refused")
            super().process(record)

    def topology() -> Topology:
        builder = StreamsBuilder()
        builder.stream("in", **TEXT).map_values(str.upper, name="upper").to("out", **TEXT)
        return builder.build({KEY: lambda name, supplier: lambda: Refusing(name, supplier(), Counter())})

    with (
        TopologyTestDriver(topology()) as driver,
        pytest.raises(ProcessingError, match=r"ValueError: refused .*in node upper"),
    ):
        driver.pipe_raw("in", b"k", b"bad", 1)
    asked: list[tuple[str, object]] = []

    def handler(context: ErrorContext, error: BaseException) -> HandlerResponse:
        asked.append((context.node, context.value))
        return HandlerResponse.CONTINUE

    with TopologyTestDriver(topology(), {"processing.exception.handler": handler}) as driver:
        driver.pipe_raw("in", b"k", b"bad", 1)
        driver.pipe_raw("in", b"k", b"good", 1)
        assert [record.value for record in driver.output_queue("out")] == [b"GOOD"]
        assert driver.counters()["failed_processing"] == 1
    assert asked == [("upper", "bad")]


def test_a_node_that_is_left_as_it_is_keeps_its_generated_code() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values(str.upper, name="upper").to("out", **TEXT)
    (part,) = builder.build({KEY: lambda name, supplier: supplier}).subtopologies
    assert [node.wrapped_by for node in part.nodes if hasattr(node, "wrapped_by")] == [None]


class Alone:
    """A context that passes nothing on."""


def test_an_operator_says_what_it_needs() -> None:
    inside = OperatorProcessor("upper")
    with pytest.raises(TopologyError, match=r"context given to 'upper' is not that of its node"):
        inside.init(Alone())  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"init\(context\) of 'upper' was not called"):
        inside.process(Record("k", "v", 1))
    inside.close()


def test_a_change_keeps_its_old_value() -> None:
    record = TableRecord.of(Record("k", "new", 1), "old")
    for made in (record.with_key("x"), record.with_value("x"), record.with_timestamp(2), record.with_headers(())):
        assert isinstance(made, TableRecord)
        assert made.old_value == "old"
    assert record == Record("k", "new", 1)


def test_a_wrapper_in_the_configuration_only_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).to("out", **TEXT)
    config = {"application.id": "a", "bootstrap.servers": "localhost:1", KEY: counting(Counter())}
    with pytest.raises(ConfigError, match=r"processor\.wrapper\.class is set, but the topology was built without it"):
        KafkaStreams(builder.build(), config)
    assert KafkaStreams(builder.build(config), config).config.processor_wrapper_class is not None
