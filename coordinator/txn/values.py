"""What goes into the transaction machine and what comes out of it: values, nothing else.

1. An event is what a producer asks, an expired timer, or news about markers. Time is an argument beside it.
2. A decision says what to do in this order: append the records, apply them, apply the soft updates, set the timers, answer,
   start the effects. Nothing of it happens if the append fails.
3. Every question is answered at once. What takes time (markers) is an effect, and its end is an event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import TransactionLogKey, TransactionLogValue

NO_ID = -1
NO_EPOCH = -1


class Producer(NamedTuple):
    """A producer id with its epoch."""

    id: int
    epoch: int


NO_PRODUCER = Producer(NO_ID, NO_EPOCH)


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int


class Record(NamedTuple):
    """One record of ``__transaction_state``; the value None is a tombstone."""

    key: TransactionLogKey
    value: TransactionLogValue | None


class TimerKey(NamedTuple):
    """Names a timer. A timer that is set again under its key replaces the old one."""

    kind: str
    transactional_id: str


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId with a transactional id.

    ``expected`` is what the producer has already, as versions 3 and later can say; ``new_producer_id`` has never been
    given out, and is -1 where :func:`~coordinator.txn.machine.needs_producer_id` said no.
    """

    transactional_id: str
    timeout_ms: int
    expected: Producer = NO_PRODUCER
    new_producer_id: int = NO_ID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """AddPartitionsToTxn, or AddOffsetsToTxn with the group's partition of ``__consumer_offsets``."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """EndTxn."""

    transactional_id: str
    producer: Producer
    committed: bool


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of the prepared transaction has its marker."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class MarkersFailed:
    """Some partition of the prepared transaction has no marker yet."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TimerExpired:
    """The deadline of this timer has passed."""

    key: TimerKey


Event = InitProducer | AddPartitions | EndTransaction | MarkersWritten | MarkersFailed | TimerExpired


@dataclass(frozen=True, slots=True)
class Timer:
    """Set the timer ``key`` to expire at ``deadline_ms``."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer ``key``, if there is one."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the outcome of a prepared transaction to each of its partitions."""

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: tuple[TopicPartition, ...]


class Reply(NamedTuple):
    """The answer to a producer; ``producer`` is what InitProducerId gives."""

    code: ErrorCode = ErrorCode.NONE
    producer: Producer = NO_PRODUCER


class SoftUpdate(NamedTuple):
    """The epoch that a producer had before its last bump, if it named it itself; -1: none."""

    transactional_id: str
    last_epoch: int


@dataclass(frozen=True, slots=True)
class Decision:
    """All that follows from one event, in the order of the fields."""

    records: tuple[Record, ...] = ()
    soft: tuple[SoftUpdate, ...] = ()
    timers: tuple[Timer | CancelTimer, ...] = ()
    reply: Reply | None = None
    effects: tuple[WriteMarkers, ...] = ()


NOTHING = Decision()
