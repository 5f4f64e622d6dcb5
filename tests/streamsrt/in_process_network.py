"""A cluster in this process, behind the contract of :mod:`streamsrt.client.interface`: logs, offsets, one group member.

It keeps what is written, gives what is read, and can be told to be away, to refuse, or to lose what was sent; there is no
thread and no time in it, so that a test decides what happens when.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from streamsrt.client.signal import Signal
from streamsrt.client.values import (
    EARLIEST,
    LATEST,
    Fetched,
    FetchError,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    TopicInfo,
    TopicPartition,
)
from streamsrt.errors import StreamsError
from streamsrt.wire import types
from streamsrt.wire.records import decode_batches, encode_batch

_BASE_OFFSET = struct.Struct(">q")
OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3


@dataclass(slots=True)
class Log:
    """One partition: batches with their base offsets."""

    batches: list[tuple[int, bytes, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def find(self, which: int) -> int:
        """The offset that is asked for; -1 where nothing is that young."""
        if which in (EARLIEST, LATEST):
            return self.start if which == EARLIEST else self.end
        for base, batch, _ in self.batches:
            for columns in decode_batches(batch):
                for index, timestamp in enumerate(columns.timestamps):
                    if timestamp >= which:
                        return base + index
        return -1

    def append(self, batch: bytes, count: int) -> None:
        stamped = bytearray(batch)
        _BASE_OFFSET.pack_into(stamped, 0, self.end)
        self.batches.append((self.end, bytes(stamped), count))
        self.end += count

    def read(self, offset: int, batches: int = 1) -> tuple[bytes, int]:
        """One batch or more, and the offset that follows them; nothing at the end."""
        found = [(batch, base + count) for base, batch, count in self.batches if base + count > offset][:batches]
        return b"".join(batch for batch, _ in found), found[-1][1] if found else offset


class InProcessFetcher:
    """Gives one batch of each partition per poll, or ``batches_at_once``. Any thread may call it.

    ``arrived`` is set when there may be something to poll.
    """

    def __init__(self, network: InProcessNetwork) -> None:
        self._network = network
        self._lock = threading.RLock()
        self.arrived = Signal()
        self.batches_at_once = 1
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self._reporting: set[TopicPartition] = set()
        self.errors: dict[TopicPartition, FetchError] = {}

    def add_partitions(
        self, positions: Mapping[TopicPartition, int], *, reports_empty: bool = False, may_lag: bool = False
    ) -> None:
        with self._lock:
            self.positions.update(positions)
            self._reporting.difference_update(positions)
            self._reporting.update(positions if reports_empty else ())
            self.paused.difference_update(positions)
        self.arrived.set()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for tp in partitions:
                self.positions.pop(tp, None)
                self.paused.discard(tp)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.update(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused.difference_update(partitions)

    def poll(self, timeout_s: float = 0.0, max_batches: int = 64) -> list[Fetched]:
        with self._lock:
            return [] if self._network.is_away else self._poll(max_batches)

    def _poll(self, max_batches: int) -> list[Fetched]:
        found = [self._fetch(tp, offset) for tp, offset in list(self.positions.items()) if self._may(tp)]
        taken = [fetched for fetched in found if fetched is not None][:max_batches]
        for fetched in taken:
            tp = (fetched.topic, fetched.partition)
            if fetched.error is None:
                self.positions[tp] = fetched.next_offset
            else:
                del self.positions[tp]
        return taken

    def _may(self, tp: TopicPartition) -> bool:
        return tp not in self.paused

    def _fetch(self, tp: TopicPartition, offset: int) -> Fetched | None:
        log = self._network.logs[tp]
        error = self.errors.pop(tp, None)
        if error is None and not log.start <= offset <= log.end:
            error = OffsetOutOfRangeError(
                f"{tp[0]}-{tp[1]}: offset {offset} is not in the log, which begins at {log.start} and ends at "
                f"{log.end}.",
                OUT_OF_RANGE,
            )
        batch, next_offset = (b"", offset) if error is not None else log.read(offset, self.batches_at_once)
        if error is None and not batch and tp not in self._reporting:
            return None
        self._reporting.discard(tp)
        return Fetched(*tp, memoryview(batch), offset, next_offset, log.end, log.end, log.start, None, error)

    @property
    def buffered_bytes(self) -> int:
        return 0


class InProcessProducer:
    """Batches lie in ``sent`` until a flush appends them."""

    def __init__(self, network: InProcessNetwork) -> None:
        self._network = network
        self.sent: list[tuple[TopicPartition, bytes, int]] = []
        self.fails_with: list[Exception] = []
        """What the next flushes raise; what had been sent is dropped then, as the real producer does."""
        self.failure: Exception | None = None
        """What each send and the next flush raise."""
        self.gives_up_after_s: float | None = None
        self.absent_topics: tuple[str, ...] = ()

    def fail(self, error: Exception) -> None:
        """What had been sent is dropped between two calls."""
        self.sent.clear()
        self.failure = error

    def forget_failure(self) -> None:
        self.failure = None

    def send(self, topic: str, partition: int, batch: bytes | bytearray | memoryview, record_count: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(((topic, partition), bytes(batch), record_count))

    def give_up_after(self, timeout_s: float) -> None:
        self.gives_up_after_s = timeout_s

    def flush(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        sent, self.sent = self.sent, []
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.fails_with:
            raise self.fails_with.pop(0)
        ends = {}
        for tp, batch, count in sent:
            log = self._network.logs[tp]
            log.append(batch, count)
            ends[tp] = log.end
        return ends


class InProcessAdmin:
    """Offsets and topics. ``refusals``: what the next commits raise. ``before_answer`` is called with each request."""

    def __init__(self, network: InProcessNetwork) -> None:
        self._network = network
        self.before_answer: Callable[[], None] = lambda: None
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.refusals: list[Exception] = []
        self.commits: list[dict[TopicPartition, int]] = []

    def _answer(self) -> None:
        self.before_answer()
        if self._network.is_away:
            raise RequestTimedOutError("No answer in time.")

    def topics(self, names: Collection[str] | None = None, *, timeout_s: float = 30.0) -> dict[str, TopicInfo]:
        self._answer()
        counts = self._network.counts()
        return {
            name: TopicInfo(name, bytes(16), count, False)
            for name, count in counts.items()
            if names is None or name in names
        }

    def partitions_for(self, names: Collection[str], *, timeout_s: float = 30.0) -> dict[str, int]:
        return {name: topic.partitions for name, topic in self.topics(names).items()}

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_s: float = 30.0
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._answer()
        logs = self._network.logs
        return {tp: OffsetAndTimestamp(logs[tp].find(which), -1, -1) for tp, which in partitions.items() if tp in logs}

    def committed(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, **_settings: Any
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._answer()
        return {tp: at for tp, at in self.offsets.items() if partitions is None or tp in partitions}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], **_settings: Any) -> None:
        self._answer()
        if self.refusals:
            raise self.refusals.pop(0)
        self.offsets.update(offsets)
        self.commits.append({tp: at.offset for tp, at in offsets.items()})

    def begin_commit(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], **settings: Any
    ) -> Callable[[], None]:
        try:
            self.commit(group_id, offsets, **settings)
        except StreamsError as caught:
            error = caught

            def fail() -> None:
                raise error

            return fail
        return lambda: None

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> dict[TopicPartition, int]:
        self._answer()
        for tp, offset in before.items():
            self._network.logs[tp].start = offset
        return dict(before)

    def begin_delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_s: float = 30.0
    ) -> Future[dict[TopicPartition, int]]:
        future: Future[dict[TopicPartition, int]] = Future()
        try:
            future.set_result(self.delete_records(before, timeout_s=timeout_s))
        except StreamsError as error:
            future.set_exception(error)
        return future


class InProcessMember:
    """A membership whose coordinator is the test."""

    def __init__(self) -> None:
        self.member_id = "member"
        self.member_epoch = 1
        self.told: list[Any] = []
        self.waiting: deque[Any] = deque()

    def send(self, command: Any) -> None:
        self.told.append(command)

    def events(self) -> list[Any]:
        return [self.waiting.popleft()] if self.waiting else []

    @property
    def has_events(self) -> bool:
        return bool(self.waiting)

    def polled(self) -> None:
        """Nobody counts."""

    def join(self, timeout_s: float) -> bool:
        return True


class InProcessNetwork:
    """The cluster. ``is_away``: nothing is fetched, and requests time out."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self.is_away = False
        self.fetcher = InProcessFetcher(self)
        self.restorer = InProcessFetcher(self)
        self.producer = InProcessProducer(self)
        self.admin = InProcessAdmin(self)
        self.waits = 0
        self.woken = threading.Event()
        for name, count in topics.items():
            self.make_topic(name, count)

    def make_topic(self, name: str, partitions: int) -> None:
        self.logs.update({(name, index): Log() for index in range(partitions)})

    def counts(self) -> dict[str, int]:
        names = [name for name, _ in self.logs]
        return {name: names.count(name) for name in names}

    def write(
        self, tp: TopicPartition, rows: Iterable[tuple[bytes | None, bytes | None]], timestamp: int = 1_000
    ) -> None:
        """Appends one batch."""
        keys, values = zip(*rows, strict=True)
        self.logs[tp].append(encode_batch(list(keys), list(values), [timestamp] * len(keys)), len(keys))
        self.restorer.arrived.set()

    def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Every record of a topic, partition by partition."""
        return [
            row
            for (name, _), log in sorted(self.logs.items())
            if name == topic
            for _, batch, _ in log.batches
            for columns in decode_batches(batch)
            for row in zip(columns.keys, columns.values, strict=True)
        ]

    def request(self, message: types.MetadataRequest) -> Future[types.MetadataResponse]:
        """Answers at once which topics exist."""
        answer: Future[types.MetadataResponse] = Future()
        answered = types.MetadataResponse.MetadataResponseTopic
        try:
            there = self.admin.topics()
        except StreamsError as error:
            answer.set_exception(error)
            return answer
        codes = {each.name: 0 if each.name in there else UNKNOWN_TOPIC_OR_PARTITION for each in message.topics or ()}
        answer.set_result(
            types.MetadataResponse(topics=[answered(name=name, error_code=code) for name, code in codes.items()])
        )
        return answer

    def wait(self, timeout_s: float) -> bool:
        self.waits += 1
        return False

    def wake(self) -> None:
        """Only a test waits."""
        self.woken.set()
