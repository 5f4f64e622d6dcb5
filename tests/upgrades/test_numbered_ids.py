"""Subtopologies by number, as in Java, and by what they own: what becomes of an upgrade that changes their order.

Java's rule has two parts: subtopologies are numbered in the order of the program, and a task is what its id says. With both
a second version that begins with another table gets the partitions and the state of the wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamsrt.assignment import versions
from streamsrt.membership.topology_metadata import topology_metadata
from tests.upgrades.judging import WrongPairError, roll
from tests.upgrades.pairs import Pair
from tests.upgrades.programs import Part, Program, build
from tests.upgrades.rolling import SETTINGS, Plan

FIRST, SECOND = Part(label="p", topics=("a",), store="one"), Part(label="q", topics=("b",), store="other")
PAIR = Pair(0, Program(parts=(FIRST, SECOND)), Program(parts=(SECOND, FIRST)), ("reorder",))
PLAN = Plan(instances=3, fails_at=None, kills=0, is_sent_back=False)


def changelogs(program: Program, rule: Any) -> dict[str, set[str]]:
    """By subtopology id."""
    metadata = topology_metadata(build(program, "").topology, "app", subtopology_id=rule)
    return {part.subtopology_id: {t.name for t in part.state_changelog_topics} for part in metadata.subtopologies}


@pytest.fixture
def by_id_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A coordinator to which a task is what its id says."""

    def is_of_lead(self: versions.Versions, _epoch: int, subtopology_id: str) -> bool:
        return any(part.id == subtopology_id for part in self.lead.subtopologies)

    monkeypatch.setattr(versions, "_meeting", lambda parts, gone, coming: {})
    monkeypatch.setattr(versions.Versions, "is_of_lead", is_of_lead)
    versions.versions_of.cache_clear()
    yield
    versions.versions_of.cache_clear()


@pytest.mark.parametrize(("rule", "is_same"), [("hash", True), ("number", False)])
def test_an_id_stands_for_the_same_state_in_both_versions(rule: str, is_same: bool) -> None:
    old, new = (changelogs(program, rule) for program in (PAIR.old, PAIR.new))
    assert old.keys() == new.keys()
    assert (old == new) is is_same


@pytest.mark.usefixtures("by_id_alone")
def test_ids_of_what_subtopologies_own_keep_their_state() -> None:
    assert roll(PAIR, PLAN, settings={**SETTINGS, "subtopology.id": "hash"}) == "upgraded"


@pytest.mark.usefixtures("by_id_alone")
def test_javas_rule_gives_partitions_to_two_tasks() -> None:
    with pytest.raises(WrongPairError, match="owned twice"):
        roll(PAIR, PLAN, settings={**SETTINGS, "subtopology.id": "number"})


def test_numbers_are_harmless_where_the_coordinator_compares_what_tasks_own() -> None:
    assert roll(PAIR, PLAN, settings={**SETTINGS, "subtopology.id": "number"}) == "upgraded"
