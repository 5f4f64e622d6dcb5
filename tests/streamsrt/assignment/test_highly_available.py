"""The assignor highly_available: state first, balance by warm-up tasks, and the same result in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.assignment import highly_available, sticky
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from tests.streamsrt.assignment.test_sticky import text

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "assignments" / "highly_available.txt"
LAG = 100
S0, S1, S2, S3 = (TaskId("s", partition) for partition in range(4))


def tasks(active: str = "", standby: str = "", warmup: str = "") -> Tasks:
    return Tasks(*(frozenset(TaskId("s", int(digit)) for digit in role) for role in (active, standby, warmup)))


def member(
    name: str,
    process: str,
    had: Tasks = NO_TASKS,
    *,
    at: dict[TaskId, int] | None = None,
    ends: dict[TaskId, int] | None = None,
    runs: bool = True,
    stale: bool = False,
    tags: dict[str, str] | None = None,
) -> AssignorMember:
    """``at``: the offsets that it reports, None if it reports none; ``runs``: it holds the active tasks of ``had``."""
    return AssignorMember(name, process, had, stale, had.active if runs else frozenset(), at, ends or {}, tags or {})


def assign(
    *members: AssignorMember,
    counts: dict[str, int] | None = None,
    standbys: int = 0,
    warmups: int = 2,
    rack_tags: tuple[str, ...] = (),
) -> dict[str, Tasks]:
    return highly_available.assign(
        members,
        task_counts={"s": 4} if counts is None else counts,
        stateful=frozenset({"s", "z"}),
        num_standby_replicas=standbys,
        num_warmup_replicas=warmups,
        acceptable_recovery_lag=LAG,
        rack_tags=rack_tags,
    )


ENDS = {S0: 1000, S1: 1000, S2: 1000, S3: 1000}


@pytest.mark.requirement("SG-192", "SG-193", "SG-189")
def test_a_new_process_gets_warm_up_tasks_and_the_owner_keeps_running() -> None:
    a = member("a", "P1", tasks("0123"), at=ENDS, ends=ENDS)
    found = assign(a, member("b", "P2", at={}))
    assert found == {"a": tasks("0123"), "b": tasks("", "", "23")}
    found = assign(a, member("b", "P2", at={}), warmups=1)
    assert found == {"a": tasks("0123"), "b": tasks("", "", "2")}


@pytest.mark.requirement("SG-184")
def test_a_warm_up_task_that_has_caught_up_becomes_active_there_and_the_next_one_begins() -> None:
    a = member("a", "P1", tasks("0123"), at=ENDS, ends=ENDS)
    late = member("b", "P2", tasks("", "", "2"), at={S2: 899}, ends={S2: 1000})
    assert assign(a, late, warmups=1) == {"a": tasks("0123"), "b": tasks("", "", "2")}
    near = member("b", "P2", tasks("", "", "2"), at={S2: 900}, ends={S2: 1000})
    assert assign(a, near, warmups=1) == {"a": tasks("013"), "b": tasks("2", "", "3")}
    # Three processes have it by now, so that it need not move: then it is no warm-up task any more either.
    three = [
        member("a", "P1", tasks("01"), at=ENDS, ends=ENDS),
        member("b", "P2", tasks("2", "", "3"), at={S2: 1000, S3: 990}),
        member("c", "P3", tasks("3"), at={S3: 1000}),
    ]
    assert assign(*three) == {"a": tasks("01"), "b": tasks("2"), "c": tasks("3")}


@pytest.mark.requirement("SG-194", "SG-214")
def test_where_nobody_is_caught_up_the_most_state_decides() -> None:
    ends = dict.fromkeys((S0, S1), 5000)
    a = member("a", "P1", at={S0: 10, S1: 2000}, ends=ends)
    b = member("b", "P2", at={S0: 3000, S1: 20}, ends=ends)
    found = assign(a, b, counts={"s": 2})
    assert (found["a"].active, found["b"].active) == ({S1}, {S0})
    # The same without any known end.
    found = assign(replace(a, end_offsets={}), replace(b, end_offsets={}), counts={"s": 2})
    assert (found["a"].active, found["b"].active) == ({S1}, {S0})


@pytest.mark.requirement("SG-195")
def test_without_an_end_offset_nobody_is_caught_up() -> None:
    a = member("a", "P1", at={S0: 1000}, runs=False)
    b = member("b", "P2", at={S0: 990})
    assert assign(a, b, counts={"s": 1})["a"].active == {S0}
    # With one, the standby task that is within the lag takes over from an owner that has to restore.
    a = member("a", "P1", tasks("0"), at={S0: 10}, ends={S0: 1000})
    b = member("b", "P2", tasks("", "0"), at={S0: 990})
    assert assign(a, b, counts={"s": 1}, standbys=1) == {"a": tasks("", "", "0"), "b": tasks("0")}


@pytest.mark.requirement("SG-208", "SG-213")
def test_the_last_report_of_a_process_and_the_newest_end_count() -> None:
    a1 = member("a1", "P1", at={S0: 1000})
    a2 = member("a2", "P1", at={S0: 10})
    b = member("b", "P2", at={S0: 950}, ends={S0: 900})
    c = member("c", "P3", at={}, ends={S0: 1000})
    assert assign(a1, a2, b, c, counts={"s": 1})["b"].active == {S0}
    found = assign(a2, a1, b, c, counts={"s": 1})
    assert found["a1"].active | found["a2"].active == {S0}


def test_what_the_owner_of_a_task_reports_counts_before_what_lies_on_the_disk_of_its_process() -> None:
    a = member("a", "P1", tasks("0"), at={S0: 1000}, ends={S0: 1000})
    warm = member("b1", "P2", tasks("", "", "0"), at={S0: 990}, ends={S0: 1000})
    late = member("b2", "P2", at={S0: 10})
    c = member("c", "P1", tasks("123"), at=ENDS, ends=ENDS)
    for order in ((a, c, warm, late), (a, c, late, warm)):
        assert assign(*order)["b1"].active == {S0}


def test_members_that_report_no_offsets_are_assigned_as_by_sticky() -> None:
    a = member("a", "P1", tasks("0123"))
    found = assign(a, member("b", "P2"), standbys=1)
    assert found == sticky.assign(
        [a, member("b", "P2")], task_counts={"s": 4}, stateful=frozenset("s"), num_standby_replicas=1
    )
    assert assign(a, member("b", "P2", at={}), warmups=0)["b"].active == {S2, S3}


def test_an_owner_that_died_is_followed_by_the_standby_task_that_has_its_state() -> None:
    b = member("b", "P2", tasks("", "01"), at={S0: 1000, S1: 1000})
    c = member("c", "P3", tasks("23", "", ""), at=ENDS, ends=ENDS)
    found = assign(b, c)
    assert found["b"].active == {S0, S1}
    assert found["c"].active == {S2, S3}


@pytest.mark.requirement("SG-188", "SG-190")
def test_standby_tasks_of_tasks_with_different_tags() -> None:
    zones = {"a": "1", "b": "1", "c": "2", "d": "2"}
    members = [member(name, f"P-{name}", tags={"zone": zone}) for name, zone in zones.items()]
    found = assign(*members, counts={"s": 8, "free": 3}, standbys=1, rack_tags=("zone",))
    for name, given_tasks in found.items():
        for task in given_tasks.active:
            others = [zones[other] for other, had in found.items() if task in had.standby]
            assert others == ([] if task.subtopology_id == "free" else [str(3 - int(zones[name]))])
    sizes = [len(given_tasks.standby) for given_tasks in found.values()]
    assert max(sizes) - min(sizes) <= 1
    # More copies than zones: the second standby task goes where there is room.
    found = assign(*members, counts={"s": 4}, standbys=2, rack_tags=("zone",))
    assert sum(len(given_tasks.standby) for given_tasks in found.values()) == 8


@pytest.mark.requirement("SG-120", "SG-121")
def test_a_stale_member_gets_no_warm_up_task() -> None:
    a = member("a", "P1", tasks("0123"), at=ENDS, ends=ENDS)
    found = assign(a, member("b", "P2", at={}, stale=True))
    assert found == {"a": tasks("0123"), "b": NO_TASKS}
    found = assign(member("b", "P2", tasks("01"), at=ENDS, ends=ENDS, stale=True), member("c", "P3", at={}))
    assert found["b"] == tasks("01")
    assert found["c"].active == {S2, S3}


COUNTS = {"0": 2, "s": 4, "z": 3}
EVERY = [TaskId(name, partition) for name, count in COUNTS.items() for partition in range(count)]
STATEFUL = [task for task in EVERY if task.subtopology_id in "sz"]
reports = st.none() | st.dictionaries(st.sampled_from(STATEFUL), st.sampled_from([0, 500, 950, 1000]))


@st.composite
def groups(draw: st.DrawFn) -> list[AssignorMember]:
    """A group that was assigned before: some members are gone, some new; what they report is anything."""
    names = [f"m{i}" for i in range(draw(st.integers(1, 6)))]
    before = [AssignorMember(name, draw(st.sampled_from(["P1", "P2", "P3"])), NO_TASKS) for name in names]
    had = assign(*before[: draw(st.integers(0, len(names)))], counts=COUNTS, standbys=draw(st.integers(0, 1)))
    left = before[draw(st.integers(0, len(names) - 1)) :]
    found = []
    for each in left:
        previous = had.get(each.member_id, NO_TASKS)
        offsets = draw(reports)
        ends = dict.fromkeys(draw(st.sets(st.sampled_from(STATEFUL))), 1000)
        running = frozenset(task for task in previous.active if draw(st.booleans()))
        found.append(
            replace(
                each,
                previous=previous,
                offsets=offsets,
                end_offsets=ends if offsets is not None else {},
                running=running,
            )
        )
    return found


@pytest.mark.requirement("SG-179", "SG-184", "SG-185", "SG-186", "SG-188", "SG-189", "SG-190", "SG-196", "SG-197")
@settings(max_examples=300, deadline=None)
@given(
    group=groups(), standbys=st.integers(0, 2), warmups=st.integers(0, 3), shuffled=st.randoms(use_true_random=False)
)
def test_what_always_holds(group: list[AssignorMember], standbys: int, warmups: int, shuffled: object) -> None:
    found = assign(*group, counts=COUNTS, standbys=standbys, warmups=warmups)
    processes = {each.member_id: each.process_id for each in group}
    active = [task for given_tasks in found.values() for task in given_tasks.active]
    assert sorted(active) == sorted(EVERY)
    warming = [(task, name) for name, given_tasks in found.items() for task in given_tasks.warmup]
    assert len(warming) <= warmups
    for process in set(processes.values()):
        held = [
            task
            for name, had in found.items()
            if processes[name] == process
            for task in (*had.active, *had.standby, *had.warmup)
        ]
        assert len(held) == len(set(held))
    for given_tasks in found.values():
        assert not any(task.subtopology_id == "0" for task in given_tasks.passive)
    for task in STATEFUL:
        copies = sum(task in given_tasks.standby for given_tasks in found.values())
        elsewhere = len(set(processes.values())) - 1 - sum(task == warm for warm, _ in warming)
        assert copies == min(standbys, elsewhere)
    for task, name in warming:
        ends = [each.end_offsets[task] for each in group if task in each.end_offsets]
        reported = [each for each in group if each.process_id == processes[name] and task in (each.offsets or {})]
        # Who has the task counts before who has its state on disk, and then the last one.
        offsets = [(each.offsets or {})[task] for each in sorted(reported, key=lambda each: task in each.end_offsets)]
        assert not ends or not offsets or max(ends) - offsets[-1] > LAG
    again = [replace(each, previous=found[each.member_id]) for each in group]
    assert assign(*again, counts=COUNTS, standbys=standbys, warmups=warmups) == found


def text_of(found: dict[str, Tasks]) -> list[str]:
    return [
        f"  {name}: {text(had.active)} / {text(had.standby)} / {text(had.warmup)}"
        for name, had in sorted(found.items())
    ]


def all_cases() -> str:
    """A group of three to which two processes come, one of them with old state, until nothing moves any more."""
    lines = []
    for standbys in (0, 1):
        lines.append(f"# {standbys} standby tasks")
        group = [member(f"m{i}", f"P{i}", at={}, tags={"zone": str(i % 2)}) for i in range(3)]
        ends = {TaskId("s", partition): 1000 for partition in range(12)}
        for step in range(5):
            found = assign(*group, counts={"s": 12, "0": 4}, standbys=standbys, rack_tags=("zone",) * standbys)
            lines += [f"step {step}:", *text_of(found)]
            if step == 0:
                old = {TaskId("s", 0): 400, TaskId("s", 5): 980}
                group += [member("m3", "P3", at=old, tags={"zone": "1"}), member("n", "P4", at={}, tags={"zone": "0"})]
            group = [grown(each, found.get(each.member_id, NO_TASKS), ends) for each in group]
    return "\n".join(lines) + "\n"


def grown(each: AssignorMember, had: Tasks, ends: dict[TaskId, int]) -> AssignorMember:
    offsets = dict(each.offsets or {}) | {task: 1000 for task in had.active | had.passive if task in ends}
    return replace(each, previous=had, running=had.active, offsets=offsets, end_offsets=ends)


@pytest.mark.requirement("SG-182", "SG-196")
@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_assignments_whatever_the_hash_seed(seed: str) -> None:
    code = "from tests.streamsrt.assignment.test_highly_available import all_cases; print(all_cases(), end='')"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == GOLDEN.read_text(encoding="utf-8")
