"""What versions that nobody runs have left unread: who starts together to read it, and what waits for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamsrt.assignment.in_flight import names_held_tasks, topics_met
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.value_versions import ValueVersion, written_versions
from streamsrt.membership.classic import leading
from streamsrt.membership.classic.unread_records import LeftUnread, left_of
from streamsrt.membership.classic.values import ClassicAssignment
from streamsrt.membership.values import NOTHING, Task
from streamsrt.wire.client_tags import VALUE_VERSIONS
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.classic.group_model import END, Version
from tests.streamsrt.membership.classic.test_leading import LOSES, Group, Member, detail, read, rounds, tasks

OLD_TOPIC, NEW_TOPIC, THIRD_TOPIC = "app-by-group-repartition", "app-by-g-repartition", "app-by-h-repartition"
EARLIER = Version.of(2, f"w: source=t sink={OLD_TOPIC}", f"s: repartition={OLD_TOPIC} changelog=c")
LATER = Version.of(3, f"w: source=t sink={NEW_TOPIC}", f"s: repartition={NEW_TOPIC} changelog=c")


def member(name: str, version: Version, *reads: str) -> Member:
    return Member(name, version, extra={"topology": version.wire, "topics": frozenset({"t", *reads})})


def cold(*members: Member, **left: int) -> Group:
    """A group that starts again. Of each topic partition 1 has as many unread records."""
    group = Group(*members)
    topics = {"old": OLD_TOPIC, "new": NEW_TOPIC, "third": THIRD_TOPIC}
    for name, count in left.items():
        group.cluster.topics[topics[name]] = 3
        group.cluster.left[topics[name], 1] = count
        group.cluster.ends[topics[name], 1] = 100
        group.cluster.committed[topics[name], 1] = 100 - count
    return group


def test_versions_of_which_each_reads_what_the_other_leaves_start_together() -> None:
    group = cold(member("m1", EARLIER, OLD_TOPIC), member("m2", LATER, NEW_TOPIC), old=11, new=60)
    told = rounds(group, 6)
    assert [each.error_code for each in told.values()] == [0, 0]
    assert told["m1"].tasks.active == tasks("s1").active
    assert told["m2"].tasks.active == tasks("w0 w1 w2 s0 s2").active
    group.cluster.committed[OLD_TOPIC, 1] = 100
    group.cluster.left = {}
    told = rounds(group, 3)
    assert not told["m1"].tasks.active
    assert told["m2"].tasks.active == tasks("w0 w1 w2 s0 s1 s2").active


def test_each_of_them_waits_for_the_other() -> None:
    for first, second in [("m1", "m2"), ("m2", "m1")]:
        members = {"m1": member("m1", EARLIER, OLD_TOPIC), "m2": member("m2", LATER, NEW_TOPIC)}
        group = cold(members[first], old=11, new=60)
        told = group.round()[first]
        assert (told.error_code, told.tasks) == (0, NOTHING)
        text = detail(told, StatusCode.ASSIGNMENT_DELAYED)
        assert "Start the version that has these topics as well" in text
        mine, other = (OLD_TOPIC, NEW_TOPIC) if first == "m1" else (NEW_TOPIC, OLD_TOPIC)
        assert f"no member can read: {other}: " in text
        assert f"reads {mine}: " in text
        assert told.rejoin_after_ms == leading.IN_FLIGHT_MS
        group.members[first].extra = {"topics": frozenset({"t", mine})}
        group.members[second] = members[second]
        served = group.round()
        assert not any(each.error_code for each in served.values())
        assert any(each.tasks.active for each in served.values())


@pytest.mark.parametrize("leader", ["m1", "m3", "m2"])
def test_who_waits_for_it_is_not_ended_by_a_version_that_reads_everything(leader: str) -> None:
    """Whoever leads then."""
    both = Version.of(
        3,
        f"w: source=t sink={OLD_TOPIC}",
        f"s: repartition={OLD_TOPIC} changelog=c",
        f"v: source=u sink={NEW_TOPIC}",
        f"x: repartition={NEW_TOPIC} changelog=d",
    )
    group = cold(member("m1", EARLIER, OLD_TOPIC), member("m3", EARLIER, OLD_TOPIC), old=11, new=60)
    group.cluster.topics |= {"t": 3, "u": 3}
    assert not running(group.round())
    later = member("m2", both, OLD_TOPIC, NEW_TOPIC)
    later.extra.pop("topology")
    group.members["m2"] = later
    group.leader = leader
    told = group.round()
    assert any(each.send_topology for each in told.values()), "this generation is for the topologies"
    told = group.round()
    assert [each.error_code for each in told.values()] == [0, 0, 0]
    assert len(running(told)) == 12
    # If it fails, those that have waited can run on.
    del group.members["m2"]
    group.leader = "m1"
    group.cluster.left = {}
    for topic in (OLD_TOPIC, NEW_TOPIC):
        group.cluster.committed[topic, 1] = 100
    told = group.round()
    assert [each.error_code for each in told.values()] == [0, 0]


def test_a_version_that_reads_nothing_of_it_is_refused_and_one_that_others_do_not_complete_waits() -> None:
    group = cold(member("m2", LATER, NEW_TOPIC), old=11)
    assert group.round()["m2"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    group = cold(member("m1", EARLIER, OLD_TOPIC), member("m2", LATER, NEW_TOPIC), old=11, third=2)
    told = group.round()
    assert [each.error_code for each in told.values()] == [0, 0]
    text = detail(told["m2"], StatusCode.ASSIGNMENT_DELAYED)
    assert f"no member can read: {THIRD_TOPIC}: 2 records" in text
    assert OLD_TOPIC not in text


def test_who_may_lose_it_waits_for_nobody() -> None:
    lone = member("m2", LATER, NEW_TOPIC)
    lone.extra |= LOSES
    group = cold(lone, old=11, new=60)
    assert len(group.round()["m2"].tasks.active) == 6


def test_what_a_version_has_itself_is_its_own() -> None:
    unread = {(OLD_TOPIC, 0): 1, (NEW_TOPIC, 2): 3}
    found = left_of(LATER.value, unread)
    assert found == LeftUnread({(OLD_TOPIC, 0): 1}, {(NEW_TOPIC, 2): 3})
    assert found.without([OLD_TOPIC]).unread == {}


# ------------------------------------------------------------------------------- the last old member ends too early


def warm(group: Group, count: int) -> dict[str, ClassicAssignment]:
    """Generations in each of which everybody says that it has all state."""
    told: dict[str, ClassicAssignment] = {}
    for _ in range(count):
        for each in group.members.values():
            each.extra |= {"offsets": {("s", n): END for n in range(3)}}
        told = group.round()
    return told


def rolling(*names: str) -> Group:
    """The old version runs with a member that leads, the new one with others: half of them, so that it has the writer."""
    group = Group(member("m1", EARLIER, OLD_TOPIC))
    group.cluster.topics |= {"t": 3}
    warm(group, 3)
    for partition in range(3):
        group.cluster.ends[OLD_TOPIC, partition] = 100
        group.cluster.committed[OLD_TOPIC, partition] = 100
    group.cluster.committed[OLD_TOPIC, 1] = 93
    group.members |= {name: member(name, LATER, NEW_TOPIC) for name in names}
    told = warm(group, 6)
    assert told["m1"].tasks.active == tasks("s1").active
    assert told[names[0]].waits == {OLD_TOPIC: frozenset({"s"})}
    return group


def dies(group: Group, *names: str) -> None:
    """They are gone, and have left what they had not read."""
    for name in names:
        del group.members[name]
    group.leader = next(iter(group.members))
    group.cluster.left = {(OLD_TOPIC, 1): 7}


def running(told: Mapping[str, ClassicAssignment]) -> frozenset[Task]:
    return frozenset[Task]().union(*(each.tasks.active for each in told.values()))


def test_what_shares_state_with_unread_records_waits_when_the_last_old_member_is_gone() -> None:
    group = rolling("m2")
    dies(group, "m1")
    for _ in range(3):
        told = group.round()["m2"]
        assert told.tasks.active == tasks("w0 w1 w2 s0 s2").active
        text = detail(told, StatusCode.ASSIGNMENT_DELAYED)
        assert f"no member can read: {OLD_TOPIC}: 7 records. Tasks that share state" in text
        assert "with the next epoch (topology.epoch=4)" in text
        assert names_held_tasks(told.why)
        assert told.rejoin_after_ms == leading.IN_FLIGHT_MS
    group.cluster.left = {}
    told = warm(group, 2)["m2"]
    assert told.tasks.active == tasks("w0 w1 w2 s0 s1 s2").active
    assert (told.statuses, told.waits, told.rejoin_after_ms) == ((), {}, None)
    group.round()
    assert not any(isinstance(effect, leading.CountUnread) for effect in group.effects)


def test_it_waits_whoever_leads_afterwards() -> None:
    group = rolling("m2", "m3", "m4")
    dies(group, "m1")
    for leader in ("m2", "m3", "m4"):
        group.leader, group.memories = leader, {}
        told = group.round()
        assert running(told) == tasks("w0 w1 w2 s0 s2").active
    # A member that starts anew has heard nothing of it.
    group.members["m5"] = member("m5", LATER, NEW_TOPIC)
    dies(group, "m2")
    group.cluster.left = {(OLD_TOPIC, 1): 7}
    told = warm(group, 3)
    assert running(told) == tasks("w0 w1 w2 s0 s2").active
    assert told["m5"].waits == {OLD_TOPIC: frozenset({"s"})}


def test_while_nobody_can_say_what_is_left_everybody_keeps_what_it_has() -> None:
    group = rolling("m2")
    dies(group, "m1")
    told = group.round(answers={leading.CountUnread: leading.UnreadCounted(None)})["m2"]
    assert (1 in {partition for name, partition in told.tasks.active if name == "s"}, told.rejoin_after_ms) == (
        False,
        leading.DRAINING_MS,
    )
    assert running(group.round()) == tasks("w0 w1 w2 s0 s2").active, "that it is to wait is not forgotten"


def test_who_may_lose_it_holds_nothing() -> None:
    group = rolling("m2")
    group.members["m2"].extra = LOSES
    dies(group, "m1")
    outcome = group.lead()
    assert read(outcome)["m2"].tasks.active == tasks("w0 w1 w2 s0 s1 s2").active
    (warning,) = outcome.warnings
    assert "They are left unread because upgrade.lose.in.flight=true" in warning


def test_a_version_that_has_the_topic_follows_and_reads_it_and_another_one_does_not() -> None:
    group = rolling("m2")
    dies(group, "m1")
    group.round()
    next_version = Version.of(
        4, f"w: source=t sink={NEW_TOPIC}", f"s: repartition={NEW_TOPIC} changelog=c", "z: source=t2"
    )
    group.cluster.topics["t2"] = 1
    group.members["m6"] = member("m6", next_version, NEW_TOPIC)
    told = group.round()
    assert told["m6"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    text = told["m6"].error_text or ""
    assert "can't replace topology epoch 3 of group app, which continues unchanged. Records are in flight that" in text
    assert f"{OLD_TOPIC}: 7 records. Tasks of the running version wait for them. Start a version that has these" in text
    assert told["m2"].tasks.active == tasks("w0 w1 w2 s0 s2").active
    del group.members["m6"]
    again = Version.of(4, f"w: source=t sink={OLD_TOPIC}", f"s: repartition={OLD_TOPIC} changelog=c")
    group.members["m7"] = member("m7", again, OLD_TOPIC)
    told = warm(group, 6)
    assert not any(each.error_code for each in told.values())
    assert ("s", 1) in told["m7"].tasks.active
    assert OLD_TOPIC not in told["m7"].waits


def test_topics_of_a_version_that_only_reads_other_subtopologies_hold_only_those() -> None:
    old = Version.of(0, "w: source=t sink=x,y", "s: repartition=x changelog=c", "u: repartition=y changelog=d")
    new = Version.of(1, "w: source=t sink=y", "s: source=t2 changelog=c", "u: repartition=y changelog=d")
    assert topics_met(new.value, [old.value]) == {"x": frozenset({"s"})}


def test_a_repartition_topic_that_goes_and_a_later_version_of_values_are_two_upgrades() -> None:
    group = Group(member("m1", EARLIER, OLD_TOPIC))
    warm(group, 2)
    raised = member("m2", LATER, NEW_TOPIC)
    tags = {VALUE_VERSIONS: written_versions({"c": ValueVersion(2, frozenset({1}))})}
    raised.extra["client_tags"] = tags
    group.members["m2"] = raised
    told = group.round()
    assert told["m2"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert f"Repartition topic {OLD_TOPIC} is removed, and the values in c get a later" in (told["m2"].error_text or "")
    assert len(told["m1"].tasks.active) == 6
    group.members["m2"] = member("m2", LATER, NEW_TOPIC)
    assert not group.round()["m2"].error_code
