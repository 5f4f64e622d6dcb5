"""One partition of ``__consumer_offsets``: a group machine over its log.

1. For each event: the machine decides; its records are appended as one batch; only then they are applied, timers are set
   and replies go out. Nothing is asynchronous in here.
2. A failed append leaves state, timers and soft state as they were; a waiting request is told to try again. A timer whose
   records could not be written is tried again a second later.
3. An unexpected exception is a bug, and concerns one group. What the event would have changed is known before anything is
   written, so that nothing of it stays: not in the state, not in the log. The traceback is logged, the request gets an
   error, a timer is tried again, less and less often. All else goes on.
4. At a load, the records of the log make the state. The machine applies them as it does live, so that a restart
   continues with the same epochs and assignments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.group.config import GroupConfig
from coordinator.group.listing import CONSUMER, STREAMS
from coordinator.group.machine import failure, handle, on_loaded, on_refused
from coordinator.group.state import EMPTY, GroupsState, apply_all, apply_soft
from coordinator.group.streams.departure import SESSION
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import (
    Effect,
    Entry,
    Event,
    GroupDecision,
    GroupRecord,
    GroupRequest,
    PendingRecord,
    Reply,
    RetentionDue,
    TopicCreationFailed,
    TopicsChanged,
    TransactionEnd,
)
from coordinator.machine.values import CoordinatorRecord, TimerExpired, TimerKey
from coordinator.shard.journal import (
    NO_PRODUCER,
    AppendFailedError,
    CoordinatorLog,
    append_marker,
    append_rows,
    latest_rows,
)
from coordinator.shard.rebalance_meter import RebalanceMeter
from coordinator.shard.rebalance_reasons import RebalanceReasons
from coordinator.shard.timers import RETRY_MS, Timers
from streamsrt.assignment.topics import NO_TOPICS, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import (
    decode_record_key,
    decode_record_value,
    encode_record_key,
    encode_record_value,
)
from streamsrt.wire.primitives import Buffer, EncodeError
from streamsrt.wire.records import ControlRecord, ControlType
from streamsrt.wire.schema import named_class

logger = logging.getLogger("coordinator.groups")

EXPIRING_OFFSET_VERSION = 1


class EventOutcome(NamedTuple):
    """The result of an event. ``end_offset`` is the offset after the shard's last record.

    ``failed``: the groups for which something that nobody asked for has failed. Who waits there would wait in vain.
    """

    replies: list[Reply]
    effects: list[Effect]
    appended: bool
    end_offset: int
    failed: tuple[str, ...] = ()


class Settled(NamedTuple):
    """The data for the response to a heartbeat that only extends its session."""

    shard: Shard
    group: StreamsGroup
    image: TopicsImage
    config: GroupConfig
    session: TimerKey
    session_timeout_ms: int

    @property
    def holds(self) -> bool:
        """Whether the response would still be the same."""
        return self.shard.is_as(self.group, self.image, self.config)


class Shard:
    """A group machine with its log, its timers and its view of the topics."""

    def __init__(self, log: CoordinatorLog, config: GroupConfig, image: TopicsImage = NO_TOPICS) -> None:
        self._log = log
        self._config = config
        self._image = image
        self._state = EMPTY
        self._timers = Timers()
        self.rebalances = {CONSUMER: RebalanceMeter(), STREAMS: RebalanceMeter()}
        self._reasons = RebalanceReasons()

    @property
    def state(self) -> GroupsState:
        return self._state

    @property
    def timers(self) -> Timers:
        return self._timers

    def load(self, now_ms: int) -> EventOutcome:
        """Builds the state from the log, and the timers that it requires. Raises LogError or DecodeError for damage."""
        self._state = apply_all(EMPTY, self._entries())
        self._timers = Timers()
        return self._carry_out(on_loaded(self._state, now_ms, self._config), now_ms)

    def execute(self, event: Event, now_ms: int) -> EventOutcome:
        """Handles an event. The outcome has the replies that are due now, to this request or to earlier ones."""
        try:
            decision = handle(self._state, event, now_ms, image=self._image, config=self._config)
            return self._carry_out(decision, now_ms, event)
        except AppendFailedError as failed:
            code = failed.code
        except Exception:
            logger.exception("%s failed and changed nothing; all else goes on. Please report this", _described(event))
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return self._refuse(event, code, now_ms)

    def end_transaction(self, control: ControlRecord, now_ms: int) -> None:
        """Writes the marker that ends a producer's transaction here: its offsets count from now on, or are dropped.

        Raises AppendFailedError, and then nothing has changed.
        """
        end = TransactionEnd(control.producer_id, control.type is ControlType.COMMIT)
        after = apply_all(self._state, (end,))
        append_marker(self._log, control, now_ms)
        self._state = after

    def settled(self, group_id: str, member_id: str) -> Settled | None:
        """Returns the data for the response to a member's heartbeat, if it belongs to a streams group."""
        group = self._state.groups.get(group_id)
        if not isinstance(group, StreamsGroup) or member_id not in group.members:
            return None
        if group.soft.may_change_by_itself or group.is_taking_over:
            return None
        timeout_ms = self._config.for_group(group_id).session_timeout_ms
        return Settled(self, group, self._image, self._config, TimerKey(SESSION, group_id, member_id), timeout_ms)

    def prolong(self, settled: Settled, now_ms: int) -> bool:
        """Extends a session; returns False without any change if the response may differ from the previous one."""
        if not settled.holds:
            return False
        self._timers.set(settled.session, now_ms + settled.session_timeout_ms)
        return True

    def is_as(self, group: StreamsGroup, image: TopicsImage, config: GroupConfig) -> bool:
        """Whether this group, the topics and the settings are these objects."""
        known = self._state.groups.get(group.group_id)
        return known is group and self._image is image and self._config is config

    def has_earlier_deadline(self, known_ms: int | None) -> bool:
        """Whether a timer is due before ``known_ms`` (None: whether there is any)."""
        return self._timers.has_earlier(known_ms)

    def next_deadline_ms(self) -> int | None:
        """Returns when ``tick`` is due next; None if never."""
        return self._timers.next_deadline_ms()

    def tick(self, now_ms: int) -> EventOutcome:
        """Handles all timers that are due."""
        outcomes: list[EventOutcome] = []
        while (key := self._timers.pop_due(now_ms)) is not None:
            event = TimerExpired(key)
            try:
                decision = handle(self._state, event, now_ms, image=self._image, config=self._config)
                outcomes.append(self._carry_out(decision, now_ms, event))
                self._timers.succeeded(key)
            except AppendFailedError as failed:
                if failed.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    self._timers.set(key, now_ms + RETRY_MS)
                else:
                    outcomes.append(self._postpone(key, now_ms))
            except Exception:
                logger.exception("%s failed: please report this", _described(event))
                outcomes.append(self._postpone(key, now_ms))
        return EventOutcome(
            [reply for each in outcomes for reply in each.replies],
            [effect for each in outcomes for effect in each.effects],
            any(each.appended for each in outcomes),
            self._log.log_end_offset,
            tuple(group_id for each in outcomes for group_id in each.failed),
        )

    def _postpone(self, key: TimerKey, now_ms: int) -> EventOutcome:
        delay_ms = self._timers.postpone(key, now_ms)
        logger.error(
            "group %s: its timer %r is handled again in %d s, and has changed nothing; other groups go on. If the error "
            "stays, delete the group when its members are stopped",
            key.owner_id,
            key.kind,
            delay_ms // 1000,
        )
        return EventOutcome([], [], False, self._log.log_end_offset, (key.owner_id,))

    def move_deadlines(self, by_ms: int) -> None:
        """Moves all deadlines with the clock, which was set forward by so much; negative: back."""
        self._timers.move(by_ms)

    def set_topics(self, image: TopicsImage, now_ms: int) -> EventOutcome:
        """Replaces the image of the topics; groups use it with their next heartbeat."""
        self._image = image
        return self.execute(TopicsChanged(image), now_ms)

    def set_group_config(self, config: GroupConfig) -> EventOutcome:
        """Replaces the settings; they apply to each member from its next heartbeat on."""
        self._config = config
        return EventOutcome([], [], False, self._log.log_end_offset)

    def _carry_out(self, decision: GroupDecision, now_ms: int, event: Event | None = None) -> EventOutcome:
        before = self._state
        after = apply_all(before, _as_entries(decision)) if decision.records else before
        for update in decision.soft:
            after = apply_soft(after, update)
        if decision.records:
            self._append(decision, now_ms)
            self._note_rebalances(decision, now_ms)
        self._state = after
        self._timers.carry_out(decision.timers)
        if event is not None:
            self._explain(event, decision, before, now_ms)
        return EventOutcome(
            list(decision.replies), list(decision.effects), bool(decision.records), self._log.log_end_offset
        )

    def _explain(self, event: Event, decision: GroupDecision, before: GroupsState, now_ms: int) -> None:
        try:
            if decision.records:
                self._reasons.note(event, decision, before, self._state, now_ms)
            for reply in decision.replies:
                self._reasons.tell(event, reply.message)
        except Exception:
            logger.exception("the reasons for a rebalance can't be told: please report this")

    def _append(self, decision: GroupDecision, now_ms: int) -> None:
        try:
            keys = [encode_record_key(record.key) for record in decision.records]
            values = [_encoded_value(record) for record in decision.records]
            append_rows(self._log, keys, values, now_ms, decision.producer or NO_PRODUCER)
        except EncodeError as error:
            logger.error("records of a group cannot be encoded: %s", error)
            raise AppendFailedError(ErrorCode.UNKNOWN_SERVER_ERROR) from None

    def _note_rebalances(self, decision: GroupDecision, now_ms: int) -> None:
        for key, value in decision.records:
            match key, value:
                case types.StreamsGroupMetadataKey(), types.StreamsGroupMetadataValue():
                    kind = STREAMS
                case types.ConsumerGroupMetadataKey(), types.ConsumerGroupMetadataValue():
                    kind = CONSUMER
                case _:
                    continue
            if getattr(self._state.groups.get(key.group_id), "epoch", 0) < value.epoch:
                self.rebalances[kind].note(now_ms)

    def _refuse(self, event: Event, code: ErrorCode, now_ms: int) -> EventOutcome:
        if isinstance(event, GroupRequest):
            reply = Reply(event.context.request_id, failure(event.message, code))
            try:
                follows = self._carry_out(on_refused(self._state, event.message, code, now_ms, self._config), now_ms)
            except Exception:
                logger.exception("%s failed, and so did what follows: please report this", _described(event))
                return EventOutcome([reply], [], False, self._log.log_end_offset)
            return follows._replace(replies=[reply, *follows.replies])
        failed: tuple[str, ...] = ()
        if isinstance(event, RetentionDue) and code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
            failed = event.group_ids
        return EventOutcome([], [], False, self._log.log_end_offset, failed)

    def _entries(self) -> Iterator[Entry]:
        for producer_id, marker, rows in latest_rows(self._log):
            if marker is not None:
                if marker is not ControlType.UNKNOWN:
                    yield TransactionEnd(producer_id, marker is ControlType.COMMIT)
            elif producer_id < 0:
                yield from (_decoded(key, value) for key, value in rows)
            else:
                yield from (PendingRecord(producer_id, _decoded(key, value)) for key, value in rows)


def _described(event: Event) -> str:
    match event:
        case GroupRequest(context, message):
            of_group = f" to group {message.group_id}" if hasattr(message, "group_id") else ""
            return f"a {message.NAME}{of_group} from {context.client_id} at {context.client_host}"
        case TimerExpired(key):
            return f"the timer {key.kind!r} of group {key.owner_id}, member {key.member_id!r}"
        case TopicCreationFailed(group_id):
            return f"group {group_id}: the report that internal topics can't be created"
        case RetentionDue(group_ids):
            return f"the expiry of offsets of {len(group_ids)} groups ({', '.join(group_ids[:3])}, ...)"
        case _:
            return "news of the topics"


def _as_entries(decision: GroupDecision) -> Iterable[Entry]:
    if decision.producer is None:
        return decision.records
    return [PendingRecord(decision.producer.id, record) for record in decision.records]


def _encoded_value(record: GroupRecord) -> bytes | None:
    """Kafka's versions: the newest one, but 1 for an offset that says itself when it expires."""
    value = record.value
    if value is None:
        return None
    if isinstance(value, types.OffsetCommitValue) and value.expire_timestamp != -1:
        return encode_record_value(value, EXPIRING_OFFSET_VERSION)
    return encode_record_value(value)


def _decoded(key: Buffer, value: Buffer | None) -> GroupRecord:
    decoded = decode_record_key(key)
    if value is None:
        return CoordinatorRecord(decoded, None)
    cls = named_class(decoded.NAME.removesuffix("Key") + "Value")
    return CoordinatorRecord(decoded, decode_record_value(cls, value))
