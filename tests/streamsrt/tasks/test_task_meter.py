"""What a task counts about itself, by a clock that is passed in."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from streamsrt.operators.engine.node_meter import RecordAges
from streamsrt.operators.engine.program_clock import ProgramClock
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.tasks.task_meter import SAMPLE, SourceMeter
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import APPLICATION, new_store
from topology import StreamsBuilder, Topology, serdes
from topology.spec.suppressed import Suppressed
from topology.spec.windows import TimeWindows

NOW_MS = 1_700_000_000_000


def task_of(topology: Topology, collector: RecordCollector, **config: Any) -> Task:
    (subtopology,) = topology.with_default_serdes(serdes.string, serdes.string).subtopologies
    return Task(
        subtopology,
        0,
        application_id=APPLICATION,
        stores={spec.name: new_store(spec) for spec in subtopology.stores},
        collector=collector,
        config=TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string, **config),
        partitions_of_topic=lambda topic: 2,
    )


def collector() -> RecordCollector:
    return RecordCollector(lambda *sent: None, lambda topic: 2, batch_records_first=64)


def columns(count: int, base: int = 0, *, age_ms: int = 1000, step_ms: int = 1) -> RecordColumns:
    keys: list[bytes | None] = [b"k%d" % (i % 7) for i in range(count)]
    values: list[bytes | None] = [b"v%d" % i for i in range(count)]
    times = [NOW_MS - age_ms + i * step_ms for i in range(count)]
    return RecordColumns(keys, values, times, base, base + count)


def copying() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda k, v: k != "k0").to("out")
    return builder.build()


def test_records_are_counted_at_their_source_and_at_their_sink() -> None:
    out = collector()
    task = task_of(copying(), out)
    task.add_batch("in", 0, columns(700))
    while task.process(300, NOW_MS):
        pass
    (source,) = task.meter.sources.values()
    ((tp, sink),) = task.meter.sinks.items()
    assert tp[1] == "out"
    assert (source.records, sink.records) == (700, 600)
    assert task.meter.process.items == 700
    out.flush()
    task.add_batch("in", 0, columns(7, 700))
    task.process(300, NOW_MS)
    assert sink.records == 606
    assert sink.bytes == pytest.approx(606 * out.record_bytes("out"), rel=0.05)
    # Of what has come since the last look only: two tasks may write to one topic.
    assert out.take_produced("out") == (0, [])


def test_latencies_are_those_of_the_records_of_a_batch() -> None:
    task = task_of(copying(), collector())
    task.add_batch("in", 0, columns(1600, age_ms=5000))
    task.process(10_000, NOW_MS)
    for latency in task.meter.latencies.values():
        found = latency.read(NOW_MS)
        assert found.high <= 5000
        assert found.low >= 5000 - 1600
        assert found.mean == pytest.approx(5000 - 800, abs=250)
        assert latency.count <= 6 * SAMPLE
    (source,) = task.meter.sources.values()
    assert source.latency.read(NOW_MS)[1:] == (5000 - 1599, 5000)


@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_latencies_are_by_the_clock_that_records_have_their_timestamps_of(ahead_ms: int) -> None:
    """Which was set after the start. Half a minute is still one of the steady clock."""
    clock = ProgramClock()
    clock.ahead_ms = ahead_ms
    task = task_of(copying(), collector(), recording_level="DEBUG", clock=clock)
    task.add_batch("in", 0, columns(7, age_ms=5000 - ahead_ms))
    task.process(10, NOW_MS)
    task.prepare_commit()
    spreads = [*task.meter.latencies.values(), *(meter.latency for meter in task.meter.nodes.values() if meter.timed)]
    assert {round(spread.read(NOW_MS).high, -1) for spread in spreads} == {5000}
    assert len(spreads) == 2


def test_of_short_runs_one_in_a_few_is_looked_at() -> None:
    source = SourceMeter(RecordAges(ProgramClock()))
    for at in range(SAMPLE * 3):
        source.done([at], at, 100)
    assert (source.records, source.latency.count) == (SAMPLE * 3, 3)


def test_what_has_two_inputs_counts_when_it_did_not_wait_for_the_other() -> None:
    builder = StreamsBuilder()
    builder.stream("in").merge(builder.stream("other")).to("out")
    task = task_of(builder.build(), collector())
    task.note_high_watermark("other", 0, 0)
    task.add_batch("other", 0, RecordColumns([], [], [], 0, 0))
    task.add_batch("in", 0, columns(5))
    assert task.process(100, NOW_MS) == 5
    assert task.enforced_processings == 1


def test_what_nobody_reads_is_not_counted() -> None:
    task = task_of(copying(), collector(), recording_level="DEBUG", is_measured=False)
    task.add_batch("in", 0, columns(5))
    assert task.process(100, NOW_MS) == 5
    task.prepare_commit()
    task.post_commit({})
    assert (task.meter.process.count, task.meter.sources, task.meter.sinks, task.meter.nodes) == (0, {}, {}, {})
    assert task.counters()["processed"] == 5


def test_exact_meters_know_how_late_each_record_was() -> None:
    task = task_of(copying(), collector(), recording_level="DEBUG")
    late = columns(4, step_ms=0)
    late.timestamps[:] = [NOW_MS, NOW_MS - 10, NOW_MS + 5, NOW_MS - 25]
    task.add_batch("in", 0, late)
    task.process(100, NOW_MS)
    assert task.meter.lateness.read(NOW_MS) == ((10 + 30) / 4, 0, 30)
    assert isnan(task_of(copying(), collector()).meter.lateness.read(NOW_MS).mean)


@pytest.mark.parametrize("generate", [True, False])
def test_exact_meters_count_at_each_node(generate: bool) -> None:
    builder = StreamsBuilder()
    kept = builder.stream("in").filter(lambda k, v: k != "k0", name="kept")
    kept.foreach(lambda k, v: None, name="seen")
    kept.map_values(str.upper, name="upper").to("out")
    task = task_of(builder.build(), collector(), recording_level="DEBUG", generate=generate)
    task.add_batch("in", 0, columns(70))
    task.process(1000, NOW_MS)
    counted = {name: (meter.processed, meter.forwarded) for name, meter in task.meter.nodes.items()}
    assert counted["kept"] == (70, 60)
    assert counted["upper"] == (60, 60)
    assert counted["seen"][0] == 60
    assert task.meter.nodes["seen"].latency.read(NOW_MS)[1:] == (1000 - 69, 1000 - 1)
    assert task.meter.nodes["upper"].latency.count == 0
    assert not task_of(builder.build(), collector()).meter.nodes


@pytest.mark.parametrize("generate", [True, False])
def test_exact_meters_know_stores_and_what_is_held_back(generate: bool) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(100)).count()
    last = counts.suppress(Suppressed.until_window_closes()).to_stream()
    last.to("out", key=serdes.time_windowed(serdes.string, 100), value=serdes.long)
    task = task_of(builder.build(), collector(), recording_level="TRACE", generate=generate)
    task.add_batch("in", 0, columns(70, step_ms=10))
    task.process(1000, NOW_MS)
    task.prepare_commit()
    task.post_commit({})
    task.process(1000, NOW_MS)
    suppression = next(node.name for node in task.subtopology.nodes if "SUPPRESS" in node.name)
    assert task.meter.nodes[suppression].forwarded > 30
    store = next(spec.name for spec in task.subtopology.stores if spec.kind == "window")
    operations = task.meter.stores[store].operations
    assert operations["put-all"].count == 1
    assert operations["flush"].count >= 1
    owner = next(node for node in task.meter.nodes.values() if node.at_store)
    assert owner.latency.count == 70
    ((counts_held, sizes_held),) = task.meter.buffers.values()
    assert counts_held.total >= 0
    assert sizes_held.count == counts_held.count == 1


def test_records_that_are_counted_as_a_whole_are_counted_at_the_node_too() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream(name="changes").to("out", value=serdes.long)
    task = task_of(builder.build(), collector(), recording_level="TRACE")
    for at in range(3):
        task.add_batch("in", 0, columns(100, 100 * at))
        task.process(1000, NOW_MS)
        task.prepare_commit()
        task.post_commit({})
    (owner,) = [meter for meter in task.meter.nodes.values() if meter.at_store]
    assert owner.processed == owner.latency.count == 300
    assert owner.latency.read(NOW_MS)[1:] == (901, 1000)
    assert task.meter.nodes["changes"].processed == 21
    assert task.meter.stores["counts"].operations["put-all"].count == 3
