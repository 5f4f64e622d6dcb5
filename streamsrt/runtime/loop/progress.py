"""What a stream thread publishes about itself: a snapshot for any thread, and log lines about restoring and drops.

A snapshot is made completely before it replaces the previous one: no reader ever sees half of one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from streamsrt.client.interface import GroupMember
from streamsrt.membership.values import Task as TaskKey
from streamsrt.runtime.commit import Committing
from streamsrt.runtime.drop_log import DropLog, Drops, has_drops
from streamsrt.runtime.old_windows import OldWindows
from streamsrt.runtime.values import MemoryUse, Progress, RestoreProgress, State, TaskProgress
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.task_manager import TaskManager

logger = logging.getLogger(__name__)

RESTORE_LOG_INTERVAL_MS = 10_000


class _Seen(NamedTuple):
    """What was seen of a task. It stays true as long as the task rests and has not woken since."""

    owned: OwnedTask
    wakes: int
    counters: Mapping[str, int]
    progress: TaskProgress
    has_drops: bool


class ProgressReporter:
    """Makes the snapshots. Belongs to the processing thread; any thread may read ``progress``."""

    def __init__(
        self,
        manager: TaskManager,
        committer: Committing,
        member: GroupMember,
        memory: Callable[[], MemoryUse],
        now_ms: int,
    ) -> None:
        self._manager = manager
        self._committer = committer
        self._member = member
        self._memory_use = memory
        self._memory = MemoryUse()
        self._seen: dict[TaskKey, _Seen] = {}
        self._by_subtopology: dict[str, Counter[str]] = {}
        """Counters, which change only where something of a task does."""
        self._drops = DropLog()
        self._old_windows = OldWindows()
        self._restore_logged_at_ms = now_ms
        self.processed_records = 0
        self.progress = Progress()

    def measure_memory(self) -> None:
        """Measures the memory and disk usage of the state; this has to visit every store."""
        self._memory = self._memory_use()

    def publish(self, state: State, statuses: tuple[str, ...], now_ms: int, *, is_stopping: bool = False) -> None:
        """Creates a new snapshot, and logs what is due."""
        before = self._seen
        seen = self._seen = {owned.key: self._look_at(owned, now_ms) for owned in self._manager}
        tasks = tuple(each.progress for each in seen.values())
        left = self.progress.left_records
        if is_stopping and left is None:
            # The last snapshot may be of before the last records. Later, when tasks are closed, they show no lag.
            left = (replace(self.progress, tasks=tasks) if tasks else self.progress).known_lag_records
        stirred = [(each.owned, each.counters) for key, each in seen.items() if before.get(key) is not each]
        if stirred or len(before) != len(seen) or not seen:
            by_subtopology = self._manager.subtopology_counters((key[0], each.counters) for key, each in seen.items())
        else:
            by_subtopology = self._by_subtopology
        self._by_subtopology = by_subtopology
        self.progress = Progress(
            state=state,
            tasks=tasks,
            processed_records=self.processed_records,
            restored_records=self._manager.restored_records,
            commits=self._committer.commits,
            counters=self._manager.counters(by_subtopology),
            subtopology_counters=by_subtopology,
            statuses=statuses,
            member_id=self._member.member_id,
            member_epoch=self._member.member_epoch,
            opened_tasks=self._manager.opened,
            closed_tasks=self._manager.closed,
            memory=self._memory,
            assignment_changes=self._manager.assignment_changes.latest(),
            left_records=left,
        )
        self._log_restore(now_ms)
        drops = [_drops_of(each.owned, each.counters) for each in seen.values() if each.has_drops]
        _warn(self._drops.lines([*drops, _refused(self._manager)], now_ms))
        _warn(self._old_windows.lines(stirred, now_ms))

    def _look_at(self, owned: OwnedTask, now_ms: int) -> _Seen:
        last = self._seen.get(owned.key)
        if last is not None and last.owned is owned and last.wakes == owned.wakes and self._manager.rests(owned):
            return last
        counters = owned.task.counters()
        # Whatever is seen of a task that is awake may change without another wake.
        wakes = owned.wakes if self._manager.rests(owned) else -1
        return _Seen(owned, wakes, counters, _task_progress(owned, counters, now_ms), has_drops(counters))

    def log_last_drops(self, owned: OwnedTask) -> None:
        """Logs a task's drops that are not logged yet. Called when it closes."""
        _warn(self._drops.rest(_drops_of(owned, owned.task.counters())))

    def log_refused(self) -> None:
        """Logs refused records that are not logged yet."""
        _warn(self._drops.rest(_refused(self._manager)))

    def _log_restore(self, now_ms: int) -> None:
        restoring = [task for task in self.progress.tasks if task.phase == "restoring"]
        if not restoring:
            self._restore_logged_at_ms = now_ms
        elif now_ms - self._restore_logged_at_ms >= RESTORE_LOG_INTERVAL_MS:
            self._restore_logged_at_ms = now_ms
            stores = [each for task in restoring for each in task.restoring]
            eta_s = self.progress.restore_eta_s
            logger.info(
                "restoring %d tasks: %d records (%d MB) done, %d left%s",
                len(restoring),
                sum(each.restored_records for each in stores),
                sum(each.restored_bytes for each in stores) >> 20,
                sum(each.remaining_records for each in stores),
                "" if eta_s is None else f", about {eta_s:.0f} s",
            )


def _warn(lines: list[str]) -> None:
    for line in lines:
        logger.warning("%s", line)


def _drops_of(owned: OwnedTask, counters: Mapping[str, int]) -> Drops:
    inputs = ", ".join(f"{topic}-{partition}" for topic, partition in owned.task.source_partitions)
    return Drops(f"task {owned}", f" of {inputs}", counters, owned.task.last_skipped)


def _refused(manager: TaskManager) -> Drops:
    return Drops("the producer", "", *manager.refused())


def _task_progress(owned: OwnedTask, counters: Mapping[str, int], now_ms: int) -> TaskProgress:
    return TaskProgress(
        task_id=str(owned),
        role=owned.role,
        phase=owned.phase.value,
        lag_records=owned.lag_records,
        lag_is_known=owned.lag_is_known,
        stream_time_ms=owned.task.stream_time_ms,
        counters=counters,
        restoring=tuple(
            RestoreProgress(
                each.store,
                each.restored_records,
                each.restored_bytes,
                each.remaining_records,
                each.position,
                each.offsets_per_second(now_ms),
                each.eta_s(now_ms),
            )
            for each in owned.changelogs.values()
        ),
        pending_calls=owned.task.pending_calls(),
    )
