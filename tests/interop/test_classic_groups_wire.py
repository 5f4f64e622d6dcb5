"""JoinGroup, SyncGroup and what members do meanwhile, request by request: what the classic member rests on, with the same
answers on the bundled broker and on Apache Kafka of several versions."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.interop.classic_members import LONG_MS, NEWEST_JOIN, Group, Member, Transaction, subscription

pytestmark = pytest.mark.system
OWN, JAVA = "own-1", "java"
NONE, REBALANCING, ILLEGAL = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION
SHORT_MS = 1_500


@pytest.fixture
def group(any_version: str) -> Iterator[Group]:
    made = Group(any_version)
    yield made
    made.close()


def own(group: Group, said: bytes = b"") -> dict[str, bytes]:
    return {OWN: subscription(group.id, b"own" + said)}


def java(group: Group) -> dict[str, bytes]:
    return {JAVA: subscription(group.id, b"java")}


def leading(group: Group, session_ms: int = LONG_MS) -> Member:
    """A member alone in its group, which is stable."""
    member = Member(group, own(group), session_ms=session_ms)
    assert member.join().leader == member.id
    assert member.sync(mine=b"A", theirs=b"").assignment == b"A"
    return member


def joining(leader: Member, member: Member) -> None:
    """Both join; the group waits for the leader's assignment then."""
    member.start_join()
    leader.until_rebalancing()
    leader.join()
    assert member.joined().generation_id == leader.generation


def test_the_protocol_that_all_members_have_is_chosen_and_the_better_one_again_when_it_can_be(group: Group) -> None:
    first = Member(group, own(group) | java(group))
    answer = first.join()
    assert (answer.protocol_name, answer.leader, len(answer.members)) == (OWN, first.id, 1)
    first.sync(mine=b"A", theirs=b"")
    second = Member(group, java(group))
    second.start_join()
    first.until_rebalancing()
    answer = first.join()
    assert (answer.protocol_name, answer.leader) == (JAVA, first.id)
    assert [bytes(each.metadata) for each in answer.members] == [java(group)[JAVA]] * 2
    assert (second.joined().protocol_name, second.generation) == (JAVA, first.generation)
    second.start_sync()
    assert first.sync(mine=b"A", theirs=b"B").assignment == b"A"
    assert second.synced().assignment == b"B"
    assert Member(group, own(group)).join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert second.leave() == NONE
    first.until_rebalancing()
    assert first.join().protocol_name == OWN


def test_who_joins_with_the_same_bytes_causes_a_rebalance_if_it_leads(group: Group) -> None:
    leader, follower = leading(group), Member(group, own(group, b" too"))
    joining(leader, follower)
    leader.sync(mine=b"A", theirs=b"B")
    assert follower.sync().assignment == b"B"
    before = leader.generation
    assert (follower.join().generation_id, leader.beat()) == (before, NONE)
    leader.start_join()
    follower.until_rebalancing()
    follower.join()
    assert (leader.joined().generation_id, follower.generation) == (before + 1, before + 1)


def test_the_bytes_of_a_join_whose_answer_was_lost_bring_the_generation_again(group: Group) -> None:
    leader, follower = leading(group), Member(group, own(group, b" too"))
    joining(leader, follower)
    assert (follower.join().generation_id, leader.join().generation_id) == (leader.generation, leader.generation)
    leader.sync(mine=b"A", theirs=b"B")
    assert follower.sync().assignment == b"B"


def test_which_commits_are_taken_in_which_state_of_the_group(group: Group) -> None:
    leader, follower, transaction = leading(group), Member(group, own(group)), Transaction(group)

    def codes(member: Member) -> list[int]:
        return [member.commit(), member.commit(back=1), transaction.commit(member), transaction.commit(member, back=1)]

    assert codes(leader) == [NONE, ILLEGAL, NONE, ILLEGAL]
    assert leader.commit(member_id="somebody") == ErrorCode.UNKNOWN_MEMBER_ID
    follower.start_join()
    leader.until_rebalancing()
    assert codes(leader) == [NONE, ILLEGAL, NONE, ILLEGAL]
    leader.join()
    follower.joined()
    for member in (leader, follower):
        assert codes(member) == [REBALANCING, ILLEGAL, NONE, ILLEGAL]
        assert member.commit(member_id="somebody") == ErrorCode.UNKNOWN_MEMBER_ID
    leader.sync(mine=b"A", theirs=b"B")
    assert follower.sync().assignment == b"B"
    assert codes(follower) == [NONE, ILLEGAL, NONE, ILLEGAL]


def test_nothing_sent_behind_a_join_is_answered_before_it(group: Group) -> None:
    leader, follower = leading(group), Member(group, own(group))
    follower.start_join()
    leader.until_rebalancing()
    sent = follower.rebalancing.send(types.MetadataRequest(topics=[]), 4)
    for _ in range(20):
        assert leader.beat() == REBALANCING
    assert select.select([follower.rebalancing.socket], [], [], 0) == ([], [], [])
    leader.join()
    assert follower.joined().generation_id == leader.generation
    assert follower.rebalancing.receive(sent).brokers


def test_a_leader_that_ends_before_its_assignment_is_followed_by_another(group: Group) -> None:
    leader, follower = leading(group, session_ms=SHORT_MS), Member(group, own(group))
    joining(leader, follower)
    assert follower.sync().error_code == REBALANCING
    answer = follower.join()
    assert (answer.leader, len(answer.members)) == (follower.id, 1)
    assert leader.commit() == ErrorCode.UNKNOWN_MEMBER_ID
    assert follower.sync(mine=b"B", theirs=b"").assignment == b"B"


def test_an_assignment_that_is_too_large_for_a_record_is_refused(group: Group) -> None:
    leader = Member(group, own(group))
    leader.join()
    assert leader.sync(mine=bytes(1_100_000), theirs=b"").error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    leader.join()
    assert leader.sync(mine=b"A", theirs=b"").assignment == b"A"


def test_a_static_member_that_comes_back_gets_what_it_had_and_fences_its_predecessor(group: Group) -> None:
    before = Member(group, own(group), instance="i")
    before.join()
    before.sync(mine=b"A", theirs=b"")
    after = Member(group, own(group, b" changed"), instance="i")
    answer = after.join()
    assert (answer.error_code, answer.generation_id) == (NONE, before.generation)
    if group.version(types.JoinGroupRequest, NEWEST_JOIN) == NEWEST_JOIN:
        assert (answer.leader, answer.skip_assignment, len(answer.members)) == (after.id, True, 1)
    else:
        assert (answer.leader, len(answer.members)) == (before.id, 0)
    assert after.sync().assignment == b"A"
    assert (before.beat(), before.commit()) == (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
    assert before.commit(named=False) == ErrorCode.UNKNOWN_MEMBER_ID
    assert (after.commit(), after.commit(named=False)) == (NONE, NONE)
    assert after.join().generation_id == before.generation + 1


def test_a_static_member_that_is_away_is_waited_for_until_its_session_ends(group: Group) -> None:
    away = Member(group, own(group), instance="i", session_ms=SHORT_MS)
    away.join()
    away.sync(mine=b"A", theirs=b"")
    answer = Member(group, own(group)).join()
    assert (answer.generation_id, len(answer.members)) == (away.generation + 1, 1)


def test_a_static_member_that_does_not_join_stays_with_what_it_said_last(group: Group) -> None:
    away = Member(group, own(group, b" of then"), instance="i", rebalance_ms=SHORT_MS)
    away.join()
    away.sync(mine=b"A", theirs=b"")
    other = Member(group, own(group), rebalance_ms=SHORT_MS)
    answer = other.join()
    assert (answer.generation_id, answer.leader) == (away.generation + 1, other.id)
    said = {each.group_instance_id: bytes(each.metadata) for each in answer.members}
    assert said == {"i": own(group, b" of then")[OWN], None: own(group)[OWN]}
    assert away.beat() == ILLEGAL


def test_what_members_say_and_are_told_is_described_while_the_group_is_stable(group: Group) -> None:
    leader, follower = leading(group), Member(group, own(group, b" too"))

    def described() -> tuple[str, str, set[tuple[bytes, bytes]]]:
        found = group.describe()
        members = {(bytes(each.member_metadata), bytes(each.member_assignment)) for each in found.members}
        return found.group_state, found.protocol_data, members

    assert described() == ("Stable", OWN, {(own(group)[OWN], b"A")})
    joining(leader, follower)
    state, protocol, members = described()
    assert (state, protocol, {said for said, _ in members}) == ("CompletingRebalance", "", {b""})
    leader.sync(mine=b"A", theirs=b"B")
    assert follower.sync().assignment == b"B"
    assert described() == ("Stable", OWN, {(own(group)[OWN], b"A"), (own(group, b" too")[OWN], b"B")})
