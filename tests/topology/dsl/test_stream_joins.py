"""Joins of streams: what a program may say, and what it may not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import topology_of
from streamsrt.membership.topology_metadata import topology_metadata
from topology import JoinWindows, KStream, Store, StreamsBuilder, Topology, TopologyError, serdes

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def both(one: str, other: str) -> str:
    return one + other


def key_of(key: str, value: str) -> str:
    return key


def join(windows: JoinWindows | None = None, **options: Any) -> None:
    builder = StreamsBuilder()
    other: Any = builder.stream("b", **TEXT)
    builder.stream("a", **TEXT).join(other, both, windows or JoinWindows(5), **options)


def join_global(**options: Any) -> None:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("a", **TEXT)
    stream.join(builder.global_table("g", **TEXT), both, on=key_of, **options)


def join_asof(**options: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("a", **TEXT).join_asof(builder.stream("b", **TEXT), both, 5, **options)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: join(grace=5), r"takes no grace=: it is given with the windows, JoinWindows\(\.\.\., grace=\.\.\.\)"),
        (lambda: join_global(grace=5), "takes no key, value, other_value or grace"),
        (lambda: join_global(key=serdes.long), "takes no key, value, other_value or grace"),
        (lambda: join_global(other_value=serdes.long), "takes no key, value, other_value or grace"),
        (lambda: join(store=Store("s", kind="session")), "has kind 'session', but a window store is needed here"),
        (lambda: join(store=Store("s", kind="versioned")), "has kind 'versioned', but a window store is needed here"),
        (lambda: join_asof(store=Store("s", kind="session")), "has kind 'session', but a window store is needed here"),
    ],
)
def test_what_would_have_no_effect_is_refused(call: Callable[[], None], says: str) -> None:
    with pytest.raises(TopologyError, match=says) as raised:
        call()
    assert str(raised.value).startswith(f"{__file__}:")


def in_a_group(topology: Topology, **partitions: int) -> Configuration:
    topics = (TopicImage(name.encode().ljust(16), name, count) for name, count in partitions.items())
    return configure(topology_of(topology_metadata(topology, "app")), TopicsImage.of(*topics))


def by_pattern(builder: StreamsBuilder) -> KStream[str, str]:
    return builder.stream(re.compile("orders.*"), **TEXT)


def test_topics_of_a_pattern_need_the_partition_count_of_what_they_are_joined_with() -> None:
    builder = StreamsBuilder()
    by_pattern(builder).join(builder.table("customers", **TEXT), both).to("out", **TEXT)
    topology = builder.build()
    (subtopology,) = topology.subtopologies
    assert subtopology.copartition_groups == (("customers", "orders.*"),)
    found = in_a_group(topology, orders=2, customers=3).problem
    assert found is not None
    assert "customers=3, orders=2" in found.detail


def test_a_repartition_topic_gets_the_partition_count_of_a_pattern_that_it_is_joined_with() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("returns", **TEXT).select_key(key_of)
    rekeyed.join(by_pattern(builder), both, JoinWindows(5), name="j").to("out", **TEXT)
    wanted = {topic.name: topic.partitions for topic in in_a_group(builder.build(), orders=3, returns=2).to_create}
    assert wanted["app-j-left-repartition"] == 3
