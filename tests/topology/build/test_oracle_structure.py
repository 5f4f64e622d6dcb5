"""Every program of the oracle that can be said has the structure that Kafka Streams gives it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.oracle.programs import Case, build, case_name, cases, unsupported
from topology import SlidingWindows, Topology, TopologyError, WindowError
from topology.graph.nodes import InternalTopic, Subtopology, internal_topic_name

CASES = {case_name(case): case for case in cases()}
MISSING = {name: reason for name, case in CASES.items() if (reason := unsupported(case)) is not None}
SUPPORTED = sorted(set(CASES) - set(MISSING))
BUILT_HERE = {
    # Java names the repartition topics of both groups alike.
    "05-names/cogroup-shared-opt-all",
    "05-names/cogroup-shared-opt-none",
}
REFUSED = [name for name in SUPPORTED if "build_error" in CASES[name] and name not in BUILT_HERE]
BUILT = [name for name in SUPPORTED if "build_error" not in CASES[name]]

DIFFERENT_ON_PURPOSE = {
    # Java leaves two subtopologies that own one changelog, whose tasks would overwrite each other's state.
    "05-names/state-store-by-connected-provider",
    # Java makes an inner join of it, which loses the records without a partner.
    "05-names/self-left-join-opt-single",
}

OTHER_TOPIC_SETTINGS = {
    # Java's changelog keeps the windows of a store supplier for size + grace only, though the store keeps them longer.
    "03-windows/tumbling-supplier-plain-window",
    "03-windows/tumbling-supplier-timestamped-window",
    "06-stores/headers-session-materialized-supplier",
    "06-stores/headers-window-materialized-supplier",
}

OTHER_GROUPS_ON_PURPOSE = {
    # Java forgets that the second join's topic must fit the repartition topic that both joins share.
    "05-names/two-joins-one-stream-repartitioned-opt-none",
    "05-names/two-joins-one-stream-repartitioned-opt-all",
    # Java groups the topics before the repartition topics of cogrouped streams, and can't say so to the broker.
    "02-aggregation/cogroup-repartition-first",
    "05-names/cogroup-two-repartitions-named-groups-opt-all",
    "05-names/cogroup-two-repartitions-named-groups-opt-none",
}


@pytest.mark.parametrize("name", [name for name in BUILT if name not in DIFFERENT_ON_PURPOSE])
def test_description(name: str) -> None:
    described = build(CASES[name]).topology.describe()
    # Java prints the class of a topic extractor, which has another name here.
    assert re.sub(r"extractor class: \S+\)", "extractor class: <extractor>)", described) == CASES[name]["describe"]


@pytest.mark.parametrize(
    "name", sorted({*BUILT} - DIFFERENT_ON_PURPOSE - OTHER_TOPIC_SETTINGS - OTHER_GROUPS_ON_PURPOSE)
)
def test_topics_and_copartition_groups(name: str) -> None:
    case = CASES[name]
    # Java finds topics of patterns only when it runs; a subtopology without other topics is left out.
    known = [
        part
        for part in heartbeat(build(case).topology, case)
        if part["sourceTopics"] or part["repartitionSourceTopics"]
    ]
    assert known == case["heartbeat_topology"]["subtopologies"]


def test_joins_of_one_repartitioned_stream_share_one_copartition_group() -> None:
    case = CASES["05-names/two-joins-one-stream-repartitioned-opt-none"]
    (group,) = build(case).topology.subtopologies[1].copartition_groups
    assert group == ("KSTREAM-KEY-SELECT-0000000001-repartition", "r", "x")


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("02-aggregation/cogroup-repartition-first", ("co-repartition", "in2")),
        ("05-names/cogroup-two-repartitions-named-groups-opt-none", ("ga-repartition", "gb-repartition")),
        ("05-names/cogroup-shared-opt-none", ("co-2-repartition", "co-repartition")),
    ],
)
def test_cogrouped_streams_share_a_copartition_group_behind_their_repartition_topics(
    name: str, topics: tuple[str, str]
) -> None:
    subtopology = build(CASES[name]).topology.subtopologies[-1]
    assert subtopology.copartition_groups == (topics,)
    read = {topic.name for topic in subtopology.repartition_source_topics} | set(subtopology.source_topics)
    assert read.issuperset(topics)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_java(name: str) -> None:
    with pytest.raises(TopologyError):
        build(CASES[name])


def test_windows_that_fail_in_java_when_they_run_are_refused() -> None:
    """Sliding windows without a difference: there a window would end before it begins."""
    assert CASES["03-windows/sliding-zero-diff"]["error"]["step"] == 0
    with pytest.raises(WindowError, match="greater than 0 ms"):
        SlidingWindows(0)


def test_a_store_brought_by_two_processors_joins_their_subtopologies() -> None:
    topology = build(CASES["05-names/state-store-by-connected-provider"]).topology
    (subtopology,) = topology.subtopologies
    assert subtopology.source_topics == ("a", "b")
    assert [store.name for store in subtopology.stores] == ["shared"]


def test_how_many_cases_are_supported() -> None:
    """A case that stops being supported is a regression; a new operator raises the count."""
    # Tables of values, which other tests read, and settings that only Kafka's own tests know.
    assert len(CASES) - len(SUPPORTED) <= 9, "\n".join(missing_lines())


def test_each_unsupported_case_says_what_it_misses() -> None:
    assert {reason.partition(":")[0] for reason in MISSING.values()} <= {
        "unsupported operator",
        "unsupported option",
        "unsupported program",
        "unsupported setting",
        "unsupported windows",
    }


def missing_lines() -> list[str]:
    return [f"{count:4} {reason}" for reason, count in Counter(MISSING.values()).most_common()]


def heartbeat(topology: Topology, case: Case) -> list[dict[str, Any]]:
    replication = int(case.get("config", {}).get("replication.factor", -1))
    return [_heartbeat_subtopology(subtopology, replication) for subtopology in topology.subtopologies]


def _heartbeat_subtopology(subtopology: Subtopology, replication: int) -> dict[str, Any]:
    repartitions = [topic.name for topic in subtopology.repartition_source_topics]
    return {
        "subtopologyId": str(subtopology.number),
        "sourceTopics": list(subtopology.source_topics),
        "sourceTopicRegex": [],
        "stateChangelogTopics": sorted(
            (_topic(topic, replication) for topic in subtopology.changelog_topics), key=lambda topic: str(topic["name"])
        ),
        "repartitionSinkTopics": [internal_topic_name("app", name) for name in subtopology.repartition_sink_topics],
        "repartitionSourceTopics": [_topic(topic, replication) for topic in subtopology.repartition_source_topics],
        "copartitionGroups": [
            {
                "sourceTopics": [i for i, topic in enumerate(subtopology.source_topics) if topic in group],
                "sourceTopicRegex": [],
                "repartitionSourceTopics": [i for i, topic in enumerate(repartitions) if topic in group],
            }
            for group in subtopology.copartition_groups
        ],
    }


def _topic(topic: InternalTopic, replication: int) -> dict[str, Any]:
    return {
        "name": topic.name if topic.is_source else internal_topic_name("app", topic.name),
        "partitions": topic.partitions or 0,
        "replicationFactor": replication,
        "topicConfigs": [{"key": key, "value": value} for key, value in topic.configs],
    }
