"""Traces: headers go on with what is made of a record, and spans tell of turns and commits where they are asked for."""

from __future__ import annotations

import sys
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streamsrt import TopologyTestDriver
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError
from streamsrt.membership.values import Tasks
from streamsrt.runtime.tracing import no_spans, spans_of
from tests.streamsrt.rig import Rig, number
from topology import StreamsBuilder, serdes

PARENT = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
TRACED = StreamsConfig.of({"application.id": "shop", "otel.spans": True})


def test_the_trace_of_a_record_goes_on_in_what_is_made_of_it() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=serdes.string, value=serdes.string)
    words.map_values(str.upper).filter(lambda key, value: True).to("upper")
    words.select_key(lambda key, value: value).repartition(name="by-word").to("moved")
    words.group_by_key().count(store="counts").to_stream().to("counted", value=serdes.long)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        source.pipe_input("a", "b", headers=[PARENT])
        for topic, value in (("upper", serdes.string), ("moved", serdes.string), ("counted", serdes.long)):
            (record,) = driver.create_output_topic(topic, serdes.string, value).read_records_to_list()
            assert record.headers == (PARENT,)


def test_spans_of_turns_and_commits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    rig.thread.on_work = spans_of(TRACED)
    rig.network.write(("in", 0), [(b"a", number(1))] * 3)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(4)
    rig.thread._commit_all()
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert sorted(found) == ["shop commit", "shop process"]
    process = found["shop process"]
    assert process.attributes is not None
    assert process.attributes["messaging.batch.message_count"] == 3
    assert process.start_time is not None
    assert process.end_time is not None
    assert process.start_time <= process.end_time


def test_spans_have_the_times_of_a_clock_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    add = spans_of(TRACED)
    machine_ns, an_hour_ns = time.time_ns, 3_600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: machine_ns() + an_hour_ns)
    ended_ns = time.monotonic_ns()
    add("commit", ended_ns - 1_000, ended_ns, 0)
    (span,) = exporter.get_finished_spans()
    assert span.end_time is not None
    assert abs(span.end_time - machine_ns() - an_hour_ns) < an_hour_ns // 60


def test_there_are_none_by_default() -> None:
    assert spans_of(StreamsConfig.of({"application.id": "shop"})) is no_spans


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamsrt\[otel\]'"):
        spans_of(TRACED)
