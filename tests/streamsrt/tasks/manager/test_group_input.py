"""When the whole group has read all of its input, as a member sees that has some of the tasks or none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta

import pytest

from streamsrt.client.values import OffsetAndMetadata, TopicPartition
from streamsrt.membership.values import NOTHING, Tasks
from streamsrt.tasks.error_policy import NotThereYetError
from streamsrt.tasks.manager.group_input import LOG_INTERVAL_MS, REQUEST_INTERVAL_MS
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import MakeRig, Rig
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology
from topology.spec.functions import OffsetReset

REPARTITION = "app-words-repartition"


def row(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"k", text.encode())]


def unread(rig: Rig, own: Mapping[TopicPartition, int] | None = None) -> dict[TopicPartition, int]:
    return rig.manager.group_input.unread(own or {}, rig.clock_ms)


def commit(rig: Rig, tp: TopicPartition, offset: int) -> None:
    """Another member does."""
    rig.network.admin.commit("app", {tp: OffsetAndMetadata(offset)})


def reading(topic: str | re.Pattern[str], offset_reset: OffsetReset | None = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream(topic, key=serdes.string, value=serdes.string, offset_reset=offset_reset).to("out")
    return builder.build()


def test_what_is_committed_is_read(rig: Rig) -> None:
    assert unread(rig) == {}
    rig.network.write(("in", 0), [*row("a"), *row("b")])
    rig.network.write(("in", 1), row("c"))
    assert unread(rig) == {("in", 0): 2, ("in", 1): 1}
    commit(rig, ("in", 0), 1)
    assert unread(rig) == {("in", 0): 1, ("in", 1): 1}
    assert unread(rig, {("in", 0): 2}) == {("in", 1): 1}
    commit(rig, ("in", 1), 1)
    assert unread(rig, {("in", 0): 2}) == {}


def test_who_has_all_partitions_does_not_ask_what_is_committed(rig: Rig) -> None:
    rig.network.write(("in", 0), row("a"))
    assert unread(rig, {("in", 0): 1, ("in", 1): 0}) == {}


def test_repartition_topics_are_input(make_rig: MakeRig) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.repartition(name="words", partitions=1).to("out")
    rig = make_rig(topology=builder.build(), network=InProcessNetwork({"in": 1, "out": 1}))
    rig.network.write(("in", 0), row("a"))
    assert unread(rig) == {("in", 0): 1}, "it is not made yet"
    rig.network.make_topic(REPARTITION, 1)
    rig.network.write((REPARTITION, 0), row("a"))
    commit(rig, ("in", 0), 1)
    assert unread(rig) == {(REPARTITION, 0): 1}


def test_topics_that_a_pattern_matches_are_input(make_rig: MakeRig) -> None:
    topics = {"in-a": 1, "other": 1, "out": 1}
    rig = make_rig(topology=reading(re.compile("in-.*")), network=InProcessNetwork(topics))
    for topic in ("in-a", "other", "out"):
        rig.network.write((topic, 0), row("a"))
    assert unread(rig) == {("in-a", 0): 1}


def test_what_no_reader_begins_with_is_not_unread(make_rig: MakeRig) -> None:
    rig = make_rig(topology=reading("in", "latest"), partitions=1)
    rig.network.write(("in", 0), row("a"))
    assert unread(rig) == {}
    commit(rig, ("in", 0), 0)
    assert unread(rig) == {("in", 0): 1}


def test_what_is_younger_than_the_duration_of_a_policy_is_unread(make_rig: MakeRig) -> None:
    rig = make_rig(topology=reading("in", timedelta(seconds=10)), partitions=1)
    rig.network.write(("in", 0), row("old"), timestamp=rig.clock_ms - 20_000)
    assert unread(rig) == {}
    rig.network.write(("in", 0), row("young"), timestamp=rig.clock_ms - 5_000)
    assert unread(rig) == {("in", 0): 1}
    rig.clock_ms += 20_000
    assert unread(rig) == {}


def test_what_makes_its_reader_fail_is_unread(make_rig: MakeRig) -> None:
    rig = make_rig(topology=reading("in", "none"), partitions=1)
    assert unread(rig) == {}
    rig.network.write(("in", 0), row("a"))
    assert unread(rig) == {("in", 0): 1}


def test_nothing_is_known_of_a_topic_that_the_cluster_does_not_describe(rig: Rig) -> None:
    rig.network.write(("in", 0), row("a"))
    logs = {tp: rig.network.logs.pop(tp) for tp in [("in", 0), ("in", 1)]}
    with pytest.raises(NotThereYetError, match="does not have in yet"):
        unread(rig)
    assert not rig.manager.group_input.is_read({}, 0)
    rig.network.logs.update(logs)
    assert unread(rig) == {("in", 0): 1}


def test_nothing_is_known_of_a_partition_whose_end_the_cluster_does_not_tell(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.network.write(("in", 0), row("a"))
    # The answer of a broker that has not heard of the topic yet; one before it had.
    described = rig.network.admin.topics()
    monkeypatch.setattr(rig.network.admin, "topics", lambda *_, **__: described)
    log = rig.network.logs.pop(("in", 0))
    with pytest.raises(NotThereYetError):
        unread(rig)
    rig.network.logs["in", 0] = log
    assert unread(rig) == {("in", 0): 1}


def test_what_was_deleted_is_not_unread(rig: Rig) -> None:
    for text in "abc":
        rig.network.write(("in", 0), row(text))
    commit(rig, ("in", 0), 1)
    rig.network.logs["in", 0].start = 2
    assert unread(rig) == {("in", 0): 1}
    rig.network.logs["in", 0].start = 3
    assert unread(rig) == {}


def test_the_answer_holds_for_a_moment(rig: Rig) -> None:
    rig.network.write(("in", 0), row("a"))
    read = rig.manager.group_input.is_read
    assert not read({}, 5_000)
    commit(rig, ("in", 0), 1)
    assert not read({}, 5_000 + REQUEST_INTERVAL_MS - 1)
    assert read({}, 5_000 + REQUEST_INTERVAL_MS)


def test_it_is_told_why_a_run_does_not_end(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.network.write(("in", 0), row("a"))
    read = rig.manager.group_input.is_read
    assert not read({}, 0)
    assert not read({}, LOG_INTERVAL_MS - 1)
    assert not caplog.messages
    assert not read({}, LOG_INTERVAL_MS + REQUEST_INTERVAL_MS)
    (told,) = caplog.messages
    assert "1 record outside this member's tasks" in told
    assert "(in-0: 1)" in told
    rig.network.is_away = True
    assert not read({}, 3 * LOG_INTERVAL_MS)
    assert "it is not known which records the group has not read yet: No answer in time." in caplog.messages[-1]


# ------------------------------------------------------------------------------------------------------- in the loop


def ends(rig: Rig, after_ms: int) -> bool:
    rig.clock_ms += after_ms
    found = rig.thread.commit_if_drained()
    rig.iterate()
    return found


def test_a_member_without_tasks_is_not_quiet_while_a_killed_one_has_them(rig: Rig) -> None:
    rig.network.write(("in", 0), row("a"))
    rig.give(NOTHING)
    rig.iterate()
    assert not ends(rig, 20_000)
    assert not ends(rig, 1_000)
    rig.give(Tasks(active=rig.tasks(0, 1)))
    rig.iterate(4)
    assert [ends(rig, 1_000) for _ in range(6)][-1]
    assert rig.thread.processed_records == 1


def test_of_two_members_each_is_quiet_when_both_have_committed(rig: Rig) -> None:
    rig.network.write(("in", 0), [(b"k", bytes(8))])
    rig.network.write(("in", 1), [(b"k", bytes(8))])
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(4)
    assert not any(ends(rig, 1_000) for _ in range(6))
    assert rig.network.admin.offsets[("in", 0)].offset == 1, "the other one need not wait for this one"
    commit(rig, ("in", 1), 1)
    assert ends(rig, 1_000)
