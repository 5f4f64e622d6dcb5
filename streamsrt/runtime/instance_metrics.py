"""All metrics of one instance, computed on request.

1. Tasks and stores belong to the processing thread: their metrics are read there, between two batches and for a few
   tasks at a time, so that no batch waits long. If that takes too long, they are left out of the response.
2. The rest is read on the requesting thread.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial

from streamsrt.membership.values import Task as TaskKey
from streamsrt.queries.errors import InvalidStateStoreError
from streamsrt.queries.local import LocalQueries
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.runtime.metrics import (
    Metric,
    MetricList,
    memory_metrics,
    thread_metrics,
    thread_state_metrics,
    updater_metrics,
)
from streamsrt.runtime.store_metrics import global_store_metrics, store_metrics
from streamsrt.runtime.task_metrics import shares_of_time, task_metrics, user_metrics
from streamsrt.runtime.values import State
from streamsrt.sensors import Rates
from streamsrt.tasks.global_state import GlobalConsumer
from streamsrt.tasks.manager.owned_task import OwnedTask

_TASKS_AT_ONCE = 8
_TIMEOUT_S = 2.0


class InstanceMetrics:
    """Computes metrics, and keeps the counts that rates need from one request to the next."""

    def __init__(self) -> None:
        self._rates = Rates(time.monotonic_ns())

    def of_thread(
        self,
        tags: Mapping[str, str],
        loop: StreamThread,
        queries: LocalQueries | None,
        *,
        state: State,
        process_id: str,
    ) -> list[Metric]:
        """Returns the metrics of the processing thread with its tasks and stores. ``state``: of the application with this
        one thread."""
        board = MetricList(self._rates, time.monotonic_ns(), loop.now_ms())
        progress = loop.progress
        thread_metrics(board, tags, progress, loop.meter)
        thread_state_metrics(board, tags, process_id, progress.thread_state(state))
        updater_metrics(board, tags, progress, loop.restore_meter)
        board.found += memory_metrics(tags, progress.memory)
        if queries is not None:
            with suppress(InvalidStateStoreError):
                self._of_tasks(board, tags, queries)
        self._rates.forget(unless=board.requested)
        return board.found

    def _of_tasks(self, board: MetricList, tags: Mapping[str, str], queries: LocalQueries) -> None:
        tasks = queries.run_on_tasks(list, _TIMEOUT_S)
        shares_of_time(board, tags, tasks)
        for at in range(0, len(tasks), _TASKS_AT_ONCE):
            queries.run_on_tasks(
                partial(_read, board, tags, {owned.key for owned in tasks[at : at + _TASKS_AT_ONCE]}), _TIMEOUT_S
            )
        queries.run_on_globals(partial(_read_globals, board, tags), _TIMEOUT_S)


def _read_globals(board: MetricList, tags: Mapping[str, str], consumer: GlobalConsumer) -> None:
    global_store_metrics(board, tags, consumer)
    for task, metrics in consumer.state.user_metrics().items():
        user_metrics(board, {**tags, "task-id": task}, metrics)


def _read(board: MetricList, tags: Mapping[str, str], wanted: Collection[TaskKey], tasks: Iterable[OwnedTask]) -> None:
    for owned in tasks:
        if owned.key in wanted:
            task_metrics(board, tags, owned)
            store_metrics(board, tags, owned)
