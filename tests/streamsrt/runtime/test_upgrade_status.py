"""Where an upgrade stands, made of what a group says of itself."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamsrt.assignment.in_flight import NOBODY_READS, STILL_WRITTEN, detail_of_waiting
from streamsrt.assignment.refused_update import rolled_back
from streamsrt.assignment.value_versions import ValueVersion
from streamsrt.assignment.version_backoff import Setbacks
from streamsrt.cli.upgrade.status import UNDER_WAY, UNKNOWN, exit_code, summary
from streamsrt.client.interface import Administering
from streamsrt.runtime.failing_version import advice_to_failing
from streamsrt.runtime.group_facts import GroupFacts, KnownVersion, MemberFacts, Task, facts_of
from streamsrt.runtime.upgrade_status import UpgradeStatus, UpgradeWatch, member_name
from streamsrt.runtime.way_back import FormerVersion, former_version, only_later_topics, topics_of_later, way_back
from streamsrt.wire.private_tags import VERSIONS_TAG
from streamsrt.wire.types import StreamsGroupDescribeResponse

NONE: frozenset[Task] = frozenset()


def member(name: str, epoch: int | None, *tasks: Task, warmup: frozenset[Task] = NONE, **more: Any) -> MemberFacts:
    return MemberFacts(
        member_id=name,
        instance_id=name,
        process_id=name,
        client_id="app",
        host="there",
        epoch=epoch,
        digest=None if epoch is None else f"d{epoch}",
        tasks={"active": frozenset(tasks), "standby": NONE, "warmup": warmup},
        **more,
    )


def group(*members: MemberFacts, epoch: int | None = 1, state: str = "Stable", **more: Any) -> GroupFacts:
    return GroupFacts(name="app", kind="streams", state=state, epoch=epoch, members=members, **more)


def status(found: GroupFacts) -> UpgradeStatus:
    return UpgradeWatch().status(found, 0.0)


def warming(offset: int, end: int) -> Mapping[str, Any]:
    return {"warmup": frozenset({("s", 0)}), "offsets": {("s", 0): offset}, "ends": {("s", 0): end}}


def test_versions_are_counted_with_their_tasks() -> None:
    found = status(group(member("a", 0, ("s", 0), ("s", 1)), member("b", 0), member("c", 1, ("s", 2))))
    rows = [(row.topology_epoch, row.digest, row.members, row.tasks["active"]) for row in found.versions]
    assert rows == [(1, "d1", 1, 1), (0, "d0", 2, 2)]
    assert (found.phase, found.is_over) == ("upgrading", False)
    assert "1 of 3 instances run topology epoch 1: stop one of the others" in found.advice[0]
    assert "(a, b)" in found.advice[0]
    assert found.advice[-1] == "to roll back: streamsrt upgrade abort OLD --group app"


def test_an_old_instance_is_to_be_stopped_only_when_its_tasks_are_warmed_up_on_new_ones() -> None:
    warm, step, _ = status(group(member("a", 0, ("s", 0)), member("b", 1, **warming(5, 9)))).advice
    assert warm == "1 task warming up on new instances: old instances process them until then"
    assert step == (
        "1 of 2 instances run topology epoch 1: when no task is warming up any more, stop one of the others, and start it "
        "with the new version (a)"
    )


@pytest.mark.parametrize("client_id", ["streamsrt", "shop-3f2a-StreamThread-1-consumer"])
def test_members_of_a_classic_group_are_told_apart(client_id: str) -> None:
    ids = ["0b6bd8e4-4d6a-4f0c-9b55-1d0a2f3c4b5a", "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
    members = [replace(member(f"{client_id}-{each}", 0), instance_id=None, client_id=client_id) for each in ids]
    assert [member_name(each) for each in members] == ["0b6bd8e4 on there", "f47ac10b on there"]
    streams = replace(member("wqCwxy9bRXOGsEZUQM1UiQ", 0), instance_id=None)
    assert member_name(streams) == "wqCwxy9b on there"


def test_instances_that_went_on_after_a_rollback_are_to_be_restarted_with_the_epoch_of_the_group() -> None:
    members = [replace(member(name, epoch), digest="same") for name, epoch in (("a", 0), ("b", 2))]
    (advice,) = status(group(*members, epoch=2)).advice
    assert "the same topology, 1 of them under an earlier epoch (a)" in advice
    assert advice.endswith("with --config topology.epoch=2")


def test_an_upgrade_is_over_when_all_run_the_version_of_the_group() -> None:
    assert status(group(member("a", 1), member("b", 1))).is_over
    assert not status(group(member("a", 1), member("b", 1), state="Reconciling")).is_over
    warm = status(group(member("a", 1, **warming(5, 9))))
    assert not warm.is_over
    assert warm.headline == warm.to_json()["headline"] == "one version, but 1 task still warming up"
    assert not status(group(member("a", 0), epoch=1)).is_over
    waits = status(group(member("a", 2), epoch=1))
    assert (waits.is_over, waits.headline) == (False, "one version, but the group has not taken topology epoch 2 yet")
    assert status(group(member("a", 1), epoch=None)).is_over, "a classic group without an assignment names no epoch"


@pytest.mark.parametrize(
    "told",
    [
        {"versions": (KnownVersion(2, frozenset()), KnownVersion(1, frozenset(), True), KnownVersion(0, frozenset()))},
        {"why": f"member c is gone; {rolled_back(0)}"},
    ],
    ids=["streams", "classic"],
)
def test_after_a_rollback_nobody_is_told_to_roll_back(told: Mapping[str, Any]) -> None:
    found = status(group(member("a", 0), member("b", 1), epoch=2, **told))
    assert found.phase == "no new member"
    assert (
        "restart the instances with epoch 0, one after the other, and those that were stopped, with topology.epoch=2"
        in (" ".join(found.advice))
    )
    assert "abort" not in " ".join(found.advice)


def test_a_version_that_nobody_runs_any_more_is_told() -> None:
    found = status(group(member("a", 0), member("b", 0), epoch=1))
    assert found.phase == "no new member"
    assert found.advice[0].startswith("no instance runs topology epoch 1, and instances with epoch 0 run everything")
    assert (
        "roll back with streamsrt upgrade abort OLD --group app, or start a corrected version (epoch 1"
        in found.advice[0]
    )
    empty = status(group(epoch=1))
    assert (empty.phase, empty.is_over) == ("no members", False)


def test_what_is_in_flight_is_said_before_anything_is_started() -> None:
    left = {"app-by-g-repartition": 1_060, "app-by-a-repartition": 2}
    found = status(group(member("a", 0), epoch=1, left=left))
    counted = "app-by-a-repartition: 2 records, app-by-g-repartition: 1,060 records"
    assert found.advice[0] == f"in flight, and no instance reads them: {counted}"
    assert found.advice[1].startswith("the group does not know which version has app-by-a-repartition, app-by-g-")
    assert found.advice[2].startswith("no instance runs topology epoch 1")
    empty = status(group(epoch=None, left=left))
    assert empty.advice[0] == f"no instance runs, and records are in flight: {counted}"
    assert "start all versions that have some, each with its previous topology.epoch" in empty.advice[1]
    assert "start the earlier one with --lose-in-flight and the later one without it" in empty.advice[2]


KNOWN = (KnownVersion(1, frozenset({"app-g-repartition"})), KnownVersion(0, frozenset({"app-a-repartition"})))
BOTH = {"app-g-repartition": 7, "app-a-repartition": 2}


def test_which_version_reads_what_is_left_is_said_with_the_epoch_that_it_is_taken_with() -> None:
    found = status(group(epoch=1, left=BOTH, versions=KNOWN))
    assert found.advice[1:] == (
        "start an instance of the version of topology epoch 0 (topology.epoch=0): it reads app-a-repartition",
        "start an instance of the version of topology epoch 1 (topology.epoch=1): it reads app-g-repartition",
        "start these beside each other, in any order: the earlier version reads its own topics first",
    )
    (_, only) = status(group(epoch=1, left={"app-g-repartition": 7}, versions=KNOWN)).advice
    assert only.startswith("start an instance of the version of topology epoch 1 ")
    back = (KnownVersion(2, frozenset({"app-a-repartition"})), KNOWN[0]._replace(is_sent_back=True))
    (_, again) = status(group(epoch=2, left={"app-g-repartition": 7}, versions=back)).advice
    assert again == (
        "topology epoch 1 was rolled back (the group has the topology of an earlier version again): start its version "
        "with the next epoch, 3; it reads app-g-repartition"
    )
    (*_, order) = status(group(epoch=2, left=BOTH, versions=back)).advice
    assert order == "start the version of topology epoch 2 first, and the other one beside it"
    (_, unknown) = status(group(epoch=1, left={"app-z-repartition": 7}, versions=KNOWN[:1])).advice
    assert unknown.startswith(
        "the group does not know which version has app-z-repartition: start that one with the next"
    )
    assert "epoch, 2, when nothing else is in flight" in unknown


def test_a_version_that_has_not_taken_over_is_not_the_first_to_be_started_where_nobody_runs() -> None:
    topic = frozenset({"app-a-repartition"})
    failed, ran = KnownVersion(1, topic, has_taken_over=False), KnownVersion(0, topic)
    left = {"app-a-repartition": 8}
    assert status(group(epoch=1, left=left, versions=(failed, ran))).advice == (
        "no instance runs, and records are in flight: app-a-repartition: 8 records",
        "start an instance of the version of topology epoch 0 (topology.epoch=0): it reads app-a-repartition. So does that "
        "of topology epoch 1, which has not taken over and may have failed: start it instead if it works",
    )
    (empty,) = status(group(epoch=1, versions=(failed, ran))).advice
    assert "start the version that ran before it, with topology.epoch=0" in empty
    (_, refused) = status(group(epoch=1, versions=(failed, ran), later_values={"app-c-changelog": 2})).advice
    assert refused == "app-c-changelog has values of version 2: a version that can't read them is refused"
    # One that only the newest version has is read by no other.
    (_, only) = status(group(epoch=1, left={"app-g-repartition": 7}, versions=(KNOWN[0], ran))).advice
    assert only.endswith("topology epoch 1 (topology.epoch=1): it reads app-g-repartition")
    (_, took_over) = status(group(epoch=1, left=left, versions=(failed._replace(has_taken_over=True), ran))).advice
    assert took_over.startswith("start an instance of the version of topology epoch 1 ")
    # Sent back to what ran before: the group's own epoch is that one.
    back = (KnownVersion(2, topic, has_taken_over=False), failed._replace(is_sent_back=True, has_taken_over=True), ran)
    (_, first) = status(group(epoch=2, left=left, versions=back)).advice
    assert first.startswith("start an instance of the version of topology epoch 2 ")


def test_what_is_read_when_its_version_gets_tasks_needs_no_further_instance() -> None:
    found = status(group(member("a", 0, ("s", 0)), member("b", 1), left={"app-g-repartition": 7}, versions=KNOWN))
    assert found.advice[1].startswith(
        "instances of topology epoch 1 run, and have no task that reads app-g-repartition: they read it as soon as"
    )


def test_a_classic_group_knows_that_a_member_without_tasks_will_read_what_is_left() -> None:
    reader = member("b", 2, reads=frozenset({"in", "app-g-repartition"}))
    left = {"app-g-repartition": 7, "app-h-repartition": 1}
    facts = replace(group(member("a", 1, ("s", 0)), reader, epoch=2, left=left), kind="classic")
    advice = status(facts).advice
    assert advice[1].startswith(
        "instances of topology epoch 2 run, and have no task that reads app-g-repartition: they"
    )
    assert advice[2].startswith("the group does not know which version has app-h-repartition: start that one with")


def test_what_a_dropped_source_topic_holds_is_said_last() -> None:
    rolling = status(group(member("a", 0, ("s", 0)), member("b", 1), dropped={"old": 1_007}))
    assert rolling.unread_sources == rolling.to_json()["unread_sources"] == {"old": 1_007}
    assert rolling.advice[-1] == (
        "source topic old is not read by topology epoch 1: 1,007 records not read yet. Only instances of an earlier version "
        "read them: stop the topic's producers, and stop the last of these instances when no record is left. Afterwards, a "
        "version that has the topic reads them: start it with the next epoch, 2"
    )
    done = status(group(member("a", 1, ("s", 0)), member("b", 1), dropped={"old": 1}))
    (advice,) = done.advice
    assert advice.startswith("source topic old is not read by topology epoch 1: 1 record not read yet, and no instance")
    assert done.is_over, "it is no part of the upgrade"
    (_, empty) = status(group(dropped={"old": 1})).advice
    assert "start it with the next epoch, 2" in empty


def test_what_only_the_version_of_the_group_reads_is_no_reason_to_send_it_back() -> None:
    found = status(group(member("a", 0), epoch=1, left={"app-g-repartition": 7}, versions=KNOWN))
    assert found.advice[-1].startswith(
        "no instance runs topology epoch 1, and instances with epoch 0 run everything: start an instance of epoch 1 again"
    )
    assert "or roll back and leave its records unread" in found.advice[-1]


def test_an_upgrade_is_not_over_while_tasks_wait_for_what_nobody_reads() -> None:
    left = {"app-a-repartition": 2}
    held = status(group(member("b", 1), left=left, versions=KNOWN, why=f"{NOBODY_READS}app-a-repartition: 2 records"))
    assert not held.is_over
    assert held.advice == (
        "in flight, and no instance reads them, and tasks that share state with their readers wait: app-a-repartition: 2 "
        "records",
        "start an instance of the version of topology epoch 0 (topology.epoch=0): it reads app-a-repartition",
    )
    assert held.to_json()["unread"] == left
    waits = "tasks wait for 2 records in flight that no instance reads"
    assert summary(held).startswith(f"app: one version, but {waits}, Stable, topology epoch 1")
    assert held.to_json()["pending"] == (waits,)
    lost = status(group(member("b", 1, may_lose=True), left=left, versions=KNOWN))
    assert lost.is_over
    (said,) = lost.advice
    assert said.startswith(
        "in flight, and left unread because of --lose-in-flight: app-a-repartition: 2 records. Keep that"
    )
    assert "start it with the next epoch, 2" in said


def test_a_classic_group_that_waits_for_another_version_stands_still() -> None:
    left, own = {("app-a-repartition", 0): 1_200}, {("app-b-repartition", 0): 1}
    why = detail_of_waiting("app", left, own)
    counts = {"app-a-repartition": 1_200, "app-b-repartition": 1}
    reads = frozenset({"in", "app-b-repartition"})
    facts = replace(group(member("a", 2, reads=reads), epoch=None, left=counts, why=why), kind="classic")
    assert facts.awaited == {"app-a-repartition"}
    found = status(facts)
    assert (exit_code(found), found.is_over) == (UNDER_WAY, False)
    waits = "one version, but nothing is processed: all tasks wait for 1,201 records in flight that no instance reads"
    assert found.headline == waits
    first, second, third = found.advice
    assert "and no instance reads them, and nothing is processed until they have a reader: " in first
    assert second.startswith("instances of topology epoch 2 run, and have no task that reads app-b-repartition")
    assert third.startswith(
        "start the version that has app-a-repartition beside these instances, each version with the topology.epoch that it "
        "had: the earlier one reads its own topics first. Or restart all instances with --lose-in-flight"
    )


def test_an_epoch_that_is_advised_follows_those_of_the_members() -> None:
    facts = replace(group(member("a", 2), epoch=None, left={"app-a-repartition": 1}), kind="classic")
    assert "with the next epoch, 3," in status(facts).advice[1]


def test_the_newest_end_that_anybody_reported_counts() -> None:
    (found,) = status(group(member("a", 0, ends={("s", 0): 100}), member("b", 1, **warming(40, 90)))).warming_up
    assert (found.task, found.member, found.offset, found.end, found.behind, found.eta_s) == (
        "s_0",
        "b",
        40,
        100,
        60,
        None,
    )
    (unknown,) = status(group(member("b", 1, warmup=frozenset({("s", 0)})))).warming_up
    assert (unknown.behind, unknown.eta_s) == (None, None)


def test_two_looks_give_a_speed_and_what_is_left() -> None:
    watch = UpgradeWatch()
    assert watch.status(group(member("b", 1, **warming(100, 1_000))), 10.0).eta_s is None
    assert watch.status(group(member("b", 1, **warming(100, 1_000))), 12.0).eta_s is None, "nothing new was reported"
    assert watch.status(group(member("b", 1, **warming(300, 1_100))), 14.0).eta_s == 800 / 50
    assert watch.status(group(member("b", 1, **warming(0, 1_100))), 15.0).eta_s is None, "it has begun anew"
    done = watch.status(group(member("b", 1, **warming(1_100, 1_100))), 16.0)
    assert done.eta_s == 0
    assert done.to_json()["warming_up"][0]["behind"] == 0


def test_an_estimate_needs_all_tasks() -> None:
    two = frozenset({("s", 0), ("s", 1)})
    known = member("b", 1, warmup=two, offsets={("s", 0): 9, ("s", 1): 1}, ends={("s", 0): 9, ("s", 1): 5})
    assert status(group(known)).eta_s is None


def test_members_that_are_away_and_that_say_nothing_are_named() -> None:
    found = status(group(member("a", 1, is_away=True), member("b", None), state="NotReady"))
    assert "topics of the group's topology are missing" in found.advice[0]
    assert found.advice[1].startswith("a is stopped and keeps its tasks until its session ends")
    assert "the versions of the members are not known at this moment" in found.advice[2]


def draining(*records: int) -> GroupFacts:
    topics = {f"app-{number}-repartition": count for number, count in enumerate(records) if count}
    return group(member("a", 0, ("s", 0)), member("b", 1, ("s", 1)), in_flight=topics)


def test_a_drain_is_told_with_what_is_left_and_nothing_is_to_be_stopped() -> None:
    watch = UpgradeWatch()
    first = watch.status(draining(3_000, 2_000), 10.0)
    assert first.drain is not None
    assert (first.drain.records, first.drain.eta_s) == (5_000, None)
    assert first.advice[0] == (
        "old instances read app-0-repartition, app-1-repartition to the end, which the new version does not have: 5,000 "
        "records left. Keep the remaining old instances running (a)"
    )
    assert not any("stop one of the others" in each for each in first.advice)
    later = watch.status(draining(2_000, 1_000), 12.0)
    assert later.drain is not None
    assert (later.drain.records_per_second, later.drain.eta_s) == (1_000.0, 3.0)
    assert "3,000 records left, about 3 s at 1,000 records/s" in later.advice[0]
    assert later.to_json()["drain"] == {
        "topics": ("app-0-repartition", "app-1-repartition"),
        "records": 3_000,
        "records_per_second": 1_000.0,
        "eta_s": 3.0,
        "written": (),
    }
    same = watch.status(draining(2_000, 1_000), 14.0)
    assert same.drain == later.drain, "nothing was read between the looks: the speed is the last one that was seen"


WRITTEN = f"; {STILL_WRITTEN}app-0-repartition (topology epoch 0)"
SETBACKS = str(Setbacks(1, 3, 0)).rstrip(".")


def test_the_last_instance_that_writes_what_the_new_version_does_not_have_is_kept_though_nothing_is_unread() -> None:
    found = status(group(member("a", 0, ("s", 0)), member("b", 1), why=f"member b joined{WRITTEN}"))
    assert found.advice == (
        "old instances still write to app-0-repartition, which the new version does not have, until new instances have "
        "warmed up these tasks and take them over. Keep the remaining old instances running (a)",
        "to roll back: streamsrt upgrade abort OLD --group app",
    )
    assert found.drain is not None
    assert (found.drain.topics, found.drain.records, found.drain.eta_s) == (("app-0-repartition",), 0, None)


def test_others_may_be_stopped_as_long_as_one_old_instance_is_left() -> None:
    found = status(group(member("a", 0), member("b", 0), member("c", 1), why=WRITTEN))
    assert "Always leave one old instance running until then" in found.advice[0]
    assert "1 of 3 instances run topology epoch 1: stop one of the others" in found.advice[1]


def test_what_is_still_written_and_read_is_said_with_what_is_left() -> None:
    watch = UpgradeWatch()
    watch.status(replace(draining(300), why=WRITTEN), 1.0)
    found = watch.status(replace(draining(200), why=WRITTEN), 2.0)
    assert found.advice[0].startswith("old instances read app-0-repartition to the end")
    assert "200 records left. Keep" in found.advice[0], "records go on coming: no estimate"
    assert found.advice[1].startswith("old instances still write to app-0-repartition")


@pytest.mark.parametrize("why", [SETBACKS, f"member b left; {SETBACKS}{WRITTEN}"])
def test_old_instances_are_kept_while_the_new_version_is_paused(why: str) -> None:
    found = status(group(member("a", 0, ("s", 0)), member("b", 1), why=why))
    assert found.advice[0].startswith("instances with topology epoch 1 stopped 3 times in a row")
    assert "Keep the old instances running (a)" in found.advice[0]
    assert not any("stop one of the others" in each for each in found.advice)
    assert found.advice[-1] == "to roll back: streamsrt upgrade abort OLD --group app"


def test_after_a_drain_the_next_instance_is_to_be_stopped() -> None:
    watch = UpgradeWatch()
    watch.status(draining(1_000), 10.0)
    over = watch.status(draining(0), 11.0)
    assert (over.drain, over.to_json()["drain"]) == (None, None)
    assert "stop one of the others" in over.advice[0]


def test_a_classic_group_that_rebalances_does_not_say_that_it_has_one_version() -> None:
    unknown = replace(group(member("a", None), member("b", None), epoch=None), kind="classic")
    rebalancing = replace(unknown, state="PreparingRebalance", unassigned={"app-by-g-repartition": 208})
    found = status(rebalancing)
    assert (found.phase, found.is_over) == ("versions unknown", False)
    assert "before you stop an old instance" in found.advice[0]
    assert "unread in repartition topics: app-by-g-repartition: 208 records" in found.advice[1]
    assert found.to_json()["unread_unassigned"] == {"app-by-g-repartition": 208}
    assert summary(found).startswith("app: versions unknown while the group rebalances, PreparingRebalance")
    assert exit_code(found) == UNKNOWN
    drained = status(replace(rebalancing, unassigned={}))
    assert (drained.phase, len(drained.advice), exit_code(drained)) == ("versions unknown", 1, UNKNOWN)
    assert status(unknown).phase == "one version", "members of another client never report one"


# ---------------------------------------------------------------------------------------------------------- the way back

LOG = "app-rows-changelog"
LATER = {"value_versions": {LOG: ValueVersion(2)}}
ROLLING = (member("a", 0, ("s", 0)), member("b", 1, ("s", 1), **LATER))
ABORT = "streamsrt upgrade abort OLD --group app"


def test_no_rollback_is_advised_once_values_are_written_that_the_former_version_cannot_read() -> None:
    possible = status(group(*ROLLING)).advice[-1]
    assert possible == (
        f"to roll back: {ABORT}. This is possible until a new instance has written values of a later version into {LOG}"
    )
    for members in (ROLLING, ROLLING[:1]):
        advice = status(group(*members, later_values={LOG: 2})).advice
        assert advice[-1].endswith(
            f"there is no way back: {LOG} has values of version 2, and instances with topology epoch 0 fail at the first "
            "one that they read. Go on with the new version: correct it if it fails (epoch 1 if its topology stays the "
            "same, else 2)"
        )
        assert "abort" not in " ".join(advice)


def test_a_rollback_that_would_leave_records_unread_is_advised_as_one() -> None:
    said = status(group(*ROLLING[:1], member("b", 1), only_later_reads={"app-g-repartition": 7})).advice[-1]
    assert said.startswith(
        "only the new version reads what is in flight (app-g-repartition: 7 records), so it has to run"
    )
    assert "the former version with the next epoch, 2, until" in said
    assert said.endswith(f"{ABORT} --lose-in-flight")


def test_members_that_do_not_say_what_they_run_are_not_to_be_gone_back_to_by_command() -> None:
    java = replace(member("a", 0), digest=None)
    said = status(group(java, member("b", 1))).advice[-1]
    assert said.startswith("instances with topology epoch 0 don't say which version they run (Java's Kafka Streams")
    assert "abort" not in said
    (alone,) = status(group(java)).advice
    assert said in alone
    assert alone.startswith("no instance runs topology epoch 1, and instances with epoch 0 run everything: start a")


def test_of_three_versions_the_one_to_go_back_to_is_named() -> None:
    said = status(group(member("a", 0), member("b", 1), member("c", 2), epoch=2)).advice[-1]
    assert said == f"to roll back: {ABORT}, where OLD is the version of topology epoch 1"


SAME = "same topology"


@st.composite
def groups(draw: st.DrawFn) -> GroupFacts:
    """Groups with any mix of versions, records and values."""
    values = st.sampled_from([{}, {LOG: ValueVersion(2)}])
    topics = st.frozensets(st.sampled_from(["app-g-repartition", "app-a-repartition"]))
    tasks = st.frozensets(st.just(("s", 0)))
    members = [
        replace(
            member(str(number), draw(st.sampled_from([None, 0, 1, 2])), value_versions=draw(values)),
            tasks={"active": draw(tasks), "standby": NONE, "warmup": draw(tasks)},
            reads=draw(topics),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    hidden = draw(st.sampled_from([None, None, SAME, "none"]))
    if hidden is not None:
        members = [replace(each, digest=None if hidden == "none" else hidden) for each in members]
    counts = st.dictionaries(st.sampled_from(["app-g-repartition", "app-a-repartition"]), st.just(7), max_size=2)
    versions = draw(st.sampled_from([(), KNOWN, (KNOWN[0]._replace(has_taken_over=False), KNOWN[1])]))
    return replace(
        group(*members, epoch=draw(st.sampled_from([None, 0, 1, 2])), versions=versions),
        kind=draw(st.sampled_from(["streams", "classic"])),
        state=draw(st.sampled_from(["Stable", "PreparingRebalance", "NotReady"])),
        why=draw(st.sampled_from(["", SETBACKS, WRITTEN, rolled_back(0)])),
        left=draw(counts),
        only_later_reads=draw(counts),
        later_values=draw(st.sampled_from([{}, {LOG: 2}])),
    )


@given(groups())
@example(group(replace(member("a", 0), digest=None)))
def test_no_rollback_is_advised_that_would_be_refused(facts: GroupFacts) -> None:
    advised = [
        each for each in status(facts).advice if "upgrade abort" in each and "as after upgrade abort" not in each
    ]
    former = former_version(facts)
    if not advised:
        return
    assert former is not None, "there is something to go back to"
    assert all(each.digest is not None for each in former.members)
    match way_back(facts, former):
        case None:
            pass
        case "records":
            assert all("--lose-in-flight" in each for each in advised)
        case refused:
            pytest.fail(f"{refused}: {advised}")


@pytest.mark.parametrize("kind", ["streams", "classic"])
def test_what_only_later_versions_read_is_known_in_both_protocols(kind: Any) -> None:
    reads = [frozenset({"in", "app-a-repartition"}), frozenset({"in", "app-a-repartition", "app-g-repartition"})]
    members = [member(str(epoch), epoch, reads=topics) for epoch, topics in enumerate(reads)]
    known = tuple(KnownVersion(epoch, topics - {"in"}) for epoch, topics in reversed(list(enumerate(reads))))
    facts = replace(group(*members, versions=known if kind == "streams" else ()), kind=kind)
    former = former_version(facts)
    assert former is not None
    assert only_later_topics(facts, former) == {"app-g-repartition"}


def test_a_version_that_was_sent_back_counts_no_more() -> None:
    own, sent_back, later = (frozenset({f"app-{name}-repartition"}) for name in "abc")
    versions = (KnownVersion(2, later), KnownVersion(1, sent_back, is_sent_back=True), KnownVersion(0, own))
    facts = group(member("0", 0), member("2", 2), epoch=2, versions=versions)
    former = FormerVersion(0, facts.with_epoch(0), facts.with_epoch(2))
    assert only_later_topics(facts, former) == topics_of_later(facts, 0, own, ()) == later


@pytest.mark.parametrize(
    ("newest", "is_same", "is_back"),
    [
        ({"digest": "new"}, False, False),
        ({"digest": "old"}, True, True),
        # Of a broker of an earlier release, which compares topics.
        ({}, True, False),
    ],
)
def test_equal_topics_alone_do_not_tell_a_rollback(newest: dict[str, str], is_same: bool, is_back: bool) -> None:
    known: dict[str, Any] = {"repartition_topics": [], "is_sent_back": False, "has_taken_over": False}
    digest = {"digest": "old"} if newest else {}
    told = [{"epoch": 1, "is_same": False, **newest}, {"epoch": 0, "is_same": is_same, **digest}]
    described = StreamsGroupDescribeResponse.DescribedGroup(
        group_id="app",
        group_state="Stable",
        topology=StreamsGroupDescribeResponse.Topology(epoch=1, subtopologies=[]),
        members=[],
        unknown_tags={VERSIONS_TAG: json.dumps([{**known, **each} for each in told]).encode()},
    )
    facts = facts_of(cast("Administering", None), described)
    found = status(replace(facts, members=(member("a", 0, ("s", 0)),)))
    (advice,) = found.advice
    assert advice.startswith("the group was rolled back" if is_back else "no instance runs topology epoch 1, and")
    assert (ABORT in advice) is not is_back


def test_a_version_that_fails_says_first_that_the_old_instances_go_on() -> None:
    rolling = group(member("a", 0, ("s", 0)), member("b", 1))
    said = advice_to_failing(rolling, 1)
    assert said.startswith(
        "the new version, topology epoch 1, has failed during an upgrade. 1 instance with topology epoch 0 can go on"
    )
    assert f"start it again (topology.epoch=1 if its topology stays the same, else 2); to roll back: {ABORT}" in said
    assert "there is no way back" in advice_to_failing(group(*ROLLING, later_values={LOG: 2}), 1)
    assert advice_to_failing(rolling, 0) == "", "what the old version can't process is no matter of the upgrade"
    assert advice_to_failing(group(member("b", 1)), 1) == ""
    unknown = replace(group(member("a", None), member("b", None)), kind="classic", state="PreparingRebalance")
    assert "see what to do with streamsrt upgrade status --group app" in advice_to_failing(unknown, 1)


def test_nothing_is_kept_of_members_that_are_gone() -> None:
    """A console looks at a group for weeks, and instances that start again are other members."""
    watch = UpgradeWatch()
    for number in range(50):
        for offset in (1, 2):
            watch.status(group(member(f"m{number}", 1, **warming(offset, 9))), 2.0 * number + offset)
    tracemalloc.start()
    try:
        for number in range(50, 1_050):
            for offset in (1, 2):
                watch.status(group(member(f"m{number}", 1, **warming(offset, 9))), 2.0 * number + offset)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()
