"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords.

1. Each topic has an answer of its own; one that is in a request twice is refused both times.
2. Changes are made in the order in which they came. More than ``CHANGES_AT_ONCE`` partitions or topics are changed in
   slices, so that other clients are served in between. A change that has begun ends, whether or not its client is still
   there.
3. Topics of the broker's own keep their number of partitions and are not deleted: groups are found by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable

from coordinator.broker.broker import CHANGES_AT_ONCE, Answer, Broker, Handler, Request
from coordinator.broker.config_definitions import TOPIC_CONFIGS
from coordinator.broker.configs import topic_origins
from coordinator.broker.slices import in_steps
from coordinator.broker.topics import PARTITIONS_PER_REQUEST_MAX, Topic, TopicRefusedError
from coordinator.log import LogError
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.primitives import ZERO_UUID
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

_HIGH_WATERMARK = -1


def _total(counts: Iterable[int]) -> int:
    return sum(count for count in counts if count > 0)


def _check_total(total: int) -> None:
    """Checks Kafka's limit on one request. Raises :class:`TopicRefusedError`."""
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise TopicRefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: at most {PARTITIONS_PER_REQUEST_MAX}.",
        )


def handle_create_topics(broker: Broker, request: Request) -> Answer:
    message: CreateTopicsRequest = request.message
    default = broker.integer("num.partitions")
    total = _total(
        len(wanted.assignments) or (default if wanted.num_partitions == -1 else wanted.num_partitions)
        for wanted in message.topics
    )
    # Without a change, only the number of topics counts.
    partitions = 0 if message.validate_only else total
    answer = broker.carried_out(_create_topics(broker, message, total), max(partitions, len(message.topics)))
    return answer if message.validate_only else broker.acknowledged(answer)


def _create_topics(
    broker: Broker, message: CreateTopicsRequest, total: int
) -> Generator[None, None, CreateTopicsResponse]:
    seen = Counter(wanted.name for wanted in message.topics)
    answer = CreateTopicsResponse(topics=[])
    for wanted in message.topics:
        yield
        try:
            if seen[wanted.name] > 1:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_total(total)
            answer.topics.append((yield from _create(broker, wanted, validate_only=message.validate_only)))
        except TopicRefusedError as refused:
            answer.topics.append(_not_created(wanted.name, refused.error_code, str(refused)))
        except LogError as error:
            answer.topics.append(_not_created(wanted.name, error.error_code, str(error)))
    if not message.validate_only:
        broker.topics_changed()
    return answer


def _not_created(name: str, code: int, text: str) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, topic_id=ZERO_UUID, error_code=code, error_message=text, configs=None
    )


def _partition_count(broker: Broker, wanted: CreateTopicsRequest.CreatableTopic) -> int:
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise TopicRefusedError(
                ErrorCode.INVALID_REQUEST, "numPartitions and replicationFactor must be -1 when assignments are given."
            )
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise TopicRefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered consecutively from 0."
            )
        _check_replicas(broker, [assignment.broker_ids for assignment in wanted.assignments])
        return len(indexes)
    if wanted.replication_factor not in {-1, 1}:
        raise TopicRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {wanted.replication_factor} time(s): this cluster has 1 broker; "
            "give replication factor 1 or -1.",
        )
    return broker.integer("num.partitions") if wanted.num_partitions == -1 else wanted.num_partitions


def _check_replicas(broker: Broker, assignments: Iterable[list[int]]) -> None:
    if any(broker_ids != [broker.node_id] for broker_ids in assignments):
        raise TopicRefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The only broker of this cluster is {broker.node_id}."
        )


def _create(
    broker: Broker, wanted: CreateTopicsRequest.CreatableTopic, *, validate_only: bool
) -> Generator[None, None, CreateTopicsResponse.CreatableTopicResult]:
    configs = {config.name: config.value for config in wanted.configs if config.value is not None}
    nulls = ", ".join(config.name for config in wanted.configs if config.value is None)
    if nulls:
        raise TopicRefusedError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {nulls}")
    partitions = _partition_count(broker, wanted)
    broker.topics.check_create(wanted.name, partitions, configs)
    topic = (
        Topic(wanted.name, ZERO_UUID, configs)
        if validate_only
        else (yield from broker.topics.creating(wanted.name, partitions, configs))
    )
    return CreateTopicsResponse.CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=key,
                value=TOPIC_CONFIGS[key].render(value),
                config_source=topic_origins(broker, topic, key)[0].source,
            )
            for key, value in sorted(broker.topics.effective_configs(topic).items())
        ],
    )


def handle_delete_topics(broker: Broker, request: Request) -> Answer:
    message: DeleteTopicsRequest = request.message
    topics, partitions = len(message.topics) + len(message.topic_names), 0
    if topics <= CHANGES_AT_ONCE:
        known = [
            *map(broker.topics.get, message.topic_names),
            *(
                broker.topics.by_id(each.topic_id) if each.name is None else broker.topics.get(each.name)
                for each in message.topics
            ),
        ]
        partitions = sum(len(topic.partitions) for topic in known if topic is not None)
    return broker.acknowledged(broker.carried_out(_delete_topics(broker, message), max(partitions, topics)))


def _delete_topics(broker: Broker, message: DeleteTopicsRequest) -> Generator[None, None, DeleteTopicsResponse]:
    state = DeleteTopicsRequest.DeleteTopicState
    wanted = message.topics
    if not wanted:
        wanted = yield from in_steps(state(name=name) for name in message.topic_names)
    seen = Counter((yield from in_steps((each.name, each.topic_id) for each in wanted)))
    answer = DeleteTopicsResponse(responses=[])
    for each in wanted:
        yield
        result = DeleteTopicsResponse.DeletableTopicResult(
            name=each.name, topic_id=each.topic_id, error_code=0, error_message=None
        )
        answer.responses.append(result)
        try:
            if seen[each.name, each.topic_id] > 1:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = _to_delete(broker, each)
            result.name, result.topic_id = topic.name, topic.id
            yield from broker.topics.deleting(topic)
        except TopicRefusedError as refused:
            result.error_code, result.error_message = refused.error_code, str(refused)
        except LogError as error:
            result.error_code, result.error_message = error.error_code, str(error)
        else:
            for log in topic.partitions:
                broker.purgatory.wake(log)
    broker.topics_changed()
    return answer


def _to_delete(broker: Broker, wanted: DeleteTopicsRequest.DeleteTopicState) -> Topic:
    if wanted.name is None:
        topic = broker.topics.by_id(wanted.topic_id)
        if topic is None:
            raise TopicRefusedError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    elif wanted.topic_id != ZERO_UUID:
        raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    else:
        topic = broker.topics.get(wanted.name)
        if topic is None:
            raise TopicRefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
    if not broker.configs["delete.topic.enable"]:
        raise TopicRefusedError(
            ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable is false."
        )
    _check_not_internal(topic)
    return topic


def _check_not_internal(topic: Topic) -> None:
    """Refuses changes of internal topics: offsets and groups are found by the partition count of their topic."""
    if topic.is_internal:
        raise TopicRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' is internal: only the broker changes it."
        )


def handle_create_partitions(broker: Broker, request: Request) -> Answer:
    message: CreatePartitionsRequest = request.message
    total = 0 if message.validate_only else _total(wanted.count for wanted in message.topics)
    return broker.acknowledged(broker.carried_out(_create_partitions(broker, message), max(total, len(message.topics))))


def _create_partitions(
    broker: Broker, message: CreatePartitionsRequest
) -> Generator[None, None, CreatePartitionsResponse]:
    seen = Counter(wanted.name for wanted in message.topics)
    total = _total(wanted.count for wanted in message.topics)
    answer = CreatePartitionsResponse(results=[])
    for wanted in message.topics:
        yield
        result = CreatePartitionsResponse.CreatePartitionsTopicResult(
            name=wanted.name, error_code=0, error_message=None
        )
        answer.results.append(result)
        try:
            if seen[wanted.name] > 1:
                raise TopicRefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_total(total)
            topic = _to_grow(broker, wanted)
            if not message.validate_only:
                yield from broker.topics.adding_partitions(topic, wanted.count)
        except TopicRefusedError as refused:
            result.error_code, result.error_message = refused.error_code, str(refused)
        except LogError as error:
            result.error_code, result.error_message = error.error_code, str(error)
    broker.topics_changed()
    return answer


def _to_grow(broker: Broker, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> Topic:
    topic = broker.topics.get(wanted.name)
    if topic is None:
        raise TopicRefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
    _check_not_internal(topic)
    broker.topics.check_growth(topic, wanted.count)
    if wanted.assignments is not None:
        added = wanted.count - len(topic.partitions)
        if len(wanted.assignments) != added:
            raise TopicRefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), "
                f"but {len(wanted.assignments)} assignment(s) were specified.",
            )
        _check_replicas(broker, [assignment.broker_ids for assignment in wanted.assignments])
    return topic


def handle_delete_records(broker: Broker, request: Request) -> DeleteRecordsResponse:
    answer = DeleteRecordsResponse(topics=[])
    for wanted in request.message.topics:
        topic = broker.topics.get(wanted.name)
        answer.topics.append(
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=wanted.name,
                partitions=[_delete_records(topic, each.partition_index, each.offset) for each in wanted.partitions],
            )
        )
    return answer


def _delete_records(
    topic: Topic | None, partition: int, offset: int
) -> DeleteRecordsResponse.DeleteRecordsPartitionResult:
    result = DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=-1, error_code=0
    )
    if topic is None or not 0 <= partition < len(topic.partitions):
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    if topic.is_internal:
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return result
    log = topic.partitions[partition]
    if "delete" not in log.config.cleanup_policy:
        result.error_code = ErrorCode.POLICY_VIOLATION
        return result
    try:
        log.delete_records_before(log.high_watermark if offset == _HIGH_WATERMARK else offset)
        result.low_watermark = log.log_start_offset
    except LogError as error:
        result.error_code = error.error_code
    return result


HANDLERS: dict[int, Handler] = {
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
    ApiKey.CREATE_PARTITIONS: handle_create_partitions,
    ApiKey.DELETE_RECORDS: handle_delete_records,
}
