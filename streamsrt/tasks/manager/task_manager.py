"""Opens, restores, feeds and closes the tasks of this member, as the group assigns them.

1. :meth:`TaskManager.assign` gets the complete set of tasks. Removed tasks are committed and closed, unchanged ones
   continue, new ones are opened. It returns the open tasks, and only these are reported to the group.
2. A task starts at the position of its stores and at the committed offsets. Requesting them may fail while the cluster
   is unreachable, or before the coordinator has created the topics: the task then waits and retries, at most for
   ``task.timeout.ms``.
3. A standby (or warm-up) follows its changelogs. When it becomes active, it keeps its stores and reads only what is
   missing.
4. A store that can't be trusted is wiped and restored from its changelog, with a log line that says so.
5. A store that another process of this instance has not closed yet is waited for, together with its task, for the same
   time; a task that is not open is not reported as open. :mod:`streamsrt.tasks.error_policy` says how each error is
   handled.
6. Stores are opened and closed only here. Stores that belong to no open task and were not used for long are deleted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from operator import itemgetter
from types import MappingProxyType

from streamsrt.client.interface import Network
from streamsrt.client.values import (
    Fetched,
    OffsetOutOfRangeError,
    TopicInfo,
    TopicPartition,
)
from streamsrt.errors import (
    BrokerError,
    DeserializationError,
    ProcessingError,
    StateDirectoryLockedError,
    StateError,
    StoreCorruptedError,
    StreamsError,
    TopologyMismatchError,
)
from streamsrt.membership.values import Role, Tasks
from streamsrt.membership.values import Task as TaskKey
from streamsrt.operators.engine.program_clock import ProgramClock
from streamsrt.state.directory import StateDirectory
from streamsrt.state.kinds import LaidOut, rocksdb_of
from streamsrt.tasks.error_policy import NotThereYetError, is_waited_out
from streamsrt.tasks.global_state import GlobalConsumer
from streamsrt.tasks.manager.assignment_changes import AssignmentChanges
from streamsrt.tasks.manager.awake_tasks import AwakeTasks
from streamsrt.tasks.manager.group_input import GroupInput
from streamsrt.tasks.manager.lost_changelogs import (
    JAVA_PATIENCE_MS,
    PATIENCE_MS,
    ChangelogWatch,
    foreign_changelogs,
    missing_changelog,
)
from streamsrt.tasks.manager.memory_shares import share_memory
from streamsrt.tasks.manager.owned_task import STARTING, STEPS, OwnedTask, Phase, TaskStep
from streamsrt.tasks.manager.source_topics import REFRESH_INTERVAL_MS, SourceTopics, gone_partitions, new_partitions
from streamsrt.tasks.manager.start_positions import ADMIN_TIMEOUT_S, StartPositionFinder, StartPositions
from streamsrt.tasks.manager.task_inputs import TaskInputs, set_positions
from streamsrt.tasks.manager.task_offsets import DormantState, OffsetReader, TaskOffsets
from streamsrt.tasks.manager.task_settings import TaskSettings
from streamsrt.tasks.manager.waiting_tasks import WaitingTasks
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.restore.changelog_work import Failed, Followed, InlineRestoring, Report, Restoring
from streamsrt.tasks.restore.listeners import NO_RESTORE_LISTENER, NO_STANDBY_LISTENER, RestoreListener, StandbyListener
from streamsrt.tasks.restore.progress import ChangelogProgress, Restorer
from streamsrt.tasks.task import Task
from streamsrt.wire.primitives import DecodeError
from topology.graph.nodes import Subtopology

logger = logging.getLogger(__name__)

RETRY_BACKOFF_MS = 500
CLEAN_INTERVAL_MS = 60_000
CALLS_PATIENCE_S = 0.01
"""How long an iteration waits for asynchronous calls where nothing else is to be done."""


class TaskManager:
    """The tasks of one member. Belongs to the processing thread."""

    def __init__(
        self,
        settings: TaskSettings,
        network: Network,
        directory: StateDirectory,
        collector: RecordCollector,
        *,
        between_batches: Callable[[], None] = lambda: None,
        restoring: Restoring | None = None,
        on_restore: RestoreListener = NO_RESTORE_LISTENER,
        on_standby: StandbyListener = NO_STANDBY_LISTENER,
        global_consumer: GlobalConsumer | None = None,
    ) -> None:
        self._globals = global_consumer
        self._between_batches = between_batches
        self._settings = settings
        self._network = network
        self._directory = directory
        self._collector = collector
        self.restoring: Restoring = restoring or InlineRestoring(network.restorer)
        """Who applies changelogs to the stores of tasks that do not run."""
        self._restorer = Restorer(on_restore, on_standby)
        self._dormant = DormantState(settings.subtopologies, directory)
        self._offsets = OffsetReader(self._dormant, self.rests)
        self._source_topics = SourceTopics(settings.application_id, settings.subtopologies)
        self._finder = StartPositionFinder(settings, network, self._source_topics)
        self.group_input = GroupInput(settings.application_id, network, self._source_topics, self._finder)
        self.changelog_watch = ChangelogWatch(network, self.running)
        self._awake = AwakeTasks()
        self._inputs = TaskInputs(
            network,
            self._finder,
            self._awake,
            buffer_bytes=settings.input_buffer_bytes,
            all_bytes=settings.all_input_bytes,
            timeout_ms=settings.task_timeout_ms,
        )
        self._refresh_at_ms: int | None = None
        self._tasks: dict[TaskKey, OwnedTask] = {}
        self._starting: dict[TaskKey, OwnedTask] = {}
        """At least all tasks that are open and neither run nor follow their changelogs yet."""
        self._by_changelog: dict[TopicPartition, tuple[OwnedTask, str]] = {}
        self._waiting = WaitingTasks(settings.task_timeout_ms)
        self._retry_at_ms = 0
        self._failing_since_ms: int | None = None
        self._failing_with = ""
        """Why tasks can't start, as it was logged."""
        self._cleaned_at_ms: int | None = None
        self.restored_records = 0
        self.opened = 0
        self.assignment_changes = AssignmentChanges()
        self.closed = 0
        self._counted: dict[str, Counter[str]] = {}
        self.on_close: Callable[[OwnedTask], None] = lambda _: None
        """Called with each task that closes."""
        self.while_calling: Callable[[OwnedTask], None] = lambda _: None
        """Called now and then with a task whose commit waits for asynchronous calls."""
        self.on_stop_request: Callable[[], None] = lambda: None
        """Called when the program asks the instance to end."""

    # ----------------------------------------------------------------------------------------------------------- state

    @property
    def clock(self) -> ProgramClock:
        """The clock that the programs of all tasks see."""
        return self._settings.task_config.clock

    def __iter__(self) -> Iterator[OwnedTask]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def running(self) -> list[OwnedTask]:
        return [owned for owned in self._tasks.values() if owned.phase is Phase.RUNNING]

    def awake(self) -> list[OwnedTask]:
        """Returns the running tasks that may have anything to do now or at a certain time, or have anything to commit."""
        return self._awake.running()

    def rests(self, owned: OwnedTask) -> bool:
        """Whether a task is running and not awake: nothing about it changes before it wakes."""
        return owned.phase is Phase.RUNNING and owned not in self._awake

    def subtopology_counters(
        self, counters: Iterable[tuple[str, Mapping[str, int]]] | None = None
    ) -> dict[str, Counter[str]]:
        """Totals over all tasks of a subtopology that were ever open here, by the subtopology's id. ``counters``: those of
        the open tasks, each with that id, where they are known."""
        if counters is None:
            counters = ((owned.key[0], owned.task.counters()) for owned in self._tasks.values())
        each: dict[str, list[Mapping[str, int]]] = {key: [closed] for key, closed in self._counted.items()}
        for key, counted in counters:
            each.setdefault(key, []).append(counted)
        return {
            key: Counter({name: sum(map(itemgetter(name), found)) for name in found[-1]}) for key, found in each.items()
        }

    def counters(self, by_subtopology: Mapping[str, Counter[str]] | None = None) -> dict[str, int]:
        """Totals over all tasks that were ever open here, by name. ``by_subtopology``: their
        :meth:`subtopology_counters`, where they are known."""
        total: Counter[str] = Counter()
        for counted in (self.subtopology_counters() if by_subtopology is None else by_subtopology).values():
            total.update(counted)
        refused = self._collector.dropped_records
        total.update({"dropped": refused + self._collector.unplaced_records, "failed_production": refused})
        total["shortened_letters"] = self._collector.shortened_letters
        return dict(total)

    def refused(self) -> tuple[dict[str, int], dict[str, str]]:
        """Returns how many records the cluster rejected and the production handler skipped, how many dead letters were
        shortened, and the last error messages."""
        collector = self._collector
        counts = {"refused": collector.dropped_records, "shortened_letters": collector.shortened_letters}
        return counts, {"refused": collector.last_refusal, "shortened_letters": collector.last_shortened}

    def open_tasks(self) -> Tasks:
        """Returns the open tasks, as they are reported to the group."""

        def of(role: Role) -> frozenset[TaskKey]:
            return frozenset(key for key, owned in self._tasks.items() if owned.role == role)

        return Tasks(of("active"), of("standby"), of("warmup"))

    def task_offsets(self) -> TaskOffsets:
        """Returns the offsets of the state of every task that is open or on disk."""
        return self._offsets.read(self._tasks.values())

    @property
    def is_settled(self) -> bool:
        """Whether every active task runs."""
        return not self._waiting and not any(owned.is_active for owned in self._starting_tasks())

    def _starting_tasks(self) -> list[OwnedTask]:
        self._starting = {key: owned for key, owned in self._starting.items() if owned.phase in STARTING}
        return list(self._starting.values())

    # ------------------------------------------------------------------------------------------------------ assignment

    def assign(self, wanted: Tasks, commit: Callable[[list[OwnedTask]], None]) -> Tasks:
        """Closes, keeps and opens tasks until exactly ``wanted`` is open. ``commit`` is called for active tasks that are
        closed.

        It may open tasks again (:meth:`restart_all`). Raises StateError where a store can't be opened, TopologyMismatchError
        where an active task is one of another version, and what ``commit`` raises.
        """
        roles: dict[TaskKey, Role] = {key: "warmup" for key in wanted.warmup}
        roles.update({key: "standby" for key in wanted.standby})
        roles.update({key: "active" for key in wanted.active})
        self._leave_out_unknown(roles)
        leaving = [owned for owned in self.running() if STEPS[owned.role, roles.get(owned.key)] is not TaskStep.KEEP]
        if leaving:
            commit(leaving)
        self._waiting.clear()
        for key, owned in list(self._tasks.items()):
            match STEPS[owned.role, roles.get(key)]:
                case TaskStep.CLOSE:
                    self._close(owned)
                case TaskStep.RECYCLE:
                    self._close(owned, roles[key])
                    self._open_or_wait(key, roles[key])
        for key, role in sorted(roles.items()):
            known = self._tasks.get(key)
            match STEPS[None if known is None else known.role, role]:
                case TaskStep.OPEN:
                    self._open_or_wait(key, role)
                case TaskStep.PROMOTE | TaskStep.RENAME:
                    assert known is not None
                    self._change_role(known, role)
        self._share_cache()
        self._retry_at_ms, self._failing_since_ms, self._failing_with = 0, None, ""
        return self.open_tasks()

    def open_waiting(self, now_ms: int) -> bool:
        """Retries tasks whose stores another process had open; returns whether one of them is open now.

        Raises StateDirectoryLockedError when that has taken ``task.timeout.ms``.
        """
        before = len(self._tasks)
        for key, role in self._waiting.due(now_ms):
            self._open_or_wait(key, role)
        if len(self._tasks) == before:
            return False
        self._share_cache()
        return True

    def waiting(self) -> tuple[str, ...]:
        """Describes for people why assigned tasks are not open, or can't start."""
        failing = (f"tasks can't start yet: {self._failing_with}",) if self._failing_with else ()
        return self._waiting.texts() + failing

    def _open_or_wait(self, key: TaskKey, role: Role) -> None:
        try:
            self._open(key, role)
        except StateError as error:
            if not is_waited_out(error):
                raise
            self._waiting.add(key, role, error)
        else:
            self._waiting.opened(key)

    def _leave_out_unknown(self, roles: dict[TaskKey, Role]) -> None:
        """Leaves out standby tasks of a subtopology that only another version of the application has. Raises
        TopologyMismatchError for an active one: while this member has it, nobody processes it."""
        for key in [key for key in roles if key[0] not in self._settings.subtopologies]:
            if roles[key] == "active":
                raise TopologyMismatchError(
                    f"the group gave task {key[0]}_{key[1]} to this instance, which belongs to no subtopology of its "
                    "version of the application: the group runs another version, and its broker does not keep versions "
                    "apart. Start the version that the group runs (streamsrt groups describe APPLICATION)"
                )
            logger.warning("task %s_%d belongs to no subtopology of this version of the application: ignored", *key)
            del roles[key]

    def _change_role(self, owned: OwnedTask, role: Role) -> None:
        if role == "active":
            self._stop_following(owned, promoted=True)
            if owned.phase is not Phase.CREATED:
                owned.enter(Phase.CREATED)
                self._starting[owned.key] = owned
        self.assignment_changes.changed_role(str(owned), owned.role, role)
        owned.role = role

    def _open(self, key: TaskKey, role: Role) -> None:
        subtopology = self._settings.subtopologies[key[0]]
        stores: dict[str, LaidOut] = {}
        with ExitStack() as stack:
            for spec in subtopology.stores:
                stores[spec.name] = self._open_store(subtopology, spec.name, key[1])
                stack.callback(stores[spec.name].close)
            task = self._make_task(subtopology, key[1], stores)
            stack.pop_all()
        owned = OwnedTask(key, role, subtopology, task, stores)
        owned.task.while_calling(lambda: self.while_calling(owned))
        owned.task.on_stop_request(self.on_stop_request)
        self._tasks[key] = owned
        self._starting[owned.key] = owned
        self.opened += 1
        has_state = any(store.changelog_offset() for store in stores.values())
        self.assignment_changes.opened(f"{key[0]}_{key[1]}", role, has_state=has_state)

    def _make_task(self, subtopology: Subtopology, partition: int, stores: dict[str, LaidOut]) -> Task:
        return Task(
            subtopology,
            partition,
            application_id=self._settings.application_id,
            stores=stores,
            collector=self._collector,
            config=self._settings.task_config,
            partitions_of_topic=self._settings.partitions_of_topic,
            global_stores=None if self._globals is None else self._globals.state,
            task_dir=partial(self._directory.task_directory, f"{subtopology.id}_{partition}"),
        )

    def _open_store(self, subtopology: Subtopology, name: str, partition: int) -> LaidOut:
        spec = next(spec for spec in subtopology.stores if spec.name == name)
        try:
            store = self._directory.open_store(spec, partition)
            try:
                store.changelog_offset()  # Damage to a file may be detected only when it is read.
            except StateError as error:
                if not isinstance(error, StoreCorruptedError):
                    store.close()
                raise
            return store
        except StoreCorruptedError as error:
            logger.warning("%s; it is wiped and restored from its changelog", error)
            self._directory.wipe(spec.kept_as, partition)
            return self._directory.open_store(spec, partition)

    def _share_cache(self) -> None:
        share_memory(self._tasks.values(), self._settings.cache_max_bytes, self._settings.uncommitted_max_bytes)

    # ---------------------------------------------------------------------------------------------------------- closing

    @property
    def global_consumer(self) -> GlobalConsumer | None:
        """The consumer of the global stores; None if there are none."""
        return self._globals

    def end(self) -> None:
        """Stops restoring, and writes and closes the global stores. Called when no task is open any more."""
        try:
            self.restoring.close()
        finally:
            if self._globals is not None:
                self._globals.close()
                self._globals = None

    def close_all(self) -> None:
        """Closes every task without a commit, even if some fail to close; the next owner repeats uncommitted work."""
        with ExitStack() as stack:
            for owned in self._tasks.values():
                stack.callback(self._close, owned)

    def _close(self, owned: OwnedTask, becomes: Role | None = None) -> None:
        self._inputs.stop(owned)
        self._stop_following(owned)
        self._dormant.left(owned)
        owned.enter(Phase.CLOSED)
        del self._tasks[owned.key]
        self._counted.setdefault(owned.key[0], Counter()).update(owned.task.counters())
        self.on_close(owned)
        self.closed += 1
        self.assignment_changes.closed(str(owned), owned.role, becomes)
        with ExitStack() as stack:
            # In reverse order: the user's processors are closed before the stores, and all stores are closed in any case.
            for store in owned.stores.values():
                stack.callback(store.close)
            stack.callback(owned.task.close)

    def restart(self, owned: OwnedTask, role: Role, *, wipe: Iterable[str] = ()) -> None:
        """Discards the task's memory and reopens it, or waits if another process of the instance opens its stores first."""
        wiped = set(wipe)
        try:
            self._close(owned, role)
        except ProcessingError as error:
            # The task is closed for another reason, so this error does not prevent it.
            logger.warning("closing task %s failed; it is opened again anyway: %s", owned, error)
        for name in (spec.kept_as for spec in owned.subtopology.stores if spec.name in wiped):
            # The process that has the store open finds out by itself what is wrong with it.
            with suppress(StateDirectoryLockedError):
                self._directory.wipe(name, owned.key[1])
                self._dormant.deleted(name, owned.key[1])
        self._open_or_wait(owned.key, role)
        self._share_cache()

    def restart_all(self, wipe: Mapping[TaskKey, Iterable[str]] = MappingProxyType({})) -> None:
        """Reopens every active task at the last commit: output sent since then may not have been written."""
        for owned in [owned for owned in self._tasks.values() if owned.is_active]:
            self.restart(owned, owned.role, wipe=wipe.get(owned.key, ()))

    def clean_up(self, now_ms: int) -> None:
        """Deletes stores that were unused for ``state.cleanup.delay.ms``: their tasks moved elsewhere long ago.

        Global stores are written at times.
        """
        if self._globals is not None:
            self._globals.keep(now_ms)
        if self._cleaned_at_ms is not None and now_ms - self._cleaned_at_ms < CLEAN_INTERVAL_MS:
            return
        first, self._cleaned_at_ms = self._cleaned_at_ms is None, now_ms
        if first:
            return
        # Files have times of the machine's clock.
        delay_ms = self._settings.state_cleanup_delay_ms
        for store, partition in self._directory.clean_obsolete(self.clock.at(now_ms), delay_ms):
            self._dormant.deleted(store, partition)
            logger.info(
                "store %s of partition %d is deleted: its task has been on another instance for a long time",
                store,
                partition,
            )

    def _stop_following(self, owned: OwnedTask, *, promoted: bool = False) -> None:
        partitions = [progress.changelog for progress in owned.changelogs.values()]
        with ExitStack() as stack:
            # A listener that raises does not keep resources from being released.
            for tp in reversed(partitions):
                stack.callback(self._restorer.remove, tp, promoted=promoted)
                self._by_changelog.pop(tp, None)
            stack.callback(owned.changelogs.clear)
            for left in self.restoring.release(partitions):
                self._restorer.applied(left)

    # --------------------------------------------------------------------------------------------------------- starting

    def start_tasks(self, now_ms: int, member_id: str, member_epoch: int) -> None:
        """Looks up where new tasks start, and starts them. While the cluster does not answer, they wait.

        Raises MissingTopicError for a topic of the user's that is gone, ChangelogLostError, and what the cluster said at
        last when ``task.timeout.ms`` have passed.
        """
        created = [owned for owned in self._starting_tasks() if owned.phase is Phase.CREATED]
        if not created or now_ms < self._retry_at_ms or member_epoch < 0:
            return
        try:
            if not self._globals_are_ready():
                return
            found = self._finder.find(created, member_id, member_epoch, now_ms)
            for owned in created:
                self._finder.refuse_emptied(owned, found)
        except StreamsError as error:
            if not is_waited_out(error):
                raise
            self._wait_to_start(error, created, now_ms)
            return
        self._failing_since_ms, self._failing_with = None, ""
        for owned in created:
            self._begin(owned, found, now_ms)

    def _wait_to_start(self, error: StreamsError, created: list[OwnedTask], now_ms: int) -> None:
        """Logs the error if it is another one than before. Raises it when the time is up."""
        self._failing_since_ms = now_ms if self._failing_since_ms is None else self._failing_since_ms
        failing_ms = now_ms - self._failing_since_ms
        if isinstance(error, NotThereYetError) and failing_ms >= PATIENCE_MS:
            lost: StreamsError | None = missing_changelog(created, error.missing)
            if lost is None and self._settings.may_be_beside_java and failing_ms >= JAVA_PATIENCE_MS:
                lost = foreign_changelogs(self._settings.application_id, created, error.missing)
            if lost is not None:
                raise lost from error
        if failing_ms >= self._settings.task_timeout_ms:
            raise error
        if str(error) != self._failing_with:
            self._failing_with = str(error)
            logger.warning("tasks can't start yet, trying again: %s", error)
        self._retry_at_ms = now_ms + RETRY_BACKOFF_MS

    def _globals_are_ready(self) -> bool:
        """Whether the global stores contain everything that their topics contained at the start."""
        if self._globals is None:
            return True
        if not self._globals.has_begun:
            self.restoring.start()
            self._globals.begin()
        return self._globals.is_ready

    def recheck_sources(self) -> None:
        """Makes the next :meth:`follow_sources` check the topics: some may have been created, extended or deleted."""
        self._refresh_at_ms = None

    def follow_sources(self, now_ms: int, member_id: str, member_epoch: int) -> None:
        """Lets running tasks read new input: topics that a pattern matches now, and new partitions. Changes nothing while
        the cluster does not answer."""
        if member_epoch < 0 or (self._refresh_at_ms is not None and now_ms < self._refresh_at_ms):
            return
        self._refresh_at_ms = now_ms + REFRESH_INTERVAL_MS
        following = [owned for owned in self.running() if self._source_topics.may_change(owned)]
        if not following:
            return
        try:
            topics = self._network.admin.topics(timeout_s=ADMIN_TIMEOUT_S)
            for owned in following:
                self._source_topics.match(owned, topics)
            partitions = {tp: owned for owned in following for tp in new_partitions(owned, topics)}
            positions = self._finder.source_positions(list(partitions), member_id, member_epoch, now_ms)
        except BrokerError as error:
            logger.warning("topics can't be looked up, trying again: %s", error)
            self._refresh_at_ms = now_ms + RETRY_BACKOFF_MS
            return
        for owned in following:
            self._drop_inputs(owned, topics)
        for tp, position in positions.items():
            owned = partitions[tp]
            set_positions(owned, {tp: position})
            self._inputs.start(owned, [tp])
            logger.info("task %s: now also reads %s-%d, from offset %d", owned, *tp, position.offset)

    def _drop_inputs(self, owned: OwnedTask, topics: Mapping[str, TopicInfo]) -> None:
        named = {topic for source in owned.subtopology.sources for topic in source.topics}
        gone = gone_partitions(owned, topics, unless=named)
        self._inputs.stop(owned, gone)
        for tp in gone:
            logger.warning("task %s: %s was deleted and is no longer read", owned, tp[0])
            owned.task.note_high_watermark(*tp, -1)

    def _begin(self, owned: OwnedTask, found: StartPositions, now_ms: int) -> None:
        starts, ends, positions = found.starts, found.ends, found.sources
        for spec in owned.subtopology.stores:
            tp = owned.task.restore_target(spec.name)
            if tp is None or (spec.source_topic is not None and not owned.is_active):
                # A standby that followed a source topic would be ahead of what the active task has processed of it.
                continue
            end = ends[tp]
            if spec.source_topic is not None:
                # Later records are input that the task has not processed yet.
                end = min(end, positions[tp].offset) if tp in positions else starts[tp]
            at = owned.stores[spec.name].changelog_offset()
            if at is not None and not starts[tp] <= at <= ends[tp]:
                logger.warning(
                    "task %s: store %s is at offset %d of its changelog %s-%d, which holds %d to %d: it is wiped and "
                    "restored from the start",
                    owned,
                    spec.name,
                    at,
                    *tp,
                    starts[tp],
                    ends[tp],
                )
                cause = f"its store {spec.name} does not match its changelog: wiped and restored"
                with self.assignment_changes.because(cause):
                    self.restart(owned, owned.role, wipe=[spec.name])
                return
            start = starts[tp] if at is None else at
            owned.changelogs[spec.name] = ChangelogProgress(
                spec.name, tp, start, start, end if owned.is_active else None, end
            )
            owned.changelogs[spec.name].started_at_ms = now_ms
        self._follow(owned)
        if not owned.is_active:
            owned.enter(Phase.STANDBY)
            return
        set_positions(owned, {tp: positions[tp] for tp in owned.task.source_partitions if tp in positions})
        owned.enter(Phase.RESTORING)
        self._run_if_restored(owned)

    def _follow(self, owned: OwnedTask) -> None:
        wanted = []
        for name, progress in owned.changelogs.items():
            self._restorer.add(progress, str(owned))
            if progress.is_done:
                # Listeners hear of a store without anything to restore, too, as in Kafka Streams.
                self._restorer.remove(progress.changelog)
                continue
            self._by_changelog[progress.changelog] = (owned, name)
            apply = partial(owned.task.restore, name)
            store = rocksdb_of(owned.stores[name])
            wanted.append(Followed(progress.changelog, progress.position, progress.end_offset, apply, store))
        self.restoring.follow(wanted)

    def _run_if_restored(self, owned: OwnedTask) -> None:
        if owned.phase is not Phase.RESTORING or not all(each.is_done for each in owned.changelogs.values()):
            return
        restored = sum(each.restored_records for each in owned.changelogs.values())
        self.restored_records += restored
        owned.restored_to = {name: each.position for name, each in owned.changelogs.items()}
        self._stop_following(owned)
        owned.enter(Phase.RUNNING)
        self._inputs.start(owned)
        logger.info("task %s: running, %d changelog records restored", owned, restored)

    # ------------------------------------------------------------------------------------------------------------ input

    def restored(self, report: Report) -> None:
        """Handles a report of the restore. Raises the broker's error if a changelog can't be read."""
        if isinstance(report, Fetched):
            if self._globals is not None:
                self._globals.take(report, self._network.restorer)
            return
        known = self._by_changelog.get(report.changelog)
        if known is None:
            return
        if isinstance(report, Failed):
            self._handle_failed_restore(*known, report)
        elif self._restorer.applied(report):
            self.restoring.release([report.changelog])
            self._restorer.remove(report.changelog)
            self._by_changelog.pop(report.changelog, None)
            self._run_if_restored(known[0])

    def _handle_failed_restore(self, owned: OwnedTask, name: str, failed: Failed) -> None:
        error, tp = failed.error, failed.changelog
        if isinstance(error, OffsetOutOfRangeError):
            error = StoreCorruptedError(f"its changelog can't be read from there: {error}")
        if isinstance(error, StoreCorruptedError):
            logger.warning("task %s: store %s is wiped and restored from the start: %s", owned, name, error)
            with self.assignment_changes.because(
                f"its store {name} can't be trusted, it is wiped and restored: {error}"
            ):
                self.restart(owned, owned.role, wipe=[name])
            return
        if isinstance(error, DecodeError):
            raise DeserializationError(
                f"the changelog {tp[0]}-{tp[1]} of store {name} holds a corrupt batch at or after offset "
                f"{failed.offset}: {error}. Delete the topic to rebuild the store from nothing, or repair the "
                "broker's log",
                *tp,
                failed.offset,
            ) from error
        raise error

    def add_input(self, fetched: Fetched, now_ms: int) -> None:
        """Handles data of the main fetcher. Raises the broker's error if a partition can't be read."""
        if self._globals is None or not self._globals.take(fetched, self._network.fetcher):
            self._inputs.take(fetched, now_ms)

    def process(self, limit_records: int, now_ms: int) -> int:
        """Lets every running task process some of its input; returns the number of records. Raises RecordError, and
        BrokerError where the cluster does not tell where to go on after a position was lost."""
        self._inputs.find_lost(now_ms)
        awake = self._awake.running()
        # A paused partition is resumed when there is room for its input.
        done = sum(
            self._process_task(owned, limit_records, now_ms) for owned in awake if owned.has_input or owned.paused
        )
        if not done:
            calling = next((owned for owned in awake if owned.task.is_calling), None)
            if calling is not None:
                calling.task.await_calls(CALLS_PATIENCE_S)
        self._awake.let_rest()
        return done

    def _process_task(self, owned: OwnedTask, limit_records: int, now_ms: int) -> int:
        task, done = owned.task, 0
        while done < limit_records:
            self._inputs.refill(owned)
            count = task.process(limit_records - done, now_ms, finishes=False)
            self._between_batches()
            done += count
            # Mostly nothing is left: where there are few records, to look costs less than to try.
            if not count or not (owned.has_input or owned.paused):
                break
        return done

    def has_work(self) -> bool:
        """Whether a running task has unprocessed input, or pending calls."""
        return any(owned.has_input or owned.task.is_calling for owned in self._awake.running())

    def is_calling(self) -> bool:
        """Whether a running task has pending asynchronous calls."""
        return any(owned.task.is_calling for owned in self._awake.running())

    def wait_max_ms(self) -> int | None:
        """How long the loop may wait for input at most, for the running tasks; None: as long as it likes."""
        limits = [limit for owned in self._awake.running() if (limit := owned.task.wait_max_ms) is not None]
        return min(limits, default=None)

    def positions(self) -> dict[TopicPartition, int]:
        """Returns, for each input of the running tasks, the offset up to which everything was handed to the task."""
        return {tp: buffer.position for owned in self.running() for tp, buffer in owned.inputs.items()}
