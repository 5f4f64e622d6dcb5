"""An unexpected exception concerns one group, transaction or partition. The logs here fail as only a bug does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from coordinator.group import machine
from coordinator.group.classic.change import ClassicChange
from coordinator.group.state import GroupsState
from coordinator.group.values import GroupDecision
from coordinator.log import PartitionLog
from streamsrt.wire import types
from tests.coordinator.broker.in_process import InProcessBroker
from tests.coordinator.broker.test_groups import commit, heartbeat
from tests.coordinator.broker.test_log_cleaner import SMALL, clean, log_of, put
from tests.coordinator.broker.transactional import TransactionalProducer, committed_values
from tests.coordinator.group.classic.scene import join_request

pytestmark = pytest.mark.usefixtures("in_production")

Break = Callable[[PartitionLog, str], None]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Lets a method of one log fail until the test undoes it."""

    def fail(log: PartitionLog, name: str) -> None:
        works = getattr(PartitionLog, name)

        def broken(self: PartitionLog, *args: Any, **options: Any) -> Any:
            if self is log:
                raise ZeroDivisionError("a bug")
            return works(self, *args, **options)

        monkeypatch.setattr(PartitionLog, name, broken)

    return fail


def test_who_waits_for_a_group_whose_timer_fails_is_told(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker ended."""
    groups = broker.broker.groups

    def fail(change: ClassicChange) -> None:
        raise ZeroDivisionError("a bug")

    async def run() -> None:
        member_id = broker.ask(join_request()).member_id
        waiting = broker.send(join_request(member_id))
        with monkeypatch.context() as broken:
            broken.setattr(ClassicChange, "waited_long_enough", fail)
            broker.now_ms += 3_000
            assert groups.tick() == 1_000
        assert (await waiting).error_code == -1
        assert "the timer 'classic-join' of group g, member '' failed" in caplog.text
        assert "ZeroDivisionError: a bug" in caplog.text
        waiting = broker.send(join_request(member_id))
        broker.now_ms += 1_000
        groups.tick()
        assert (await waiting).error_code == 0

    asyncio.run(run())


def test_expiry_goes_on_with_the_other_groups(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create("t")
    for name in ("a", "bad", "c"):
        broker.ask(commit(name, "t", {0: 1}), 9)
    works = PartitionLog.append

    def fail(log: PartitionLog, batches: bytes, **options: Any) -> Any:
        if b"bad" in batches:
            raise ZeroDivisionError("a bug")
        return works(log, batches, **options)

    monkeypatch.setattr(PartitionLog, "append", fail)
    broker.now_ms += 1_000
    asyncio.run(broker.broker.groups.expire(500))
    assert [name for name in ("a", "bad", "c") if broker.broker.groups.committed(name)] == ["bad"]
    assert "the expiry of offsets of 1 groups (bad" in caplog.text


def test_a_transaction_that_can_not_be_finished_is_tried_again(
    broker: InProcessBroker, breaks: Break, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was never finished: readers of its partitions stood still until a restart."""
    broker.create("t", 2)
    bad, good = TransactionalProducer(broker, "bad"), TransactionalProducer(broker, "good")
    for producer, partition in ((bad, 0), (good, 1)):
        assert producer.init() == 0
        assert producer.send("t", partition, b"a") == 0
    breaks(log_of(broker, "t"), "append")
    assert (bad.commit(), good.commit()) == (0, 0)
    for _ in range(3):
        broker.now_ms += 1_000
        assert broker.broker.transactions.tick() == 1_000
    assert [committed_values(broker, "t", partition) for partition in (0, 1)] == [[], [b"a"]]
    assert caplog.text.count("ZeroDivisionError: a bug") == 1
    monkeypatch.undo()
    broker.now_ms += 1_000
    broker.broker.transactions.tick()
    assert committed_values(broker, "t") == [b"a"]
    assert bad.send("t", 0, b"b") == 0


@pytest.mark.parametrize("method", ["compact", "assess_compaction"])
def test_compaction_goes_on_with_other_logs(
    broker: InProcessBroker, breaks: Break, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        broker.create(name, **SMALL)
        for number in range(20):
            assert put(broker, name, b"k", b"%d" % number) == 0
        log_of(broker, name).roll()
    breaks(log_of(broker, "bad"), method)
    clean(broker)
    assert broker.values("good") == [b"19"]
    assert len(broker.values("bad")) == 20
    assert broker.broker.cleaner.uncleanable_logs == 1
    assert "bad-0 is no longer compacted until the broker is restarted" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_retention_goes_on_with_other_logs(
    broker: InProcessBroker, breaks: Break, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bad", "good"):
        broker.create(name, segment_bytes="1048576", retention_ms="1000")
        assert put(broker, name, b"k", b"v") == 0
        log_of(broker, name).roll()
    breaks(log_of(broker, "bad"), "apply_retention")
    broker.now_ms += 10_000
    broker.broker.run_retention()
    assert [log_of(broker, name).log_start_offset for name in ("bad", "good")] == [0, 1]
    assert "bad-0 failed, and is tried again" in caplog.text


def test_a_list_of_groups_says_that_it_is_not_whole(
    make_broker: Callable[[Mapping[str, str]], InProcessBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection of who asked was closed."""
    broker = make_broker({"offsets.topic.num.partitions": "2"})
    broker.create("t")
    for name in ("g1", "g2"):
        assert broker.ask(heartbeat(name)).error_code == 0
    works = machine.list_groups

    def fail(state: GroupsState, *rest: Any) -> GroupDecision:
        if "g1" in state.groups:
            raise ZeroDivisionError("a bug")
        return works(state, *rest)

    monkeypatch.setattr(machine, "list_groups", fail)
    answer = broker.ask(types.ListGroupsRequest())
    assert (answer.error_code, [group.group_id for group in answer.groups]) == (-1, ["g2"])


@pytest.mark.parametrize("name", sorted(machine._HANDLERS))
def test_every_request_to_a_group_has_an_answer_when_it_fails(
    name: str, broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(view: object, request: object) -> GroupDecision:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(machine._HANDLERS, name, fail)  # type: ignore[misc, unused-ignore]
    request = getattr(types, name)()
    for field, value in (("group_id", "g"), ("group_ids", ["g"]), ("groups_names", ["g"]), ("groups", ["g"])):
        if hasattr(request, field):
            setattr(request, field, value)
    if name == "OffsetFetchRequest":
        request.groups = [types.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
    answer = broker.ask(request)
    parts = [answer, *getattr(answer, "groups", []), *getattr(answer, "results", [])]
    if not name.endswith("CommitRequest"):
        assert -1 in {getattr(part, "error_code", 0) for part in parts}
