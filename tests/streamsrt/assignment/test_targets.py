"""The target of a whole group: which assignor makes it, and what stays while topics are missing."""

from __future__ import annotations

import pytest

from streamsrt.assignment.assignor import AssignorSettings
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.targets import assignor_name, targets
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import topology_of
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from tests.streamsrt.assignment.notation import subtopology

HAS_A = Tasks(frozenset({TaskId("a", 0), TaskId("a", 1), TaskId("a", 2)}))


def configured(*lines: str, **counts: int) -> Configuration:
    image = TopicsImage.of(*(TopicImage(name.encode().ljust(16), name, count) for name, count in counts.items()))
    return configure(topology_of(Heartbeat.Topology(subtopologies=[subtopology(line) for line in lines])), image)


@pytest.mark.parametrize(
    ("line", "wanted", "name"),
    [
        ("0: source=a", None, "sticky"),
        ("0: source=a changelog=c", None, "highly_available"),
        ("0: source=a changelog=c", "sticky", "sticky"),
    ],
)
def test_a_group_with_state_is_assigned_by_another_assignor(line: str, wanted: str | None, name: str) -> None:
    topology = configured(line, a=1).topology
    assert assignor_name(AssignorSettings(assignor_name=wanted), topology) == name
    assert assignor_name(AssignorSettings(assignor_name=wanted), None) == (wanted or "sticky")


def test_while_topics_are_missing_only_members_with_an_older_topology_have_tasks() -> None:
    members = [AssignorMember("old", "P1", HAS_A, is_stale=True), AssignorMember("new", "P2", HAS_A)]
    configuration = configured("a: source=a", "b: source=b changelog=c", a=2, b=2)
    assert not configuration.is_ready
    made = targets(members, configuration, AssignorSettings())
    assert made == {"old": Tasks(frozenset({TaskId("a", 0), TaskId("a", 1)})), "new": NO_TASKS}


def test_a_member_with_an_older_topology_keeps_what_it_has() -> None:
    old = AssignorMember("old", "P1", HAS_A, is_stale=True, running=HAS_A.active)
    assert targets([old], configured("a: source=a", a=3), AssignorSettings()) == {"old": HAS_A}
