"""What a leader makes of what its members say: one generation at a time, on the bytes that travel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.version_backoff import FORGOTTEN_AFTER_MS
from streamsrt.membership.classic import leading
from streamsrt.membership.classic.layout import decode_assignment, encode_assignment, encode_subscription
from streamsrt.membership.classic.leader_assignments import LeaderOutcome, LeaderSettings
from streamsrt.membership.classic.leading import Effect, Event, LeadingStep
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription, Echo, Joined, echo_of
from streamsrt.membership.classic.view import Memory
from streamsrt.membership.session_events import Tick
from streamsrt.membership.values import NOTHING, Status, Task, Tasks
from streamsrt.wire.client_tags import LOSE_IN_FLIGHT, TOPOLOGY_DIGEST
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.classic.group_model import END, Cluster, Version

# 1 -> 2: subtopology a goes on as it is, b reads u in the one and u and v in the other.
OLD = Version.of(1, "a: source=t changelog=c", "b: source=u")
NEW = Version.of(2, "a: source=t changelog=c", "b: source=u,v changelog=d")
OTHER = Version.of(2, "a: source=t changelog=c", "b: source=u,w")
LATER = Version.of(3, "a: source=t changelog=c")
NOW_MS = 5_000


def tasks(text: str) -> Tasks:
    """``"A a0 a1 S b0 W b1"``"""
    roles: dict[str, set[Task]] = {"A": set(), "S": set(), "W": set()}
    role = "A"
    for word in text.split():
        if word in roles:
            role = word
        else:
            roles[role].add((word[:-1], int(word[-1])))
    return Tasks(*(frozenset(roles[each]) for each in "ASW"))


@dataclass
class Member:
    """A member that remembers what it was told."""

    name: str
    version: Version = OLD
    process: str = ""
    instance_id: str | None = None
    held: Tasks = NOTHING
    echo: Echo | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def joined(self) -> Joined:
        said = ClassicSubscription(
            process_id=f"00000000-0000-0000-0000-{self.process or self.name:0>12}".replace("m", "a"),
            topology_epoch=self.version.epoch,
            topology_digest=self.version.digest,
            held=self.held,
            echo=self.echo,
            **self.extra,
        )
        return Joined(self.name, self.instance_id, encode_subscription(said))

    def hears(self, told: ClassicAssignment) -> None:
        """Opens and closes what it is told, and forgets what it had to say once."""
        self.held = told.tasks
        if told.group_epoch >= 0:
            self.echo = echo_of(told, told.generation)
        self.extra = {"awaits": told.awaits} | ({"topology": self.version.wire} if told.send_topology else {})


class Group:
    """Members, generation by generation."""

    def __init__(self, *members: Member, leader: str = "", **settings: Any) -> None:
        self.members = {member.name: member for member in members}
        self.settings = LeaderSettings(group_id="app", **settings)
        self.cluster = Cluster()
        self.leader = leader or members[0].name
        self.memories: dict[str, Memory] = {}
        self.generation = 0
        self.effects: list[Effect] = []
        self.now_ms, self.takes_ms = NOW_MS, 15_000

    def lead(self, *, answers: Mapping[type, Event] | None = None) -> LeaderOutcome:
        """The next generation as its leader makes it; nobody has heard of it yet. ``answers``: instead of the cluster's."""
        self.generation += 1
        step = self.begin(self.leader, [member.joined() for member in self.members.values()])
        self.effects = []
        while step.outcome is None:
            assert step.effect is not None
            self.effects.append(step.effect)
            event = (answers or {}).get(type(step.effect)) or self.cluster.answer(step.effect)
            step = leading.step(step.leading, event, self.now_ms + self.takes_ms)
        self.memories[self.leader] = step.outcome.memory
        return step.outcome

    def begin(self, leader: str, joined: list[Joined]) -> LeadingStep:
        version = self.members[leader].version
        memory = self.memories.get(leader) or Memory(texts={version.digest: version.wire})
        return leading.begin(
            self.generation, joined, memory=memory, settings=self.settings, leader_id=leader, now_ms=self.now_ms
        )

    def round(self, **arguments: Any) -> dict[str, ClassicAssignment]:
        """A generation of which everybody hears."""
        told = read(self.lead(**arguments))
        for name, each in told.items():
            self.members[name].hears(each)
        return told


def read(outcome: LeaderOutcome) -> dict[str, ClassicAssignment]:
    return dict(_read(outcome))


def _read(outcome: LeaderOutcome) -> Iterator[tuple[str, ClassicAssignment]]:
    for name, data in outcome.assignments.items():
        told = decode_assignment(data)
        assert isinstance(told, ClassicAssignment)
        yield name, told


def codes(told: ClassicAssignment) -> list[int]:
    return [int(status.code) for status in told.statuses]


def detail(told: ClassicAssignment, code: StatusCode) -> str:
    (found,) = [status.detail for status in told.statuses if isinstance(status, Status) and status.code is code]
    return found


def settled(*members: Member, **arguments: Any) -> Group:
    group = Group(*members, **arguments)
    for _ in range(4):
        group.round()
    return group


# ------------------------------------------------------------------------------------------------- from what it is said


def test_a_first_generation_creates_the_topics_and_spreads_the_tasks() -> None:
    group = Group(Member("m1"), Member("m2"))
    told = group.round()
    assert [type(effect).__name__ for effect in group.effects] == ["ListTopics", "CreateTopics", "ListTopics"]
    assert group.cluster.topics["c"] == 3
    assert told["m1"].tasks.active | told["m2"].tasks.active == tasks("a0 a1 a2 b0 b1 b2").active
    assert (told["m1"].group_epoch, told["m1"].group_digest) == (1, OLD.digest)
    assert told["m1"].assigned_partitions == {
        ("t" if name == "a" else "u", partition) for name, partition in told["m1"].tasks.active
    }


@pytest.mark.parametrize("newcomer", [Member("m4"), Member("m4", NEW)])
def test_the_same_is_said_whoever_leads_and_in_whatever_order(newcomer: Member) -> None:
    group = settled(Member("m1"), Member("m2"), Member("m3"), num_standby_replicas=1)
    group.members["m4"] = newcomer
    group.generation += 1
    group.memories = {}
    for member in group.members.values():
        member.extra = {"topology": member.version.wire}
    made = set()
    for joined in permutations([member.joined() for member in group.members.values()]):
        for leader in group.members:
            step = group.begin(leader, list(joined))
            while step.outcome is None:
                assert step.effect is not None
                step = leading.step(step.leading, group.cluster.answer(step.effect), NOW_MS)
            # Only the leader is told when to look again.
            told = {name: replace(each, rejoin_after_ms=None) for name, each in read(step.outcome).items()}
            made.add(tuple(sorted((name, encode_assignment(each)) for name, each in told.items())))
    assert len(made) == 1


def test_a_generation_without_a_reason_moves_nothing() -> None:
    group = settled(Member("m1"), Member("m2"), Member("m3"), num_standby_replicas=1)
    before = {name: member.held for name, member in group.members.items()}
    group.leader = "m3"
    assert {name: told.tasks for name, told in group.round().items()} == before


def test_who_cannot_be_read_is_refused_and_stops_nobody() -> None:
    group = Group(Member("m1"))
    group.generation += 1
    step = group.begin("m1", [group.members["m1"].joined(), Joined("m2", None, b"\x00\x03what")])
    while step.outcome is None:
        assert step.effect is not None
        step = leading.step(step.leading, group.cluster.answer(step.effect), NOW_MS)
    told = read(step.outcome)
    assert len(told["m1"].tasks.active) == 6
    assert told["m2"].error_code == ErrorCode.INVALID_REQUEST
    assert "m1, which leads the group, can't read" in (told["m2"].error_text or "")
    assert "the subscription of member m2 can't be read" in step.outcome.warnings[0]


def test_a_member_that_wants_everything_to_stop_is_named_to_all() -> None:
    group = settled(Member("m1"), Member("m2"))
    group.members["m2"].extra = {"requests_shutdown": True}
    for told in group.round().values():
        assert detail(told, StatusCode.SHUTDOWN_APPLICATION).startswith("Streams group member m2 encountered a fatal")


def test_a_shutdown_is_passed_on_when_the_member_that_wants_it_has_left() -> None:
    group = settled(Member("m1"), Member("m2"))
    group.members["m2"].extra = {"shutdown_received": True}
    for told in group.round().values():
        assert detail(told, StatusCode.SHUTDOWN_APPLICATION).endswith("as m2 reports.")


def test_missing_client_tags_are_told() -> None:
    told = Group(Member("m1", extra={"client_tags": {"zone": "a"}}), Member("m2"), rack_tags=("zone",)).round()
    assert codes(told["m1"]) == []
    assert "[zone]" in detail(told["m2"], StatusCode.MISSING_CLIENT_TAGS)


def test_of_two_claims_the_one_that_was_given_later_stays() -> None:
    one = Member("m1", held=tasks("a0 a1"), echo=Echo(7, 1, OLD.digest, tasks("a0 a1")))
    two = Member("m2", held=tasks("a1 a2"), echo=Echo(8, 1, OLD.digest, tasks("a1 a2")))
    group = Group(one, two)
    group.generation = 8
    outcome = group.lead()
    told = read(outcome)
    assert ("a", 1) in told["m2"].tasks.active
    assert ("a", 1) not in told["m1"].tasks.active
    assert "a_1 at m1" in outcome.warnings[0]


def test_two_claims_of_the_same_age_are_both_let_go() -> None:
    both = [Member(name, held=tasks("a1"), echo=Echo(8, 1, OLD.digest, tasks("a1"))) for name in ("m1", "m2")]
    group = Group(*both)
    group.generation = 8
    assert not any(("a", 1) in told.tasks.active for told in read(group.lead()).values())


# ---------------------------------------------------------------------------------------------------------- versions


def test_an_update_that_an_old_member_leads() -> None:
    group = settled(Member("m1"), Member("m2"))
    group.members["m2"] = Member("m3", NEW)
    group.members = {member.name: member for member in group.members.values()}
    told = group.round()
    assert told["m1"].tasks == tasks("a0 a1 a2 b0 b1 b2"), "until the text is there the group goes on as it is"
    assert told["m3"].send_topology
    assert not told["m3"].tasks
    assert (told["m3"].group_epoch, codes(told["m3"])) == (1, [StatusCode.ASSIGNMENT_DELAYED])
    told = group.round()
    assert (told["m1"].group_epoch, told["m1"].group_digest) == (2, NEW.digest)
    assert told["m1"].tasks == tasks("a0 a1 a2 b0 b1 b2"), "nobody is warm: the old member runs all of it"
    assert codes(told["m1"]) == [StatusCode.STALE_TOPOLOGY]
    assert told["m3"].tasks == tasks("W a2 b0")
    assert told["m1"].rejoin_after_ms == group.settings.probing_interval_ms
    group.members["m3"].extra = {"offsets": {("b", 0): END - 5, ("b", 1): END - 20_000}}
    told = group.round()
    assert told["m1"].tasks == tasks("a0 a1 a2 b1 b2")
    assert told["m3"].tasks == tasks("W a2 b0 b1"), "m1 still reads b's partition of u"
    assert told["m3"].target == tasks("A b0 W a2 b1")
    told = group.round()
    assert told["m3"].tasks == tasks("A b0 W a2 b1")
    for task in (("b", 1), ("a", 2)):
        group.members["m3"].extra = {"offsets": {task: END - 5}}
        for _ in range(2):
            told = group.round()
    assert told["m1"].tasks == tasks("a0 a1 b2"), "its share"
    assert told["m3"].tasks == tasks("a2 b0 b1")
    del group.members["m1"]
    group.members["m4"] = Member("m4", NEW)
    group.leader = "m3"
    for _ in range(4):
        told = group.round()
    assert told["m3"].tasks.active | told["m4"].tasks.active == tasks("a0 a1 a2 b0 b1 b2").active
    assert told["m4"].tasks == tasks("a0 a1 b2"), "what m1 had nobody has"


def test_a_static_member_has_its_tasks_kept_until_its_new_version_is_known() -> None:
    group = settled(Member("m1"), Member("m2", instance_id="i2"))
    before = group.members["m1"].held
    del group.members["m2"]
    group.members["m3"] = Member("m3", NEW, instance_id="i2")
    told = group.round()
    assert told["m1"].tasks == before
    assert told["m3"].send_topology


def test_while_a_version_is_unknown_the_others_have_all_tasks_of_theirs() -> None:
    """Whoever is asked for it may be dead: its session begins when the generation does."""
    group = settled(Member("m1"), Member("m2"))
    del group.members["m2"]
    group.members |= {name: Member(name, NEW) for name in ("m3", "m4")}
    told = group.round()
    assert told["m1"].tasks == tasks("a0 a1 a2 b0 b1 b2")
    assert [told[name].send_topology for name in ("m3", "m4")] == [True, False]
    for name in ("m3", "m4"):
        assert told[name].group_epoch == 1
        assert told[name].statuses[0].detail.startswith("Waiting for a member to send the topology of another version")


def test_what_only_the_new_version_ran_goes_back_to_the_old_one_when_its_members_are_gone() -> None:
    group = settled(Member("m1"), Member("m2"))
    group.members["m3"] = Member("m3", NEW, extra={"topology": NEW.wire})
    group.round()
    group.members["m3"].extra = {"offsets": {("b", n): END for n in range(3)}}
    for _ in range(3):
        told = group.round()
    assert told["m3"].tasks.active & tasks("b0 b1 b2").active
    del group.members["m3"]
    told = group.round()
    assert told["m1"].tasks.active | told["m2"].tasks.active == tasks("a0 a1 a2 b0 b1 b2").active
    assert {each.group_epoch for each in told.values()} == {2}, "the group's version stays"
    assert codes(told["m1"]) == [StatusCode.STALE_TOPOLOGY]


def test_what_another_version_reports_of_a_subtopology_with_the_same_id_says_nothing() -> None:
    group = settled(Member("m1"))
    group.members["m3"] = Member("m3", NEW, extra={"topology": NEW.wire})
    group.round()
    group.members["m1"].extra = {"offsets": {("b", 0): 7}, "end_offsets": {("b", 0): 7}}
    group.members["m3"].extra = {"offsets": {("b", 0): 7}}
    told = group.round()
    assert leading.EndOffsets(frozenset({("d", 0)})) in group.effects
    assert ("b", 0) in told["m1"].tasks.active


def test_an_old_version_of_which_nobody_sent_the_topology_is_asked_for_whoever_leads() -> None:
    old = Member("m1", OLD, echo=Echo(5, 2, NEW.digest, NOTHING))
    new = Member("m2", NEW, held=tasks("a1"), echo=Echo(5, 2, NEW.digest, tasks("a1")), extra={"topology": NEW.wire})
    for leader, asked in (("m1", False), ("m2", True)):
        group = Group(old, new, leader=leader)
        group.generation = 5
        assert read(group.lead())["m1"].send_topology is asked


def test_of_two_old_versions_with_one_epoch_one_goes_on() -> None:
    texts = {"topology": OLD.wire}
    twin = Version.of(1, "a: source=t changelog=c", "b: source=w")
    one = Member("m1", OLD, held=tasks("b0"), echo=Echo(5, 2, NEW.digest, tasks("b0")), extra=texts)
    two = Member("m2", twin, held=tasks("b1"), echo=Echo(4, 2, NEW.digest, tasks("b1")), extra={"topology": twin.wire})
    group = Group(one, two, Member("m3", NEW, extra={"topology": NEW.wire}))
    group.generation = 5
    for _ in range(3):
        told = group.round()
    assert {("b", 0), ("b", 1), ("b", 2)} <= told["m1"].tasks.active
    assert not told["m2"].tasks


def test_who_cannot_be_part_of_the_group_is_told_why() -> None:
    group = settled(Member("m1", NEW), Member("m2", NEW))
    for newcomer, code, words in (
        (Member("m3", OLD), ErrorCode.STREAMS_TOPOLOGY_FENCED, "Topology epoch 1 is behind the topology epoch 2"),
        (Member("m3", OTHER), ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "Set topology.epoch to 3"),
        (Member("m3", Version.of(4, "a: source=t")), ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "too far ahead"),
    ):
        group.members["m3"] = newcomer
        told = group.round()
        assert told["m3"].error_code == code
        assert words in (told["m3"].error_text or "")
        assert not told["m3"].tasks
        assert told["m1"].tasks.active | told["m2"].tasks.active == tasks("a0 a1 a2 b0 b1 b2").active


def test_the_newest_echo_says_what_the_group_runs() -> None:
    told = tasks("a0")
    stale = Member("m1", OLD, held=told, echo=Echo(5, 2, NEW.digest, told))
    group = Group(stale, Member("m2", OLD), leader="m1")
    group.generation = 5
    heard = group.round()
    assert heard["m2"].error_code == 0, "nobody runs version 2: all of it is back at the old version"
    for _ in range(3):
        heard = group.round()
    assert heard["m1"].tasks.active | heard["m2"].tasks.active == tasks("a0 a1 a2 b0 b1 b2").active
    assert heard["m1"].group_epoch == 2
    assert codes(heard["m1"]) == [StatusCode.STALE_TOPOLOGY]


@pytest.mark.parametrize(
    ("returns", "others_continue", "code"),
    [
        (True, True, 0),
        (False, True, ErrorCode.STREAMS_TOPOLOGY_FENCED),
        (True, False, ErrorCode.STREAMS_TOPOLOGY_FENCED),
    ],
)
def test_a_member_that_lost_its_membership_returns_while_others_continue_with_its_version(
    returns: bool, others_continue: bool, code: int
) -> None:
    told = tasks("a0")
    other = Member("m1", OLD if others_continue else NEW, held=told, echo=Echo(5, 2, NEW.digest, told))
    new = Member("m2", NEW, held=tasks("a1"), echo=Echo(5, 2, NEW.digest, tasks("a1")))
    group = Group(other, new, Member("m3", OLD, extra={"returns": returns}), leader="m2")
    group.generation = 5
    assert group.round()["m3"].error_code == code


def test_an_echo_of_another_life_of_the_group_does_not_count() -> None:
    group = Group(Member("m1", LATER), Member("m2", LATER, echo=Echo(57, 1, OLD.digest, NOTHING)))
    assert {told.group_epoch for told in group.round().values()} == {3}


def test_an_update_whose_source_topics_are_missing_is_refused_and_the_group_goes_on() -> None:
    group = settled(Member("m1"))
    before = group.members["m1"].held
    group.members["m2"] = Member("m2", Version.of(2, "a: source=nowhere"))
    group.round()
    told = group.round()
    assert told["m2"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "can't replace topology epoch 1 of group app, which continues unchanged." in (told["m2"].error_text or "")
    assert "Source topics nowhere are missing" in (told["m2"].error_text or "")
    assert told["m1"].tasks == before
    assert (told["m1"].group_epoch, codes(told["m1"])) == (1, [])


def test_who_has_the_groups_topology_under_an_earlier_epoch_is_told_so() -> None:
    def tags(program: str) -> dict[str, Any]:
        return {"client_tags": {TOPOLOGY_DIGEST: program}}

    group = settled(Member("m1", Version.of(2, "a: source=t changelog=c", "b: source=u")))
    group.members["m1"].extra = tags("same")
    group.members["m2"] = Member("m2", OLD, extra=tags("same"))
    group.members["m3"] = Member("m3", Version.of(1, "a: source=t changelog=c"), extra=tags("other"))
    group.members["m4"] = Member("m4", OLD)
    told = group.round()
    assert {told[name].error_code for name in ("m2", "m3", "m4")} == {int(ErrorCode.STREAMS_TOPOLOGY_FENCED)}
    assert [name for name, each in told.items() if each.is_same_topology] == ["m2"]
    assert "it is the same topology. Set topology.epoch to 2." in (told["m2"].error_text or "")


def test_an_update_whose_topics_may_not_be_made_is_refused() -> None:
    group = settled(Member("m1"))
    group.cluster.refuses = {"d"}
    group.members["m2"] = Member("m2", NEW)
    group.round()
    told = group.round()
    assert told["m2"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert (told["m2"].error_text or "").endswith("Unauthorized to CREATE on topics d.")
    assert len(told["m1"].tasks.active) == 6


def test_an_update_waits_for_topics_that_cannot_be_made_at_the_moment() -> None:
    group = settled(Member("m1"))
    group.members["m2"] = Member("m2", NEW)
    group.round()
    busy = leading.TopicsCreated({"d": (int(ErrorCode.REQUEST_TIMED_OUT), "timed out")})
    told = group.round(answers={leading.CreateTopics: busy})
    assert (told["m2"].error_code, told["m2"].group_epoch) == (0, 1)
    assert "d (timed out)" in detail(told["m2"], StatusCode.MISSING_INTERNAL_TOPICS)
    assert len(told["m1"].tasks.active) == 6
    assert told["m1"].rejoin_after_ms == 1_000
    group.memories["m1"] = Memory(group.memories["m1"].texts)
    assert group.round()["m1"].group_epoch == 2


def test_a_topology_that_breaks_a_rule_is_refused() -> None:
    group = settled(Member("m1"))
    group.members["m2"] = Member("m2", Version.of(2, "a: source=t", "b: source=t"))
    group.round()
    told = group.round()
    assert told["m2"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "Topic t belongs to subtopologies a and b" in (told["m2"].error_text or "")
    assert len(told["m1"].tasks.active) == 6


# ------------------------------------------------------------------------------------------------------------ warm-up


def test_a_task_moves_when_its_state_is_where_it_goes_to() -> None:
    group = Group(Member("m1", Version.of(1, "a: source=t changelog=c")), num_warmup_replicas=3)
    group.round()
    group.members["m2"] = Member("m2", group.members["m1"].version)
    told = group.round()
    assert told["m1"].tasks == tasks("a0 a1 a2")
    ((name, partition),) = told["m2"].tasks.warmup
    assert told["m1"].rejoin_after_ms == group.settings.probing_interval_ms
    assert told["m2"].recovery_lag == 10_000
    moving = (name, partition)
    group.members["m2"].extra = {"offsets": {moving: END - 20_000}}
    told = group.round()
    assert leading.EndOffsets(frozenset({("c", partition)})) in group.effects
    assert told["m2"].tasks.warmup == {moving}, "20,000 records behind"
    group.members["m2"].extra = {"offsets": {moving: END - 5}}
    told = group.round()
    assert moving not in told["m1"].tasks.active
    assert told["m2"].tasks.warmup == {moving}
    assert told["m2"].target.active == {moving}
    told = group.round()
    assert told["m2"].tasks.active == {moving}
    assert not told["m2"].tasks.warmup


def test_what_a_member_reports_an_end_of_is_not_asked_for() -> None:
    version = Version.of(1, "a: source=t changelog=c")
    group = settled(Member("m1", version))
    group.members["m2"] = Member("m2", version, extra={"offsets": {("a", 0): 5}, "end_offsets": {("a", 0): END}})
    group.round()
    assert not [effect for effect in group.effects if isinstance(effect, leading.EndOffsets)]


def test_of_a_source_topic_that_serves_as_changelog_the_committed_offset_counts() -> None:
    version = Version.of(1, "a: source=t changelog=t")
    group = settled(Member("m1", version))
    group.members["m2"] = Member("m2", version, extra={"offsets": {("a", 0): 5}})
    group.round()
    assert leading.EndOffsets(frozenset(), frozenset({("t", 0)})) in group.effects


# ----------------------------------------------------------------------------------------------------- static members


def statics() -> Group:
    return settled(Member("m1", instance_id="i1"), Member("m2", instance_id="i2", process="9"))


def test_a_static_member_that_is_away_keeps_what_this_leader_gave_it() -> None:
    group = Group(Member("m1"), Member("m2", instance_id="i2"))
    away = group.members["m2"]
    told = read(group.lead())
    group.members["m1"].hears(told["m1"])
    assert told["m2"].tasks.active
    assert not away.held
    again = group.round()
    assert again["m2"].tasks == told["m2"].tasks
    assert again["m1"].tasks == told["m1"].tasks
    assert again["m1"].rejoin_after_ms == 15_000


def test_nothing_new_is_given_while_a_static_member_is_in_doubt() -> None:
    group = settled(Member("m1"), Member("m2", instance_id="i2"))
    had = {name: member.held for name, member in group.members.items()}
    absent = group.members["m2"]
    echo = absent.echo
    group.round()
    absent.echo = echo
    group.members["m3"] = Member("m3")
    group.leader = "m3"
    told = group.round()
    assert {name: each.tasks for name, each in told.items()} == {**had, "m3": NOTHING}
    assert "The assignment of m2 is not known" in detail(told["m3"], StatusCode.ASSIGNMENT_DELAYED)
    assert told["m3"].rejoin_after_ms == leading.DOUBT_MS
    absent.echo = echo
    assert not group.round()["m3"].tasks, "still in doubt: it has not joined since"
    absent.extra = {"unique": 5}
    assert group.round()["m3"].target


def test_a_static_member_that_has_joined_is_not_in_doubt() -> None:
    group = statics()
    group.memories = {}
    assert all(told.tasks for told in group.round().values())


def test_a_new_static_member_is_in_doubt_where_the_leader_is_new_too() -> None:
    told_first = Member("m2", instance_id="i2")
    group = Group(Member("m1"), told_first)
    group.generation = 8
    assert not any(told.tasks for told in group.round().values()), "m2 may have been told its tasks in generation 8"
    told_first.extra = {"unique": 2}
    assert all(told.tasks for told in group.round().values())
    group = Group(Member("m1"), Member("m2", instance_id="i2"))
    assert all(told.tasks for told in group.round().values()), "the first generation has none before it"


def test_a_static_member_of_the_same_process_may_have_gone_on() -> None:
    for version, gone_on in ((OLD, True), (NEW, False)):
        group = Group(Member("m1"), Member("m2", instance_id="i2"))
        first = group.round()
        group.memories["m1"] = replace(group.memories["m1"], texts={v.digest: v.wire for v in (OLD, NEW)})
        back = Member("m9", version, instance_id="i2", process="m2")
        group.members = {"m1": group.members["m1"], "m9": back, "m0": Member("m0", version)}
        told = group.round()
        assert bool(told["m0"].tasks.active & first["m2"].tasks.active) is not gone_on


# ----------------------------------------------------------------------------------------------------------- failures


def test_while_topics_can_not_be_listed_everybody_keeps_its_tasks() -> None:
    group = settled(Member("m1"), Member("m2"))
    had = {name: member.held for name, member in group.members.items()}
    group.members["m3"] = Member("m3")
    unknown: Mapping[type, Event] = {leading.ListTopics: leading.TopicsUnknown("no broker answers")}
    told = group.round(answers=unknown)
    assert {name: each.tasks for name, each in told.items()} == {**had, "m3": NOTHING}
    assert told["m1"].rejoin_after_ms == 1_000
    assert "can't list the topics: no broker answers" in detail(told["m3"], StatusCode.ASSIGNMENT_DELAYED)
    assert group.round(answers=unknown)["m1"].rejoin_after_ms == 2_000


@pytest.mark.parametrize("effect", [leading.ListTopics, leading.CreateTopics, leading.EndOffsets])
def test_at_the_deadline_the_leader_goes_on_with_what_it_has(effect: type) -> None:
    group = Group(Member("m1", extra={"offsets": {("a", 0): 5}}))
    told = group.round(answers={effect: Tick()})
    if effect is leading.EndOffsets:
        assert len(told["m1"].tasks.active) == 6
    elif effect is leading.CreateTopics:
        assert "c (no answer in time)" in detail(told["m1"], StatusCode.MISSING_INTERNAL_TOPICS)
    else:
        assert codes(told["m1"]) == [StatusCode.ASSIGNMENT_DELAYED]


def test_before_the_deadline_a_tick_changes_nothing() -> None:
    group = Group(Member("m1"))
    step = group.begin("m1", [group.members["m1"].joined()])
    again = leading.step(step.leading, Tick(), NOW_MS + 14_999)
    assert (again.leading, again.effect, again.outcome, again.wake_at_ms) == (step.leading, None, None, NOW_MS + 15_000)


def test_topics_that_may_not_be_made_are_told_with_the_right_that_is_missing() -> None:
    group = Group(Member("m1"), Member("m2"))
    group.cluster.refuses = {"c"}
    for told in group.round().values():
        assert detail(told, StatusCode.MISSING_INTERNAL_TOPICS).endswith("Unauthorized to CREATE on topics c.")
        assert not told.tasks


def test_missing_source_topics_are_told_and_watched() -> None:
    group = Group(Member("m1"))
    del group.cluster.topics["t"]
    outcome = group.lead()
    assert "Source topics t are missing" in detail(read(outcome)["m1"], StatusCode.MISSING_SOURCE_TOPICS)
    assert outcome.watch is not None
    assert outcome.watch.names == frozenset({"t", "c", "u"})
    assert not outcome.watch.is_outdated(group.cluster.image)
    group.cluster.topics["t"] = 3
    assert outcome.watch.is_outdated(group.cluster.image)


def test_while_topics_are_missing_only_stale_members_go_on() -> None:
    stale = Member("m1", OLD, held=tasks("a0"), echo=Echo(5, 2, NEW.digest, tasks("a0")), extra={"topology": OLD.wire})
    new = Member("m2", NEW, held=tasks("a1"), echo=Echo(5, 2, NEW.digest, tasks("a1")))
    group = Group(stale, new, leader="m2")
    group.generation = 5
    group.cluster.topics |= {"c": 3}
    del group.cluster.topics["v"]
    told = group.round()
    assert (told["m1"].tasks, codes(told["m1"])) == (tasks("a0"), [StatusCode.STALE_TOPOLOGY])
    assert (told["m2"].tasks, codes(told["m2"])) == (NOTHING, [StatusCode.MISSING_SOURCE_TOPICS])


def test_of_many_members_that_join_some_are_named() -> None:
    group = settled(Member("m1"))
    for number in range(2, 9):
        group.members[f"m{number}"] = Member(f"m{number}")
    why = read(group.lead())["m1"].why
    assert [name for name in group.members if f"member {name} joined" in why] == ["m2", "m3", "m4", "m5", "m6"]
    assert why.endswith("2 other members joined")


def test_reasons_are_left_out_of_a_record_that_is_nearly_too_large_and_more_is_warned_of() -> None:
    group = settled(Member("m1"), Member("m2"))
    group.members["m3"] = Member("m3")
    size = sum(len(data) for data in group.lead().assignments.values())
    group = settled(Member("m1"), Member("m2"))
    group.members["m3"] = Member("m3")
    assert "member m3 joined" in read(group.lead())["m1"].why
    small = settled(Member("m1"), Member("m2"), record_max_bytes=size)
    small.members["m3"] = Member("m3")
    outcome = small.lead()
    assert read(outcome)["m1"].why == ""
    assert "Raise message.max.bytes" in outcome.warnings[0]


# ------------------------------------------------------------------------------------------------- records in flight

BY_R = Version.of(1, "w: source=t sink=r", "s: repartition=r changelog=c")
BY_X = Version.of(2, "w: source=t sink=x", "s: repartition=x changelog=c")


def draining() -> Group:
    """An old and a new member, and three records of r-1 that nobody has read."""
    group = settled(Member("m1", BY_R))
    group.cluster.ends = {("r", 1): 8}
    group.cluster.committed = {("r", 1): 5}
    group.members["m2"] = Member("m2", BY_X, extra={"topology": BY_X.wire})
    return group


def rounds(group: Group, count: int, **arguments: Any) -> dict[str, ClassicAssignment]:
    """Generations in each of which the new member says that it has all state."""
    told: dict[str, ClassicAssignment] = {}
    for _ in range(count):
        group.members["m2"].extra |= {"offsets": {("s", n): END for n in range(3)}}
        told = group.round(**arguments)
    return told


def test_old_members_read_a_repartition_topic_that_goes_to_its_end() -> None:
    group = draining()
    told = rounds(group, 6)
    assert told["m1"].tasks.active == tasks("s1").active
    assert told["m2"].tasks.active == tasks("w0 w1 w2 s0 s2").active
    assert told["m1"].rejoin_after_ms == leading.DRAINING_MS
    assert "are read to the end by old members first: r (topology epoch 1)" in told["m1"].why
    group.cluster.committed = {("r", 1): 8}
    told = rounds(group, 3)
    assert not told["m1"].tasks.active
    assert told["m2"].tasks.active == tasks("w0 w1 w2 s0 s1 s2").active
    assert told["m1"].rejoin_after_ms is None
    assert told["m1"].why == ""


def test_what_old_members_still_write_is_said_until_they_give_it_up() -> None:
    group = draining()
    group.cluster.committed = dict(group.cluster.ends)
    assert "still write to repartition topics that the new version does not have: r (topology epoch 1)" in (
        group.round()["m1"].why
    )
    told = rounds(group, 6)
    assert (told["m1"].tasks.active, told["m1"].why) == (frozenset(), "")


def test_that_the_group_has_an_earlier_topology_again_is_said_while_nobody_runs_its_epoch() -> None:
    back = Version.of(3, "a: source=t changelog=c", "b: source=u")
    group = settled(Member("m1"), Member("m2", NEW, extra={"topology": NEW.wire}))
    group.members["m3"] = Member("m3", back, extra={"topology": back.wire})
    assert "rolled back" not in group.round()["m1"].why
    del group.members["m2"], group.members["m3"]
    assert "rolled back to the topology of epoch 1" in group.round()["m1"].why
    assert "rolled back to the topology of epoch 1" in group.round()["m1"].why
    group.members["m4"] = Member("m4", LATER, extra={"topology": LATER.wire})
    group.round()


@pytest.mark.parametrize("unread", [0, 4], ids=["all read", "left unread"])
@pytest.mark.parametrize("goes_first", ["m3", "m4"])
@pytest.mark.parametrize("rounds_before", [1, 3, 6])
def test_after_a_rollback_old_members_have_all_tasks_though_nobody_runs_the_version_of_the_group(
    unread: int, goes_first: str, rounds_before: int
) -> None:
    old, new, back = (
        Version.of(
            epoch, f"w: source=t sink=app-{topic}-repartition", f"s: repartition=app-{topic}-repartition changelog=c"
        )
        for epoch, topic in ((1, "r"), (2, "x"), (3, "r"))
    )
    group = settled(Member("m1", old), Member("m2", old))
    group.members["m3"] = Member("m3", new, extra={"topology": new.wire})
    for _ in range(rounds_before):
        group.members["m3"].extra |= {"offsets": {("s", n): END for n in range(3)}}
        group.round()
    group.cluster.left = {("app-x-repartition", 1): unread} if unread else {}
    group.members["m4"] = Member("m4", back, extra={"topology": back.wire})
    group.round()
    for name in (goes_first, *({"m3", "m4"} - {goes_first})):
        del group.members[name]
        group.round()
    for _ in range(3):
        told = group.round()
    assert told["m1"].tasks.active | told["m2"].tasks.active == tasks("w0 w1 w2 s0 s1 s2").active
    assert "rolled back to the topology of epoch 1" in told["m1"].why
    # Whoever runs the group's version at last asks what was left.
    group.members["m5"] = Member("m5", back, extra={"topology": back.wire})
    told = group.round()
    assert not unread or any(isinstance(effect, leading.CountUnread) for effect in group.effects)
    for _ in range(6):
        told = group.round()
    assert {task for each in told.values() for task in each.tasks.active} <= tasks("w0 w1 w2 s0 s1 s2").active


# ---------------------------------------------------------------------------------- a new version that fails repeatedly


def fails(group: Group, name: str) -> ClassicAssignment:
    """A member of the new version comes, gets what it can, and goes. Its last assignment."""
    group.members[name] = Member(name, NEW, extra={"topology": NEW.wire})
    for _ in range(6):
        group.members[name].extra |= {"offsets": {("b", n): END for n in range(3)}}
        told = group.round()[name]
    del group.members[name]
    group.round()
    return told


def test_a_version_whose_members_go_again_and_again_gets_no_more_tasks_for_a_while() -> None:
    group = settled(Member("m1"))
    group.takes_ms = 0
    assert fails(group, "m2").tasks.active
    assert fails(group, "m3").tasks.active, "the first one may have been restarted"
    told = fails(group, "m4")
    assert not {name for name, _ in told.tasks.active} & {"b"}
    assert "Members with topology epoch 2 left 2 times in a row" in detail(told, StatusCode.ASSIGNMENT_DELAYED)
    assert "left 2 times in a row" in told.why
    group.now_ms += 15_000
    assert fails(group, "m5").tasks.active
    (told,) = group.round().values()
    assert told.rejoin_after_ms is None or told.rejoin_after_ms <= 30_000


def test_a_paused_version_gets_tasks_when_its_pause_is_over_though_nobody_came_or_went() -> None:
    group = settled(Member("m1"))
    group.takes_ms = 0
    for name in ("m2", "m3"):
        fails(group, name)
    group.members["m4"] = Member("m4", NEW, extra={"topology": NEW.wire})
    told = group.round()
    assert told["m1"].rejoin_after_ms == 15_000
    group.now_ms += 15_000
    for _ in range(6):
        group.members["m4"].extra |= {"offsets": {("b", n): END for n in range(3)}}
        told = group.round()
    assert "b" in {name for name, _ in told["m4"].tasks.active}
    assert codes(told["m4"]) == []


def test_another_leader_goes_on_counting_how_often_a_version_has_failed() -> None:
    group = settled(Member("m1"), Member("m9"))
    group.takes_ms = 0
    for name in ("m2", "m3"):
        fails(group, name)
    del group.members["m1"]
    group.leader = "m9"
    told = fails(group, "m4")
    assert "Members with topology epoch 2 left 2 times in a row" in detail(told, StatusCode.ASSIGNMENT_DELAYED)
    assert not {name for name, _ in told.tasks.active} & {"b"}
    group.now_ms += 15_000
    fails(group, "m5")
    told = fails(group, "m6")
    assert "left 3 times in a row while older versions run: no more tasks are handed over to them for 30 s" in told.why
    # A leader that comes when the pause is over begins no other one, and forgets in the same time.
    group.now_ms += 30_000
    group.members["m1"] = Member("m1")
    group.round()
    group.leader = "m1"
    assert "in a row" not in fails(group, "m7").why
    group.now_ms += 60_000 + FORGOTTEN_AFTER_MS
    group.round()
    assert group.members["m1"].echo is not None
    assert group.members["m1"].echo.setbacks is None


def test_what_an_old_version_wrote_and_never_read_is_unread() -> None:
    group = draining()
    group.cluster.committed = {("r", n): None for n in range(3)}
    told = rounds(group, 6)
    assert told["m1"].tasks.active == tasks("s0 s1 s2").active
    assert told["m2"].tasks.active == tasks("w0 w1 w2").active


def test_while_nobody_can_say_what_is_unread_everybody_keeps_its_tasks() -> None:
    group = draining()
    before = rounds(group, 6)
    told = rounds(group, 2, answers={leading.EndOffsets: leading.EndOffsetsListed(None)})
    assert {name: each.tasks.active for name, each in told.items()} == {
        name: each.tasks.active for name, each in before.items()
    }
    assert told["m1"].rejoin_after_ms == leading.DRAINING_MS


# ------------------------------------------------------------------------- what is left by versions that nobody runs

LEFT = "app-r-repartition"
LOSES = {"client_tags": {LOSE_IN_FLIGHT: "true"}}


def cold(*members: Member, records: int = 3) -> Group:
    """A group that starts again, in which nobody knows the version that has left these records."""
    group = Group(*members)
    group.cluster.topics[LEFT] = 3
    group.cluster.left = {(LEFT, 1): records} if records else {}
    return group


def counted(group: Group) -> list[Effect]:
    return [effect for effect in group.effects if isinstance(effect, leading.CountUnread)]


def test_a_version_that_starts_alone_is_refused_where_an_older_one_has_left_records() -> None:
    group = cold(Member("m1", BY_X), Member("m2", BY_X))
    topics = set(group.cluster.topics)
    told = group.round()
    assert {each.error_code for each in told.values()} == {int(ErrorCode.STREAMS_INVALID_TOPOLOGY)}
    text = told["m1"].error_text or ""
    assert f"{LEFT}: 3 records" in text
    assert "--lose-in-flight" in text
    assert counted(group) == [leading.CountUnread(frozenset((LEFT, n) for n in range(3)))]
    assert set(group.cluster.topics) == topics, "none is made for a version that does not start"


@pytest.mark.parametrize(
    "name", ["app-fk-subscription-response-topic", "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic"]
)
def test_what_a_foreign_key_join_has_left_counts(name: str) -> None:
    group = Group(Member("m1", BY_X))
    group.cluster.topics[name], group.cluster.left = 1, {(name, 0): 4}
    told = group.round()
    assert told["m1"].error_code == int(ErrorCode.STREAMS_INVALID_TOPOLOGY)
    assert f"{name}: 4 records" in (told["m1"].error_text or "")


def test_the_version_that_has_the_topic_starts_and_the_new_one_beside_it() -> None:
    old = Version.of(1, f"w: source=t sink={LEFT}", f"s: repartition={LEFT} changelog=c")
    group = cold(Member("m1", old))
    told = group.round()
    assert told["m1"].error_code == 0
    assert len(told["m1"].tasks.active) == 6
    assert not counted(group)
    group.members["m2"] = Member("m2", BY_X, extra={"topology": BY_X.wire})
    group.cluster.ends, group.cluster.committed = {(LEFT, 1): 8}, {(LEFT, 1): 5}
    told = rounds(group, 3)
    assert not told["m2"].error_code
    assert not counted(group), "its members know their topics"


def test_an_update_is_refused_where_the_last_old_member_is_gone() -> None:
    group = settled(Member("m1", BY_R))
    group.cluster.topics[LEFT], group.cluster.left = 1, {(LEFT, 0): 1}
    echo = group.members["m1"].echo
    assert echo is not None
    group.members = {"m2": Member("m2", BY_X, echo=echo, extra={"topology": BY_X.wire})}
    group.leader = "m2"
    told = group.round()
    assert told["m2"].error_code == int(ErrorCode.STREAMS_INVALID_TOPOLOGY)


def test_a_version_starts_where_nothing_is_unread_and_the_leader_looks_once() -> None:
    group = cold(Member("m1", BY_X), records=0)
    told = group.round()
    assert len(told["m1"].tasks.active) == 6
    assert counted(group)
    group.round()
    assert not counted(group)
    assert leading.ListTopics(None) not in group.effects


@pytest.mark.parametrize("name", ["other-r-repartition", "app-r-changelog", "apprentice-r-repartition"])
def test_there_is_nothing_to_ask_where_no_topic_can_be_one_of_the_application(name: str) -> None:
    group = Group(Member("m1", BY_X))
    group.cluster.topics[name] = 2
    group.cluster.left = {(name, 0): 5}
    told = group.round()
    assert len(told["m1"].tasks.active) == 6
    assert [type(effect) for effect in group.effects] == [leading.ListTopics, leading.CreateTopics, leading.ListTopics]


def test_what_may_be_lost_is_left_with_a_warning() -> None:
    group = cold(Member("m1", BY_X, extra=LOSES))
    outcome = group.lead()
    assert len(read(outcome)["m1"].tasks.active) == 6
    (warning,) = outcome.warnings
    assert f"{LEFT}: 3 records" in warning
    assert "upgrade.lose.in.flight" in warning


def test_what_is_left_in_topics_that_no_member_was_told_of_is_warned_of() -> None:
    group = settled(Member("m2", BY_R))
    group.members["m1"] = Member("m1", BY_X, extra={"topology": BY_X.wire})
    group.leader = "m1"
    group.memories["m1"] = Memory(texts={version.digest: version.wire for version in (BY_R, BY_X)})
    for _ in range(3):
        group.round()
    group.cluster.topics[LEFT], group.cluster.left = 1, {(LEFT, 0): 7}
    del group.members["m2"]
    outcome = group.lead()
    (warning,) = outcome.warnings
    assert f"{LEFT}: 7 records" in warning
    assert "with the next epoch" in warning
    told = read(outcome)["m1"]
    assert len(told.tasks.active) == 6
    group.members["m1"].hears(told)
    assert not group.lead().warnings, "it is said once"


@pytest.mark.parametrize("answer", [leading.UnreadCounted(None), Tick()])
def test_while_nobody_can_say_what_is_left_a_new_version_waits(answer: Event) -> None:
    group = cold(Member("m1", BY_X))
    told = group.round(answers={leading.CountUnread: answer})
    assert not told["m1"].error_code
    assert not told["m1"].tasks.active
    assert "not known" in detail(told["m1"], StatusCode.ASSIGNMENT_DELAYED)
    assert told["m1"].rejoin_after_ms == leading.DRAINING_MS
    assert group.round()["m1"].error_code, "it looks again"


# ------------------------------------------------------------------------------------ stores that are fed by another way


def test_a_version_that_feeds_a_store_by_a_new_repartition_beside_the_one_that_stays_is_refused() -> None:
    split = Version.of(2, "w: source=t sink=r,x", "s: repartition=r", "u: repartition=x changelog=c")
    group = settled(Member("m1", BY_R), Member("m2", BY_R))
    group.members["m3"] = Member("m3", split, extra={"topology": split.wire})
    told = group.round()
    assert told["m3"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "was fed by r, and is fed by x now" in (told["m3"].error_text or "")
    assert told["m1"].tasks.active | told["m2"].tasks.active == tasks("w0 w1 w2 s0 s1 s2").active
