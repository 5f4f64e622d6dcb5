"""Operators over batches and the others beyond Kafka Streams': what they add to the graph, and mistakes in calls of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest

from topology import KStream, Store, StreamsBuilder, TopologyError, serdes


def stream_of(builder: StreamsBuilder) -> KStream[str, str]:
    return builder.stream("in", key=serdes.string, value=serdes.string)


async def slow(value: str) -> str:
    return value


def test_names_are_given_or_generated() -> None:
    builder = StreamsBuilder()
    stream = stream_of(builder)
    stream.deduplicate(lambda k, v: v, timedelta(seconds=1), serde=serdes.string)
    stream.deduplicate(lambda k, v: v, 5, serde=serdes.string, store="seen", name="once")
    stream.map_batches(lambda table: table, name="batch")
    stream.map_async(slow)
    stream.try_map_values(str.upper, name="up")
    (subtopology,) = builder.build().subtopologies
    names = {node.name for node in subtopology.nodes}
    assert {"once", "batch", "KSTREAM-MAPASYNC-0000000004", "up", "up-ok", "up-failed", "up-value"} < names
    assert {store.name for store in subtopology.stores} == {"seen", "KSTREAM-DEDUPLICATE-STATE-STORE-0000000001"}


def test_keys_that_may_change_call_for_a_repartition() -> None:
    for keeps, topics in ((False, 1), (True, 0)):
        builder = StreamsBuilder()
        stream_of(builder).map_batches(lambda table: table, keeps_keys=keeps).group_by_key().count()
        found = [topic for each in builder.build().subtopologies for topic in each.repartition_source_topics]
        assert len(found) == topics


def test_digests_do_not_depend_on_functions() -> None:
    def digest(fn: Callable[[Any], Any]) -> str:
        builder = StreamsBuilder()
        stream_of(builder).map_batches(fn).map_async(slow, concurrency=3)
        return builder.build().digest

    assert digest(lambda table: table) == digest(lambda table: None)


def test_async_functions_are_known() -> None:
    class Callee:
        async def __call__(self, value: str) -> str:
            return value

    builder = StreamsBuilder()
    stream = stream_of(builder)
    stream.map_async(partial(slow))
    stream.map_async(Callee())
    with pytest.raises(TopologyError, match=r"takes an async function, .*, not <class 'str'>"):
        stream.map_async(str)  # type: ignore[arg-type]


def test_functions_that_are_not_async_may_return_an_awaitable() -> None:
    def untold(value):  # type: ignore[no-untyped-def]
        return slow(value)

    def told(value: str) -> Awaitable[str]:
        return slow(value)

    def plain(value: str) -> str:
        return value

    def parts(value: str) -> Iterator[str]:
        yield value

    stream = stream_of(StreamsBuilder())
    stream.map_async(lambda value: slow(value.strip()))
    stream.map_async(untold)
    stream.map_async(told)
    for never in (plain, parts):
        with pytest.raises(TopologyError, match="another one that returns an awaitable, not <function"):
            stream.map_async(cast(Any, never))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: s.deduplicate(lambda k, v: v, 0, serde=serdes.string), "ttl is at least 1 ms"),
        (
            lambda s: s.deduplicate(lambda k, v: v, 5, serde=serdes.string, store=Store("ids", ttl=7)),
            r"the store of deduplicate\(\) can't have ttl=: it keeps the time of each id",
        ),
        (
            lambda s: s.deduplicate(lambda k, v: v, 5, serde=serdes.string, store=Store("ids", window_size=7)),
            r"the store of deduplicate\(\) can't have window_size=",
        ),
        (lambda s: s.deduplicate(lambda k, v: v, 5, serde=serdes.string, name=""), "'' can't be the name of a step"),
        (lambda s: s.map_async(slow, concurrency=0), "concurrency and timeout are at least 1"),
        (lambda s: s.map_async(slow, retries=-1), "retries and backoff at least 0"),
        (lambda s: s.map_batches(lambda table: table, frame="polars"), "give 'arrow' or 'pandas'"),
        (lambda s: s.try_map_values(3), "takes a function, not 3"),
    ],
)
def test_mistakes_are_named(call: Callable[[KStream[str, str]], Any], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        call(stream_of(StreamsBuilder()))
