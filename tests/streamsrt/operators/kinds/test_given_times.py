"""Times and headers that a program gives are checked where it gives them: to its stores, and to what it forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsrt.errors import ProcessingError, StreamsError
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import Processor, ProcessorContext, Record, Store, StreamsBuilder, Topology, ValueAndTimestamp, serdes
from topology.spec.windows import Windowed

STORES = (
    Store("rows", key=serdes.string, value=serdes.string, timestamped=True),
    Store("windows", kind="window", key=serdes.string, value=serdes.string, retention=60_000, window_size=1_000),
    Store("sessions", kind="session", key=serdes.string, value=serdes.string, retention=60_000),
    Store("versions", kind="versioned", key=serdes.string, value=serdes.string, retention=60_000),
)
Call = Callable[[ProcessorContext[Any, Any], Record[str, str], Any], object]
CALLS: dict[str, Call] = {
    "forward": lambda context, record, at: context.forward(record.with_timestamp(at)),
    "rows": lambda context, record, at: context.get_state_store("rows").put("k", ValueAndTimestamp("v", at)),
    "windows": lambda context, record, at: context.get_state_store("windows").put("k", "v", at),
    "session start": lambda context, record, at: context.get_state_store("sessions").put(Windowed("k", at, 5), "v"),
    "session end": lambda context, record, at: context.get_state_store("sessions").put(Windowed("k", 0, at), "v"),
    "versions": lambda context, record, at: context.get_state_store("versions").put("k", "v", at),
}


def giving(call: Call, at: Any) -> Topology:
    class Gives(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            self.context = context

        def process(self, record: Record[str, str]) -> None:
            call(self.context, record, at)

    builder = StreamsBuilder()
    for store in STORES:
        builder.add_state_store(store)
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.process(Gives, stores=[each.name for each in STORES]).to("out", key=serdes.string, value=serdes.string)
    return builder.build()


@pytest.mark.parametrize("at", [None, "1", 1.5, 2**63], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_time_is_refused_at_the_call(name: str, at: Any) -> None:
    refused(CALLS[name], at)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "rows"])
def test_so_is_a_time_before_1970(name: str) -> None:
    refused(CALLS[name], -7)


@pytest.mark.parametrize(
    "headers", [(("a", "text"),), {"a": b"x"}, [("a", b"x")], ((b"a", b"x"),), (("a", b"x", 1),)], ids=repr
)
def test_headers_that_can_not_be_written_are_refused_where_they_are_forwarded(headers: Any) -> None:
    refused(
        lambda context, record, at: context.forward(record.with_headers(at)), headers, "give a tuple of tuples of a str"
    )


def refused(call: Call, at: Any, said: str = "give a whole number of milliseconds") -> None:
    with TopologyTestDriver(giving(call, at), {"application.id": "app"}) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        with pytest.raises(StreamsError, match=said) as failed:
            source.pipe_input("k", "v", 3)
        assert isinstance(failed.value, ProcessingError)
        assert failed.value.offset == 0
        assert repr(at) in str(failed.value)


@pytest.mark.parametrize("name", CALLS)
def test_a_time_is_taken(name: str) -> None:
    with TopologyTestDriver(giving(CALLS[name], 4), {"application.id": "app"}) as driver:
        driver.create_input_topic("in", serdes.string, serdes.string).pipe_input("k", "v", 3)
