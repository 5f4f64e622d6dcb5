"""What a running application reports about itself.

These are immutable values: a stream thread takes a snapshot up to ten times a second, less often if it has more than a
hundred tasks, and any other thread reads it without a lock. The counts of :class:`Progress` are totals since the start of
the instance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from streamsrt.tasks.manager.assignment_changes import AssignmentChange
from streamsrt.wording import counted


class State(Enum):
    """The state of an application, as in ``KafkaStreams.State``."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


ENDED = frozenset({State.NOT_RUNNING, State.ERROR})


class ThreadState(Enum):
    """The state of a stream thread, as in ``StreamThread.State``."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"


STATE_TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {
        State.CREATED: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
        State.REBALANCING: frozenset({State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
        State.RUNNING: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
        State.PENDING_SHUTDOWN: frozenset({State.NOT_RUNNING, State.PENDING_ERROR}),
        State.NOT_RUNNING: frozenset(),
        State.PENDING_ERROR: frozenset({State.ERROR}),
        State.ERROR: frozenset(),
    }
)


_THREAD_STATES: Mapping[State, ThreadState] = MappingProxyType(
    {
        State.CREATED: ThreadState.CREATED,
        State.RUNNING: ThreadState.RUNNING,
        State.PENDING_SHUTDOWN: ThreadState.PENDING_SHUTDOWN,
        State.PENDING_ERROR: ThreadState.PENDING_SHUTDOWN,
        State.NOT_RUNNING: ThreadState.DEAD,
        State.ERROR: ThreadState.DEAD,
    }
)


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """One store that is being restored or followed. ``remaining_records`` counts offsets; compaction makes it fewer.

    ``position``: the offset of the changelog up to which the store holds it. ``offsets_per_second``: how quickly it has
    advanced; ``eta_s``: when an active task's store will be restored at that speed, None if that is not known.
    """

    store: str
    restored_records: int
    restored_bytes: int
    remaining_records: int
    position: int
    offsets_per_second: float = 0.0
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """One task of this instance. ``pending_calls``: asynchronous calls that are unfinished, those that wait for their turn
    included. ``lag_is_known``: whether the broker has reported the end of each input partition.
    """

    task_id: str
    role: str
    phase: str
    lag_records: int
    stream_time_ms: int
    counters: Mapping[str, int]
    restoring: tuple[RestoreProgress, ...] = ()
    pending_calls: int = 0
    lag_is_known: bool = True


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory that the state of this process takes, and its budget (``cache.max.bytes``), in bytes.

    ``rocksdb_bytes``: block caches and write buffers of all stores; of that, ``write_buffer_bytes`` are write buffers.
    ``state_bytes``: the size of the stores, on disk and in memory, which does not count towards the budget.
    """

    limit_bytes: int = 0
    record_cache_bytes: int = 0
    rocksdb_bytes: int = 0
    write_buffer_bytes: int = 0
    state_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        return self.record_cache_bytes + self.rocksdb_bytes


@dataclass(frozen=True, slots=True)
class LoopReport:
    """What a stream thread is doing at this moment, and why.

    ``commit_due_ms``: milliseconds until the next commit, negative if it is late. ``commit_took_ms``: how long the last
    one took. ``commit``: why the next one is late; and when the last late and the last slow one were, and why. ``poll``:
    why the thread waits for input, or does not. ``tasks``: why tasks wait.
    """

    life: str = ""
    commit_due_ms: int = 0
    commit_took_ms: int = 0
    commit: str = ""
    poll: str = ""
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of an instance. It is made once per poll and may be read from any thread."""

    state: State = State.CREATED
    tasks: tuple[TaskProgress, ...] = ()
    processed_records: int = 0
    """Records that the tasks have taken in. An asynchronous call counts when it begins: see ``pending_calls``."""
    restored_records: int = 0
    commits: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    """Totals over all tasks, including those that have moved away: records that were dropped, or failed and were
    skipped.
    """
    subtopology_counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same for the tasks of each subtopology, by its id. A record that passes a repartition topic is processed by two
    subtopologies, and so counts twice in ``counters``.
    """
    statuses: tuple[str, ...] = field(default=())
    """What the group coordinator reports about the group: why nothing is processed, if nothing is."""

    member_id: str = ""
    member_epoch: int = -1
    opened_tasks: int = 0
    closed_tasks: int = 0
    """How many tasks were opened and closed since the start."""
    memory: MemoryUse = MemoryUse()
    loops: tuple[LoopReport, ...] = ()
    """What each stream thread is doing, one entry per thread."""
    assignment_changes: tuple[AssignmentChange, ...] = ()
    """Which tasks were recently added, removed or changed their role, and why; for each stream thread the newest last."""
    left_records: int | None = None
    """The lag of its tasks when the instance began to stop; None if it is not known, or the instance is running."""

    def thread_state(self, state: State) -> ThreadState:
        """The state of the stream thread that this snapshot is of. ``state``: the application's."""
        if state is State.REBALANCING:
            if self.member_epoch > 0:
                return ThreadState.PARTITIONS_ASSIGNED
            # Without membership: the thread has not joined yet, or has lost its membership and tasks.
            return ThreadState.PARTITIONS_REVOKED if self.opened_tasks else ThreadState.STARTING
        return _THREAD_STATES[state]

    def of_the_past(self) -> Progress:
        """The snapshot of an instance that has ended: only its totals."""
        return replace(self, tasks=(), statuses=(), loops=(), memory=MemoryUse(), left_records=self.known_lag_records)

    @property
    def restore_eta_s(self) -> float | None:
        """Seconds until the state of all active tasks is restored; None if nothing is being restored, or if it is
        unknown.
        """
        etas = [each.eta_s for task in self.tasks for each in task.restoring if each.eta_s is not None]
        return max(etas, default=None)

    @property
    def state_lag_records(self) -> int:
        """The number of records by which standby and warm-up tasks are behind their changelogs."""
        return sum(each.remaining_records for task in self.tasks if task.role != "active" for each in task.restoring)

    @property
    def pending_calls(self) -> int:
        """The number of unfinished calls of asynchronous functions, those that wait for their turn included. Their records
        count as processed already; they are committed when the calls have finished.
        """
        return sum(task.pending_calls for task in self.tasks)

    @property
    def processed_text(self) -> str:
        """How many records are processed, and how many of their calls are pending, in words."""
        text = f"{counted(self.processed_records, 'record')} processed"
        pending = self.pending_calls
        return f"{text}, {counted(pending, 'asynchronous call')} pending" if pending else text

    @property
    def lag_records(self) -> int:
        """The number of unprocessed input records on the broker, as far as it is known."""
        return sum(task.lag_records for task in self.tasks)

    @property
    def known_lag_records(self) -> int | None:
        """The same; None if it is not known of some partition."""
        if self.tasks and all(task.lag_is_known for task in self.tasks):
            return self.lag_records
        return self.left_records

    @property
    def lag_text(self) -> str:
        """The lag in words; empty if there is nothing of which it could be known."""
        known = self.known_lag_records
        if known is not None:
            return f"lag {known:,}"
        return "lag unknown" if self.tasks else ""


def total_of(state: State, parts: Iterable[Progress]) -> Progress:
    """Adds up the progress of several stream threads."""
    parts = list(parts)
    left = [part.known_lag_records for part in parts]
    counters: Counter[str] = Counter()
    of_subtopologies: dict[str, Counter[str]] = {}
    for part in parts:
        counters.update(part.counters)
        for subtopology_id, counts in part.subtopology_counters.items():
            of_subtopologies.setdefault(subtopology_id, Counter()).update(counts)
    return Progress(
        state=state,
        tasks=tuple(task for part in parts for task in part.tasks),
        processed_records=sum(part.processed_records for part in parts),
        restored_records=sum(part.restored_records for part in parts),
        commits=sum(part.commits for part in parts),
        counters=dict(counters),
        subtopology_counters=of_subtopologies,
        statuses=tuple(dict.fromkeys(status for part in parts for status in part.statuses)),
        opened_tasks=sum(part.opened_tasks for part in parts),
        closed_tasks=sum(part.closed_tasks for part in parts),
        loops=tuple(loop for part in parts for loop in part.loops),
        assignment_changes=tuple(change for part in parts for change in part.assignment_changes),
        memory=MemoryUse(*map(sum, zip(*(astuple(part.memory) for part in parts), strict=True))),
        left_records=None if None in left else sum(map(int, filter(None, left))),
    )
