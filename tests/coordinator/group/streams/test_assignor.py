"""The table of task assignors."""

from __future__ import annotations

import pytest

from coordinator.group.config import ASSIGNORS, StreamsGroupConfig
from coordinator.group.streams.assignor import TASK_ASSIGNORS, TaskAssignmentSpec
from coordinator.group.streams.placement import AssignorMember
from coordinator.group.streams.tasks import NO_TASKS, TaskId


def test_the_setting_takes_the_assignors_that_there_are() -> None:
    assert set(ASSIGNORS) == set(TASK_ASSIGNORS)
    assert all(name == assignor.name for name, assignor in TASK_ASSIGNORS.items())


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_gives_every_task_to_one_member(name: str) -> None:
    members = [AssignorMember(member, f"process of {member}", NO_TASKS) for member in "abc"]
    spec = TaskAssignmentSpec(members, {"s": 5, "t": 2}, frozenset({"s"}), StreamsGroupConfig())
    targets = TASK_ASSIGNORS[name].assign(spec)
    active = [task for tasks in targets.values() for task in tasks.active]
    assert sorted(active) == sorted([TaskId("s", number) for number in range(5)] + [TaskId("t", 0), TaskId("t", 1)])
    assert set(targets) == {"a", "b", "c"}
