"""Inputs and outputs of the transaction machine: values, nothing else.

1. An event is a request of a producer, an expired timer, or news about markers. Time is a separate argument.
2. :mod:`coordinator.machine.values` defines decisions. Its soft updates are the epochs that producers named.
3. Every request is answered at once. Work that takes time (markers) is an effect, and its end is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from coordinator.machine.values import CoordinatorRecord, Decision, ProducerIdAndEpoch, TimerExpired
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import TransactionLogKey, TransactionLogValue

NO_ID = -1
NO_EPOCH = -1


NO_PRODUCER = ProducerIdAndEpoch(NO_ID, NO_EPOCH)


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId with a transactional id.

    ``expected`` is what the producer has already, as versions 3 and later can say; ``new_producer_id`` has never been
    given out, and is -1 where :func:`~coordinator.txn.machine.needs_producer_id` said no.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch = NO_PRODUCER
    new_producer_id: int = NO_ID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """AddPartitionsToTxn, or AddOffsetsToTxn with the group's partition of ``__consumer_offsets``."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """EndTxn."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    committed: bool


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of the prepared transaction has its marker."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class MarkersFailed:
    """Some partition of the prepared transaction has no marker yet."""

    transactional_id: str


Event = InitProducer | AddPartitions | EndTransaction | MarkersWritten | MarkersFailed | TimerExpired


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the outcome of a prepared transaction to each of its partitions."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    committed: bool
    partitions: tuple[TopicPartition, ...]


class ProducerReply(NamedTuple):
    """The response to a producer; ``producer`` is the result of InitProducerId."""

    code: ErrorCode = ErrorCode.NONE
    producer: ProducerIdAndEpoch = NO_PRODUCER


class NamedEpoch(NamedTuple):
    """The epoch that a producer had before its last bump, if the producer sent it; -1: none."""

    transactional_id: str
    last_epoch: int


TransactionRecord: TypeAlias = CoordinatorRecord[TransactionLogKey, TransactionLogValue]
"""One record of ``__transaction_state``."""

TransactionDecision: TypeAlias = Decision[TransactionRecord, NamedEpoch, ProducerReply, WriteMarkers]
"""The result of an event; an event with a waiting client has one reply, any other has none."""

NOTHING: TransactionDecision = Decision()
