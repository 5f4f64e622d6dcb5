"""Which subtopologies are the same is one truth: for the group that assigns, and for every way to compare two versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from streamsrt.assignment.topology import topology_of
from streamsrt.assignment.versions import Versions
from streamsrt.cli.restored_state import restored_state
from streamsrt.cli.topology_versions import RunningGroup
from streamsrt.cli.upgrade.plan import notes, why_it_would_wait
from streamsrt.client.network import ClientConfig, NetworkThread
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.wire.types import StreamsGroupDescribeResponse as Described
from streamsrt.wire.types import StreamsGroupHeartbeatRequest
from tests.upgrades.pairs import pair
from tests.upgrades.programs import build
from topology import Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.diff import SubtopologyChange, TopologyDiff, diff
from topology.graph.new_state import FoundTopics
from topology.graph.outline import TopologyOutline, outline
from topology.graph.topology import Topology

TEXT = {"key": serdes.string, "value": serdes.string}


def described(topology: Topology) -> RunningGroup:
    """A streams group whose members run this version."""
    metadata = topology_metadata(topology, "app")
    return RunningGroup(
        name="app",
        kind="streams",
        epoch=0,
        state="Stable",
        members={0: 1},
        digests=frozenset({topology.digest[:16]}),
        subtopologies=[_part(each) for each in metadata.subtopologies],
        topics={},
    )


def _part(part: StreamsGroupHeartbeatRequest.Subtopology) -> Described.Subtopology:
    def infos(topics: list[StreamsGroupHeartbeatRequest.TopicInfo]) -> list[Described.TopicInfo]:
        return [
            Described.TopicInfo(name=each.name, partitions=each.partitions, replication_factor=1, topic_configs=[])
            for each in topics
        ]

    return Described.Subtopology(
        subtopology_id=part.subtopology_id,
        source_topics=list(part.source_topics),
        repartition_sink_topics=list(part.repartition_sink_topics),
        state_changelog_topics=infos(part.state_changelog_topics),
        repartition_source_topics=infos(part.repartition_source_topics),
    )


def told(found: TopologyDiff) -> dict[str, str]:
    return {each.id: each.change for each in found.subtopologies}


def from_group(old: Topology, new: Topology) -> dict[str, str]:
    return told(diff(described(old).outline(outline(new)), outline(new)))


def by_group(old: Topology, new: Topology) -> set[str]:
    """Ids of subtopologies whose tasks the group leaves where they are."""
    lead, older = (topology_of(topology_metadata(each, "app")) for each in (new, old))
    lead = type(lead)(1, lead.subtopologies)
    versions = Versions(lead, [older])
    return {each.id for each in older.subtopologies if versions.is_of_lead(0, each.id)}


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_the_group_a_file_and_two_programs_say_the_same(seed: int, tmp_path: Path) -> None:
    old, new = (build(program, "").topology for program in (pair(seed).old, pair(seed).new))
    path = tmp_path / "old.json"
    path.write_bytes(orjson.dumps(outline(old).to_json()))
    programs = told(diff(outline(old), outline(new)))
    assert told(diff(TopologyOutline.from_json(orjson.loads(path.read_bytes())), outline(new))) == programs
    assert from_group(old, new) == programs
    assert {name for name, change in programs.items() if change == "same"} == by_group(old, new)


def version(*topics: str, grace_ms: int = 0, name: str = "by-c", in_memory: bool = False) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream(list(topics), **TEXT)
    records.group_by_key(**TEXT).windowed_by(TimeWindows(1_000, grace=grace_ms)).count(store="windows")
    keyed = records.select_key(lambda _key, value: value).repartition(name=name, **TEXT)
    keyed.group_by_key(**TEXT).count(store=Store("per-c", in_memory=in_memory))
    return builder.build()


@pytest.mark.parametrize(
    ("new", "changes"),
    [
        (version("a", "b"), ["changed", "same"]),
        (version("a", grace_ms=60_000), ["same", "same"]),
        (version("a", name="by-cust"), ["changed", "changed"]),
        (version("a"), ["same", "same"]),
    ],
)
def test_only_other_topics_and_stores_move_tasks(new: Topology, changes: list[str]) -> None:
    old = version("a")
    found = list(told(diff(outline(old), outline(new))).items())
    assert [change for _, change in found] == changes
    assert dict(found) == from_group(old, new)


@pytest.mark.parametrize(
    ("new", "restored"),
    [
        (version("a", "b"), {"windows"}),
        (version("a", grace_ms=60_000), set()),
        (version("a", name="by-cust"), {"windows", "per-c"}),
        (version("a", in_memory=True), {"per-c"}),
    ],
)
def test_stores_whose_tasks_move_are_restored(new: Topology, restored: set[str]) -> None:
    before, after = outline(version("a")), outline(new)
    running = described(version("a"))
    found = diff(before, after)
    state = restored_state(NetworkThread(ClientConfig(bootstrap_servers="127.0.0.1:1")), running, before, after, found)
    assert {each.name for each, topics in state.topics.items() if topics} == restored


def test_steps_that_differ_are_said_beside_the_same_tasks() -> None:
    found = diff(outline(version("a")), outline(version("a", grace_ms=60_000)))
    (windows,) = (each for each in found.subtopologies if each.has_other_steps)
    assert windows.why == "other steps or formats, the same tasks"
    assert SubtopologyChange("id", "same", 0, 0).why == ""


def test_a_group_tells_what_new_stores_find() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", **TEXT).group_by_key().count(store="counts")
    running = replace(
        described(builder.build()),
        topics={"app-counts-changelog": {"partitions": 2, "records": 7, "configs": {}}},
        read=frozenset({"orders"}),
    )
    assert running.cluster_topics().found == FoundTopics({"counts-changelog": 7}, frozenset({"orders"}))


def test_a_version_is_not_planned_that_would_wait_for_what_it_does_not_read() -> None:
    builder = StreamsBuilder()
    builder.stream("orders", **TEXT).repartition(name="by-word").group_by_key().count(store="counts")
    version = builder.build()
    running = replace(described(version), awaited=frozenset({"app-by-word-repartition", "app-other-repartition"}))
    (why,) = why_it_would_wait(running, outline(version))
    assert why.startswith(
        "tasks of the group wait for records in flight in app-other-repartition, which no instance reads"
    )
    (why,) = why_it_would_wait(replace(running, stands_still=True), outline(version))
    assert why.startswith(
        "nothing is processed in this group, because all tasks wait for records in flight in app-other"
    )
    assert not list(why_it_would_wait(replace(running, awaited=frozenset()), outline(version)))


def test_a_plan_during_an_upgrade_says_what_it_does_not_compare() -> None:
    old, new = (StreamsBuilder(), StreamsBuilder())
    old.stream("orders", **TEXT).group_by_key().count(store="counts")
    new.stream("orders", **TEXT).group_by_key().count(store="others")
    running = replace(described(old.build()), epoch=1, members={0: 2, 1: 1})
    (note,) = notes(diff(outline(old.build()), outline(new.build())), running)
    assert note.startswith(
        "an upgrade to epoch 1 is under way (on an older version: 2 instances): finish it or roll it back"
    )
    assert note.endswith("This plan compares with epoch 1 only, and not with what the others keep")
