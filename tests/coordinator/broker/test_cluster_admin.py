"""What administrators ask about the cluster as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from streamsrt.wire import types
from streamsrt.wire.schema import ApiKey, version_range
from tests.coordinator.broker.in_process import InProcessBroker, batch

ABSENT, LOG_DIR_NOT_FOUND, INVALID_REPLICAS, NOT_NEEDED, NO_REASSIGNMENT = 3, 57, 39, 84, 85
UNSUPPORTED, INVALID_UPDATE, FENCED = 35, 95, 47


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs(broker: InProcessBroker, version: int) -> None:
    broker.create("t", 2)
    broker.produce("t", b"x" * 1000)
    Wanted = types.DescribeLogDirsRequest.DescribableLogDirTopic  # noqa: N806
    wanted = [Wanted(topic="t", partitions=[0, 7]), Wanted(topic="absent", partitions=[0])]
    (result,) = broker.ask(types.DescribeLogDirsRequest(topics=wanted), version).results
    assert (result.error_code, result.log_dir) == (0, str(broker.path))
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [("t", [0])]
    assert result.topics[0].partitions[0].partition_size > 1000
    assert (result.total_bytes > 0 < result.usable_bytes) is (version >= 4)
    (every,) = broker.ask(types.DescribeLogDirsRequest(topics=None), version).results
    assert {topic.name: len(topic.partitions) for topic in every.topics} == {"__consumer_offsets": 1, "t": 2}


def test_replicas_stay_in_the_only_log_directory(broker: InProcessBroker) -> None:
    broker.create("t")
    Topic = types.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic  # noqa: N806
    Directory = types.AlterReplicaLogDirsRequest.AlterReplicaLogDir  # noqa: N806
    request = types.AlterReplicaLogDirsRequest(
        dirs=[
            Directory(path=path, topics=[Topic(name="t", partitions=[0, 1])]) for path in (str(broker.path), "/other")
        ]
    )
    codes = [[p.error_code for p in each.partitions] for each in broker.ask(request).results]
    assert codes == [[0, ABSENT], [LOG_DIR_NOT_FOUND, ABSENT]]


@pytest.mark.parametrize("version", range(3))
def test_leaders_stay(broker: InProcessBroker, version: int) -> None:
    broker.create("t")
    Partitions = types.ElectLeadersRequest.TopicPartitions  # noqa: N806
    request = types.ElectLeadersRequest(topic_partitions=[Partitions(topic="t", partitions=[0, 1])], timeout_ms=1)
    (result,) = broker.ask(request, version).replica_election_results
    assert [(p.partition_id, p.error_code) for p in result.partition_result] == [(0, NOT_NEEDED), (1, ABSENT)]
    everything = broker.ask(types.ElectLeadersRequest(topic_partitions=None, timeout_ms=1), version)
    assert (everything.error_code, everything.replica_election_results) == (0, [])


@pytest.mark.parametrize(
    ("partition", "replicas", "code"),
    [
        (0, [1], 0),
        (0, [2], INVALID_REPLICAS),
        (0, [1, 2], INVALID_REPLICAS),
        (0, None, NO_REASSIGNMENT),
        (9, [1], ABSENT),
    ],
)
def test_reassignments(broker: InProcessBroker, partition: int, replicas: list[int] | None, code: int) -> None:
    broker.create("t")
    request = types.AlterPartitionReassignmentsRequest
    wanted = request.ReassignablePartition(partition_index=partition, replicas=replicas)
    answer = broker.ask(request(topics=[request.ReassignableTopic(name="t", partitions=[wanted])]))
    assert answer.responses[0].partitions[0].error_code == code
    assert broker.ask(types.ListPartitionReassignmentsRequest()).topics == []


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level", "code"), [("streams.version", 1, 0), ("streams.version", 0, 95), ("kraft.version", 1, 95)]
)
def test_features_are_those_of_the_version(
    broker: InProcessBroker, version: int, feature: str, level: int, code: int
) -> None:
    request = types.UpdateFeaturesRequest(
        feature_updates=[types.UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level)]
    )
    answer = broker.ask(request, version)
    found = answer.results[0].error_code if version < 2 else answer.error_code
    assert found == code


def test_what_is_announced_has_no_level(broker: InProcessBroker) -> None:
    answer = broker.ask(types.ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    announced = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert announced["streamsrt.streams.version"] == (1, 1)
    assert "streamsrt.streams.version" not in {each.name for each in answer.finalized_features}


@pytest.mark.parametrize(
    ("version", "zero"), [(3, []), (4, ["group.version", "streams.version", "transaction.version"])]
)
def test_older_clients_are_not_told_of_features_that_may_be_off(
    broker: InProcessBroker, version: int, zero: list[str]
) -> None:
    """KAFKA-17011: to clients of Kafka 3.7 a minimum of 0 is an IllegalArgumentException."""
    answer = broker.ask(types.ApiVersionsRequest(client_software_name="test", client_software_version="1"), version)
    assert [each.name for each in answer.supported_features if each.min_version == 0] == zero
    assert {"metadata.version", "streamsrt.streams.version"} <= {each.name for each in answer.supported_features}
    assert "streams.version" in {each.name for each in answer.finalized_features}


def test_quotas(broker: InProcessBroker) -> None:
    assert broker.ask(types.DescribeClientQuotasRequest(components=[], strict=False)).entries == []
    request = types.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type="user", entity_name="u")],
        ops=[request.OpData(key="producer_byte_rate", value=1.0, remove=False)],
    )
    (result,) = broker.ask(request(entries=[entry], validate_only=False)).entries
    assert (result.error_code, result.entity[0].entity_name) == (42, "u")


def test_resources_with_settings(broker: InProcessBroker) -> None:
    broker.create("t")
    change = types.IncrementalAlterConfigsRequest.AlterableConfig(
        name="streams.num.standby.replicas", config_operation=0, value="1"
    )
    resource = types.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=32, resource_name="g", configs=[change]
    )
    broker.ask(types.IncrementalAlterConfigsRequest(resources=[resource]))

    def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
        answer = broker.ask(types.ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert answer.error_code == 0
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert listed() == [(2, "__consumer_offsets"), (2, "t"), (4, "1"), (32, "g")]
    assert listed(32) == [(32, "g")]
    assert listed(16) == []
    assert listed(version=0) == []
    assert broker.ask(types.ListConfigResourcesRequest(resource_types=[8])).error_code == UNSUPPORTED


def test_a_marker_ends_a_transaction_that_hangs(broker: InProcessBroker) -> None:
    broker.create("t")
    open_batch = batch(b"v", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    topic = broker.broker.topics.get("t")
    assert topic is not None
    log = topic.partitions[0]
    log.append(open_batch, now_ms=broker.now_ms)
    assert log.last_stable_offset == 0
    request = types.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        topics=[
            request.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7]),
            request.WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
        ],
        coordinator_epoch=0,
    )
    (result,) = broker.ask(request(markers=[marker])).markers
    codes = [[each.error_code for each in topic.partitions] for topic in result.topics]
    assert codes == [[0, ABSENT], [ABSENT]]
    assert log.last_stable_offset == log.high_watermark == 2
    assert list(log.aborted_transactions(0, 2)) == [(1, 0)]
    marker.producer_epoch = -5
    (result,) = broker.ask(request(markers=[marker])).markers
    assert result.topics[0].partitions[0].error_code == FENCED


@pytest.mark.parametrize(
    "message",
    [
        types.DescribeQuorumRequest(topics=[]),
        types.UnregisterBrokerRequest(broker_id=1),
        types.GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)),
        types.DescribeDelegationTokenRequest(owners=None),
        types.ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
    ],
    ids=lambda message: ApiKey(message.API_KEY).name,
)
def test_what_is_not_served_is_refused_by_its_answer(broker: InProcessBroker, message: Any) -> None:
    answer = broker.ask(message, version_range(message.API_KEY)[1])
    assert answer.error_code == UNSUPPORTED
    served = {each.api_key for each in broker.ask(types.ApiVersionsRequest()).api_keys}
    assert message.API_KEY not in served
