"""The processing thread: poll, process, commit, and do what the group says.

1. Nothing here waits longer than ``poll.ms`` but a commit, which waits for acknowledgements. Heartbeats go on without this
   thread; they tell the group when it has not polled for ``max.poll.interval.ms``.
2. Before a task goes away its work is committed, unless the membership was lost: then others may run it already, and what
   it has not sent yet is thrown away.
3. A record that can't be handled ends the application, after everything before it was committed, so that the next start
   begins at that very record. Where results may have got lost with it, nothing more is committed: they are made again.
4. A store that turns out to be damaged is wiped and restored; its task, or where all are one transaction all of them, start
   over from what is committed. For a global store the thread itself starts over. Any other trouble with state ends the
   application, and nothing more is committed.
5. Results that could not be written while the cluster was away are made again: the tasks start over from what is committed.
6. Exactly once, all running tasks are committed together, and what a failing record's transaction holds is undone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.interface import GroupMember, Network
from streamsrt.client.values import LATEST
from streamsrt.errors import (
    BrokerError,
    MissingTopicError,
    StoreCorruptedError,
    StreamsError,
    UserError,
)
from streamsrt.membership.statuses import ADVICE, status_text
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    EndpointsChanged,
    EpochChanged,
    HeartbeatRecovered,
    HeartbeatTrouble,
    Leave,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    RequestShutdown,
    SetTaskOffsets,
    SourceTopicsMissing,
    Status,
    StatusChanged,
    StatusCode,
    Tasks,
    TasksLost,
)
from streamsrt.queries.desk import QueryDesk
from streamsrt.queries.routing import Routing
from streamsrt.runtime.commit import Committing
from streamsrt.runtime.drop_log import DropLog, Drops
from streamsrt.runtime.failures import commits_at_the_end
from streamsrt.runtime.health import where_is
from streamsrt.runtime.lifecycle import GroupMembershipOperation, OnFailure, Response
from streamsrt.runtime.meter import ThreadMeter
from streamsrt.runtime.tracing import OnWork, no_spans
from streamsrt.runtime.values import MemoryUse, Progress, RestoreProgress, State, TaskProgress
from streamsrt.tasks.changelog_work import StepMeter
from streamsrt.tasks.damage import damaged_store
from streamsrt.tasks.owned_task import OwnedTask
from streamsrt.tasks.task_manager import TaskManager
from streamsrt.tasks.task_offsets import TaskOffsets
from streamsrt.tasks.treatments import Treatment, treatment_of

logger = logging.getLogger(__name__)

RECORDS_PER_TASK_AND_POLL = 20_000
FIRST_RECORDS_PER_TASK_AND_POLL = 1_000
"""Where turns are limited in time, until it is known how long a record takes."""
_LEAVE_TIMEOUT_MS = 15_000
_QUIET_TIMEOUT_S = 5.0
_QUIET_INTERVAL_MS = 100
_NO_TASKS_MS = 15_000
_EPOCH_POLL_S = 0.05
_EPOCH_ATTEMPTS = 100
_PUBLISH_INTERVAL_MS = 100
_RESTORE_LOG_INTERVAL_MS = 10_000
_MEMORY_INTERVAL_MS = 1_000
_OFFSETS_INTERVAL_MS = 500
"""How often the membership hears how far the tasks' state is; it decides when the group is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What the loop takes from the configuration; times in milliseconds.

    ``turn_max_ms``: how long one turn of the loop may process, about, so that commits are in time; 0: as long as it takes.
    """

    commit_interval_ms: int
    poll_ms: int
    linger_ms: int
    purge_interval_ms: int
    turn_max_ms: int = 0


class StreamThread:
    """Runs the tasks of one member until it is told to stop. ``now_ms`` is a clock that never goes back."""

    def __init__(
        self,
        settings: LoopSettings,
        network: Network,
        member: GroupMember,
        manager: TaskManager,
        committer: Committing,
        *,
        flush_outputs: Callable[[], None],
        now_ms: Callable[[], int],
        on_state: Callable[[State], None],
        on_failure: OnFailure = lambda error: Response.SHUTDOWN_CLIENT,
        desk: QueryDesk | None = None,
        routing: Routing | None = None,
        is_static: bool = False,
        memory: Callable[[], MemoryUse] = MemoryUse,
        blocking: Blocking = THREADS,
        check_version: Callable[[], None] = lambda: None,
    ) -> None:
        """``check_version`` raises where other members run another version of the topology; asked whenever it has joined."""
        self._blocking = blocking
        self._check_version = check_version
        self._look_at_memory = memory
        self._memory = MemoryUse()
        self._memory_at_ms = 0
        self._desk = desk or QueryDesk()
        self._routing = routing
        self._is_static = is_static
        self.meter = ThreadMeter()
        self.on_work: OnWork = no_spans
        self.on_undone: Callable[[], None] = lambda: None
        """Called when it failed and what was not committed is dropped."""
        self._thread_id: int | None = None
        self._settings = settings
        self._network = network
        self._member = member
        self._manager = manager
        self._committer = committer
        self._flush_outputs = flush_outputs
        self._now_ms = now_ms
        self._on_state = on_state
        self._on_failure = on_failure
        self.response: Response | None = None
        """What is to become of it since it failed."""
        self.is_paused = False
        self.leaving = GroupMembershipOperation.DEFAULT
        self.was_shut_down = False
        """Another member asked the whole application to end."""
        self._wanted: Tasks | None = None
        self._assigned_at_ms = 0
        self._stopping = False
        self._leaving_since_ms: int | None = None
        self._ended = False
        self._failure: StreamsError | None = None
        self._committed_at_ms = now_ms()
        self._purged_at_ms = now_ms()
        self._sent_at_ms = now_ms()
        self._processed = 0
        self._limit_records = FIRST_RECORDS_PER_TASK_AND_POLL if settings.turn_max_ms else RECORDS_PER_TASK_AND_POLL
        self._advanced = False
        self._statuses: tuple[str, ...] = ()
        self._trouble: tuple[str, ...] = ()
        self._quiet_checked_at_ms = 0
        self._published_at_ms = 0
        self._restore_logged_at_ms = now_ms()
        self._offsets_told_at_ms = 0
        self._offsets_told: TaskOffsets | None = None
        self.progress = Progress()
        self._drops = DropLog()
        manager.on_close = self._tell_last_drops

    # ------------------------------------------------------------------------------------------------------------- loop

    def stop(self, *, wake: bool = True) -> None:
        """Asks the loop to commit, leave the group and end. May be called from any thread.

        A signal handler must not ``wake``: it may interrupt the very code that holds the lock. The loop looks anyway when
        ``poll.ms`` are over.
        """
        self._stopping = True
        if wake:
            self._network.wake()

    def run(self, until: Callable[[StreamThread], bool] | None = None) -> None:
        """Runs until :meth:`stop`, until ``until`` holds, or until something fails; what failed is raised."""
        self._thread_id = threading.get_ident()
        try:
            while not self._ended:
                self._turn()
                if until is not None and not self._stopping and until(self):
                    self._stopping = True
        except StreamsError as error:
            self._end_after_failure(error)
            raise
        finally:
            self._manager.close_all()
            self._manager.end()
            self._publish(self._published_at_ms + _PUBLISH_INTERVAL_MS)
            self._warn(self._drops.rest(_refused(self._manager)))
            self._desk.close()
        if self._failure is not None:
            raise self._failure

    def _turn(self) -> None:
        now_ms = self._now_ms()
        self.meter.sample(time.monotonic_ns())
        self._poll(now_ms)
        for event in self._member.events():
            self._handle(event)
        if self._stopping and self._leaving_since_ms is None and not self._ended:
            logger.info("committing and leaving the group")
            self._on_state(State.PENDING_SHUTDOWN)
            self._leaving_since_ms = now_ms
            self._leave()
        if self._leaving_since_ms is not None and now_ms - self._leaving_since_ms > _LEAVE_TIMEOUT_MS:
            logger.warning("the group coordinator did not confirm that this member left; it will notice by itself")
            self._commit_all()
            self._ended = True
        if self._ended:
            return
        if self._manager.open_waiting(now_ms):
            self._member.tell(ReportOwned(self._manager.open_tasks()))
        if self._committer.prepare_start(now_ms):
            self._manager.start_tasks(now_ms, self._member.member_id, self._member.member_epoch)
        self._manager.follow_sources(now_ms, self._member.member_id, self._member.member_epoch)
        try:
            self._process(now_ms)
        except StreamsError as error:
            self._treat(error, alone=not self._committer.is_atomic)
        self._maybe_commit(now_ms)
        self._manager.clean_up(now_ms)
        self._tell_offsets(now_ms)
        self._publish(now_ms)

    def _leave(self) -> None:
        if self.leaving is GroupMembershipOperation.REMAIN_IN_GROUP and not self._is_static:
            # Nothing is told: the group keeps its tasks for it as long as its session.
            self._commit_before_they_go(self._manager.running())
            self._ended = True
            return
        # A static member comes back: its tasks wait for it as long as its session.
        remain = self._failure is None and self.leaving is not GroupMembershipOperation.LEAVE_GROUP
        self._member.tell(Leave(remain=remain))

    def _poll(self, now_ms: int) -> None:
        # Input alone is no reason to hurry: a task may wait for its other partitions (max.task.idle.ms).
        if not self._advanced or not self._manager.has_work():
            began_ns = time.monotonic_ns()
            with self._desk.idle:
                self._network.wait(self._patience_ms(now_ms) / 1000)
            self.meter.blocked_ns += time.monotonic_ns() - began_ns
        else:
            self._desk.serve()
        began_ns = time.monotonic_ns()
        for report in self._manager.restoring.reports():
            self._manager.restored(report)
            self._desk.serve()
        arrived = self._network.fetcher.poll(0.0)
        for fetched in arrived:
            self._manager.add_input(fetched)
        self.meter.poll.add(began_ns, time.monotonic_ns(), len(arrived))

    def _patience_ms(self, now_ms: int) -> int:
        until_commit = self._committed_at_ms + self._settings.commit_interval_ms - now_ms
        return max(0, min(self._settings.poll_ms, until_commit))

    def _process(self, now_ms: int) -> None:
        if self.is_paused:
            self._advanced = False
            return
        began_ns = time.monotonic_ns()
        processed = self._manager.process(self._limit_records, now_ms)
        ended_ns = time.monotonic_ns()
        if processed:
            self.meter.process.add(began_ns, ended_ns, processed)
            self.on_work("process", began_ns, ended_ns, processed)
        if self._settings.turn_max_ms and processed:
            self._limit_records = _next_limit(self._limit_records, self._now_ms() - now_ms, self._settings.turn_max_ms)
        punctuated = sum(owned.task.punctuate(now_ms) for owned in self._manager.running())
        if punctuated:
            self.meter.punctuate.add(ended_ns, time.monotonic_ns(), punctuated)
        self._processed += processed
        self._advanced = processed > 0
        # What was processed must not wait for more records of the same partition longer than the linger time.
        if now_ms - self._sent_at_ms >= self._settings.linger_ms:
            self._sent_at_ms = now_ms
            self._flush_outputs()

    # ------------------------------------------------------------------------------------------------------------ commit

    def _maybe_commit(self, now_ms: int) -> None:
        requested = any(owned.task.commit_requested for owned in self._manager.running())
        if not requested and now_ms - self._committed_at_ms < self._settings.commit_interval_ms:
            return
        self._commit_all()
        self._purge_repartition_topics(now_ms)

    def _commit_all(self) -> None:
        self._commit(self._manager.running())
        self._committed_at_ms = self._now_ms()

    def _commit(self, tasks: list[OwnedTask]) -> None:
        together = self._manager.running() if tasks and self._committer.is_atomic else tasks
        began_ns = time.monotonic_ns()
        try:
            self._committer.commit(together, self._member.member_id, self._member.member_epoch)
        except StreamsError as error:
            self._treat(error, alone=False)
        ended_ns = time.monotonic_ns()
        self.meter.commit.add(began_ns, ended_ns, 1)
        self.on_work("commit", began_ns, ended_ns, 1)

    def _treat(self, error: StreamsError, *, alone: bool) -> None:
        match treatment_of(error):
            case Treatment.START_OVER:
                self._start_over(error)
            case Treatment.RESTORE:
                self._recover(error, alone=alone)
            case _:
                raise error

    def _start_over(self, error: StreamsError) -> None:
        logger.warning("results could not be written, the tasks start over from what is committed: %s", error)
        with self._manager.moves.because(
            f"results could not be written, it starts over from what is committed: {error}"
        ):
            self._manager.restart_all()
        self._committer.forget()

    def _recover(self, error: StreamsError, *, alone: bool) -> None:
        """Lets a damaged store be restored, and its task do again what is not committed. ``alone``: only that task does."""
        found = damaged_store(self._manager, error) if isinstance(error, StoreCorruptedError) else None
        if found is None:
            raise error
        owned, store = found
        logger.warning("task %s starts over, its store %s is wiped and restored: %s", owned, store, error)
        with self._manager.moves.because(f"store {store} of task {owned} is damaged: wiped and restored"):
            if alone:
                self._manager.restart(owned, owned.role, wipe=[store])
            else:
                self._manager.restart_all({owned.key: [store]})
                self._committer.forget()

    def _purge_repartition_topics(self, now_ms: int) -> None:
        """Deletes what was read from repartition topics and committed: nobody reads it again."""
        if now_ms - self._purged_at_ms < self._settings.purge_interval_ms:
            return
        self._purged_at_ms = now_ms
        done = self._committer.committed_records_end
        before = {
            place: done[place]
            for owned in self._manager.running()
            for topic in owned.subtopology.repartition_source_topics
            for place in owned.inputs
            if place[0].endswith(f"-{topic.name}") and place in done
        }
        if not before:
            return
        try:
            self._network.admin.delete_records(before, timeout_s=_QUIET_TIMEOUT_S)
        except BrokerError as error:
            logger.warning("repartition topics could not be purged, trying again later: %s", error)

    # ------------------------------------------------------------------------------------------------------------ events

    def _handle(self, event: object) -> None:
        match event:
            case AssignmentChanged(tasks, epoch, why):
                with self._manager.moves.assigned(epoch, why), self.meter.timing(self.meter.assigned):
                    self._assign(tasks)
            case TasksLost(reason):
                lost = f"this member lost its membership: {reason}"
                with self._manager.moves.because(lost), self.meter.timing(self.meter.lost):
                    self._manager.close_all()
                self._manager.moves.lost()
                self._committer.forget()
                self._wanted = None
                self._on_state(State.REBALANCING)
                self._member.tell(ReportOwned(NOTHING))
            case ReleaseTasks():
                self._release()
            case EpochChanged():
                self._manager.look_for_sources()
            case StatusChanged(statuses):
                self._take_statuses(statuses)
            case SourceTopicsMissing(detail):
                self._failure = MissingTopicError(
                    f"the application can't run without its source topics: {detail} Create them (streamsrt topics create "
                    "NAME --partitions N) and start it again."
                )
                self._stopping = True
            case MembershipFailed(error):
                self._failure = error
                self._ended = True
            case LeftGroup():
                self._ended = True
            case _:
                self._take_note(event)

    def _take_note(self, event: object) -> None:
        match event:
            case EndpointsChanged(partitions):
                if self._routing is not None:
                    self._routing.update(partitions)
            case HeartbeatTrouble(reason):
                self._trouble = (
                    f"the group coordinator does not answer: {reason}. It is asked again, and the tasks go on as long as "
                    "their session lasts: see that the broker runs",
                )
            case HeartbeatRecovered():
                self._trouble = ()
            case _:
                pass

    def _take_statuses(self, statuses: tuple[Status, ...]) -> None:
        self._statuses = tuple(map(status_text, statuses))
        for status in statuses:
            if status.code is StatusCode.SHUTDOWN_APPLICATION:
                self._stopping = self.was_shut_down = True
            elif status.code is StatusCode.INCORRECTLY_PARTITIONED_TOPICS:
                self._failure = UserError(
                    f"the topics of the application don't fit together: {status.detail} {ADVICE[status.code]}."
                )
                self._stopping = True

    def _assign(self, tasks: Tasks) -> None:
        self._on_state(State.REBALANCING)
        if self._wanted is None:
            self._look_for_other_versions()
        self._wanted = tasks
        self._assigned_at_ms = self._now_ms()
        opened = self._manager.assign(tasks, self._revoke)
        self._committer.keep_only(
            {place for owned in self._manager if owned.is_active for place in owned.task.source_partitions}
        )
        self._member.tell(ReportOwned(opened))

    def _look_for_other_versions(self) -> None:
        """It has just joined, and no task is open. Raises TopologyMismatchError."""
        try:
            self._check_version()
        except BrokerError as error:
            logger.warning("whether the group's other members run this version of the topology is not known: %s", error)

    def _revoke(self, leaving: list[OwnedTask]) -> None:
        with self.meter.timing(self.meter.revoked):
            self._commit_before_they_go(leaving)

    def _commit_before_they_go(self, leaving: list[OwnedTask]) -> None:
        """Commits, and insists: what is not committed now is done a second time by the next owner."""
        self._commit(leaving)
        for _ in range(_EPOCH_ATTEMPTS):
            if not self._committer.is_stale or self._member.member_epoch < 0:
                break
            self._blocking.pause(_EPOCH_POLL_S)
            self._committer.commit_pending(self._member.member_id, self._member.member_epoch)

    def _release(self) -> None:
        self._commit_before_they_go(self._manager.running())
        with self._manager.moves.because("this member leaves the group"):
            self._manager.close_all()
        self._committer.forget()
        self._member.tell(ReportOwned(NOTHING))

    def _end_after_failure(self, error: StreamsError) -> None:
        """Commits what was done before, where that is known, and leaves."""
        consumer = self._manager.global_consumer
        if consumer is not None and consumer.gives_up(error):
            logger.warning("a new stream thread fills the store: %s", error)
            self.response = Response.REPLACE_THREAD
        else:
            self.response = self._on_failure(error)
        if self.response is not Response.REPLACE_THREAD:
            self._on_state(State.PENDING_ERROR)
        try:
            if commits_at_the_end(error, is_atomic=self._committer.is_atomic):
                self._committer.commit(self._manager.running(), self._member.member_id, self._member.member_epoch)
            else:
                self._committer.forget()
                self.on_undone()
        except StreamsError as second:
            logger.warning("what was done before could not be committed and will be done again: %s", second)
        with self._manager.moves.because(f"it failed with {type(error).__name__}: {error}"):
            self._manager.close_all()
        self._member.tell(RequestShutdown() if self.response is Response.SHUTDOWN_APPLICATION else Leave())
        self._member.tell(ReportOwned(NOTHING))
        self._member.join(_QUIET_TIMEOUT_S)

    def _tell_offsets(self, now_ms: int) -> None:
        if now_ms - self._offsets_told_at_ms < _OFFSETS_INTERVAL_MS:
            return
        self._offsets_told_at_ms = now_ms
        found = self._manager.task_offsets()
        if found != self._offsets_told:
            self._offsets_told = found
            self._member.tell(SetTaskOffsets(found.offsets, found.end_offsets))

    # ---------------------------------------------------------------------------------------------------------- progress

    def _publish(self, now_ms: int) -> None:
        settled = self._wanted is not None and self._manager.is_settled and self._member.member_epoch > 0
        if settled and not self._stopping and not self._ended:
            self._on_state(State.RUNNING)
        if now_ms - self._published_at_ms < _PUBLISH_INTERVAL_MS:
            return
        self._published_at_ms = now_ms
        if now_ms - self._memory_at_ms >= _MEMORY_INTERVAL_MS:
            self._memory_at_ms = now_ms
            self._memory = self._look_at_memory()
        self.progress = Progress(
            state=State.RUNNING if settled else State.REBALANCING,
            tasks=tuple(_task_progress(owned, now_ms) for owned in self._manager),
            processed_records=self._processed,
            restored_records=self._manager.restored_records,
            commits=self._committer.commits,
            counters=self._manager.counters(),
            statuses=self._statuses + self._trouble + self._manager.waiting(),
            member_id=self._member.member_id,
            member_epoch=self._member.member_epoch,
            opened_tasks=self._manager.opened,
            closed_tasks=self._manager.closed,
            memory=self._memory,
            moves=self._manager.moves.latest(),
        )
        self._log_restore(now_ms)
        self._warn(self._drops.lines([*map(_drops_of, self._manager), _refused(self._manager)], now_ms))

    def _tell_last_drops(self, owned: OwnedTask) -> None:
        self._warn(self._drops.rest(_drops_of(owned)))

    def _warn(self, lines: list[str]) -> None:
        for line in lines:
            logger.warning("%s", line)

    def _log_restore(self, now_ms: int) -> None:
        restoring = [task for task in self.progress.tasks if task.phase == "restoring"]
        if not restoring:
            self._restore_logged_at_ms = now_ms
        elif now_ms - self._restore_logged_at_ms >= _RESTORE_LOG_INTERVAL_MS:
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

    def doing(self) -> str:
        """What it does at this moment, for whoever wonders why it does not come around. For any thread."""
        with suppress(RuntimeError):
            # The tasks may change while another thread looks.
            places = [where for owned in list(self._manager) if (where := owned.task.processing)]
            line = where_is(self._thread_id)
            return " ".join(([f"it processes {places[0]}"] if places else []) + ([f"at {line}"] if line else []))
        return ""

    def now_ms(self) -> int:
        """What its clock shows."""
        return self._now_ms()

    @property
    def restore_meter(self) -> StepMeter:
        """What restoring took. For any thread."""
        return self._manager.restoring.meter

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def processed_records(self) -> int:
        return self._processed

    def is_quiet(self) -> bool:
        """Whether everything that lies in the inputs of this member's tasks is processed and committed.

        A member without tasks is quiet when it has had none for a while, and the group says nothing of why: at the start of
        a group tasks come late.
        """
        if self._wanted is None or not self._manager.is_settled or self._manager.has_work():
            return False
        now_ms = self._now_ms()
        if not self._wanted and (self._statuses or now_ms - self._assigned_at_ms < _NO_TASKS_MS):
            return False
        if now_ms - self._quiet_checked_at_ms < _QUIET_INTERVAL_MS:
            return False
        self._quiet_checked_at_ms = now_ms
        # What was fetched is used up now and then; only at the end of the logs is it worth a commit to find out.
        if any(owned.lag_records for owned in self._manager.running()):
            return False
        self._commit_all()
        if self._committer.is_pending or not self._manager.is_settled:
            return False
        positions = self._manager.positions()
        try:
            ends = self._network.admin.list_offsets(dict.fromkeys(positions, LATEST), timeout_s=_QUIET_TIMEOUT_S)
        except BrokerError:
            return False
        return all(positions[place] >= end.offset for place, end in ends.items())


def _next_limit(limit_records: int, took_ms: int, turn_max_ms: int) -> int:
    """How many records the next turn may process, when this one took so long."""
    if took_ms > turn_max_ms:
        return max(1, limit_records * turn_max_ms // took_ms)
    return min(RECORDS_PER_TASK_AND_POLL, limit_records * 2) if took_ms * 2 < turn_max_ms else limit_records


def _drops_of(owned: OwnedTask) -> Drops:
    inputs = ", ".join(f"{topic}-{partition}" for topic, partition in owned.task.source_partitions)
    return Drops(f"task {owned}", f" of {inputs}", owned.task.counters(), owned.task.last_skipped)


def _refused(manager: TaskManager) -> Drops:
    count, last = manager.refused()
    return Drops("the producer", "", {"refused": count}, {"refused": last})


def _task_progress(owned: OwnedTask, now_ms: int) -> TaskProgress:
    return TaskProgress(
        task_id=str(owned),
        role=owned.role,
        phase=owned.phase.value,
        lag_records=owned.lag_records,
        stream_time_ms=owned.task.stream_time_ms,
        counters=owned.task.counters(),
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
    )
