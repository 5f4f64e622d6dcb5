"""One step of one member towards its target, as a table of cases and for any sets of tasks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.assignment.reconcile import Current, Holders, MemberState, reconcile
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS
T0, T1, T2 = TaskId("0", 0), TaskId("0", 1), TaskId("0", 2)
FREE = Holders(lambda task: False, lambda task: False)


def tasks(active: str = "", standby: str = "", warmup: str = "") -> Tasks:
    named = {"0": T0, "1": T1, "2": T2}
    return Tasks(*(frozenset(named[letter] for letter in role) for role in (active, standby, warmup)))


def held(active: str = "", in_process: str = "") -> Holders:
    return Holders(lambda task: str(task.partition) in active, lambda task: str(task.partition) in in_process)


def step(current: Current, target: Tasks, owned: Tasks | None = None, holders: Holders = FREE) -> Current:
    return reconcile(current, target=target, target_epoch=9, owned=owned, held=holders)


def at(epoch: int, state: MemberState, assigned: Tasks, pending: Tasks = NO_TASKS) -> Current:
    return Current(epoch, epoch - 1, state, assigned, pending)


@pytest.mark.requirement("SG-219", "SG-221", "SG-223", "SG-224", "SG-227", "SG-228", "SG-229", "SG-230", "SG-232")
@pytest.mark.parametrize(
    ("current", "target", "owned", "holders", "expected"),
    [
        # Nothing to do, or nothing but the epoch.
        (at(9, STABLE, tasks("0")), tasks("0"), None, FREE, (9, STABLE, tasks("0"), NO_TASKS)),
        (at(8, STABLE, tasks("0")), tasks("0"), None, FREE, (9, STABLE, tasks("0"), NO_TASKS)),
        # Free tasks come at once; held ones are waited for, one by one.
        (at(8, STABLE, tasks("0")), tasks("012"), None, held("2"), (9, UNRELEASED, tasks("01"), NO_TASKS)),
        (at(9, UNRELEASED, tasks("01")), tasks("012"), None, FREE, (9, STABLE, tasks("012"), NO_TASKS)),
        # What is to be given back keeps the epoch back, and new active tasks.
        (at(8, STABLE, tasks("0")), tasks("1"), None, FREE, (8, UNREVOKED, NO_TASKS, tasks("0"))),
        (at(8, UNREVOKED, NO_TASKS, tasks("0")), tasks("1"), None, FREE, (8, UNREVOKED, NO_TASKS, tasks("0"))),
        (at(8, UNREVOKED, NO_TASKS, tasks("0")), tasks("1"), tasks("0"), FREE, (8, UNREVOKED, NO_TASKS, tasks("0"))),
        (at(8, UNREVOKED, NO_TASKS, tasks("02")), tasks("1"), tasks("0"), FREE, (8, UNREVOKED, NO_TASKS, tasks("0"))),
        (at(8, UNREVOKED, NO_TASKS, tasks("0")), tasks("1"), NO_TASKS, FREE, (9, STABLE, tasks("1"), NO_TASKS)),
        # A newer target meanwhile: on from what was confirmed.
        (at(7, UNREVOKED, tasks("1"), tasks("0")), tasks("0"), tasks("1"), FREE, (8, UNREVOKED, NO_TASKS, tasks("1"))),
        # What the member does not have need not be given back.
        (at(8, STABLE, tasks("0")), tasks("1"), NO_TASKS, FREE, (9, STABLE, tasks("1"), NO_TASKS)),
        # Standby tasks come beside revocations, and do not wait for other processes.
        (
            at(8, STABLE, tasks("0")),
            tasks("", "1"),
            None,
            held("1"),
            (8, UNREVOKED, tasks("", "1"), tasks("0")),
        ),
        (at(8, STABLE, NO_TASKS), tasks("", "1"), None, held("1", "1"), (9, UNRELEASED, NO_TASKS, NO_TASKS)),
        (at(8, STABLE, NO_TASKS), tasks("1"), None, held("", "1"), (9, UNRELEASED, NO_TASKS, NO_TASKS)),
        (at(8, STABLE, tasks("", "1")), NO_TASKS, None, FREE, (8, UNREVOKED, NO_TASKS, tasks("", "1"))),
        # Roles change in place: up when the active task is free, down at once.
        (at(8, STABLE, tasks("", "1")), tasks("1"), None, FREE, (9, STABLE, tasks("1"), NO_TASKS)),
        (at(8, STABLE, tasks("", "1")), tasks("1"), None, held("1"), (9, UNRELEASED, tasks("", "1"), NO_TASKS)),
        (at(8, STABLE, tasks("0", "1")), tasks("1"), None, FREE, (8, UNREVOKED, tasks("", "1"), tasks("0"))),
        (at(8, STABLE, tasks("0")), tasks("", "0"), None, FREE, (8, UNREVOKED, tasks("", "0"), tasks("0"))),
        (at(8, STABLE, tasks("", "", "1")), tasks("1"), None, FREE, (9, STABLE, tasks("1"), NO_TASKS)),
        (at(8, STABLE, tasks("", "", "1")), tasks("", "1"), None, FREE, (9, STABLE, tasks("", "1"), NO_TASKS)),
        (at(8, STABLE, NO_TASKS), tasks("", "", "1"), None, held("1"), (9, STABLE, tasks("", "", "1"), NO_TASKS)),
    ],
)
def test_a_step(
    current: Current,
    target: Tasks,
    owned: Tasks | None,
    holders: Holders,
    expected: tuple[int, MemberState, Tasks, Tasks],
) -> None:
    found = step(current, target, owned, holders)
    assert (found.epoch, found.state, found.assigned, found.pending) == expected


roles = st.dictionaries(st.sampled_from([T0, T1, T2]), st.sampled_from(["active", "standby", "warmup"]))


def of(choice: dict[TaskId, str]) -> Tasks:
    return Tasks(
        *(frozenset(t for t, role in choice.items() if role == wanted) for wanted in ("active", "standby", "warmup"))
    )


@pytest.mark.requirement("SG-234")
@settings(max_examples=300, deadline=None)
@given(has=roles, wants=roles)
def test_an_honest_member_gets_there_in_two_steps(has: dict[TaskId, str], wants: dict[TaskId, str]) -> None:
    current, target = at(8, STABLE, of(has)), of(wants)
    first = step(current, target)
    assert not (first.pending and first.assigned.active - current.assigned.active)
    assert first.assigned.active | first.pending.active >= current.assigned.active
    second = step(first, target, first.assigned)
    assert (second.epoch, second.state, second.assigned, second.pending) == (9, STABLE, target, NO_TASKS)
    assert step(second, target, target) is second


@pytest.mark.requirement("SG-237")
def test_within_a_process_a_state_directory_is_never_held_twice() -> None:
    wanted = {"A1": NO_TASKS, "A2": tasks("", "1")}
    members = {"A1": at(3, STABLE, tasks("", "1")), "A2": at(3, STABLE, NO_TASKS)}

    def beat(name: str, owned: Tasks | None = None) -> tuple[int, MemberState, Tasks]:
        others = [current for other, current in members.items() if other != name]

        def in_process(task: TaskId) -> bool:
            return any(task in current.assigned.passive | current.pending.passive for current in others)

        held_now = Holders(lambda task: False, in_process)
        members[name] = reconcile(members[name], target=wanted[name], target_epoch=4, owned=owned, held=held_now)
        assert sum(in_process(T1) for _ in others) + (T1 in members[name].assigned.standby) <= 1
        return members[name].epoch, members[name].state, members[name].assigned

    assert beat("A2") == (4, UNRELEASED, NO_TASKS)
    assert beat("A1", tasks("", "1")) == (3, UNREVOKED, NO_TASKS)
    assert beat("A2") == (4, UNRELEASED, NO_TASKS)
    assert beat("A1", NO_TASKS) == (4, STABLE, NO_TASKS)
    assert beat("A2") == (4, STABLE, tasks("", "1"))


@pytest.mark.requirement("SG-236")
def test_active_and_standby_swap_between_processes() -> None:
    """Scenario R2. A role that only changes keeps its state open: it is told in one step."""
    wanted = {"A": tasks("", "0"), "B": tasks("0")}
    members = {"A": at(7, STABLE, tasks("0")), "B": at(7, STABLE, tasks("", "0"))}

    def beat(name: str, owned: Tasks) -> tuple[int, MemberState, Tasks, Tasks]:
        other = members["B" if name == "A" else "A"]
        holders = Holders(lambda task: task in other.assigned.active | other.pending.active, lambda task: False)
        members[name] = reconcile(members[name], target=wanted[name], target_epoch=8, owned=owned, held=holders)
        return members[name].epoch, members[name].state, members[name].assigned, members[name].pending

    assert beat("A", tasks("0")) == (7, UNREVOKED, tasks("", "0"), tasks("0"))
    assert beat("B", tasks("", "0")) == (8, UNRELEASED, tasks("", "0"), NO_TASKS)
    assert beat("A", tasks("", "0")) == (8, STABLE, tasks("", "0"), NO_TASKS)
    assert beat("B", tasks("", "0")) == (8, STABLE, tasks("0"), NO_TASKS)
    assert beat("B", tasks("0")) == (8, STABLE, tasks("0"), NO_TASKS)
