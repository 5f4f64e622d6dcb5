"""Random lives of a group whose members speak both protocols: no task has two owners, and in the end each has one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.classic.state import ClassicGroup
from coordinator.group.streams.classic.user_data import assignment_of, subscription_of
from coordinator.group.streams.state import StreamsGroup
from streamsrt.assignment.configuration import configure
from streamsrt.assignment.tasks import TaskId, Tasks, task_set, wire_tasks
from streamsrt.assignment.topology import topology_of
from tests.coordinator.group.classic.scene import Scene, heartbeat_request, leave_request, sync_request
from tests.coordinator.group.streams.classic.java import IMAGE, Beat, Member, streams_join
from tests.coordinator.group.streams.classic.own import Own

ALL = frozenset(TaskId("0", partition) for partition in range(6))
STEP_MS = 1_000
RETRIED = {14, 15, 16}


class Classic(Member):
    """A cooperative instance of the classic protocol, one step at a time."""

    def __init__(self, scene: Scene, name: str) -> None:
        super().__init__(scene, name)
        self.waits_for: int | None = None
        self.phase = "join"

    @property
    def active(self) -> frozenset[TaskId]:
        return self.tasks.active

    def act(self) -> None:
        if self.waits_for is not None:
            answer = self.scene.answers.get(self.waits_for)
            if answer is None:
                return
            self.waits_for = None
            self.take_answer(answer)
        if self.phase == "join":
            self.waits_for, self.phase = self.scene.ask(self.request()), "joining"
        elif self.phase == "stable":
            self.take_code(self.scene.answer(heartbeat_request(self.member_id, self.generation)).error_code)

    def take_answer(self, answer: Any) -> None:
        if answer.error_code == 79:
            self.member_id, self.phase = answer.member_id, "join"
        elif answer.error_code:
            self.take_code(answer.error_code)
        elif self.phase == "joining":
            self.member_id, self.generation = answer.member_id, answer.generation_id
            request = sync_request(self.member_id, self.generation, assigned_by_leader(answer.members))
            self.waits_for, self.phase = self.scene.ask(request), "syncing"
        else:
            had = self.tasks.active
            self.take(answer)
            self.phase = "stable" if had <= self.tasks.active else "join"

    def take_code(self, code: int) -> None:
        if code == 0:
            return
        assert code in {22, 25, 27, *RETRIED}, code
        self.phase = "join"
        if code in {22, 25}:
            self.tasks, self.partitions, self.generation = Tasks(), frozenset(), -1
            self.member_id = "" if code == 25 else self.member_id

    def connection_is_lost(self) -> None:
        if self.waits_for is not None:
            self.waits_for, self.phase = None, "join"

    def goes(self) -> bool:
        return bool(self.scene.answer(leave_request(self.member_id)).error_code == 0) if self.member_id else True


def assigned_by_leader(members: list[Any]) -> dict[str, bytes]:
    """Who owns a task keeps it; the others go round. Who does not lead knows no members, and assigns nothing."""
    if not members:
        return {}
    topology = streams_join().topology
    assert topology is not None
    configuration = configure(topology_of(topology), IMAGE)
    owned = {each.member_id: subscription_of(bytes(each.metadata)).owned for each in members}
    given = {name: {TaskId("0", index) for topic, index in partitions} for name, partitions in owned.items()}
    for place, task in enumerate(sorted(ALL - frozenset().union(*given.values()))):
        given[sorted(given)[place % len(given)]].add(task)
    return {
        name: assignment_of(Tasks(frozenset(tasks)), configuration, 11, endpoints={}) for name, tasks in given.items()
    }


class Streams:
    """An instance of the streams protocol, which does at once what it is told."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene, self.name, self.epoch, self.tasks = scene, name, 0, Tasks()

    @property
    def active(self) -> frozenset[TaskId]:
        return self.tasks.active

    def act(self) -> None:
        if self.epoch == 0:
            answer = self.scene.answer(streams_join(self.name), 1)
        else:
            request = Beat(group_id="g", member_id=self.name, member_epoch=self.epoch)
            request.active_tasks = wire_tasks(Beat.TaskIds, self.tasks.active)
            request.standby_tasks = wire_tasks(Beat.TaskIds, self.tasks.standby)
            request.warmup_tasks = wire_tasks(Beat.TaskIds, self.tasks.warmup)
            answer = self.scene.answer(request, 1)
        if answer.error_code in {25, 69, 110}:
            self.epoch, self.tasks = 0, Tasks()
        elif answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = Tasks(
                    task_set(answer.active_tasks), task_set(answer.standby_tasks), task_set(answer.warmup_tasks)
                )
        else:
            assert answer.error_code in RETRIED, answer.error_code

    def connection_is_lost(self) -> None:
        """Every heartbeat was answered at once."""

    def goes(self) -> bool:
        return bool(self.scene.answer(Beat(group_id="g", member_id=self.name, member_epoch=-1), 1).error_code == 0)


class GroupLife(RuleBasedStateMachine):
    classic: type[Classic | Own] = Classic

    @initialize(assignor=st.sampled_from(["sticky", "highly_available"]), interval_ms=st.sampled_from([0, 1000]))
    def start(self, assignor: str, interval_ms: int) -> None:
        self.scene = Scene(
            {
                "group.streams.assignor.name": assignor,
                "group.streams.assignment.interval.ms": str(interval_ms),
                "group.streams.initial.rebalance.delay.ms": "0",
            }
        )
        self.scene.shard.set_topics(IMAGE, self.scene.now_ms)
        self.members: dict[str, Classic | Own | Streams] = {}
        self.numbers = 0

    @rule(classic=st.booleans())
    def somebody_comes(self, classic: bool) -> None:
        if len(self.members) < 4:
            self.numbers += 1
            name = f"c{self.numbers}"
            self.members[name] = self.classic(self.scene, name) if classic else Streams(self.scene, name)
            self.members[name].act()

    @rule(steps=st.integers(1, 8))
    def everybody_goes_on(self, steps: int) -> None:
        for _ in range(steps):
            self.scene.passes(STEP_MS)
            for member in self.members.values():
                member.act()
                self.no_task_has_two_owners()

    @rule(data=st.data(), says_so=st.booleans())
    def somebody_goes(self, data: st.DataObject, says_so: bool) -> None:
        if self.members:
            name = data.draw(st.sampled_from(sorted(self.members)))
            if not says_so or self.members[name].goes():
                del self.members[name]

    @rule()
    def the_next_write_fails(self) -> None:
        self.scene.log.fail_next = 1

    @rule()
    def another_coordinator_takes_over(self) -> None:
        self.scene.restart()
        self.scene.shard.set_topics(IMAGE, self.scene.now_ms)
        for member in self.members.values():
            member.connection_is_lost()

    @invariant()
    def no_task_has_two_owners(self) -> None:
        owners = Counter(task for member in self.members.values() for task in member.active)
        assert not [task for task, count in owners.items() if count > 1]
        group = self.scene.shard.state.groups.get("g")
        if isinstance(group, StreamsGroup):
            assert all(len(names) == 1 for names in group.active_owners.values())
            classic = [member for member in group.members.values() if member.classic is not None]
            assert len(classic) == group.classic_members
            assert not classic or len(classic) < len(group.members), "classic members alone are a classic group"

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        self.scene.log.fail_next = 0
        for _ in range(140):
            self.everybody_goes_on(1)
        if not self.members:
            return
        held = [task for member in self.members.values() for task in member.active]
        group = self.scene.shard.state.groups["g"]
        if any(isinstance(member, Streams) for member in self.members.values()):
            assert isinstance(group, StreamsGroup)
            assert len(group.members) == len(self.members)
            assert {current.epoch for current in group.current.values()} == {group.epoch}
        else:
            assert isinstance(group, ClassicGroup)
            assert len(group.live.members) == len(self.members)
        assert sorted(held) == sorted(ALL)


class OwnGroupLife(GroupLife):
    """The classic members are ones of this runtime."""

    classic = Own

    @rule()
    def everybody_has_its_tasks(self) -> None:
        self.everybody_goes_on(12)


GroupLife.TestCase.settings = OwnGroupLife.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestGroupLife = GroupLife.TestCase
TestOwnGroupLife = OwnGroupLife.TestCase
