"""The state, events and actions of the loop's machine: values, nothing else.

1. The state contains everything that decides what is done next. Tasks, stores and connections belong to the thread;
   what the machine has to know about them comes with an event.
2. The events of one iteration, in order: ``IterationBegan``, ``InputTaken``, ``Processed``, ``IterationEnded``; in
   between, events of the membership (:mod:`streamsrt.membership.values`), a request to stop, and the end of a commit.
3. Actions are executed in their order. The result of an action is the next event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from streamsrt.errors import StreamsError
from streamsrt.membership.values import Endpoint, Tasks, TopicPartition
from streamsrt.membership.values import Event as MembershipEvent
from streamsrt.runtime.lifecycle import GroupMembershipOperation
from streamsrt.runtime.loop.schedule import Schedule
from streamsrt.runtime.values import State


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What the loop takes from the configuration; times in milliseconds.

    ``iteration_max_ms``: how long one iteration may process, about, so that commits are in time; 0: as long as it takes.
    ``is_static``: whether the member has a ``group.instance.id``.
    """

    commit_interval_ms: int
    poll_ms: int
    linger_ms: int
    purge_interval_ms: int
    iteration_max_ms: int = 0
    is_static: bool = False


class Life(Enum):
    """The phase of the loop's life."""

    RUNNING = "runs"
    STOPPING = "is stopping"
    LEAVING = "waits for the coordinator to confirm that it leaves"
    ENDED = "has ended"


class IterationTimes(NamedTuple):
    """How an iteration spent its time, in milliseconds: waiting for and taking input, following the group, processing.
    ``at_ms``: when the current part began."""

    at_ms: int = 0
    polled_ms: int = 0
    assigned_ms: int = 0
    processed_ms: int = 0


@dataclass(frozen=True, slots=True)
class LateCommit:
    """A commit that started late, and the iteration that delayed it."""

    late_ms: int
    iteration: IterationTimes
    records: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class SlowCommit:
    """A commit that took a long time."""

    took_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Activity:
    """An action that the thread has not finished yet. ``where``: the record and line."""

    action: Action
    since_ms: int
    where: str = ""


class LoopState(NamedTuple):
    """The complete state of the machine."""

    settings: LoopSettings
    schedule: Schedule
    limit_records: int
    """The maximum number of records that a task processes in the next iteration."""
    life: Life = Life.RUNNING
    is_paused: bool = False
    advanced: bool = False
    """Whether the last iteration processed anything."""
    has_outputs: bool = False
    """Whether anything was processed since outputs were sent last."""
    is_polling: bool = True
    """Whether this iteration waits for input; it does not while fetched input is being processed."""
    wanted: Tasks | None = None
    """The last assignment; None before the first one and without membership."""
    assigned_at_ms: int = 0
    statuses: tuple[str, ...] = ()
    """The group coordinator's statuses of the group."""
    is_delayed: bool = False
    """Whether these say that the group assigns tasks in a matter of seconds."""
    trouble: tuple[str, ...] = ()
    """Why heartbeats are not answered, if they aren't."""
    failure: StreamsError | None = None
    was_shut_down: bool = False
    """Whether another member requested a shutdown of the application."""
    iteration: IterationTimes = IterationTimes()
    commit_parts: int = 1
    """In how many parts the tasks are committed where there is time."""
    last_commit_ms: int = 0
    """Duration of the last commit."""
    late_commit: LateCommit | None = None
    """The last late commit."""
    slow_commit: SlowCommit | None = None
    """The last slow commit."""


# ------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class IterationBegan:
    """An iteration begins. ``has_work``: a running task has unprocessed input. ``wait_max_ms``: how long it may wait for
    input; None: for ``poll.ms``."""

    has_work: bool
    wait_max_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PollEnded:
    """Fetched input was handed to the tasks. Events of the membership follow."""


@dataclass(frozen=True, slots=True)
class InputTaken:
    """All input and group events since the last iteration have been handled."""

    is_paused: bool


@dataclass(frozen=True, slots=True)
class Processed:
    """The tasks have processed. ``commit_requested``: one of them requests a commit (a user's ``context.commit()``).

    ``is_calling``: asynchronous calls are under way, for which it waited a little.
    """

    records: int
    commit_requested: bool
    is_calling: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit has finished, even if offsets are still pending. ``committed`` of ``tasks`` were committed. ``work_ms``: how
    long it has computed, rather than waited; 0 where tasks must be committed together."""

    tasks: int = 0
    committed: int = 0
    work_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class IterationEnded:
    """The iteration has ended. ``is_settled``: every active task runs, this is a member of the group, and no event of the
    group waits."""

    is_settled: bool


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The loop should end. ``operation``: what happens to the membership."""

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


@dataclass(frozen=True, slots=True)
class DrainChecked:
    """The check whether all input is processed has finished."""


@dataclass(frozen=True, slots=True)
class Released:
    """All tasks were committed and closed, and the member was notified. ``is_given_up``: the cluster did not take the last
    commit."""

    is_given_up: bool = False


IterationEvent: TypeAlias = (
    IterationBegan
    | PollEnded
    | InputTaken
    | Processed
    | Committed
    | IterationEnded
    | StopRequested
    | DrainChecked
    | Released
)
LoopEvent: TypeAlias = IterationEvent | MembershipEvent


# ------------------------------------------------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for input or events, at most this long. Queries may read the stores meanwhile."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class AnswerQueries:
    """Answer pending queries."""


@dataclass(frozen=True, slots=True)
class ShowState:
    """Publish the application's state."""

    state: State


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Ask the group coordinator to let this member leave. ``remain``: a static member keeps its tasks for its session."""

    remain: bool


@dataclass(frozen=True, slots=True)
class CommitBeforeClose:
    """Commit all running tasks, which are closed next, and retry: the next owner repeats uncommitted work."""


@dataclass(frozen=True, slots=True)
class CommitAll:
    """Commit all running tasks, or one of ``parts`` parts of them (:mod:`streamsrt.runtime.loop.commit_parts`)."""

    parts: int = 1


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """Check whether other members run another version of the topology: the member has just joined and has no open task."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Close, keep and open tasks until exactly these are open."""

    tasks: Tasks
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class CloseLostTasks:
    """Close every task without a commit: they belong to other members now."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseAll:
    """Commit and close every task, and report that none is open."""


@dataclass(frozen=True, slots=True)
class RecheckSources:
    """Check again which source topics and partitions exist."""


@dataclass(frozen=True, slots=True)
class UpdateRouting:
    """Update which endpoint has which partitions."""

    partitions: Mapping[Endpoint, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]]


@dataclass(frozen=True, slots=True)
class AdvanceTasks:
    """Open tasks that waited for their stores, start open ones, and let running ones follow their sources."""


@dataclass(frozen=True, slots=True)
class ProcessTasks:
    """Let each running task process up to this many records, and punctuate."""

    limit_records: int


@dataclass(frozen=True, slots=True)
class SendOutputs:
    """Send output that waits for more records of its partition."""


@dataclass(frozen=True, slots=True)
class PurgeRepartitionTopics:
    """Delete records of repartition topics that were read and committed."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Delete state that was unused for long."""


@dataclass(frozen=True, slots=True)
class ReportOffsets:
    """Report the offsets of the tasks' state to the membership."""


@dataclass(frozen=True, slots=True)
class MeasureMemory:
    """Measure the memory and disk usage of the state."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Create a new snapshot of the progress."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Write a warning into the log."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line into the log."""

    text: str


Action: TypeAlias = (
    Wait
    | AnswerQueries
    | ShowState
    | LeaveGroup
    | CommitBeforeClose
    | CommitAll
    | CheckVersion
    | Assign
    | CloseLostTasks
    | ReleaseAll
    | RecheckSources
    | UpdateRouting
    | AdvanceTasks
    | ProcessTasks
    | SendOutputs
    | PurgeRepartitionTopics
    | CleanUp
    | ReportOffsets
    | MeasureMemory
    | Publish
    | Warn
    | Note
)
