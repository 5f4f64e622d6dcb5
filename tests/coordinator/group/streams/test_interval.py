"""The interval between two assignments delays no start."""

from __future__ import annotations

from coordinator.group.config import GroupConfig
from streamsrt.assignment.status_code import StatusCode
from tests.coordinator.group.streams.test_preflight import OLD, Group, statuses

CONFIG = GroupConfig.parse(
    {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "1000"}
)


def test_when_internal_topics_exist_the_first_tasks_are_assigned_at_once() -> None:
    group = Group(topics={"in": 2}, config=CONFIG)
    response, outcome = group.join("A", OLD, 0)
    assert statuses(response) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert response.active_tasks == []
    (creation,) = outcome.effects
    assert sorted(topic.name for topic in creation.topics) == ["c", "r"]
    group.set_topics(r=2, c=2)
    group.now_ms += 1
    response = group.beat("A")
    assert statuses(response) == []
    assert sum(len(task.partitions) for task in response.active_tasks) == 4


def test_who_joins_a_group_with_tasks_waits_for_the_interval() -> None:
    group = Group("A", config=CONFIG)
    group.now_ms += 999
    response, _ = group.join("B", OLD, 0)
    assert statuses(response) == [StatusCode.ASSIGNMENT_DELAYED]
    assert response.active_tasks == []
    group.now_ms += 1
    group.beat("A")
    assert statuses(group.beat("B")) == []


HOUR_MS = 3_600_000


def test_a_clock_that_was_set_back_delays_no_assignment() -> None:
    group = Group("A", config=CONFIG)
    group.now_ms -= HOUR_MS
    response, _ = group.join("B", OLD, 0)
    assert statuses(response) == []
    assert group.state.assignment_epoch == group.state.epoch


def test_a_clock_that_was_set_back_delays_no_first_assignment() -> None:
    config = GroupConfig.parse({"group.streams.initial.rebalance.delay.ms": "3000"})
    group = Group(topics={"in": 2, "r": 2, "c": 2}, config=config)
    response, _ = group.join("A", OLD, 0)
    assert statuses(response) == [StatusCode.ASSIGNMENT_DELAYED]
    group.now_ms -= HOUR_MS
    response = group.beat("A")
    assert sum(len(task.partitions) for task in response.active_tasks) == 4


def test_a_clock_that_was_set_back_delays_no_creation_of_topics() -> None:
    group = Group(topics={"in": 2}, config=CONFIG)
    response, outcome = group.join("A", OLD, 0)
    assert outcome.effects
    group.now_ms -= HOUR_MS
    _, outcome = group.ask("A", member_epoch=response.member_epoch)
    assert outcome.effects
