"""Random lives of a classic group: clients that do as the protocol says, crashes, lost coordinators, failed writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.classic.state import ClassicGroup, GroupState
from tests.coordinator.group.classic.scene import (
    Scene,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)

SESSION_MS, REBALANCE_MS, STEP_MS = 10_000, 20_000, 1_000
PARTITIONS = frozenset(range(6))
RETRIED = {14, 15, 16}


@dataclass
class Client:
    """A consumer: what it knows of itself, and the request whose answer it waits for."""

    name: str
    instance_id: str | None
    protocols: tuple[str, ...]
    member_id: str = ""
    generation: int = -1
    waits_for: int | None = None
    phase: str = "join"
    assignment: frozenset[int] | None = None
    may_be_unknown: bool = True


class GroupLife(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 0, 3000]))
    def start(self, delay_ms: int) -> None:
        self.scene = Scene({"group.initial.rebalance.delay.ms": str(delay_ms)})
        self.clients: dict[str, Client] = {}
        self.numbers = 0
        self.restarts = 0
        self.leaders: dict[tuple[int, int], set[str]] = {}
        self.given: dict[tuple[int, str], frozenset[int]] = {}
        self.assigned_generation = 0

    # What clients do

    @rule(static=st.booleans(), old=st.booleans())
    def somebody_comes(self, static: bool, old: bool) -> None:
        if len(self.clients) >= 5:
            return
        self.numbers += 1
        name = f"c{self.numbers}"
        protocols = ("range",) if old else ("sticky", "range")
        self.clients[name] = Client(name, f"i{self.numbers}" if static else None, protocols)
        self.act(self.clients[name])

    @rule(steps=st.integers(1, 12))
    def everybody_goes_on(self, steps: int) -> None:
        for _ in range(steps):
            self.scene.passes(STEP_MS)
            for client in list(self.clients.values()):
                if client.name in self.clients:
                    self.act(client)

    @rule(data=st.data())
    def one_acts(self, data: st.DataObject) -> None:
        if self.clients:
            self.act(self.clients[data.draw(st.sampled_from(sorted(self.clients)))])

    @rule(data=st.data())
    def one_crashes(self, data: st.DataObject) -> None:
        """A static one comes back as another process; of a dynamic one nothing is heard any more."""
        if not self.clients:
            return
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        if client.instance_id is not None:
            self.clients[client.name] = Client(client.name, client.instance_id, client.protocols)

    @rule(data=st.data())
    def one_leaves(self, data: st.DataObject) -> None:
        joined = sorted(name for name, client in self.clients.items() if client.member_id)
        if not joined:
            return
        client = self.clients[data.draw(st.sampled_from(joined))]
        response = self.scene.answer(leave_request((client.member_id, client.instance_id)))
        if response.error_code == 0:
            del self.clients[client.name]

    @rule()
    def the_next_write_fails(self) -> None:
        self.scene.log.fail_next = 1

    @rule()
    def another_coordinator_takes_over(self) -> None:
        """Answers that nobody has read yet are lost with the connections."""
        self.scene.restart()
        self.restarts += 1
        group = self.scene.shard.state.groups.get("g")
        written = group.members if isinstance(group, ClassicGroup) else {}
        for client in self.clients.values():
            if client.waits_for is not None:
                client.waits_for = None
                client.phase = "join"
            client.may_be_unknown = client.member_id not in written

    def act(self, client: Client) -> None:
        """What a client does next, as the protocol says."""
        if client.waits_for is not None:
            answer = self.scene.answers.get(client.waits_for)
            if answer is None:
                return
            client.waits_for = None
            self.take(client, answer)
        if client.name not in self.clients:
            return
        if client.phase == "join":
            request = join_request(client.member_id, *client.protocols, group_instance_id=client.instance_id)
            request.session_timeout_ms, request.rebalance_timeout_ms = SESSION_MS, REBALANCE_MS
            client.waits_for = self.scene.ask(request)
            client.phase = "joining"
        elif client.phase == "stable":
            code = self.scene.answer(
                heartbeat_request(client.member_id, client.generation, client.instance_id)
            ).error_code
            self.take_error(client, code)

    def take(self, client: Client, answer: Any) -> None:
        if answer.error_code == 79:
            client.member_id, client.phase = answer.member_id, "join"
            client.may_be_unknown = False
        elif answer.error_code:
            self.take_error(client, answer.error_code)
        elif client.phase == "joining":
            self.take_generation(client, answer)
        else:
            given = frozenset(bytes(answer.assignment))
            assert self.given.setdefault((client.generation, client.member_id), given) == given
            self.assigned_generation = max(self.assigned_generation, client.generation)
            client.assignment, client.phase = given, "stable"

    def take_generation(self, client: Client, answer: Any) -> None:
        client.member_id, client.generation = answer.member_id, answer.generation_id
        client.assignment, client.may_be_unknown = None, False
        assignments: dict[str, bytes] = {}
        if answer.members and not answer.skip_assignment:
            assert answer.leader == client.member_id
            self.leaders.setdefault((self.restarts, answer.generation_id), set()).add(client.instance_id or client.name)
            names = [each.member_id for each in answer.members]
            assert client.member_id in names
            for place, name in enumerate(names):
                assignments[name] = bytes(sorted(PARTITIONS)[place :: len(names)])
        request = sync_request(client.member_id, client.generation, assignments)
        request.group_instance_id = client.instance_id
        client.waits_for, client.phase = self.scene.ask(request), "syncing"

    def take_error(self, client: Client, code: int) -> None:
        if code in {0, *RETRIED}:
            client.phase = client.phase if code == 0 else "join"
            return
        if code == 23:
            assert self.restarts, "only of members that were loaded it is not known what else they support"
            del self.clients[client.name]
            return
        assert code in {22, 25, 27, 82}, code
        client.phase = "join"
        if code == 25:
            assert client.may_be_unknown, "nobody loses a member that has always been there"
            client.member_id, client.assignment = "", None
        elif code == 22:
            client.assignment = None
        elif code == 82:
            raise AssertionError("only a process that was replaced is fenced, and it does not ask any more")

    # What always holds

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        assert all(len(names) == 1 for names in self.leaders.values())

    @invariant()
    def generations_that_had_an_assignment_go_up(self) -> None:
        group = self.scene.shard.state.groups.get("g")
        if isinstance(group, ClassicGroup):
            assert group.live.generation >= group.generation
            assert group.live.generation >= self.assigned_generation

    @invariant()
    def the_group_is_whole(self) -> None:
        group = self.scene.shard.state.groups.get("g")
        if not isinstance(group, ClassicGroup):
            return
        live = group.live
        assert (live.leader in live.members) == bool(live.members)
        assert set(live.joining) <= set(live.members)
        assert set(live.syncing) | live.unsynced | live.fresh <= set(live.members)
        assert not live.pending & set(live.members)
        assert {m.instance_id: n for n, m in live.members.items() if m.instance_id} == live.static_members
        assert (live.state is GroupState.EMPTY) == (not live.members) or live.state is GroupState.PREPARING_REBALANCE
        assert not live.syncing or live.state is GroupState.COMPLETING_REBALANCE
        assert not live.joining or live.state is GroupState.PREPARING_REBALANCE

    def is_settled(self) -> bool:
        group = self.scene.shard.state.groups.get("g")
        live = group.live if isinstance(group, ClassicGroup) else None
        return live is not None and (
            {(client.member_id, client.phase, client.generation) for client in self.clients.values()}
            == {(name, "stable", live.generation) for name in live.members}
        )

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        self.scene.log.fail_next = 0
        for _ in range(2 * (SESSION_MS + 2 * REBALANCE_MS) // STEP_MS):
            self.everybody_goes_on(1)
            if self.is_settled():
                break
        self.a_generation_has_one_leader()
        if not self.clients:
            return
        live = self.scene.live
        assert live.state is GroupState.STABLE
        assert {client.member_id for client in self.clients.values()} == set(live.members)
        assert {client.generation for client in self.clients.values()} == {live.generation}
        held = [each for client in self.clients.values() for each in client.assignment or ()]
        assert sorted(held) == sorted(PARTITIONS)


GroupLife.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestGroupLife = GroupLife.TestCase
