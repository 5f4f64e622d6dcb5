"""Heartbeats that are answered from memory: as they would be without it, in every respect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.broker.repeated_heartbeats import SWEPT_FROM
from coordinator.security.acls import ANONYMOUS
from streamsrt.wire import types
from streamsrt.wire.messages import decode_response, encode_request
from tests.coordinator.broker.in_process import InProcessBroker, creation
from tests.coordinator.broker.test_groups import heartbeat

Request = types.StreamsGroupHeartbeatRequest
QUICK = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "10000",
}


@pytest.fixture
def settled(tmp_path: Path) -> Iterator[InProcessBroker]:
    """A broker with a group of one member that has its tasks."""
    broker = InProcessBroker(tmp_path / "data", QUICK)
    broker.create("t", 2)
    join(broker, "m")
    for _ in range(2):
        assert ask(broker, frame())[1].error_code == 0
    assert remembered(broker) == 1
    yield broker
    broker.close()


def join(broker: InProcessBroker, member: str) -> int:
    answer = broker.ask(heartbeat("g", member), 0)
    assert answer.error_code == 0
    epoch: int = answer.member_epoch
    return epoch


def frame(member: str = "m", epoch: int = 2, correlation_id: int = 1) -> bytes:
    beat = Request(group_id="g", member_id=member, member_epoch=epoch, endpoint_information_epoch=0)
    return encode_request(beat, 0, correlation_id, "test")[4:]


def ask(
    broker: InProcessBroker, data: bytes, host: str = "127.0.0.1"
) -> tuple[int, types.StreamsGroupHeartbeatResponse]:
    parts = broker.dispatcher.handle(data, host)
    assert isinstance(parts, list | tuple)
    answer = b"".join(parts)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    correlation_id, message = decode_response(answer[4:], 88, 0)
    assert isinstance(message, types.StreamsGroupHeartbeatResponse)
    return correlation_id, message


def remembered(broker: InProcessBroker) -> int:
    return len(broker.dispatcher._repeats._known)


def test_the_same_answer_with_the_correlation_id_of_the_request(settled: InProcessBroker) -> None:
    first = ask(settled, frame(correlation_id=5))
    assert remembered(settled) == 1
    second = ask(settled, frame(correlation_id=77))
    assert (first[0], second[0]) == (5, 77)
    assert first[1] == second[1]
    assert first[1].error_code == 0
    assert settled.dispatcher._repeats.answer(memoryview(frame(correlation_id=9)), "127.0.0.1", ANONYMOUS) is not None


def test_the_session_is_prolonged(settled: InProcessBroker) -> None:
    for _ in range(10):
        settled.now_ms += 9_000
        settled.broker.groups.tick()
        assert ask(settled, frame())[1].error_code == 0
    settled.now_ms += 10_000
    settled.broker.groups.tick()
    assert ask(settled, frame())[1].error_code != 0


def test_another_member_changes_the_answer(settled: InProcessBroker) -> None:
    ask(settled, frame())
    join(settled, "n")
    answer = ask(settled, frame())[1]
    assert answer.error_code == 0
    assert [list(task.partitions) for task in answer.active_tasks or []] in ([[0]], [[1]])


def test_other_settings_change_the_answer(settled: InProcessBroker) -> None:
    assert ask(settled, frame())[1].heartbeat_interval_ms == 5000
    settled.broker.groups.alter_group_configs("g", {"streams.heartbeat.interval.ms": "6000"}, validate_only=False)
    assert ask(settled, frame())[1].heartbeat_interval_ms == 6000


def test_other_topics_change_the_answer(settled: InProcessBroker) -> None:
    epoch = ask(settled, frame())[1].member_epoch
    request = types.CreatePartitionsRequest
    settled.ask(request(topics=[request.CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=1))
    answer = ask(settled, frame())[1]
    assert answer.member_epoch > epoch
    assert [list(task.partitions) for task in answer.active_tasks or []] == [[0, 1, 2]]
    settled.ask(creation("unrelated"))
    assert ask(settled, frame(epoch=answer.member_epoch))[1].active_tasks is None


def test_another_address_is_noticed(settled: InProcessBroker) -> None:
    ask(settled, frame())
    ask(settled, frame(), host="10.0.0.9")
    group = settled.broker.groups.streams_group("g")
    assert group is not None
    assert group.members["m"].client_host == "/10.0.0.9"


def test_a_member_that_left_is_unknown(settled: InProcessBroker) -> None:
    ask(settled, frame())
    assert ask(settled, frame(epoch=-1))[1].member_epoch == -1
    assert ask(settled, frame())[1].error_code != 0


def test_one_answer_of_each_member_is_remembered(settled: InProcessBroker) -> None:
    """Else a client whose heartbeats differ a little each time, but change nothing, would fill the memory."""
    for number in range(50):
        beat = Request(group_id="g", member_id="m", member_epoch=2, endpoint_information_epoch=number)
        assert ask(settled, encode_request(beat, 0, 1, f"client {number}")[4:])[1].error_code == 0
    assert remembered(settled) == len(settled.dispatcher._repeats._of_member) == 1


def test_refusals_and_news_are_not_remembered(settled: InProcessBroker) -> None:
    ask(settled, frame(epoch=99))
    ask(settled, frame(member="stranger"))
    assert remembered(settled) == 1
    settled.ask(types.DeleteTopicsRequest(topics=[types.DeleteTopicsRequest.DeleteTopicState(name="t")]))
    assert ask(settled, frame())[1].status
    assert remembered(settled) == 0


def test_nothing_is_remembered_where_answers_wait_for_the_disk(tmp_path: Path) -> None:
    broker = InProcessBroker(tmp_path, {**QUICK, "log.fsync": "group"})
    broker.broker.topics.create("t", 1, {})
    assert broker.dispatcher._repeats.group_of(heartbeat("g")) is None
    broker.close()


def test_what_does_not_hold_any_more_is_forgotten(settled: InProcessBroker) -> None:
    """An answer keeps the whole group and all topics as they were when it was given."""
    ask(settled, frame(epoch=-1))
    for number in range(3 * SWEPT_FROM):
        name = f"n{number}"
        epoch = join(settled, name)
        for _ in range(2):
            epoch = ask(settled, frame(name, epoch))[1].member_epoch
        assert settled.dispatcher._repeats.answer(memoryview(frame(name, epoch)), "127.0.0.1", ANONYMOUS) is not None
        ask(settled, frame(name, epoch=-1))
    assert 1 <= remembered(settled) <= SWEPT_FROM
