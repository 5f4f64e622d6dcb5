"""One partition of ``__transaction_state``: the transaction machine over its log.

1. For each event: the machine decides; its records are appended as one batch; only then they are applied, timers are set,
   the answer goes out and effects begin. Nothing is asynchronous in here.
2. A failed append leaves everything as it was; who asked is told to try again, a timer expires again a second later, and
   markers that could not be noted as written are written again.
3. So does an unexpected exception, which is a bug: its traceback is logged, who asked gets an error, what is to be done for
   the transaction is tried again, less and less often, and all other transactions go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.machine.values import CoordinatorRecord, TimerExpired, TimerKey
from coordinator.shard.journal import AppendFailedError, CoordinatorLog, append_rows, read_journal
from coordinator.shard.timers import RETRY_MS, Timers
from coordinator.txn.config import TransactionConfig
from coordinator.txn.machine import MARKERS, handle, on_loaded
from coordinator.txn.state import EMPTY, TransactionsState, apply_all, apply_soft
from coordinator.txn.values import (
    Event,
    MarkersFailed,
    MarkersWritten,
    ProducerReply,
    TransactionDecision,
    TransactionRecord,
    WriteMarkers,
)
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import (
    decode_record_key,
    decode_record_value,
    encode_record_key,
    encode_record_value,
)
from streamsrt.wire.primitives import EncodeError
from streamsrt.wire.types import TransactionLogKey, TransactionLogValue

logger = logging.getLogger("coordinator.transactions")


class TransactionOutcome(NamedTuple):
    """The result of an event."""

    reply: ProducerReply | None
    effects: tuple[WriteMarkers, ...]
    appended: bool


class TransactionShard:
    """The transaction machine with its log and its timers."""

    def __init__(self, log: CoordinatorLog, config: TransactionConfig) -> None:
        self._log = log
        self._config = config
        self._state = EMPTY
        self._timers = Timers()

    @property
    def state(self) -> TransactionsState:
        return self._state

    def load(self, now_ms: int) -> TransactionOutcome:
        """Builds the state from the log, with the timers and effects that it requires. Raises LogError or DecodeError for
        damage."""
        self._state = apply_all(EMPTY, self._records())
        self._timers = Timers()
        return self._carry_out(on_loaded(self._state, now_ms, self._config), now_ms)

    def execute(self, event: Event, now_ms: int) -> TransactionOutcome:
        """Handles an event; the outcome has the response."""
        try:
            return self._carry_out(handle(self._state, event, now_ms, self._config), now_ms)
        except AppendFailedError as failed:
            if isinstance(event, MarkersWritten):
                return self.execute(MarkersFailed(event.transactional_id), now_ms)
            return TransactionOutcome(ProducerReply(failed.code), (), False)
        except Exception:
            logger.exception("%s failed and changed nothing; all else goes on. Please report this", event)
        if isinstance(event, MarkersWritten | MarkersFailed):
            self._postpone(TimerKey(MARKERS, event.transactional_id), now_ms)
        return TransactionOutcome(ProducerReply(ErrorCode.UNKNOWN_SERVER_ERROR), (), False)

    def _postpone(self, key: TimerKey, now_ms: int) -> None:
        delay_ms = self._timers.postpone(key, now_ms)
        logger.error(
            "transactional id %s: %r is tried again in %d s; other transactions go on",
            key.owner_id,
            key.kind,
            delay_ms // 1000,
        )

    def next_deadline_ms(self) -> int | None:
        """Returns when ``tick`` is due next; None if never."""
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> TransactionOutcome:
        """Handles all timers that are due."""
        effects: list[WriteMarkers] = []
        appended = False
        while (key := self._timers.pop_due(now_ms)) is not None:
            try:
                outcome = self._carry_out(handle(self._state, TimerExpired(key), now_ms, self._config), now_ms)
            except AppendFailedError as failed:
                if failed.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    self._timers.set(key, now_ms + RETRY_MS)
                else:
                    self._postpone(key, now_ms)
                continue
            except Exception:
                logger.exception(
                    "the timer %r of transactional id %s failed: please report this", key.kind, key.owner_id
                )
                self._postpone(key, now_ms)
                continue
            if key.kind != MARKERS:
                self._timers.succeeded(key)
            effects += outcome.effects
            appended = appended or outcome.appended
        return TransactionOutcome(None, tuple(effects), appended)

    def move_deadlines(self, by_ms: int) -> None:
        """Moves all deadlines with the clock, which was set forward by so much; negative: back."""
        self._timers.move(by_ms)

    def _carry_out(self, decision: TransactionDecision, now_ms: int) -> TransactionOutcome:
        after = apply_all(self._state, decision.records) if decision.records else self._state
        for update in decision.soft:
            after = apply_soft(after, update)
        if decision.records:
            self._append(decision.records, now_ms)
        self._state = after
        self._timers.carry_out(decision.timers)
        return TransactionOutcome(next(iter(decision.replies), None), decision.effects, bool(decision.records))

    def _append(self, records: tuple[TransactionRecord, ...], now_ms: int) -> None:
        try:
            keys = [encode_record_key(record.key) for record in records]
            values = [None if record.value is None else encode_record_value(record.value) for record in records]
        except EncodeError as error:
            logger.error("records of a transaction cannot be encoded: %s", error)
            raise AppendFailedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        append_rows(self._log, keys, values, now_ms)

    def _records(self) -> Iterator[TransactionRecord]:
        for batch in read_journal(self._log):
            for key, value in batch.rows:
                name = decode_record_key(key, transactions=True)
                assert isinstance(name, TransactionLogKey)
                yield CoordinatorRecord(
                    name, None if value is None else decode_record_value(TransactionLogValue, value)
                )
