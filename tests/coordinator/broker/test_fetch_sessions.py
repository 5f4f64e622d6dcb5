"""Fetch sessions of the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from coordinator.broker import fetch_sessions
from coordinator.broker.fetch_sessions import IDLE_MS
from coordinator.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from streamsrt.wire.types import FetchRequest, FetchResponse
from tests.coordinator.broker.in_process import AUTHORIZED, SUPER_USER, InProcessBroker, fetching, values_of

MakeBroker = Callable[[Mapping[str, str]], InProcessBroker]
SLOTS = "max.incremental.fetch.session.cache.slots"


def ask(broker: InProcessBroker, request: FetchRequest, version: int = 12) -> FetchResponse:
    """By name, if no version is given."""
    answer = broker.ask(request, version)
    assert isinstance(answer, FetchResponse)
    return answer


def begun(broker: InProcessBroker, topic: str | bytes, offsets: Mapping[int, int], version: int = 12) -> int:
    answer = ask(broker, fetching(topic, offsets, session_epoch=0), version)
    assert answer.error_code == 0
    return answer.session_id


def continued(
    session_id: int, epoch: int, topic: str | bytes = "t", offsets: Mapping[int, int] | None = None, **fields: Any
) -> FetchRequest:
    request = fetching(topic, offsets or {}, session_id=session_id, session_epoch=epoch, **fields)
    if not offsets:
        request.topics = []
    return request


def told(answer: FetchResponse) -> list[int]:
    assert answer.error_code == 0
    return [data.partition_index for topic in answer.responses for data in topic.partitions]


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_response_has_the_partitions_with_news(broker: InProcessBroker, version: int) -> None:
    topic: str | bytes = broker.create("t", 3)
    if version < 13:
        topic = "t"
    session_id = begun(broker, topic, {0: 0, 1: 0, 2: 0}, version)
    assert session_id > 0
    assert told(ask(broker, continued(session_id, 1), version)) == []
    broker.produce("t", b"a", partition=1)
    answer = ask(broker, continued(session_id, 2), version)
    assert (told(answer), answer.session_id) == ([1], session_id)
    assert values_of(answer.responses[0].partitions[0].records) == [b"a"]
    assert told(ask(broker, continued(session_id, 3), version)) == [1]
    assert told(ask(broker, continued(session_id, 4, topic, {1: 1}), version)) == []


def test_who_stays_behind_hears_of_a_higher_watermark_only_with_records(broker: InProcessBroker) -> None:
    broker.create("t")
    session_id = begun(broker, "t", {0: 5})
    assert told(ask(broker, continued(session_id, 1))) == [0]
    broker.produce("t", *[b"x"] * 5)
    answer = ask(broker, continued(session_id, 2))
    assert [data.error_code for data in answer.responses[0].partitions] == [0]
    assert told(ask(broker, continued(session_id, 3))) == []


def test_partitions_come_and_go(broker: InProcessBroker) -> None:
    broker.create("t", 3)
    session_id = begun(broker, "t", {0: 0, 1: 0})
    for partition in range(3):
        broker.produce("t", b"a", partition=partition)
    request = continued(session_id, 1, "t", {2: 0})
    request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic="t", partitions=[0, 7])]
    assert told(ask(broker, request)) == [1, 2]


def test_each_has_its_turn_when_a_response_is_full(broker: InProcessBroker) -> None:
    broker.create("t", 3)
    for partition in range(3):
        broker.produce("t", b"x" * 500, partition=partition)
    session_id = begun(broker, "t", {0: 0, 1: 0, 2: 0})
    turns = []
    for epoch in range(1, 4):
        request = continued(session_id, epoch, max_bytes=1)
        turns += told(ask(broker, request))
    assert turns == [0, 1, 2]


def test_a_partition_has_its_turn_beside_a_topic_with_others(broker: InProcessBroker) -> None:
    """A busy partition of a topic whose other ones have nothing does not go before another topic for ever."""
    broker.create("busy", 2)
    broker.create("other")
    for _ in range(4):
        broker.produce("busy", b"x" * 500)
    broker.produce("other", b"y" * 500)
    request = fetching("busy", {0: 0, 1: 0}, session_epoch=0, max_bytes=1)
    request.topics += fetching("other", {0: 0}).topics
    answer = ask(broker, request)
    turns = []
    for epoch in range(1, 3):
        answer = ask(broker, continued(answer.session_id, epoch, "busy", {0: epoch}, max_bytes=1))
        turns.append([topic.topic for topic in answer.responses])
    assert ["other"] in turns


def test_what_does_not_follow_is_refused(broker: InProcessBroker) -> None:
    topic_id = broker.create("t")
    session_id = begun(broker, "t", {0: 0})
    for request, version, code in (
        (continued(session_id + 1, 1), 12, 70),
        (continued(session_id, 2), 12, 71),
        (continued(session_id, 1, topic_id, {0: 0}), 13, 106),
    ):
        answer = ask(broker, request, version)
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
    assert told(ask(broker, continued(session_id, 1))) == []


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_that_it_names(broker: InProcessBroker, epoch: int) -> None:
    broker.create("t")
    session_id = begun(broker, "t", {0: 0})
    answer = ask(broker, fetching("t", {0: 0}, session_id=session_id, session_epoch=epoch), 12)
    assert (answer.session_id > 0, len(broker.broker.fetch_sessions)) == (epoch == 0, int(epoch == 0))
    assert ask(broker, continued(session_id, 1)).error_code == 70


def test_a_session_without_partitions_ends(broker: InProcessBroker) -> None:
    broker.create("t")
    session_id = begun(broker, "t", {0: 0})
    request = continued(session_id, 1)
    request.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic="t", partitions=[0])]
    answer = ask(broker, request)
    assert (answer.session_id, answer.responses, len(broker.broker.fetch_sessions)) == (0, [], 0)


def test_an_error_is_said_until_it_is_over(broker: InProcessBroker) -> None:
    topic_id = broker.create("t", 1)
    session_id = begun(broker, topic_id, {0: 0, 1: 0}, 18)
    for epoch in (1, 2):
        assert told(ask(broker, continued(session_id, epoch), 18)) == [1]


def test_unused_sessions_give_way_when_all_slots_are_taken(make_broker: MakeBroker) -> None:
    broker = make_broker({SLOTS: "2"})
    broker.create("t")
    first, second = (begun(broker, "t", {0: 0}) for _ in range(2))
    assert begun(broker, "t", {0: 0}) == 0
    broker.now_ms += IDLE_MS - 1
    assert told(ask(broker, continued(first, 1))) == []
    broker.now_ms += 1
    assert begun(broker, "t", {0: 0}) > 0
    assert ask(broker, continued(second, 1)).error_code == 70
    assert told(ask(broker, continued(first, 2))) == []


def test_there_may_be_no_sessions_at_all(make_broker: MakeBroker) -> None:
    broker = make_broker({SLOTS: "0"})
    broker.create("t")
    assert begun(broker, "t", {0: 0}) == 0


def test_large_sessions_are_none(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_PARTITIONS_MAX", 3)
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 4)
    broker.create("t", 9)
    assert begun(broker, "t", dict.fromkeys(range(3), 0)) == 0, "a topic and three partitions"
    session_id = begun(broker, "t", dict.fromkeys(range(2), 0))
    assert begun(broker, "t", dict.fromkeys(range(2), 0)) > 0
    assert begun(broker, "t", {0: 0}) == 0
    answer = ask(broker, continued(session_id, 1, "t", {2: 0, 3: 0}))
    assert (told(answer), answer.session_id) == ([0, 1, 2, 3], 0)
    assert begun(broker, "t", {0: 0}) > 0
    session_id = begun(broker, "t", {0: 0})
    assert ask(broker, continued(session_id, 1, "t", dict.fromkeys(range(6), 0))).error_code == 70
    assert ask(broker, continued(session_id, 1)).error_code == 70


def test_sessions_that_grow_have_so_many_partitions_in_all(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 4)
    broker.create("t", 9)
    first, second = (begun(broker, "t", {0: 0}) for _ in range(2))
    assert ask(broker, continued(first, 1, "t", {1: 0, 2: 0})).session_id == first
    answer = ask(broker, continued(second, 1, "t", {1: 0, 2: 0}))
    assert (told(answer), answer.session_id) == ([0, 1, 2], 0), "it goes on without a session"
    assert ask(broker, continued(first, 2, "t", {3: 0})).session_id == first
    idle = begun(broker, "t", {0: 0})
    assert idle == 0
    broker.now_ms += IDLE_MS
    assert ask(broker, continued(first, 3)).session_id == first, "it is not idle now"


def test_names_that_no_topic_can_have_are_not_remembered(broker: InProcessBroker) -> None:
    broker.create("t")
    assert begun(broker, "n" * 250, {0: 0}) == 0
    session_id = begun(broker, "t", {0: 0})
    assert ask(broker, continued(session_id, 1, "n" * 250, {0: 0})).error_code == 70
    assert len(broker.broker.fetch_sessions) == 0


def test_permissions_are_checked_at_each_request(make_broker: MakeBroker) -> None:
    broker = make_broker(AUTHORIZED)
    broker.principal = SUPER_USER
    broker.create("t", 2)
    acl = Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:reader", "*", Operation.READ, Permission.ALLOW)
    broker.grant(acl)
    broker.principal = "User:reader"
    session_id = begun(broker, "t", {0: 0, 1: 0})
    broker.revoke_all()
    for epoch in (1, 2):
        answer = ask(broker, continued(session_id, epoch))
        assert [data.error_code for topic in answer.responses for data in topic.partitions] == [29, 29]
    broker.grant(acl)
    assert told(ask(broker, continued(session_id, 3))) == [0, 1]
    assert told(ask(broker, continued(session_id, 4))) == []
