"""One partition of ``__consumer_offsets``: a group machine over its log.

1. For each event: the machine decides; its records are appended as one batch; only then they are applied, timers are set
   and replies go out. Nothing is asynchronous in here.
2. A failed append leaves state, timers and soft state as they were; a waiting request is told to try again. A timer whose
   records could not be written is tried again a second later.
3. At a load, the records of the log make the state. The machine applies them as it does live, so that a restart goes on
   with the same epochs and assignments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from coordinator.group.config import GroupConfig
from coordinator.group.machine import (
    EMPTY,
    GroupsState,
    UnknownRecordError,
    apply_all,
    apply_soft,
    failure,
    handle,
    on_loaded,
)
from coordinator.group.values import (
    NO_TOPICS,
    CancelTimer,
    Decision,
    Effect,
    Event,
    GroupRequest,
    Record,
    Reply,
    Timer,
    TimerExpired,
    TopicsChanged,
    TopicsImage,
)
from coordinator.log.errors import AppendRefusedError, LogError
from coordinator.shard.timers import Timers
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import (
    decode_record_key,
    decode_record_value,
    encode_record_key,
    encode_record_value,
)
from streamsrt.wire.primitives import Buffer, EncodeError, UnknownRecordTypeError
from streamsrt.wire.records import decode_batches, encode_batch
from streamsrt.wire.schema import named_class

logger = logging.getLogger("coordinator.groups")

READ_BYTES = 1 << 20
RETRY_MS = 1_000
EXPIRING_OFFSET_VERSION = 1


class Appended(Protocol):
    """Where an append went."""

    @property
    def last_offset(self) -> int: ...


class Read(Protocol):
    """Whole batches, and the offset to read from next."""

    @property
    def buffers(self) -> list[memoryview]: ...

    @property
    def next_offset(self) -> int: ...


class GroupLog(Protocol):
    """What a shard needs of a partition log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, batches: bytes, *, now_ms: int) -> Appended: ...

    def read(self, offset: int, max_bytes: int) -> Read: ...


class Outcome(NamedTuple):
    """What an event led to. ``end_offset`` is the offset behind the shard's last record."""

    replies: list[Reply]
    effects: list[Effect]
    appended: bool
    end_offset: int


class _Failed(Exception):
    """Records could not be written; the code is for who waits for an answer."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Shard:
    """A group machine with its log, its timers and its view of the topics."""

    def __init__(self, log: GroupLog, config: GroupConfig, image: TopicsImage = NO_TOPICS) -> None:
        self._log = log
        self._config = config
        self._image = image
        self._state = EMPTY
        self._timers = Timers()

    @property
    def state(self) -> GroupsState:
        return self._state

    @property
    def timers(self) -> Timers:
        return self._timers

    def load(self, now_ms: int) -> Outcome:
        """Makes the state from the log, and the timers that it calls for. Raises LogError or DecodeError for damage."""
        self._state = apply_all(EMPTY, self._records())
        self._timers = Timers()
        return self._carry_out(on_loaded(self._state, now_ms, self._config), now_ms)

    def execute(self, event: Event, now_ms: int) -> Outcome:
        """Handles an event. The outcome has the replies that are due now, to this request or to earlier ones."""
        decision = handle(self._state, event, now_ms, image=self._image, config=self._config)
        try:
            return self._carry_out(decision, now_ms)
        except _Failed as failed:
            return self._refuse(event, failed.code)

    def next_deadline_ms(self) -> int | None:
        """When ``tick`` has something to do next; None if never."""
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> Outcome:
        """Lets the timers expire whose deadline has come."""
        replies: list[Reply] = []
        effects: list[Effect] = []
        appended = False
        while (key := self._timers.pop_due(now_ms)) is not None:
            decision = handle(self._state, TimerExpired(key), now_ms, image=self._image, config=self._config)
            try:
                outcome = self._carry_out(decision, now_ms)
            except _Failed:
                self._timers.set(key, now_ms + RETRY_MS)
                continue
            replies += outcome.replies
            effects += outcome.effects
            appended = appended or outcome.appended
        return Outcome(replies, effects, appended, self._log.log_end_offset)

    def set_topics(self, image: TopicsImage, now_ms: int) -> Outcome:
        """Takes a new image of the topics; groups look at it with their next heartbeat."""
        self._image = image
        return self.execute(TopicsChanged(image), now_ms)

    def set_group_config(self, config: GroupConfig, now_ms: int) -> Outcome:
        """Takes new settings; they hold for each member from its next heartbeat on."""
        self._config = config
        return Outcome([], [], False, self._log.log_end_offset)

    def _carry_out(self, decision: Decision, now_ms: int) -> Outcome:
        if decision.records:
            self._append(decision.records, now_ms)
            self._state = apply_all(self._state, decision.records)
        for update in decision.soft:
            self._state = apply_soft(self._state, update)
        for timer in decision.timers:
            match timer:
                case Timer(key, deadline_ms):
                    self._timers.set(key, deadline_ms)
                case CancelTimer(key):
                    self._timers.cancel(key)
        return Outcome(list(decision.replies), list(decision.effects), bool(decision.records), self._log.log_end_offset)

    def _append(self, records: tuple[Record, ...], now_ms: int) -> None:
        try:
            keys: list[bytes | None] = [encode_record_key(record.key) for record in records]
            values = [_encoded_value(record) for record in records]
            batch = encode_batch(keys, values, [now_ms] * len(records))
        except EncodeError as error:
            logger.error("records of a group cannot be encoded: %s", error)
            raise _Failed(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        try:
            self._log.append(batch, now_ms=now_ms)
        except AppendRefusedError as error:
            logger.error("records of a group are not taken by the log: %s", error)
            raise _Failed(ErrorCode.UNKNOWN_SERVER_ERROR) from None
        except LogError as error:
            logger.error("records of a group cannot be written: %s", error)
            raise _Failed(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None

    def _refuse(self, event: Event, code: ErrorCode) -> Outcome:
        replies = []
        if isinstance(event, GroupRequest):
            replies.append(Reply(event.context.request_id, failure(event.message, code)))
        return Outcome(replies, [], False, self._log.log_end_offset)

    def _records(self) -> Iterator[Record]:
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            read = self._log.read(offset, READ_BYTES)
            for buffer in read.buffers:
                for columns in decode_batches(buffer, from_offset=offset):
                    for key, value in zip(columns.keys, columns.values, strict=True):
                        if key is not None:
                            yield _decoded(key, value)
            if read.next_offset <= offset:
                return
            offset = read.next_offset


def _encoded_value(record: Record) -> bytes | None:
    """Kafka's versions: the newest one, but 1 for an offset that says itself when it expires."""
    value = record.value
    if value is None:
        return None
    if isinstance(value, types.OffsetCommitValue) and value.expire_timestamp != -1:
        return encode_record_value(value, EXPIRING_OFFSET_VERSION)
    return encode_record_value(value)


def _decoded(key: Buffer, value: Buffer | None) -> Record:
    try:
        decoded = decode_record_key(key)
    except UnknownRecordTypeError as error:
        raise UnknownRecordError(f"{error}: this log was written by a newer broker") from None
    if value is None:
        return Record(decoded, None)
    cls = named_class(decoded.NAME.removesuffix("Key") + "Value")
    return Record(decoded, decode_record_value(cls, value))
