"""Topics that come, grow and go while their tasks run."""

from __future__ import annotations

import re

import pytest

from streamsrt.membership.values import EpochChanged, Tasks
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import MakeRig, Rig, two_sources
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

LATER_MS = 60_000


def by_pattern() -> Topology:
    """Passes on what comes from every topic whose name begins with ``in-``, and from ``named``."""
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("in-.*"), key=serdes.string, value=serdes.string)
    stream.merge(builder.stream("named", key=serdes.string, value=serdes.string)).to("out")
    return builder.build()


def row(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"k", text.encode())]


def passed_on(rig: Rig) -> list[str]:
    rig.move()
    rig.commit()
    return sorted((value or b"").decode() for _, value in rig.network.read("out"))


def read_by(rig: Rig) -> dict[int, set[str]]:
    return {owned.key[1]: {topic for topic, _ in owned.inputs} for owned in rig.manager}


def look(rig: Rig) -> None:
    rig.manager.recheck_sources()
    rig.manager.follow_sources(rig.clock_ms, "member", 1)


def test_a_pattern_means_the_topics_that_there_are(make_rig: MakeRig) -> None:
    topics = {"in-a": 2, "in-b": 1, "other": 2, "named": 2, "out": 2, "app-in-x": 2}
    rig = make_rig(topology=by_pattern(), network=InProcessNetwork(topics))
    rig.network.write(("in-a", 0), row("a"))
    rig.network.write(("in-b", 0), row("b"))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert read_by(rig) == {0: {"in-a", "in-b", "named"}, 1: {"in-a", "named"}}
    assert passed_on(rig) == ["a", "b"]


def test_topics_that_come_and_grow_are_read_from_their_start(make_rig: MakeRig) -> None:
    rig = make_rig(topology=by_pattern(), network=InProcessNetwork({"in-a": 1, "named": 2, "out": 2}))
    rig.start(Tasks(active=rig.tasks(0, 1)))
    assert read_by(rig) == {0: {"in-a", "named"}, 1: {"named"}}
    rig.network.make_topic("in-b", 2)
    rig.network.make_topic("in-a", 2)
    for tp in (("in-b", 0), ("in-b", 1), ("in-a", 1)):
        rig.network.write(tp, row(f"{tp[0]}-{tp[1]}"))
    rig.manager.follow_sources(rig.clock_ms + 1, "member", 1)
    look(rig)
    assert read_by(rig) == {0: {"in-a", "in-b", "named"}, 1: {"in-a", "in-b", "named"}}
    assert passed_on(rig) == ["in-a-1", "in-b-0", "in-b-1"]
    assert rig.network.admin.offsets["in-b", 1].offset == 1


def test_a_topic_that_is_gone_is_not_read_any_more(make_rig: MakeRig) -> None:
    rig = make_rig(topology=by_pattern(), network=InProcessNetwork({"in-a": 1, "in-b": 1, "named": 1, "out": 1}))
    rig.start(Tasks(active=rig.tasks(0)))
    del rig.network.logs["in-b", 0]
    look(rig)
    assert read_by(rig) == {0: {"in-a", "named"}}
    rig.network.write(("in-a", 0), row("on"))
    assert passed_on(rig) == ["on"]
    rig.network.make_topic("in-b", 1)
    rig.network.write(("in-b", 0), row("back"))
    look(rig)
    assert passed_on(rig) == ["back", "on"]


def test_the_loop_looks_when_the_epoch_changes_and_now_and_then(make_rig: MakeRig) -> None:
    rig = make_rig(topology=two_sources(), network=InProcessNetwork({"wide": 2, "narrow": 1, "out": 2}))
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(3)
    assert read_by(rig) == {0: {"wide", "narrow"}, 1: {"wide"}}
    rig.network.make_topic("narrow", 2)
    rig.iterate(2)
    assert read_by(rig)[1] == {"wide"}
    rig.member.waiting.append(EpochChanged(2))
    rig.iterate(2)
    assert read_by(rig)[1] == {"wide", "narrow"}
    rig.network.make_topic("wide", 3)
    rig.give(Tasks(active=rig.tasks(0, 1, 2)))
    rig.iterate(3)
    rig.network.make_topic("narrow", 3)
    rig.clock_ms += LATER_MS
    rig.iterate(2)
    assert read_by(rig)[2] == {"wide", "narrow"}


def test_while_the_cluster_is_away_nothing_changes(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    rig = make_rig(topology=by_pattern(), network=InProcessNetwork({"in-a": 1, "named": 1, "out": 1}))
    rig.start(Tasks(active=rig.tasks(0)))
    rig.network.make_topic("in-b", 1)
    rig.network.is_away = True
    look(rig)
    assert read_by(rig) == {0: {"in-a", "named"}}
    assert "topics can't be looked up, trying again" in caplog.text
    rig.network.is_away = False
    rig.manager.follow_sources(rig.clock_ms + 500, "member", 1)
    assert read_by(rig) == {0: {"in-a", "in-b", "named"}}


def test_what_was_fetched_of_a_topic_that_is_gone_is_processed(make_rig: MakeRig) -> None:
    rig = make_rig(topology=by_pattern(), network=InProcessNetwork({"in-a": 1, "named": 1, "out": 1}))
    rig.network.fetcher.batches_at_once = 2
    for text in ("one", "two"):
        rig.network.write(("in-a", 0), row(text))
    rig.start(Tasks(active=rig.tasks(0)))
    for fetched in rig.network.fetcher.poll():
        rig.manager.add_input(fetched, rig.clock_ms)
    # The second batch is not decoded yet.
    assert rig.manager.process(1, rig.clock_ms) == 1
    del rig.network.logs["in-a", 0], rig.network.fetcher.positions["in-a", 0]
    look(rig)
    assert passed_on(rig) == ["one", "two"]
    look(rig)
    assert read_by(rig) == {0: {"named"}}
