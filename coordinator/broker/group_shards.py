"""The group coordinator of the broker: which shard a group belongs to, and what a decision has to do outside of it.

1. A group belongs to the partition of ``__consumer_offsets`` that Java's ``hashCode`` of its id maps to; each partition is
   one shard with a log of its own.
2. A request is answered at once or later: a reply carries the number of the request that it answers.
3. Internal topics that a decision asks for are created here; the shards then see the new topics.
4. Settings of single groups are durable in an internal log.
5. What fails unexpectedly for one group is logged and told to who waits for this group; the others are not concerned.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias, TypeVar

import orjson

from coordinator.broker.access import REMEMBERED_NAME_MAX
from coordinator.broker.keyed_log import KeyedLog, loading
from coordinator.broker.topics import OFFSETS_TOPIC, TopicRefusedError, TopicRegistry
from coordinator.group.classic.state import ClassicGroup
from coordinator.group.committed import GroupOffsets
from coordinator.group.config import GroupConfig
from coordinator.group.machine import failure
from coordinator.group.settings import InvalidConfigError
from coordinator.group.state import Group
from coordinator.group.streams.creation import keeps_longer
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import (
    CreateInternalTopics,
    GroupRequest,
    RaiseRetention,
    RequestContext,
    RetentionDue,
    Rights,
    TopicCreationFailed,
)
from coordinator.log import LogError, PartitionLog
from coordinator.shard.rebalance_meter import RebalanceMeter
from coordinator.shard.shard import EventOutcome, Settled, Shard
from streamsrt.assignment.in_flight import Unread
from streamsrt.assignment.topics import TopicsImage, TopicSpec
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import ControlRecord
from streamsrt.wire.types import Message

logger = logging.getLogger("coordinator.groups")

_GROUPS_AT_ONCE = 100

Caller: TypeAlias = tuple[str, str, int, Rights | None]

JOINING = frozenset({"JoinGroupRequest", "ConsumerGroupHeartbeatRequest"})
"""Requests after which a member may have an id that the coordinator made."""


def java_hash(text: str) -> int:
    """``String.hashCode`` of Java: over UTF-16 code units, modulo 2**32, signed. Those of very long texts are not kept."""
    return (_known_hash if len(text) <= REMEMBERED_NAME_MAX else _hash)(text)


def _hash(text: str) -> int:
    value = 0
    encoded = text.encode("utf-16-be")
    for unit in range(0, len(encoded), 2):
        value = (31 * value + (encoded[unit] << 8 | encoded[unit + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


_known_hash = lru_cache(maxsize=4096)(_hash)


def _check_replication(spec: TopicSpec) -> None:
    if spec.replication_factor not in {-1, 1}:
        raise TopicRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {spec.replication_factor} is larger than the number of brokers (1)",
        )


M = TypeVar("M", bound=Message)


class GroupShards:
    """All shards of the group coordinator."""

    def __init__(
        self,
        topics: TopicRegistry,
        config: GroupConfig,
        now_ms: Callable[[], int],
        *,
        new_id: Callable[[], str],
        config_log: KeyedLog,
        on_append: Callable[[PartitionLog], None],
    ) -> None:
        self._topics = topics
        self._config = config
        self._now_ms = now_ms
        self._new_id = new_id
        self._config_log = config_log
        self._on_append = on_append
        self._shards: list[Shard] = []
        self._logs: list[PartitionLog] = []
        self.load_times_ms: list[float] = []
        """How long each partition took to load."""
        self._request_ids = itertools.count(1)
        self._is_released = False
        self._parked: dict[int, tuple[asyncio.Future[Message], Message]] = {}
        self._timer_event = asyncio.Event()
        self._armed_ms: int | None = None
        self._image = topics.image()

    def load(self, partitions: int, segment_bytes: int) -> None:
        """Restores the groups from their logs and starts their timers; the two numbers are for a new offsets topic."""
        topic = self._topics.get(OFFSETS_TOPIC)
        if topic is None:
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(segment_bytes),
            }
            topic = self._topics.create(OFFSETS_TOPIC, partitions, configs)
        for group_id, row in self._config_log.load().items():
            self._config, warnings = self._config.with_stored_group(group_id, orjson.loads(row))
            for warning in warnings:
                logger.warning("%s", warning)
        self._logs = topic.partitions
        self._image = self._topics.image()
        now_ms = self._now_ms()
        for log in self._logs:
            shard = Shard(log, self._config, self._image)
            self._shards.append(shard)
            begun_s = time.perf_counter()
            with loading(log):
                loaded = shard.load(now_ms)
            self.load_times_ms.append((time.perf_counter() - begun_s) * 1000)
            self._carry_out(shard, loaded)

    # --------------------------------------------------------------------------------------------------------- requests

    def execute(self, group_id: str, message: Message, context: Caller) -> Message | Awaitable[Message]:
        """Passes a request to the shard of its group: returns the response, or a future of it.

        ``context``: client id, client host, API version, and the requester's rights if not all.
        """
        return self._execute(self._shard_of(group_id), message, context)

    def answered(self, answer: type[M], group_id: str, message: Message, context: Caller) -> M:
        """Like :meth:`execute`, for a request that is answered at once, by a message of this class."""
        return _checked(answer, self.execute(group_id, message, context))

    def answered_by_all(self, answer: type[M], message: Message, context: Caller) -> list[M]:
        """Returns all shards' responses to a request that is not about a particular group and is answered at once."""
        return [_checked(answer, self._execute(shard, message, context)) for shard in self._shards]

    def streams_group(self, group_id: str) -> StreamsGroup | None:
        """Returns the present streams group of this name."""
        group = self._shard_of(group_id).state.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """Returns the present classic group of this name."""
        group = self._shard_of(group_id).state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """Returns a group's committed offsets, by topic and partition: those that OffsetFetch returns."""
        image = self._topics.image()
        return {
            (topic, partition): committed.offset
            for topic, partitions in self._offsets_of(group_id).items()
            for partition, committed in partitions.items()
            if not committed.is_of_another_topic(image.get(topic))
        }

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        return self._shard_of(group_id).state.offsets.get(group_id, {})

    def groups(self) -> Iterator[tuple[Group, TopicsImage]]:
        """Yields every group, with its image of the topics."""
        for shard in self._shards:
            for group in shard.state.groups.values():
                yield group, self._image

    def rebalances(self, kind: str) -> list[RebalanceMeter]:
        """Returns the rebalance meters of a group type, by shard."""
        return [shard.rebalances[kind] for shard in self._shards]

    def settled(self, group_id: str, member_id: str) -> Settled | None:
        """Returns the data for the response to a member's heartbeat, if it belongs to a streams group."""
        return self._shard_of(group_id).settled(group_id, member_id)

    def prolong(self, settled: Settled) -> bool:
        """Extends a member's session like its heartbeat; returns False if the response may differ from the previous one."""
        return settled.shard.prolong(settled, self._now_ms())

    def by_shard(self, group_ids: Iterable[str]) -> list[list[str]]:
        """Groups the ids by shard."""
        found: dict[int, list[str]] = {}
        for group_id in group_ids:
            found.setdefault(self.partition_of(group_id), []).append(group_id)
        return list(found.values())

    def _execute(self, shard: Shard, message: Message, context: Caller) -> Message | Awaitable[Message]:
        request_id = next(self._request_ids)
        client_id, client_host, api_version, rights = context
        unique = self._new_id() if message.NAME in JOINING else ""
        internal = RequestContext(
            request_id,
            client_id,
            client_host,
            api_version,
            unique,
            rights,
            self._refusal_of_topic,
            self._unread,
            self._committed_topics,
        )
        outcome = shard.execute(GroupRequest(internal, message), self._now_ms())
        answer = None
        for reply in outcome.replies:
            if reply.request_id == request_id:
                answer = reply.message
        self._carry_out(shard, outcome)
        if answer is not None:
            return answer
        if self._is_released:
            return failure(message, ErrorCode.NOT_COORDINATOR)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._parked[request_id] = future, message
        future.add_done_callback(lambda _: self._parked.pop(request_id, None))
        return future

    def partition_of(self, group_id: str) -> int:
        """Returns the group's partition of ``__consumer_offsets``."""
        return (java_hash(group_id) & 0x7FFFFFFF) % len(self._shards)

    def _shard_of(self, group_id: str) -> Shard:
        return self._shards[self.partition_of(group_id)]

    def log_of(self, group_id: str) -> PartitionLog:
        """Returns the log with the group's records."""
        return self._logs[self.partition_of(group_id)]

    def end_transaction(self, partition: int, control: ControlRecord) -> None:
        """Writes a transaction marker to a partition of ``__consumer_offsets``. Raises AppendFailedError."""
        self._shards[partition].end_transaction(control, self._now_ms())
        self._on_append(self._logs[partition])

    # --------------------------------------------------------------------------------------------------------- outcomes

    def _carry_out(self, shard: Shard, outcome: EventOutcome) -> None:
        if outcome.appended:
            self._on_append(self._logs[self._shards.index(shard)])
        for reply in outcome.replies:
            parked = self._parked.pop(reply.request_id, None)
            if parked is not None and not parked[0].done():
                parked[0].set_result(reply.message)
        if outcome.failed:
            self._fail_waiting(outcome.failed)
        for effect in outcome.effects:
            try:
                if isinstance(effect, RaiseRetention):
                    self._raise_retention(effect)
                else:
                    self._create_internal_topics(shard, effect)
            except Exception:
                logger.exception("the topics of group %s can't be changed: please report this", effect.group_id)
        if shard.has_earlier_deadline(self._armed_ms):
            self._timer_event.set()

    def _fail_waiting(self, group_ids: Collection[str]) -> None:
        """Answers those who wait for a group of which a timer failed: perhaps they waited for it."""
        for future, message in list(self._parked.values()):
            if getattr(message, "group_id", None) in group_ids and not future.done():
                future.set_result(failure(message, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _create_internal_topics(self, shard: Shard, effect: CreateInternalTopics) -> None:
        errors: dict[str, str] = {}
        for spec in effect.topics:
            if self._topics.get(spec.name) is not None:
                continue
            try:
                _check_replication(spec)
                self._topics.create(spec.name, spec.partitions, spec.configs)
            except (TopicRefusedError, LogError) as error:
                errors[spec.name] = str(error)
        if errors:
            logger.warning("internal topics of group %s could not be created: %s", effect.group_id, errors)
            self._carry_out(shard, shard.execute(TopicCreationFailed(effect.group_id, errors), self._now_ms()))
        self.topics_changed()

    def _refusal_of_topic(self, spec: TopicSpec) -> str | None:
        try:
            _check_replication(spec)
            self._topics.check_create(spec.name, spec.partitions, spec.configs)
        except TopicRefusedError as refused:
            return str(refused)
        return None

    def _unread(self, group_id: str, names: Collection[str]) -> Unread:
        """Counts a group's unread records in these topics, if there are any."""
        committed = self.committed(group_id)
        found = {}
        for name in names:
            topic = self._topics.get(name)
            for partition, log in enumerate(topic.partitions if topic is not None else ()):
                at = max(committed.get((name, partition), 0), log.log_start_offset)
                if log.high_watermark > at:
                    found[name, partition] = log.high_watermark - at
        return found

    def _committed_topics(self, group_id: str) -> Collection[str]:
        return self._offsets_of(group_id).keys()

    def _raise_retention(self, effect: RaiseRetention) -> None:
        for name, requested in effect.settings_ms.items():
            topic = self._topics.get(name)
            if topic is None:
                continue
            has = self._topics.effective_configs(topic)
            longer = {
                key: str(requested_ms)
                for key, requested_ms in requested.items()
                if keeps_longer(requested_ms, int(str(has[key])))
            }
            if not longer:
                continue
            try:
                self._topics.set_configs(topic, {**topic.configs, **longer})
            except (TopicRefusedError, InvalidConfigError, LogError) as error:
                logger.warning(
                    "the retention of changelog %s of group %s could not be raised: %s", name, effect.group_id, error
                )
            else:
                told = ", ".join(f"{key} {has[key]} -> {longer[key]}" for key in longer)
                logger.info("changelog %s of group %s: %s, for its new topology", name, effect.group_id, told)
        self.topics_changed()

    def topics_changed(self) -> None:
        """Passes the present topics to the shards, if they have changed."""
        image = self._topics.image()
        if image is self._image:
            return
        self._image = image
        for shard in self._shards:
            self._carry_out(shard, shard.set_topics(image, self._now_ms()))

    # ----------------------------------------------------------------------------------------------------------- timers

    def tick(self) -> int | None:
        """Handles due timers; returns the milliseconds until the next one, or None."""
        for shard in self._shards:
            self._carry_out(shard, shard.tick(self._now_ms()))
        self._timer_event.clear()
        # The clock moves the deadlines if it was set.
        now_ms = self._now_ms()
        deadlines = [deadline for shard in self._shards if (deadline := shard.next_deadline_ms()) is not None]
        self._armed_ms = min(deadlines, default=None)
        return max(0, min(deadlines) - now_ms) if deadlines else None

    def move_deadlines(self, by_ms: int) -> None:
        """Moves all deadlines with the clock, which was set forward by so much; negative: back."""
        for shard in self._shards:
            shard.move_deadlines(by_ms)
        if self._armed_ms is not None:
            self._armed_ms += by_ms

    async def timer_changed(self, delay_ms: int | None) -> None:
        """Returns after ``delay_ms``, or when a timer was set or cancelled."""
        try:
            async with asyncio.timeout(None if delay_ms is None else delay_ms / 1000):
                await self._timer_event.wait()
        except TimeoutError:
            return

    async def expire(self, retention_ms: int) -> None:
        """Removes expired offsets and groups; other work gets its turn in between."""
        for shard in self._shards:
            ids = sorted(shard.state.groups.keys() | shard.state.offsets.keys())
            for start in range(0, len(ids), _GROUPS_AT_ONCE):
                await self._expire(shard, RetentionDue(tuple(ids[start : start + _GROUPS_AT_ONCE]), retention_ms))

    async def _expire(self, shard: Shard, event: RetentionDue) -> None:
        appended = True
        while appended:
            outcome = shard.execute(event, self._now_ms())
            appended = outcome.appended
            if not outcome.failed:
                self._carry_out(shard, outcome)
            elif len(event.group_ids) > 1:
                # One of them fails, not all.
                for group_id in event.group_ids:
                    await self._expire(shard, RetentionDue((group_id,), event.retention_ms))
            await asyncio.sleep(0)

    # ---------------------------------------------------------------------------------------------------------- configs

    @property
    def broker_configs(self) -> Mapping[str, str]:
        """Returns the broker's group coordinator settings, by Kafka's names."""
        return self._config.broker

    def groups_with_configs(self) -> list[str]:
        """Ids of the groups that have settings of their own."""
        return sorted(self._config.groups)

    def describe_group_configs(self, group_id: str) -> list[tuple[str, str, bool]]:
        """Returns name, value in use, and whether the group itself sets it."""
        rows = self._config.describe_group(group_id)
        return [(name, value, own) for name, (value, own) in sorted(rows.items()) if value is not None]

    def alter_group_configs(self, group_id: str, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Sets (or with None removes) settings of one group. Raises InvalidConfigError, or the log's errors."""
        settings = {**self._config.groups.get(group_id, {})}
        for name, value in changes.items():
            if value is None:
                settings.pop(name, None)
            else:
                settings[name] = value
        try:
            config = self._config.with_group(group_id, settings)
        except InvalidConfigError as error:
            raise InvalidConfigError(str(error)) from None
        if validate_only:
            return
        self._config_log.put(group_id, orjson.dumps(settings) if settings else None)
        self._config = config
        for shard in self._shards:
            self._carry_out(shard, shard.set_group_config(config))

    def release(self) -> None:
        """Tells waiting clients to retry later, because this coordinator stops."""
        self._is_released = True
        for future, message in list(self._parked.values()):
            if not future.done():
                future.set_result(failure(message, ErrorCode.NOT_COORDINATOR))

    def close(self) -> None:
        for future, _ in list(self._parked.values()):
            future.cancel()
        self._parked.clear()


def _checked(answer: type[M], message: Message | Awaitable[Message]) -> M:
    assert isinstance(message, answer)
    return message
