"""Topology metadata against what Java Kafka Streams sends for the same programs."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.wire import types
from streamsrt.wire.messages import encode
from tests.oracle.programs import Case, build, case_name, cases, unsupported
from topology.graph.nodes import InternalTopic, Subtopology
from topology.graph.topology import Topology

# Kafka Streams sends no subtopologies at all for a program with a pattern, which its brokers don't support.
CASES = [
    case for case in cases() if case.get("heartbeat_topology", {}).get("subtopologies") and unsupported(case) is None
]

# Kafka Streams leaves two subtopologies that share a store apart where both connect it through their processor suppliers.
# Whether the topology follows it there is for the topology's own tests to say.
DIFFERENT = {
    # Java sends no patterns, which its brokers don't support.
    "05-names/regex-and-join",
    # Java forgets that the second join's topic must fit the repartition topic that both joins share.
    "05-names/two-joins-one-stream-repartitioned-opt-none",
    "05-names/two-joins-one-stream-repartitioned-opt-all",
    "05-names/state-store-by-connected-provider",
    # Java makes an inner join of it, whose changelog has other settings.
    "05-names/self-left-join-opt-single",
    # Java's changelog keeps the windows of a store supplier for size + grace only, though the store keeps them longer.
    "03-windows/tumbling-supplier-plain-window",
    "03-windows/tumbling-supplier-timestamped-window",
    "06-stores/headers-session-materialized-supplier",
    "06-stores/headers-window-materialized-supplier",
}


def as_json(topology: types.StreamsGroupHeartbeatRequest.Topology) -> dict[str, Any]:
    """In the form of the golden cases, with what Java leaves to the order of hash sets sorted."""
    return {
        "epoch": topology.epoch,
        "subtopologies": sorted(
            (
                {
                    "subtopologyId": each.subtopology_id,
                    "sourceTopics": each.source_topics,
                    "sourceTopicRegex": each.source_topic_regex,
                    "stateChangelogTopics": [_topic(topic) for topic in each.state_changelog_topics],
                    "repartitionSinkTopics": sorted(each.repartition_sink_topics),
                    "repartitionSourceTopics": [_topic(topic) for topic in each.repartition_source_topics],
                    "copartitionGroups": [
                        {
                            "sourceTopics": group.source_topics,
                            "sourceTopicRegex": group.source_topic_regex,
                            "repartitionSourceTopics": group.repartition_source_topics,
                        }
                        for group in each.copartition_groups
                    ],
                }
                for each in topology.subtopologies
            ),
            key=lambda each: each["subtopologyId"],
        ),
    }


def _topic(topic: Any) -> dict[str, Any]:
    configs = [{"key": config.key, "value": config.value} for config in topic.topic_configs]
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replicationFactor": topic.replication_factor,
        "topicConfigs": configs,
    }


def expected(case: Case) -> dict[str, Any]:
    golden = case["heartbeat_topology"]
    subtopologies = [
        {
            **each,
            # Kafka Streams sends source topics that serve as changelogs too, which KIP-1071 forbids.
            "stateChangelogTopics": [t for t in each["stateChangelogTopics"] if t["name"] not in each["sourceTopics"]],
            "repartitionSinkTopics": sorted(each["repartitionSinkTopics"]),
            "copartitionGroups": sorted(
                each["copartitionGroups"], key=lambda g: (g["sourceTopics"], g["sourceTopicRegex"])
            ),
        }
        for each in golden["subtopologies"]
    ]
    return {
        "epoch": golden["epoch"],
        "subtopologies": sorted(subtopologies, key=lambda each: str(each["subtopologyId"])),
    }


@pytest.mark.requirement("SG-108", "SG-109", "SG-110", "SG-111", "SG-112", "SG-113")
@pytest.mark.parametrize("case", [case for case in CASES if case_name(case) not in DIFFERENT], ids=case_name)
def test_the_metadata_is_that_of_kafka_streams(case: Case) -> None:
    topology = build(case).topology
    replication_factor = case.get("config", {}).get("replication.factor", -1)
    metadata = topology_metadata(topology, "app", subtopology_id="number", replication_factor=replication_factor)
    assert as_json(metadata) == expected(case)


@pytest.mark.requirement("SG-114")
def test_two_builds_give_the_same_bytes() -> None:
    for case in CASES[::10]:
        request = [
            types.StreamsGroupHeartbeatRequest(topology=topology_metadata(build(case).topology, "app"))
            for _ in range(2)
        ]
        assert encode(request[0], 0) == encode(request[1], 0)


def subtopology(**fields: Any) -> Subtopology:
    return Subtopology(**{"number": 3, "id": "c41f9a02", "digest": "d", "nodes": (), **fields})


def metadata_of(each: Subtopology, **options: Any) -> Any:
    return topology_metadata(Topology(subtopologies=(each,), digest="d", epoch=7), "app", **options)


@pytest.mark.requirement("SG-022")
def test_ids_are_hashes_or_numbers_and_the_epoch_is_the_topologys() -> None:
    each = subtopology(source_topics=("t",))
    assert metadata_of(each).epoch == 7
    assert metadata_of(each).subtopologies[0].subtopology_id == "c41f9a02"
    assert metadata_of(each, subtopology_id="number").subtopologies[0].subtopology_id == "3"


@pytest.mark.requirement("SG-108")
def test_patterns_are_sent_as_patterns() -> None:
    (sent,) = metadata_of(subtopology(source_topics=("b", "a"), source_topic_patterns=("p.*",))).subtopologies
    assert (sent.source_topics, sent.source_topic_regex) == (["a", "b"], ["p.*"])


@pytest.mark.requirement("SG-110")
def test_a_source_topic_that_serves_as_changelog_is_not_sent_as_one() -> None:
    reused = InternalTopic(name="t", kind="changelog", is_source=True)
    (sent,) = metadata_of(subtopology(source_topics=("t",), changelog_topics=(reused,))).subtopologies
    assert sent.state_changelog_topics == []


@pytest.mark.requirement("SG-112")
def test_indices_of_a_copartition_group_point_into_the_sorted_lists() -> None:
    each = subtopology(
        source_topics=("z", "b"),
        repartition_source_topics=(
            InternalTopic(name="y-repartition", kind="repartition", partitions=4),
            InternalTopic(name="a-repartition", kind="repartition"),
        ),
        copartition_groups=(("z", "y-repartition"), ("b", "a-repartition")),
    )
    (sent,) = metadata_of(each, replication_factor=3).subtopologies
    assert [(g.source_topics, g.repartition_source_topics) for g in sent.copartition_groups] == [([0], [0]), ([1], [1])]
    assert [(t.name, t.partitions) for t in sent.repartition_source_topics] == [
        ("app-a-repartition", 0),
        ("app-y-repartition", 4),
    ]
    assert {topic.replication_factor for topic in sent.repartition_source_topics} == {3}
