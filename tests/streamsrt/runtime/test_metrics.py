"""What is counted, beside the page that says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamsrt.queries.values import StoreSize
from streamsrt.runtime.meter import ThreadMeter
from streamsrt.runtime.metrics import (
    client_metrics,
    memory_metrics,
    store_metrics,
    task_metrics,
    thread_metrics,
    updater_metrics,
)
from streamsrt.runtime.values import MemoryUse, Progress, RestoreProgress, State, TaskProgress

PAGE = Path(__file__).resolve().parents[3] / "examples" / "metrics.md"


def test_the_page_names_every_metric_and_no_other() -> None:
    restoring = RestoreProgress("counts", 10, 100, 5, 10)
    task = TaskProgress("a_0", "active", "restoring", 3, 7, {"processed": 4, "failed_processing": 2}, (restoring,))
    progress = Progress(tasks=(task,))
    found = [
        *client_metrics({}, State.RUNNING, alive=1, failed=0),
        *thread_metrics({}, progress, ThreadMeter()),
        *task_metrics({}, progress.tasks),
        *updater_metrics({}, progress),
        *store_metrics({}, [StoreSize("a_0", "counts", 1, 2, 3)]),
        *memory_metrics({}, MemoryUse()),
    ]
    rows = re.findall(r"^\| `([a-z-]+)` \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {(group, name) for group, names in rows for name in re.findall(r"`([a-z-]+)`", names)}
    assert {(metric.group, metric.name) for metric in found} == told


def test_averages_are_of_a_turn() -> None:
    meter = ThreadMeter()
    meter.process.add(0, 2_000_000, 100)
    meter.process.add(0, 4_000_000, 300)
    values = {metric.name: metric.value for metric in thread_metrics({}, Progress(), meter)}
    assert values["process-records-avg"] == 200
    assert values["process-latency-avg"] == pytest.approx(3.0)
    assert values["process-latency-max"] == pytest.approx(4.0)
    assert values["poll-records-avg"] == 0


def test_dropped_records_are_counted_by_their_reason() -> None:
    counters = {"dropped": 10, "dropped_null": 2, "dropped_late": 4, "dropped_timestamp": 1}
    task = TaskProgress("a_0", "active", "running", 0, 0, counters)
    found = {m.tags["reason"]: m.value for m in task_metrics({}, [task]) if m.name == "dropped-records-total"}
    assert found == {"null": 2, "late": 4, "timestamp": 1, "other": 3}
