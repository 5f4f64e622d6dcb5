"""Task assignors: their interface and their table.

1. An assignor is a pure function of the spec: it reads no clock, and ties do not depend on the order of dictionaries.
2. A new assignor is a class with a name and ``assign``, and one entry in :data:`TASK_ASSIGNORS`; its name is then a
   valid value of ``streams.assignor.name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from streamsrt.assignment import highly_available, sticky
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import TaskId, Tasks


class AssignorSettings(NamedTuple):
    """The group's settings for its assignor. ``assignor_name``: the configured one; None: the one that fits the topology."""

    num_standby_replicas: int = 0
    num_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10_000
    rack_tags: tuple[str, ...] = ()
    assignor_name: str | None = None


class TaskAssignmentSpec(NamedTuple):
    """A group to assign. ``task_counts``: tasks of each subtopology; ``stateful``: the subtopologies with state;
    ``excluded``: tasks of these that members with another version of the topology run.

    Of two members of one process the later one is the one whose task offsets were heard last.
    """

    members: Sequence[AssignorMember]
    task_counts: Mapping[str, int]
    stateful: frozenset[str]
    settings: AssignorSettings
    excluded: frozenset[TaskId] = frozenset()


class TaskAssignor(Protocol):
    """A server-side assignor of a streams group, selected by name in the group's settings."""

    @property
    def name(self) -> str: ...

    def assign(self, spec: TaskAssignmentSpec) -> Mapping[str, Tasks]:
        """Returns the target of every member, by member id."""
        ...


class StickyAssignor:
    """Few moves, equal loads (:mod:`streamsrt.assignment.sticky`)."""

    name = "sticky"

    def assign(self, spec: TaskAssignmentSpec) -> Mapping[str, Tasks]:
        return sticky.assign(
            spec.members,
            task_counts=spec.task_counts,
            excluded=spec.excluded,
            stateful=spec.stateful,
            num_standby_replicas=spec.settings.num_standby_replicas,
            rack_tags=spec.settings.rack_tags,
        )


class HighlyAvailableAssignor:
    """Moves tasks with state once their state has arrived (:mod:`streamsrt.assignment.highly_available`)."""

    name = "highly_available"

    def assign(self, spec: TaskAssignmentSpec) -> Mapping[str, Tasks]:
        settings = spec.settings
        return highly_available.assign(
            spec.members,
            task_counts=spec.task_counts,
            excluded=spec.excluded,
            stateful=spec.stateful,
            num_standby_replicas=settings.num_standby_replicas,
            num_warmup_replicas=settings.num_warmup_replicas,
            acceptable_recovery_lag=settings.acceptable_recovery_lag,
            rack_tags=settings.rack_tags,
        )


STICKY: TaskAssignor = StickyAssignor()
HIGHLY_AVAILABLE: TaskAssignor = HighlyAvailableAssignor()
TASK_ASSIGNORS: Mapping[str, TaskAssignor] = MappingProxyType({each.name: each for each in (HIGHLY_AVAILABLE, STICKY)})
