from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker.group_shards import java_hash
from streamsrt.wire import types
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.error_codes import ErrorCode
from tests.coordinator.broker.in_process import InProcessBroker

CommitTopic = types.OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = types.OffsetCommitRequest.OffsetCommitRequestPartition
FetchGroup = types.OffsetFetchRequest.OffsetFetchRequestGroup
FetchTopics = types.OffsetFetchRequest.OffsetFetchRequestTopics
FetchTopic = types.OffsetFetchRequest.OffsetFetchRequestTopic
ABSENT_ID = b"x" * 16


def commit(group: str, topic: str | bytes, offsets: dict[int, int]) -> types.OffsetCommitRequest:
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    return types.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            CommitTopic(
                partitions=[
                    CommitPartition(partition_index=index, committed_offset=offset, committed_metadata="m")
                    for index, offset in offsets.items()
                ],
                **named,  # type: ignore[arg-type]
            )
        ],
    )


def codes(answer: Any) -> dict[Any, list[tuple[int, int]]]:
    """Topic (name or id) -> (partition, error code)."""
    return {
        each.name or each.topic_id: [(p.partition_index, p.error_code) for p in each.partitions]
        for each in answer.topics
    }


def heartbeat(group: str, member: str = "m", **fields: Any) -> types.StreamsGroupHeartbeatRequest:
    subtopology = types.StreamsGroupHeartbeatRequest.Subtopology
    return types.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=10_000,
        topology=types.StreamsGroupHeartbeatRequest.Topology(
            epoch=0, subtopologies=[subtopology(subtopology_id="0", source_topics=["t"], **fields)]
        ),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )


def test_changelogs_keep_their_records_as_long_as_a_new_topology_needs(broker: InProcessBroker) -> None:
    info = types.StreamsGroupHeartbeatRequest.TopicInfo
    setting = types.StreamsGroupHeartbeatRequest.KeyValue

    def take(epoch: int, member: str, **kept_ms: tuple[str, int]) -> None:
        changelogs = [
            info(
                name=name.replace("_", "-"),
                replication_factor=-1,
                topic_configs=[setting(key=key, value=str(ms))],
            )
            for name, (key, ms) in sorted(kept_ms.items())
        ]
        beat = heartbeat("g", member, state_changelog_topics=changelogs)
        beat.topology.epoch = epoch
        answer = broker.ask(beat)
        assert (answer.error_code, answer.error_message) == (0, None)

    def kept(topic: str) -> str | None:
        found = broker.broker.topics.get(topic)
        assert found is not None
        return found.configs.get("retention.ms", found.configs.get("min.compaction.lag.ms"))

    def topics() -> list[str | None]:
        return [kept(name) for name in ("g-windows-changelog", "g-versions-changelog", "other-changelog")]

    broker.create("t", 1)
    broker.create("other-changelog", 1)
    retention, lag = "retention.ms", "min.compaction.lag.ms"
    others = {"other_changelog": (retention, 10**12)}
    take(0, "a", g_windows_changelog=(retention, 100_000), g_versions_changelog=(lag, 200_000), **others)
    assert topics() == ["100000", "200000", None]
    take(1, "b", g_windows_changelog=(retention, 500_000), g_versions_changelog=(lag, 600_000), **others)
    assert topics() == ["500000", "600000", None]
    take(2, "c", g_windows_changelog=(retention, 100), g_versions_changelog=(lag, 200), **others)
    assert topics() == ["500000", "600000", None]
    windows = broker.broker.topics.get("g-windows-changelog")
    assert windows is not None
    # What is set by hand stays until there is another topology.
    broker.broker.topics.set_configs(windows, {"retention.ms": "50"})
    take(2, "d", g_windows_changelog=(retention, 100), g_versions_changelog=(lag, 200), **others)
    assert kept("g-windows-changelog") == "50"
    take(3, "e", g_windows_changelog=(retention, -1), g_versions_changelog=(lag, 200), **others)
    assert kept("g-windows-changelog") == "-1"
    take(4, "f", g_windows_changelog=(retention, 100_000), g_versions_changelog=(lag, 200), **others)
    assert kept("g-windows-changelog") == "-1"


class TestFindCoordinator:
    @pytest.mark.requirement("GA-004")
    @pytest.mark.parametrize("version", range(4))
    def test_one_group(self, broker: InProcessBroker, version: int) -> None:
        answer = broker.ask(types.FindCoordinatorRequest(key="g"), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 1, "127.0.0.1", 9092)

    @pytest.mark.requirement("GA-010")
    @pytest.mark.parametrize("version", range(4, 7))
    def test_several_groups(self, broker: InProcessBroker, version: int) -> None:
        answer = broker.ask(types.FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
        assert [(each.key, each.error_code, each.node_id, each.port) for each in answer.coordinators] == [
            ("g", 0, 1, 9092),
            ("h", 0, 1, 9092),
        ]

    @pytest.mark.parametrize("key_type", [2, 3, -1])
    def test_other_kinds_of_keys(self, broker: InProcessBroker, key_type: int) -> None:
        answer = broker.ask(types.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 6)
        assert (answer.coordinators[0].error_code, answer.coordinators[0].node_id) == (42, -1)


class TestOffsets:
    @pytest.mark.requirement("GA-048", "GA-050")
    @pytest.mark.parametrize("version", range(2, 10))
    def test_by_name(self, broker: InProcessBroker, version: int) -> None:
        broker.create("t", 2)
        assert codes(broker.ask(commit("g", "t", {0: 5, 1: 6}), version)) == {"t": [(0, 0), (1, 0)]}
        answer = broker.ask(
            types.OffsetFetchRequest(group_id="g", topics=[FetchTopic(name="t", partition_indexes=[0, 1])]), 7
        )
        assert [(p.committed_offset, p.metadata) for p in answer.topics[0].partitions] == [(5, "m"), (6, "m")]

    @pytest.mark.requirement("GA-048", "GA-058", "CG-185")
    def test_by_id(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t", 2)
        request = commit("g", topic_id, {0: 5, 7: 1})
        request.topics += commit("g", ABSENT_ID, {0: 1}).topics
        assert codes(broker.ask(request, 10)) == {topic_id: [(0, 0), (7, 3)], ABSENT_ID: [(0, 100)]}
        wanted = FetchGroup(
            group_id="g",
            topics=[FetchTopics(topic_id=each, partition_indexes=[0, 1]) for each in (topic_id, ABSENT_ID)],
        )
        answer = broker.ask(types.OffsetFetchRequest(groups=[wanted]), 10)
        assert {
            topic.topic_id: [(p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions]
            for topic in answer.groups[0].topics
        } == {topic_id: [(0, 5, 0), (1, -1, 0)], ABSENT_ID: [(0, -1, 100), (1, -1, 100)]}

    @pytest.mark.parametrize("version", [2, 9])
    def test_partitions_that_do_not_exist_are_refused_one_by_one(self, broker: InProcessBroker, version: int) -> None:
        broker.create("t")
        request = commit("g", "t", {0: 5, 1: 6, -1: 7})
        request.topics += commit("g", "u", {0: 1}).topics
        assert codes(broker.ask(request, version)) == {"t": [(0, 0), (1, 3), (-1, 3)], "u": [(0, 3)]}

    @pytest.mark.requirement("GA-049", "GA-060", "GA-061", "GA-064", "GA-014")
    def test_all_offsets_of_several_groups_after_a_restart(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t", 2)
        broker.ask(commit("g", "t", {0: 5}), 9)
        broker.ask(commit("h", "t", {1: 6}), 9)
        broker.restart()
        groups = [FetchGroup(group_id=name, topics=None) for name in ("g", "h", "i")]
        for version in (8, 9, 10):
            answer = broker.ask(types.OffsetFetchRequest(groups=groups), version)
            found = {
                group.group_id: [
                    (t.topic_id if version == 10 else t.name, p.partition_index, p.committed_offset)
                    for t in group.topics
                    for p in t.partitions
                ]
                for group in answer.groups
            }
            topic = topic_id if version == 10 else "t"
            assert found == {"g": [(topic, 0, 5)], "h": [(topic, 1, 6)], "i": []}

    def test_none_of_a_topic_that_was_deleted(self, broker: InProcessBroker) -> None:
        for name in ("t", "u"):
            broker.create(name)
            broker.ask(commit("g", name, {0: 5}), 9)
        broker.ask(types.DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=0), 5)

        def found(topics: list[types.OffsetFetchRequest.OffsetFetchRequestTopics] | None) -> dict[str, list[int]]:
            wanted = FetchGroup(group_id="g", topics=topics)
            (group,) = broker.ask(types.OffsetFetchRequest(groups=[wanted]), 9).groups
            return {topic.name: [each.committed_offset for each in topic.partitions] for topic in group.topics}

        named = [FetchTopics(name=name, partition_indexes=[0]) for name in ("t", "u")]
        for step in ("deleted", "restarted", "created again"):
            if step == "restarted":
                broker.restart()
            elif step == "created again":
                broker.create("t")
            assert (found(None), found(named)) == ({"u": [5]}, {"t": [-1], "u": [5]}), step

    def test_deleting_offsets(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        broker.ask(commit("g", "t", {0: 5, 1: 6}), 9)
        request = types.OffsetDeleteRequest(
            group_id="g",
            topics=[
                types.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name="t",
                    partitions=[types.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)],
                )
            ],
        )
        assert broker.ask(request).error_code == 0
        answer = broker.ask(types.OffsetFetchRequest(groups=[FetchGroup(group_id="g", topics=None)]), 9)
        assert [[p.partition_index for p in t.partitions] for t in answer.groups[0].topics] == [[1]]


class TestGroups:
    def test_a_join_makes_the_internal_topics_and_wakes_the_group(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        changelog = types.StreamsGroupHeartbeatRequest.TopicInfo(
            name="g-store-changelog",
            partitions=0,
            replication_factor=-1,
            topic_configs=[types.StreamsGroupHeartbeatRequest.KeyValue(key="cleanup.policy", value="compact")],
        )
        answer = broker.ask(heartbeat("g", state_changelog_topics=[changelog]))
        assert (answer.error_code, answer.member_epoch > 0) == (0, True)
        made = broker.broker.topics.get("g-store-changelog")
        assert made is not None
        assert (len(made.partitions), made.configs["cleanup.policy"]) == (2, "compact")

    def test_an_internal_topic_that_can_not_be_made_is_told_to_the_group(self, broker: InProcessBroker) -> None:
        broker.create("t", 2)
        changelog = types.StreamsGroupHeartbeatRequest.TopicInfo(
            name="g-store-changelog",
            replication_factor=-1,
            topic_configs=[types.StreamsGroupHeartbeatRequest.KeyValue(key="cleanup.policies", value="compact")],
        )
        joined = broker.ask(heartbeat("g", state_changelog_topics=[changelog]))
        beat = types.StreamsGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=joined.member_epoch, endpoint_information_epoch=-1
        )
        beat.active_tasks = beat.standby_tasks = beat.warmup_tasks = None
        answer = broker.ask(beat)
        assert any("cleanup.policies" in status.status_detail for status in answer.status), answer.status

    @pytest.mark.parametrize(
        ("refused", "why"),
        [
            ({"replication_factor": 3}, "replication factor 3"),
            ({"topic_configs": [("cleanup.policies", "compact")]}, "cleanup.policies"),
            ({"name": "g-a.changelog"}, "collides with existing topic: g-a_changelog"),
        ],
    )
    def test_an_update_whose_internal_topics_the_broker_would_not_make_is_refused(
        self, broker: InProcessBroker, refused: dict[str, Any], why: str
    ) -> None:
        setting = types.StreamsGroupHeartbeatRequest.KeyValue
        configs = [setting(key=key, value=value) for key, value in refused.pop("topic_configs", ())]
        fields = {"name": "g-new-changelog", "replication_factor": -1, "topic_configs": configs, **refused}
        broker.create("t", 2)
        broker.create("g-a_changelog", 2)
        assert broker.ask(heartbeat("g", "a")).error_code == 0
        changelogs = [types.StreamsGroupHeartbeatRequest.TopicInfo(**fields)]
        changelogs.append(types.StreamsGroupHeartbeatRequest.TopicInfo(name="g-good-changelog", replication_factor=-1))
        update = heartbeat("g", "b", state_changelog_topics=changelogs)
        assert update.topology is not None
        update.topology.epoch = 1
        answer = broker.ask(update)
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert f"Internal topics can't be created: {fields['name']}: " in answer.error_message
        assert why in answer.error_message
        assert broker.broker.topics.get("g-good-changelog") is None

    def test_records_in_flight_in_a_repartition_topic_that_was_made_again_are_seen(
        self, broker: InProcessBroker
    ) -> None:
        """The group's offset in the topic before it says nothing of these records."""
        broker.create("t", 2)
        broker.create("g-by-key-repartition")
        broker.produce("g-by-key-repartition", b"1", b"2")
        assert codes(broker.ask(commit("g", "g-by-key-repartition", {0: 2}), 9)) == {"g-by-key-repartition": [(0, 0)]}
        joining = heartbeat("g")
        joining.client_tags = [types.StreamsGroupHeartbeatRequest.KeyValue(key=TOPOLOGY_DIGEST, value="new")]
        broker.ask(types.DeleteTopicsRequest(topics=[], topic_names=["g-by-key-repartition"], timeout_ms=0), 5)
        broker.create("g-by-key-repartition")
        broker.produce("g-by-key-repartition", b"3")
        answer = broker.ask(joining)
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert "g-by-key-repartition: 1 record" in answer.error_message

    @pytest.mark.requirement("GA-068", "GA-069", "GA-070")
    @pytest.mark.parametrize("partitions", ["1", "7"])
    def test_listing_describing_and_deleting_over_all_shards(self, tmp_path: Path, partitions: str) -> None:
        broker = InProcessBroker(tmp_path, {"offsets.topic.num.partitions": partitions})
        broker.create("t")
        names = [f"group-{i}" for i in range(12)]
        for name in names:
            broker.ask(commit(name, "t", {0: 1}), 9)
        broker.ask(heartbeat("app"))
        for _ in range(2):
            for version in range(6):
                listed = broker.ask(types.ListGroupsRequest(), version).groups
                assert [each.group_id for each in listed if each.group_id == "app"] == ["app"]
            streams = broker.ask(types.ListGroupsRequest(types_filter=["streams"]), 5).groups
            assert [(each.group_id, each.group_type) for each in streams] == [("app", "streams")]
            broker.restart()
        described = broker.ask(types.StreamsGroupDescribeRequest(group_ids=["app", "none"])).groups
        assert {each.group_id: each.error_code for each in described} == {"app": 0, "none": 69}
        deleted = broker.ask(types.DeleteGroupsRequest(groups_names=[*names, "app", "none"])).results
        assert {each.group_id: each.error_code for each in deleted} == dict.fromkeys(names, 0) | {
            "app": 68,
            "none": 69,
        }
        broker.close()

    def test_session_timers_run_by_the_clock(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.ask(heartbeat("g"))

        async def tick() -> int | None:
            return broker.broker.groups.tick()

        delay_ms = asyncio.run(tick())
        assert delay_ms is not None
        broker.now_ms += 45_000
        asyncio.run(tick())
        described = broker.ask(types.StreamsGroupDescribeRequest(group_ids=["g"])).groups[0]
        assert described.members == []

    @pytest.mark.requirement("GA-011")
    def test_the_hash_is_javas(self) -> None:
        assert java_hash("") == 0
        assert java_hash("hello") == 99_162_322
        assert java_hash("polygenelubricants") == -(1 << 31)
        assert java_hash("\U0001f600") == 1_772_899

    def test_long_names_take_no_memory(self) -> None:
        java_hash("g" * 30_000)
        tracemalloc.start()
        try:
            for number in range(20):
                java_hash(f"{number}{'g' * 30_000}")
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept_bytes < 10 * 30_000


def test_a_group_fsync_covers_commits(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path, {"log.fsync": "group"})
    broker.broker.topics.create("t", 1, {})

    async def scenario() -> None:
        log = broker.broker.groups.log_of("g")
        answer = broker.send(commit("g", "t", {0: 5, 9: 9}), 9)
        assert log.synced_offset < log.log_end_offset
        assert codes(await answer) == {"t": [(0, 0), (9, 3)]}
        assert log.synced_offset == log.log_end_offset

    asyncio.run(scenario())
    broker.close()


@pytest.mark.requirement("GA-053")
def test_offsets_expire_and_stay_expired(broker: InProcessBroker) -> None:
    broker.create("t", 2)
    broker.ask(commit("g", "t", {0: 1, 1: 2}), 9)
    broker.now_ms += 10_000
    broker.ask(commit("h", "t", {0: 3}), 9)
    asyncio.run(broker.broker.groups.expire(10_000))
    for _ in range(2):
        groups = broker.ask(types.ListGroupsRequest()).groups
        assert [group.group_id for group in groups] == ["h"]
        broker.restart()
