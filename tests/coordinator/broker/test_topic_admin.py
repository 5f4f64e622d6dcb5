from __future__ import annotations

import pytest

from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.primitives import ZERO_UUID
from tests.coordinator.broker.in_process import InProcessBroker, batch, creation, fetching, production

DeleteState = types.DeleteTopicsRequest.DeleteTopicState
Growth = types.CreatePartitionsRequest.CreatePartitionsTopic
Assignment = types.CreatePartitionsRequest.CreatePartitionsAssignment


def created(broker: InProcessBroker, request: types.CreateTopicsRequest, version: int | None = None) -> tuple[int, str]:
    result = broker.ask(request, version).topics[0]
    return result.error_code, result.error_message


def delete(broker: InProcessBroker, *states: DeleteState) -> list[int]:
    answer = broker.ask(types.DeleteTopicsRequest(topics=list(states), timeout_ms=1000))
    return [each.error_code for each in answer.responses]


def grow(broker: InProcessBroker, *topics: Growth, validate_only: bool = False) -> list[tuple[int, str | None]]:
    request = types.CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return [(each.error_code, each.error_message) for each in broker.ask(request).results]


def partition_count(broker: InProcessBroker, name: str) -> int:
    topic = broker.broker.topics.get(name)
    assert topic is not None
    return len(topic.partitions)


class TestCreateTopics:
    def test_the_answer_tells_id_partitions_and_configs_with_their_source(self, broker: InProcessBroker) -> None:
        result = broker.ask(creation("t", 3, {"cleanup.policy": "compact"})).topics[0]
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
        assert result.topic_id == broker.topic_id("t") != ZERO_UUID
        configs = {each.name: (each.value, each.config_source) for each in result.configs}
        assert configs["cleanup.policy"] == ("compact", 1)
        assert configs["retention.ms"] == ("604800000", 5)

    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_served_version_creates(self, broker: InProcessBroker, version: int) -> None:
        request = creation("t", 1)
        request.topics[0].replication_factor = 1
        code, message = created(broker, request, version)
        assert (code, message) == (0, None)
        assert partition_count(broker, "t") == 1

    def test_the_default_number_of_partitions_is_the_brokers(self, broker: InProcessBroker) -> None:
        assert broker.ask(creation("t", -1)).topics[0].num_partitions == 1

    def test_validate_only_creates_nothing(self, broker: InProcessBroker) -> None:
        result = broker.ask(creation("t", 2, validate_only=True)).topics[0]
        assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, ZERO_UUID)
        assert broker.broker.topics.get("t") is None
        assert not list(broker.path.glob("t-*"))

    def test_a_topic_that_exists(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert created(broker, creation("t")) == (36, "Topic 't' already exists.")

    def test_the_same_name_twice_in_a_request(self, broker: InProcessBroker) -> None:
        request = creation("t")
        request.topics = [*request.topics, *creation("t", 2).topics, *creation("u").topics]
        assert [each.error_code for each in broker.ask(request).topics] == [42, 42, 0]
        assert broker.broker.topics.get("t") is None

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ü", "a\x00b"])
    def test_illegal_names(self, broker: InProcessBroker, name: str) -> None:
        code, message = created(broker, creation(name))
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "illegal" in message

    def test_a_name_too_long_for_the_answer_is_cut_in_its_message(self, broker: InProcessBroker) -> None:
        code, message = created(broker, creation("\x00" * 32_000), 2)
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert len(message) < 2000

    @pytest.mark.parametrize("name", ["__cluster_metadata", "__broker", "__producer_ids", "__group_configs"])
    def test_names_of_the_brokers_own_logs(self, broker: InProcessBroker, name: str) -> None:
        assert created(broker, creation(name)) == (17, f"Topic '{name}' is the broker's own.")

    def test_names_that_differ_in_a_dot_only(self, broker: InProcessBroker) -> None:
        broker.create("a.b")
        assert created(broker, creation("a_b")) == (17, "Topic 'a_b' collides with existing topic: a.b")

    @pytest.mark.parametrize(("partitions", "code"), [(0, 37), (-2, 37), (10_001, 44), (2**31 - 1, 44)])
    def test_numbers_of_partitions(self, broker: InProcessBroker, partitions: int, code: int) -> None:
        assert created(broker, creation("t", partitions))[0] == code

    def test_the_bound_holds_for_the_request(self, broker: InProcessBroker) -> None:
        request = creation("t", 6000)
        request.topics += creation("u", 6000).topics
        assert [each.error_code for each in broker.ask(request).topics] == [44, 44]

    def test_more_replicas_than_brokers(self, broker: InProcessBroker) -> None:
        request = creation("t")
        request.topics[0].replication_factor = 3
        code, message = created(broker, request)
        assert code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "1 broker" in message

    @pytest.mark.parametrize(
        ("configs", "text"),
        [
            ({"retention.mss": "1"}, "Unknown topic config name: retention.mss. Did you mean retention.ms?"),
            ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: not a number of type LONG."),
            ({"segment.bytes": "5"}, "Invalid value 5 for configuration segment.bytes: must be at least 14."),
            ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
            (
                {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
                "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)",
            ),
        ],
    )
    def test_configs(self, broker: InProcessBroker, configs: dict[str, str | None], text: str) -> None:
        assert created(broker, creation("t", 1, configs)) == (40, text)
        assert broker.broker.topics.get("t") is None

    @pytest.mark.parametrize("version", [4, 7])
    @pytest.mark.parametrize("configs", [{"n" * 32_767: "x"}, {f"{number}{'n' * 1000}": None for number in range(40)}])
    def test_long_configs(self, broker: InProcessBroker, configs: dict[str, str | None], version: int) -> None:
        result = broker.ask(creation("t", configs=configs), version).topics[0]
        assert result.error_code == 40
        assert len(result.error_message) <= 32_767

    def test_assignments(self, broker: InProcessBroker) -> None:
        assigned = types.CreateTopicsRequest.CreatableReplicaAssignment

        def with_assignments(*pairs: tuple[int, list[int]], partitions: int = -1) -> types.CreateTopicsRequest:
            request = creation("t", partitions)
            request.topics[0].assignments = [assigned(partition_index=i, broker_ids=ids) for i, ids in pairs]
            return request

        assert created(broker, with_assignments((0, [1]), partitions=1))[0] == 42
        assert created(broker, with_assignments((0, [1]), (2, [1])))[0] == 39
        assert created(broker, with_assignments((0, [2])))[0] == 39
        assert created(broker, with_assignments((1, [1]), (0, [1])))[0] == 0
        assert partition_count(broker, "t") == 2


class TestDeleteTopics:
    def test_records_and_id_do_not_come_back_with_the_name(self, broker: InProcessBroker) -> None:
        old = broker.create("t", 2)
        broker.produce("t", b"old")
        assert delete(broker, DeleteState(name="t")) == [0]
        assert not list(broker.path.glob("t-?"))
        new = broker.create("t", 2)
        assert new != old
        assert broker.values("t") == []
        assert broker.ask(fetching(old, {0: 0})).responses[0].partitions[0].error_code == 100
        answer = broker.ask(production(old, {0: batch(b"v")}))
        assert answer.responses[0].partition_responses[0].error_code == 100

    def test_by_id(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t")
        answer = broker.ask(
            types.DeleteTopicsRequest(topics=[DeleteState(name=None, topic_id=topic_id)], timeout_ms=1000)
        )
        assert [(each.name, each.topic_id, each.error_code) for each in answer.responses] == [("t", topic_id, 0)]

    @pytest.mark.parametrize("version", range(1, 6))
    def test_by_name_in_old_versions(self, broker: InProcessBroker, version: int) -> None:
        broker.create("t")
        answer = broker.ask(types.DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=1000), version)
        assert [each.error_code for each in answer.responses] == [0, 3]

    def test_what_can_not_be_deleted(self, broker: InProcessBroker) -> None:
        topic_id = broker.create("t")
        assert delete(broker, DeleteState(name="u")) == [3]
        assert delete(broker, DeleteState(name=None, topic_id=b"x" * 16)) == [100]
        assert delete(broker, DeleteState(name="t", topic_id=topic_id)) == [42]
        assert delete(broker, DeleteState(name="t"), DeleteState(name="t")) == [42, 42]
        assert delete(broker, DeleteState(name="__consumer_offsets")) == [17]
        assert broker.topic_id("t") == topic_id

    def test_deletion_may_be_disabled(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.broker.configs = {**broker.broker.configs, "delete.topic.enable": False}
        assert delete(broker, DeleteState(name="t")) == [73]


class TestCreatePartitions:
    def test_new_partitions_are_there_at_once_and_after_a_restart(self, broker: InProcessBroker) -> None:
        broker.create("t")
        broker.produce("t", b"v")
        assert grow(broker, Growth(name="t", count=3, assignments=None)) == [(0, None)]
        broker.produce("t", b"w", partition=2)
        broker.restart()
        assert partition_count(broker, "t") == 3
        assert broker.values("t") == [b"v"]
        assert broker.values("t", 2) == [b"w"]

    def test_validate_only(self, broker: InProcessBroker) -> None:
        broker.create("t")
        assert grow(broker, Growth(name="t", count=3, assignments=None), validate_only=True) == [(0, None)]
        assert grow(broker, Growth(name="t", count=1, assignments=None), validate_only=True)[0][0] == 37
        assert partition_count(broker, "t") == 1

    def test_assignments(self, broker: InProcessBroker) -> None:
        broker.create("t")

        def assigned(*ids: int) -> list[tuple[int, str | None]]:
            return grow(broker, Growth(name="t", count=3, assignments=[Assignment(broker_ids=[i]) for i in ids]))

        assert assigned(1) == [(39, "Attempted to add 2 additional partition(s), but 1 assignment(s) were specified.")]
        assert assigned(1, 9) == [(39, "The only broker of this cluster is 1.")]
        assert assigned(1, 1) == [(0, None)]

    @pytest.mark.parametrize(
        ("name", "count", "code"),
        [("t", 2, 37), ("t", 1, 37), ("t", -1, 37), ("u", 3, 3), ("__consumer_offsets", 50, 17), ("t", 20_000, 44)],
    )
    def test_what_is_refused(self, broker: InProcessBroker, name: str, count: int, code: int) -> None:
        broker.create("t", 2)
        assert grow(broker, Growth(name=name, count=count, assignments=None))[0][0] == code

    def test_the_same_topic_twice(self, broker: InProcessBroker) -> None:
        broker.create("t")
        twice = [Growth(name="t", count=count, assignments=None) for count in (2, 3)]
        assert grow(broker, *twice) == [(42, "Duplicate topic name.")] * 2


class TestDeleteRecords:
    def delete_before(self, broker: InProcessBroker, name: str, offset: int, partition: int = 0) -> tuple[int, int]:
        request = types.DeleteRecordsRequest(
            topics=[
                types.DeleteRecordsRequest.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        types.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
                    ],
                )
            ],
            timeout_ms=1000,
        )
        result = broker.ask(request).topics[0].partitions[0]
        return result.error_code, result.low_watermark

    def test_the_start_moves_up_and_never_down(self, broker: InProcessBroker) -> None:
        broker.create("t")
        for value in (b"0", b"1", b"2"):
            broker.produce("t", value)
        assert self.delete_before(broker, "t", 2) == (0, 2)
        assert self.delete_before(broker, "t", 1) == (0, 2)
        assert broker.ask(fetching("t", {0: 1}), 12).responses[0].partitions[0].error_code == 1
        assert broker.values("t", offset=2) == [b"2"]
        assert self.delete_before(broker, "t", -1) == (0, 3)
        broker.restart()
        assert broker.ask(fetching("t", {0: 3}), 12).responses[0].partitions[0].log_start_offset == 3

    @pytest.mark.parametrize(
        ("name", "partition", "offset", "code"),
        [
            ("t", 0, 5, 1),
            ("t", 0, -2, 1),
            ("t", 1, 0, 3),
            ("t", -1, 0, 3),
            ("u", 0, 0, 3),
            ("__consumer_offsets", 0, -1, 17),
        ],
    )
    def test_what_is_refused(self, broker: InProcessBroker, name: str, partition: int, offset: int, code: int) -> None:
        broker.create("t")
        assert self.delete_before(broker, name, offset, partition) == (code, -1)
