"""Topologies that applications have: the coordinator takes each, has its internal topics made and gives out its tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

from coordinator.group.config import GroupConfig
from coordinator.group.values import CreateInternalTopics, GroupRequest, RequestContext
from coordinator.shard.shard import EventOutcome, Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire import types
from tests.coordinator.group.memory_log import MemoryLog
from tests.oracle.programs import Case, build, case_name, cases, unsupported
from topology import JoinWindows, KStream, KTable, StreamsBuilder, Topology, TopologyError, serdes

Heartbeat = types.StreamsGroupHeartbeatRequest
CASES = list(cases())
JAVA = [case for case in CASES if "heartbeat_topology" in case]
OURS = [case for case in CASES if unsupported(case) is None and "build_error" not in case]
QUICK = GroupConfig.parse(
    {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
)
PARTITIONS = 3


def as_sent(topology: dict[str, Any]) -> Heartbeat.Topology:
    """The topology of a golden case as a message."""
    return Heartbeat.Topology(
        epoch=topology["epoch"],
        subtopologies=[
            Heartbeat.Subtopology(
                subtopology_id=part["subtopologyId"],
                source_topics=part["sourceTopics"],
                source_topic_regex=part["sourceTopicRegex"],
                state_changelog_topics=[_topic_info(topic) for topic in part["stateChangelogTopics"]],
                repartition_sink_topics=part["repartitionSinkTopics"],
                repartition_source_topics=[_topic_info(topic) for topic in part["repartitionSourceTopics"]],
                copartition_groups=[
                    Heartbeat.CopartitionGroup(
                        source_topics=group["sourceTopics"],
                        source_topic_regex=group["sourceTopicRegex"],
                        repartition_source_topics=group["repartitionSourceTopics"],
                    )
                    for group in part["copartitionGroups"]
                ],
            )
            for part in topology["subtopologies"]
        ],
    )


def _topic_info(topic: dict[str, Any]) -> Heartbeat.TopicInfo:
    return Heartbeat.TopicInfo(
        name=topic["name"],
        partitions=topic["partitions"],
        replication_factor=topic["replicationFactor"],
        topic_configs=[Heartbeat.KeyValue(key=each["key"], value=each["value"]) for each in topic["topicConfigs"]],
    )


class Member:
    """The first member of a group, and the topics that there are for it."""

    def __init__(self, topology: Heartbeat.Topology, topics: dict[str, int]) -> None:
        self.topology = topology
        self.topics = dict(topics)
        self.shard = Shard(MemoryLog(), QUICK, self.image())

    def image(self) -> TopicsImage:
        return TopicsImage.of(*(TopicImage(name.encode()[:16].ljust(16), name, n) for name, n in self.topics.items()))

    def ask(self, **fields: Any) -> tuple[Any, EventOutcome]:
        request = Heartbeat(group_id="app", member_id="m", **fields)
        outcome = self.shard.execute(GroupRequest(RequestContext(1, "client", "/host", 1), request), 1000)
        ((_, response),) = outcome.replies
        return response, outcome

    def run(self) -> dict[str, int]:
        """Joins and has its internal topics made: number of tasks that it has by subtopology."""
        none: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        response, outcome = self.ask(topology=self.topology, process_id="p", rebalance_timeout_ms=1000, **none)
        assert (response.error_code, response.error_message) == (0, None)
        for effect in outcome.effects:
            if isinstance(effect, CreateInternalTopics):
                self.topics |= {spec.name: spec.partitions for spec in effect.topics}
                self.shard.set_topics(self.image(), 1000)
                response, _ = self.ask(member_epoch=response.member_epoch, **none)
        assert [(status.status_code, status.status_detail) for status in response.status] == []
        return {task.subtopology_id: len(task.partitions) for task in response.active_tasks}


def source_topics(topology: Heartbeat.Topology) -> dict[str, int]:
    """The topics that the user has, with partitions as the repartition topics of a fixed count need them."""
    found = {name: PARTITIONS for part in topology.subtopologies for name in part.source_topics}
    for part in topology.subtopologies:
        found |= {_match_of(pattern): PARTITIONS for pattern in part.source_topic_regex}
        for group in part.copartition_groups:
            fixed = {part.repartition_source_topics[i].partitions for i in group.repartition_source_topics} - {0}
            found |= {part.source_topics[i]: next(iter(fixed), PARTITIONS) for i in group.source_topics}
    return found


def _match_of(pattern: str) -> str:
    """A topic that the pattern matches, for patterns as the cases have them."""
    name = re.sub(r"\.\*|\[a-z\]\+", "x", pattern).replace("\\", "")
    assert re.fullmatch(pattern, name)
    return name


def check(topology: Heartbeat.Topology, sources: dict[str, int] | None = None) -> None:
    tasks = Member(topology, source_topics(topology) if sources is None else sources).run()
    assert tasks.keys() == {part.subtopology_id for part in topology.subtopologies}


@pytest.mark.parametrize("case", JAVA, ids=case_name)
def test_what_kafka_streams_sends_runs(case: Case) -> None:
    check(as_sent(case["heartbeat_topology"]))


@pytest.mark.matrix
@pytest.mark.parametrize("case", OURS, ids=case_name)
def test_the_same_programs_run_as_they_are_sent_from_here(case: Case) -> None:
    topology = build(case).topology
    check(topology_metadata(topology, "app"))
    check(topology_metadata(topology, "app", subtopology_id="number"))


DEFAULTS = {"default.key.serde": serdes.string, "default.value.serde": serdes.string}
STREAMS, TABLES = ("s1", "s2", "s3"), ("t1", "t2", "t3")
Streams = KStream[str, str]
Tables = KTable[str, str]
ON_STREAMS: list[Callable[[Streams, Streams], Streams]] = [
    lambda one, _: one.select_key(lambda key, value: value),
    lambda one, _: one.repartition(key=serdes.string, value=serdes.string),
    lambda one, other: one.merge(other),
    lambda one, other: one.join(other, lambda a, b: a + b, JoinWindows(1000)),
    lambda one, _: one.group_by_key().reduce(lambda a, b: a + b).to_stream(),
    lambda one, _: one.group_by(lambda key, value: value).reduce(lambda a, b: a + b).to_stream(),
]
ON_TABLES: list[Callable[[Tables, Tables], Tables]] = [
    lambda one, _: one.map_values(lambda value: value),
    lambda one, other: one.join(other, lambda a, b: a + b),
    lambda one, other: one.left_join(other, lambda a, b: a, foreign_key=lambda value: value),
    lambda one, other: one.join(other, lambda a, b: a + b, foreign_key=lambda value: value),
    lambda one, _: one.group_by(lambda key, value: (value, key)).reduce(lambda a, b: a + b, lambda a, b: a),
    lambda one, _: one.to_stream().select_key(lambda key, value: value).to_table(),
]


def program(steps: list[tuple[str, int, int, int]], optimization: str) -> Topology:
    """The program of steps: what, which operation, which two of the streams or tables that there are."""
    builder = StreamsBuilder()
    found_streams = [builder.stream(name, key=serdes.string, value=serdes.string) for name in STREAMS]
    found_tables = [builder.table(name, key=serdes.string, value=serdes.string) for name in TABLES]
    for what, which, one, other in steps:
        stream, second_stream = found_streams[one % len(found_streams)], found_streams[other % len(found_streams)]
        table, second_table = found_tables[one % len(found_tables)], found_tables[other % len(found_tables)]
        if what == "stream":
            found_streams.append(ON_STREAMS[which](stream, second_stream))
        elif what == "table":
            found_tables.append(ON_TABLES[which](table, second_table))
        elif what == "both":
            found_streams.append(stream.join(second_table, lambda a, b: a + b))
        else:
            found_tables.append(stream.to_table(key=serdes.string, value=serdes.string))
    for number, stream in enumerate(found_streams):
        stream.to(f"out{number}")
    return builder.build({"topology.optimization": optimization, **DEFAULTS})


picked = st.integers(0, 9)
steps = st.lists(
    st.tuples(st.sampled_from(["stream", "table", "table", "both", "to table"]), st.integers(0, 5), picked, picked),
    min_size=1,
    max_size=7,
)


@example([("table", 1, 0, 1), ("table", 3, 0, 1)], "none", [3] * 6)
@given(steps, st.sampled_from(["none", "all"]), st.lists(st.sampled_from([1, 3, 4]), min_size=6, max_size=6))
def test_what_the_test_driver_runs_the_coordinator_runs(
    drawn: list[tuple[str, int, int, int]], optimization: str, counts: list[int]
) -> None:
    """Of topics that are joined the counts are equal: where they are not, the coordinator rightly says so."""
    try:
        topology = program(drawn, optimization)
    except TopologyError:
        reject()
    partitions = dict(zip(STREAMS + TABLES, counts, strict=True))
    metadata = topology_metadata(topology, "app")
    for part in metadata.subtopologies:
        for group in part.copartition_groups:
            assume(len({partitions[part.source_topics[i]] for i in group.source_topics}) <= 1)
    TopologyTestDriver(topology, DEFAULTS, partitions=partitions).close()
    check(metadata, partitions)
