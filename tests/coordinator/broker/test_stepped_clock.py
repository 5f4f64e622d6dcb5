"""The machine's clock is set: deadlines last as long as they last, records get the new time."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.broker.stepped_clock import SteppedClock
from tests.coordinator.broker.in_process import InProcessBroker
from tests.coordinator.broker.test_groups import commit, heartbeat
from tests.coordinator.broker.transactional import TransactionalProducer, committed_values, stable_offset
from tests.coordinator.group.classic.scene import join_request

HOUR_MS = 3_600_000
STEPS = pytest.mark.parametrize("set_ms", [HOUR_MS, -HOUR_MS])


def members(broker: InProcessBroker) -> set[str]:
    group = broker.broker.groups.streams_group("g")
    return set() if group is None else set(group.members)


@STEPS
def test_sessions_last_as_long_as_they_last(broker: InProcessBroker, set_ms: int) -> None:
    """Set forward, all members were removed; set back, nobody missed for an hour a member that was gone."""
    broker.create("t")
    assert broker.ask(heartbeat("g")).error_code == 0
    broker.now_ms += 10_000
    broker.set_ms = set_ms
    left_ms = broker.broker.groups.tick()
    assert left_ms is not None
    assert members(broker) == {"m"}
    assert 0 < left_ms <= 35_000
    broker.now_ms += 44_999 - 10_000
    broker.broker.groups.tick()
    assert members(broker) == {"m"}
    broker.now_ms += 1
    broker.broker.groups.tick()
    assert members(broker) == set()


@STEPS
def test_who_waits_for_the_next_deadline_learns_of_an_earlier_one(broker: InProcessBroker, set_ms: int) -> None:
    broker.create("t")
    assert broker.ask(heartbeat("g")).error_code == 0
    broker.now_ms += 10_000
    assert broker.broker.groups.tick() == 35_000
    broker.set_ms = set_ms

    async def serve() -> None:
        broker.ask(join_request(group_id="other", session_timeout_ms=6_000))
        async with asyncio.timeout(10):
            await broker.broker.groups.timer_changed(None)
        assert broker.broker.groups.tick() == 6_000

    asyncio.run(serve())


@STEPS
def test_transactions_last_as_long_as_they_last(broker: InProcessBroker, set_ms: int) -> None:
    broker.create("t")
    producer = TransactionalProducer(broker, timeout_ms=60_000)
    producer.init()
    assert producer.send("t", 0, b"a") == 0
    broker.set_ms = set_ms
    broker.now_ms += 59_999
    assert broker.broker.transactions.tick() == 1
    assert stable_offset(broker, "t") == 0
    broker.now_ms += 1
    broker.broker.transactions.tick()
    assert (stable_offset(broker, "t"), committed_values(broker, "t")) == (2, [])


def test_a_transaction_ends_in_time_if_the_clock_was_set_back_before_a_restart(broker: InProcessBroker) -> None:
    broker.create("t")
    producer = TransactionalProducer(broker, timeout_ms=60_000)
    producer.init()
    assert producer.send("t", 0, b"a") == 0
    broker.set_ms = -HOUR_MS
    broker.restart()
    assert broker.broker.transactions.tick() == 60_000


def test_records_get_the_time_of_the_machine(broker: InProcessBroker) -> None:
    broker.create("t")
    broker.ask(commit("g", "t", {0: 1}), 9)
    broker.set_ms = HOUR_MS
    broker.ask(commit("g", "t", {0: 2}), 9)
    (committed,) = broker.broker.groups._offsets_of("g")["t"].values()
    assert committed.commit_ms == broker.now_ms + HOUR_MS


def test_a_step_is_told_once_and_small_differences_when_they_add_up(caplog: pytest.LogCaptureFixture) -> None:
    times, steps = [1_000_000, 5_000], list[int]()
    clock = SteppedClock(lambda: times[0], lambda: times[1], steps.append)
    for wall_ms, steady_ms in ((10, 10), (19, 0), (1, 0), (0, 0), (-5_000, 1), (10, 10)):
        times[0] += wall_ms
        times[1] += steady_ms
        assert clock() == times[0]
    assert steps == [20, -5_001]
    (message,) = caplog.messages
    assert "was set back by 5.0 s" in message


@pytest.mark.parametrize("is_read_first", [True, False])
def test_an_interruption_between_two_readings_is_no_step(is_read_first: bool) -> None:
    now_ms, steps = 1_000_000, list[int]()
    interrupted_ms = 0

    def system_ms() -> int:
        nonlocal now_ms, interrupted_ms
        before_ms, now_ms, interrupted_ms = now_ms, now_ms + interrupted_ms, 0
        return before_ms if is_read_first else now_ms

    clock = SteppedClock(system_ms, lambda: now_ms, steps.append)
    interrupted_ms = 300
    assert clock() == (1_000_000 if is_read_first else 1_000_300)
    assert clock() == 1_000_300
    assert not steps
