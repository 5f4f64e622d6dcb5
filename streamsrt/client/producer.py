"""The idempotent producer of encoded record batches (KIP-98).

1. A batch gets its producer id, epoch and sequence when it is first sent, and keeps them in every retry: the broker drops
   a batch that it already has.
2. Batches of a partition are sent in their order. At most ``max.in.flight.requests.per.connection`` requests are in
   flight for each broker, each with at most one batch of a partition and ``max.request.size`` bytes.
3. After a retriable failure the partition sends nothing new until all of its requests in flight have been answered; then
   its unacknowledged batches go out again, in the order of their sequences.
4. A request waits for company while another one is in flight, unless it is big already or somebody waits in ``flush``.
5. A batch that fails for good ends the producer's generation: everything queued is dropped, the next ``send`` or ``flush``
   raises, and after that the producer starts anew under another producer id. What was not acknowledged by then may or may
   not have been written.
6. The queue is shared with the processing thread under one lock.
7. With a transactional id a partition is added to the transaction before anything is sent to it; after a failure nothing
   is taken until the producer was initialized again (:mod:`streamsrt.client.transactions`).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from streamsrt.client.cluster import TRANSPORT_ERRORS, Cluster, Purpose, backoff_s, may_be_retried
from streamsrt.client.metadata import NO_TOPIC_ID, Metadata
from streamsrt.client.transaction_coordination import (
    FENCED,
    LOST,
    TransactionCoordination,
    as_production_error,
    transaction_error,
)
from streamsrt.client.values import DeliveryTimeoutError, ProducerConfig, TopicPartition, TransactionLostError
from streamsrt.errors import ProductionError, RequestFailedError, StreamsError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_message, error_name, is_retriable
from streamsrt.wire.records import stamp_producer

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_TOPIC_IDS = 13
LAST_VERSION_WITH_ADDED_PARTITIONS = 11
TRANSACTIONAL_FLAG = 0x10
_ATTRIBUTES_AT = 22
ALL_REPLICAS = -1
SEQUENCES = 2**31
WORTH_SENDING_BYTES = 256 * 1024

_REMEDIES: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "Raise max.message.bytes of the topic, or write smaller records.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Grant WRITE on the topic to this principal.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Grant IDEMPOTENT_WRITE on the cluster to this principal.",
}


class _Batch:
    """One record batch on its way."""

    __slots__ = ("count", "data", "expires_at", "number", "sequence", "stamped")

    def __init__(self, data: bytes | bytearray | memoryview, count: int, number: int, expires_at: float) -> None:
        self.data: bytes | bytearray | memoryview = data
        self.count = count
        self.number = number
        self.expires_at = expires_at
        self.sequence = -1
        self.stamped = False


class _Partition:
    """The queue of one partition.

    ``retrying``: nothing is sent until ``in_flight`` is empty. Nor before ``is_known``, when the broker has acknowledged a
    first batch: of a producer that it does not know it takes any sequence, so that a second batch could be written while the
    first one is refused because the topic is new.
    """

    __slots__ = (
        "in_flight",
        "is_known",
        "next_sequence",
        "node_id",
        "not_before",
        "queue",
        "queued_bytes",
        "reason",
        "retrying",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.queue: deque[_Batch] = deque()
        self.queued_bytes = 0
        self.node_id = -1
        self.in_flight: dict[int, _Batch] = {}
        self.next_sequence = 0
        self.retrying = False
        self.is_known = False
        self.not_before = 0.0
        self.reason = "it has no leader"

    @property
    def waits(self) -> bool:
        """Whether answers have to come before more is sent."""
        return bool(self.in_flight) and (self.retrying or not self.is_known)


class Producer:
    """See the module, and :class:`streamsrt.client.interface.Producing` for what may be called from other threads."""

    def __init__(
        self,
        cluster: Cluster,
        metadata: Metadata,
        config: ProducerConfig,
        transaction: TransactionCoordination | None = None,
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._config = config
        self._transaction = transaction
        self._adding: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._acked: dict[TopicPartition, int] = {}
        self._buffered_bytes = 0
        self._unsent_bytes = 0
        self._pending = 0
        self._number = 0
        self._generation = 0
        self._flushing = 0
        self._error: StreamsError | None = None
        self._closed = False
        self._producer_id = -1
        self._producer_epoch = -1
        self._requests: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_scheduled = False
        self._wake = asyncio.Event()
        self._runner = asyncio.create_task(self._run())
        metadata.on_update(self._wake.set)

    # ------------------------------------------------------------------------------------ from the processing thread

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview, record_count: int) -> None:
        size = len(batch)
        with self._changed:
            self._raise_error()
            if self._transaction is not None:
                self._check_transactional(batch)
            if self._buffered_bytes and self._buffered_bytes + size > self._config.buffer_memory:
                self._wait_for_room(size)
            self._number += 1
            expires_at = time.monotonic() + self._config.delivery_timeout_ms / 1000
            tp = (topic, partition)
            queue = self._partitions.get(tp)
            if queue is None:
                queue = self._partitions[tp] = _Partition(tp)
            queue.queue.append(_Batch(batch, record_count, self._number, expires_at))
            queue.queued_bytes += size
            self._buffered_bytes += size
            self._unsent_bytes += size
            self._pending += 1
        # With a request in flight to the same broker its answer wakes the loop.
        if not self._requests.get(queue.node_id) or self._unsent_bytes >= WORTH_SENDING_BYTES:
            self._wake_from_outside()

    def _wait_for_room(self, size: int) -> None:
        deadline = time.monotonic() + self._config.max_block_ms / 1000
        while self._buffered_bytes and self._buffered_bytes + size > self._config.buffer_memory:
            self._wake_from_outside()
            if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                raise DeliveryTimeoutError(
                    f"{self._config.buffer_memory} bytes (buffer.memory) have been waiting for the brokers for "
                    f"{self._config.max_block_ms} ms (max.block.ms). Are they running?"
                )
            self._raise_error()

    def flush(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._flushing += 1
            try:
                while self._pending and self._error is None:
                    self._wake_from_outside()
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise DeliveryTimeoutError(
                            f"{self._pending} batches were not acknowledged within {timeout_s} s."
                        )
                    self._changed.wait(left)
            finally:
                self._flushing -= 1
            self._raise_error()
            acked, self._acked = self._acked, {}
            return acked

    def _check_transactional(self, batch: bytes | bytearray | memoryview) -> None:
        if self._producer_id < 0:
            raise TransactionLostError("Nothing can be sent before the transactional id is initialized.")
        if not batch[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
            raise ValueError("a batch that is not marked as transactional would be written outside of the transaction")

    @property
    def is_pending(self) -> bool:
        """Whether anything is not acknowledged yet."""
        return self._pending > 0

    @property
    def has_failed(self) -> bool:
        """Whether the next call raises what has failed."""
        with self._lock:
            return self._error is not None or self._closed

    def raise_error(self) -> None:
        """Raises what has failed and was not raised yet, if anything."""
        with self._changed:
            self._raise_error()

    def _raise_error(self) -> None:
        if self._closed:
            raise ProductionError("The producer is closed.")
        if self._error is not None:
            error, self._error = self._error, None
            self._acked = {}
            raise error

    def _wake_from_outside(self) -> None:
        if not self._wake_scheduled and not self._loop.is_closed():
            self._wake_scheduled = True
            self._loop.call_soon_threadsafe(self._woken)

    # --------------------------------------------------------------------------------------------------- on the loop

    def _woken(self) -> None:
        self._wake_scheduled = False
        self._wake.set()

    async def close(self) -> None:
        """Stop; whoever waits gets an error."""
        tasks = [self._runner, *self._tasks, *([] if self._adding is None else [self._adding])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with self._changed:
            self._closed = True
            if self._pending and self._error is None:
                self._error = ProductionError("The producer was closed before everything was acknowledged.")
            self._changed.notify_all()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._pending and self._producer_id < 0 and self._transaction is None:
                await self._get_producer_id()
            self._check_expired()
            wait_until = self._send_what_is_due()
            try:
                async with asyncio.timeout_at(wait_until):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _get_producer_id(self) -> None:
        failures = 0
        while self._producer_id < 0:
            self._check_expired()
            if not self._pending:
                return
            try:
                request = types.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await self._cluster.send(request, purpose=Purpose.PRODUCE)
                if response.error_code == ErrorCode.NONE:
                    self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                    return
                name = error_name(response.error_code)
                raise RequestFailedError(f"No producer id: {name}", response.error_code)
            except StreamsError as error:
                if not may_be_retried(error):
                    self._fail(ProductionError(f"The producer can't start: {error}"))
                    return
                log.debug("%s", error)
                await asyncio.sleep(backoff_s(self._cluster.config, failures))
                failures += 1

    def _check_expired(self) -> None:
        now, expired = time.monotonic(), None
        with self._lock:
            for partition in self._partitions.values():
                first = next(iter(partition.in_flight.values()), None) or next(iter(partition.queue), None)
                if first is not None and first.expires_at <= now:
                    expired = partition
        if expired is not None:
            topic, number = expired.tp
            self._fail(
                DeliveryTimeoutError(
                    f"A batch for {topic}-{number} was not acknowledged within {self._config.delivery_timeout_ms} ms "
                    f"(delivery.timeout.ms): {expired.reason}.",
                    topic,
                    number,
                )
            )

    def _send_what_is_due(self) -> float | None:
        """Start requests; the result is the loop time of the next retry or expiry, if any."""
        now = self._loop.time()
        by_node: dict[int, list[_Partition]] = {}
        to_add: list[TopicPartition] = []
        again_at: float | None = now + 1.0 if self._pending else None
        with self._lock:
            partitions = [partition for partition in self._partitions.values() if partition.queue]
        for partition in partitions:
            if partition.waits:
                continue
            if partition.not_before > now:
                again_at = min(again_at or partition.not_before, partition.not_before)
                continue
            if self._transaction is not None and not self._transaction.has(partition.tp):
                to_add.append(partition.tp)
                continue
            partition.retrying = False
            leader = self._metadata.leader(*partition.tp)
            if leader is None:
                partition.reason = "it has no leader"
            else:
                partition.node_id = leader.node_id
                by_node.setdefault(leader.node_id, []).append(partition)
        if to_add and self._adding is None and self._producer_id >= 0:
            self._adding = asyncio.create_task(self._add_partitions(to_add, self._generation))
        for node_id, ready in by_node.items():
            while self._may_send(node_id, ready):
                self._start_request(node_id, ready)
        return again_at

    async def _add_partitions(self, partitions: Collection[TopicPartition], generation: int) -> None:
        assert self._transaction is not None
        deadline = self._loop.time() + self._config.delivery_timeout_ms / 1000
        try:
            await self._transaction.add_partitions(partitions, deadline)
        except StreamsError as error:
            if generation == self._generation:
                self._fail(as_production_error(error, partitions))
        finally:
            self._adding = None
            self._wake.set()

    def _may_send(self, node_id: int, ready: list[_Partition]) -> bool:
        in_flight = self._requests.get(node_id, 0)
        if in_flight >= self._config.max_in_flight_requests_per_connection or self._producer_id < 0:
            return False
        waiting = sum(partition.queued_bytes for partition in ready if not partition.waits)
        return waiting > 0 and (in_flight == 0 or waiting >= WORTH_SENDING_BYTES or self._flushing > 0)

    def _start_request(self, node_id: int, ready: list[_Partition]) -> None:
        chosen: list[tuple[_Partition, _Batch]] = []
        size = 0
        with self._lock:
            for partition in ready:
                if not partition.queue or partition.waits:
                    continue
                batch = partition.queue[0]
                if chosen and size + len(batch.data) > self._config.max_request_size:
                    continue
                partition.queue.popleft()
                partition.queued_bytes -= len(batch.data)
                self._unsent_bytes -= len(batch.data)
                partition.in_flight[batch.number] = batch
                chosen.append((partition, batch))
                size += len(batch.data)
        ready.append(ready.pop(0))
        for partition, batch in chosen:
            if not batch.stamped:
                self._stamp(partition, batch)
        self._requests[node_id] = self._requests.get(node_id, 0) + 1
        task = asyncio.create_task(self._produce(node_id, chosen, self._generation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stamp(self, partition: _Partition, batch: _Batch) -> None:
        batch.sequence = partition.next_sequence
        partition.next_sequence = (partition.next_sequence + batch.count) % SEQUENCES
        batch.data = stamp_producer(batch.data, self._producer_id, self._producer_epoch, batch.sequence)
        batch.stamped = True

    async def _produce(self, node_id: int, chosen: list[tuple[_Partition, _Batch]], generation: int) -> None:
        try:
            results = await self._send_request(node_id, chosen)
        except (*TRANSPORT_ERRORS, RequestFailedError) as error:
            self._metadata.request_update()
            if generation == self._generation:
                for partition, batch in chosen:
                    self._retry(partition, batch, str(error).rstrip("."))
        except StreamsError as error:
            if generation == self._generation:
                self._fail(ProductionError(f"Nothing can be written: {error}"))
        else:
            for partition, batch in chosen:
                if generation == self._generation:
                    self._answered(partition, batch, results.get(partition.tp))
        finally:
            self._requests[node_id] -= 1
            self._wake.set()

    async def _send_request(
        self, node_id: int, chosen: list[tuple[_Partition, _Batch]]
    ) -> Mapping[TopicPartition, Any]:
        connection = await self._cluster.connection(node_id, Purpose.PRODUCE)
        ids = {partition.tp[0]: self._metadata.topic_id(partition.tp[0]) for partition, _ in chosen}
        without_ids = any(topic_id == NO_TOPIC_ID for topic_id in ids.values())
        version_max = FIRST_VERSION_WITH_TOPIC_IDS - 1 if without_ids else 1000
        if self._transaction is not None:
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
            data = types.ProduceRequest.PartitionProduceData(index=number, records=batch.data)
            topic.partition_data.append(data)
        request = types.ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=self._cluster.config.request_timeout_ms,
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

    # ------------------------------------------------------------------------------------------------------- answers

    def _answered(self, partition: _Partition, batch: _Batch, result: Any) -> None:
        if result is None:
            self._retry(partition, batch, "the broker's answer does not name the partition")
            return
        code = result.error_code
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            self._acknowledge(partition, batch, result.base_offset)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.retrying:
            # An earlier batch of the partition failed and goes out again first.
            self._retry(partition, batch, error_name(code))
        elif is_retriable(code) and code != ErrorCode.CORRUPT_MESSAGE:
            self._metadata.request_update()
            self._retry(partition, batch, error_name(code))
        elif self._transaction is not None and (code in FENCED or code in LOST):
            self._fail(transaction_error(code, "The broker refuses a batch for {}-{}".format(*partition.tp)))
        else:
            self._fail(self._refusal(partition, result))

    def _acknowledge(self, partition: _Partition, batch: _Batch, base_offset: int) -> None:
        with self._changed:
            partition.is_known = True
            del partition.in_flight[batch.number]
            if base_offset >= 0:
                self._acked[partition.tp] = base_offset + batch.count
            self._buffered_bytes -= len(batch.data)
            self._pending -= 1
            self._changed.notify_all()

    def _retry(self, partition: _Partition, batch: _Batch, reason: str) -> None:
        with self._lock:
            del partition.in_flight[batch.number]
            partition.queued_bytes += len(batch.data)
            self._unsent_bytes += len(batch.data)
            partition.retrying = True
            partition.reason = reason
            partition.not_before = self._loop.time() + backoff_s(self._cluster.config, 0)
            again = [batch]
            while partition.queue and partition.queue[0].stamped:
                again.append(partition.queue.popleft())
            again.sort(key=lambda each: each.number)
            partition.queue.extendleft(reversed(again))

    def _refusal(self, partition: _Partition, result: Any) -> ProductionError:
        topic, number = partition.tp
        said = f" {result.error_message}." if result.error_message else f" {error_message(result.error_code)}"
        remedy = _REMEDIES.get(result.error_code, "")
        name = error_name(result.error_code)
        return ProductionError(
            f"The broker refuses a batch for {topic}-{number} ({name}).{said} {remedy}".rstrip(), topic, number
        )

    def _fail(self, error: StreamsError) -> None:
        with self._changed:
            self._drop()
            self._error = error
            self._changed.notify_all()

    def _drop(self) -> None:
        self._generation += 1
        self._partitions.clear()
        self._buffered_bytes = 0
        self._unsent_bytes = 0
        self._pending = 0
        self._producer_id = -1

    # -------------------------------------------------------------------------------------------------- transactions

    def drop_all(self) -> None:
        """Forget what was sent and not acknowledged, and errors. Nothing is taken until :meth:`restart`."""
        if self._adding is not None:
            self._adding.cancel()
        with self._changed:
            self._drop()
            self._error = None
            self._acked = {}
            self._changed.notify_all()

    async def settled(self) -> None:
        """Wait until no request is under way."""
        running = [*self._tasks, *([] if self._adding is None else [self._adding])]
        await asyncio.gather(*running, return_exceptions=True)

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """Go on under this producer id and epoch."""
        with self._lock:
            self._producer_id, self._producer_epoch = producer_id, producer_epoch
        self._wake.set()
