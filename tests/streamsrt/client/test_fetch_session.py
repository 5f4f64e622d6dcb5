"""A fetcher's session and the broker's sessions: whatever is lost or refused, the broker fetches what is wanted."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.broker.fetch_sessions import IDLE_MS, FetchSessions
from streamsrt.client.fetch_session import REFUSALS, Asked, FetchSession, Place
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import FetchRequest, FetchResponse

A, B = ("t", b"A" * 16, 0), ("t", b"A" * 16, 1)


def named(place: Place, *, by_id: bool) -> Place:
    name, topic_id, number = place
    return ("", topic_id, number) if by_id else (name, b"", number)


def request_of(asked: Asked, wanted: dict[Place, int], *, by_id: bool) -> FetchRequest:
    """What a broker reads of a request: topics are named by their ids, or by their names."""
    topics, forgotten = [], []
    for place in asked.places:
        name, topic_id, number = named(place, by_id=by_id)
        data = FetchRequest.FetchPartition(partition=number, fetch_offset=wanted[place])
        topic = FetchRequest.FetchTopic(topic=name, partitions=[data])
        topic.topic_id = topic_id or topic.topic_id
        topics.append(topic)
    for place in asked.forgotten:
        name, topic_id, number = named(place, by_id=by_id)
        gone = FetchRequest.ForgottenTopic(topic=name, partitions=[number])
        gone.topic_id = topic_id or gone.topic_id
        forgotten.append(gone)
    return FetchRequest(
        session_id=asked.session_id, session_epoch=asked.epoch, topics=topics, forgotten_topics_data=forgotten
    )


def test_the_first_request_is_full_and_the_next_ones_name_what_changed() -> None:
    session = FetchSession()
    assert session.request({A: 1, B: 2}, by_id=True) == Asked(0, 0, [A, B], [])
    session.answered(77)
    assert session.request({A: 1, B: 3}, by_id=True) == Asked(77, 1, [B], [])
    session.answered(77)
    assert session.request({B: 3}, by_id=True) == Asked(77, 2, [], [A])
    session.answered(77)
    assert session.request({B: 3}, by_id=True, is_full=True) == Asked(77, 0, [B], [])


def test_without_a_session_every_request_is_full() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.request({A: 1}, by_id=True) == Asked(0, 0, [A], [])
        session.answered(0)


def test_a_failure_ends_the_session_and_begins_another_one() -> None:
    session = FetchSession()
    for error_code, session_id in ((0, 77), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77), (70, 0)):
        session.request({A: 1}, by_id=True, is_full=True)
        session.answered(77)
        session.request({A: 2}, by_id=True)
        session.lost(error_code)
        assert session.request({A: 2}, by_id=True) == Asked(session_id, 0, [A], [])


def test_epochs_begin_again_after_the_highest() -> None:
    session = FetchSession()
    session.request({A: 1}, by_id=True)
    session.answered(77)
    session._epoch = (1 << 31) - 1
    assert session.request({A: 1}, by_id=True).epoch == (1 << 31) - 1
    session.answered(77)
    assert session.request({A: 1}, by_id=True).epoch == 1


class Sessions(RuleBasedStateMachine):
    """Two fetchers of a broker that has room for one or two sessions. ``ends``: the partitions' high watermarks."""

    @initialize(slots=st.integers(0, 2))
    def start(self, slots: int) -> None:
        self.now_ms = 0
        self.slots = slots
        self.broker = self.new_broker()
        self.sessions = [FetchSession(), FetchSession()]
        self.wanted: list[dict[Place, int]] = [{}, {}]
        self.known: list[dict[Place, int]] = [{}, {}]
        self.by_id = [True, True]
        self.ends = {(name, name.encode() * 16, number): 0 for name in "ab" for number in range(3)}
        self.ids = 0

    def new_broker(self) -> FetchSessions:
        return FetchSessions(self.slots, lambda: self.now_ms, self.new_id)

    def new_id(self) -> int:
        self.ids += 1
        return 1 + self.ids // 2

    def place(self, index: int) -> Place:
        return list(self.ends)[index]

    @rule(who=st.integers(0, 1), index=st.integers(0, 5), position=st.integers(0, 3))
    def want(self, who: int, index: int, position: int) -> None:
        self.wanted[who][self.place(index)] = position

    @rule(who=st.integers(0, 1), index=st.integers(0, 5))
    def want_no_more(self, who: int, index: int) -> None:
        self.wanted[who].pop(self.place(index), None)
        self.known[who].pop(self.place(index), None)

    @rule(index=st.integers(0, 5))
    def append(self, index: int) -> None:
        self.ends[self.place(index)] += 1

    @rule(who=st.integers(0, 1))
    def change_version(self, who: int) -> None:
        self.by_id[who] = not self.by_id[who]

    @rule(passed_ms=st.sampled_from([1, IDLE_MS]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def restart(self) -> None:
        self.broker = self.new_broker()

    @precondition(lambda self: any(self.wanted))
    @rule(
        who=st.integers(0, 1),
        is_full=st.booleans(),
        lost=st.sampled_from(["nothing", "nothing", "request", "response"]),
        denied=st.sets(st.integers(0, 5), max_size=2),
    )
    def fetch(self, who: int, is_full: bool, lost: str, denied: set[int]) -> None:
        session, wanted, by_id = self.sessions[who], self.wanted[who], self.by_id[who]
        if not wanted:
            return
        asked = session.request(wanted, by_id=by_id, is_full=is_full)
        assert not is_full or asked.epoch == 0
        if lost == "request":
            session.lost()
            return
        message = request_of(asked, wanted, by_id=by_id)
        opened = self.broker.opened(message, by_id=by_id)
        if isinstance(opened, ErrorCode):
            assert opened in REFUSALS
            assert asked.epoch > 0
            session.lost(opened)
            return
        found = {
            (topic.topic, topic.topic_id if by_id else b"", data.partition): data.fetch_offset
            for topic in message.topics
            for data in topic.partitions
        }
        assert found == {named(place, by_id=by_id): position for place, position in wanted.items()}
        answer = opened(self.answer_to(message, {self.place(index) for index in denied}, by_id=by_id))
        if lost == "response":
            session.lost()
            return
        session.answered(answer.session_id)
        self.hear(who, answer, is_full=asked.epoch == 0, by_id=by_id)

    def answer_to(self, message: FetchRequest, denied: set[Place], *, by_id: bool) -> FetchResponse:
        by_name = {named(place, by_id=by_id): place for place in self.ends}
        responses = []
        for topic in message.topics:
            partitions = []
            for data in topic.partitions:
                place = by_name[topic.topic, topic.topic_id if by_id else b"", data.partition]
                end = self.ends[place]
                code = 29 if place in denied else 1 if data.fetch_offset > end else 0
                partitions.append(
                    FetchResponse.PartitionData(
                        partition_index=data.partition,
                        error_code=code,
                        high_watermark=-1 if code else end,
                        records=b"x" if not code and data.fetch_offset < end else b"",
                    )
                )
            response = FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=partitions)
            response.topic_id = topic.topic_id
            responses.append(response)
        return FetchResponse(error_code=0, session_id=0, responses=responses)

    def hear(self, who: int, answer: FetchResponse, *, is_full: bool, by_id: bool) -> None:
        by_name = {named(place, by_id=by_id): place for place in self.ends}
        heard = {
            by_name[topic.topic, topic.topic_id if by_id else b"", data.partition_index]: data
            for topic in answer.responses
            for data in topic.partitions
        }
        wanted, known = self.wanted[who], self.known[who]
        assert not is_full or heard.keys() == wanted.keys()
        for place, data in heard.items():
            known[place] = data.high_watermark
        for place in wanted.keys() - heard.keys():
            # There is nothing to read, and it had no error.
            assert known[place] == self.ends[place] <= wanted[place]

    @invariant()
    def there_are_not_more_sessions_than_slots(self) -> None:
        assert len(self.broker) <= self.slots


TestSessions = Sessions.TestCase
