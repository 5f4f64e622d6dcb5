"""What changelogs are called is known in two packages that may not import each other."""

from __future__ import annotations

from streamsrt.assignment.internal_topics import CHANGELOG_SUFFIX, is_changelog
from topology.graph.nodes import internal_topic_name
from topology.spec import names


def test_a_changelog_of_a_program_is_called_one() -> None:
    assert names.CHANGELOG_SUFFIX == CHANGELOG_SUFFIX
    assert is_changelog(internal_topic_name("app", f"counts{names.CHANGELOG_SUFFIX}"))
    assert not is_changelog("app-counts-repartition")
