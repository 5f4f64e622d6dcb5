"""Fetches raw record batches, partition by partition.

1. Adding, removing or pausing a partition does not affect others: no buffer is dropped, no position is lost.
2. One Fetch is in flight for each broker and fetcher. A partition is included while its buffer holds less than
   ``max.partition.fetch.bytes`` and all buffers together hold less than ``buffer_bytes``; no more is asked for than there is
   room for, but enough for one partition. What paused partitions have does not count: it is not taken before others have
   brought their tasks on. Where it is ``buffer_bytes`` already, the others are fetched in small pieces: each of them may be
   paused with what it has then.
3. A partition's data is delivered in order and without gaps: each piece begins where the previous one ended.
4. A response that was in flight for a partition when it was removed or moved is dropped when it arrives
   (``generation``).
5. If leaders move or brokers are down, metadata is refreshed and the fetch is repeated, for ever. Errors that the
   caller must handle (out of range, not authorized, a corrupt log) are delivered, and the partition is paused.
6. A position belongs to the topic id from which it was first fetched. In a new topic of the same name it is out of
   range, whatever that topic contains.
7. A position also belongs to the records before it. If a replica without the last of them became leader, or a broker
   lost them, others may be there by now: a Fetch says which leader wrote the last record that was read, and the broker
   tells from where on its log differs (KIP-595). That is out of range, too.
8. Where nothing but partitions that may lag is fetched, and all was read, the next Fetch waits ``LAG_S``: a log that grows
   all the time costs no request for each of its batches.
9. A request names the partitions that changed since the one before (:mod:`streamsrt.client.fetch_session`).
10. What is small is copied out of its response. Else a few records that wait would keep a whole response, of other
   partitions too, in memory.
11. The partitions are shared with the processing thread under one lock, held for microseconds, never while waiting.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from streamsrt.client.cluster import TRANSPORT_ERRORS, Cluster, Purpose, backoff_s
from streamsrt.client.fetch_session import (
    FIRST_VERSION_WITH_SESSIONS,
    FULL,
    NO_SESSION,
    REFUSALS,
    WITHOUT_SESSION,
    Asked,
    FetchSession,
    Place,
)
from streamsrt.client.metadata import NO_TOPIC_ID, Metadata
from streamsrt.client.signal import Signal
from streamsrt.client.spawned import spawn
from streamsrt.client.values import FetchConfig, Fetched, FetchError, OffsetOutOfRangeError, TopicPartition
from streamsrt.errors import RequestFailedError, StreamsError, UnsupportedBrokerError, missing_acl
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name, is_retriable

log = logging.getLogger(__name__)

FIRST_VERSION_WITH_LAST_EPOCHS = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
CONSUMER_REPLICA_ID = -1
RECHECK_MS = 20
"""A long poll is cut to this while a partition waits for room in its buffer: it may need the connection soon."""

LAG_S = 0.05
"""How far a partition that may lag is behind, about."""

_COPIED_BYTES = 64 * 1024
"""Up to that size, records are copied out of their response: that takes microseconds."""

SMALL_PIECE_BYTES = 64 * 1024
"""Brokers give a whole batch where it is larger."""

_LENGTH = struct.Struct(">i")
_BASE_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LEADER_EPOCH_AT = 12
_LAST_OFFSET_DELTA_AT = 23
_OVERHEAD_BYTES = 12
_NOTHING = memoryview(b"")
_UNKNOWN_EPOCH = -1


def whole_batches(records: memoryview) -> tuple[int, int, int]:
    """Returns the size of the whole batches at the beginning, the offset after their last record (-1: there is none), and
    the epoch of the leader that wrote it."""
    last, position, next_offset, end = -1, 0, -1, len(records)
    while position + _OVERHEAD_BYTES + 15 <= end:
        base_offset, length = _BASE_OFFSET_AND_LENGTH.unpack_from(records, position)
        size = _OVERHEAD_BYTES + length
        if length <= 0 or position + size > end:
            break
        next_offset = base_offset + _LENGTH.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)[0] + 1
        last, position = position, position + size
    epoch = _UNKNOWN_EPOCH if last < 0 else _LENGTH.unpack_from(records, last + _LEADER_EPOCH_AT)[0]
    return position, next_offset, epoch


def _asked(
    session: FetchSession, partitions: list[_Partition], ids: Mapping[str, bytes], version: int, *, is_full: bool
) -> Asked:
    """What a request of that version says of the partitions."""
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    wanted: dict[Place, object] = {
        (p.tp[0], ids[p.tp[0]] if by_id else NO_TOPIC_ID, p.tp[1]): (p.position, p.last_epoch) for p in partitions
    }
    if version < FIRST_VERSION_WITH_SESSIONS:
        session.lost()
        return Asked(NO_SESSION, WITHOUT_SESSION, list(wanted), [])
    return session.request(wanted, by_id=by_id, is_full=is_full)


class _Partition:
    """The fetch state of one partition. ``position`` is where the next Fetch begins, ``last_epoch`` that of the leader that
    wrote the record before it, if that was read."""

    __slots__ = (
        "buffered",
        "buffered_bytes",
        "generation",
        "last_epoch",
        "may_lag",
        "not_before",
        "paused",
        "position",
        "reports_empty",
        "resting",
        "topic_id",
        "tp",
    )

    def __init__(
        self, tp: TopicPartition, position: int, generation: int, *, reports_empty: bool, may_lag: bool
    ) -> None:
        self.tp = tp
        self.reports_empty = reports_empty
        self.may_lag = may_lag
        self.position = position
        self.generation = generation
        self.buffered: deque[Fetched] = deque()
        self.buffered_bytes = 0
        self.paused = False
        self.resting = False
        self.not_before = 0.0
        self.topic_id = NO_TOPIC_ID
        self.last_epoch = _UNKNOWN_EPOCH

    def fits(self, topic_id: bytes) -> bool:
        """Whether its position belongs to this topic."""
        if self.topic_id == NO_TOPIC_ID:
            self.topic_id = topic_id
        return topic_id in (self.topic_id, NO_TOPIC_ID)


class Fetcher:
    """Fetches partitions. See the module, and :class:`streamsrt.client.interface.Fetching` for what other threads may
    call."""

    def __init__(
        self,
        cluster: Cluster,
        metadata: Metadata,
        config: FetchConfig,
        purpose: Purpose,
        signal: Signal,
        on_poll: Callable[[], None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._config = config
        self._purpose = purpose
        self._signal = signal
        self._on_poll = on_poll
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._ready: deque[TopicPartition] = deque()
        self._buffered_bytes = 0
        self._paused_bytes = 0
        self._generation = 0
        self._wake_scheduled = False
        self._nodes: dict[int, asyncio.Task[None]] = {}
        self._node_wakes: dict[int, asyncio.Event] = {}
        self._sessions: dict[int, FetchSession] = {}
        self._full_nodes: set[int] = set()
        """Brokers with partitions that wait for buffer space: whoever takes data wakes their tasks."""
        self._failures: dict[int, int] = {}
        self._rotation = 0
        self._failure: StreamsError | None = None
        metadata.on_update(self._wake)

    # ------------------------------------------------------------------------------------ from the processing thread

    def add_partitions(
        self, positions: Mapping[TopicPartition, int], *, reports_empty: bool = False, may_lag: bool = False
    ) -> None:
        with self._lock:
            for tp, position in positions.items():
                self._drop(tp)
                self._generation += 1
                self._partitions[tp] = _Partition(
                    tp, position, self._generation, reports_empty=reports_empty, may_lag=may_lag
                )
        self._wake_from_outside()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                self._drop(tp)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                partition = self._partitions.get(tp)
                if partition is not None and not partition.paused:
                    partition.paused = True
                    self._buffered_bytes -= partition.buffered_bytes
                    self._paused_bytes += partition.buffered_bytes
        if self._full_nodes:
            self._wake_from_outside()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                partition = self._partitions.get(tp)
                if partition is not None and partition.paused:
                    partition.paused = False
                    self._buffered_bytes += partition.buffered_bytes
                    self._paused_bytes -= partition.buffered_bytes
                    if partition.buffered:
                        self._ready.append(tp)
        self._wake_from_outside()

    def poll(self, timeout_s: float = 0.0, max_batches: int = 64) -> list[Fetched]:
        if self._failure is not None:
            raise self._failure
        self._on_poll()
        if timeout_s > 0 and not self.has_ready:
            self._signal.clear()
            if not self.has_ready:
                self._signal.wait(timeout_s)
                self._on_poll()
        return self._take(max_batches)

    def fail(self, error: StreamsError) -> None:
        """Has the next :meth:`poll` raise this: the network thread can't go on."""
        self._failure = error
        self._signal.set()

    @property
    def has_ready(self) -> bool:
        return bool(self._ready) or self._failure is not None

    @property
    def buffered_bytes(self) -> int:
        """What waits to be polled takes in memory, without that of paused partitions."""
        return self._buffered_bytes

    @property
    def _piece_bytes(self) -> int:
        """How much is fetched of a partition at a time (rule 2)."""
        most_bytes = self._config.max_partition_bytes
        return most_bytes if self._paused_bytes < self._config.buffer_bytes else min(most_bytes, SMALL_PIECE_BYTES)

    def _take(self, max_batches: int) -> list[Fetched]:
        taken: list[Fetched] = []
        with self._lock:
            while self._ready and len(taken) < max_batches:
                tp = self._ready.popleft()
                partition = self._partitions.get(tp)
                if partition is None or partition.paused or not partition.buffered:
                    continue
                item = partition.buffered.popleft()
                partition.buffered_bytes -= item.held_bytes
                self._buffered_bytes -= item.held_bytes
                taken.append(item)
                if partition.buffered:
                    self._ready.append(tp)
        if taken and self._full_nodes:
            self._wake_from_outside()
        return taken

    def _drop(self, tp: TopicPartition) -> None:
        partition = self._partitions.pop(tp, None)
        if partition is not None:
            if partition.paused:
                self._paused_bytes -= partition.buffered_bytes
            else:
                self._buffered_bytes -= partition.buffered_bytes
            if partition.buffered:
                self._ready = deque(other for other in self._ready if other != tp)

    def _wake_from_outside(self) -> None:
        if not self._wake_scheduled and not self._loop.is_closed():
            self._wake_scheduled = True
            self._loop.call_soon_threadsafe(self._wake)

    # --------------------------------------------------------------------------------------------------- on the loop

    def _wake(self) -> None:
        """Finds out which brokers are needed, and wakes their tasks."""
        self._wake_scheduled = False
        with self._lock:
            wanted = list(self._partitions)
        for topic, partition in wanted:
            self._metadata.want(topic)
            leader = self._metadata.leader(topic, partition)
            if leader is not None and leader.node_id not in self._nodes:
                self._node_wakes[leader.node_id] = asyncio.Event()
                self._nodes[leader.node_id] = spawn(self._fetch_from(leader.node_id))
        for wake in self._node_wakes.values():
            wake.set()

    async def close(self) -> None:
        """Stops fetching."""
        for task in self._nodes.values():
            task.cancel()
        await asyncio.gather(*self._nodes.values(), return_exceptions=True)
        self._nodes.clear()

    async def _fetch_from(self, node_id: int) -> None:
        wake, session = self._node_wakes[node_id], self._sessions.setdefault(node_id, FetchSession())
        while True:
            wake.clear()
            partitions, others_wait, retry_at = self._choose(node_id)
            if not partitions:
                await self._rest(wake, retry_at)
                continue
            try:
                is_behind = await self._fetch(node_id, session, partitions, others_wait)
                self._failures.pop(node_id, None)
                if not is_behind:
                    await self._lag(wake)
            except (*TRANSPORT_ERRORS, RequestFailedError, UnsupportedBrokerError) as error:
                session.lost()
                failures = self._failures.get(node_id, 0)
                self._failures[node_id] = failures + 1
                log.debug("Fetch from broker %d: %s", node_id, error)
                self._metadata.request_update()
                await asyncio.sleep(backoff_s(self._cluster.config, failures))

    async def _rest(self, wake: asyncio.Event, retry_at: float | None) -> None:
        if retry_at is None:
            await wake.wait()
            return
        try:
            async with asyncio.timeout_at(retry_at):
                await wake.wait()
        except TimeoutError:
            pass

    async def _lag(self, wake: asyncio.Event) -> None:
        """Waits a little, unless a partition that may not lag is there or comes meanwhile."""
        until = self._loop.time() + LAG_S
        while self._loop.time() < until:
            with self._lock:
                if not all(partition.may_lag for partition in self._partitions.values()):
                    return
            wake.clear()
            await self._rest(wake, until)

    def _choose(self, node_id: int) -> tuple[list[_Partition], bool, float | None]:
        """Chooses the partitions to fetch now. Also returns whether others of this broker wait for buffer space, and when
        a backed-off one may be retried."""
        now, chosen, others_wait = self._loop.time(), [], False
        retry_at: float | None = None
        # First of all: what is taken from here on may be what it waits for.
        self._full_nodes.add(node_id)
        with self._lock:
            full, piece_bytes = self._buffered_bytes >= self._config.buffer_bytes, self._piece_bytes
            partitions = list(self._partitions.values())
        for partition in partitions:
            if partition.paused or partition.resting:
                continue
            leader = self._metadata.leader(*partition.tp)
            if leader is None or leader.node_id != node_id:
                continue
            if partition.not_before > now:
                retry_at = partition.not_before if retry_at is None else min(retry_at, partition.not_before)
            elif full or partition.buffered_bytes >= piece_bytes:
                others_wait = True
            else:
                chosen.append(partition)
        if not others_wait:
            self._full_nodes.discard(node_id)
        if len(chosen) > 1:
            self._rotation = (self._rotation + 1) % len(chosen)
            chosen = chosen[self._rotation :] + chosen[: self._rotation]
        return chosen, others_wait, retry_at

    async def _fetch(
        self, node_id: int, session: FetchSession, partitions: list[_Partition], others_wait: bool
    ) -> bool:
        """Returns whether there is more to read of any of them."""
        connection = await self._cluster.connection(node_id, self._purpose)
        ids = {topic: self._metadata.topic_id(topic) for topic in {partition.tp[0] for partition in partitions}}
        others = [partition for partition in partitions if not partition.fits(ids[partition.tp[0]])]
        if others:
            self._report_deleted_topics(others)
            return True
        without_ids = NO_TOPIC_ID in ids.values()
        version = connection.version_of(
            types.FetchRequest, 4, FIRST_VERSION_WITH_TOPIC_IDS - 1 if without_ids else 1000
        )
        generations = {partition.tp: (partition, partition.generation, partition.position) for partition in partitions}
        # Who has its partition reported even if there is no news of it gets it with a full request.
        at_once = any(partition.reports_empty for partition in partitions)
        asked = _asked(session, partitions, ids, version, is_full=at_once)
        request = self._request(asked, generations, version, 0 if at_once else RECHECK_MS if others_wait else None)
        response = await connection.request(
            request, version=version, timeout_ms=self._cluster.config.request_timeout_ms + self._config.max_wait_ms
        )
        if response.error_code in REFUSALS and asked.epoch > FULL:
            session.lost(response.error_code)
            return True
        if response.error_code != ErrorCode.NONE:
            name = error_name(response.error_code)
            raise RequestFailedError(f"Fetch from broker {node_id}: {name}", response.error_code)
        session.answered(response.session_id)
        names = {topic_id: topic for topic, topic_id in ids.items()}
        delivered = is_behind = False
        isolation_level = request.isolation_level
        for topic in response.responses:
            name = topic.topic if version < FIRST_VERSION_WITH_TOPIC_IDS else names.get(topic.topic_id, "")
            for data in topic.partitions:
                fetched = generations.get((name, data.partition_index))
                if fetched is not None:
                    delivered |= self._deliver(*fetched, data)
                    end = data.high_watermark if isolation_level == 0 else data.last_stable_offset
                    is_behind |= fetched[0].position < end
        if delivered:
            self._signal.set()
        return is_behind

    def _report_deleted_topics(self, partitions: list[_Partition]) -> None:
        """Reports positions in topics that were deleted. The other partitions are fetched next."""
        delivered = False
        for partition in partitions:
            topic, number = partition.tp
            error = OffsetOutOfRangeError(
                f"{topic}-{number}: the topic was deleted and recreated; offset {partition.position} was in the "
                "old one.",
                ErrorCode.OFFSET_OUT_OF_RANGE,
            )
            error.is_new_topic = True
            at = partition.position
            item = Fetched(topic, number, _NOTHING, at, at, -1, -1, -1, error=error)
            delivered |= self._append(partition, partition.generation, item)
        if delivered:
            self._signal.set()

    def _request(
        self,
        asked: Asked,
        places: Mapping[TopicPartition, tuple[_Partition, int, int]],
        version: int,
        max_wait_ms: int | None,
    ) -> types.FetchRequest:
        """``places``: the partitions, with generations and positions. ``max_wait_ms``: at most; None: as configured."""
        config, kinds, piece_bytes = self._config, types.FetchRequest, self._piece_bytes
        room_bytes = max(config.max_partition_bytes, config.buffer_bytes - self._buffered_bytes)
        topics: dict[str, types.FetchRequest.FetchTopic] = {}
        for name, topic_id, number in asked.places:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = kinds.FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            partition, _, position = places[name, number]
            topic.partitions.append(
                kinds.FetchPartition(
                    partition=number,
                    fetch_offset=position,
                    last_fetched_epoch=(
                        partition.last_epoch if version >= FIRST_VERSION_WITH_LAST_EPOCHS else _UNKNOWN_EPOCH
                    ),
                    partition_max_bytes=piece_bytes,
                )
            )
        forgotten: dict[tuple[str, bytes], list[int]] = {}
        for name, topic_id, number in asked.forgotten:
            forgotten.setdefault((name, topic_id), []).append(number)
        return kinds(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=config.max_wait_ms if max_wait_ms is None else min(config.max_wait_ms, max_wait_ms),
            min_bytes=config.min_bytes,
            max_bytes=min(config.max_bytes, room_bytes),
            isolation_level=1 if config.isolation_level == "read_committed" else 0,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[
                kinds.ForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
                for (name, topic_id), numbers in forgotten.items()
            ],
        )

    def _deliver(
        self, partition: _Partition, generation: int, position: int, data: types.FetchResponse.PartitionData
    ) -> bool:
        """Delivers one partition's part of a response. True: there is something for the processing thread."""
        if data.error_code != ErrorCode.NONE:
            return self._deliver_error(partition, generation, position, data)
        if data.diverging_epoch.end_offset >= 0:
            return self._deliver_divergence(partition, generation, position, data)
        records = _NOTHING if data.records is None else memoryview(data.records)
        size, next_offset, epoch = whole_batches(records)
        if size == 0 and not partition.reports_empty:
            return False
        aborted = None
        if self._config.isolation_level == "read_committed":
            aborted = tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
        topic, number = partition.tp
        item = Fetched(
            topic,
            number,
            memoryview(bytes(records[:size])) if size <= _COPIED_BYTES else records[:size],
            position,
            max(next_offset, position),
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            aborted,
        )
        if size:
            partition.last_epoch = epoch
        return self._append(partition, generation, item)

    def _deliver_divergence(
        self, partition: _Partition, generation: int, position: int, data: types.FetchResponse.PartitionData
    ) -> bool:
        topic, number = partition.tp
        # Where leaders came and went before the last one that wrote what was read, the log may differ even earlier.
        diverged_at = min(data.diverging_epoch.end_offset, position)
        error = OffsetOutOfRangeError(
            f"{topic}-{number}: records before offset {position} were read that are no longer in the log. From offset "
            f"{diverged_at} on it has others or none: a replica without them became leader "
            "(unclean.leader.election.enable), or the broker lost them in a crash.",
            ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        error.diverged_at = diverged_at
        return self._append_error(partition, generation, position, data, error)

    def _append_error(
        self,
        partition: _Partition,
        generation: int,
        position: int,
        data: types.FetchResponse.PartitionData,
        error: FetchError,
    ) -> bool:
        item = Fetched(
            *partition.tp,
            _NOTHING,
            position,
            position,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            error=error,
        )
        return self._append(partition, generation, item)

    def _append(self, partition: _Partition, generation: int, item: Fetched) -> bool:
        with self._lock:
            if self._partitions.get(partition.tp) is not partition or partition.generation != generation:
                return False
            partition.position = item.next_offset
            partition.resting = item.error is not None
            partition.reports_empty = False
            if not partition.buffered and not partition.paused:
                self._ready.append(partition.tp)
            partition.buffered.append(item)
            partition.buffered_bytes += item.held_bytes
            if partition.paused:
                self._paused_bytes += item.held_bytes
            else:
                self._buffered_bytes += item.held_bytes
            return not partition.paused

    def _deliver_error(
        self, partition: _Partition, generation: int, position: int, data: types.FetchResponse.PartitionData
    ) -> bool:
        topic, number = partition.tp
        code, name = data.error_code, error_name(data.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and partition.last_epoch != _UNKNOWN_EPOCH:
            # Or the leader does not know that epoch, as its file of epochs is lost: it can tell of the offset alone.
            partition.last_epoch = _UNKNOWN_EPOCH
            return False
        if code != ErrorCode.OFFSET_OUT_OF_RANGE and is_retriable(code) and code != ErrorCode.CORRUPT_MESSAGE:
            log.debug("Fetch of %s-%d: %s", topic, number, name)
            partition.not_before = self._loop.time() + backoff_s(self._cluster.config, 0)
            self._metadata.request_update()
            return False
        error: FetchError
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Apache Kafka does not report where the log begins and ends.
            known = data.log_start_offset >= 0
            bounds = f", which begins at {data.log_start_offset} and ends at {data.high_watermark}" if known else ""
            error = OffsetOutOfRangeError(
                f"{topic}-{number}: offset {position} is not in the log{bounds} ({name}).", code
            )
        else:
            text = f"{topic}-{number} can't be read at offset {position} ({name})."
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                text += " " + missing_acl("READ", "topic", [topic], self._cluster.config.security.principal)
            error = FetchError(text, code)
        return self._append_error(partition, generation, position, data, error)
