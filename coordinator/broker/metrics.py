"""The metrics of the group coordinator and of compaction, under Kafka's names, in the text format of Prometheus.

1. ``kafka.server:type=group-coordinator-metrics,name=group-count,protocol=streams`` is
   ``kafka_server_group_coordinator_metrics_group_count{protocol="streams"}``, as the usual exporters write it.
2. Metrics that can be read from the state are computed on request, without counters.
3. The broker has one thread and no queue of events: a request is handled when it arrives. The idle ratio is that of this
   thread for all its work, so its minimum and its average are the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from coordinator.broker.group_shards import GroupShards
from coordinator.broker.log_cleaner import LogCleaner
from coordinator.group.listing import CLASSIC, CONSUMER, STREAMS, kind_and_state

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = {
    CONSUMER: ("empty", "assigning", "reconciling", "stable", "dead"),
    STREAMS: ("empty", "not_ready", "assigning", "reconciling", "stable", "dead"),
}
_PREFIX = "kafka_server_group_coordinator_metrics_"
CLEANER = "kafka_log_log_cleaner_manager_"
_GAUGE, _COUNTER = "gauge", "counter"
_STATE_LABELS = {"NotReady": "not_ready"}


class Metric(NamedTuple):
    """One number. ``kind`` is gauge or counter."""

    name: str
    kind: str
    help: str
    labels: Mapping[str, str]
    value: float


class Idleness:
    """Measures the share of time in which this thread was idle, since the last measurement."""

    def __init__(self) -> None:
        self._wall_s, self._busy_s = time.monotonic(), time.thread_time()

    def ratio(self) -> float:
        """Returns the share, from 0 to 1."""
        wall_s, busy_s = time.monotonic(), time.thread_time()
        passed_s = wall_s - self._wall_s
        worked_s = busy_s - self._busy_s
        self._wall_s, self._busy_s = wall_s, busy_s
        return min(1.0, max(0.0, 1 - worked_s / passed_s)) if passed_s > 0 else 1.0


def group_metrics(groups: GroupShards, now_ms: int, idle_ratio: float) -> Iterator[Metric]:
    """Yields all metrics of the group coordinator."""
    counts = Counter(kind_and_state(group, image) for group, image in groups.groups())
    by_kind: Counter[str] = Counter()
    for (kind, _), count in counts.items():
        by_kind[kind] += count
    for kind in (CLASSIC, CONSUMER, STREAMS):
        yield Metric("group-count", _GAUGE, "groups by protocol", {"protocol": kind}, by_kind[kind])
    for kind, states in STATES.items():
        in_state = {_STATE_LABELS.get(state, state.lower()): n for (each, state), n in counts.items() if each == kind}
        for state in states:
            yield Metric(
                f"{kind}-group-count", _GAUGE, f"{kind} groups by state", {"state": state}, in_state.get(state, 0)
            )
    for kind in (CONSUMER, STREAMS):
        meters = groups.rebalances(kind)
        name, what = f"{kind}-group-rebalance", f"increments of the epochs of {kind} groups"
        yield Metric(f"{name}-count", _COUNTER, f"{what} since the start", {}, sum(each.count for each in meters))
        rate = sum(each.per_second(now_ms) for each in meters)
        yield Metric(f"{name}-rate", _GAUGE, f"{what} per second, of the last minute", {}, rate)
    loads_ms = groups.load_times_ms
    for state, count in (("loading", 0), ("active", len(loads_ms)), ("failed", 0)):
        yield Metric("num-partitions", _GAUGE, "partitions of __consumer_offsets by state", {"state": state}, count)
    yield Metric("event-queue-size", _GAUGE, "events that wait to be handled", {}, 0)
    load_help = "milliseconds that it took to load a partition"
    yield Metric("partition-load-time-max", _GAUGE, load_help, {}, max(loads_ms, default=0))
    yield Metric("partition-load-time-avg", _GAUGE, load_help, {}, sum(loads_ms) / max(1, len(loads_ms)))
    for which in ("min", "avg"):
        yield Metric(f"thread-idle-ratio-{which}", _GAUGE, "share of time without work", {}, idle_ratio)


def cleaner_metrics(cleaner: LogCleaner) -> Iterator[Metric]:
    """What compaction could not read: Kafka counts partitions, which here are few, as a batch stops only its readers."""
    partitions, batches = cleaner.uncleanable_logs, cleaner.unreadable_batches
    yield Metric("uncleanable-partitions-count", _GAUGE, "partitions that are no longer compacted", {}, partitions)
    yield Metric("unreadable-batches-count", _GAUGE, "batches that compaction can't read and keeps", {}, batches)


def exposition(metrics: Iterable[Metric], prefix: str = _PREFIX) -> str:
    """Formats the metrics for Prometheus."""
    lines: list[str] = []
    told: set[str] = set()
    for metric in metrics:
        name = prefix + metric.name.replace("-", "_")
        if name not in told:
            told.add(name)
            lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
        labels = ",".join(f'{key}="{value}"' for key, value in metric.labels.items())
        lines.append(f"{name}{{{labels}}} {metric.value:.15g}" if labels else f"{name} {metric.value:.15g}")
    return "\n".join(lines) + "\n"
