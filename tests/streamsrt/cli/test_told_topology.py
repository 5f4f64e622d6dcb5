"""The subtopologies of a classic group, by the hashes that its members tell and the names in the cluster."""

from __future__ import annotations

from streamsrt.cli.told_topology import told_subtopologies
from streamsrt.membership.told_parts import parts_tag
from streamsrt.membership.topology_metadata import topology_metadata
from tests.streamsrt.cli.test_told_state import telling
from tests.streamsrt.membership.test_told_parts import counted

TOPICS = ["in", "out", "app-by-repartition", "app-counts-0-changelog", "app-counts-1-changelog"]


def test_names_are_found_in_the_cluster() -> None:
    metadata = topology_metadata(counted(["in"], stores=2), "app")
    first, second = told_subtopologies([telling({}), telling(parts_tag(metadata))], TOPICS)
    assert (first.source_topics, first.repartition_sink_topics) == (["in"], ["app-by-repartition"])
    assert [topic.name for topic in second.repartition_source_topics] == ["app-by-repartition"]
    assert [topic.name for topic in second.state_changelog_topics] == TOPICS[3:]
    assert [each.subtopology_id for each in (first, second)] == [part.subtopology_id for part in metadata.subtopologies]


def test_without_all_names_nothing_is_known() -> None:
    tags = parts_tag(topology_metadata(counted(["in"], stores=2), "app"))
    assert told_subtopologies([telling(tags)], TOPICS[1:]) == []
    assert told_subtopologies([telling({})], TOPICS) == []
    assert told_subtopologies([], TOPICS) == []
