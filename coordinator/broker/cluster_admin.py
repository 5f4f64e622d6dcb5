"""Administrative requests about the cluster as a whole: disks, leaders, replicas, features, quotas.

1. One node is leader and only replica of everything. Requests that move a replica or a leader are answered as by Kafka
   if there is no other node.
2. Features that this broker does not have (quotas, a metadata quorum, other log directories) are described as empty if
   that is true, and changing them is refused with an error that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from coordinator.broker.api_versions import FEATURES
from coordinator.broker.broker import Broker, Handler, Request
from coordinator.broker.configs import BROKER, GROUP, TOPIC
from coordinator.broker.topics import Topic
from coordinator.log import PartitionLog
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeClientQuotasResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListPartitionReassignmentsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_ALL_RESOURCES_VERSION = 1
_CLIENT_METRICS = 16
_SPACE_VERSION = 4
_PREFERRED, _UNCLEAN = 0, 1
_RESULTS_VERSION_MAX = 1


def _has(topic: Topic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < len(topic.partitions)


# ------------------------------------------------------------------------------------------------------ log directories


def handle_describe_log_dirs(broker: Broker, request: Request) -> DescribeLogDirsResponse:
    message: DescribeLogDirsRequest = request.message
    result = DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=0,
        log_dir=os.fspath(broker.directory.path.absolute()),
        topics=[
            DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=topic.name,
                partitions=[
                    DescribeLogDirsResponse.DescribeLogDirsPartition(
                        partition_index=number, partition_size=log.size_bytes, offset_lag=0, is_future_key=False
                    )
                    for number, log in partitions
                ],
            )
            for topic, partitions in _wanted_logs(broker, message)
            if partitions
        ],
    )
    if request.header.api_version >= _SPACE_VERSION:
        space = os.statvfs(broker.directory.path)
        result.total_bytes = space.f_blocks * space.f_frsize
        result.usable_bytes = space.f_bavail * space.f_frsize
    return DescribeLogDirsResponse(error_code=0, results=[result])


def _wanted_logs(
    broker: Broker, message: DescribeLogDirsRequest
) -> Iterator[tuple[Topic, list[tuple[int, PartitionLog]]]]:
    if message.topics is None:
        yield from ((topic, list(enumerate(topic.partitions))) for topic in broker.topics)
        return
    for wanted in message.topics:
        topic = broker.topics.get(wanted.topic)
        if topic is not None:
            yield topic, [(n, topic.partitions[n]) for n in wanted.partitions if _has(topic, n)]


def handle_alter_replica_log_dirs(broker: Broker, request: Request) -> AlterReplicaLogDirsResponse:
    """There is one log directory, in which every replica is: to move it there is done, anything else is unknown."""
    message: AlterReplicaLogDirsRequest = request.message
    own = os.fspath(broker.directory.path.absolute())
    answer = AlterReplicaLogDirsResponse(results=[])
    for directory in message.dirs:
        for wanted in directory.topics:
            topic = broker.topics.get(wanted.name)
            partitions = []
            for number in wanted.partitions:
                code = 0 if directory.path == own else ErrorCode.LOG_DIR_NOT_FOUND
                if not _has(topic, number):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions.append(
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=code
                    )
                )
            answer.results.append(
                AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=wanted.name, partitions=partitions)
            )
    return answer


# ------------------------------------------------------------------------------------------------- leaders and replicas


def handle_elect_leaders(broker: Broker, request: Request) -> ElectLeadersResponse:
    message: ElectLeadersRequest = request.message
    if message.election_type not in {_PREFERRED, _UNCLEAN}:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
    answer = ElectLeadersResponse(error_code=0, replica_election_results=[])
    for wanted in message.topic_partitions or []:
        topic = broker.topics.get(wanted.topic)
        answer.replica_election_results.append(
            ElectLeadersResponse.ReplicaElectionResult(
                topic=wanted.topic, partition_result=[_not_elected(topic, number) for number in wanted.partitions]
            )
        )
    return answer


def _not_elected(topic: Topic | None, number: int) -> ElectLeadersResponse.PartitionResult:
    if _has(topic, number):
        code, text = ErrorCode.ELECTION_NOT_NEEDED, "The only broker of this cluster leads the partition."
    else:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    return ElectLeadersResponse.PartitionResult(partition_id=number, error_code=code, error_message=text)


def handle_alter_partition_reassignments(broker: Broker, request: Request) -> AlterPartitionReassignmentsResponse:
    message: AlterPartitionReassignmentsRequest = request.message
    answer = AlterPartitionReassignmentsResponse(error_code=0, error_message=None, responses=[])
    for wanted in message.topics:
        topic = broker.topics.get(wanted.name)
        partitions = []
        for each in wanted.partitions:
            code, text = _reassignment_error(broker, topic, each)
            partitions.append(
                AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=code, error_message=text
                )
            )
        answer.responses.append(
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=wanted.name, partitions=partitions)
        )
    return answer


def _reassignment_error(
    broker: Broker, topic: Topic | None, wanted: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> tuple[int, str | None]:
    if not _has(topic, wanted.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    if wanted.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    if list(wanted.replicas) != [broker.node_id]:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The only broker of this cluster is {broker.node_id}."
    return 0, None


def handle_list_partition_reassignments(broker: Broker, request: Request) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None, topics=[])


# --------------------------------------------------------------------------------------------------- features and quotas


def handle_update_features(broker: Broker, request: Request) -> UpdateFeaturesResponse:
    """Features are those of the broker's version: an update to what is there is done, any other one is refused."""
    message: UpdateFeaturesRequest = request.message
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature=update.feature,
            error_code=0 if reason is None else ErrorCode.INVALID_UPDATE_VERSION,
            error_message=reason,
        )
        for update in message.feature_updates
        for reason in [_feature_refusal(update)]
    ]
    refused = next((each.error_message for each in results if each.error_code), None)
    if request.header.api_version <= _RESULTS_VERSION_MAX:
        return UpdateFeaturesResponse(error_code=0, error_message=None, results=results)
    if refused is None:
        return UpdateFeaturesResponse(error_code=0, error_message=None)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"The update failed for all features since the following feature had an error: {refused}",
    )


def _feature_refusal(update: UpdateFeaturesRequest.FeatureUpdateKey) -> str | None:
    known = FEATURES.get(update.feature)
    level = update.max_version_level
    if known is not None and level == known[1]:
        return None
    reason = (
        "This broker does not know the feature."
        if known is None
        else f"This version of the broker fixes it at {known[1]}."
    )
    return f"Invalid update version {level} for feature {update.feature}. {reason}"


def handle_describe_client_quotas(broker: Broker, request: Request) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=0, error_message=None, entries=[])


def handle_alter_client_quotas(broker: Broker, request: Request) -> AlterClientQuotasResponse:
    message: AlterClientQuotasRequest = request.message
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="This broker has no client quotas.",
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in message.entries
        ]
    )


# ------------------------------------------------------------------------------------------------------ config resources


def handle_list_config_resources(broker: Broker, request: Request) -> ListConfigResourcesResponse:
    """The resources whose settings can be described. Version 0 asks for subscriptions of client metrics: there are none."""
    message: ListConfigResourcesRequest = request.message
    if request.header.api_version < _ALL_RESOURCES_VERSION:
        return ListConfigResourcesResponse(error_code=0, config_resources=[])
    wanted = set(message.resource_types) or {TOPIC, BROKER, GROUP, _CLIENT_METRICS}
    if wanted - {TOPIC, BROKER, GROUP, _CLIENT_METRICS}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    names: list[tuple[int, Iterable[str]]] = [
        (TOPIC, (topic.name for topic in broker.topics)),
        (BROKER, [str(broker.node_id)]),
        (GROUP, broker.groups.groups_with_configs()),
    ]
    return ListConfigResourcesResponse(
        error_code=0,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, each in names
            if kind in wanted
            for name in each
        ],
    )


HANDLERS: dict[int, Handler] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: handle_alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
    ApiKey.ELECT_LEADERS: handle_elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: handle_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: handle_list_partition_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: handle_describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: handle_alter_client_quotas,
    ApiKey.UPDATE_FEATURES: handle_update_features,
    ApiKey.LIST_CONFIG_RESOURCES: handle_list_config_resources,
}
