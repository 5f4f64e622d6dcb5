"""Why a group was assigned anew and what moved: in the log of the broker, in heartbeats, in what describes a group."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from coordinator.shard.rebalance_reasons import KEPT
from streamsrt.wire import types
from streamsrt.wire.messages import decode, encode
from streamsrt.wire.private_tags import REBALANCES_TAG, WHY_ASSIGNED_TAG
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from tests.coordinator.group.transcript import GROUP, Run

SETTINGS = "broker group.streams.initial.rebalance.delay.ms=0 group.streams.assignment.interval.ms=0\n"
STATELESS = SETTINGS + "topic in 2\ntopology t\n  0: source=in\n"
STATEFUL = SETTINGS + "topic in 2\ntopic app-log 2\ntopology t\n  0: source=in changelog=app-log\n"


def played(*texts: str) -> Run:
    run = Run()
    run.play("".join(texts))
    return run


def rebalances(run: Run) -> list[dict[str, Any]]:
    """What StreamsGroupDescribe tells of the group."""
    response, _ = run.ask(types.StreamsGroupDescribeRequest(group_ids=[GROUP]))
    (group,) = response.groups
    told: list[dict[str, Any]] = json.loads((group.unknown_tags or {})[REBALANCES_TAG])
    return told


def reasons(run: Run) -> list[list[str]]:
    return [each["reasons"] for each in rebalances(run)]


TWO = "a join t\nb join t endpoint=h:9\n"
WHO_A, WHO_B = "member id-a (127.0.0.1)", "member id-b (h:9)"


def test_who_joined_and_which_tasks_moved_from_whom_to_whom() -> None:
    first, second = rebalances(played(STATELESS, "@5 a join t\n@7 b join t endpoint=h:9\n"))
    assert first == {
        "epoch": 2,
        "at_ms": 5,
        "reasons": [f"{WHO_A} joined"],
        "moves": ["0_0: nobody -> id-a (127.0.0.1)", "0_1: nobody -> id-a (127.0.0.1)"],
    }
    assert (second["epoch"], second["at_ms"], second["reasons"]) == (3, 7, [f"{WHO_B} joined"])
    (move,) = second["moves"]
    assert move.endswith(": id-a (127.0.0.1) -> id-b (h:9)")


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        ("a leave\nb beat\n", f"{WHO_A} left"),
        ("a leave shutdown\nb beat\n", f"{WHO_A} failed, and asked the whole application to stop"),
        ("time 40000\nb beat\ntime 50000\nb beat\n", f"{WHO_A} is gone: no heartbeat within its session timeout"),
        ("a beat process=other\n", f"{WHO_A} changed its process"),
        ("topic in 3\na beat\n", "topic in has 3 partitions now (it had 2)"),
        ("topic in gone\na beat\n", "the topics do not fit the topology: Source topics in are missing."),
        (
            "config streams.num.standby.replicas=1\na beat\n",
            "setting num.standby.replicas is 1 (it was 0)",
        ),
        ("topic in gone\na beat\ntopic in 2\na beat\n", "all topics exist and fit the topology now"),
        ("topology u epoch=1\n  0: source=in\na join u\n", "the topology was updated to epoch 1"),
    ],
)
def test_why_a_group_was_assigned_anew(commands: str, why: str) -> None:
    assert why in reasons(played(STATELESS, TWO, commands))[-1]


def test_a_member_that_keeps_its_tasks_too_long_is_named() -> None:
    run = played(
        STATELESS, "a join t timeout=5000\nb join t endpoint=h:9\n", "a beat own=given\n", "time 6000\nb beat\n"
    )
    assert reasons(run)[-1] == [f"{WHO_A} is removed: it did not give tasks back within its rebalance timeout"]


def test_a_task_moves_once_it_has_warmed_up() -> None:
    warming = "a join t offsets=0:0@9/9,0:1@90000/90000\na beat own=given\nb join t endpoint=h:9 offsets=none\n"
    run = played(STATEFUL, warming)
    (move,) = rebalances(run)[-1]["moves"]
    task = move.split()[0]
    assert move == f"{task} warms up at id-b (h:9)"
    run.play(f"b beat own=given offsets={task.replace('_', ':')}@90000\n")
    last = rebalances(run)[-1]
    assert last["reasons"] == [f"a warm-up task of {WHO_B} has caught up"]
    assert last["moves"] == [f"{task}: id-a (127.0.0.1) -> id-b (h:9), where it has warmed up"]


def test_several_reasons_for_one_assignment() -> None:
    run = played(STATELESS, TWO, "c join t\n", "c leave\na leave\nb beat\n")
    assert reasons(run)[-1] == ["member id-c (127.0.0.1) left", f"{WHO_A} left"]


def beat(run: Run, name: str, epoch: int) -> str | None:
    owned = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    response, _ = run.ask(Heartbeat(group_id=GROUP, member_id=f"id-{name}", member_epoch=epoch, **owned))
    told = (response.unknown_tags or {}).get(WHY_ASSIGNED_TAG)
    return None if told is None else told.decode()


def test_a_member_hears_why_with_its_tasks() -> None:
    run = played(STATELESS, "a join t\na beat own=given\n")
    run.play("b join t endpoint=h:9\nc join t\n")
    # Both have joined since its last heartbeat.
    assert beat(run, "a", 2) == f"{WHO_B} joined; member id-c (127.0.0.1) joined"


def test_a_member_hears_why_it_has_to_give_a_task_back() -> None:
    run = played(STATELESS, "a join t\na beat own=given\nb join t endpoint=h:9\n")
    response, _ = run.ask(Heartbeat(group_id=GROUP, member_id="id-a", member_epoch=2))
    assert (response.member_epoch, len(response.active_tasks[0].partitions)) == (2, 1)
    assert response.unknown_tags == {WHY_ASSIGNED_TAG: f"{WHO_B} joined".encode()}


def test_an_answer_without_tasks_says_nothing() -> None:
    run = played(STATELESS, "a join t\n")
    response, _ = run.ask(Heartbeat(group_id=GROUP, member_id="id-a", member_epoch=2))
    assert (response.active_tasks, response.unknown_tags) == (None, None)


def test_one_line_in_the_log_for_each_assignment(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coordinator.groups")
    many = SETTINGS + "topic in 40\ntopology t\n  0: source=in\n"
    played(many, "a join t\na beat own=given\na leave\n")
    first, last = caplog.messages
    assert first.startswith(f"group app: reassigned (epoch 2): {WHO_A} joined; 0_0: nobody -> id-a (127.0.0.1), ")
    assert first.endswith(", and 30 more")
    assert last == f"group app: no member is left: {WHO_A} left"


def test_nothing_is_known_of_what_was_before_a_restart() -> None:
    run = played(STATELESS, "time 10\n", TWO, "config streams.assignment.interval.ms=1000\nc join t\nrestart\n")
    response, _ = run.ask(types.StreamsGroupDescribeRequest(group_ids=[GROUP]))
    assert response.groups[0].unknown_tags is None
    run.play("time 2000\na beat\n")
    assert reasons(run) == [["what happened before this coordinator took over"]]


def test_the_latest_are_kept() -> None:
    run = played(STATELESS, "a join t\n", "".join(f"m{number} join t\n" for number in range(KEPT + 2)))
    kept = rebalances(run)
    assert (len(kept), kept[-1]["epoch"]) == (KEPT, KEPT + 4)


def test_what_is_told_travels_beside_kafkas_message() -> None:
    """A reader that does not know the tags sees Kafka's message."""
    run = played(STATELESS, "a join t\n")
    response, _ = run.ask(types.StreamsGroupDescribeRequest(group_ids=[GROUP]))
    again = decode(types.StreamsGroupDescribeResponse, 0, encode(response, 0))
    (before,), (after,) = response.groups, again.groups
    assert after.unknown_tags == before.unknown_tags != {}
    assert (after.group_epoch, after.members) == (before.group_epoch, before.members)
