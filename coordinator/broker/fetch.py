"""Fetch, ListOffsets, OffsetForLeaderEpoch.

1. Records are sent as they are in the log, without decoding. A response that is larger than a receive buffer refers to the
   log's files, which are read while the client receives the response: clients that don't read need little memory.
2. A fetch waits up to ``max_wait_ms`` until ``min_bytes`` are available or one of its partitions has an error. One without
   partitions waits for nothing: that is how a consumer ends its session.
3. A response has at least one whole batch, even if it exceeds the limits; otherwise a consumer could never get past a large
   batch (KIP-74). The batch that contains the offset is sent from its start. The client drops earlier records.
4. In a session, a request names only what changed (:mod:`coordinator.broker.fetch_sessions`). Everything here has whole
   requests before it.
5. A fetch of many partitions is collected in slices, each partition once. While it waits, only partitions with new records
   are checked, by their sizes, without reading, as on Kafka.
6. With ``read_committed``, records end at the last stable offset, and the response lists the aborted transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from coordinator.broker.broker import Answer, Broker, Handler, Request, then
from coordinator.broker.purgatory import DelayedFetch
from coordinator.broker.slices import whole
from coordinator.broker.topics import Topic
from coordinator.log import LogError, PartitionLog
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.schema import ApiKey
from streamsrt.wire.types import (
    FetchRequest,
    FetchResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
)

TOPIC_ID_VERSION = 13
PARTITIONS_AT_ONCE = 500
PARTITIONS_PER_STEP = 32
IN_MEMORY_BYTES = 1 << 16
_READ_COMMITTED = 1
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_TIMESTAMP_VERSIONS = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""From which version of ListOffsets on a negative timestamp means something."""

Steps: TypeAlias = "Generator[None, None, None]"


def in_session(handler: Handler) -> Handler:
    """The handler (and its guard) for requests that may be part of a session."""

    def handle(broker: Broker, request: Request) -> Answer:
        opened = broker.fetch_sessions.opened(request.message, by_id=request.header.api_version >= TOPIC_ID_VERSION)
        if isinstance(opened, ErrorCode):
            return FetchResponse(error_code=opened, session_id=0, responses=[])
        return then(handler(broker, request), opened)

    return handle


def handle_fetch(broker: Broker, request: Request) -> Answer:
    message: FetchRequest = request.message
    by_id = request.header.api_version >= TOPIC_ID_VERSION
    message.max_bytes = min(message.max_bytes, broker.integer("fetch.max.bytes"))
    message.min_bytes = min(message.min_bytes, message.max_bytes)
    if _is_wide(message):
        return _fetch_wide(broker, message, by_id=by_id)
    found = _Found()
    whole(_collect(broker, message, found, by_id=by_id))
    if found.is_enough(message) or message.max_wait_ms <= 0:
        return found.answer
    return _wait(broker, message, found, broker.purgatory.round, by_id=by_id)


def _is_wide(message: FetchRequest) -> bool:
    """Whether it is collected in slices. Topics without partitions have to be answered, too."""
    return (
        len(message.topics) > PARTITIONS_AT_ONCE
        or sum(len(each.partitions) for each in message.topics) > PARTITIONS_AT_ONCE
    )


async def _fetch_wide(broker: Broker, message: FetchRequest, *, by_id: bool) -> FetchResponse:
    """Handles a fetch of many partitions."""
    await broker.slices.run_alone(_fold(message))
    return await _wait(broker, message, None, 0, by_id=by_id)


def _fold(message: FetchRequest) -> Steps:
    """Keeps each partition once in the request, where it came first: the last of equal ones counts, as on Kafka."""
    places: dict[tuple[str, bytes, int], tuple[list[FetchRequest.FetchPartition], int]] = {}
    topics: dict[tuple[str, bytes], FetchRequest.FetchTopic] = {}
    kept = []
    for topic_count, each in enumerate(message.topics, 1):
        if not topic_count % PARTITIONS_PER_STEP:
            yield
        partitions: list[FetchRequest.FetchPartition] = []
        for count, data in enumerate(each.partitions):
            first, at = places.setdefault((each.topic, each.topic_id, data.partition), (partitions, len(partitions)))
            first[at : at + 1] = [data]
            if not count % PARTITIONS_PER_STEP:
                yield
        each.partitions = partitions
        if topics.setdefault((each.topic, each.topic_id), each) is each or partitions:
            kept.append(each)
    message.topics = kept


async def _wait(
    broker: Broker, message: FetchRequest, found: _Found | None, looked: int, *, by_id: bool
) -> FetchResponse:
    """Waits for records. ``found``: what was available in the purgatory's round ``looked``; None: nobody has looked."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + message.max_wait_ms / 1000
    is_over = message.max_wait_ms <= 0
    while not is_over:
        wanted = _wanted(broker, message, by_id=by_id)
        # What is appended while many partitions are looked at wakes it, too.
        with broker.purgatory.watch(wanted) as watch:
            if found is None or broker.purgatory.round != looked:
                found = await _found_now(broker, message, by_id=by_id)
                if found.is_enough(message):
                    return found.answer
            is_over = await _is_over(message, found, wanted, watch, deadline)
        found = None
    return (await _found_now(broker, message, by_id=by_id)).answer


async def _found_now(broker: Broker, message: FetchRequest, *, by_id: bool) -> _Found:
    found = _Found()
    steps = _collect(broker, message, found, by_id=by_id)
    if _is_wide(message):
        await broker.slices.run_alone(steps)
    else:
        whole(steps)
    return found


async def _is_over(message: FetchRequest, found: _Found, wanted: _Wanted, watch: DelayedFetch, deadline: float) -> bool:
    """Waits until there is enough, or the time is up; returns False if the partitions must be checked again."""
    loop = asyncio.get_running_loop()
    committed = message.isolation_level == _READ_COMMITTED
    size = sum(found.sizes.values())
    while True:
        left = deadline - loop.time()
        woken = await watch.wait(left) if left > 0 else None
        if not woken:
            return True
        for log in woken:
            if log not in wanted or _refused(log, wanted[log]) is not None:
                return False
            try:
                end, most = _readable(log, committed=committed), max(0, wanted[log].partition_max_bytes)
                available = min(most, log.available_bytes(wanted[log].fetch_offset, end, most))
            except LogError:
                return False
            size += available - found.sizes.get(log, 0)
            found.sizes[log] = available
        if size >= message.min_bytes:
            return True


_Wanted: TypeAlias = "dict[PartitionLog, FetchRequest.FetchPartition]"


def _wanted(broker: Broker, message: FetchRequest, *, by_id: bool) -> _Wanted:
    wanted = {}
    for each in message.topics:
        topic = broker.topics.by_id(each.topic_id) if by_id else broker.topics.get(each.topic)
        for data in each.partitions:
            log = _log_of(topic, data.partition)
            if log is not None:
                wanted[log] = data
    return wanted


def _log_of(topic: Topic | None, partition: int) -> PartitionLog | None:
    if topic is None or not 0 <= partition < len(topic.partitions):
        return None
    return topic.partitions[partition]


@dataclass(slots=True)
class _Found:
    """The present response. ``sizes``: its bytes of records, by partition; ``is_settled``: it can't wait, because a
    partition has an error."""

    answer: FetchResponse = field(default_factory=lambda: FetchResponse(error_code=0, session_id=0, responses=[]))
    sizes: dict[PartitionLog, int] = field(default_factory=dict)
    size: int = 0
    is_settled: bool = False

    def is_enough(self, message: FetchRequest) -> bool:
        return self.is_settled or not self.sizes or self.size >= message.min_bytes


def _collect(broker: Broker, message: FetchRequest, found: _Found, *, by_id: bool) -> Steps:
    """What there is now, a few partitions at a time."""
    committed = message.isolation_level == _READ_COMMITTED
    responses = found.answer.responses
    for each in message.topics:
        topic = broker.topics.by_id(each.topic_id) if by_id else broker.topics.get(each.topic)
        partitions = []
        for count, data in enumerate(each.partitions):
            if count and not count % PARTITIONS_PER_STEP:
                yield
            log = _log_of(topic, data.partition)
            if log is None:
                missing = (
                    ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                partitions.append(_failed(data.partition, missing))
                found.is_settled = True
                continue
            before = found.size
            answer = _found_in(log, data, message, found, committed=committed)
            if answer.error_code or answer.diverging_epoch.epoch >= 0:
                found.is_settled = True
            found.sizes[log] = found.size - before
            partitions.append(answer)
        responses.append(
            FetchResponse.FetchableTopicResponse(topic=each.topic, topic_id=each.topic_id, partitions=partitions)
        )
        if len(responses) % PARTITIONS_PER_STEP == 0:
            yield


def _failed(partition: int, code: int, log: PartitionLog | None = None) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=-1 if log is None else log.high_watermark,
        last_stable_offset=-1 if log is None else log.last_stable_offset,
        log_start_offset=-1 if log is None else log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _refused(log: PartitionLog, data: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
    """Returns the response if nothing can be read."""
    wrong_epoch = _check_epoch(log, data.current_leader_epoch)
    if wrong_epoch:
        return _failed(data.partition, wrong_epoch, log)
    if data.last_fetched_epoch >= 0:
        epoch, end = log.end_offset_for_epoch(data.last_fetched_epoch)
        if epoch < 0:
            return _failed(data.partition, ErrorCode.OFFSET_OUT_OF_RANGE, log)
        if epoch < data.last_fetched_epoch or end < data.fetch_offset:
            answer = _failed(data.partition, 0, log)
            answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
            return answer
    return None


def _readable(log: PartitionLog, *, committed: bool) -> int:
    """Returns the offset up to which records are returned."""
    return log.last_stable_offset if committed else log.high_watermark


def _found_in(
    log: PartitionLog, data: FetchRequest.FetchPartition, message: FetchRequest, found: _Found, *, committed: bool
) -> FetchResponse.PartitionData:
    """Returns the response for one partition."""
    refused = _refused(log, data)
    if refused is not None:
        return refused
    left = max(0, min(message.max_bytes - found.size, data.partition_max_bytes))
    try:
        result = log.find(
            data.fetch_offset, left, min_one_batch=not found.size, up_to=_readable(log, committed=committed)
        )
        is_small = found.size + result.size_bytes <= IN_MEMORY_BYTES
        records = [each.read() for each in result.records] if is_small else result.records
    except LogError as error:
        return _failed(data.partition, error.error_code, log)
    answer = _failed(data.partition, 0, log)
    answer.records = records
    found.size += result.size_bytes
    if committed:
        answer.aborted_transactions = _aborted(log, data.fetch_offset, result.next_offset)
    return answer


def _aborted(log: PartitionLog, from_offset: int, to_offset: int) -> list[FetchResponse.AbortedTransaction]:
    return [
        FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=offset)
        for producer_id, offset in log.aborted_transactions(from_offset, to_offset)
    ]


def _check_epoch(log: PartitionLog, current: int) -> int:
    if current < 0 or current == log.leader_epoch:
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if current < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def handle_list_offsets(broker: Broker, request: Request) -> ListOffsetsResponse:
    message = request.message
    committed = message.isolation_level == _READ_COMMITTED
    answer = ListOffsetsResponse(topics=[])
    for wanted in message.topics:
        topic = broker.topics.get(wanted.name)
        partitions = []
        for each in wanted.partitions:
            result = ListOffsetsResponse.ListOffsetsPartitionResponse(
                partition_index=each.partition_index, error_code=0
            )
            partitions.append(result)
            log = _log_of(topic, each.partition_index)
            if log is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            result.error_code = _check_epoch(log, each.current_leader_epoch)
            if each.timestamp < 0 and request.header.api_version < _TIMESTAMP_VERSIONS.get(each.timestamp, 1 << 15):
                result.error_code = ErrorCode.UNSUPPORTED_VERSION
            if not result.error_code:
                _look_up(log, each.timestamp, result, committed=committed)
        answer.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=wanted.name, partitions=partitions))
    return answer


def _look_up(
    log: PartitionLog, timestamp: int, result: ListOffsetsResponse.ListOffsetsPartitionResponse, *, committed: bool
) -> None:
    readable = log.last_stable_offset if committed else log.high_watermark
    found: tuple[int, int] | None = None
    try:
        if timestamp == _LATEST:
            found = readable, -1
        elif timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
            found = log.log_start_offset, -1
        elif timestamp == _MAX_TIMESTAMP:
            found = log.max_timestamp()
        elif timestamp not in {_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD}:
            found = log.offset_for_timestamp(timestamp)
    except LogError as error:
        result.error_code = error.error_code
        return
    if found is not None and (found[1] == -1 or found[0] < readable):
        result.offset, result.timestamp = found
        result.leader_epoch = log.leader_epoch


def handle_offset_for_leader_epoch(broker: Broker, request: Request) -> OffsetForLeaderEpochResponse:
    answer = OffsetForLeaderEpochResponse(topics=[])
    for wanted in request.message.topics:
        topic = broker.topics.get(wanted.topic)
        partitions = []
        for each in wanted.partitions:
            result = OffsetForLeaderEpochResponse.EpochEndOffset(partition=each.partition, error_code=0)
            partitions.append(result)
            log = _log_of(topic, each.partition)
            if log is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            result.error_code = _check_epoch(log, each.current_leader_epoch)
            if not result.error_code:
                result.leader_epoch, result.end_offset = log.end_offset_for_epoch(each.leader_epoch)
        answer.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=wanted.topic, partitions=partitions)
        )
    return answer


HANDLERS: dict[int, Handler] = {
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
}
