"""Metrics under Kafka Streams' names, computed on request from the runtime's own counters.

A metric is a name and a group, as in Kafka's documentation (``process-total`` of ``stream-thread-metrics``), and tags.
Rates and ratios cover the last half minute; latencies of threads are in milliseconds per iteration of the loop (which
processes up to some thousand records), not per record; those of tasks and stores are in nanoseconds. A text metric of
Kafka has the value 1 here, with the text as a tag.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan, nan

from streamsrt.runtime.meter import ThreadMeter
from streamsrt.runtime.values import MemoryUse, Progress, State, ThreadState
from streamsrt.sensors import Rates, SensorReading, Spread, Work
from streamsrt.tasks.restore.changelog_work import StepMeter

CLIENT, THREAD, TASK, NODE, TOPIC, STORE, CACHE, UPDATER, MEMORY = (
    "stream-metrics",
    "stream-thread-metrics",
    "stream-task-metrics",
    "stream-processor-node-metrics",
    "stream-topic-metrics",
    "stream-state-metrics",
    "stream-record-cache-metrics",
    "stream-state-updater-metrics",
    "stream-memory-metrics",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One measurable. ``tags`` as in Kafka Streams: ``client-id``, ``thread-id``, ``task-id``, ``processor-node-id``, ..."""

    name: str
    group: str
    value: float
    tags: Mapping[str, str]
    description: str = ""


@dataclass(slots=True)
class MetricList:
    """Collects metrics. ``now_ns``: of the monotonic clock; ``now_ms``: of the tasks' clock."""

    rates: Rates
    now_ns: int
    now_ms: int
    found: list[Metric] = field(default_factory=list)
    requested: set[Hashable] = field(default_factory=set)
    """The client whose rates are requested."""

    def per_second(self, what: Hashable, total: float) -> float:
        self.requested.add(what)
        return self.rates.of(what, total, self.now_ns)

    def add(self, group: str, name: str, value: float, tags: Mapping[str, str], description: str) -> None:
        self.found.append(Metric(name, group, value, tags, description))

    def rate(self, group: str, name: str, total: float, tags: Mapping[str, str], what: str) -> None:
        """Adds the rate at which a total grows."""
        value = self.per_second((group, name, *tags.values()), total)
        self.add(group, f"{name}-rate", value, tags, f"{what}, per second")

    def counted(self, group: str, name: str, total: float, tags: Mapping[str, str], what: str) -> None:
        """Adds a total and its rate."""
        self.add(group, f"{name}-total", total, tags, f"{what}, since the start")
        self.rate(group, name, total, tags, what)

    def work(self, group: str, name: str, work: Work, tags: Mapping[str, str], *, per_ms: float = 1.0) -> None:
        """Adds durations, in nanoseconds unless ``per_ms`` says otherwise."""
        average = work.time_ns / work.count if work.count else 0.0
        self.add(group, f"{name}-latency-avg", average / per_ms, tags, f"how long a {name} took, since the start")
        self.add(group, f"{name}-latency-max", work.longest_ns / per_ms, tags, f"longest {name}, recently")

    def spread(
        self, group: str, name: str, spread: Spread, now: int, tags: Mapping[str, str], what: str, *, low: bool = False
    ) -> None:
        """Adds the recent mean and maximum, and the minimum if requested."""
        self.reading(group, name, spread.read(now), tags, what, low=low)

    def reading(
        self, group: str, name: str, reading: SensorReading, tags: Mapping[str, str], what: str, *, low: bool = False
    ) -> None:
        self.add(group, f"{name}-avg", reading.mean, tags, f"{what}, average")
        if low:
            self.add(group, f"{name}-min", reading.low, tags, f"{what}, minimum")
        self.add(group, f"{name}-max", reading.high, tags, f"{what}, maximum")


@dataclass(frozen=True, slots=True)
class About:
    """Text metrics of an application's instance."""

    application_id: str
    topology: str
    recording_level: str
    process_id: str
    """The id in the state directory; empty until that is open."""


def client_metrics(tags: Mapping[str, str], state: State, about: About, *, alive: int, failed: int) -> Iterator[Metric]:
    """Yields the metrics of the instance."""
    of_state = {**tags, "process-id": about.process_id, "state": state.value}
    yield Metric("client-state", CLIENT, list(State).index(state), of_state, "state of the client")
    version, commit = installed()
    level = ["INFO", "DEBUG", "TRACE"].index(about.recording_level)
    yield Metric("recording-level", CLIENT, level, {**tags, "level": about.recording_level}, "metrics.recording.level")
    for name, text, what in (
        ("version", version, "version of this library"),
        ("commit-id", commit, "commit that this library was installed from"),
        ("application-id", about.application_id, "application.id"),
        ("topology-description", about.topology, "output of Topology.describe()"),
    ):
        yield Metric(name, CLIENT, 1, {**tags, name: text}, what)
    yield Metric("alive-stream-threads", CLIENT, alive, tags, "stream threads that run")
    yield Metric("failed-stream-threads", CLIENT, failed, tags, "stream threads that failed since the start")


def installed() -> tuple[str, str]:
    """Returns version and commit of this library, as its installer recorded them (PEP 610); ``unknown`` without a record."""
    from importlib import metadata  # with email and zipfile: 2 MB, which only metrics need

    try:
        package = metadata.distribution("streamsrt")
    except metadata.PackageNotFoundError:
        return "unknown", "unknown"
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    return package.version, origin.get("vcs_info", {}).get("commit_id", "unknown")


def thread_metrics(board: MetricList, tags: Mapping[str, str], progress: Progress, meter: ThreadMeter) -> None:
    """Adds the metrics of the processing thread."""
    rates = meter.rates()
    for kind, work in zip(ThreadMeter.KINDS, meter.works(), strict=True):
        calls_rate, items_rate, ratio = rates[kind]
        total, rate = (work.items, items_rate) if kind in ("process", "punctuate") else (work.count, calls_rate)
        board.add(THREAD, f"{kind}-total", total, tags, f"total of {kind}")
        board.add(THREAD, f"{kind}-rate", rate, tags, f"{kind} per second")
        board.add(THREAD, f"{kind}-ratio", ratio, tags, f"share of the time spent in {kind}")
        board.work(THREAD, kind, work, tags, per_ms=1e6)
    for kind, work in (("poll", meter.poll), ("process", meter.process)):
        average = work.items / work.count if work.count else 0.0
        what = "batches" if kind == "poll" else "records"
        board.add(THREAD, f"{kind}-records-avg", average, tags, f"{what} of a {kind}, since the start")
        board.add(THREAD, f"{kind}-records-max", work.most_items, tags, f"{what} of a {kind}, maximum, recently")
    for change, work in (("assigned", meter.assigned), ("revoked", meter.revoked), ("lost", meter.lost)):
        board.work(THREAD, f"tasks-{change}", work, tags, per_ms=1e6)
    board.counted(THREAD, "task-created", progress.opened_tasks, tags, "tasks opened")
    board.counted(THREAD, "task-closed", progress.closed_tasks, tags, "tasks closed")
    board.add(THREAD, "blocked-time-ns-total", meter.blocked_ns, tags, "nanoseconds of waiting for input")
    silent_s = max(0, board.now_ns - meter.iterated_ns) // 1_000_000_000
    board.add(THREAD, "last-poll-seconds-ago", silent_s, tags, "seconds since the last poll: it grows while code hangs")
    board.add(THREAD, "thread-start-time", meter.started_ms, tags, "when it started, epoch milliseconds")


def thread_state_metrics(board: MetricList, tags: Mapping[str, str], process_id: str, state: ThreadState) -> None:
    """Adds the thread's state. Source: KIP-1091."""
    of_state = {**tags, "process-id": process_id, "state": state.value}
    board.add(THREAD, "thread-state", list(ThreadState).index(state), of_state, "state of the stream thread")


def memory_metrics(tags: Mapping[str, str], memory: MemoryUse) -> Iterator[Metric]:
    """Yields the memory of all state of the process, and its budget. Kafka Streams has no such metrics: Java has no total
    budget."""
    yield Metric("memory-limit-bytes", MEMORY, memory.limit_bytes, tags, "cache.max.bytes")
    yield Metric("memory-used-bytes", MEMORY, memory.used_bytes, tags, "bytes of record caches and of RocksDB")
    yield Metric(
        "record-caches-bytes", MEMORY, memory.record_cache_bytes, tags, "bytes of all record caches, estimated"
    )
    yield Metric("rocksdb-bytes", MEMORY, memory.rocksdb_bytes, tags, "bytes of block caches and write buffers")
    yield Metric("write-buffers-bytes", MEMORY, memory.write_buffer_bytes, tags, "bytes of write buffers alone")
    yield Metric("state-bytes", MEMORY, memory.state_bytes, tags, "bytes that all stores hold, on disk and in memory")


def updater_metrics(board: MetricList, tags: Mapping[str, str], progress: Progress, meter: StepMeter) -> None:
    """Metrics of restoring and standby tasks. Source: Kafka Streams' DefaultStateUpdater, whose counterpart is the
    restore thread."""
    restoring = [task for task in progress.tasks if task.role == "active" and task.phase == "restoring"]
    standbys = [task for task in progress.tasks if task.role != "active"]
    board.add(UPDATER, "active-restoring-tasks", len(restoring), tags, "active tasks that are being restored")
    board.add(UPDATER, "standby-updating-tasks", len(standbys), tags, "standbys that follow their changelogs")
    for role in ("active", "standby"):
        what = f"{role} tasks whose restoration is paused; always 0, because pausing stops processing only"
        board.add(UPDATER, f"{role}-paused-tasks", 0, tags, what)
    board.counted(UPDATER, "restore-records", progress.restored_records, tags, "records restored")
    board.rate(UPDATER, "restore-call", meter.active.count + meter.standby.count, tags, "steps of restoring")
    eta_s = progress.restore_eta_s
    board.add(
        UPDATER,
        "restore-eta-s",
        nan if eta_s is None else eta_s,
        tags,
        "seconds until everything is restored, estimated",
    )
    _shares_of_restoring(board, tags, meter)


def _shares_of_restoring(board: MetricList, tags: Mapping[str, str], meter: StepMeter) -> None:
    active = _share(board, tags, "active-restore-ratio", meter.active)
    standby = _share(board, tags, "standby-update-ratio", meter.standby)
    for name, value, what in (
        ("active-restore-ratio", active, "restoring active tasks"),
        ("standby-update-ratio", standby, "following changelogs for standbys"),
        ("idle-ratio", max(0.0, 1.0 - active - standby), "waiting, nothing to restore"),
    ):
        board.add(UPDATER, name, value if meter.is_timed else nan, tags, f"share of the restore thread's time: {what}")


def _share(board: MetricList, tags: Mapping[str, str], name: str, work: Work) -> float:
    return min(1.0, board.per_second((UPDATER, name, *tags.values()), work.time_ns) / 1e9)


_GAUGES = {"cache-size-bytes-total", "input-buffer-bytes-total", "restore-remaining-records-total"}
"""Sums over tasks and stores of this moment, which Kafka Streams names as it names counters."""


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """The text format of Prometheus, version 0.0.4: ``kafka_streams_<group>_<name>{tags} value``."""
    families: dict[str, list[str]] = {}
    for metric in metrics:
        name = f"kafka_{metric.group}_{metric.name}".replace("-", "_").replace("kafka_stream_", "kafka_streams_stream_")
        if name not in families:
            kind = "counter" if metric.name.endswith("-total") and metric.name not in _GAUGES else "gauge"
            description = metric.description.replace("\\", "\\\\").replace("\n", "\\n")
            families[name] = [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]
        tags = ",".join(f'{key.replace("-", "_")}="{_escaped(value)}"' for key, value in metric.tags.items())
        families[name].append(f"{name}{{{tags}}} {_number(metric.value)}")
    return "".join(line + "\n" for lines in families.values() for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "NaN" if isnan(value) else f"{value:.15g}"
