"""A task that this member owns, in one of a few phases.

::

    CREATED ──> RESTORING ──> RUNNING          an active task
       │  ^         │            │
       │  └─────────┴────────────┘             its state turned out to be worthless, or the role changed
       └──> STANDBY ──> CREATED                follows its changelogs; promoted in place, with what it has
    any ──> CLOSED

No other transition is legal; :meth:`OwnedTask.enter` refuses it. What an assignment does to a task follows from the role
that it has here and the one that it is to have: :data:`STEPS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from streamsrt.client.values import TopicPartition
from streamsrt.membership.values import Role
from streamsrt.membership.values import Task as TaskKey
from streamsrt.state.kinds import LaidOut
from streamsrt.tasks.input.input_buffer import InputBuffer
from streamsrt.tasks.restore.progress import ChangelogProgress
from streamsrt.tasks.task import Task
from topology.graph.nodes import Subtopology


class Phase(Enum):
    """The state of a task on this member."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    STANDBY = "standby"
    CLOSED = "closed"


TRANSITIONS: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        Phase.CREATED: frozenset({Phase.RESTORING, Phase.STANDBY, Phase.CLOSED}),
        Phase.RESTORING: frozenset({Phase.RUNNING, Phase.CREATED, Phase.CLOSED}),
        Phase.RUNNING: frozenset({Phase.CREATED, Phase.CLOSED}),
        Phase.STANDBY: frozenset({Phase.CREATED, Phase.CLOSED}),
        Phase.CLOSED: frozenset(),
    }
)


STARTING = frozenset({Phase.CREATED, Phase.RESTORING})
"""The phases before a task runs, or follows its changelogs."""


class TaskStep(Enum):
    """What an assignment does with a task. A running active task is committed before it is closed or recycled."""

    OPEN = "its stores are opened, then it is restored"
    KEEP = "nothing"
    PROMOTE = "it keeps its stores, reads the rest of its changelogs, and runs"
    RENAME = "it continues to follow its changelogs, in another role"
    RECYCLE = "its memory is discarded, and its stores are reopened"
    CLOSE = "it is closed; its state stays on disk"


STEPS: Mapping[tuple[Role | None, Role | None], TaskStep] = MappingProxyType(
    {
        (None, "active"): TaskStep.OPEN,
        (None, "standby"): TaskStep.OPEN,
        (None, "warmup"): TaskStep.OPEN,
        ("active", "active"): TaskStep.KEEP,
        ("active", "standby"): TaskStep.RECYCLE,
        ("active", "warmup"): TaskStep.RECYCLE,
        ("active", None): TaskStep.CLOSE,
        ("standby", "active"): TaskStep.PROMOTE,
        ("standby", "standby"): TaskStep.KEEP,
        ("standby", "warmup"): TaskStep.RENAME,
        ("standby", None): TaskStep.CLOSE,
        ("warmup", "active"): TaskStep.PROMOTE,
        ("warmup", "standby"): TaskStep.RENAME,
        ("warmup", "warmup"): TaskStep.KEEP,
        ("warmup", None): TaskStep.CLOSE,
    }
)
"""By the role that a task has here and the one that the assignment gives it; None: it is not here, or not to be here."""


@dataclass(slots=True)
class OwnedTask:
    """A task with its stores, its undecoded input and the progress of its changelogs."""

    key: TaskKey
    role: Role
    subtopology: Subtopology
    task: Task
    stores: dict[str, LaidOut]
    phase: Phase = Phase.CREATED
    inputs: dict[TopicPartition, InputBuffer] = field(default_factory=dict)
    changelogs: dict[str, ChangelogProgress] = field(default_factory=dict)
    paused: set[TopicPartition] = field(default_factory=set)
    restored_to: dict[str, int] = field(default_factory=dict)
    """By store, the end of its changelog when the task started to run."""
    written_to: dict[str, int] = field(default_factory=dict)
    """By store, the end of its changelog at the last commit that wrote to it."""
    committed_in: int = 0
    """The number of the commit of the thread that it was part of last."""
    wakes: int = 0
    """How often there was something to look at (:mod:`streamsrt.tasks.manager.awake_tasks`)."""

    def enter(self, phase: Phase) -> None:
        """Changes the phase. Raises ValueError for a transition that is not in :data:`TRANSITIONS`."""
        if phase not in TRANSITIONS[self.phase]:
            raise ValueError(f"task {self}: can't go from {self.phase.value} to {phase.value}")
        self.phase = phase

    def __str__(self) -> str:
        return f"{self.key[0]}_{self.key[1]}"

    @property
    def is_active(self) -> bool:
        return self.role == "active"

    @property
    def has_input(self) -> bool:
        """Whether fetched input is not processed yet."""
        return bool(self.task.buffered_records) or any(not buffer.is_empty for buffer in self.inputs.values())

    @property
    def is_at_rest(self) -> bool:
        """Whether a running task has nothing to do, or to commit, until there is more input."""
        return not (self.has_input or self.paused or self.task.is_timed or self.task.commit_needed)

    @property
    def lag_records(self) -> int:
        """The number of input records on the broker that are not processed yet, as far as it is known."""
        waiting = sum(buffer.lag_records or 0 for buffer in self.inputs.values())
        return waiting + self.task.buffered_records

    def note_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Takes the ends of logs from which nothing has been fetched yet."""
        for tp in ends.keys() & self.inputs.keys():
            if self.inputs[tp].high_watermark < 0:
                self.inputs[tp].high_watermark = ends[tp]

    @property
    def lag_is_known(self) -> bool:
        """Whether the end of each input partition is known. Tasks that do not read any input have no lag."""
        partitions = self.task.source_partitions if self.is_active else ()
        return all(tp in self.inputs and self.inputs[tp].lag_records is not None for tp in partitions)
