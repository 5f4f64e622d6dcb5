"""The processing thread: poll, process, commit, and follow the group's assignment.

1. :mod:`streamsrt.runtime.loop.machine` decides what is done next and when; this module does it: it owns the tasks,
   waits, and calls the cluster.
2. Nothing here waits longer than ``poll.ms``, except a commit, which waits for acknowledgements; at a stop, no longer than
   ``STOP_TIMEOUT_S``. Heartbeats continue without this thread; they report to the group when this thread has not polled
   for ``max.poll.interval.ms``.
3. Before a task is closed its work is committed, unless the membership was lost: then others may run it already, and
   what it has not sent yet is discarded.
4. A record that can't be handled ends the application, after everything before it was committed, so that the next start
   begins at that record. If results may have been lost with it, nothing more is committed: they are computed again.
5. A damaged store is wiped and restored; its task, or all tasks if they share a transaction, restart from the last
   commit. For a global store, the thread itself restarts. Any other problem with state ends the application without a
   further commit.
6. Results that could not be written while the cluster was unreachable are computed again: the tasks restart from the
   last commit; at a stop, at the next start, and the stop fails with that.
7. With exactly once, all running tasks are committed together, and the transaction of a failing record is aborted.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

from streamsrt.client.absent_topics import absent_text
from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.interface import GroupMember, Network
from streamsrt.client.values import TopicPartition
from streamsrt.errors import BrokerError, ProcessingError, RecordError, StoreCorruptedError, StreamsError
from streamsrt.membership.values import NOTHING, Leave, ReportOwned, RequestShutdown, SetTaskOffsets, Tasks
from streamsrt.queries.gate import QueryGate
from streamsrt.queries.routing import Routing
from streamsrt.runtime.commit import Committing
from streamsrt.runtime.failures import REPEATED, NotCommittedError, commits_at_the_end
from streamsrt.runtime.health import where_is
from streamsrt.runtime.lifecycle import GroupMembershipOperation, OnFailure, Response
from streamsrt.runtime.loop.commit_parts import CommitTurns
from streamsrt.runtime.loop.ends_of_logs import RepartitionPurge, is_all_read
from streamsrt.runtime.loop.last_calls import LastCalls
from streamsrt.runtime.loop.machine import has_assignment, initial, may_be_drained, step
from streamsrt.runtime.loop.progress import ProgressReporter
from streamsrt.runtime.loop.report import report
from streamsrt.runtime.loop.values import (
    Action,
    Activity,
    AdvanceTasks,
    AnswerQueries,
    Assign,
    CheckVersion,
    CleanUp,
    CloseLostTasks,
    CommitAll,
    CommitBeforeClose,
    DrainChecked,
    InputTaken,
    IterationBegan,
    IterationEnded,
    LeaveGroup,
    Life,
    LoopEvent,
    LoopSettings,
    LoopState,
    MeasureMemory,
    Note,
    PollEnded,
    Processed,
    ProcessTasks,
    Publish,
    PurgeRepartitionTopics,
    RecheckSources,
    ReleaseAll,
    Released,
    ReportOffsets,
    SendOutputs,
    ShowState,
    StopRequested,
    UpdateRouting,
    Wait,
    Warn,
)
from streamsrt.runtime.meter import ThreadMeter
from streamsrt.runtime.tracing import OnWork, no_spans
from streamsrt.runtime.values import MemoryUse, Progress, State
from streamsrt.runtime.watchdog import stuck_text
from streamsrt.tasks.error_policy import CallsGivenUpError, ErrorAction, action_for
from streamsrt.tasks.manager.damage import damaged_store
from streamsrt.tasks.manager.owned_task import STARTING, OwnedTask, Phase
from streamsrt.tasks.manager.task_manager import TaskManager
from streamsrt.tasks.manager.task_offsets import TaskOffsets
from streamsrt.tasks.restore.changelog_work import StepMeter
from streamsrt.wording import error_text

logger = logging.getLogger(__name__)

_ADMIN_TIMEOUT_S = 5.0
_EPOCH_POLL_S = 0.05
_EPOCH_ATTEMPTS = 100
STOP_TIMEOUT_S = 20.0
"""Orchestrators kill after 30 s, by default."""


class StreamThread:
    """Runs the tasks of one member until it is stopped. ``now_ms`` is a clock that never goes back; ``clock_ahead_ms``: how
    far the clock that programs see is ahead of it."""

    def __init__(
        self,
        settings: LoopSettings,
        network: Network,
        member: GroupMember,
        manager: TaskManager,
        committer: Committing,
        *,
        flush_outputs: Callable[..., None],
        now_ms: Callable[[], int],
        clock_ahead_ms: Callable[[], int] = int,
        on_state: Callable[[State], None],
        on_failure: OnFailure = lambda error: Response.SHUTDOWN_CLIENT,
        gate: QueryGate | None = None,
        routing: Routing | None = None,
        memory: Callable[[], MemoryUse] = MemoryUse,
        blocking: Blocking = THREADS,
        check_version: Callable[[], object] = lambda: None,
    ) -> None:
        """``check_version`` raises if other members run another version of the topology; called after every join."""
        self._blocking = blocking
        self._check_version = check_version
        self._gate = gate or QueryGate()
        self._routing = routing
        self.meter = ThreadMeter()
        self.poll_limit_s = math.inf
        """After so long without an iteration, the group assigns the tasks to others."""
        self.on_work: OnWork = no_spans
        self.on_undone: Callable[[], None] = lambda: None
        """Called when it failed and what was not committed is dropped."""
        self.on_start_over: Callable[[], None] = lambda: None
        """Called when the tasks restart because results could not be written."""
        self._thread_id: int | None = None
        self._network, self._purge = network, RepartitionPurge(network)
        self._member = member
        self._manager = manager
        self._committer = committer
        self._flush_outputs = flush_outputs
        self._now_ms, self._clock_ahead_ms = now_ms, clock_ahead_ms
        self._on_state = on_state
        self._on_failure = on_failure
        self.response: Response | None = None
        """How the failure is handled; None before it fails."""
        self.is_paused = False
        self.leaving = GroupMembershipOperation.DEFAULT
        self.stop_requested = False
        self.is_stopped_by_program = False
        """Whether the program itself asked for the end."""
        self._state = initial(settings, now_ms())
        self._activity: Activity | None = None
        self._turns = CommitTurns(blocking)
        self._waiting: tuple[str, ...] = ()
        """Why tasks that are to be open are not, when it was published last."""
        self._iteration_ms = now_ms()
        """The time that tasks see during this iteration."""
        self._processed_now = 0
        self._reported_offsets: TaskOffsets | None = None
        self._reporter = ProgressReporter(manager, committer, member, memory, now_ms())
        manager.on_close = self._reporter.log_last_drops
        manager.while_calling = self._while_calling
        manager.on_stop_request = self._stop_by_program
        self._last_calls = LastCalls(now_ms)
        self._has_logged_advice = False
        self._has_started_over = False
        self._undone: StreamsError | None = None
        """Why processed records were not committed at the stop."""

    # ------------------------------------------------------------------------------------------------------------- loop

    def stop(self, *, wake: bool = True) -> None:
        """Asks the loop to commit, leave the group and end. May be called from any thread.

        A signal handler must not ``wake``: it may interrupt the very code that holds the lock. The loop
        checks the flag anyway, after ``poll.ms`` at the latest.
        """
        if not self.stop_requested:
            self._committer.give_up_after(STOP_TIMEOUT_S)
        self.stop_requested = True
        self._last_calls.limit()
        if wake:
            self._network.wake()

    def _stop_by_program(self) -> None:
        self.is_stopped_by_program = True
        self.stop(wake=False)

    def run(self, until: Callable[[StreamThread], bool] | None = None) -> None:
        """Runs until :meth:`stop` is called, ``until`` returns true, or something fails. Raises the failure."""
        self._thread_id = threading.get_ident()
        has_failed = True
        try:
            while not self._has_ended():
                self._iterate()
                if until is not None and not self._is_stopping() and until(self):
                    self.stop_requested = True
            has_failed = False
        except StreamsError as error:
            self._end_after_failure(error)
            raise
        finally:
            with ExitStack() as stack:
                stack.callback(self._gate.close)
                stack.callback(self._reporter.log_refused)
                stack.callback(self._publish)
                stack.callback(self._end_tasks, has_failed)
        failure = self._state.failure or self._undone
        if failure is not None:
            raise failure

    def _has_ended(self) -> bool:
        return self._state.life is Life.ENDED

    def _is_stopping(self) -> bool:
        return self.stop_requested or self._state.life is not Life.RUNNING

    def _iterate(self) -> None:
        self.meter.sample(time.monotonic_ns())
        self._handle(IterationBegan(self._manager.has_work(), self._manager.wait_max_ms()))
        self._iteration_ms = self._now_ms()
        self._manager.clock.ahead_ms = self._clock_ahead_ms()
        self._take_input()
        self._handle(PollEnded())
        for event in self._member.events():
            self._handle(event)
        if self._is_stopping():
            if self._state.life is Life.RUNNING:
                # The tasks are closed from here on: this snapshot says what they leave.
                self._publish()
                if self._undone is None:
                    # Whatever took the time since it was asked to stop, such as a slow record: it was not the cluster.
                    self._committer.give_up_after(STOP_TIMEOUT_S)
            for owned in self._manager.running():
                self._leave_queued_calls(owned)
            self._handle(StopRequested(self.leaving))
        if self._has_ended():
            return
        self._processed_now = 0
        self._handle(InputTaken(self.is_paused))
        if self._has_ended():
            return
        requested = any(owned.task.commit_requested for owned in self._manager.awake())
        self._handle(Processed(self._processed_now, requested, self._manager.is_calling()))
        self._handle(IterationEnded(self._is_settled()))

    def _handle(self, event: LoopEvent) -> None:
        self._state, actions = step(self._state, event, self._now_ms())
        for action in actions:
            self._activity = Activity(action, self._now_ms())
            self._do(action)
            self._activity = None

    def _take_input(self) -> None:
        began_ns = time.monotonic_ns()
        for restored in self._manager.restoring.reports():
            self._manager.restored(restored)
            self._gate.serve()
        arrived = self._network.fetcher.poll(0.0)
        for fetched in arrived:
            self._manager.add_input(fetched, self._iteration_ms)
        self.meter.poll.add(began_ns, time.monotonic_ns(), len(arrived))

    # ---------------------------------------------------------------------------------------------------------- actions

    def _do(self, action: Action) -> None:
        match action:
            case Wait(timeout_ms):
                self._wait(timeout_ms)
            case AnswerQueries():
                self._gate.serve()
            case AdvanceTasks():
                self._advance()
            case ProcessTasks(limit_records):
                try:
                    self._process(limit_records)
                except StreamsError as error:
                    self._handle_error(error, alone=not self._committer.is_atomic)
            case SendOutputs():
                self._send_outputs()
            case CommitAll(parts):
                self._commit_all(parts)
            case PurgeRepartitionTopics():
                self._purge.begin(self._manager.running(), self._committer.committed_records_end)
            case CleanUp():
                self._manager.clean_up(self._iteration_ms)
            case _:
                self._do_for_group(action)

    def _do_for_group(self, action: Action) -> None:
        match action:
            case CheckVersion():
                self._check_other_versions()
            case Assign(tasks, epoch, why):
                with self._manager.assignment_changes.assigned(epoch, why), self.meter.timing(self.meter.assigned):
                    self._assign(tasks)
            case CloseLostTasks(reason):
                self._close_lost_tasks(reason)
            case ReleaseAll():
                self._release()
            case CommitBeforeClose():
                self._commit_before_close(self._manager.running())
            case RecheckSources():
                self._manager.recheck_sources()
            case UpdateRouting(partitions):
                if self._routing is not None:
                    self._routing.update(partitions)
            case ReportOffsets():
                self._report_offsets()
            case _:
                self._show(action)

    def _show(self, action: Action) -> None:
        match action:
            case ShowState(state):
                self._on_state(state)
            case LeaveGroup(remain):
                self._member.send(Leave(remain=remain))
            case MeasureMemory():
                self._reporter.measure_memory()
            case Publish():
                self._publish()
            case Warn(text):
                logger.warning("%s", text)
            case Note(text):
                logger.info("%s", text)
            case _:
                raise AssertionError(f"unknown action {action}")

    def _wait(self, timeout_ms: int) -> None:
        began_ns = time.monotonic_ns()
        with self._gate.idle:
            self._network.wait(timeout_ms / 1000)
        self.meter.blocked_ns += time.monotonic_ns() - began_ns

    def _advance(self) -> None:
        member_id, epoch = self._member.member_id, self._member.member_epoch
        if self._manager.open_waiting(self._iteration_ms):
            self._member.send(ReportOwned(self._manager.open_tasks()))
        try:
            may_start = self._undone is None and self._committer.prepare_start(self._iteration_ms)
        except StreamsError as error:
            self._handle_error(error, alone=False)
            may_start = False
        if may_start:
            self._manager.start_tasks(self._iteration_ms, member_id, epoch)
        self._manager.follow_sources(self._iteration_ms, member_id, epoch)
        self._manager.changelog_watch.check(self._iteration_ms)

    def _process(self, limit_records: int) -> None:
        began_ns = time.monotonic_ns()
        processed = self._manager.process(limit_records, self._iteration_ms)
        ended_ns = time.monotonic_ns()
        if processed:
            self.meter.process.add(began_ns, ended_ns, processed)
            self.on_work("process", began_ns, ended_ns, processed)
        punctuated = sum(owned.task.punctuate(self._iteration_ms) for owned in self._manager.awake())
        if punctuated:
            self.meter.punctuate.add(ended_ns, time.monotonic_ns(), punctuated)
        self._processed_now = processed
        self._reporter.processed_records += processed

    def _send_outputs(self) -> None:
        try:
            self._flush_outputs()
        except StreamsError as error:
            self._handle_error(error, alone=False)

    # ------------------------------------------------------------------------------------------------------------ commit

    def _commit_all(self, parts: int = 1) -> None:
        self._commit(self._turns.begin(self._manager.awake(), parts))
        self._handle(self._turns.ended(is_atomic=self._committer.is_atomic))

    def _commit(self, tasks: list[OwnedTask]) -> None:
        began_ns = time.monotonic_ns()
        try:
            self._committer.commit(tasks, self._member.member_id, self._member.member_epoch)
        except StreamsError as error:
            self._handle_error(error, alone=False)
        ended_ns = time.monotonic_ns()
        self.meter.commit.add(began_ns, ended_ns, 1)
        self.on_work("commit", began_ns, ended_ns, 1)

    def _handle_error(self, error: StreamsError, *, alone: bool) -> None:
        match action_for(error):
            case ErrorAction.START_OVER:
                (self._give_up if self._is_stopping() else self._start_over)(error)
            case ErrorAction.RESTORE:
                self._recover(error, alone=alone)
            case _:
                raise error

    def _start_over(self, error: StreamsError) -> None:
        logger.warning("results could not be written; the tasks restart from the last commit: %s", error)
        why = f"results could not be written, it restarts from the last commit: {error}"
        with self._manager.assignment_changes.because(why):
            self._manager.restart_all()
        self._has_started_over = True
        self._committer.forget()
        self.on_start_over()

    def _give_up(self, error: StreamsError) -> None:
        """Closes the tasks without a last commit. Nobody would process with them again."""
        why = str(error)
        if isinstance(error, CallsGivenUpError):
            # A stop as it is meant to be: nothing has failed, and the cluster was not waited for.
            logger.warning("%s. What was processed since the last commit %s", why, REPEATED)
            self._committer.give_up_after(STOP_TIMEOUT_S)
        else:
            # What failed after the first was not waited for.
            self._undone = self._undone or NotCommittedError(f"results could not be written: {error}")
            why = f"results could not be written, and this instance ends: {error}"
        with self._manager.assignment_changes.because(why):
            self._close_as_they_are()
        self._committer.forget()

    def _recover(self, error: StreamsError, *, alone: bool) -> None:
        """Has a damaged store restored and its task repeat uncommitted work. ``alone``: only this task restarts."""
        found = damaged_store(self._manager, error) if isinstance(error, StoreCorruptedError) else None
        if found is None:
            raise error
        owned, store = found
        logger.warning("task %s restarts, its store %s is wiped and restored: %s", owned, store, error)
        with self._manager.assignment_changes.because(f"store {store} of task {owned} is damaged: wiped and restored"):
            if alone:
                self._manager.restart(owned, owned.role, wipe=[store])
            else:
                self._manager.restart_all({owned.key: [store]})
                self._committer.forget()

    # ------------------------------------------------------------------------------------------------------------ events

    def _assign(self, tasks: Tasks) -> None:
        opened = self._manager.assign(tasks, self._revoke)
        self._has_started_over = False
        self._committer.keep_only(
            {tp for owned in self._manager if owned.is_active for tp in owned.task.source_partitions}
        )
        self._member.send(ReportOwned(opened))

    def _check_other_versions(self) -> None:
        """Checks other members' versions; the member has just joined and has no open task. Raises TopologyMismatchError."""
        try:
            self._check_version()
        except BrokerError as error:
            logger.warning(
                "could not determine whether the group's other members run this version of the topology: %s", error
            )

    def _leave_queued_calls(self, owned: OwnedTask) -> None:
        if self._last_calls.is_limited:
            owned.task.leave_queued_calls()

    def _while_calling(self, owned: OwnedTask) -> None:
        """Looks which pending calls delay the stop: a call may take any time."""
        self._leave_queued_calls(owned)
        if self._is_stopping():
            self._last_calls.watch(str(owned), owned.task.queued_calls, owned.task.calls_under_way())

    def _close_lost_tasks(self, reason: str) -> None:
        lost = f"this member lost its membership: {reason}"
        self._log_start_advice()
        with self._manager.assignment_changes.because(lost), self.meter.timing(self.meter.lost):
            self._close_as_they_are()
        self._manager.assignment_changes.lost()
        self._committer.forget()
        self._member.send(ReportOwned(NOTHING))

    def _log_start_advice(self) -> None:
        """Logs advice once, if tasks are lost that have not run yet: this may repeat without progress.

        Not if they had run and were restarted: whoever was frozen past its session first fails to write, then is told why.
        """
        if self._has_started_over:
            return
        starting = sum(owned.phase in STARTING for owned in self._manager)
        if not starting or self._has_logged_advice:
            return
        self._has_logged_advice = True
        logger.warning(
            "%d tasks were lost while they were opened or restored. If this happens repeatedly, the "
            "instance is too busy to send heartbeats in time: give it more CPU or fewer tasks (more "
            "instances), or make the session longer "
            "(session.timeout.ms of a classic group, streams.session.timeout.ms of a streams group)",
            starting,
        )

    def _revoke(self, leaving: list[OwnedTask]) -> None:
        with self.meter.timing(self.meter.revoked):
            self._commit_before_close(leaving)

    def _commit_before_close(self, leaving: list[OwnedTask]) -> None:
        """Commits, and retries: the next owner repeats uncommitted work."""
        try:
            for owned in leaving:
                owned.task.end()
        except StreamsError as error:
            self._handle_error(error, alone=False)
        for tasks in self._committed_in_turn(leaving):
            # A failure of those before may have closed them.
            self._commit([owned for owned in tasks if owned.phase is Phase.RUNNING])
        for _ in range(_EPOCH_ATTEMPTS):
            if not self._committer.is_stale or self._member.member_epoch < 0:
                break
            self._blocking.pause(_EPOCH_POLL_S)
            self._committer.commit_pending(self._member.member_id, self._member.member_epoch)
        self._reporter.processed_records -= sum(owned.task.left_records for owned in leaving)

    def _committed_in_turn(self, leaving: list[OwnedTask]) -> list[list[OwnedTask]]:
        """Which tasks are committed together. At a stop, those without calls come first: they need not repeat their work if
        the calls of others take too long."""
        if leaving and self._committer.is_atomic:
            return [self._manager.running()]
        if not self._last_calls.is_limited:
            return [leaving]
        calling = [owned for owned in leaving if owned.task.may_call]
        return [[owned for owned in leaving if not owned.task.may_call], calling]

    def _release(self) -> None:
        self._commit_before_close(self._manager.running())
        if self._committer.is_pending:
            self._undone = NotCommittedError("the group coordinator did not take the offsets.")
        with self._manager.assignment_changes.because("this member leaves the group"):
            self._manager.close_all()
        self._committer.forget()
        self._member.send(ReportOwned(NOTHING))
        self._handle(Released(self._undone is not None))

    def _close_as_they_are(self, *, has_failed: bool = False) -> None:
        """Closes the tasks without finishing their work; errors raised by their processors are only logged. ``has_failed``:
        so are all others, since there was one before."""
        try:
            self._manager.close_all()
        except StreamsError as error:
            if not (has_failed or isinstance(error, ProcessingError)):
                raise
            logger.warning("%s", error)

    def _end_tasks(self, has_failed: bool) -> None:
        """Closes all tasks still open. If there was a failure before, errors of a processor's ``close`` are only logged."""
        try:
            with ExitStack() as stack:
                stack.callback(self._manager.end)
                stack.callback(self._manager.close_all)
        except ProcessingError as error:
            if not has_failed:
                raise
            logger.warning("%s", error)

    def _end_after_failure(self, error: StreamsError) -> None:
        """Commits the earlier work, if its extent is known, and leaves."""
        consumer = self._manager.global_consumer
        if consumer is not None and consumer.is_damaged_by(error):
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
                if isinstance(error, RecordError) and not self._committer.is_atomic:
                    # The dead letter of the failed record. What its stores keep must not be in their changelogs before the
                    # results that follow from it are written.
                    self._network.producer.forget_failure()
                    running = self._manager.running()
                    self._flush_outputs({topic for owned in running for topic in owned.task.letter_topics})
                    self._network.producer.flush(_ADMIN_TIMEOUT_S)
                self._committer.forget()
                self.on_undone()
        except StreamsError as second:
            logger.warning("processed records could not be committed and will be processed again: %s", second)
        why = f"this stream thread failed with {error_text(error)}"
        with self._manager.assignment_changes.because(why):
            self._close_as_they_are(has_failed=True)
        self._member.send(RequestShutdown() if self.response is Response.SHUTDOWN_APPLICATION else Leave())
        self._member.send(ReportOwned(NOTHING))
        self._member.join(_ADMIN_TIMEOUT_S)

    def _report_offsets(self) -> None:
        found = self._manager.task_offsets()
        if found != self._reported_offsets:
            self._reported_offsets = found
            self._member.send(SetTaskOffsets(found.offsets, found.end_offsets))

    # ---------------------------------------------------------------------------------------------------------- progress

    def _is_settled(self) -> bool:
        """Whether every active task runs, and the group has told nothing that is not handled yet."""
        return self._manager.is_settled and self._member.member_epoch > 0 and not self._member.has_events

    def _publish(self) -> None:
        now_ms = self._now_ms()
        waiting = self._waiting = self._manager.waiting()
        settled = has_assignment(self._state) and self._is_settled()
        self._reporter.publish(
            State.RUNNING if settled else State.REBALANCING,
            self._state.statuses + self._state.trouble + waiting,
            now_ms,
            is_stopping=self._is_stopping(),
        )

    @property
    def progress(self) -> Progress:
        """The last snapshot, with the present activity. May be called from any thread."""
        activity = self._activity
        if activity is not None:
            activity = replace(activity, where=self.doing())
        absent = tuple(map(absent_text, self._network.producer.absent_topics))
        loop = report(self._state, self._now_ms(), (*self._waiting, *absent), activity)
        published, silent_s = self._reporter.progress, self.silent_s()
        stuck = (stuck_text(silent_s, self.poll_limit_s, self.doing()),) if silent_s > self.poll_limit_s else ()
        return replace(published, loops=(loop,), statuses=stuck + published.statuses + absent)

    @property
    def activity(self) -> Activity | None:
        """The action that it carries out at the moment. May be read from any thread."""
        return self._activity

    @property
    def state(self) -> LoopState:
        """The state that decides what the thread does next. May be called from any thread."""
        return self._state

    @property
    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        """The input offsets that it takes as committed."""
        return self._committer.committed_records_end

    @property
    def was_shut_down(self) -> bool:
        """Whether another member requested a shutdown of the application."""
        return self._state.was_shut_down

    def silent_s(self) -> float:
        """How long ago the last iteration began. May be called by any thread."""
        return (time.monotonic_ns() - self.meter.iterated_ns) / 1e9

    def doing(self) -> str:
        """What the thread is doing at this moment. May be called from any thread."""
        with suppress(RuntimeError):
            # The tasks may change while another thread reads them.
            processing = [where for owned in list(self._manager) if (where := owned.task.processing)]
            line = where_is(self._thread_id)
            return " ".join(
                ([f"it processes {processing[0]}"] if processing else []) + ([f"at {line}"] if line else [])
            )
        return ""

    def now_ms(self) -> int:
        """The current time of the thread's clock."""
        return self._now_ms()

    @property
    def restore_meter(self) -> StepMeter:
        """The durations of restore steps. May be called from any thread."""
        return self._manager.restoring.meter

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def has_had_tasks(self) -> bool:
        """Whether a task was opened since the start. A version whose source topics are missing never has one."""
        return self._manager.opened > 0

    @property
    def processed_records(self) -> int:
        return self._reporter.processed_records

    def commit_if_drained(self) -> bool:
        """Returns whether all input of the application is processed and committed, by this member's tasks and those of
        other members.

        Where it looks as if all is processed, it commits, and asks the cluster where its logs end. Only then it asks about
        the tasks that it does not have.
        """
        now_ms = self._now_ms()
        if not may_be_drained(self._state, now_ms) or not self._manager.is_settled or self._manager.has_work():
            return False
        self._handle(DrainChecked())
        # Fetched input is used up every now and then; a commit to find out is worth it only at the end of the logs.
        if any(owned.lag_records for owned in self._manager.running()):
            return False
        self._commit_all()
        if self._committer.is_pending or not self._manager.is_settled:
            return False
        return is_all_read(self._network, self._manager, now_ms)
