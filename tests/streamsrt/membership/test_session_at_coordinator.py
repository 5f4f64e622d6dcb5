"""Members' sessions at the bundled broker's coordinator: what it gives to others, and what each may have open meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.membership import session as machine
from streamsrt.membership.values import Join, Task, Tasks
from tests.coordinator.group.memory_log import MemoryLog
from tests.streamsrt.membership.scenario import Scenario, lists

A0, A1 = ("s", 0), ("s", 1)
SETTINGS = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}


class Coordinator:
    def __init__(self) -> None:
        image = TopicsImage.of(TopicImage(b"1" * 16, "t", 2))
        self._shard = Shard(MemoryLog(), GroupConfig.parse(SETTINGS), image)

    def answers(self, member: Scenario) -> Any:
        """Answers the member's present request, or its next one; returns this request."""
        if member.step.request is None:
            member.at(member.now_ms + 5_000)
        request = member.sent()
        context = RequestContext(1, "client", "/host", 1)
        outcome = self._shard.execute(GroupRequest(context, request), member.now_ms)
        ((_, response),) = outcome.replies
        assert not response.error_code, response.error_message
        member.on(machine.Answered(response))
        return request


def member(name: str) -> Scenario:
    return Scenario(member_id=name, process_id=name)


def reports(scenario: Scenario, *tasks: Task, seen: int) -> None:
    scenario.on(machine.OwnedReported(Tasks(active=frozenset(tasks)), seen))


@pytest.mark.requirement("SG-222")
def test_a_task_that_may_be_opened_any_moment_is_not_given_to_another_member() -> None:
    """The first member is to open both tasks when another one joins; the answer that says so gets lost."""
    coordinator, first, second = Coordinator(), member("a"), member("b")
    first.on(Join())
    coordinator.answers(first)
    told = first.session.event_count
    assert first.session.assigned.active == {A0, A1}
    second.on(Join())
    coordinator.answers(second)
    first.at(first.now_ms + 5_000)
    first.lose()
    first.at(first.now_ms + 5_000)
    coordinator.answers(first)
    assert first.session.assigned.active == {A0}
    coordinator.answers(second)
    assert not second.session.assigned.active, "the first member's thread opens this task now"

    reports(first, A0, A1, seen=told)
    assert lists(coordinator.answers(first)) == (None, None, None), "both were named before"
    reports(first, A0, seen=first.session.event_count)
    assert lists(coordinator.answers(first))[0] == {A0}
    coordinator.answers(second)
    assert second.session.assigned.active == {A1}


@pytest.mark.requirement("SG-222")
def test_a_task_that_waits_for_its_store_is_not_given_to_another_member() -> None:
    """The thread has handled the assignment: it opens the second task as soon as nobody else has its store open."""
    coordinator, first, second = Coordinator(), member("a"), member("b")
    first.on(Join())
    coordinator.answers(first)
    second.on(Join())
    coordinator.answers(second)
    reports(first, A0, seen=first.session.event_count)
    coordinator.answers(first)
    assert first.session.assigned.active == {A0}
    coordinator.answers(second)
    assert not second.session.assigned.active
