"""How fast the group coordinator is: python -m tests.bench.bench_groups [--members 1000] [--tasks 10000]

Everything up to the log in memory is in the figures; sockets and the decoding of requests are not. Best of three.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from coordinator.group.config import GroupConfig
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import Shard
from streamsrt.assignment import highly_available
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.sticky import assign
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat
from streamsrt.wire.types import StreamsGroupHeartbeatResponse as Response
from tests.coordinator.group.memory_log import MemoryLog
from tests.streamsrt.assignment.notation import subtopology

MEMBERS_PER_PROCESS = 4


class Group:
    """A group of members that do what they are told."""

    def __init__(self, members: int, tasks: int, *, delay_ms: int) -> None:
        self.log = MemoryLog()
        config = GroupConfig.parse({"group.streams.initial.rebalance.delay.ms": str(delay_ms)})
        half = tasks // 2
        image = TopicsImage.of(*(TopicImage(name.encode().ljust(16), name, half) for name in ("in", "r", "c")))
        self.shard = Shard(self.log, config, image)
        lines = ["0: source=in sink=r", "1: repartition=r changelog=c"]
        self.topology = Heartbeat.Topology(subtopologies=[subtopology(line) for line in lines])
        self.names = [f"member-{i:05d}" for i in range(members)]
        self.epochs = dict.fromkeys(self.names, 0)
        self.now_ms = 1000

    def ask(self, request: Heartbeat) -> Response:
        context = RequestContext(1, "client", "/127.0.0.1", 1)
        ((_, response),) = self.shard.execute(GroupRequest(context, request), self.now_ms).replies
        assert isinstance(response, Response)
        assert not response.error_code, response.error_message
        self.epochs[request.member_id] = response.member_epoch
        return response

    def join(self, index: int) -> None:
        self.ask(
            Heartbeat(
                group_id="g",
                member_id=self.names[index],
                rebalance_timeout_ms=300_000,
                topology=self.topology,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id=f"process-{index // MEMBERS_PER_PROCESS:05d}",
            )
        )

    def beat(self, name: str, given: Response | None = None) -> Response:
        request = Heartbeat(group_id="g", member_id=name, member_epoch=self.epochs[name])
        if given is not None:
            request.active_tasks = [
                Heartbeat.TaskIds(subtopology_id=t.subtopology_id, partitions=t.partitions)
                for t in given.active_tasks or ()
            ]
            request.standby_tasks, request.warmup_tasks = [], []
        return self.ask(request)

    def settle(self) -> int:
        """Rounds of heartbeats until nothing is told any more."""
        for rounds in range(1, 10):
            self.now_ms += 5000
            self.shard.tick(self.now_ms)
            told = [(name, response) for name in self.names if (response := self.beat(name)).active_tasks is not None]
            for name, response in told:
                self.beat(name, response)
            if not told:
                return rounds
        raise AssertionError("the group does not settle")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def steady(members: int, tasks: int) -> float:
    group = Group(members, tasks, delay_ms=3000)
    for index in range(members):
        group.join(index)
    group.settle()
    appended = len(group.log.batches)
    requests = [Heartbeat(group_id="g", member_id=name, member_epoch=group.epochs[name]) for name in group.names]
    best = min(seconds(lambda: [group.ask(request) for request in requests]) for _ in range(3))
    assert len(group.log.batches) == appended, "a steady heartbeat wrote a record"
    return members / best


def storm(members: int, tasks: int, *, delay_ms: int) -> tuple[float, float]:
    group = Group(members, tasks, delay_ms=delay_ms)
    joined = seconds(lambda: [group.join(index) for index in range(members)])
    return joined, seconds(group.settle)


def assignment(members: int, tasks: int, replicas: int) -> tuple[float, float]:
    """Seconds of ``sticky``: for a new group, and after a member left."""
    counts, stateful = {"0": tasks // 2, "1": tasks // 2}, frozenset({"1"})
    group = [AssignorMember(f"m{i:05d}", f"p{i // MEMBERS_PER_PROCESS:05d}", NO_TASKS) for i in range(members)]
    targets: dict[str, object] = {}

    def run(current: list[AssignorMember]) -> dict[str, object]:
        found = assign(current, task_counts=counts, stateful=stateful, num_standby_replicas=replicas)
        targets.update(found)
        return dict(found)

    first = min(seconds(lambda: run(group)) for _ in range(3))
    had = assign(group, task_counts=counts, stateful=stateful, num_standby_replicas=replicas)
    left = [AssignorMember(m.member_id, m.process_id, had[m.member_id]) for m in group[1:]]
    return first, min(seconds(lambda: run(left)) for _ in range(3))


def highly_available_assignment(members: int, tasks: int, replicas: int) -> tuple[float, float, float]:
    """Seconds of ``highly_available``: for a new group, after a member left, and when a tenth more members joined."""
    counts, stateful = {"0": tasks // 2, "1": tasks // 2}, frozenset({"1"})
    every = [TaskId("1", partition) for partition in range(counts["1"])]

    def run(current: list[AssignorMember]) -> dict[str, Tasks]:
        return highly_available.assign(
            current,
            task_counts=counts,
            stateful=stateful,
            num_standby_replicas=replicas,
            num_warmup_replicas=20,
            acceptable_recovery_lag=10_000,
        )

    def reporting(name: int, had: Tasks) -> AssignorMember:
        offsets = dict.fromkeys((task for task in every if task in had.active or task in had.standby), 1_000_000)
        process = f"p{name // MEMBERS_PER_PROCESS:05d}"
        return AssignorMember(f"m{name:05d}", process, had, False, had.active, offsets, offsets)

    group = [reporting(i, NO_TASKS) for i in range(members)]
    first = min(seconds(lambda: run(group)) for _ in range(3))
    had = run(group)
    settled = [reporting(i, had[f"m{i:05d}"]) for i in range(members)]
    left = min(seconds(lambda: run(settled[1:])) for _ in range(3))
    more = settled + [reporting(i, NO_TASKS) for i in range(members, members + members // 10)]
    return first, left, min(seconds(lambda: run(more)) for _ in range(3))


def load(members: int, tasks: int) -> tuple[int, float]:
    group = Group(members, tasks, delay_ms=3000)
    for index in range(members):
        group.join(index)
    group.settle()
    again = Shard(group.log, GroupConfig.parse({}))
    return group.log.log_end_offset, seconds(lambda: again.load(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=10_000)
    options = parser.parse_args()
    members, tasks = options.members, options.tasks
    print(f"{members} members, {tasks} tasks")
    print(f"  steady heartbeats       {steady(members, tasks):12,.0f} /s")
    print(f"  ... with 10 members     {steady(10, 100):12,.0f} /s")
    for replicas in (0, 1):
        first, again = assignment(members, tasks, replicas)
        print(
            f"  sticky, {replicas} standby       {first * 1000:12,.0f} ms; after a member left {again * 1000:,.0f} ms"
        )
    for replicas in (0, 1):
        first, left, more = highly_available_assignment(members, tasks, replicas)
        print(
            f"  highly_available, {replicas} standby {first * 1000:6,.0f} ms; after a member left {left * 1000:,.0f} ms; "
            f"a tenth more {more * 1000:,.0f} ms"
        )
    joined, settled = storm(members, tasks, delay_ms=3000)
    print(f"  all join, with delay    {joined * 1000:12,.0f} ms; until settled {settled * 1000:,.0f} ms")
    joined, settled = storm(members, tasks, delay_ms=0)
    print(f"  all join, without delay {joined * 1000:12,.0f} ms; until settled {settled * 1000:,.0f} ms")
    records, loaded = load(members, tasks)
    print(f"  load of {records} records {loaded * 1000:16,.0f} ms")


if __name__ == "__main__":
    main()
