"""The phases of a task, and the moves between them that are legal."""

from __future__ import annotations

import itertools

import pytest

from streamsrt.membership.values import Tasks
from streamsrt.tasks.owned_task import TRANSITIONS, Phase
from tests.streamsrt.rig import Rig

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
    with pytest.raises(ValueError, match=f"no way from {old} to {new}"):
        owned.enter(Phase(new))
    owned.phase = Phase.CREATED
