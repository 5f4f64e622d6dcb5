"""The transactions of one partition of ``__transaction_state``, as a pure machine.

    handle(state, event, now_ms, config) -> TransactionDecision     reads the state, changes nothing
    apply(state, record)                 -> state        the only transition of hard state (:mod:`coordinator.txn.state`)

The rules are those of Kafka's ``TransactionCoordinator`` for clients that add partitions themselves:

1. A transactional id has one producer id and one current epoch. InitProducerId raises the epoch. Every request with an
   older epoch is fenced.
2. A transaction is decided when the record PREPARE_COMMIT or PREPARE_ABORT is written. After that, the coordinator writes
   markers until each partition has one, also after a restart. The next transaction may begin only then.
3. InitProducerId during an open transaction aborts it with a raised epoch, which no client gets, and is answered with
   CONCURRENT_TRANSACTIONS until the abort is complete. A transaction that exceeds its timeout is aborted in the same way.
4. A repeated EndTxn with the same result succeeds again. One with the opposite result fails with INVALID_TXN_STATE.
5. The highest epoch of a producer is 32766; after it, the transactional id gets a new producer id. Epoch 32767 is reserved
   for the aborts of rule 3.
6. InitProducerId with a producer id and epoch succeeds only if they are current, or if they were current before a bump
   whose response the producer may have missed.
7. A transactional id that was unused for ``transactional.id.expiration.ms`` is deleted.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.machine.values import CancelTimer, Decision, ProducerIdAndEpoch, Timer, TimerExpired, TimerKey
from coordinator.txn.config import TransactionConfig
from coordinator.txn.state import Transaction, TransactionsState, TransactionState, record_of, tombstone_of
from coordinator.txn.values import (
    NO_EPOCH,
    NO_ID,
    NO_PRODUCER,
    NOTHING,
    AddPartitions,
    EndTransaction,
    Event,
    InitProducer,
    MarkersFailed,
    MarkersWritten,
    NamedEpoch,
    ProducerReply,
    TopicPartition,
    TransactionDecision,
    WriteMarkers,
)
from streamsrt.wire.error_codes import ErrorCode

TIMEOUT = "timeout"
EXPIRATION = "expiration"
MARKERS = "markers"
MARKERS_RETRY_MS = 1_000
LAST_EPOCH = (1 << 15) - 2
"""The highest epoch that a producer is given."""


def handle(state: TransactionsState, event: Event, now_ms: int, config: TransactionConfig) -> TransactionDecision:
    """Handles an event."""
    match event:
        case InitProducer():
            return _init(state, event, now_ms, config)
        case AddPartitions():
            return _add_partitions(state, event, now_ms)
        case EndTransaction():
            return _end(state, event, now_ms)
        case MarkersWritten(name):
            return _complete(state.transactions.get(name), now_ms, config)
        case MarkersFailed(name):
            return Decision(timers=(Timer(TimerKey(MARKERS, name), now_ms + MARKERS_RETRY_MS),))
        case TimerExpired(key):
            return _expire(state.transactions.get(key.owner_id), key.kind, now_ms)


def on_loaded(state: TransactionsState, now_ms: int, config: TransactionConfig) -> TransactionDecision:
    """Returns what the state requires after a start: timers, and the markers of prepared transactions."""
    timers: list[Timer | CancelTimer] = []
    effects = []
    for name, transaction in state.transactions.items():
        if transaction.status.is_prepared:
            effects.append(_markers(transaction))
        elif transaction.status == TransactionState.ONGOING:
            # The clock may have been set back since.
            timers.append(_timeout(replace(transaction, start_ms=min(transaction.start_ms, now_ms))))
        else:
            timers.append(_expiration(name, transaction.update_ms, config))
    return Decision(timers=tuple(timers), effects=tuple(effects))


def needs_producer_id(state: TransactionsState, event: InitProducer) -> bool:
    """Whether this event can only be handled with a new producer id."""
    known = state.transactions.get(event.transactional_id)
    return known is None or (known.producer.epoch >= LAST_EPOCH and known.status.is_settled)


def check_write(
    state: TransactionsState, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
) -> ErrorCode:
    """Whether the producer may write to the partition now: it must be the current one, in a transaction that holds it."""
    known = state.transactions.get(transactional_id)
    if known is None or known.producer.id != producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer.epoch != producer.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if known.status != TransactionState.ONGOING or partition not in known.partitions:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE


def _answer(code: ErrorCode, producer: ProducerIdAndEpoch = NO_PRODUCER) -> TransactionDecision:
    return Decision(replies=(ProducerReply(code, producer),))


# ------------------------------------------------------------------------------------------------------ InitProducerId


def _init(state: TransactionsState, event: InitProducer, now_ms: int, config: TransactionConfig) -> TransactionDecision:
    name, expected = event.transactional_id, event.expected
    if not name or (expected.id == NO_ID) != (expected.epoch == NO_EPOCH):
        return _answer(ErrorCode.INVALID_REQUEST)
    if not 0 < event.timeout_ms <= config.max_timeout_ms:
        return _answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    known = state.transactions.get(name)
    if known is None:
        return _given(event, ProducerIdAndEpoch(event.new_producer_id, 0), NO_ID, NO_EPOCH, now_ms, config)
    if not _may_be(known, expected):
        return _answer(ErrorCode.PRODUCER_FENCED)
    if known.status.is_prepared:
        return _answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.status == TransactionState.ONGOING:
        return _fence_for(known, expected, now_ms)
    if expected not in {NO_PRODUCER, known.producer}:
        if expected.epoch != state.last_epochs.get(name, NO_EPOCH):
            return _answer(ErrorCode.PRODUCER_FENCED)
        if known.status == TransactionState.EMPTY:
            return _answer(ErrorCode.NONE, known.producer)
    return _raise_epoch(known, event, now_ms, config)


def _raise_epoch(
    known: Transaction, event: InitProducer, now_ms: int, config: TransactionConfig
) -> TransactionDecision:
    named = event.expected.epoch
    if known.producer.epoch >= LAST_EPOCH:
        return _given(event, ProducerIdAndEpoch(event.new_producer_id, 0), known.producer.id, named, now_ms, config)
    bumped = known.producer._replace(epoch=known.producer.epoch + 1)
    return _given(event, bumped, known.previous_producer_id, named, now_ms, config)


def _may_be(known: Transaction, expected: ProducerIdAndEpoch) -> bool:
    if expected.id in {NO_ID, known.producer.id}:
        return True
    return expected.id == known.previous_producer_id and expected.epoch >= LAST_EPOCH


def _fence_for(known: Transaction, expected: ProducerIdAndEpoch, now_ms: int) -> TransactionDecision:
    if expected not in {NO_PRODUCER, known.producer}:
        return _answer(ErrorCode.PRODUCER_FENCED)
    aborted = _fenced(known, now_ms)
    soft = (NamedEpoch(known.transactional_id, expected.epoch),)
    return replace(aborted, soft=soft, replies=(ProducerReply(ErrorCode.CONCURRENT_TRANSACTIONS),))


def _given(
    event: InitProducer,
    producer: ProducerIdAndEpoch,
    previous_id: int,
    named_epoch: int,
    now_ms: int,
    config: TransactionConfig,
) -> TransactionDecision:
    """Assigns the producer its id and epoch; ``named_epoch`` is the one that it sent."""
    name = event.transactional_id
    made = Transaction(
        name, producer, event.timeout_ms, TransactionState.EMPTY, update_ms=now_ms, previous_producer_id=previous_id
    )
    return Decision(
        records=(record_of(made),),
        soft=(NamedEpoch(name, named_epoch),),
        timers=(_expiration(name, now_ms, config),),
        replies=(ProducerReply(ErrorCode.NONE, producer),),
    )


# ------------------------------------------------------------------------------------------------------- a transaction


def _refused(known: Transaction | None, name: str, producer: ProducerIdAndEpoch) -> ErrorCode:
    if not name:
        return ErrorCode.INVALID_REQUEST
    if known is None or known.producer.id != producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if known.producer.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED


def _add_partitions(state: TransactionsState, event: AddPartitions, now_ms: int) -> TransactionDecision:
    known = state.transactions.get(event.transactional_id)
    refused = _refused(known, event.transactional_id, event.producer)
    if refused or known is None:
        return _answer(refused)
    if known.status.is_prepared:
        return _answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.status == TransactionState.ONGOING:
        if event.partitions <= known.partitions:
            return _answer(ErrorCode.NONE)
        grown = replace(known, partitions=known.partitions | event.partitions, update_ms=now_ms)
        return Decision(records=(record_of(grown),), replies=(ProducerReply(),))
    begun = replace(
        known, status=TransactionState.ONGOING, partitions=event.partitions, start_ms=now_ms, update_ms=now_ms
    )
    name = event.transactional_id
    return Decision(
        records=(record_of(begun),),
        soft=(NamedEpoch(name, NO_EPOCH),) if name in state.last_epochs else (),
        timers=(CancelTimer(TimerKey(EXPIRATION, name)), _timeout(begun)),
        replies=(ProducerReply(),),
    )


def _end(state: TransactionsState, event: EndTransaction, now_ms: int) -> TransactionDecision:
    known = state.transactions.get(event.transactional_id)
    refused = _refused(known, event.transactional_id, event.producer)
    if refused or known is None:
        return _answer(refused)
    prepared, complete = _OUTCOMES[event.committed]
    if known.status == complete:
        return _answer(ErrorCode.NONE)
    if known.status == prepared:
        return _answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.status != TransactionState.ONGOING:
        return _answer(ErrorCode.INVALID_TXN_STATE)
    return replace(_prepared(known, prepared, now_ms), replies=(ProducerReply(),))


_OUTCOMES = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


def _fenced(known: Transaction, now_ms: int) -> TransactionDecision:
    """Aborts the transaction with an epoch that no producer has."""
    raised = replace(known, producer=known.producer._replace(epoch=known.producer.epoch + 1))
    return _prepared(raised, TransactionState.PREPARE_ABORT, now_ms)


def _prepared(known: Transaction, status: TransactionState, now_ms: int) -> TransactionDecision:
    decided = replace(known, status=status, update_ms=now_ms)
    return Decision(
        records=(record_of(decided),),
        timers=(CancelTimer(TimerKey(TIMEOUT, known.transactional_id)),),
        effects=(_markers(decided),),
    )


def _markers(transaction: Transaction) -> WriteMarkers:
    return WriteMarkers(
        transaction.transactional_id,
        transaction.producer,
        transaction.status == TransactionState.PREPARE_COMMIT,
        tuple(sorted(transaction.partitions)),
    )


def _complete(known: Transaction | None, now_ms: int, config: TransactionConfig) -> TransactionDecision:
    if known is None or not known.status.is_prepared:
        return NOTHING
    status = (
        TransactionState.COMPLETE_COMMIT
        if known.status == TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    done = replace(known, status=status, partitions=frozenset(), update_ms=now_ms)
    name = known.transactional_id
    return Decision(
        records=(record_of(done),), timers=(CancelTimer(TimerKey(MARKERS, name)), _expiration(name, now_ms, config))
    )


# --------------------------------------------------------------------------------------------------------------- timers


def _timeout(transaction: Transaction) -> Timer:
    return Timer(TimerKey(TIMEOUT, transaction.transactional_id), transaction.start_ms + transaction.timeout_ms)


def _expiration(name: str, update_ms: int, config: TransactionConfig) -> Timer:
    return Timer(TimerKey(EXPIRATION, name), update_ms + config.id_expiration_ms)


def _expire(known: Transaction | None, kind: str, now_ms: int) -> TransactionDecision:
    if known is None:
        return NOTHING
    name, status = known.transactional_id, known.status
    if kind == TIMEOUT and status == TransactionState.ONGOING:
        return _fenced(known, now_ms)
    if kind == MARKERS and status.is_prepared:
        return Decision(effects=(_markers(known),))
    if kind == EXPIRATION and status.is_settled:
        return Decision(records=(tombstone_of(name),))
    return NOTHING
