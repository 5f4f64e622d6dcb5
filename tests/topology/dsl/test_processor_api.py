"""Topologies of named nodes: what can be said, and what is refused with the line that said it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import (
    NameInUseError,
    Processor,
    ProcessorContext,
    Record,
    Store,
    TopicInUseError,
    TopologyBuilder,
    TopologyError,
    UnknownStoreError,
    serdes,
)


class Forward(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def words(builder: TopologyBuilder) -> TopologyBuilder:
    return builder.add_source("lines", "in").add_processor("p", Forward, parents="lines")


def test_a_program_is_described() -> None:
    builder = words(TopologyBuilder())
    builder.add_state_store(Store("s"), "p").add_sink("out", "to", parents=["p"])
    assert builder.build().describe() == (
        "Topologies:\n   Sub-topology: 0\n    Source: lines (topics: [in])\n      --> p\n"
        "    Processor: p (stores: [s])\n      --> out\n      <-- lines\n"
        "    Sink: out (topic: to)\n      <-- p\n\n"
    )


def test_a_store_joins_the_subtopologies_that_use_it() -> None:
    builder = TopologyBuilder()
    for name in ("a", "b", "c"):
        builder.add_source(f"from-{name}", name).add_processor(name, Forward, parents=f"from-{name}")
    builder.add_state_store(Store("s"), ["a"])
    builder.connect("c", ["s"])
    assert [each.source_topics for each in builder.build().subtopologies] == [("a", "c"), ("b",)]


def test_a_processor_brings_its_stores() -> None:
    builder = TopologyBuilder().add_source("lines", "in")
    builder.add_processor("p", Forward, parents="lines", stores=[Store("own"), Store("more")])
    (part,) = builder.build().subtopologies
    assert [store.name for store in part.stores] == ["own", "more"]


def test_a_read_only_store_has_its_topic_for_a_changelog() -> None:
    builder = TopologyBuilder()
    builder.add_read_only_store(
        Store("s", value=serdes.string), "source", "rates", "fill", Forward, key=serdes.string, value=serdes.string
    )
    (part,) = builder.build().subtopologies
    assert [(topic.name, topic.is_source) for topic in part.changelog_topics] == [("rates", True)]


def test_adding_an_equal_store_again_changes_nothing() -> None:
    builder = words(TopologyBuilder())
    builder.add_state_store(Store("s"), "p").add_state_store(Store("s"), "p")
    assert [store.name for store in builder.build().subtopologies[0].stores] == ["s"]


WRONG: dict[str, tuple[Callable[[TopologyBuilder], object], type[TopologyError], str]] = {
    "no such parent": (lambda b: b.add_sink("o", "t", parents="x"), TopologyError, "parent 'x' of 'o' does not exist"),
    "a sink as parent": (
        lambda b: words(b).add_sink("o", "t", parents="p").add_sink("o2", "t", parents="o"),
        TopologyError,
        "is a sink",
    ),
    "no parent": (lambda b: b.add_processor("p", Forward, parents=[]), TopologyError, "needs a parent"),
    "a name twice": (lambda b: words(b).add_source("p", "t"), NameInUseError, "taken by the node at"),
    "no such processor": (lambda b: b.add_state_store(Store("s"), "x"), TopologyError, "no processor 'x'"),
    "no such store": (lambda b: words(b).connect("p", "s"), UnknownStoreError, "no store 's'"),
    "another store": (
        lambda b: words(b).add_state_store(Store("s")).add_state_store(Store("s", logging=False)),
        NameInUseError,
        "another store 's'",
    ),
    "no topics": (lambda b: b.add_source("s", []), TopologyError, "needs a topic"),
    "a topic twice": (lambda b: words(b).add_source("x", "in").build(), TopicInUseError, "topic 'in' is read"),
    "a matched topic": (
        lambda b: words(b).add_source("x", re.compile("i.")).build(),
        TopicInUseError,
        "matches topic 'in'",
    ),
    "no source": (lambda b: b.build(), TopologyError, "reads no topic"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes(name: str) -> None:
    make, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        make(TopologyBuilder())


def test_processors_are_wrapped_by_name() -> None:
    class Shouting(Forward):
        def __init__(self, inner: Processor[str, str, str, str]) -> None:
            self.inner = inner

        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record.with_value(f"{type(self.inner).__name__}: {record.value.upper()}"))

    wrapped: list[str] = []

    def wrapper(name: str, supplier: Callable[[], Forward]) -> Callable[[], Shouting]:
        wrapped.append(name)
        return lambda: Shouting(supplier())

    builder = words(TopologyBuilder()).add_sink("out", "to", parents="p")
    plain, topology = builder.build(), builder.build({"processor.wrapper.class": wrapper})
    assert wrapped == ["p"]
    assert topology.digest == plain.digest
    with TopologyTestDriver(topology.with_default_serdes(serdes.string, serdes.string)) as driver:
        driver.pipe_raw("in", b"k", b"hello", 1)
        assert [record.value for record in driver.producer_history] == [b"Forward: HELLO"]


@pytest.mark.parametrize("wrapper", ["my.Wrapper", lambda name, supplier: None])
def test_a_wrapper_is_a_callable_that_returns_a_supplier(wrapper: object) -> None:
    with pytest.raises(TopologyError, match=r"processor\.wrapper\.class"):
        words(TopologyBuilder()).build({"processor.wrapper.class": wrapper})
