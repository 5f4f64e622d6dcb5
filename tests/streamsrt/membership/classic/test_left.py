"""Versions that start together read what each of them has left, in a group whose versions nobody knows any more."""

from __future__ import annotations

from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.classic import leading
from streamsrt.membership.classic.left import LeftUnread, left_of
from streamsrt.membership.values import NOTHING
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.classic.group_model import Version
from tests.streamsrt.membership.classic.test_leading import LOSES, Group, Member, detail, rounds, tasks

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
        told_now = group.round()
        assert not any(each.error_code for each in told_now.values())
        assert any(each.tasks.active for each in told_now.values())


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
