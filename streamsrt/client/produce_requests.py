"""One Produce request: which version of it a broker gets, what it says, and which batch each part of its answer is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from streamsrt.client.batch_queue import PartitionQueue, QueuedBatch
from streamsrt.client.cluster import Cluster, Purpose
from streamsrt.client.metadata import NO_TOPIC_ID, Metadata
from streamsrt.client.values import TopicPartition
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode

PartitionProduceResponse: TypeAlias = types.ProduceResponse.PartitionProduceResponse

Chosen: TypeAlias = list[tuple[PartitionQueue, QueuedBatch]]
"""The batches of a request: one of a partition at most."""

FIRST_VERSION_WITH_TOPIC_IDS = 13
LAST_VERSION_WITH_ADDED_PARTITIONS = 11
ALL_REPLICAS = -1

_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


def is_written(results: Mapping[TopicPartition, PartitionProduceResponse], partition: PartitionQueue) -> bool:
    """Whether the broker has what was sent to the partition."""
    result = results.get(partition.tp)
    return result is not None and result.error_code in _WRITTEN


async def produced(
    cluster: Cluster, metadata: Metadata, node_id: int, chosen: Chosen, transactional_id: str | None
) -> Mapping[TopicPartition, PartitionProduceResponse]:
    """Sends the batches to the broker, once. Returns what it says of each partition that it names."""
    connection = await cluster.connection(node_id, Purpose.PRODUCE)
    ids = {partition.tp[0]: metadata.topic_id(partition.tp[0]) for partition, _ in chosen}
    without_ids = any(topic_id == NO_TOPIC_ID for topic_id in ids.values())
    version_max = FIRST_VERSION_WITH_TOPIC_IDS - 1 if without_ids else 1000
    if transactional_id is not None:
        version_max = LAST_VERSION_WITH_ADDED_PARTITIONS
    version = connection.version_of(types.ProduceRequest, 3, version_max)
    topics: dict[str, types.ProduceRequest.TopicProduceData] = {}
    for partition, batch in chosen:
        name, number = partition.tp
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = types.ProduceRequest.TopicProduceData(
                name=name, topic_id=ids[name], partition_data=[]
            )
        data = types.ProduceRequest.PartitionProduceData(index=number, records=batch.parts)
        topic.partition_data.append(data)
    request = types.ProduceRequest(
        transactional_id=transactional_id,
        acks=ALL_REPLICAS,
        timeout_ms=cluster.config.request_timeout_ms,
        topic_data=list(topics.values()),
    )
    response = await connection.request(request, version=version)
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        (
            each.name if version < FIRST_VERSION_WITH_TOPIC_IDS else names.get(each.topic_id, ""),
            result.index,
        ): result
        for each in response.responses
        for result in each.partition_responses
    }
