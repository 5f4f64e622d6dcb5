"""What a topology asks of the changelogs that are there."""

from __future__ import annotations

import pytest

from coordinator.group.streams.creation import raised_retention
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import InternalTopic, Subtopology, Topology

NAME = "g-store-changelog"


def asked(text: str) -> dict[str, int] | None:
    changelog = InternalTopic(NAME, 1, -1, (("retention.ms", text),))
    part = Subtopology("0", ("in",), (), (changelog,), (), (), ())
    image = TopicsImage.of(TopicImage(bytes(16), NAME, 1))
    found = raised_retention(Topology(1, (part,)), image, "g")
    return None if found is None else dict(found.settings_ms[NAME])


@pytest.mark.parametrize("text", ["86400000", "0", "-1", str(2**63 - 1), str(-(2**63))])
def test_numbers(text: str) -> None:
    assert asked(text) == {"retention.ms": int(text)}


@pytest.mark.parametrize("text", ["", "-", "x", "1.5", "\u00b2", "\u0662", "9" * 21, "9" * 5000], ids=ascii)
def test_what_is_no_number_asks_for_nothing(text: str) -> None:
    assert asked(text) is None
