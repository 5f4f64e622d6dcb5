"""Topics with many partitions are made, grown and deleted in steps, between which others are served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from coordinator.broker import slices
from coordinator.broker.topics import PARTITIONS_PER_STEP
from coordinator.log.partition_log import PartitionLog
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.coordinator.broker.in_process import InProcessBroker, creation
from tests.coordinator.turns import PATIENCE_S, turn

pytestmark = pytest.mark.waits

MANY = 200
Topic = types.DeleteTopicsRequest.DeleteTopicState


@pytest.fixture(autouse=True)
def _smallest_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is a slice of its own."""
    monkeypatch.setattr(slices, "SLICE_S", -1.0)


def growth(name: str, count: int) -> types.CreatePartitionsRequest:
    wanted = types.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    return types.CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)


def deletion(name: str) -> types.DeleteTopicsRequest:
    return types.DeleteTopicsRequest(topics=[Topic(name=name)], timeout_ms=1000)


def count_of(broker: InProcessBroker, name: str) -> int:
    topic = broker.broker.topics.get(name)
    return 0 if topic is None else len(topic.partitions)


async def asked(broker: InProcessBroker, *messages: types.Message, between: Callable[[], None] = lambda: None) -> Any:
    """The results of requests that come one right after the other; ``between`` is called when all have begun."""
    answers: list[Awaitable[Any]] = [asyncio.ensure_future(broker.send(message)) for message in messages]
    await turn()
    await turn()
    between()
    done = await asyncio.wait_for(asyncio.gather(*answers), PATIENCE_S)
    return [
        next(iter(getattr(each, "topics", None) or getattr(each, "results", None) or each.responses)) for each in done
    ]


def directories(broker: InProcessBroker, name: str) -> int:
    return len(list(broker.path.glob(f"{name}-*[0-9]")))


def test_topics_with_the_default_count_are_counted(
    make_broker: Callable[[Mapping[str, str]], InProcessBroker],
) -> None:
    """They counted as none: all were made while everybody else waited, however many."""
    broker = make_broker({"num.partitions": "40"})
    message = creation("t", -1)

    async def create() -> None:
        answer = broker.send(message)
        assert isawaitable(answer)
        assert count_of(broker, "t") == 0
        await answer
        assert count_of(broker, "t") == 40

    asyncio.run(create())


def test_others_are_served_in_between(broker: InProcessBroker) -> None:
    broker.create("other")
    seen: list[int] = []

    def look() -> None:
        assert broker.produce("other", b"v") >= 0
        seen.append(count_of(broker, "t"))

    for message, before, after in (
        (creation("t", MANY), 0, MANY),
        (growth("t", 2 * MANY), MANY, 2 * MANY),
        (deletion("t"), 0, 0),
    ):
        turns = broker.broker.slices.pauses
        (result,) = asyncio.run(asked(broker, message, between=look))
        assert result.error_code == 0
        assert seen.pop() == before, "what is not whole is not seen"
        assert count_of(broker, "t") == directories(broker, "t") == after
        assert broker.broker.slices.pauses - turns >= MANY // PARTITIONS_PER_STEP - 1


def test_changes_of_a_topic_are_made_in_the_order_of_their_requests(broker: InProcessBroker) -> None:
    messages = (
        creation("t", MANY),
        creation("t", 1),
        growth("t", MANY + 1),
        growth("t", MANY),
        deletion("t"),
        creation("t", 3),
    )
    results = asyncio.run(asked(broker, *messages))
    assert [result.error_code for result in results] == [
        0,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        0,
        ErrorCode.INVALID_PARTITIONS,
        0,
        0,
    ]
    assert count_of(broker, "t") == directories(broker, "t") == 3
    assert broker.produce("t", b"v", partition=2) == 0


def test_names_that_collide_with_a_topic_in_the_making_are_refused(broker: InProcessBroker) -> None:
    made, refused = asyncio.run(asked(broker, creation("a.b", MANY), creation("a_b", 1)))
    assert (made.error_code, refused.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_whoever_needs_the_topic_at_once_finishes_the_change(broker: InProcessBroker) -> None:
    registry = broker.broker.topics

    def remake() -> None:
        registry.create("t", 2, {})
        assert broker.produce("t", b"new", partition=1) == 0

    asyncio.run(asked(broker, creation("t", MANY)))
    asyncio.run(asked(broker, deletion("t"), between=remake))
    assert count_of(broker, "t") == directories(broker, "t") == 2
    assert broker.values("t", 1) == [b"new"]


def test_a_topic_that_is_being_made_is_not_made_by_a_look(broker: InProcessBroker) -> None:
    wanted = types.MetadataRequest(
        topics=[types.MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    told: list[Any] = []
    asyncio.run(asked(broker, creation("t", MANY), between=lambda: told.append(broker.ask(wanted).topics[0])))
    assert told[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert count_of(broker, "t") == MANY


def test_settings_that_change_meanwhile_are_those_of_all_partitions(broker: InProcessBroker) -> None:
    broker.create("t")
    registry = broker.broker.topics

    def change() -> None:
        topic = registry.get("t")
        assert topic is not None
        registry.set_configs(topic, {"retention.ms": "77"})

    asyncio.run(asked(broker, growth("t", MANY), between=change))
    topic = registry.get("t")
    assert topic is not None
    assert {log.config.retention_ms for log in topic.partitions} == {77}
    broker.restart()
    assert count_of(broker, "t") == MANY


def test_a_client_that_is_gone_changes_nothing(broker: InProcessBroker) -> None:
    async def scenario() -> None:
        answer = asyncio.ensure_future(broker.send(creation("t", MANY)))
        await turn()
        answer.cancel()
        async with asyncio.timeout(PATIENCE_S):
            while not count_of(broker, "t"):
                await turn()

    asyncio.run(scenario())
    assert count_of(broker, "t") == MANY


def test_a_disk_that_fails_on_the_way_leaves_nothing(broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    made = PartitionLog.__init__

    def failing(self: PartitionLog, directory: Path, *arguments: Any, **options: Any) -> None:
        if directory.name == f"t-{MANY - 1}":
            raise OSError(28, "No space left on device")
        made(self, directory, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "__init__", failing)
    (result,) = asyncio.run(asked(broker, creation("t", MANY)))
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert count_of(broker, "t") == directories(broker, "t") == 0
    monkeypatch.undo()
    broker.create("t", 2)


def test_a_broker_that_stops_on_the_way_leaves_nothing(broker: InProcessBroker) -> None:
    async def scenario() -> None:
        answer = asyncio.ensure_future(broker.send(creation("t", MANY)))
        await turn()
        await turn()
        assert directories(broker, "t")
        broker.restart()
        answer.cancel()

    asyncio.run(scenario())
    assert count_of(broker, "t") == directories(broker, "t") == 0
    broker.create("t", 2)


@pytest.mark.parametrize("message", [creation("t", MANY), growth("old", MANY)], ids=["creation", "growth"])
def test_a_change_that_a_stopping_broker_undoes_is_no_success(broker: InProcessBroker, message: types.Message) -> None:
    broker.create("old")
    (result,) = asyncio.run(asked(broker, message, between=broker.restart))
    assert result.error_code != 0
    assert (count_of(broker, "t"), count_of(broker, "old")) == (0, 1)


def test_a_deletion_that_a_stopping_broker_interrupts_is_done(broker: InProcessBroker) -> None:
    broker.create("t", MANY)
    (result,) = asyncio.run(asked(broker, deletion("t"), between=broker.restart))
    assert result.error_code == 0
    assert count_of(broker, "t") == directories(broker, "t") == 0
