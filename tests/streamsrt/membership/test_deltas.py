"""From open tasks to assigned ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.membership.deltas import delta
from streamsrt.membership.values import NOTHING, Tasks

T = [("s", number) for number in range(4)]


def tasks(active: str = "", standby: str = "", warmup: str = "") -> Tasks:
    return Tasks(*(frozenset(T[int(n)] for n in role) for role in (active, standby, warmup)))


@pytest.mark.requirement("SG-085", "SG-231")
def test_a_change_of_role_neither_closes_nor_opens() -> None:
    found = delta(tasks(active="0", standby="1", warmup="2"), tasks(active="12", standby="0"))
    assert (found.closed, found.opened) == (NOTHING, NOTHING)
    assert found.promoted == {T[1], T[2]}
    assert found.demoted == tasks(standby="0")


@pytest.mark.requirement("SG-085")
def test_new_tasks_open_and_gone_ones_close_and_the_rest_is_left_alone() -> None:
    found = delta(tasks(active="01", standby="2"), tasks(active="1", standby="3"))
    assert (found.closed, found.opened) == (tasks(active="0", standby="2"), tasks(standby="3"))
    assert (found.promoted, found.demoted, found.exchanged) == (frozenset(), NOTHING, NOTHING)


def test_standby_and_warmup_may_be_exchanged() -> None:
    assert delta(tasks(standby="0", warmup="1"), tasks(standby="1", warmup="0")).exchanged == tasks("", "1", "0")


def test_nothing_to_do_is_false() -> None:
    assert not delta(tasks(active="0"), tasks(active="0"))
    assert delta(NOTHING, tasks(active="0"))


roles = st.lists(st.integers(0, 3), min_size=4, max_size=4).map(
    lambda each: Tasks(*(frozenset(t for t, role in zip(T, each, strict=True) if role == i) for i in range(3)))
)


@given(roles, roles)
def test_applying_a_delta_gives_the_assignment(owned: Tasks, assigned: Tasks) -> None:
    found = delta(owned, assigned)
    changed = (
        found.promoted | found.demoted.standby | found.demoted.warmup | found.exchanged.standby | found.exchanged.warmup
    )
    active = (owned.active - found.closed.active - changed) | found.opened.active | found.promoted
    standby = (owned.standby - found.closed.standby - changed) | found.opened.standby
    warmup = (owned.warmup - found.closed.warmup - changed) | found.opened.warmup
    standby |= found.demoted.standby | found.exchanged.standby
    warmup |= found.demoted.warmup | found.exchanged.warmup
    assert Tasks(active, standby, warmup) == assigned
