"""The state, events and actions of the loop's machine: values, nothing else.

1. The state contains everything that decides what is done next. Tasks, stores and connections belong to the thread;
   what the machine has to know about them comes with an event.
2. The events of one iteration, in order: ``IterationBegan``, ``InputTaken``, ``Processed``, ``IterationEnded``; in
   between, events of the membership (:mod:`streamsrt.membership.values`), a request to stop, and the end of a commit.
3. Actions are executed in their order. The result of an action is the next event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from streamsrt.errors import StreamsError
from streamsrt.membership.values import Endpoint, Leave, Tasks, TopicPartition
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
    """How far the loop is."""

    RUNNING = "runs"
    STOPPING = "is stopping"
    LEAVING = "waits for the coordinator to confirm that it leaves"
    ENDED = "has ended"


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """What took the time in one iteration, in milliseconds: waiting for input and taking it in, doing what the group said,
    processing. ``at_ms`` is when the part began that is going on."""

    at_ms: int = 0
    polled_ms: int = 0
    assigned_ms: int = 0
    processed_ms: int = 0


@dataclass(frozen=True, slots=True)
class LateCommit:
    """A commit that began later than it was due, and the iteration that kept it."""

    late_ms: int
    iteration: IterationTimes
    records: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class SlowCommit:
    """A commit that took long."""

    took_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What the thread does at this moment: an action that it has not finished yet. ``where``: in which record and line."""

    action: Action
    since_ms: int
    where: str = ""


@dataclass(frozen=True, slots=True)
class LoopState:
    """All that decides what the loop does next."""

    settings: LoopSettings
    schedule: Schedule
    limit_records: int
    """How many records a task may process in the next iteration."""
    life: Life = Life.RUNNING
    is_paused: bool = False
    advanced: bool = False
    """Whether the last iteration processed anything."""
    is_polling: bool = True
    """Whether this iteration waits for input; it does not while fetched input is being processed."""
    wanted: Tasks | None = None
    """What the group assigned last; None before the first assignment and without membership."""
    assigned_at_ms: int = 0
    statuses: tuple[str, ...] = ()
    """What the group coordinator says of the group."""
    trouble: tuple[str, ...] = ()
    """What keeps heartbeats from being answered."""
    failure: StreamsError | None = None
    was_shut_down: bool = False
    """Another member asked the whole application to end."""
    iteration: IterationTimes = field(default_factory=IterationTimes)
    last_commit_ms: int = 0
    """How long the last commit took."""
    late_commit: LateCommit | None = None
    """The last commit that was late."""
    slow_commit: SlowCommit | None = None
    """The last commit that took long."""


# ------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class IterationBegan:
    """An iteration begins. ``has_work``: some running task has input that was fetched and not processed."""

    has_work: bool


@dataclass(frozen=True, slots=True)
class PollEnded:
    """Fetched input was handed to the tasks. What the membership tells comes next."""


@dataclass(frozen=True, slots=True)
class InputTaken:
    """All that came since the last iteration, input and news of the group, is taken in."""

    is_paused: bool


@dataclass(frozen=True, slots=True)
class Processed:
    """The tasks have processed. ``commit_requested``: one of them asks for a commit (a user's ``context.commit()``).

    ``is_calling``: asynchronous calls are under way, for which it waited a little.
    """

    records: int
    commit_requested: bool
    is_calling: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of all tasks has ended, whether or not offsets still wait."""


@dataclass(frozen=True, slots=True)
class IterationEnded:
    """``is_settled``: every active task runs, and this is a member of the group."""

    is_settled: bool


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The loop should end. ``operation``: what happens to the membership."""

    operation: GroupMembershipOperation = GroupMembershipOperation.DEFAULT


@dataclass(frozen=True, slots=True)
class DrainChecked:
    """It was looked whether all input is processed."""


@dataclass(frozen=True, slots=True)
class Released:
    """Every task was committed and closed, and the member was told."""


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
    """Wait for input or news, at most this long. Queries may read the stores meanwhile."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class AnswerQueries:
    """Answer the queries that wait."""


@dataclass(frozen=True, slots=True)
class ShowState:
    """The state that the application shows."""

    state: State


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the membership."""

    command: Leave


@dataclass(frozen=True, slots=True)
class CommitBeforeTheyGo:
    """Commit all running tasks, and insist: what is not committed is done a second time by the next owner."""


@dataclass(frozen=True, slots=True)
class CommitAll:
    """Commit all running tasks."""


@dataclass(frozen=True, slots=True)
class CheckVersion:
    """Look whether other members run another version of the topology: it has just joined, and no task is open."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Close, keep and open tasks until exactly these are open."""

    tasks: Tasks
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class GiveUpTasks:
    """Close every task without a commit: they are others' by now."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseAll:
    """Commit and close every task, and report that nothing is open."""


@dataclass(frozen=True, slots=True)
class LookForSources:
    """Topics may have come, grown or gone."""


@dataclass(frozen=True, slots=True)
class UpdateRouting:
    """Which endpoint has which partitions."""

    partitions: Mapping[Endpoint, tuple[frozenset[TopicPartition], frozenset[TopicPartition]]]


@dataclass(frozen=True, slots=True)
class AdvanceTasks:
    """Open tasks that wait for their stores, start those that are open, let the running ones follow their sources."""


@dataclass(frozen=True, slots=True)
class ProcessTasks:
    """Let each running task process up to so many records; punctuate."""

    limit_records: int


@dataclass(frozen=True, slots=True)
class SendOutputs:
    """Send what waits for more records of its partition."""


@dataclass(frozen=True, slots=True)
class PurgeRepartitionTopics:
    """Delete what was read from repartition topics and committed."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Delete state that nobody has used for long."""


@dataclass(frozen=True, slots=True)
class TellOffsets:
    """Tell the membership how far the tasks' state is."""


@dataclass(frozen=True, slots=True)
class MeasureMemory:
    """Look how much memory and disk the state takes."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Make a new snapshot of the progress."""


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
    | Tell
    | CommitBeforeTheyGo
    | CommitAll
    | CheckVersion
    | Assign
    | GiveUpTasks
    | ReleaseAll
    | LookForSources
    | UpdateRouting
    | AdvanceTasks
    | ProcessTasks
    | SendOutputs
    | PurgeRepartitionTopics
    | CleanUp
    | TellOffsets
    | MeasureMemory
    | Publish
    | Warn
    | Note
)
