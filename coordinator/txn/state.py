"""Transactions as the records of ``__transaction_state`` make them.

1. ``apply`` is the only transition, live and at a load. One record holds all of one transactional id.
2. What the log does not hold: the epoch that a producer named when it asked for its last bump. It lets a producer ask again
   whose answer got lost; after a restart such a producer is fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from coordinator.machine.values import CoordinatorRecord, ProducerIdAndEpoch
from coordinator.txn.values import NO_EPOCH, NO_ID, NamedEpoch, TopicPartition, TransactionRecord
from streamsrt.wire.types import TransactionLogKey, TransactionLogValue


class TransactionState(IntEnum):
    """Kafka's ``TransactionState``, by the numbers that stand in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers may be missing."""
        return self in {TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}

    @property
    def is_settled(self) -> bool:
        """Whether no transaction is in progress: a new one may begin."""
        return self in {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

    @property
    def label(self) -> str:
        """The name that ListTransactions and DescribeTransactions show."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id: its producer and the state of its last transaction. ``start_ms`` is -1 before the first."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    timeout_ms: int
    status: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_ID


@dataclass(frozen=True, slots=True)
class TransactionsState:
    """All transactional ids of one partition of ``__transaction_state``, and last epochs as of rule 2."""

    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    last_epochs: Mapping[str, int] = field(default_factory=dict)


EMPTY = TransactionsState()


def apply(state: TransactionsState, record: TransactionRecord) -> TransactionsState:
    """Returns the state after one record."""
    return apply_all(state, (record,))


def apply_all(state: TransactionsState, records: Iterable[TransactionRecord]) -> TransactionsState:
    """Returns the state after these records."""
    transactions = dict(state.transactions)
    last_epochs = state.last_epochs
    for key, value in records:
        name = key.transactional_id
        if value is not None:
            transactions[name] = _transaction(name, value)
            continue
        transactions.pop(name, None)
        if name in last_epochs:
            last_epochs = {other: epoch for other, epoch in last_epochs.items() if other != name}
    return TransactionsState(transactions, last_epochs)


def apply_soft(state: TransactionsState, update: NamedEpoch) -> TransactionsState:
    """Returns the state after a change that is not in the log."""
    last_epochs = {**state.last_epochs, update.transactional_id: update.last_epoch}
    if update.last_epoch == NO_EPOCH:
        del last_epochs[update.transactional_id]
    return TransactionsState(state.transactions, last_epochs)


def record_of(transaction: Transaction) -> TransactionRecord:
    """Returns the record of this transaction. As in Kafka, an empty one has no list of partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in by_topic.items()
    ]
    return CoordinatorRecord(
        TransactionLogKey(transactional_id=transaction.transactional_id),
        TransactionLogValue(
            producer_id=transaction.producer.id,
            previous_producer_id=transaction.previous_producer_id,
            producer_epoch=transaction.producer.epoch,
            transaction_timeout_ms=transaction.timeout_ms,
            transaction_status=transaction.status,
            transaction_partitions=None if transaction.status == TransactionState.EMPTY else partitions,
            transaction_last_update_timestamp_ms=transaction.update_ms,
            transaction_start_timestamp_ms=transaction.start_ms,
        ),
    )


def tombstone_of(transactional_id: str) -> TransactionRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def _transaction(name: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        name,
        ProducerIdAndEpoch(value.producer_id, value.producer_epoch),
        value.transaction_timeout_ms,
        TransactionState(value.transaction_status),
        frozenset(
            TopicPartition(entry.topic, partition)
            for entry in value.transaction_partitions or ()
            for partition in entry.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.previous_producer_id,
    )
