"""The idempotent producer of encoded record batches (KIP-98).

1. A batch gets its producer id, epoch and sequence number when it is first sent, and keeps them in every retry: the broker
   discards duplicates.
2. Batches of a partition are sent in order. At most ``max.in.flight.requests.per.connection`` requests are in flight per
   broker, each with at most one batch of a partition and at most ``max.request.size`` bytes.
3. After a retriable failure, the partition sends nothing new until all of its requests in flight are answered. Then its
   unacknowledged batches are sent again, in the order of their sequence numbers.
4. While a request is in flight, the next one waits for more batches, unless it is already large or a thread waits in
   ``flush``.
5. A batch that fails for good ends the producer's generation: all queued batches are dropped, and the next ``send`` or
   ``flush`` raises. After that, the producer starts again with a new producer id. Batches that were not acknowledged may or
   may not have been written.
6. A broker refuses whole batches. A batch that is too large is split in halves. For any other refused batch, ``on_refused``
   decides about its records, on the sending thread; until it returns, nothing more is sent to the partition. The batch is
   then sent again without the dropped records, and all later batches get new sequence numbers: the broker has none of them,
   because a sequence number was missing. A record that may have been written is never dropped. ``on_refused`` gets the
   records of a partition in order: a batch that is refused while an earlier one is in flight is sent again after that one.
7. The queue is shared with the processing thread, under one lock.
8. With a transactional id, a partition is added to the transaction before the first batch is sent to it. After a failure,
   the producer accepts nothing until it is initialized again (:mod:`streamsrt.client.transactions`). The failure is
   remembered until then: whoever got its error may have gone on, and the rest of the transaction must not be committed.
9. Apache Kafka's broker asks the coordinator before it writes a transaction's first batch to a partition, or offsets: for
   one request of a producer at a time, others fail. So first batches go to it in one request, and the rest when that is
   answered, and the offsets.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from streamsrt.assignment.internal_topics import is_changelog
from streamsrt.client.absent_topics import AbsentTopics, absent_text
from streamsrt.client.alarm import Alarm
from streamsrt.client.batch_queue import PartitionQueue, QueuedBatch
from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.cluster import TRANSPORT_ERRORS, Cluster, Purpose, backoff_s, may_be_retried
from streamsrt.client.metadata import Metadata
from streamsrt.client.produce_requests import Chosen, PartitionProduceResponse, is_written, produced
from streamsrt.client.refused_batches import (
    FATAL,
    BatchRefusal,
    Part,
    can_not_start,
    halves,
    records_of,
    refusal_text,
    without,
)
from streamsrt.client.spawned import spawn
from streamsrt.client.transaction_coordination import (
    FENCED,
    LOST,
    TransactionCoordination,
    as_production_error,
    transaction_error,
)
from streamsrt.client.values import (
    DeliveryTimeoutError,
    OnRefused,
    ProducerConfig,
    RecordRefusedError,
    RefusalAnswer,
    TopicPartition,
    TransactionLostError,
)
from streamsrt.errors import ProductionError, RequestFailedError, StreamsError
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name, is_retriable
from streamsrt.wire.records import stamped

log = logging.getLogger(__name__)

TRANSACTIONAL_FLAG = 0x10
_ATTRIBUTES_AT = 22
SEQUENCES = 2**31
WORTH_SENDING_BYTES = 256 * 1024
FAIL_TIMEOUT_S = 5.0
EXPIRY_CHECK_INTERVAL_S = 0.1
"""At most this often, since it looks at every partition."""

_MAYBE_WRITTEN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class _Refused(NamedTuple):
    """A refused batch whose records wait for a decision."""

    generation: int
    partition: PartitionQueue
    batch: QueuedBatch
    refusal: BatchRefusal


class Producer:
    """Sends batches. See the module, and :class:`streamsrt.client.interface.Producing` for what other threads may call."""

    def __init__(
        self,
        cluster: Cluster,
        metadata: Metadata,
        config: ProducerConfig,
        transaction: TransactionCoordination | None = None,
        blocking: Blocking = THREADS,
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._absent = AbsentTopics(metadata, config.absent_topic_timeout_ms / 1000)
        self._config = config
        self._transaction = transaction
        self._adding: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._blocking = blocking
        self._changed = blocking.condition(self._lock)
        self._partitions: dict[TopicPartition, PartitionQueue] = {}
        self._acked: dict[TopicPartition, int] = {}
        self._buffered_bytes = self._unsent_bytes = self._pending = 0
        self._number = self._generation = self._flushing = 0
        self._error: StreamsError | None = None
        self._failure: StreamsError | None = None
        self._refused: deque[_Refused] = deque()
        self._settling = False
        self._give_up_at = math.inf
        self._checked_at = -math.inf
        self.on_refused: OnRefused | None = None
        self._closed = False
        self._producer_id = -1
        self._producer_epoch = -1
        self._requests: dict[int, int] = {}
        self._confirming: set[int] = set()
        """The brokers with a transaction's first batches in flight."""
        self._answer = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_scheduled = False
        self._wake = asyncio.Event()
        self._alarm = Alarm(self._wake.set)
        self._runner = spawn(self._run())
        metadata.on_update(self._wake.set)

    # ------------------------------------------------------------------------------------ from the processing thread

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview, record_count: int) -> None:
        size = len(batch)
        with self._changed:
            self._raise_error()
            if self._transaction is not None:
                self._check_transactional(batch)
            elif self._failure is not None:
                raise self._failure
            if self._buffered_bytes + size > self._config.buffer_memory and not self._settling:
                self._wait_for_room(size)
            self._number += 1
            expires_at = self._loop.time() + self._config.delivery_timeout_ms / 1000
            tp = (topic, partition)
            queue = self._partitions.get(tp)
            if queue is None:
                queue = self._partitions[tp] = PartitionQueue(tp)
            queue.queue.append(QueuedBatch(batch, record_count, (self._number,), expires_at))
            queue.queued_bytes += size
            self._buffered_bytes += size
            self._unsent_bytes += size
            self._pending += 1
        # If a request to the same broker is in flight, its response wakes the loop.
        if not self._requests.get(queue.node_id) or self._unsent_bytes >= WORTH_SENDING_BYTES:
            self._wake_from_outside()

    def _wait_for_room(self, size: int) -> None:
        deadline = self._loop.time() + self._config.max_block_ms / 1000
        while self._buffered_bytes and self._buffered_bytes + size > self._config.buffer_memory:
            self._wake_from_outside()
            if not self._changed.wait(max(0.0, deadline - self._loop.time())) and self._loop.time() >= deadline:
                raise DeliveryTimeoutError(
                    f"{self._config.buffer_memory} bytes (buffer.memory) have been waiting for the brokers for "
                    f"{self._config.max_block_ms} ms (max.block.ms). Are they running?"
                )
            self._raise_error()

    def flush(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        deadline = math.inf if timeout_s is None else self._loop.time() + timeout_s
        with self._changed:
            self._flushing += 1
            try:
                while self._pending and self._error is None:
                    if self._refused:
                        self._settle_refused()
                        continue
                    self._wake_from_outside()
                    left_s = min(deadline, self._give_up_at) - self._loop.time()
                    if left_s <= 0:
                        raise DeliveryTimeoutError(f"{self._pending} batches were not acknowledged in time.")
                    self._changed.wait(left_s if left_s < math.inf else None)
            finally:
                self._flushing -= 1
            if self._transaction is None:
                # Also if it was raised already: whoever got it may have caught it.
                self._error, self._failure = self._failure or self._error, None
            self._raise_error()
            acked, self._acked = self._acked, {}
            return acked

    def forget_failure(self) -> None:
        if self._transaction is None:
            with self._lock:
                self._error = self._failure = None

    def give_up_after(self, timeout_s: float) -> None:
        self._give_up_at = self._loop.time() + timeout_s

    def _check_transactional(self, batch: bytes | bytearray | memoryview) -> None:
        if self._producer_id < 0:
            raise TransactionLostError("Nothing can be sent before the transactional id is initialized.")
        if not batch[_ATTRIBUTES_AT] & TRANSACTIONAL_FLAG:
            raise ValueError("a batch that is not marked as transactional would be written outside of the transaction")

    @property
    def _transactional_id(self) -> str | None:
        return None if self._transaction is None else self._transaction.transactional_id

    @property
    def is_pending(self) -> bool:
        """Whether anything is not acknowledged yet."""
        return self._pending > 0

    @property
    def has_failed(self) -> bool:
        """Whether anything failed since the last :meth:`restart`, even if the error was raised already. Without
        transactions, since the last flush."""
        with self._lock:
            return self._failure is not None or self._closed

    @property
    def absent_topics(self) -> tuple[str, ...]:
        return self._absent.names

    @property
    def failure(self) -> StreamsError | None:
        """What failed since the last :meth:`restart`."""
        return self._failure

    def raise_error(self) -> None:
        """Raises an error that was not raised yet, if there is one."""
        with self._changed:
            self._raise_error()

    def _raise_error(self) -> None:
        if self._closed:
            raise ProductionError("The producer is closed.")
        if self._refused and not self._settling:
            self._settle_refused()
        if self._error is not None:
            error, self._error = self._error, None
            self._acked = {}
            raise error

    def _settle_refused(self) -> None:
        """Has ``on_refused`` decide about refused records. The lock is held, except while user code runs."""
        self._settling = True
        try:
            while self._refused and self._error is None:
                refused = self._refused.popleft()
                if refused.partition.is_behind_others(refused.batch):
                    # The remaining records of an earlier batch may have to be judged again.
                    refused.partition.refused -= 1
                    self._put_back(refused.partition, refused.batch)
                    self._wake_from_outside()
                    continue
                self._lock.release()
                try:
                    outcome = self._judged(refused)
                    if isinstance(outcome, StreamsError):
                        failing = self._fail_generation(outcome, refused.generation)
                        with suppress(TimeoutError):
                            failed = asyncio.run_coroutine_threadsafe(failing, self._loop)
                            self._blocking.result(failed, FAIL_TIMEOUT_S)
                finally:
                    self._lock.acquire()
                if refused.generation == self._generation and not isinstance(outcome, StreamsError):
                    refused.partition.refused -= 1
                    self._replace(refused.partition, refused.batch, outcome)
        finally:
            self._settling = False

    def _judged(self, refused: _Refused) -> list[Part] | StreamsError:
        """Returns the remaining parts of the batch, or an error."""
        assert self.on_refused is not None
        dropped = set()
        for index, record in records_of(refused.partition.tp, refused.batch.data, refused.refusal):
            try:
                answer = self.on_refused(record)
            except StreamsError as error:
                return error
            if answer is RefusalAnswer.START_OVER:
                return DeliveryTimeoutError(str(record.error), *refused.partition.tp)
            if answer is RefusalAnswer.FAIL:
                return record.error
            dropped.add(index)
        return without(refused.batch.data, dropped)

    def _replace(self, partition: PartitionQueue, batch: QueuedBatch, parts: list[Part]) -> None:
        """Queues the parts in place of the batch. The lock is held."""
        expires_at = self._loop.time() + self._config.delivery_timeout_ms / 1000
        new = [QueuedBatch(data, count, (*batch.number, at), expires_at) for at, (data, count) in enumerate(parts)]
        size = sum(len(data) for data, _ in parts)
        partition.queue = deque(sorted([*partition.queue, *new], key=lambda each: each.number))
        partition.queued_bytes += size
        self._unsent_bytes += size
        self._buffered_bytes += size - len(batch.data)
        self._pending += len(parts) - 1
        self._changed.notify_all()
        self._wake_from_outside()

    def _wake_from_outside(self) -> None:
        if not self._wake_scheduled and not self._loop.is_closed():
            self._wake_scheduled = True
            self._loop.call_soon_threadsafe(self._woken)

    # --------------------------------------------------------------------------------------------------- on the loop

    def _woken(self) -> None:
        self._wake_scheduled = False
        self._answer.set()
        self._wake.set()

    async def close(self) -> None:
        """Stops; waiting callers get an error."""
        tasks = [self._runner, *self._tasks, *([] if self._adding is None else [self._adding])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._alarm.cancel()
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
            self._alarm.by(self._send_what_is_due())
            await self._wake.wait()

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
                raise RequestFailedError(f"No producer id: {error_name(response.error_code)}", response.error_code)
            except StreamsError as error:
                if not may_be_retried(error):
                    self.fail(can_not_start(error, list(self._partitions), self._cluster.config.security.principal))
                    return
                log.debug("%s", error)
                await asyncio.sleep(backoff_s(self._cluster.config, failures))
                failures += 1

    def _check_expired(self) -> None:
        now, timeout_s = self._loop.time(), self._config.delivery_timeout_ms / 1000
        if now < self._checked_at + EXPIRY_CHECK_INTERVAL_S:
            return
        self._checked_at = now
        self._absent.forget_present()
        generation = self._generation
        with self._lock:
            if now >= self._give_up_at:
                self._changed.notify_all()
            partitions = list(self._partitions.values())
        for partition in partitions:
            with self._lock:
                first = next(iter(partition.in_flight.values()), None) or next(iter(partition.queue), None)
            if first is None or generation != self._generation:
                continue
            is_absent = self._absent.has_failed(partition.tp[0], now - first.expires_at + timeout_s, now)
            if is_absent or first.expires_at <= now:
                self._expire(partition, first, is_absent=is_absent)

    def _expire(self, partition: PartitionQueue, first: QueuedBatch, *, is_absent: bool) -> None:
        text = (
            f"{absent_text(partition.tp[0])}."
            if is_absent
            else "A batch for {}-{} was not acknowledged within ".format(*partition.tp)
            + f"{self._config.delivery_timeout_ms} ms (delivery.timeout.ms): {partition.reason}."
        )
        is_state = is_absent and is_changelog(partition.tp[0])
        if partition.in_flight or first.may_be_written or self.on_refused is None or is_state:
            self.fail(DeliveryTimeoutError(text, *partition.tp))
            return
        with self._lock:
            # While records are judged, the sending thread may put an earlier batch back.
            if partition.refused or partition.queue[0] is not first:
                return
            partition.queue.popleft()
            partition.queued_bytes -= len(first.data)
            self._unsent_bytes -= len(first.data)
        self._refuse(partition, first, BatchRefusal(ErrorCode.REQUEST_TIMED_OUT, text, {}, is_retriable=True))

    def _send_what_is_due(self) -> float | None:
        """Sends requests that are due; returns the loop time of the next retry or expiry, if any."""
        now = self._loop.time()
        by_node: dict[int, list[PartitionQueue]] = {}
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
            with self._lock:
                partition.resume()
            leader = self._metadata.leader(*partition.tp)
            if leader is None:
                partition.reason = "it has no leader"
            else:
                partition.node_id = leader.node_id
                by_node.setdefault(leader.node_id, []).append(partition)
        if to_add and (self._adding is None or self._adding.done()) and self._producer_id >= 0:
            self._adding = spawn(self._add_partitions(to_add, self._generation))
            # Not in the coroutine: a task that is cancelled before it starts executes no line of it.
            self._adding.add_done_callback(lambda _: self._wake.set())
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
                self.fail(as_production_error(error, partitions))

    def _may_send(self, node_id: int, ready: list[PartitionQueue]) -> bool:
        in_flight = self._requests.get(node_id, 0)
        if in_flight >= self._config.max_in_flight_requests_per_connection or self._producer_id < 0:
            return False
        waiting = sum(partition.queued_bytes for partition in ready if not self._waits(node_id, partition))
        return waiting > 0 and (in_flight == 0 or waiting >= WORTH_SENDING_BYTES or self._flushing > 0)

    def _waits(self, node_id: int, partition: PartitionQueue) -> bool:
        """Whether nothing more may be sent to the partition before responses of the broker arrive."""
        return partition.waits or (node_id in self._confirming and self._is_unconfirmed(partition))

    def _is_unconfirmed(self, partition: PartitionQueue) -> bool:
        return self._transaction is not None and not self._transaction.is_confirmed(partition.tp)

    def _start_request(self, node_id: int, ready: list[PartitionQueue]) -> None:
        chosen: Chosen = []
        size = 0
        with self._lock:
            for partition in ready:
                if not partition.queue or self._waits(node_id, partition):
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
        confirms = {node_id} if any(self._is_unconfirmed(partition) for partition, _ in chosen) else set[int]()
        self._confirming |= confirms
        task = spawn(self._produce(node_id, chosen, confirms, self._generation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stamp(self, partition: PartitionQueue, batch: QueuedBatch) -> None:
        batch.sequence = partition.next_sequence
        partition.next_sequence = (partition.next_sequence + batch.count) % SEQUENCES
        batch.parts = stamped(batch.data, self._producer_id, self._producer_epoch, batch.sequence)
        batch.stamped = True

    async def _produce(self, node_id: int, chosen: Chosen, confirms: set[int], generation: int) -> None:
        try:
            results = await produced(self._cluster, self._metadata, node_id, chosen, self._transactional_id)
        except (*TRANSPORT_ERRORS, RequestFailedError) as error:
            self._metadata.request_update()
            if generation == self._generation:
                for partition, batch in chosen:
                    batch.may_be_written = True
                    self._retry(partition, batch, str(error).rstrip("."))
        except StreamsError as error:
            if generation == self._generation:
                self.fail(ProductionError(f"Nothing can be written: {error}"))
        else:
            if generation == self._generation:
                self._acknowledge([(*each, results[each[0].tp]) for each in chosen if is_written(results, each[0])])
            for partition, batch in chosen:
                if generation == self._generation and not is_written(results, partition):
                    self._answered(partition, batch, results.get(partition.tp))
        finally:
            self._requests[node_id] -= 1
            self._confirming -= confirms
            self._answer.set()
            self._wake.set()

    # ------------------------------------------------------------------------------------------------------- answers

    def _answered(
        self,
        partition: PartitionQueue,
        batch: QueuedBatch,
        result: PartitionProduceResponse | None,
    ) -> None:
        """Handles a batch that was not written, as far as is known."""
        if result is None:
            self._retry(partition, batch, "the broker's answer does not name the partition")
            return
        code = result.error_code
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition.retrying:
            # An earlier batch of the partition failed and is sent again first.
            self._retry(partition, batch, error_name(code))
        elif is_retriable(code) and code != ErrorCode.CORRUPT_MESSAGE:
            self._metadata.request_update()
            batch.may_be_written |= code in _MAYBE_WRITTEN
            self._retry(partition, batch, error_name(code))
        elif code in FENCED or code in LOST:
            self.fail(self._forgotten(partition, code, result.error_message))
        elif self.on_refused is not None and batch.may_be_written and code not in FATAL:
            self.fail(DeliveryTimeoutError(refusal_text(partition.tp, code, result.error_message), *partition.tp))
        elif self.on_refused is None or code in FATAL:
            who = self._cluster.config.security.principal
            text = refusal_text(partition.tp, code, result.error_message, principal=who)
            self.fail(RecordRefusedError(text, *partition.tp, error_code=code, would_be_any=code in FATAL))
        else:
            said = refusal_text(partition.tp, code, result.error_message, "a record")
            errors = {
                each.batch_index: refusal_text(
                    partition.tp, code, each.batch_index_error_message or result.error_message, "a record"
                )
                for each in result.record_errors
            }
            self._refuse(partition, batch, BatchRefusal(code, said, errors))

    def _forgotten(self, partition: PartitionQueue, code: int, said: str | None) -> StreamsError:
        """The error where the broker refuses not a batch, but the producer: it lost what it knew of it. Rule 5 helps."""
        if self._transaction is not None:
            return transaction_error(code, "The broker refuses a batch for {}-{}".format(*partition.tp))
        return DeliveryTimeoutError(refusal_text(partition.tp, code, said), *partition.tp)

    def _refuse(self, partition: PartitionQueue, batch: QueuedBatch, refusal: BatchRefusal) -> None:
        with self._changed:
            partition.in_flight.pop(batch.number, None)
            partition.note_refused(batch)
            if batch.count > 1 and refusal.is_of_whole_batch():
                self._replace(partition, batch, halves(batch.data))
                return
            if partition.is_behind_others(batch):
                self._put_back(partition, batch)
                return
            partition.refused += 1
            self._refused.append(_Refused(self._generation, partition, batch, refusal))
            self._changed.notify_all()

    def _acknowledge(self, written: list[tuple[PartitionQueue, QueuedBatch, PartitionProduceResponse]]) -> None:
        """Handles the batches of a request that were written: all at once, since whoever waits looks each time."""
        if not written:
            return
        with self._changed:
            for partition, batch, result in written:
                partition.is_known = True
                del partition.in_flight[batch.number]
                if result.base_offset >= 0:
                    self._acked[partition.tp] = result.base_offset + batch.count
                self._buffered_bytes -= len(batch.data)
            self._pending -= len(written)
            self._changed.notify_all()
        if self._transaction is not None:
            self._transaction.confirm(partition.tp for partition, _, _ in written)

    def _retry(self, partition: PartitionQueue, batch: QueuedBatch, reason: str) -> None:
        with self._lock:
            del partition.in_flight[batch.number]
            partition.retrying = True
            partition.reason = reason
            partition.not_before = self._loop.time() + backoff_s(self._cluster.config, 0)
            self._put_back(partition, batch)

    def _put_back(self, partition: PartitionQueue, batch: QueuedBatch) -> None:
        """Queues the batch at its previous place, to be sent once more. The lock is held."""
        partition.queued_bytes += len(batch.data)
        self._unsent_bytes += len(batch.data)
        before = []
        while partition.queue and partition.queue[0].number < batch.number:
            before.append(partition.queue.popleft())
        partition.queue.extendleft(reversed([*before, batch]))

    async def _fail_generation(self, error: StreamsError, generation: int) -> None:
        if generation == self._generation:
            self.fail(error)

    def fail(self, error: StreamsError) -> None:
        """Drops what is not acknowledged: whoever sends or waits next gets this error."""
        with self._changed:
            self._drop()
            self._error = self._failure = error
            self._changed.notify_all()

    def _drop(self) -> None:
        self._generation += 1
        self._partitions.clear()
        self._refused.clear()
        self._buffered_bytes = self._unsent_bytes = self._pending = 0
        self._producer_id = -1
        self._answer.set()

    # -------------------------------------------------------------------------------------------------- transactions

    def drop_all(self) -> None:
        """Drops unacknowledged batches and errors. Nothing is accepted until :meth:`restart`."""
        if self._adding is not None:
            self._adding.cancel()
        with self._changed:
            self._drop()
            self._error = None
            self._acked = {}
            self._changed.notify_all()

    async def confirmed(self) -> None:
        """Waits until each partition with anything to deliver has acknowledged a batch of the transaction."""
        while any(
            self._is_unconfirmed(partition) and (partition.in_flight or partition.queue or partition.refused)
            for partition in list(self._partitions.values())
        ):
            self._answer.clear()
            await self._answer.wait()

    async def settled(self) -> None:
        """Waits until no request is in flight."""
        await asyncio.gather(*self._tasks, *([] if self._adding is None else [self._adding]), return_exceptions=True)

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """Continues with this producer id and epoch."""
        with self._lock:
            self._producer_id, self._producer_epoch = producer_id, producer_epoch
            self._failure = None
        self._wake.set()
