"""Which assignor makes the target of a group."""

from __future__ import annotations

import pytest

from streamsrt.assignment.assignor import AssignorSettings
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.targets import assignor_name
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import topology_of
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from tests.streamsrt.assignment.notation import subtopology


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
