"""The table of task assignors."""

from __future__ import annotations

import pytest

from streamsrt.assignment.assignor import TASK_ASSIGNORS, AssignorSettings, TaskAssignmentSpec
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import NO_TASKS, TaskId


def test_each_is_found_by_its_name() -> None:
    assert all(name == assignor.name for name, assignor in TASK_ASSIGNORS.items())


@pytest.mark.parametrize("name", sorted(TASK_ASSIGNORS))
def test_each_gives_every_task_to_one_member(name: str) -> None:
    members = [AssignorMember(member, f"process of {member}", NO_TASKS) for member in "abc"]
    spec = TaskAssignmentSpec(members, {"s": 5, "t": 2}, frozenset({"s"}), AssignorSettings())
    targets = TASK_ASSIGNORS[name].assign(spec)
    active = [task for tasks in targets.values() for task in tasks.active]
    assert sorted(active) == sorted([TaskId("s", number) for number in range(5)] + [TaskId("t", 0), TaskId("t", 1)])
    assert set(targets) == {"a", "b", "c"}
