"""The phases of a task, and the moves between them that are legal."""

from __future__ import annotations

import itertools

import pytest

from streamsrt.membership.values import Role, Tasks
from streamsrt.tasks.manager.owned_task import STEPS, TRANSITIONS, OwnedTask, Phase, TaskStep
from tests.streamsrt.rig import Rig, number

LEGAL = {
    ("created", "restoring"),
    ("created", "standby"),
    ("restoring", "running"),
    ("restoring", "created"),
    ("running", "created"),
    ("standby", "created"),
    *((phase.value, "closed") for phase in Phase if phase is not Phase.CLOSED),
}


def test_the_table_holds_every_phase_and_just_the_legal_moves() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {(old.value, new.value) for old, following in TRANSITIONS.items() for new in following} == LEGAL


@pytest.mark.parametrize(("old", "new"), sorted(set(itertools.product([p.value for p in Phase], repeat=2)) - LEGAL))
def test_any_other_move_is_refused(rig: Rig, old: str, new: str) -> None:
    rig.manager.assign(Tasks(active=rig.tasks(0)), lambda _leaving: None)
    owned = next(iter(rig.manager))
    owned.phase = Phase(old)
    with pytest.raises(ValueError, match=f"can't go from {old} to {new}"):
        owned.enter(Phase(new))
    owned.phase = Phase.CREATED


# ------------------------------------------------------------------------------------------------------------- steps

ROLES: tuple[Role | None, ...] = ("active", "standby", "warmup", None)
PAIRS = sorted(set(itertools.product(ROLES, repeat=2)) - {(None, None)}, key=str)


def test_there_is_a_step_from_every_role_to_every_other() -> None:
    assert set(STEPS) == set(PAIRS)
    assert set(STEPS.values()) == set(TaskStep)


def wanted(rig: Rig, role: Role | None) -> Tasks:
    return Tasks() if role is None else Tasks(**{role: rig.tasks(0)})


@pytest.mark.parametrize(("now", "then"), PAIRS)
def test_an_assignment_does_what_the_table_says(rig: Rig, now: Role | None, then: Role | None) -> None:
    rig.network.write(("in", 0), [(b"a", number(1))])
    rig.start(wanted(rig, now))
    rig.move()
    before = next(iter(rig.manager), None)
    committed: list[OwnedTask] = []
    rig.manager.assign(wanted(rig, then), committed.extend)
    after = next(iter(rig.manager), None)
    step = STEPS[now, then]
    assert (None if after is None else after.role) == then
    # Who is still the same object keeps its stores open and what it has in memory.
    assert (after is before) == (step in (TaskStep.KEEP, TaskStep.PROMOTE, TaskStep.RENAME))
    assert (after is None) == (step is TaskStep.CLOSE)
    assert (before is None) == (step is TaskStep.OPEN)
    assert committed == ([before] if now == "active" and step is not TaskStep.KEEP else [])
    if before is not None and after is not before:
        assert before.phase is Phase.CLOSED
        assert not any(store.is_open for store in before.stores.values())
    if after is not None:
        phase = {"active": Phase.RUNNING, "standby": Phase.STANDBY, "warmup": Phase.STANDBY}
        goes_on = step in (TaskStep.KEEP, TaskStep.RENAME) and now is not None
        assert after.phase is (phase[now or then or "active"] if goes_on else Phase.CREATED)
        rig.manager.start_tasks(rig.clock_ms, "member", 1)
        rig.move()
        assert after.phase is phase[after.role]
