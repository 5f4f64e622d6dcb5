"""Random lives of a streams group: whatever happens, the invariants hold, and it settles when nothing happens any more."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.config import GroupConfig
from coordinator.group.state import Group
from coordinator.group.streams.describe import state_name
from coordinator.group.streams.state import Member, StreamsGroup
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import Shard
from streamsrt.assignment.configuration import configure
from streamsrt.assignment.patterns import resolve
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks, task_set, wire_tasks
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import Subtopology, topology_of
from streamsrt.assignment.versions import versions_of
from streamsrt.wire.types import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tests.coordinator.group.memory_log import MemoryLog
from tests.streamsrt.assignment.notation import subtopology

GROUP = "app"
TOPOLOGIES = [
    StreamsGroupHeartbeatRequest.Topology(epoch=epoch, subtopologies=[subtopology(line) for line in lines])
    for epoch, lines in enumerate(
        [
            ["0: source=t changelog=c", "1: source=u"],
            ["0: source=u", "1: source=t changelog=c"],
            ["0: source=u", "1: source=t changelog=c", "2: source=v sink=r", "3: repartition=r"],
            ["a: source=u,v changelog=c", "1: source=t"],
            ["a: source=u,v changelog=c", "1: source=t", "b: source=w changelog=d"],
            ["0: source=w changelog=d", "1: source=t", "2: source=u,v changelog=c"],
            ["a: source=u,v changelog=c", "1: source=t"],
            ["a: source=u,v changelog=c", "1: pattern=t|x.*"],
            ["a: source=v changelog=c,e", "1: source=u sink=r", "2: repartition=r changelog=d"],
            ["a: source=v changelog=c sink=q", "1: source=t", "2: repartition=q changelog=d"],
            ["a: source=v changelog=c,d", "1: source=t,u"],
        ]
    )
]
NEWEST_EPOCH = len(TOPOLOGIES) - 1
PARTITIONS = {"t": 3, "u": 2, "v": 2, "w": 3, "r": 2, "q": 2}
EVERY_TOPIC = TopicsImage.of(*(TopicImage(bytes(16), name, count) for name, count in (*PARTITIONS.items(), ("x1", 2))))
PARTS: list[dict[str, Subtopology]] = [
    {part.id: part for part in resolve(topology_of(topology), EVERY_TOPIC).topology.subtopologies}
    for topology in TOPOLOGIES
]
ACCEPTABLE_LAG = 100


State = tuple[frozenset[str], int]


def state_of(epoch: int, task: TaskId) -> State:
    """What tasks with the same state have in common: changelogs and partition. Without changelogs, what they read."""
    inputs, changelogs = PARTS[epoch][task.subtopology_id].resources
    return changelogs or inputs, task.partition


@dataclass
class Client:
    """A member that does what it is told, unless it is lazy or its answers get lost."""

    member_id: str
    process_id: str
    instance_id: str | None
    topology: int
    epoch: int = 0
    open: Tasks = NO_TASKS
    given: Tasks = NO_TASKS
    failed: bool = False
    away: bool = False
    refused: list[int] = field(default_factory=list)
    reports: bool = False
    positions: dict[State, int] = field(default_factory=dict)

    def state(self, task: TaskId) -> State:
        return state_of(self.topology, task)

    def known(self) -> list[TaskId]:
        """Tasks of its topology that it has state of, on its disk or open."""
        parts = PARTS[self.topology]
        tasks = (TaskId(name, partition) for name in sorted(parts) for partition in range(3))
        return [task for task in tasks if self.state(task) in self.positions]


class GroupLife(RuleBasedStateMachine):
    @initialize(
        delay_ms=st.sampled_from([0, 0, 3000]),
        interval_ms=st.sampled_from([0, 0, 1000]),
        standbys=st.integers(0, 2),
        warmups=st.sampled_from([0, 1, 2]),
        first_epoch=st.integers(0, NEWEST_EPOCH - 1),
    )
    def start(self, delay_ms: int, interval_ms: int, standbys: int, warmups: int, first_epoch: int) -> None:
        self.begin(
            delay_ms=delay_ms, interval_ms=interval_ms, standbys=standbys, warmups=warmups, first_epoch=first_epoch
        )

    def begin(self, *, delay_ms: int, interval_ms: int, standbys: int, warmups: int, first_epoch: int) -> None:
        self.warmups = warmups
        self.ends: dict[State, int] = {}
        self.config = GroupConfig.parse(
            {
                "group.streams.initial.rebalance.delay.ms": str(delay_ms),
                "group.streams.assignment.interval.ms": str(interval_ms),
                "group.streams.num.standby.replicas": str(standbys),
                "group.streams.num.warmup.replicas": str(warmups),
                "group.streams.acceptable.recovery.lag": str(ACCEPTABLE_LAG),
            }
        )
        self.log = MemoryLog()
        self.now_ms = 1000
        self.topics = {**PARTITIONS, "c": 3}
        self.shard = Shard(self.log, self.config, self.image())
        self.clients: dict[str, Client] = {}
        self.numbers = 0
        self.newest = first_epoch
        self.targets: dict[str, frozenset[TaskId]] = {}

    def image(self) -> TopicsImage:
        return TopicsImage({n: TopicImage(n.encode().ljust(16), n, count) for n, count in self.topics.items()})

    @property
    def group(self) -> StreamsGroup:
        return self.shard.state.groups.get(GROUP, StreamsGroup(GROUP))

    # Members

    @rule(
        process=st.sampled_from(["P1", "P1", "P2", "P3"]),
        static=st.booleans(),
        ahead=st.sampled_from([0, 0, 1]),
        reports=st.sampled_from([True, True, False]),
    )
    def join(self, process: str, static: bool, ahead: int, reports: bool) -> None:
        if len(self.clients) >= 5:
            return
        self.numbers += 1
        topology = min(self.newest + ahead, NEWEST_EPOCH)
        instance = f"i{self.numbers}" if static else None
        client = Client(f"m{self.numbers}", process, instance, topology, reports=reports)
        self.clients[client.member_id] = client
        self.beat(client)

    @rule(data=st.data(), lost=st.booleans(), lazy=st.booleans())
    def heartbeat(self, data: st.DataObject, lost: bool, lazy: bool) -> None:
        client = self.pick(data)
        if client is not None and not client.away:
            self.beat(client, lost=lost, lazy=lazy)

    @rule(backwards=st.booleans(), topics_right=st.booleans())
    def everybody_beats(self, backwards: bool, topics_right: bool) -> None:
        if topics_right:
            self.make_topics_right()
        self.now_ms += 5000
        self.shard.tick(self.now_ms)
        for name in sorted(self.clients, reverse=backwards):
            client = self.clients.get(name)
            if client is not None and not client.away:
                self.beat(client)
                self.no_two_active_tasks_share_a_partition()
                self.a_process_has_a_task_once()
                self.a_member_that_is_left_behind_only_loses_tasks()

    @rule(data=st.data())
    def rejoin(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None and not client.away:
            client.epoch, client.open, client.given = 0, NO_TASKS, NO_TASKS
            client.topology = max(client.topology, self.newest)
            self.beat(client)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None and not client.away and client.epoch > 0:
            client.epoch = -1
            self.beat(client)
            del self.clients[client.member_id]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None:
            del self.clients[client.member_id]

    @rule(data=st.data(), process=st.sampled_from(["P1", "P2", "P3"]))
    def go_away_and_come_back(self, data: st.DataObject, process: str) -> None:
        client = self.pick(data)
        if client is None or client.instance_id is None or client.epoch == 0:
            return
        if not client.away:
            client.epoch = -2
            client.away = self.beat(client)
            client.open = client.given = NO_TASKS
            if not client.away:
                client.epoch = 0
            return
        self.numbers += 1
        del self.clients[client.member_id]
        back = Client(f"m{self.numbers}", process, client.instance_id, max(client.topology, self.newest))
        back.reports = client.reports
        self.clients[back.member_id] = back
        self.beat(back)

    @rule(data=st.data(), caught_up=st.booleans())
    def restores_and_reports(self, data: st.DataObject, caught_up: bool) -> None:
        client = self.pick(data)
        if client is not None and not client.away and client.reports:
            self.restore(client, caught_up=caught_up)
            self.beat(client)

    def restore(self, client: Client, *, caught_up: bool) -> None:
        """Active tasks write to their changelogs, the others follow: to the end, or somewhat."""
        for state in map(client.state, client.open.active):
            self.ends[state] = client.positions[state] = self.ends.get(state, 0) + 150
        for state in map(client.state, client.open.passive):
            end = self.ends.setdefault(state, 1000)
            client.positions[state] = end if caught_up else min(end, client.positions.get(state, 0) + 300)

    def pick(self, data: st.DataObject) -> Client | None:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))] if self.clients else None

    def beat(self, client: Client, *, lost: bool = False, lazy: bool = False) -> bool:
        """One heartbeat; whether it was answered without an error."""
        joins = client.epoch == 0
        if not lazy:
            client.open = client.given
        tasks = StreamsGroupHeartbeatRequest.TaskIds
        full = joins or client.failed
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            member_epoch=client.epoch,
            endpoint_information_epoch=-1,
            instance_id=client.instance_id,
            process_id=client.process_id if full else None,
            rebalance_timeout_ms=20_000 if full else -1,
            topology=TOPOLOGIES[client.topology] if joins else None,
            active_tasks=[] if joins else wire_tasks(tasks, client.open.active),
            standby_tasks=[] if joins else wire_tasks(tasks, client.open.standby),
            warmup_tasks=[] if joins else wire_tasks(tasks, client.open.warmup),
        )
        if client.reports:
            at = StreamsGroupHeartbeatRequest.TaskOffset
            known = client.known()
            request.task_offsets = [
                at(subtopology_id=t[0], partition=t[1], offset=client.positions[client.state(t)]) for t in known
            ]
            request.task_end_offsets = [
                at(subtopology_id=t[0], partition=t[1], offset=self.ends[client.state(t)])
                for t in known
                if t in client.open.active | client.open.passive
            ]
        before, timers, end = self.shard.state, self.shard.timers.as_dict(), self.log.log_end_offset
        outcome = self.shard.execute(GroupRequest(RequestContext(1, "c", "/h", 1), request), self.now_ms)
        ((_, response),) = outcome.replies
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        if response.error_code:
            assert self.log.log_end_offset == end, "a rejected request writes no records"
            assert (self.shard.state, self.shard.timers.as_dict()) == (before, timers), "it changes nothing"
        else:
            self.what_has_caught_up_is_no_warm_up_task_any_more(client)
            self.a_topology_update_that_is_taken_can_run(before.groups.get(GROUP))
            self.who_is_left_behind_goes_on_until_another_is_warm(before.groups.get(GROUP))
        client.failed = lost or bool(response.error_code)
        self.a_member_that_is_left_behind_only_loses_tasks()
        if lost:
            return False
        if response.error_code:
            self.refuse(client, response.error_code)
            return False
        if client.epoch >= 0:
            client.epoch = response.member_epoch
            if joins:
                self.newest = max(self.newest, client.topology)
            if response.active_tasks is not None:
                assert response.standby_tasks is not None
                assert response.warmup_tasks is not None
                client.given = Tasks(
                    task_set(response.active_tasks), task_set(response.standby_tasks), task_set(response.warmup_tasks)
                )
        return True

    def refuse(self, client: Client, code: int) -> None:
        if code in {25, 110, 69}:
            client.epoch, client.open, client.given = 0, NO_TASKS, NO_TASKS
            client.topology = max(client.topology, self.newest)
        elif code in {82, 111, 130, 131, 132}:
            self.clients.pop(client.member_id, None)
        else:
            assert code == 15, f"error {code}"

    # The world

    @rule(
        name=st.sampled_from(["t", "u", "v", "w", "c", "d", "r", "x1"]),
        count=st.sampled_from([None, 2, 3]),
        rare=st.integers(0, 4),
    )
    def topic_changes(self, name: str, count: int | None, rare: int) -> None:
        if rare:
            return
        self.topics.pop(name, None)
        if count is not None:
            self.topics[name] = count
        self.shard.set_topics(self.image(), self.now_ms)

    @rule()
    def internal_topics_are_created(self) -> None:
        self.make_topics_right()

    @rule(seconds=st.sampled_from([1, 5, 21, 46]))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1000
        self.shard.tick(self.now_ms)

    @rule()
    def the_next_append_fails(self) -> None:
        self.log.fail_next = 1

    @rule()
    def coordinator_restarts(self) -> None:
        live = self.shard.state
        self.shard = Shard(self.log, self.config, self.image())
        self.shard.load(self.now_ms)
        assert self.shard.state == live, "replaying the log equals the live state"

    @rule(tail=st.integers(0, 3))
    def log_is_compacted(self, tail: int) -> None:
        """All of it, or all but the last few batches."""
        self.log.compact(tail)
        self.coordinator_restarts()

    # What always holds

    @invariant()
    def no_two_active_tasks_share_a_partition(self) -> None:
        group, held = self.group, Counter[tuple[str, int]]()
        for name, current in group.current.items():
            parts = PARTS[group.members[name].topology_epoch]
            for task in current.assigned.active | current.pending.active:
                if task.subtopology_id in parts:
                    inputs, changelogs = parts[task.subtopology_id].resources
                    held.update((topic, task.partition) for topic in inputs | changelogs)
        assert not [place for place, count in held.items() if count > 1]

    @invariant()
    def an_active_task_has_one_owner_and_the_index_knows_it(self) -> None:
        owners: dict[TaskId, list[str]] = {}
        for name, current in self.group.current.items():
            for task in current.assigned.active | current.pending.active:
                owners.setdefault(task, []).append(name)
        assert all(len(names) == 1 for names in owners.values())
        assert {task: list(names) for task, names in self.group.active_owners.items()} == owners

    @invariant()
    def a_process_has_a_task_once(self) -> None:
        group, seen = self.group, Counter[tuple[str, TaskId]]()
        for name, current in group.current.items():
            held = current.assigned.active | current.pending.active | current.assigned.passive | current.pending.passive
            seen.update((group.members[name].process_id, task) for task in held)
        assert not [place for place, count in seen.items() if count > 1]

    @invariant()
    def a_member_has_only_tasks_that_its_topology_has(self) -> None:
        group = self.group
        assert group.topology is not None or not group.members
        for name, member in group.members.items():
            known = PARTS[member.topology_epoch]
            target, current = group.targets.get(name, NO_TASKS), group.current[name]
            for tasks in (target, current.assigned, current.pending):
                assert {task.subtopology_id for task in tasks.active | tasks.passive} <= known.keys()

    @invariant()
    def no_two_targets_share_a_partition(self) -> None:
        group, held = self.group, Counter[tuple[str, int]]()
        for name, target in group.targets.items():
            for task in target.active:
                inputs, changelogs = PARTS[group.members[name].topology_epoch][task.subtopology_id].resources
                held.update((topic, task.partition) for topic in inputs | changelogs)
        assert not [place for place, count in held.items() if count > 1]

    @invariant()
    def older_topologies_are_known_while_members_run_them(self) -> None:
        group = self.group
        known = {topology.epoch for topology in group.topologies()}
        assert {member.topology_epoch for member in group.members.values()} <= known
        for topology in group.topologies():
            assert topology == topology_of(TOPOLOGIES[topology.epoch])

    @invariant()
    def a_member_that_is_left_behind_only_loses_tasks(self) -> None:
        """Of those that are no other tasks in the newest version, while that one runs."""
        group, before = self.group, self.targets
        self.targets = {name: target.active | target.passive for name, target in group.targets.items()}
        known = group.soft.configuration
        if group.topology is None or known is None or not known.is_ready:
            return
        if all(group.is_stale(member) for member in group.members.values()):
            return
        bundles = versions_of(group.topology, group.topologies_run()[1:]).bundles
        for name, tasks in self.targets.items():
            member = group.members[name]
            if group.is_stale(member):
                names = {name for bundle in bundles for name in bundle.ids.get(member.topology_epoch, ())}
                assert {t for t in tasks if t.subtopology_id not in names} <= before.get(name, tasks)

    @invariant()
    def warm_up_tasks_are_bounded(self) -> None:
        assert sum(len(target.warmup) for target in self.group.targets.values()) <= self.warmups

    def what_has_caught_up_is_no_warm_up_task_any_more(self, client: Client) -> None:
        """Once its member has told that, and unless a new assignment is due anyway."""
        group = self.group
        if not client.reports or group.epoch > group.assignment_epoch:
            return
        target = group.targets.get(client.member_id, NO_TASKS)
        for state in map(client.state, target.warmup & client.open.warmup):
            if state in client.positions:
                assert self.ends[state] - client.positions[state] > ACCEPTABLE_LAG

    def who_is_left_behind_goes_on_until_another_is_warm(self, before: Group | None) -> None:
        """A changelog goes from an older version to the newest when who is to have it has caught up."""
        group = self.group
        if not isinstance(before, StreamsGroup) or not self.warmups or group.targets == before.targets:
            return
        processes = Counter(member.process_id for member in group.members.values())
        for name, member in group.members.items():
            if not group.is_stale(member) or before.members.get(name) != member or not self.topics_are_right():
                continue
            lost = before.targets.get(name, NO_TASKS).active - group.targets.get(name, NO_TASKS).active
            states = {state_of(member.topology_epoch, task) for task in lost if self.is_changed(member, task)}
            for client in self.clients.values():
                if client.reports and client.topology == self.newest and processes[client.process_id] == 1:
                    tasks = group.targets.get(client.member_id, NO_TASKS).active
                    for state in states & {client.state(task) for task in tasks}:
                        assert self.ends[state] - client.positions[state] <= ACCEPTABLE_LAG

    def is_changed(self, member: Member, task: TaskId) -> bool:
        """Whether a task with state is another one in the newest version."""
        mine = PARTS[member.topology_epoch][task.subtopology_id]
        theirs = PARTS[self.newest].get(task.subtopology_id)
        return mine.is_stateful and (theirs is None or theirs.resources != mine.resources)

    def topics_are_right(self) -> bool:
        known = self.group.soft.configuration
        return known is not None and known.is_ready

    def a_topology_update_that_is_taken_can_run(self, before: Group | None) -> None:
        group = self.group
        if (
            isinstance(before, StreamsGroup)
            and before.topology not in {None, group.topology}
            and len(group.members) > 1
        ):
            known = group.soft.configuration
            assert known is not None
            assert known.topology == group.topology
            assert known.problem is None or known.problem.status_code == StatusCode.MISSING_INTERNAL_TOPICS

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.group
        assert group.assignment_epoch <= group.epoch
        assert all(current.epoch <= max(1, group.assignment_epoch) for current in group.current.values())

    @invariant()
    def every_member_is_known_as_a_whole(self) -> None:
        assert self.group.members.keys() == self.group.current.keys()
        assert self.group.targets.keys() <= self.group.members.keys()

    def make_topics_right(self) -> None:
        self.topics |= PARTITIONS
        topology = self.group.topology
        for part in PARTS[topology.epoch].values() if topology else ():
            present = [name for name in part.input_topics if name in self.topics]
            for changelog in part.changelogs:
                self.topics[changelog.name] = max(self.topics[name] for name in present)
        self.shard.set_topics(self.image(), self.now_ms)

    def teardown(self) -> None:
        self.log.fail_next = 0
        # Warm-up tasks come one after the other, one for each task with state at the most; then the last moves are made.
        turns, left = 0, 14
        while left and turns < 100:
            turns, left = turns + 1, left - 1
            if any(target.warmup for target in self.group.targets.values()):
                left = max(left, 8)
            self.make_topics_right()
            self.now_ms += 5000
            self.shard.tick(self.now_ms)
            for client in list(self.clients.values()):
                if not client.away:
                    self.restore(client, caught_up=True)
                    self.beat(client)
            self.no_two_active_tasks_share_a_partition()
        staying = [client for client in self.clients.values() if not client.away]
        if not staying:
            return
        assert state_name(self.group, self.image()) == "Stable"
        self.every_partition_has_a_task()
        for client in staying:
            current = self.group.current[client.member_id]
            assert current.assigned == client.given == self.group.targets[client.member_id]
            assert not current.assigned.warmup

    def every_partition_has_a_task(self) -> None:
        """Of each subtopology of the newest version that anybody runs, or of an older one in its place."""
        group = self.group
        run, *older = group.topologies_run()
        if not configure(run, self.image()).is_ready:
            return  # only the topics of the group's topology are put right here
        versions = versions_of(run, tuple(older))
        running = {
            (group.members[name].topology_epoch, *task)
            for name, current in group.current.items()
            for task in current.assigned.active
        }
        for name, part in PARTS[run.epoch].items():
            instead = [each for each in versions.bundles if name in each.ids.get(run.epoch, ())]
            ids = instead[0].ids if instead else {one.epoch: {name} for one in (run, *older)}
            for partition in range(max(self.topics[topic] for topic in part.input_topics if topic in self.topics)):
                assert any((epoch, each, partition) in running for epoch in ids for each in ids[epoch]), name


GroupLife.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestGroupLife = pytest.mark.requirement(
    "SG-185",
    "SG-186",
    "SG-171",
    "SG-184",
    "SG-189",
    "SG-222",
    "SG-227",
    "SG-228",
    "SG-229",
    "SG-239",
    "SG-250",
    "SG-312",
)(GroupLife.TestCase)
