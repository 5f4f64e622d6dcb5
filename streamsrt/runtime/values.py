"""What a running application tells about itself.

All of it is values: a stream thread makes a snapshot once per poll, and any other thread reads it without a lock. The counts
of :class:`Progress` are totals since the start of the instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from streamsrt.tasks.manager.assignment_changes import AssignmentChange


class State(Enum):
    """The state of an application, as in ``KafkaStreams.State``."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


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
    """One task of this instance."""

    task_id: str
    role: str
    phase: str
    lag_records: int
    stream_time_ms: int
    counters: Mapping[str, int]
    restoring: tuple[RestoreProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What the state of this process takes, beside its budget (``cache.max.bytes``), in bytes.

    ``rocksdb_bytes``: block caches and write buffers of all stores; of that, ``write_buffer_bytes`` are write buffers.
    ``state_bytes``: what the stores hold, on disk and in memory, which is no part of the budget.
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
    """Why a stream thread does what it does at this moment.

    ``commit_due_ms``: milliseconds until the next commit, negative where it is late. ``commit_took_ms``: how long the last
    one took. ``commit``: why the next one is late already, and of the last ones that were late or took long, when that was
    and why. ``poll``: why it waits for input, or does not.
    ``tasks``: why tasks wait.
    """

    life: str = ""
    commit_due_ms: int = 0
    commit_took_ms: int = 0
    commit: str = ""
    poll: str = ""
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of what this instance does. Made once per poll, read from any thread."""

    state: State = State.CREATED
    tasks: tuple[TaskProgress, ...] = ()
    processed_records: int = 0
    restored_records: int = 0
    commits: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)
    """Totals over all tasks, also those that went elsewhere: what was dropped, and what failed and was skipped."""
    statuses: tuple[str, ...] = field(default=())
    """Why nothing happens, if nothing happens: what the group coordinator says of the group."""

    member_id: str = ""
    member_epoch: int = -1
    opened_tasks: int = 0
    closed_tasks: int = 0
    """How many tasks were opened and closed since the start."""
    memory: MemoryUse = MemoryUse()
    loops: tuple[LoopReport, ...] = ()
    """What each stream thread waits for, one entry a thread."""
    assignment_changes: tuple[AssignmentChange, ...] = ()
    """Which tasks came, went and changed their role lately, and why; of each stream thread the newest last."""

    def thread_state(self, state: State) -> ThreadState:
        """Of the one stream thread whose progress this is. ``state``: the application's."""
        if state is State.REBALANCING:
            if self.member_epoch > 0:
                return ThreadState.PARTITIONS_ASSIGNED
            # Without membership: it has not come that far, or has lost it with all its tasks.
            return ThreadState.PARTITIONS_REVOKED if self.opened_tasks else ThreadState.STARTING
        return _THREAD_STATES[state]

    def of_the_past(self) -> Progress:
        """What is left of it when it has ended: the totals."""
        return replace(self, tasks=(), statuses=(), loops=(), memory=MemoryUse())

    @property
    def restore_eta_s(self) -> float | None:
        """Seconds until the last active task's state is restored; None if nothing is restored or that is not known."""
        etas = [each.eta_s for task in self.tasks for each in task.restoring if each.eta_s is not None]
        return max(etas, default=None)

    @property
    def state_lag_records(self) -> int:
        """How far the state of standby and warm-up tasks is behind their changelogs."""
        return sum(each.remaining_records for task in self.tasks if task.role != "active" for each in task.restoring)

    @property
    def lag_records(self) -> int:
        """Input that was seen at the broker and is not processed yet."""
        return sum(task.lag_records for task in self.tasks)
