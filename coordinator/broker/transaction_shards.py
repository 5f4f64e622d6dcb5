"""The transaction coordinator of the broker: which shard a transactional id belongs to, and the markers.

1. A transactional id belongs to the partition of ``__transaction_state`` that Java's ``hashCode`` of it maps to; each
   partition is one shard with a log of its own. The topic is made when the first transactional producer asks.
2. Markers are written only when the record that decides the outcome is as safe as ``log.fsync`` promises, and noted as
   written only when they are. With ``log.fsync=group`` that takes two waits; else it is done before the answer. Many markers
   are written in slices. No producer writes to the partitions meanwhile: the transaction is over, and none has begun.
3. A partition that is gone needs no marker. One whose disk fails gets it later.
4. After a power loss that took records of this coordinator, a partition may hold an open transaction without an owner.
   It is aborted at the start: readers must not wait for it for ever.
5. What fails unexpectedly for one transaction is logged once and tried again; the others are not concerned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable

from coordinator.broker.deadline_timer import DeadlineTimer
from coordinator.broker.group_shards import GroupShards, java_hash
from coordinator.broker.keyed_log import loading
from coordinator.broker.producer_ids import ProducerIds
from coordinator.broker.slices import Slices, whole
from coordinator.broker.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicRefusedError, TopicRegistry
from coordinator.log import AppendRefusedError, LogError, PartitionLog
from coordinator.machine.values import ProducerIdAndEpoch
from coordinator.shard.journal import AppendFailedError
from coordinator.shard.transaction_shard import TransactionOutcome, TransactionShard
from coordinator.txn.config import TransactionConfig
from coordinator.txn.machine import check_write, needs_producer_id
from coordinator.txn.state import TransactionsState, TransactionState
from coordinator.txn.values import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersFailed,
    MarkersWritten,
    ProducerReply,
    TopicPartition,
    WriteMarkers,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import ControlRecord, ControlType, encode_control_batch

logger = logging.getLogger("coordinator.transactions")

Durable = Callable[[Iterable[PartitionLog]], Awaitable[None]]
COORDINATOR_EPOCH = 0
MARKERS_AT_ONCE = 64


class TransactionShards:
    """All shards. ``durable`` is None if appends are immediately as safe as configured."""

    def __init__(
        self,
        topics: TopicRegistry,
        groups: GroupShards,
        producer_ids: ProducerIds,
        config: TransactionConfig,
        now_ms: Callable[[], int],
        *,
        topic_settings: tuple[int, int],
        on_append: Callable[[PartitionLog], None],
        durable: Durable | None,
    ) -> None:
        """``topic_settings``: how many partitions a new ``__transaction_state`` has, and its ``segment.bytes``."""
        self._topics = topics
        self._groups = groups
        self._producer_ids = producer_ids
        self._config = config
        self._now_ms = now_ms
        self._topic_settings = topic_settings
        self._on_append = on_append
        self._durable = durable
        self._shards: list[TransactionShard] = []
        self._logs: list[PartitionLog] = []
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        """Transactional ids whose markers fail unexpectedly."""
        self._slices = Slices()
        self.deadlines = DeadlineTimer()

    # ---------------------------------------------------------------------------------------------------------- loading

    def load(self) -> None:
        """Loads the transactions from their logs, and completes those that were decided. Groups must be loaded first."""
        topic = self._topics.get(TRANSACTIONS_TOPIC)
        if topic is not None:
            self._open(topic.partitions)
        self._abort_orphans()

    def _open(self, logs: list[PartitionLog]) -> None:
        self._logs = logs
        self._shards = [TransactionShard(log, self._config) for log in logs]
        now_ms = self._now_ms()
        for index, shard in enumerate(self._shards):
            with loading(logs[index]):
                effects = shard.load(now_ms).effects
            for effect in effects:
                self._finish_at_start(index, effect)

    def _finish_at_start(self, index: int, effect: WriteMarkers) -> None:
        try:
            if self._durable is not None:
                self._logs[index].flush()
            written, logs = whole(self._write_markers(effect))
            if self._durable is not None:
                for log in logs:
                    log.flush()
        except LogError as error:
            logger.warning("the transaction of %s can't be finished yet: %s", effect.transactional_id, error)
            written = False
        self._note_markers(index, effect, written=written)

    def _abort_orphans(self) -> None:
        held = {
            (transaction.producer.id, partition)
            for shard in self._shards
            for transaction in shard.state.transactions.values()
            if transaction.status == TransactionState.ONGOING or transaction.status.is_prepared
            for partition in transaction.partitions
        }
        for topic in self._topics:
            for number, log in enumerate(topic.partitions):
                partition = TopicPartition(topic.name, number)
                for producer_id, offset in list(log.producers.open_transactions()):
                    if (producer_id, partition) not in held:
                        logger.warning(
                            "aborting a transaction of producer %d on %s-%d, open since offset %d, that the "
                            "transaction coordinator does not know",
                            producer_id,
                            *partition,
                            offset,
                        )
                        epoch = log.producers.entries[producer_id].epoch
                        self._write_marker(partition, _control(ProducerIdAndEpoch(producer_id, epoch), committed=False))

    def ensure_topic(self) -> bool:
        """Creates ``__transaction_state`` if it does not exist; False if that fails."""
        if self._shards:
            return True
        partitions, segment_bytes = self._topic_settings
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(segment_bytes),
        }
        try:
            topic = self._topics.create(TRANSACTIONS_TOPIC, partitions, configs)
        except (TopicRefusedError, LogError) as error:
            logger.warning("%s can't be created: %s", TRANSACTIONS_TOPIC, error)
            return False
        self._open(topic.partitions)
        self._groups.topics_changed()
        return True

    # --------------------------------------------------------------------------------------------------------- questions

    def execute(self, event: InitProducer | AddPartitions | EndTransaction) -> ProducerReply:
        """Executes a producer's request and returns the response."""
        if not self.ensure_topic():
            return ProducerReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        index = self._index_of(event.transactional_id)
        shard = self._shards[index]
        if isinstance(event, InitProducer) and needs_producer_id(shard.state, event):
            try:
                event = InitProducer(
                    event.transactional_id, event.timeout_ms, event.expected, self._producer_ids.allocate()
                )
            except LogError as error:
                logger.error("no producer id can be assigned: %s", error)
                return ProducerReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        outcome = shard.execute(event, self._now_ms())
        self._carry_out(index, outcome)
        assert outcome.reply is not None
        return outcome.reply

    def check_write(self, transactional_id: str, producer: ProducerIdAndEpoch, topic: str, partition: int) -> ErrorCode:
        """Whether a producer may write to a partition now, as part of its transaction."""
        if not self._shards:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        state = self._shards[self._index_of(transactional_id)].state
        return check_write(state, transactional_id, producer, TopicPartition(topic, partition))

    def states(self) -> list[TransactionsState]:
        """Returns the states of all shards."""
        return [shard.state for shard in self._shards]

    def state_of(self, transactional_id: str) -> TransactionsState:
        """Returns the state with this transactional id, or None."""
        return self._shards[self._index_of(transactional_id)].state if self._shards else TransactionsState()

    def logs_of(self, transactional_id: str) -> list[PartitionLog]:
        """Returns the log with the records of the transactional id, or None."""
        return [self._logs[self._index_of(transactional_id)]] if self._shards else []

    def is_finishing(self, transactional_id: str) -> bool:
        """Whether markers of the transactional id are being written."""
        return transactional_id in self._finishing

    async def finished(self, transactional_id: str) -> None:
        """Waits until the markers of the transactional id are written, or have failed."""
        task = self._finishing.get(transactional_id)
        if task is not None:
            await asyncio.wait([task])

    def _index_of(self, transactional_id: str) -> int:
        return (java_hash(transactional_id) & 0x7FFFFFFF) % len(self._shards)

    # ----------------------------------------------------------------------------------------------------------- markers

    def _carry_out(self, index: int, outcome: TransactionOutcome) -> None:
        if outcome.appended:
            self._on_append(self._logs[index])
        for effect in outcome.effects:
            if self._durable is None and len(effect.partitions) <= MARKERS_AT_ONCE:
                self._finish_at_once(index, effect)
            else:
                task = asyncio.get_running_loop().create_task(self._finish(index, effect))
                self._finishing[effect.transactional_id] = task
        self.deadlines.wake()

    def _finish_at_once(self, index: int, effect: WriteMarkers) -> None:
        try:
            written, _ = whole(self._write_markers(effect))
        except Exception as error:  # noqa: BLE001  # logged there
            self._note_unexpected(effect.transactional_id, error)
            written = False
        self._note_markers(index, effect, written=written)

    def _note_unexpected(self, transactional_id: str, error: Exception) -> None:
        """Logs a bug. What is tried again each second is not told each second."""
        if transactional_id in self._failing:
            return
        self._failing.add(transactional_id)
        logger.error(
            "the transaction of %s is decided and can't be finished; it is tried again each second, and readers of its "
            "partitions wait (read_committed). Please report this",
            transactional_id,
            exc_info=error,
        )

    async def _finish(self, index: int, effect: WriteMarkers) -> None:
        durable = self._durable
        try:
            if durable is not None:
                await durable([self._logs[index]])
            written, logs = await self._slices.run_alone(self._write_markers(effect))
            if durable is not None:
                await durable(logs)
        except LogError as error:
            logger.warning("the transaction of %s can't be finished yet: %s", effect.transactional_id, error)
            written = False
        except Exception as error:  # noqa: BLE001  # logged there
            self._note_unexpected(effect.transactional_id, error)
            written = False
        del self._finishing[effect.transactional_id]
        self._note_markers(index, effect, written=written)

    def _note_markers(self, index: int, effect: WriteMarkers, *, written: bool) -> None:
        name = effect.transactional_id
        if written:
            self._failing.discard(name)
        event = MarkersWritten(name) if written else MarkersFailed(name)
        self._carry_out(index, self._shards[index].execute(event, self._now_ms()))

    def _write_markers(self, effect: WriteMarkers) -> Generator[None, None, tuple[bool, list[PartitionLog]]]:
        """Writes missing markers; whether all are written now, and the logs that received one."""
        control = _control(effect.producer, committed=effect.committed)
        logs: list[PartitionLog | bool] = []
        for partition in effect.partitions:
            logs.append(self._write_marker(partition, control))
            yield
        return False not in logs, [log for log in logs if isinstance(log, PartitionLog)]

    def _write_marker(self, partition: TopicPartition, control: ControlRecord) -> PartitionLog | bool:
        """Writes a marker and returns its log; True if none was needed, False if it could not be written."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return True
        log = topic.partitions[partition.partition]
        now_ms = self._now_ms()
        try:
            if partition.topic == OFFSETS_TOPIC:
                self._groups.end_transaction(partition.partition, control)
            else:
                log.append(encode_control_batch(control, timestamp_ms=now_ms), now_ms=now_ms, from_coordinator=True)
                self._on_append(log)
        except AppendRefusedError as error:
            logger.error("%s-%d does not accept a transaction marker: %s", *partition, error)
            return True
        except (LogError, AppendFailedError) as error:
            logger.warning("the transaction marker for %s-%d is postponed: %s", *partition, error)
            return False
        return log

    # ------------------------------------------------------------------------------------------------------------ timers

    def tick(self) -> int | None:
        """Expires due timers, and returns the milliseconds until the next one, or None."""
        for index, shard in enumerate(self._shards):
            self._carry_out(index, shard.tick(self._now_ms()))
        self.deadlines.reset()
        # The clock moves the deadlines if it was set.
        now_ms = self._now_ms()
        deadlines = [deadline for shard in self._shards if (deadline := shard.next_deadline_ms()) is not None]
        return max(0, min(deadlines) - now_ms) if deadlines else None

    def move_deadlines(self, by_ms: int) -> None:
        """Moves all deadlines with the clock, which was set forward by so much; negative: back."""
        for shard in self._shards:
            shard.move_deadlines(by_ms)

    def close(self) -> None:
        """Ends what waits for the disk; what is not finished then is finished at the next start."""
        for task in self._finishing.values():
            task.cancel()
        self._finishing.clear()


def _control(producer: ProducerIdAndEpoch, *, committed: bool) -> ControlRecord:
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    return ControlRecord(kind, producer.id, producer.epoch, COORDINATOR_EPOCH)
