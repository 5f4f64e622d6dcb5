"""The sticky assignor: balance, stickiness, standby tasks, and the same result in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.sticky import assign
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks, grouped

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "assignments" / "sticky.txt"

CASES = {
    "one member": ([("a", "P1")], {"0": 3}, "", 0),
    "three processes": ([("a", "P1"), ("b", "P2"), ("c", "P3")], {"0": 4, "1": 4}, "", 0),
    "two threads and one": ([("a1", "P1"), ("a2", "P1"), ("b", "P2")], {"0": 6}, "", 0),
    "standby tasks": ([("a", "P1"), ("b", "P2"), ("c", "P3")], {"0": 3, "s": 3}, "s", 1),
    "two standby tasks, two processes": ([("a", "P1"), ("b", "P2")], {"s": 3}, "s", 2),
    "hashed ids": ([("x", "P9"), ("y", "P8")], {"c41f9a02": 3, "07b1e9d4": 2}, "07b1e9d4", 1),
}


def run_case(name: str) -> str:
    names, counts, stateful, replicas = CASES[name]
    members = [AssignorMember(member, process, NO_TASKS) for member, process in names]
    lines = [f"# {name}"]
    for step in ("first", "one more", "one less"):
        if step == "one more":
            members.append(AssignorMember("new", "P0", NO_TASKS))
        elif step == "one less":
            members = members[1:]
        targets = assign(
            members, task_counts=counts, stateful=frozenset(stateful.split()), num_standby_replicas=replicas
        )
        members = [AssignorMember(m.member_id, m.process_id, targets[m.member_id]) for m in members]
        lines.append(f"{step}:")
        lines += [f"  {m.member_id}: {text(m.previous.active)} / {text(m.previous.standby)}" for m in members]
    return "\n".join(lines)


def text(tasks: frozenset[TaskId]) -> str:
    return " ".join(f"{name}:{','.join(map(str, partitions))}" for name, partitions in grouped(tasks)) or "none"


def all_cases() -> str:
    return "\n\n".join(run_case(name) for name in CASES) + "\n"


@pytest.mark.requirement("SG-196")
@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_assignments_whatever_the_hash_seed(seed: str) -> None:
    code = "from tests.streamsrt.assignment.test_sticky import all_cases; print(all_cases(), end='')"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == GOLDEN.read_text(encoding="utf-8")


ids = st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.sampled_from(["P1", "P2", "P3"])), min_size=1)
counts = st.dictionaries(st.sampled_from(["0", "1", "s", "z"]), st.integers(1, 6), max_size=4)


def members_of(names: list[tuple[str, str]], previous: dict[str, Tasks] | None = None) -> list[AssignorMember]:
    return [
        AssignorMember(name, process, (previous or {}).get(name, NO_TASKS)) for name, process in dict(names).items()
    ]


@pytest.mark.requirement("SG-179", "SG-185", "SG-186", "SG-188", "SG-190")
@settings(max_examples=150, deadline=None)
@given(names=ids, task_counts=counts, replicas=st.integers(0, 2), gone=st.integers(0, 3))
def test_every_task_once_and_standby_tasks_elsewhere(
    names: list[tuple[str, str]], task_counts: dict[str, int], replicas: int, gone: int
) -> None:
    stateful = frozenset({"s", "z"})
    first = assign(members_of(names), task_counts=task_counts, stateful=stateful, num_standby_replicas=replicas)
    left = names[min(gone, len(names) - 1) :]
    processes = dict(left)
    result = assign(members_of(left, first), task_counts=task_counts, stateful=stateful, num_standby_replicas=replicas)
    every = {TaskId(name, p) for name, count in task_counts.items() for p in range(count)}
    active = [task for tasks in result.values() for task in tasks.active]
    assert sorted(active) == sorted(every)
    wanted = min(replicas, len(set(processes.values())) - 1)
    standby = [task for tasks in result.values() for task in tasks.standby]
    for task in every:
        assert standby.count(task) == (wanted if task.subtopology_id in stateful else 0)
    for process in set(processes.values()):
        held = [t for m, tasks in result.items() if processes[m] == process for t in (*tasks.active, *tasks.standby)]
        assert len(held) == len(set(held))


@pytest.mark.requirement("SG-191")
@settings(max_examples=100, deadline=None)
@given(count=st.integers(1, 5), tasks=st.integers(1, 30), joined=st.integers(0, 3))
def test_few_moves_and_equal_shares(count: int, tasks: int, joined: int) -> None:
    names = [(f"m{i}", f"P{i}") for i in range(count)]
    first = assign(members_of(names), task_counts={"0": tasks}, stateful=frozenset(), num_standby_replicas=0)
    more = names + [(f"n{i}", f"Q{i}") for i in range(joined)]
    second = assign(members_of(more, first), task_counts={"0": tasks}, stateful=frozenset(), num_standby_replicas=0)
    sizes = [len(target.active) for target in second.values()]
    assert max(sizes) - min(sizes) <= 1
    moved = sum(len(first[name].active - second[name].active) for name, _ in names)
    assert moved == sum(len(second[name].active) for name, _ in more[count:])


@pytest.mark.requirement("SG-197")
@settings(max_examples=150, deadline=None)
@given(names=ids, task_counts=counts, replicas=st.integers(0, 1))
def test_its_own_result_stays(names: list[tuple[str, str]], task_counts: dict[str, int], replicas: int) -> None:
    stateful = frozenset({"s", "z"})
    targets: dict[str, Tasks] = {}
    for _ in range(2):
        last = targets
        members = members_of(names, last)
        targets = assign(members, task_counts=task_counts, stateful=stateful, num_standby_replicas=replicas)
    assert targets == last


@pytest.mark.requirement("SG-120", "SG-121", "SG-122")
def test_a_stale_member_only_loses() -> None:
    had = Tasks(frozenset({TaskId("0", 0), TaskId("0", 1), TaskId("0", 2)}))
    members = [AssignorMember("old", "P1", had, is_stale=True), AssignorMember("new", "P2", NO_TASKS)]
    result = assign(members, task_counts={"0": 8}, stateful=frozenset(), num_standby_replicas=0)
    assert result["old"].active == had.active
    assert len(result["new"].active) == 5
    result = assign(members, task_counts={"0": 4}, stateful=frozenset(), num_standby_replicas=0)
    assert result["old"].active < had.active
    assert len(result["old"].active) == 2


def test_without_a_member_that_may_take_tasks_they_stay_unassigned() -> None:
    members = [AssignorMember("old", "P1", NO_TASKS, is_stale=True)]
    result = assign(members, task_counts={"0": 2}, stateful=frozenset(), num_standby_replicas=0)
    assert result == {"old": NO_TASKS}
