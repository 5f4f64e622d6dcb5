"""What is counted, beside the page that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from streamsrt.client.values import Fetched
from streamsrt.membership.values import Tasks
from streamsrt.runtime.meter import ThreadMeter
from streamsrt.runtime.metrics import (
    About,
    Metric,
    MetricList,
    client_metrics,
    memory_metrics,
    prometheus_text,
    thread_metrics,
    thread_state_metrics,
    updater_metrics,
)
from streamsrt.runtime.store_metrics import global_store_metrics, store_metrics
from streamsrt.runtime.task_metrics import shares_of_time, task_metrics
from streamsrt.runtime.values import MemoryUse, Progress, RestoreProgress, State, TaskProgress, ThreadState
from streamsrt.sensors import Rates
from streamsrt.state.kinds import lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.tasks.input.input_buffer import InputBuffer
from streamsrt.tasks.manager.owned_task import OwnedTask, Phase
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.restore.changelog_work import RestoreStep, StepMeter
from streamsrt.tasks.restore.progress import ChangelogProgress
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns, encode_batch
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import Rig
from topology import StreamsBuilder, Topology, serdes
from topology.spec.processor import Processor, Record
from topology.spec.stores import Store
from topology.spec.suppressed import Suppressed
from topology.spec.windows import EmitStrategy, TimeWindows

PAGE = Path(__file__).resolve().parents[3] / "examples" / "metrics.md"
NOW_MS = 1_700_000_000_000
ABOUT = About("shop", "Topologies:\n", "DEBUG", "1-2-3")


class Remembering(Processor[str, str, str, str]):
    """Does everything to its store that can be done to one."""

    def init(self, context: Any) -> None:
        self.store = context.get_state_store("seen")

    def process(self, record: Record[str, str]) -> None:
        if record.key is None:
            return
        self.store.put_if_absent(record.key, record.value)
        self.store.put_all([(record.key, record.value)])
        self.store.get(record.key)
        self.store.delete("nobody")
        assert list(self.store.range("k0", "k1"))
        assert list(self.store.all())
        assert list(self.store.prefix_scan("k", serdes.string))


def everything() -> Topology:
    """Suppresses, emits final results, keeps several kinds of stores, and has a processor with one."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    windowed = stream.group_by_key().windowed_by(TimeWindows(1000))
    windowed.count().suppress(Suppressed.until_window_closes()).to_stream().foreach(lambda k, v: None)
    final = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream()
    final.to("out", key=serdes.time_windowed(serdes.string, 1000), value=serdes.long)
    stream.group_by_key().count().to_stream().to("counts", value=serdes.long)
    builder.add_state_store(Store("seen", key=serdes.string, value=serdes.string, in_memory=True))
    stream.process(Remembering, stores=["seen"])
    return builder.build()


@contextmanager
def owned_task(path: Path, topology: Topology, level: str) -> Iterator[OwnedTask]:
    (subtopology,) = topology.with_default_serdes(serdes.string, serdes.string).subtopologies
    options = RocksDBOptions(statistics=level != "INFO")
    below = {
        spec.name: RocksDBStore(path / spec.name, spec.name, options) if spec.persistent else MemoryStore(spec.name)
        for spec in subtopology.stores
    }
    stores: dict[str, Any] = {spec.name: lay_out(spec, below[spec.name]) for spec in subtopology.stores}
    task = Task(
        subtopology,
        0,
        application_id="shop",
        stores=stores,
        collector=RecordCollector(lambda *sent: None, lambda topic: 1, batch_records_first=1),
        config=TaskConfig(
            default_key_serde=serdes.string,
            default_value_serde=serdes.string,
            recording_level=level,  # type: ignore[arg-type]
        ),
        partitions_of_topic=lambda topic: 1,
    )
    owned = OwnedTask((subtopology.id, 0), "active", subtopology, task, stores, Phase.RUNNING)
    owned.inputs["in", 0] = InputBuffer(0)
    try:
        yield owned
    finally:
        task.close()
        for store in stores.values():
            store.close()


def work(owned: OwnedTask, count: int = 50) -> None:
    """A fetch of so many records is processed and committed."""
    keys = [b"k%d" % (i % 7) for i in range(count)]
    batch = encode_batch(keys, keys, [NOW_MS - 5000 + i * 100 for i in range(count)])
    owned.inputs["in", 0].add(Fetched("in", 0, memoryview(batch), 0, count, count, count, 0))
    while (columns := owned.inputs["in", 0].next_columns()) is not None:
        owned.task.add_batch("in", 0, columns)
    while owned.task.process(1000, NOW_MS):
        pass
    owned.task.prepare_commit()
    owned.task.post_commit(None)
    owned.task.process(1000, NOW_MS)


def board(now_ns: int = 10_000_000_000) -> MetricList:
    return MetricList(Rates(0), now_ns, NOW_MS)


def read(owned: OwnedTask, found: MetricList | None = None) -> list[Metric]:
    found = found or board()
    task_metrics(found, {"thread-id": "t"}, owned)
    store_metrics(found, {"thread-id": "t"}, owned)
    shares_of_time(found, {"thread-id": "t"}, [owned])
    return found.found


def names(metrics: list[Metric]) -> set[tuple[str, str]]:
    return {(metric.group, metric.name) for metric in metrics}


def told(level: str) -> set[tuple[str, str]]:
    """What the page says that there is at that level."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {level}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (`.*`) \|$", section, re.MULTILINE)
    return {(group, name) for group, names in rows for name in re.findall(r"`([a-z0-9-]+)`", names)}


def of_level(path: Path, level: str) -> set[tuple[str, str]]:
    with owned_task(path, everything(), level) as owned:
        store = next(spec.name for spec in owned.subtopology.stores if spec.kind == "key_value" and spec.persistent)
        restored = RecordColumns([b"k1"], [bytes(8)], [NOW_MS], 0, 1)
        owned.task.restore(store, restored)
        owned.changelogs[store] = ChangelogProgress(store, ("changelog", 0), 0, 0, 10)
        work(owned)
        found = names(read(owned))
        owned.role = "standby"
        return found | names(read(owned))


def test_the_page_names_every_metric_and_no_other(tmp_path: Path) -> None:
    others = board()
    thread_metrics(others, {}, Progress(), ThreadMeter())
    thread_state_metrics(others, {}, "1-2-3", ThreadState.RUNNING)
    updater_metrics(others, {}, Progress(), StepMeter(is_timed=True))
    rest = [
        *client_metrics({}, State.RUNNING, ABOUT, alive=1, failed=0),
        *others.found,
        *memory_metrics({}, MemoryUse()),
    ]
    info = of_level(tmp_path / "info", "INFO")
    assert names(rest) | info == told("INFO")
    debug = of_level(tmp_path / "debug", "DEBUG")
    assert debug - info == told("DEBUG")
    assert of_level(tmp_path / "trace", "TRACE") - debug == told("TRACE")


def test_tags_say_what_a_metric_is_of(tmp_path: Path) -> None:
    with owned_task(tmp_path, everything(), "DEBUG") as owned:
        work(owned)
        found = read(owned)
    task = str(owned)
    tags = {frozenset(metric.tags) for metric in found if metric.group == "stream-topic-metrics"}
    assert tags == {frozenset({"thread-id", "task-id", "processor-node-id", "topic"})}
    assert {metric.tags["task-id"] for metric in found} == {task}
    stores = {name for metric in found if metric.group == "stream-state-metrics" for name in metric.tags}
    assert {
        "rocksdb-state-id",
        "rocksdb-window-state-id",
        "in-memory-state-id",
        "in-memory-suppression-state-id",
    } < stores
    assert {frozenset(m.tags) for m in found if m.group == "stream-record-cache-metrics"} == {
        frozenset({"thread-id", "task-id", "record-cache-id"})
    }
    lines = [line for line in prometheus_text(found).splitlines() if not line.startswith("#")]
    series = [line.rpartition(" ")[0] for line in lines]
    assert len(set(series)) == len(series)


def test_records_and_bytes_of_topics(tmp_path: Path) -> None:
    with owned_task(tmp_path, everything(), "INFO") as owned:
        work(owned, 50)
        found = {(m.name, m.tags.get("topic")): m.value for m in read(owned)}
        assert found["records-consumed-total", "in"] == 50
        assert found["bytes-consumed-total", "in"] == owned.inputs["in", 0].fetched_bytes > 500
        assert found["records-produced-total", "counts"] == 7
        assert found["active-process-ratio", None] == 1.0
        (processed,) = [m.value for m in read(owned) if (m.group, m.name) == ("stream-task-metrics", "process-total")]
        assert processed == 50
        work(owned, 50)
        again = {(m.name, m.tags.get("topic")): m.value for m in read(owned)}
    assert again["bytes-produced-total", "counts"] > 0
    assert again["records-produced-total", "counts"] == 14


def test_rates_are_of_what_came_since_somebody_asked(tmp_path: Path) -> None:
    rates, second = Rates(0), 1_000_000_000

    def rate(owned: OwnedTask, at_s: int) -> float:
        found = MetricList(rates, at_s * second, NOW_MS)
        (value,) = [m.value for m in read(owned, found) if (m.group, m.name) == ("stream-task-metrics", "process-rate")]
        return value

    with owned_task(tmp_path, everything(), "INFO") as owned:
        work(owned, 50)
        assert rate(owned, 50) == pytest.approx(1.0)
        work(owned, 400)
        assert rate(owned, 90) == pytest.approx(10.0)


def test_caches_and_rocksdb_are_measured_where_it_is_asked_for(tmp_path: Path) -> None:
    with owned_task(tmp_path, everything(), "DEBUG") as owned:
        work(owned, 70)
        found = {(m.name, value): m.value for m in read(owned) for value in m.tags.values()}
        store = next(spec.name for spec in owned.subtopology.stores if spec.kind == "key_value" and spec.persistent)
        # Seven keys were looked up in the store, the other records found theirs in the cache.
        assert found["hit-ratio-avg", store] == pytest.approx(63 / 70)
        assert found["bytes-written-total", store] > 0
        assert found["num-entries-active-mem-table", store] > 0
        assert found["get-rate", "seen"] == pytest.approx(7.0)
        assert found["iterator-duration-max", "seen"] > 0


def test_scans_that_are_not_at_their_end_are_known(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path / "store", "store", RocksDBOptions())
    store.write([(b"%03d" % i, b"v") for i in range(500)])
    assert store.open_since_ms() == []
    rows = store.range()
    next(rows)
    (since_ms,) = store.open_since_ms()
    assert since_ms > 1_000_000_000_000
    assert len(list(rows)) == 499
    assert store.open_since_ms() == []
    store.close()


def test_averages_are_of_a_turn() -> None:
    meter = ThreadMeter()
    meter.process.add(0, 2_000_000, 100)
    meter.process.add(0, 4_000_000, 300)
    found = board()
    with meter.timing(meter.assigned):
        pass
    thread_metrics(found, {}, Progress(), meter)
    values = {metric.name: metric.value for metric in found.found}
    assert values["process-records-avg"] == 200
    assert values["process-records-max"] == 300
    assert values["process-latency-avg"] == pytest.approx(3.0)
    assert values["process-latency-max"] == pytest.approx(4.0)
    assert values["poll-records-avg"] == 0
    assert values["tasks-assigned-latency-max"] == pytest.approx(meter.assigned.time_ns / 1e6)


def test_a_thread_that_hangs_shows_since_when() -> None:
    meter, found = ThreadMeter(), board()
    meter.iterated_ns = found.now_ns - 400_000_000_000
    thread_metrics(found, {}, Progress(), meter)
    assert {metric.name: metric.value for metric in found.found}["last-poll-seconds-ago"] == 400


def test_dropped_records_are_counted_by_their_reason(tmp_path: Path) -> None:
    with owned_task(tmp_path, everything(), "INFO") as owned:
        work(owned)
        keys: list[bytes | None] = [None, None, b"k0"]
        owned.task.add_batch("in", 0, RecordColumns(keys, [b"a"] * 3, [NOW_MS, NOW_MS, 1], 50, 53))
        owned.task.process(1000, NOW_MS)
        found = {m.tags["reason"]: m.value for m in read(owned) if m.name == "dropped-records-total"}
    assert found["null"] == 6
    assert found["late"] >= 1
    assert (found["timestamp"], found["other"]) == (0, 0)


def test_texts_of_prometheus_are_escaped_and_numbers_that_are_none_are_said() -> None:
    (version, *_) = [
        m for m in client_metrics({}, State.RUNNING, ABOUT, alive=1, failed=0) if m.name == "topology-description"
    ]
    text = prometheus_text([version, Metric("a-avg", "stream-task-metrics", float("nan"), {}, "a\\b\nc")])
    assert 'topology_description="Topologies:\\n"} 1\n' in text
    assert "# HELP kafka_streams_stream_task_metrics_a_avg a\\\\b\\nc\n" in text
    assert "kafka_streams_stream_task_metrics_a_avg{} NaN\n" in text


def updater(meter: StepMeter, at_s: int, progress: Progress | None = None) -> dict[str, float]:
    found = board(at_s * 1_000_000_000)
    updater_metrics(found, {}, progress or Progress(), meter)
    return {metric.name: metric.value for metric in found.found}


def test_the_time_of_the_restore_thread_is_told_by_what_it_was_for() -> None:
    meter, ms = StepMeter(is_timed=True), 1_000_000
    meter.add(RestoreStep(("log", 0), is_restoring=True, records=100, is_over=False), 0, 3_000 * ms)
    meter.add(RestoreStep(("log", 0), is_restoring=True, records=50, is_over=True), 4_000 * ms, 5_000 * ms)
    meter.add(RestoreStep(("log", 1), is_restoring=False, records=7, is_over=False), 6_000 * ms, 7_000 * ms)
    found = updater(meter, 10)
    assert found["active-restore-ratio"] == pytest.approx(0.4)
    assert found["standby-update-ratio"] == pytest.approx(0.1)
    assert found["idle-ratio"] == pytest.approx(0.5)
    assert found["restore-call-rate"] == pytest.approx(0.3)
    assert (found["active-paused-tasks"], found["standby-paused-tasks"]) == (0, 0)


def test_shares_of_time_are_unknown_where_restoring_has_no_thread() -> None:
    meter = StepMeter(is_timed=False)
    meter.add(RestoreStep(("log", 0), is_restoring=True, records=100, is_over=True), 0, 0)
    found = updater(meter, 10)
    assert found["restore-call-rate"] == pytest.approx(0.1)
    assert all(isnan(found[name]) for name in ("active-restore-ratio", "standby-update-ratio", "idle-ratio"))


def test_how_long_restoring_will_take_is_a_metric() -> None:
    stores = tuple(RestoreProgress(name, 10, 0, 20, 10, 1.0, eta_s) for name, eta_s in (("a", 20.0), ("b", 8.0)))
    progress = Progress(tasks=(TaskProgress("0_0", "active", "restoring", 0, 0, {}, stores),))
    found = updater(StepMeter(is_timed=True), 10, progress)
    assert (found["restore-eta-s"], found["active-restoring-tasks"]) == (20.0, 1)
    assert isnan(updater(StepMeter(is_timed=True), 10)["restore-eta-s"])


@pytest.mark.parametrize(
    ("state", "progress", "expected"),
    [
        (State.CREATED, Progress(), (0, "CREATED")),
        (State.REBALANCING, Progress(), (1, "STARTING")),
        (State.REBALANCING, Progress(member_epoch=0, opened_tasks=2), (2, "PARTITIONS_REVOKED")),
        (State.REBALANCING, Progress(member_epoch=3, opened_tasks=2), (3, "PARTITIONS_ASSIGNED")),
        (State.RUNNING, Progress(member_epoch=3), (4, "RUNNING")),
        (State.PENDING_SHUTDOWN, Progress(member_epoch=3), (5, "PENDING_SHUTDOWN")),
        (State.PENDING_ERROR, Progress(member_epoch=3), (5, "PENDING_SHUTDOWN")),
        (State.NOT_RUNNING, Progress(), (6, "DEAD")),
        (State.ERROR, Progress(), (6, "DEAD")),
    ],
)
def test_the_state_of_the_thread_has_the_ordinals_of_java(
    state: State, progress: Progress, expected: tuple[int, str]
) -> None:
    found = board()
    thread_state_metrics(found, {"thread-id": "t"}, "1-2-3", progress.thread_state(state))
    (metric,) = found.found
    assert (metric.value, metric.tags["state"]) == expected
    assert (metric.tags["thread-id"], metric.tags["process-id"]) == ("t", "1-2-3")


def test_the_state_of_the_client_names_its_process() -> None:
    told = {m.name: m for m in client_metrics({"client-id": "c"}, State.RUNNING, ABOUT, alive=1, failed=0)}
    assert (told["client-state"].value, told["client-state"].tags["process-id"]) == (2, "1-2-3")


def test_global_stores_are_told_of_as_stores_of_a_task_of_their_own(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", key=serdes.string, value=serdes.string, store="names")
    joined = builder.stream("in", key=serdes.string, value=serdes.string).join(
        names, lambda one, other: other, on=lambda key, value: key
    )
    joined.to("out", key=serdes.string, value=serdes.string)
    network = InProcessNetwork({"in": 1, "names": 1, "out": 1})
    network.write(("names", 0), [(b"a", b"1"), (b"b", b"2")])
    rig = Rig(tmp_path, builder.build(), network)
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(6)
    found = board()
    with rig.gate.idle:
        rig.queries.run_on_globals(partial(global_store_metrics, found, {"thread-id": "t"}))
    rig.close()
    values = {metric.name: metric.value for metric in found.found}
    assert {tuple(metric.tags.items()) for metric in found.found} == {
        (("thread-id", "t"), ("task-id", "-1_-1"), ("rocksdb-state-id", "names"))
    }
    assert values["num-live-versions"] >= 1, "properties of RocksDB"
    assert (values["num-open-iterators"], values["size-bytes"] > 0) == (0, True)
    assert {"estimate-num-keys", "cache-size-bytes-total"} < set(values)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("process-total", "counter"), ("restore-remaining-records-total", "gauge"), ("cache-size-bytes-total", "gauge")],
)
def test_what_can_go_down_is_a_gauge_in_prometheus(name: str, kind: str) -> None:
    text = prometheus_text([Metric(name, "stream-task-metrics", 1.0, {}, "")])
    assert f"# TYPE kafka_streams_stream_task_metrics_{name.replace('-', '_')} {kind}\n" in text
