"""A request of every API, the rights that it needs, and what it is answered when one of them is missing.

The rules are Kafka's (``KafkaApis``, ``ControllerApis``, ``AclApis``). The table is used against the bundled broker in
process, and against it and Apache Kafka over sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator.security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import encode_batch
from streamsrt.wire.schema import ApiKey, Message

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = frozenset({TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED})

OPEN_TO_ALL = frozenset({ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE})


class Need(NamedTuple):
    """A right, and the error without it."""

    operation: Operation
    resource_type: ResourceType
    name: str
    code: ErrorCode
    pattern_type: PatternType = PatternType.LITERAL

    def granted_to(self, principal: str) -> Acl:
        return Acl(
            *(self.resource_type, self.pattern_type, self.name, principal, "*", self.operation, Permission.ALLOW)
        )


@dataclass(frozen=True)
class Case:
    """``make`` makes the request, of this version, of a caller with this name; ``needs`` are all needed at once."""

    name: str
    make: Callable[[str], Message]
    version: int
    needs: tuple[Need, ...]

    @property
    def api_key(self) -> int:
        key = self.make("x").API_KEY
        assert key is not None
        return key


@dataclass(frozen=True)
class Listing:
    """A request that is answered with what the caller may see of everything; ``seen`` are the names in an answer."""

    name: str
    make: Callable[[], Message]
    version: int
    seen: Callable[[Any], set[str]]
    expected: str
    rights: tuple[tuple[Operation, ResourceType, str], ...] = field(default=())

    @property
    def api_key(self) -> int:
        key = self.make().API_KEY
        assert key is not None
        return key


def denials(message: object) -> set[int]:
    """Every error of authorisation anywhere in an answer."""
    return {code for code in _codes(message) if code in DENIALS}


def _codes(value: object) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _codes(each)
    for name in getattr(value, "__slots__", ()):
        part = getattr(value, name)
        if name.endswith("error_code"):
            yield part
        elif name != "unknown_tags":
            yield from _codes(part)


# ------------------------------------------------------------------------------------------------------------ the table

_O, _R = Operation, ResourceType


def topic(operation: Operation, name: str = "t") -> Need:
    return Need(operation, _R.TOPIC, name, TOPIC_DENIED)


def group(operation: Operation, name: str = "g") -> Need:
    return Need(operation, _R.GROUP, name, GROUP_DENIED)


def cluster(operation: Operation) -> Need:
    return Need(operation, _R.CLUSTER, CLUSTER_NAME, CLUSTER_DENIED)


def transaction(operation: Operation) -> Need:
    return Need(operation, _R.TRANSACTIONAL_ID, "x", TRANSACTION_DENIED)


def _production(batch: bytes, transactional_id: str | None = None) -> types.ProduceRequest:
    data = types.ProduceRequest.PartitionProduceData(index=0, records=batch)
    return types.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[types.ProduceRequest.TopicProduceData(name="t", partition_data=[data])],
    )


_PLAIN = encode_batch([None], [b"v"], [1])
_TRANSACTIONAL = encode_batch(
    [None], [b"v"], [1], transactional=True, producer_id=4711, producer_epoch=0, base_sequence=0
)


def _fetch(name: str) -> types.FetchRequest:
    request = types.FetchRequest
    partition = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return request(max_wait_ms=0, min_bytes=0, topics=[request.FetchTopic(topic=name, partitions=[partition])])


def _commit(name: str) -> types.OffsetCommitRequest:
    request = types.OffsetCommitRequest
    partition = request.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [request.OffsetCommitRequestTopic(name=name, partitions=[partition])]
    return request(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)


def _fetch_offsets(name: str) -> types.OffsetFetchRequest:
    request = types.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(name=name, partition_indexes=[0])]
    return request(groups=[request.OffsetFetchRequestGroup(group_id="g", topics=topics)])


def _fetch_offsets_of_one(name: str) -> types.OffsetFetchRequest:
    request = types.OffsetFetchRequest
    return request(group_id="g", topics=[request.OffsetFetchRequestTopic(name=name, partition_indexes=[0])])


def _creation(name: str) -> types.CreateTopicsRequest:
    wanted = types.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return types.CreateTopicsRequest(topics=[wanted], timeout_ms=1000, validate_only=True)


def _commit_in_transaction() -> types.TxnOffsetCommitRequest:
    request = types.TxnOffsetCommitRequest
    partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return request(
        transactional_id="x",
        group_id="g",
        producer_id=4711,
        producer_epoch=0,
        topics=[request.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def _streams_heartbeat(member: str) -> types.StreamsGroupHeartbeatRequest:
    request = types.StreamsGroupHeartbeatRequest
    part = request.Subtopology(subtopology_id="0", source_topics=["t"])
    return request(
        group_id="gs",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        topology=request.Topology(epoch=0, subtopologies=[part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=member,
        client_tags=[],
    )


def _consumer_heartbeat(member: str) -> types.ConsumerGroupHeartbeatRequest:
    return types.ConsumerGroupHeartbeatRequest(
        group_id="gc",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def _join(member: str) -> types.JoinGroupRequest:
    request = types.JoinGroupRequest
    protocols = [request.JoinGroupRequestProtocol(name="range", metadata=b"")]
    return request(group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)


def _configs(kind: int, name: str) -> types.DescribeConfigsRequest:
    resource = types.DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    return types.DescribeConfigsRequest(resources=[resource])


def _altered(kind: int, name: str) -> types.IncrementalAlterConfigsRequest:
    resource = types.IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=kind, resource_name=name)
    return types.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def _named(kind: Any, entry: Any, **fields: Any) -> Any:
    return kind(topics=[entry(**fields)])


def _markers() -> types.WriteTxnMarkersRequest:
    request = types.WriteTxnMarkersRequest
    marker = request.WritableTxnMarker(
        producer_id=4711,
        producer_epoch=0,
        transaction_result=False,
        topics=[request.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    return request(markers=[marker])


def _quota() -> types.AlterClientQuotasRequest:
    request = types.AlterClientQuotasRequest
    entity = request.EntityData(entity_type="user", entity_name="nobody")
    entry = request.EntryData(entity=[entity], ops=[request.OpData(key="producer_byte_rate", value=1.0)])
    return request(entries=[entry], validate_only=True)


def _acl() -> types.CreateAclsRequest:
    creation = types.CreateAclsRequest.AclCreation(
        resource_type=_R.TOPIC,
        resource_name="t",
        principal="User:nobody",
        host="*",
        operation=_O.READ,
        permission_type=Permission.ALLOW,
    )
    return types.CreateAclsRequest(creations=[creation])


def _acl_filter() -> types.DeleteAclsRequest:
    chosen = types.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=_R.TOPIC,
        resource_name_filter="t",
        principal_filter="User:nobody",
        host_filter=None,
        operation=_O.ANY,
        permission_type=Permission.ANY,
    )
    return types.DeleteAclsRequest(filters=[chosen])


_Metadata = types.MetadataRequest
_Reassign = types.AlterPartitionReassignmentsRequest
_LogDirs = types.AlterReplicaLogDirsRequest
_Scram = types.AlterUserScramCredentialsRequest
_ScramUsers = types.DescribeUserScramCredentialsRequest
_AddPartitions = types.AddPartitionsToTxnRequest
_ListOffsets = types.ListOffsetsRequest
_Epochs = types.OffsetForLeaderEpochRequest
_Records = types.DeleteRecordsRequest
_Elect = types.ElectLeadersRequest

CASES = (
    Case("produce", lambda _: _production(_PLAIN), 12, (topic(_O.WRITE),)),
    Case(
        "produce in a transaction",
        lambda _: _production(_TRANSACTIONAL, "x"),
        12,
        (transaction(_O.WRITE), topic(_O.WRITE)),
    ),
    Case("fetch", lambda _: _fetch("t"), 12, (topic(_O.READ),)),
    Case("fetch of what does not exist", lambda _: _fetch("nowhere"), 12, (topic(_O.READ, "nowhere"),)),
    Case(
        "list offsets",
        lambda _: _ListOffsets(
            replica_id=-1,
            topics=[
                _ListOffsets.ListOffsetsTopic(
                    name="t", partitions=[_ListOffsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        7,
        (topic(_O.DESCRIBE),),
    ),
    *(
        Case(
            f"metadata of {name}, v{version}",
            lambda _, name=name: _Metadata(
                topics=[_Metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            ),
            version,
            (topic(_O.DESCRIBE, name),),
        )
        for version, name in ((1, "t"), (4, "t"), (4, "nowhere"), (12, "t"), (12, "nowhere"))
    ),
    Case(
        "metadata that makes a topic",
        lambda caller: _Metadata(
            topics=[_Metadata.MetadataRequestTopic(name=f"auto-{caller}")], allow_auto_topic_creation=True
        ),
        12,
        (
            Need(_O.DESCRIBE, _R.TOPIC, "auto-", TOPIC_DENIED, PatternType.PREFIXED),
            Need(_O.CREATE, _R.TOPIC, "auto-", TOPIC_DENIED, PatternType.PREFIXED),
        ),
    ),
    Case("commit", lambda _: _commit("t"), 8, (group(_O.READ), topic(_O.READ))),
    Case("commit, what does not exist", lambda _: _commit("nowhere"), 8, (group(_O.READ), topic(_O.READ, "nowhere"))),
    Case("fetch offsets", lambda _: _fetch_offsets("t"), 8, (group(_O.DESCRIBE), topic(_O.DESCRIBE))),
    Case("fetch offsets, v7", lambda _: _fetch_offsets_of_one("t"), 7, (group(_O.DESCRIBE), topic(_O.DESCRIBE))),
    Case("find a group", lambda _: types.FindCoordinatorRequest(coordinator_keys=["g"]), 4, (group(_O.DESCRIBE),)),
    Case("find a group, v3", lambda _: types.FindCoordinatorRequest(key="g"), 3, (group(_O.DESCRIBE),)),
    Case(
        "find a transaction",
        lambda _: types.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        4,
        (transaction(_O.DESCRIBE),),
    ),
    Case("join", _join, 5, (group(_O.READ),)),
    Case(
        "heartbeat",
        lambda _: types.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        4,
        (group(_O.READ),),
    ),
    Case(
        "leave",
        lambda _: types.LeaveGroupRequest(
            group_id="g", members=[types.LeaveGroupRequest.MemberIdentity(member_id="m")]
        ),
        4,
        (group(_O.READ),),
    ),
    Case(
        "sync",
        lambda _: types.SyncGroupRequest(
            group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        5,
        (group(_O.READ),),
    ),
    Case("describe groups", lambda _: types.DescribeGroupsRequest(groups=["g"]), 5, (group(_O.DESCRIBE),)),
    Case("delete groups", lambda _: types.DeleteGroupsRequest(groups_names=["gone"]), 2, (group(_O.DELETE, "gone"),)),
    Case(
        "delete offsets",
        lambda _: _named(
            lambda topics: types.OffsetDeleteRequest(group_id="g", topics=topics),
            types.OffsetDeleteRequest.OffsetDeleteRequestTopic,
            name="t",
            partitions=[types.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)],
        ),
        0,
        (group(_O.DELETE), topic(_O.READ)),
    ),
    Case("consumer heartbeat", _consumer_heartbeat, 1, (group(_O.READ, "gc"), topic(_O.DESCRIBE))),
    Case(
        "describe consumer groups",
        lambda _: types.ConsumerGroupDescribeRequest(group_ids=["g"]),
        1,
        (group(_O.DESCRIBE),),
    ),
    Case("streams heartbeat", _streams_heartbeat, 0, (group(_O.READ, "gs"), topic(_O.DESCRIBE))),
    Case(
        "describe streams groups",
        lambda _: types.StreamsGroupDescribeRequest(group_ids=["g"]),
        0,
        (group(_O.DESCRIBE),),
    ),
    Case(
        "create topics",
        lambda _: _creation("made"),
        7,
        (topic(_O.CREATE, "made"), topic(_O.DESCRIBE_CONFIGS, "made")),
    ),
    Case(
        "delete topics",
        lambda _: types.DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000),
        5,
        (topic(_O.DELETE, "gone"),),
    ),
    Case(
        "create partitions",
        lambda _: _named(
            lambda topics: types.CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True),
            types.CreatePartitionsRequest.CreatePartitionsTopic,
            name="t",
            count=5,
            assignments=None,
        ),
        3,
        (topic(_O.ALTER),),
    ),
    Case(
        "delete records",
        lambda _: _named(
            lambda topics: _Records(topics=topics, timeout_ms=1000),
            _Records.DeleteRecordsTopic,
            name="t",
            partitions=[_Records.DeleteRecordsPartition(partition_index=0, offset=0)],
        ),
        2,
        (topic(_O.DELETE),),
    ),
    Case(
        "a producer",
        lambda _: types.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        (cluster(_O.IDEMPOTENT_WRITE),),
    ),
    Case(
        "a producer that may write somewhere",
        lambda _: types.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        4,
        (Need(_O.WRITE, _R.TOPIC, "elsewhere", CLUSTER_DENIED),),
    ),
    Case(
        "a transactional producer",
        lambda _: types.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        4,
        (transaction(_O.WRITE),),
    ),
    Case(
        "add partitions",
        lambda _: _AddPartitions(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=4711,
            v3_and_below_topics=[_AddPartitions.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
        (transaction(_O.WRITE), topic(_O.WRITE)),
    ),
    Case(
        "add offsets",
        lambda _: types.AddOffsetsToTxnRequest(transactional_id="x", producer_id=4711, producer_epoch=0, group_id="g"),
        3,
        (transaction(_O.WRITE), group(_O.READ)),
    ),
    Case(
        "end a transaction",
        lambda _: types.EndTxnRequest(transactional_id="x", producer_id=4711, producer_epoch=0, committed=False),
        3,
        (transaction(_O.WRITE),),
    ),
    Case(
        "commit in a transaction",
        lambda _: _commit_in_transaction(),
        3,
        (transaction(_O.WRITE), group(_O.READ), topic(_O.READ)),
    ),
    Case("markers", lambda _: _markers(), 1, (cluster(_O.CLUSTER_ACTION),)),
    Case("markers, by an administrator", lambda _: _markers(), 1, (cluster(_O.ALTER),)),
    Case(
        "describe producers",
        lambda _: _named(
            types.DescribeProducersRequest,
            types.DescribeProducersRequest.TopicRequest,
            name="t",
            partition_indexes=[0],
        ),
        0,
        (topic(_O.READ),),
    ),
    Case(
        "describe transactions",
        lambda _: types.DescribeTransactionsRequest(transactional_ids=["x"]),
        0,
        (transaction(_O.DESCRIBE),),
    ),
    Case(
        "offset for leader epoch",
        lambda _: _named(
            lambda topics: _Epochs(replica_id=-1, topics=topics),
            _Epochs.OffsetForLeaderTopic,
            topic="t",
            partitions=[_Epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)],
        ),
        4,
        (topic(_O.DESCRIBE),),
    ),
    Case("configs of a topic", lambda _: _configs(2, "t"), 4, (topic(_O.DESCRIBE_CONFIGS),)),
    Case("configs of a broker", lambda _: _configs(4, "1"), 4, (cluster(_O.DESCRIBE_CONFIGS),)),
    Case("configs of a group", lambda _: _configs(32, "g"), 4, (group(_O.DESCRIBE_CONFIGS),)),
    Case("change a topic's configs", lambda _: _altered(2, "t"), 1, (topic(_O.ALTER_CONFIGS),)),
    Case("change a broker's configs", lambda _: _altered(4, "1"), 1, (cluster(_O.ALTER_CONFIGS),)),
    Case("change a group's configs", lambda _: _altered(32, "g"), 1, (group(_O.ALTER_CONFIGS),)),
    Case(
        "replace a topic's configs",
        lambda _: types.AlterConfigsRequest(
            resources=[types.AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")],
            validate_only=True,
        ),
        2,
        (topic(_O.ALTER_CONFIGS),),
    ),
    Case(
        "move log directories",
        lambda _: _LogDirs(
            dirs=[
                _LogDirs.AlterReplicaLogDir(
                    path="/nowhere", topics=[_LogDirs.AlterReplicaLogDirTopic(name="t", partitions=[0])]
                )
            ]
        ),
        2,
        (cluster(_O.ALTER),),
    ),
    Case("log directories", lambda _: types.DescribeLogDirsRequest(topics=None), 4, (cluster(_O.DESCRIBE),)),
    Case(
        "elect leaders",
        lambda _: _Elect(topic_partitions=[_Elect.TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000),
        2,
        (cluster(_O.ALTER),),
    ),
    Case(
        "reassign partitions",
        lambda _: _Reassign(
            timeout_ms=1000,
            topics=[
                _Reassign.ReassignableTopic(
                    name="t", partitions=[_Reassign.ReassignablePartition(partition_index=0, replicas=None)]
                )
            ],
        ),
        0,
        (cluster(_O.ALTER),),
    ),
    Case(
        "reassignments",
        lambda _: types.ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None),
        0,
        (cluster(_O.DESCRIBE),),
    ),
    Case(
        "quotas",
        lambda _: types.DescribeClientQuotasRequest(components=[], strict=False),
        1,
        (cluster(_O.DESCRIBE_CONFIGS),),
    ),
    Case("change quotas", lambda _: _quota(), 1, (cluster(_O.ALTER_CONFIGS),)),
    Case(
        "SCRAM users",
        lambda _: _ScramUsers(users=[_ScramUsers.UserName(name="nobody")]),
        0,
        (cluster(_O.DESCRIBE),),
    ),
    Case(
        "change SCRAM users",
        lambda _: _Scram(deletions=[_Scram.ScramCredentialDeletion(name="nobody", mechanism=1)], upsertions=[]),
        0,
        (cluster(_O.ALTER),),
    ),
    Case(
        "features",
        lambda _: types.UpdateFeaturesRequest(
            timeout_ms=1000,
            feature_updates=[
                types.UpdateFeaturesRequest.FeatureUpdateKey(
                    feature="streams.version", max_version_level=1, upgrade_type=1
                )
            ],
            validate_only=True,
        ),
        1,
        (cluster(_O.ALTER),),
    ),
    Case("config resources", lambda _: types.ListConfigResourcesRequest(), 1, (cluster(_O.DESCRIBE_CONFIGS),)),
    Case(
        "partitions of a topic",
        lambda _: _named(
            lambda topics: types.DescribeTopicPartitionsRequest(
                topics=topics, response_partition_limit=10, cursor=None
            ),
            types.DescribeTopicPartitionsRequest.TopicRequest,
            name="t",
        ),
        0,
        (topic(_O.DESCRIBE),),
    ),
    Case("create ACLs", lambda _: _acl(), 3, (cluster(_O.ALTER),)),
    Case(
        "ACLs",
        lambda _: types.DescribeAclsRequest(
            resource_type_filter=_R.ANY,
            resource_name_filter=None,
            principal_filter="User:nobody",
            host_filter=None,
            operation=_O.ANY,
            permission_type=Permission.ANY,
        ),
        3,
        (cluster(_O.DESCRIBE),),
    ),
    Case("delete ACLs", lambda _: _acl_filter(), 3, (cluster(_O.ALTER),)),
)


def _topics_of(answer: Any) -> set[str]:
    return {each.name for each in answer.topics}


LISTINGS = (
    Listing(
        "all topics",
        lambda: _Metadata(topics=None, allow_auto_topic_creation=False),
        12,
        _topics_of,
        "t",
        ((_O.DESCRIBE, _R.TOPIC, "t"),),
    ),
    Listing(
        "partitions of all topics",
        lambda: types.DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10, cursor=None),
        0,
        _topics_of,
        "t",
        ((_O.READ, _R.TOPIC, "t"),),
    ),
    Listing(
        "groups",
        types.ListGroupsRequest,
        4,
        lambda answer: {each.group_id for each in answer.groups},
        "g",
        ((_O.READ, _R.GROUP, "g"),),
    ),
    Listing(
        "all groups",
        types.ListGroupsRequest,
        4,
        lambda answer: {each.group_id for each in answer.groups},
        "g",
        ((_O.DESCRIBE, _R.CLUSTER, CLUSTER_NAME),),
    ),
    Listing(
        "transactions",
        types.ListTransactionsRequest,
        0,
        lambda answer: {each.transactional_id for each in answer.transaction_states},
        "x",
        ((_O.WRITE, _R.TRANSACTIONAL_ID, "x"),),
    ),
)


def setup_requests() -> Iterator[tuple[Message, int]]:
    """What a super user makes before: the topics ``t`` and ``gone``, offsets of the group ``g``, the transaction ``x``."""
    for name in ("t", "gone"):
        wanted = types.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        yield types.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7
    yield types.FindCoordinatorRequest(coordinator_keys=["g"]), 4
    yield _commit("t"), 8
    yield types.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4
    yield types.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=10_000), 4
