from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.wire import types
from streamsrt.wire.primitives import ZERO_UUID
from tests.coordinator.broker.in_process import InProcessBroker

Wanted = types.MetadataRequest.MetadataRequestTopic
Cursor = types.DescribeTopicPartitionsRequest.Cursor


def metadata(broker: InProcessBroker, *topics: Wanted, version: int | None = None, create: bool = False) -> list[tuple]:  # type: ignore[type-arg]
    request = types.MetadataRequest(topics=list(topics), allow_auto_topic_creation=create)
    answer = broker.ask(request, version)
    return [(each.error_code, each.name, each.topic_id, len(each.partitions)) for each in answer.topics]


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_all_topics_in_every_version(self, broker: InProcessBroker, version: int) -> None:
        broker.create("t", 2)
        answer = broker.ask(types.MetadataRequest(topics=None if version else []), version)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", 9092)]
        found = {each.name: each for each in answer.topics}
        assert set(found) == {"__consumer_offsets", "t"}
        assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in found["t"].partitions] == [
            (0, 1, [1], [1]),
            (1, 1, [1], [1]),
        ]
        if version >= 1:
            assert (found["t"].is_internal, found["__consumer_offsets"].is_internal) == (False, True)
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id == broker.broker.cluster_id

    def test_no_topics_are_no_topics_from_version_1_on(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert metadata(broker, version=1) == []

    def test_by_id(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t", 2)
        assert metadata(broker, Wanted(name=None, topic_id=topic_id)) == [(0, "t", topic_id, 2)]
        assert metadata(broker, Wanted(name="", topic_id=topic_id)) == [(0, "t", topic_id, 2)]
        assert metadata(broker, Wanted(name=None, topic_id=b"x" * 16)) == [(100, None, b"x" * 16, 0)]

    @pytest.mark.parametrize("version", [10, 11])
    def test_ids_before_they_were_served(self, broker: InProcessBroker, version: int) -> None:
        topic_id = broker.create("t")
        assert metadata(broker, Wanted(name=None, topic_id=topic_id), version=version) == [(42, "", ZERO_UUID, 0)]

    def test_unknown_and_illegal_names(self, broker: InProcessBroker) -> None:
        assert metadata(broker, Wanted(name="t"), Wanted(name="a b"), create=True) == [
            (3, "t", ZERO_UUID, 0),
            (17, "a b", ZERO_UUID, 0),
        ]

    def test_topics_are_created_only_where_broker_and_client_allow_it(self, tmp_path: Path) -> None:
        broker = InProcessBroker(tmp_path, {"auto.create.topics.enable": "true", "num.partitions": "3"})
        assert metadata(broker, Wanted(name="t"), create=False) == [(3, "t", ZERO_UUID, 0)]
        code, name, topic_id, count = metadata(broker, Wanted(name="t"), create=True)[0]
        assert (code, name, topic_id, count) == (0, "t", broker.topic_id("t"), 3)
        assert metadata(broker, Wanted(name="__broker"), create=True) == [(17, "__broker", ZERO_UUID, 0)]
        broker.close()

    def test_the_leader_epoch_is_that_of_the_log(self, broker: InProcessBroker) -> None:
        broker.create("t")
        topic = broker.broker.topics.get("t")
        assert topic is not None
        answer = broker.ask(types.MetadataRequest(topics=[Wanted(name="t")]))
        assert answer.topics[0].partitions[0].leader_epoch == topic.partitions[0].leader_epoch


class TestDescribeTopicPartitions:
    def pages(self, broker: InProcessBroker, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
        """Every page, followed by the cursor."""
        found = []
        cursor = None
        while True:
            request = types.DescribeTopicPartitionsRequest(
                topics=[types.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
            answer = broker.ask(request)
            found.append([(each.name, [p.partition_index for p in each.partitions]) for each in answer.topics])
            if answer.next_cursor is None:
                return found
            cursor = Cursor(
                topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
            )

    def test_pages_go_on_where_the_last_ended(self, broker: InProcessBroker) -> None:
        broker.create("b", 3)
        broker.create("a", 2)
        assert self.pages(broker, 2, "b", "a") == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
        assert self.pages(broker, 4, "b", "a") == [[("a", [0, 1]), ("b", [0, 1])], [("b", [2])]]
        assert self.pages(broker, 0, "a") == [[("a", [0])], [("a", [1])]]

    def test_without_names_all_topics(self, broker: InProcessBroker) -> None:
        broker.create("a")
        assert [name for page in self.pages(broker, 100) for name, _ in page] == ["__consumer_offsets", "a"]

    def test_unknown_topics(self, broker: InProcessBroker) -> None:
        broker.create("t")
        request = types.DescribeTopicPartitionsRequest(
            topics=[types.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("zz", "t", "a b")],
            response_partition_limit=10,
            cursor=None,
        )
        assert [(each.name, each.error_code) for each in broker.ask(request).topics] == [
            ("a b", 17),
            ("t", 0),
            ("zz", 3),
        ]

    @pytest.mark.parametrize(("index", "code", "partitions"), [(-3, 42, []), (9, 0, []), (1, 0, [1])])
    def test_cursors(self, broker: InProcessBroker, index: int, code: int, partitions: list[int]) -> None:
        broker.create("t", 2)
        request = types.DescribeTopicPartitionsRequest(
            topics=[types.DescribeTopicPartitionsRequest.TopicRequest(name="t")],
            response_partition_limit=10,
            cursor=Cursor(topic_name="t", partition_index=index),
        )
        answer = broker.ask(request)
        assert answer.next_cursor is None
        assert answer.topics[0].error_code == code
        assert [each.partition_index for each in answer.topics[0].partitions] == partitions

    def test_a_cursor_of_a_deleted_topic_goes_on_with_the_next(self, broker: InProcessBroker) -> None:
        broker.create("a")
        broker.create("c", 2)
        request = types.DescribeTopicPartitionsRequest(
            topics=[types.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("a", "c")],
            response_partition_limit=10,
            cursor=Cursor(topic_name="b", partition_index=5),
        )
        answer = broker.ask(request)
        assert [(each.name, len(each.partitions)) for each in answer.topics] == [("c", 2)]


class TestDescribeCluster:
    def test_one_node(self, broker: InProcessBroker) -> None:
        answer = broker.ask(types.DescribeClusterRequest(endpoint_type=1))
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, broker.broker.cluster_id, 1)
        assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", 9092)]

    def test_there_is_no_controller_endpoint(self, broker: InProcessBroker) -> None:
        assert broker.ask(types.DescribeClusterRequest(endpoint_type=2)).error_code == 115

    def test_the_cluster_id_is_kept(self, broker: InProcessBroker) -> None:
        before = broker.broker.cluster_id
        broker.restart()
        assert broker.broker.cluster_id == before


class TestApiVersions:
    @pytest.mark.requirement("GA-001", "GA-004")
    @pytest.mark.parametrize("version", range(5))
    def test_every_version_lists_what_is_served(self, broker: InProcessBroker, version: int) -> None:
        answer = broker.ask(types.ApiVersionsRequest(), version)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert answer.error_code == 0
        assert ranges[0] == (0, 13)
        assert ranges[88] == (0, 1)
        assert [ranges[key] for key in (11, 12, 13, 14, 15)] == [(0, 9), (0, 4), (0, 5), (0, 5), (0, 6)]
        assert [ranges[key] for key in (8, 9, 10, 16, 42, 47)] == [(2, 10), (1, 10), (0, 6), (0, 5), (0, 2), (0, 0)]
        assert 76 not in ranges

    def test_features_say_that_streams_groups_are_served(self, broker: InProcessBroker) -> None:
        answer = broker.ask(types.ApiVersionsRequest(), 4)
        assert {each.name: each.max_version_level for each in answer.finalized_features}["streams.version"] == 1

    def test_whom_the_client_means(self, broker: InProcessBroker) -> None:
        def code(cluster_id: str | None, node_id: int) -> tuple[int, bool]:
            answer = broker.ask(types.ApiVersionsRequest(cluster_id=cluster_id, node_id=node_id), 5)
            return answer.error_code, bool(answer.api_keys)

        own = broker.broker.cluster_id
        assert code(None, -1) == (0, True)
        assert code(own, 1) == (0, True)
        assert code(own, 2) == (129, False)
        assert code("another", 1) == (129, False)
        assert code(own, -1) == (42, False)
        assert code(None, 1) == (42, False)
