"""Rights to describe and change the cluster: Kafka's ``KafkaApis``, ``ControllerApis`` and ``AclApis``.

Most of it is one operation on the cluster. Settings of a topic or a group require DESCRIBE_CONFIGS or ALTER_CONFIGS on
it; all other settings require it on the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from coordinator.broker.access import Access
from coordinator.broker.authorization.guard import (
    CLUSTER_DENIED,
    CLUSTER_MESSAGE,
    GROUP_DENIED,
    GROUP_MESSAGE,
    TOPIC_DENIED,
    TOPIC_MESSAGE,
    parted,
)
from coordinator.broker.broker import Answer, Broker, Handler, Request, then
from coordinator.broker.configs import GROUP, TOPIC
from coordinator.security.acls import Operation, ResourceType
from streamsrt.wire.types import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    DescribeUserScramCredentialsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
    ListPartitionReassignmentsResponse,
    Message,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Altered = TypeVar(
    "Altered",
    AlterConfigsResponse.AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
)
Result = TypeVar(
    "Result",
    AlterConfigsResponse.AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse.AlterConfigsResourceResponse,
    DescribeConfigsResponse.DescribeConfigsResult,
)
_Resource = (
    AlterConfigsRequest.AlterConfigsResource
    | IncrementalAlterConfigsRequest.AlterConfigsResource
    | DescribeConfigsRequest.DescribeConfigsResource
)
_AlterResponse = AlterConfigsResponse | IncrementalAlterConfigsResponse

# ------------------------------------------------------------------------------------------------------------- settings


def _may_configure(access: Access, operation: Operation, resource_type: int, name: str) -> bool:
    if resource_type == TOPIC:
        return access.may(operation, ResourceType.TOPIC, name)
    if resource_type == GROUP:
        return access.may(operation, ResourceType.GROUP, name)
    return access.may_with_cluster(operation)


def _config_refusal(resource_type: int) -> tuple[int, str]:
    if resource_type == TOPIC:
        return TOPIC_DENIED, TOPIC_MESSAGE
    if resource_type == GROUP:
        return GROUP_DENIED, GROUP_MESSAGE
    return CLUSTER_DENIED, CLUSTER_MESSAGE


def describe_configs(handler: Handler, broker: Broker, request: Request) -> Answer:
    message, operation = request.message, Operation.DESCRIBE_CONFIGS
    message.resources, denied = parted(
        message.resources,
        lambda each: _may_configure(request.access, operation, each.resource_type, each.resource_name),
    )
    refused = _unconfigured(DescribeConfigsResponse.DescribeConfigsResult, denied)

    def joined(answer: DescribeConfigsResponse) -> DescribeConfigsResponse:
        answer.results.extend(refused)
        return answer

    return then(handler(broker, request), joined)


def _alter(handler: Handler, broker: Broker, request: Request, result: Callable[..., Altered]) -> Answer:
    message, operation = request.message, Operation.ALTER_CONFIGS
    counts = Counter((each.resource_type, each.resource_name) for each in message.resources)
    message.resources, denied = parted(
        message.resources,
        lambda each: (
            counts[each.resource_type, each.resource_name] > 1
            or _may_configure(request.access, operation, each.resource_type, each.resource_name)
        ),
    )
    refused = _unconfigured(result, denied)

    def joined(answer: _AlterResponse) -> _AlterResponse:
        answer.responses.extend(refused)  # type: ignore[arg-type]  # results of the same API
        return answer

    return then(handler(broker, request), joined)


def _unconfigured(result: Callable[..., Result], denied: Iterable[_Resource]) -> list[Result]:
    results = []
    for each in denied:
        code, text = _config_refusal(each.resource_type)
        results.append(
            result(
                error_code=code, error_message=text, resource_type=each.resource_type, resource_name=each.resource_name
            )
        )
    return results


def alter_configs(handler: Handler, broker: Broker, request: Request) -> Answer:
    return _alter(handler, broker, request, AlterConfigsResponse.AlterConfigsResourceResponse)


def incremental_alter_configs(handler: Handler, broker: Broker, request: Request) -> Answer:
    return _alter(handler, broker, request, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse)


# ------------------------------------------------------------------------- answers to who lacks a right on the cluster


def no_create_acls(message: CreateAclsRequest) -> CreateAclsResponse:
    result = CreateAclsResponse.AclCreationResult(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE)
    return CreateAclsResponse(results=[result for _ in message.creations])


def no_delete_acls(message: DeleteAclsRequest) -> DeleteAclsResponse:
    result = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[result for _ in message.filters])


def no_describe_acls(message: Message) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, resources=[])


def no_alter_replica_log_dirs(message: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    response = AlterReplicaLogDirsResponse
    return response(
        results=[
            response.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    response.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=CLUSTER_DENIED)
                    for number in topic.partitions
                ],
            )
            for directory in message.dirs
            for topic in directory.topics
        ]
    )


def no_describe_log_dirs(message: Message) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=CLUSTER_DENIED, results=[])


def no_elect_leaders(message: ElectLeadersRequest) -> ElectLeadersResponse:
    response = ElectLeadersResponse
    return response(
        error_code=CLUSTER_DENIED,
        replica_election_results=[
            response.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    response.PartitionResult(
                        partition_id=number, error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE
                    )
                    for number in topic.partitions
                ],
            )
            for topic in message.topic_partitions or ()
        ],
    )


def no_alter_partition_reassignments(message: Message) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, responses=[])


def no_list_partition_reassignments(message: Message) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, topics=[])


def no_describe_client_quotas(message: Message) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, entries=None)


def no_alter_client_quotas(message: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    response = AlterClientQuotasResponse
    return response(
        entries=[
            response.EntryData(
                error_code=CLUSTER_DENIED,
                error_message=CLUSTER_MESSAGE,
                entity=[
                    response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in message.entries
        ]
    )


def no_describe_user_scram_credentials(message: Message) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, results=[])


def no_alter_user_scram_credentials(message: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([*(each.name for each in message.deletions), *(each.name for each in message.upsertions)])
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return AlterUserScramCredentialsResponse(
        results=[result(user=user, error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE) for user in users]
    )


def no_update_features(message: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=CLUSTER_DENIED, error_message=CLUSTER_MESSAGE, results=[])


def no_list_config_resources(message: Message) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=CLUSTER_DENIED, config_resources=[])


def no_write_txn_markers(message: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse
    return response(
        markers=[
            response.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    response.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            response.WritableTxnMarkerPartitionResult(partition_index=number, error_code=CLUSTER_DENIED)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )
