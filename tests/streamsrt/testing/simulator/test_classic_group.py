"""A thousand seeds with ``group.protocol=classic``, and with members that change between both protocols.

A run has a sixteenth of them, another one each time, and with ``--full`` all.

A seed that fails says how to repeat it; it becomes a test of its own in ``test_found.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from streamsrt.assignment.tasks import Tasks
from streamsrt.membership.classic.leading import outcome
from streamsrt.testing.simulator import NO_FAULTS, Faults, Protocols, SimulationFailure, simulate_seeds
from tests.streamsrt.testing.simulator.programs import AT_LEAST_ONCE, EXACTLY_ONCE, PROGRAMS, expected

_AT_ONCE = 10
STATIC = {"group.instance.id": "static"}
STANDBY = {"num.standby.replicas": 1}


class Group(NamedTuple):
    """``program`` of :data:`PROGRAMS`; ``count``: how many seeds there are of it in the thousand."""

    program: str
    protocol: Protocols
    count: int
    config: dict[str, Any] = EXACTLY_ONCE


GROUPS = [
    Group("word count", "classic", 150),
    Group("word count", "classic", 100, {**EXACTLY_ONCE, **STATIC}),
    Group("word count", "classic", 100, {**EXACTLY_ONCE, **STANDBY}),
    Group("word count", "classic", 50, AT_LEAST_ONCE),
    Group("stateless", "classic", 50),
    Group("join", "classic", 150),
    Group("join", "classic", 50, {**EXACTLY_ONCE, **STATIC, **STANDBY}),
    Group("on close", "classic", 50),
    Group("word count", "both", 100),
    Group("word count", "both", 50, {**EXACTLY_ONCE, **STATIC}),
    Group("stateless", "both", 20, AT_LEAST_ONCE),
    Group("join", "both", 80),
    Group("suppressed", "both", 50, {**EXACTLY_ONCE, **STANDBY}),
]


def simulate(group: Group, seeds: range, **arguments: Any) -> Counter[str]:
    """Runs the seeds; what happened how often."""
    program = PROGRAMS[group.program]
    is_exact = "processing.guarantee" in group.config
    given = {**(program.exactly_once if is_exact else program.at_least_once), **arguments}
    results = list(
        simulate_seeds(
            program.topology(),
            seeds=seeds,
            inputs=program.inputs,
            config=group.config,
            expected=expected(group.program, group.config),
            protocol=group.protocol,
            **given,
        )
    )
    assert len({result.digest for result in results}) == len(seeds)
    return sum((Counter(result.counts) for result in results), Counter())


@pytest.mark.parametrize(
    "group",
    [
        Group("join", "classic", 3),
        Group("word count", "classic", 3, {**EXACTLY_ONCE, **STATIC, **STANDBY}),
        Group("word count", "both", 6),
    ],
)
def test_a_few_seeds(group: Group) -> None:
    simulate(group, range(group.count))


PARTS = [(group, first) for group in GROUPS for first in range(0, group.count, _AT_ONCE)]


def test_they_are_a_thousand() -> None:
    assert _AT_ONCE * len(PARTS) == 1_000


@pytest.mark.long
@pytest.mark.share(16)
@pytest.mark.parametrize(("group", "first"), PARTS)
def test_the_seeds_of_a_thousand(group: Group, first: int) -> None:
    simulate(group, range(first, first + _AT_ONCE))


# --------------------------------------------------------------------------------------------------- what happens in them


def test_leaders_are_lost_while_the_others_wait_for_them() -> None:
    faults = replace(NO_FAULTS, lost_leaders=4, restarts=6)
    found = simulate(Group("word count", "classic", 2), range(2), faults=faults, chaos_s=30.0)
    assert found["is lost while it leads"] >= 4


def test_members_change_between_the_protocols() -> None:
    faults = replace(NO_FAULTS, protocol_changes=3)
    found = simulate(Group("word count", "both", 2), range(2), faults=faults, chaos_s=20.0)
    assert min(found["joins by classic"], found["joins by streams"]) >= 6


def test_a_leader_that_gives_tasks_before_others_have_let_them_go_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_early(member: Any, view: Any, target: Tasks, claims: Any) -> Tasks:
        return target

    monkeypatch.setattr(outcome, "given", too_early)
    faults = Faults(scalings=4, slow=0.3, varied=False)
    with pytest.raises(SimulationFailure) as caught:
        simulate(Group("word count", "classic", 60), range(60), faults=faults)
    assert "owned twice" in caught.value.what
