"""Metrics under Kafka Streams' names, made of what the runtime counts anyway when somebody asks for them.

A metric is a name and a group, as in Kafka's documentation (``process-total`` of ``stream-thread-metrics``), and tags. Rates
and ratios are of the last half minute; latencies are in milliseconds, of a turn of the loop (which processes up to some
thousand records), not of a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from streamsrt.queries.values import StoreSize
from streamsrt.runtime.meter import ThreadMeter
from streamsrt.runtime.values import MemoryUse, Progress, State, TaskProgress

CLIENT, THREAD, TASK, STORE, UPDATER, MEMORY = (
    "stream-metrics",
    "stream-thread-metrics",
    "stream-task-metrics",
    "stream-state-metrics",
    "stream-state-updater-metrics",
    "stream-memory-metrics",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One measurable. ``tags`` as in Kafka Streams: ``client-id``, ``thread-id``, ``task-id``, ``state-id``."""

    name: str
    group: str
    value: float
    tags: Mapping[str, str]
    description: str = ""


def client_metrics(tags: Mapping[str, str], state: State, *, alive: int, failed: int) -> Iterator[Metric]:
    """``tags``: with application id and version, which Kafka Streams has as metrics with text for values."""
    yield Metric(
        "client-state", CLIENT, list(State).index(state), {**tags, "state": state.value}, "state of the client"
    )
    yield Metric("alive-stream-threads", CLIENT, alive, tags, "stream threads that run")
    yield Metric("failed-stream-threads", CLIENT, failed, tags, "stream threads that failed since the start")


def thread_metrics(tags: Mapping[str, str], progress: Progress, meter: ThreadMeter) -> Iterator[Metric]:
    """Of the processing thread."""
    rates = meter.rates()
    for kind, work in zip(ThreadMeter.KINDS, meter.works(), strict=True):
        calls_rate, items_rate, ratio = rates[kind]
        total, rate = (work.items, items_rate) if kind in ("process", "punctuate") else (work.count, calls_rate)
        yield Metric(f"{kind}-total", THREAD, total, tags, f"total of {kind}")
        yield Metric(f"{kind}-rate", THREAD, rate, tags, f"{kind} per second")
        yield Metric(f"{kind}-ratio", THREAD, ratio, tags, f"part of the time spent in {kind}")
        average_ms = work.time_ns / work.count / 1e6 if work.count else 0.0
        yield Metric(f"{kind}-latency-avg", THREAD, average_ms, tags, f"milliseconds of a {kind}, since the start")
        yield Metric(f"{kind}-latency-max", THREAD, work.longest_ns / 1e6, tags, f"longest {kind}, in milliseconds")
    for kind, work in (("poll", meter.poll), ("process", meter.process)):
        average = work.items / work.count if work.count else 0.0
        what = "batches" if kind == "poll" else "records"
        yield Metric(f"{kind}-records-avg", THREAD, average, tags, f"{what} of a {kind}, since the start")
    yield Metric("task-created-total", THREAD, progress.opened_tasks, tags, "tasks opened")
    yield Metric("task-closed-total", THREAD, progress.closed_tasks, tags, "tasks closed")
    yield Metric("blocked-time-ns-total", THREAD, meter.blocked_ns, tags, "nanoseconds of waiting for input")
    yield Metric("thread-start-time", THREAD, meter.started_ms, tags, "when it started, epoch milliseconds")


def task_metrics(tags: Mapping[str, str], tasks: Iterable[TaskProgress]) -> Iterator[Metric]:
    """Of each active task."""
    for task in tasks:
        if task.role != "active":
            continue
        of_task = {**tags, "task-id": task.task_id}
        counters = task.counters
        yield Metric("process-total", TASK, counters.get("processed", 0), of_task, "records processed")
        why = {reason: counters.get(f"dropped_{reason}", 0) for reason in ("null", "late", "timestamp")}
        why["other"] = max(0, counters.get("dropped", 0) - sum(why.values()))
        for reason, count in why.items():
            with_reason = {**of_task, "reason": reason}
            yield Metric("dropped-records-total", TASK, count, with_reason, "records dropped, by the reason")
        failed = sum(count for name, count in counters.items() if name.startswith("failed_"))
        yield Metric("skipped-records-total", TASK, failed, of_task, "records that failed and were skipped")
        yield Metric("records-lag", TASK, task.lag_records, of_task, "records that were seen and are not processed")
        yield Metric("stream-time", TASK, task.stream_time_ms, of_task, "latest timestamp, epoch milliseconds")


def memory_metrics(tags: Mapping[str, str], memory: MemoryUse) -> Iterator[Metric]:
    """Of all state of the process, beside its budget. These are this runtime's: Java has no budget over all."""
    yield Metric("memory-limit-bytes", MEMORY, memory.limit_bytes, tags, "cache.max.bytes")
    yield Metric("memory-used-bytes", MEMORY, memory.used_bytes, tags, "bytes of record caches and of RocksDB")
    yield Metric("record-caches-bytes", MEMORY, memory.record_cache_bytes, tags, "bytes of all record caches, about")
    yield Metric("rocksdb-bytes", MEMORY, memory.rocksdb_bytes, tags, "bytes of block caches and write buffers")
    yield Metric("write-buffers-bytes", MEMORY, memory.write_buffer_bytes, tags, "bytes of write buffers alone")
    yield Metric("state-bytes", MEMORY, memory.state_bytes, tags, "bytes that all stores hold, on disk and in memory")


def updater_metrics(tags: Mapping[str, str], progress: Progress) -> Iterator[Metric]:
    """Of what is being restored and followed."""
    restoring = [task for task in progress.tasks if task.role == "active" and task.phase == "restoring"]
    standbys = [task for task in progress.tasks if task.role != "active"]
    yield Metric("restoring-active-tasks", UPDATER, len(restoring), tags, "active tasks that are being restored")
    yield Metric("restoring-standby-tasks", UPDATER, len(standbys), tags, "standbys that follow their changelogs")
    yield Metric("restore-records-total", UPDATER, progress.restored_records, tags, "records restored")
    for task in progress.tasks:
        for each in task.restoring:
            of_store = {**tags, "task-id": task.task_id, "rocksdb-state-id": each.store}
            yield Metric("restore-remaining-records-total", STORE, each.remaining_records, of_store, "records left")
            yield Metric("restore-total", STORE, each.restored_records, of_store, "records restored")


def store_metrics(tags: Mapping[str, str], sizes: Iterable[StoreSize]) -> Iterator[Metric]:
    """Of each store."""
    for size in sizes:
        of_store = {**tags, "task-id": size.task_id, "rocksdb-state-id": size.store}
        yield Metric("estimate-num-keys", STORE, size.entries, of_store, "entries in the store, about")
        yield Metric("size-bytes", STORE, size.size_bytes, of_store, "bytes on disk and in memtables")
        yield Metric("cache-size-bytes-total", STORE, size.cache_bytes, of_store, "bytes of its record cache, about")


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """The text format of Prometheus, version 0.0.4: ``kafka_streams_<group>_<name>{tags} value``."""
    families: dict[str, list[str]] = {}
    for metric in metrics:
        name = f"kafka_{metric.group}_{metric.name}".replace("-", "_").replace("kafka_stream_", "kafka_streams_stream_")
        if name not in families:
            kind = "counter" if metric.name.endswith("-total") else "gauge"
            families[name] = [f"# HELP {name} {metric.description}", f"# TYPE {name} {kind}"]
        tags = ",".join(f'{key.replace("-", "_")}="{_escaped(value)}"' for key, value in metric.tags.items())
        families[name].append(f"{name}{{{tags}}} {metric.value:.15g}")
    return "".join(line + "\n" for lines in families.values() for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
