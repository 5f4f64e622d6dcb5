"""Pairs of versions by the simulator: what the comparison of two versions says is what happens.

``python -m tests.upgrades --pairs 300`` runs hundreds. A pair that is wrong says what happened last; what it has found
becomes a test of the code that was wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from streamsrt.errors import TopologyMismatchError
from streamsrt.runtime.store_origins import RunningMember, check_origins, marks_tag
from tests.upgrades.judging import MISREAD, WrongPairError, compared, incompatible, is_seen_by_group, roll
from tests.upgrades.pairs import CHANGES, Pair, pair
from tests.upgrades.programs import Part, Program, build
from tests.upgrades.rolling import CLASSIC, Plan, plan_of
from topology.graph.diff import Verdict
from topology.graph.topology import Topology

PAIRS = range(len(CHANGES) + 4)
PLAIN = Plan(instances=2, fails_at=None, kills=0, is_sent_back=False)


def test_every_kind_of_change_has_its_pair() -> None:
    made = {name for seed in range(len(CHANGES)) for name in pair(seed).changes}
    assert made == set(CHANGES)


def test_pairs_have_every_verdict_and_upgrades_go_every_way() -> None:
    verdicts = Counter(compared(pair(seed)).verdict for seed in range(300))
    assert set(verdicts) >= {Verdict.CARRIED_OVER, Verdict.REBUILT_OR_ORPHANED, Verdict.INCOMPATIBLE}
    plans = [plan_of(seed) for seed in range(300)]
    assert {plan.fails_at for plan in plans} == {None, 0, 1, 25}
    assert {plan.is_sent_back for plan in plans} == {True, False}


@pytest.mark.parametrize("seed", PAIRS)
def test_what_diff_says_happens(seed: int) -> None:
    roll(pair(seed))


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize("first", range(len(PAIRS), 300, 25))
def test_many_pairs(first: int) -> None:
    for seed in range(first, first + 25):
        roll(pair(seed))


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_what_diff_says_happens_in_a_classic_group(seed: int) -> None:
    roll(pair(seed), settings=CLASSIC)


def _refusal(new: Topology, old: Topology) -> str:
    """What an instance of the new version is told beside one of the old; empty if it is accepted."""
    try:
        check_origins("app", replace(new, epoch=1), [RunningMember("m", 0, marks_tag(old))])
    except TopologyMismatchError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_what_members_tell_refuses_what_diff_calls_incompatible_and_nothing_else(first: int) -> None:
    for seed in range(first, first + 25):
        found = compared(pair(seed))
        old, new = (build(program, "").topology for program in (pair(seed).old, pair(seed).new))
        refusal = _refusal(new, old)
        known = [change.name for change in incompatible(found) if not is_seen_by_group(change)]
        assert [name for name in known if repr(name) not in refusal] == [], f"{pair(seed)}\n{refusal}"
        assert not refusal or (MISREAD in refusal and found.verdict is Verdict.INCOMPATIBLE), f"{pair(seed)}\n{refusal}"


def test_a_comparison_that_is_wrong_is_found() -> None:
    """Judged by what another pair of versions would mean, an upgrade is wrong."""
    one, renamed = Part(label="p", topics=("a",), store="kept"), Part(label="p", topics=("a",), store="other")
    old = Program(parts=(one,))
    kept = Pair(0, old, Program(parts=(one, Part(label="q", topics=("b",), store="more"))), ("add",))
    assert roll(kept, PLAIN) == "upgraded"
    with pytest.raises(WrongPairError, match="store kept of p, which is orphaned: has and should have"):
        roll(kept, PLAIN, said=compared(Pair(0, old, Program(parts=(renamed,)), ("rename",))))
