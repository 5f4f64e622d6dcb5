"""Fetch sessions (KIP-227): the broker remembers what a client fetches, and is told only what changes.

1. A full request (epoch 0) begins a session if there is room; its response has the id. An incremental request has the next
   epoch, and names the partitions that are new, that continue elsewhere, and that are to be forgotten.
2. The response to an incremental request has the partitions with records, with an error, or whose high watermark or start
   changed since the client heard of them. A partition with records goes to the end, so that each has its turn when a
   response is full.
3. Handlers and guards see the whole request, as without a session: permissions are checked each time.
4. A session that was not used for two minutes gives way to another one when all slots are taken. Sessions have so many
   partitions in all at the most, those that grow too; clients without a session go on with full requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from coordinator.broker.topics import NAME_LENGTH_MAX
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import FetchRequest, FetchResponse

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
IDLE_MS: Final = 120_000
SESSION_PARTITIONS_MAX: Final = 10_000
"""More in one session would keep other clients waiting while they are gone through."""
PARTITIONS_MAX: Final = 100_000
"""Of all sessions: they take half a kilobyte each."""
_EPOCH_MAX: Final = (1 << 31) - 1
_UNKNOWN: Final = -1

_Topic: TypeAlias = tuple[str, bytes]
_Place: TypeAlias = tuple[str, bytes, int]


class _Partition:
    """What was asked of a partition, and what the client knows of it."""

    __slots__ = ("asked", "high_watermark", "log_start_offset")

    def __init__(self, asked: FetchRequest.FetchPartition) -> None:
        self.asked = asked
        self.high_watermark = self.log_start_offset = _UNKNOWN

    def learns(self, data: FetchResponse.PartitionData) -> bool:
        """Whether there is news in this."""
        is_news = (
            bool(data.records)
            or data.error_code != ErrorCode.NONE
            or data.diverging_epoch.epoch >= 0
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )
        # An error is said again until it is over, and then that it is over.
        self.high_watermark = _UNKNOWN if data.error_code else data.high_watermark
        self.log_start_offset = data.log_start_offset
        return is_news


class _Session:
    __slots__ = ("by_id", "epoch", "partitions", "used_ms")

    def __init__(self, *, by_id: bool) -> None:
        self.by_id = by_id
        self.epoch = 1
        self.used_ms = 0
        self.partitions: OrderedDict[_Place, _Partition] = OrderedDict()

    def put(self, topics: list[FetchRequest.FetchTopic]) -> None:
        for topic in topics:
            name, topic_id = self.key(topic)
            for asked in topic.partitions:
                known = self.partitions.get((name, topic_id, asked.partition))
                if known is None:
                    self.partitions[name, topic_id, asked.partition] = _Partition(asked)
                else:
                    known.asked = asked

    def forget(self, topics: list[FetchRequest.ForgottenTopic]) -> None:
        for topic in topics:
            name, topic_id = self.key(topic)
            for number in topic.partitions:
                self.partitions.pop((name, topic_id, number), None)

    def key(
        self, topic: FetchRequest.FetchTopic | FetchRequest.ForgottenTopic | FetchResponse.FetchableTopicResponse
    ) -> _Topic:
        """Either has its default where a version names topics the other way."""
        return ("", topic.topic_id) if self.by_id else (topic.topic, b"")

    def whole(self) -> list[FetchRequest.FetchTopic]:
        """All that is fetched, in its order: a topic is there again where another one comes in between, as on Kafka."""
        topics: list[FetchRequest.FetchTopic] = []
        last: _Topic | None = None
        for (name, topic_id, _), partition in self.partitions.items():
            if (name, topic_id) != last:
                last = name, topic_id
                topic = FetchRequest.FetchTopic(topic=name, partitions=[])
                if self.by_id:
                    topic.topic_id = topic_id
                topics.append(topic)
            topics[-1].partitions.append(partition.asked)
        return topics

    def news(self, answer: FetchResponse, *, is_full: bool) -> list[FetchResponse.FetchableTopicResponse]:
        """What of a response the client is told. Notes what it knows then."""
        topics = []
        for topic in answer.responses:
            name, topic_id = self.key(topic)
            told = []
            for data in topic.partitions:
                place = name, topic_id, data.partition_index
                known = self.partitions.get(place)
                if known is not None and not known.learns(data) and not is_full:
                    continue
                if known is not None and data.records:
                    self.partitions.move_to_end(place)
                told.append(data)
            if told:
                topic.partitions = told
                topics.append(topic)
        return topics


def _size(topics: Sequence[FetchRequest.FetchTopic | FetchRequest.ForgottenTopic]) -> int:
    """How many topics and partitions these are, about."""
    return len(topics) + sum(len(topic.partitions) for topic in topics)


def _has_long_name(topics: Sequence[FetchRequest.FetchTopic]) -> bool:
    """Whether there is a name that no topic can have: they would take more memory than partitions are counted with."""
    return any(len(topic.topic) > NAME_LENGTH_MAX for topic in topics)


def _as_it_is(answer: FetchResponse) -> FetchResponse:
    return answer


class FetchSessions:
    """The sessions of all clients. ``new_id``: a random number above 0."""

    def __init__(self, slots: int, now_ms: Callable[[], int], new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._new_id = new_id
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        """Those that were not used for the longest time come first."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def opened(self, message: FetchRequest, *, by_id: bool) -> Callable[[FetchResponse], FetchResponse] | ErrorCode:
        """Completes a request by what its session has. Returns what to do with its response, or why it is refused."""
        if message.session_epoch > INITIAL_EPOCH:
            return self._continued(message, by_id=by_id)
        self._remove(message.session_id)
        if message.session_epoch == FINAL_EPOCH:
            return _as_it_is
        if _size(message.topics) > SESSION_PARTITIONS_MAX or _has_long_name(message.topics):
            return _as_it_is
        session = _Session(by_id=by_id)
        session.put(message.topics)
        return lambda answer: self._begun(session, answer)

    def _begun(self, session: _Session, answer: FetchResponse) -> FetchResponse:
        size = len(session.partitions)
        if answer.error_code or not self._has_room(1, size):
            return answer
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        self._sessions[session_id] = session
        self._partitions += size
        session.used_ms = self._now_ms()
        answer.session_id = session_id
        session.news(answer, is_full=True)
        return answer

    def _has_room(self, sessions: int, partitions: int) -> bool:
        """Whether there may be so many more. Idle sessions give way."""
        while self._sessions and (
            len(self._sessions) + sessions > self._slots or self._partitions + partitions > PARTITIONS_MAX
        ):
            oldest = next(iter(self._sessions))
            if self._now_ms() - self._sessions[oldest].used_ms < IDLE_MS:
                return False
            self._remove(oldest)
        return self._slots > 0

    def _continued(self, message: FetchRequest, *, by_id: bool) -> Callable[[FetchResponse], FetchResponse] | ErrorCode:
        session_id = message.session_id
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.by_id is not by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != message.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        known = len(session.partitions)
        size = known + _size(message.topics) + _size(message.forgotten_topics_data)
        if size > 2 * SESSION_PARTITIONS_MAX or _has_long_name(message.topics):
            self._remove(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.put(message.topics)
        session.forget(message.forgotten_topics_data)
        message.topics = session.whole()
        session.used_ms = self._now_ms()
        self._sessions.move_to_end(session_id)
        more = len(session.partitions) - known
        is_kept = 0 < len(session.partitions) <= SESSION_PARTITIONS_MAX and (more <= 0 or self._has_room(0, more))
        self._partitions += more
        if not is_kept:
            # The client learns of it by the missing id.
            self._remove(session_id)
            return _as_it_is
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1

        def told(answer: FetchResponse) -> FetchResponse:
            if not answer.error_code:
                answer.session_id = session_id
                answer.responses = session.news(answer, is_full=False)
            return answer

        return told

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
