"""Metrics of tasks, their nodes and their topics, read on the processing thread for a few tasks at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from streamsrt.operators.engine.user_metrics import UserLatency, UserMetrics, UserRate
from streamsrt.runtime.metrics import NODE, TASK, TOPIC, MetricList
from streamsrt.tasks.manager.owned_task import OwnedTask
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import RowSource, emits_on_close, traits_of

_LATENCY = "milliseconds from a record's timestamp to its arrival at the node"


def task_metrics(board: MetricList, tags: Mapping[str, str], owned: OwnedTask) -> None:
    """Adds the metrics of one task."""
    of_task = {**tags, "task-id": str(owned)}
    _restoring(board, of_task, owned)
    if not owned.is_active:
        return
    _processing(board, of_task, owned)
    _counters(board, of_task, owned.task.counters())
    _buffers(board, of_task, owned)
    _topics(board, of_task, owned)
    user_metrics(board, of_task, owned.task.user_metrics)
    if owned.task.meter.exact:
        meter = owned.task.meter
        board.spread(TASK, "record-lateness", meter.lateness, board.now_ms, of_task, "stream time minus timestamp")
        _nodes(board, of_task, owned)


def user_metrics(board: MetricList, of_task: Mapping[str, str], metrics: UserMetrics) -> None:
    """Adds the metrics that the processors of a task define themselves."""
    for key, meter in metrics.meters.items():
        tags = {**of_task, "processor-node-id": key.node, **dict(key.tags)}
        what = metrics.descriptions[key] or "a metric of the program"
        if isinstance(meter, UserLatency):
            board.spread(key.group, f"{key.name}-latency", meter.spread, metrics.now_ms(), tags, what)
            board.counted(key.group, key.name, meter.count, tags, what)
        elif isinstance(meter, UserRate):
            board.counted(key.group, key.name, meter.total, tags, what)
        else:
            board.add(key.group, f"{key.name}-total", meter.total, tags, what)


def shares_of_time(board: MetricList, tags: Mapping[str, str], tasks: Iterable[OwnedTask]) -> None:
    """Adds each active task's share of the processing time."""
    spent = {
        str(owned): board.per_second(
            ("active-process-ratio", *tags.values(), str(owned)), owned.task.meter.process.time_ns
        )
        for owned in tasks
        if owned.is_active
    }
    whole = sum(spent.values())
    for task, each in spent.items():
        of_task = {**tags, "task-id": task}
        share = each / whole if whole else 0.0
        board.add(
            TASK, "active-process-ratio", share, of_task, "share of all processing time that is spent on this task"
        )


def _restoring(board: MetricList, of_task: Mapping[str, str], owned: OwnedTask) -> None:
    changelogs = owned.changelogs.values()
    restored = sum(each.restored_records for each in changelogs)
    if owned.is_active:
        left = sum(each.remaining_records for each in changelogs)
        board.counted(TASK, "restore", restored, of_task, "records restored")
        board.add(TASK, "restore-remaining-records-total", left, of_task, "records that are left to be restored")
    else:
        board.counted(TASK, "update", restored, of_task, "records of changelogs followed")


def _processing(board: MetricList, of_task: Mapping[str, str], owned: OwnedTask) -> None:
    task = owned.task
    meter = task.meter
    processed = task.counters()["processed"]
    board.counted(TASK, "process", processed, of_task, "records processed")
    board.work(TASK, "process", meter.process, of_task)
    board.counted(TASK, "punctuate", meter.punctuate.items, of_task, "punctuations")
    board.work(TASK, "punctuate", meter.punctuate, of_task)
    enforced = task.enforced_processings
    board.counted(TASK, "enforced-processing", enforced, of_task, "runs while other partitions had no records")
    board.add(TASK, "stream-time", task.stream_time_ms, of_task, "latest timestamp, epoch milliseconds")


def _counters(board: MetricList, of_task: Mapping[str, str], counters: Mapping[str, int]) -> None:
    why = {reason: counters.get(f"dropped_{reason}", 0) for reason in ("null", "late", "timestamp")}
    dropped = counters.get("dropped", 0)
    why["other"] = max(0, dropped - sum(why.values()))
    for reason, count in why.items():
        with_reason = {**of_task, "reason": reason}
        board.add(TASK, "dropped-records-total", count, with_reason, "records dropped, by reason")
    board.rate(TASK, "dropped-records", dropped, of_task, "records dropped")
    failed = sum(count for name, count in counters.items() if name.startswith("failed_"))
    board.add(TASK, "skipped-records-total", failed, of_task, "records that failed and were skipped")


def _buffers(board: MetricList, of_task: Mapping[str, str], owned: OwnedTask) -> None:
    task = owned.task
    fetched = sum(buffer.buffered_bytes for buffer in owned.inputs.values())
    cached = sum(cache.size_bytes() for cache in task.caches.values())
    board.add(TASK, "active-buffer-count", task.buffered_records, of_task, "records decoded and not processed")
    board.add(TASK, "input-buffer-bytes-total", fetched, of_task, "bytes fetched and not decoded")
    board.add(TASK, "cache-size-bytes-total", cached, of_task, "bytes of its record caches, estimated")
    board.add(TASK, "records-lag", owned.lag_records, of_task, "records that are known and not processed")


def _topics(board: MetricList, of_task: Mapping[str, str], owned: OwnedTask) -> None:
    meter = owned.task.meter
    by_node: Counter[str] = Counter()
    for topic, source in list(meter.sources.items()):
        node = meter.source_nodes[topic].name
        by_node[node] += source.records
        fetched = sum(buffer.fetched_bytes for tp, buffer in owned.inputs.items() if tp[0] == topic)
        of_topic = {**of_task, "processor-node-id": node, "topic": topic}
        board.add(TOPIC, "records-consumed-total", source.records, of_topic, "records consumed")
        board.add(TOPIC, "bytes-consumed-total", fetched, of_topic, "bytes consumed, as they were fetched")
    for (node, topic), sink in list(meter.sinks.items()):
        by_node[node] += sink.records
        of_topic = {**of_task, "processor-node-id": node, "topic": topic}
        board.add(TOPIC, "records-produced-total", sink.records, of_topic, "records produced")
        board.add(TOPIC, "bytes-produced-total", sink.bytes, of_topic, "bytes produced, as they are sent")
    for node, records in by_node.items():
        of_node = {**of_task, "processor-node-id": node}
        board.counted(NODE, "process", records, of_node, "records that arrived at the node")
        latency = meter.latencies[node]
        board.spread(NODE, "record-e2e-latency", latency, board.now_ms, of_node, _LATENCY, low=True)


def _nodes(board: MetricList, of_task: Mapping[str, str], owned: OwnedTask) -> None:
    for node in owned.subtopology.nodes:
        meter = owned.task.meter.nodes.get(node.name)
        if meter is None or not isinstance(node, ProcessorNode):
            continue
        of_node = {**of_task, "processor-node-id": node.name}
        board.counted(NODE, "process", meter.processed, of_node, "records processed")
        if not node.children:
            board.spread(NODE, "record-e2e-latency", meter.latency, board.now_ms, of_node, _LATENCY, low=True)
        if traits_of(node.operation).row is RowSource.FORWARDED:
            board.counted(NODE, "suppression-emit", meter.forwarded, of_node, "records emitted by a suppression")
        if emits_on_close(node.operation):
            what = "final results of windows"
            board.counted(NODE, "window-aggregate-final-emit", meter.forwarded, of_node, what)
