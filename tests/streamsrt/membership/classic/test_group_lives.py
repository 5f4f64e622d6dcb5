"""Random lives of classic groups with the real leader: no partition is processed twice, and everything runs in the end."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamsrt.membership.classic.state import ClassicMemberState
from streamsrt.membership.values import RequestShutdown
from tests.streamsrt.membership.classic.group_model import VERSIONS, GroupModel
from tests.streamsrt.membership.classic.life import live

pytestmark = pytest.mark.matrix


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
@example(seed=1)
@example(seed=3)
@example(seed=34)
@example(seed=105)
@example(seed=194)
@example(seed=3248)
@example(seed=5006)
@example(seed=2274111)
def test_whatever_happens_no_partition_is_processed_twice_and_the_group_settles(seed: int) -> None:
    live(Random(seed))


@pytest.mark.parametrize("epoch", range(len(VERSIONS) - 1))
@pytest.mark.parametrize("leader_goes_first", [True, False])
def test_a_rolling_update_ends_with_all_tasks_of_the_new_version(epoch: int, leader_goes_first: bool) -> None:
    random = Random(epoch)
    model = GroupModel()
    for process in ("01", "02", "03"):
        model.start(VERSIONS[epoch][0], process)
    model.calm(random)
    for player in sorted(model.players.values(), key=lambda p: p.member_id, reverse=not leader_goes_first):
        model.leave(player)
        model.start(VERSIONS[epoch + 1][0], player.process)
        model.calm(random)
    assert {p.version.epoch for p in model.players.values()} == {epoch + 1}
    assert not model.refusals
    model.finish(random)


@pytest.mark.parametrize("epoch", [0, 3, 4])
def test_old_members_go_on_until_a_new_one_is_warm_and_get_their_tasks_back_when_it_is_gone(epoch: int) -> None:
    random = Random(epoch)
    model = GroupModel(warmups=2)
    old = [model.start(VERSIONS[epoch][0], process) for process in ("01", "02")]
    model.calm(random)
    had = {task for player in old for task in player.open.active}
    new = model.start(VERSIONS[epoch + 1][0], "03")
    model.calm(random)
    stateful = {part.id for part in VERSIONS[epoch + 1][0].value.subtopologies if part.is_stateful}
    assert {task for task in new.open.active if task[0] in stateful}
    assert not {task for task in new.opened_cold if task[0] in stateful}
    model.finish(random)
    model.kill(new)
    model.finish(random)
    assert {task for player in old for task in player.open.active} == had


def test_the_members_of_two_digests_of_one_epoch_end_up_with_one() -> None:
    model = GroupModel()
    for process, variant in (("01", 0), ("02", 1), ("03", 0), ("04", 1)):
        model.start(VERSIONS[1][variant], process)
    model.finish(Random(0))
    assert len({p.version.digest for p in model.players.values()}) == 1
    assert [code for _, _, code in model.refusals] == [131, 131]


def test_a_version_that_is_taken_back_is_fenced_and_its_text_runs_as_the_next_epoch() -> None:
    random = Random(0)
    model = GroupModel()
    # Epochs 3 and 5 have the same topology.
    for process in ("01", "02"):
        model.start(VERSIONS[4][0], process)
    model.calm(random)
    model.start(VERSIONS[3][0], "03")
    model.calm(random)
    assert [(epoch, code) for _, epoch, code in model.refusals] == [(3, 132)]
    for player in list(model.players.values()):
        model.leave(player)
        model.start(VERSIONS[5][0], player.process)
        model.calm(random)
    assert len(model.refusals) == 1
    model.finish(random)


def test_a_stale_member_that_is_alone_has_all_of_its_tasks() -> None:
    random = Random(0)
    # Without warm-up tasks changed subtopologies go over at once.
    model = GroupModel(warmups=0)
    old = model.start(VERSIONS[0][0], "01")
    model.calm(random)
    new = model.start(VERSIONS[1][0], "02")
    for _ in range(200):
        # Until the group has taken the new version, of whose death nobody knows then.
        model.act(old)
        model.act(new)
        model.broker.complete(timeout=False)
        if old.echo is not None and old.echo.group_epoch == 1:
            break
    has = old.open
    assert old.told != has, "it has been told to let go of what is another task now, and has not done so yet"
    model.kill(new)
    model.calm(random)
    assert old.told == has
    model.kill(old)
    model.start(VERSIONS[1][0], "01")
    model.finish(random)


@pytest.mark.parametrize("leader_is_new", [True, False])
def test_what_a_static_member_runs_that_missed_a_generation_is_given_to_nobody(leader_is_new: bool) -> None:
    random = Random(0)
    model = GroupModel()
    leader = model.start(VERSIONS[0][0], "01")
    slow = model.start(VERSIONS[0][0], "02", "i")
    model.calm(random)
    has = slow.open
    assert has.active
    if leader_is_new:
        model.kill(leader)
        model.session_ends(leader.member_id)
    newcomer = model.start(VERSIONS[0][0], "00")
    others = [player for player in model.players.values() if player is not slow]
    generation = model.broker.generation
    for _ in range(40):
        # The static member's network stands still; its thread goes on.
        for player in others:
            model.act(player)
            model.thread_acts(player, random)
            model.check()
        entries = model.broker.members
        all_others_joined = all(entries[p.member_id].joined for p in others if p.member_id in entries)
        if model.broker.generation == generation and len(entries) > len(others) and all_others_joined:
            model.broker.complete(timeout=True)
    assert model.broker.generation == generation + 1
    assert slow.open == has
    assert not any(player.told.active & has.active for player in others)
    assert newcomer.session.synced_generation == generation + 1
    model.finish(random)


@pytest.mark.parametrize("is_static", [False, True])
def test_everybody_hears_of_a_shutdown_though_the_member_that_wants_it_left_before_all_had_synced(
    is_static: bool,
) -> None:
    random = Random(0)
    model = GroupModel()
    failed, other, slow = (
        model.start(VERSIONS[0][0], process, f"i{process}" if is_static else None) for process in ("01", "02", "03")
    )
    model.calm(random)
    generation = model.broker.generation
    model.feed(failed, RequestShutdown())
    for _ in range(40):
        for player in list(model.players.values()):
            # The network of one stands still between its JoinGroup and its SyncGroup.
            if player is not slow or slow.session.group is not ClassicMemberState.SYNCING:
                model.act(player)
            if player is not slow:
                model.thread_acts(player, random)
        model.broker.complete(timeout=False)
        if failed.name not in model.players:
            break
    assert slow.session.group is ClassicMemberState.SYNCING
    assert (slow.session.generation, slow.session.shutdown_received) == (generation + 1, False)
    assert other.name in model.players
    model.calm(random)
    assert not model.players
    assert not model.broker.members, "what a static member has said of the shutdown is forgotten"
