"""A classic group with many members and tasks, on the bundled broker: the size of its record, the time of a generation.

    python -m tests.bench.bench_classic_scale [--members 500] [--tasks 5000] [--standbys 0] [--processes 2] [--profile]

Each member is the real machine on sockets of its own; only tasks are missing behind it: it has what it is told at once, and
what it is to warm up is warm at once. The member that leads runs in a process of its own, whose CPU time (the most of a
generation) and memory are measured. First all members start at once, then one leaves, then one more joins. ``--profile``
prints where the leader's time goes.

The record is the group's in ``__consumer_offsets``: all subscriptions and assignments. Where it is larger than the broker
takes, give ``--record-max-bytes``: it raises ``message.max.bytes`` of the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamsrt.client.admin import Admin
from streamsrt.client.classic_group import ClassicDriver
from streamsrt.client.cluster import Cluster as Connections
from streamsrt.client.leading import LeaderWork
from streamsrt.client.metadata import Metadata
from streamsrt.client.signal import Signal
from streamsrt.client.values import ClientConfig, RequestTimedOutError
from streamsrt.membership.classic.leader_assignments import RECORD_MAX_BYTES, LeaderSettings
from streamsrt.membership.classic.member import ClassicMember, ClassicStep
from streamsrt.membership.classic.state import ClassicMemberState
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    GroupMembership,
    Leave,
    LeftGroup,
    ReleaseTasks,
    ReportOwned,
    SetTaskOffsets,
    Tasks,
)
from streamsrt.wire import types
from streamsrt.wire.schema import Message
from tests.fixtures_brokers import ROOT, BundledBroker
from tests.streamsrt.membership.classic.group_model import subtopology
from tests.system.cluster import Cluster, connected
from tests.system.processes import environment, wait_until

GROUP = "scale"
TOPOLOGY = types.StreamsGroupHeartbeatRequest.Topology(
    epoch=0, subtopologies=[subtopology("0: source=in sink=r"), subtopology("1: repartition=r changelog=c")]
)
TURN_S = 0.05
PATIENCE_S = 600.0
QUIET_S = 8.0
"""A group that nobody rebalances for so long has settled: more than two heartbeat intervals."""


# ------------------------------------------------------------------------------------------------ processes of members


class TimedMember(ClassicMember):
    """Counts the CPU time of what follows from the answers to a JoinGroup and to a leader's work."""

    led: list[float]
    profile: cProfile.Profile | None = None

    def rebalance_responded(self, response: Message, now_ms: int) -> ClassicStep:
        if isinstance(response, types.JoinGroupResponse) and response.members:
            self.led.append(0.0)
        return self._timed(super().rebalance_responded, response, now_ms)

    def worked(self, answer: Any, now_ms: int) -> ClassicStep:
        return self._timed(super().worked, answer, now_ms)

    def _timed(self, method: Callable[[Any, int], ClassicStep], value: Any, now_ms: int) -> ClassicStep:
        began = time.process_time()
        if self.profile is not None:
            self.profile.enable()
        try:
            return method(value, now_ms)
        finally:
            if self.profile is not None:
                self.profile.disable()
            if self.led:
                self.led[-1] += time.process_time() - began


class Seat:
    """A member and what stands for its processing thread."""

    def __init__(self, servers: str, standbys: int, record_max_bytes: int) -> None:
        self._servers = servers
        membership = GroupMembership(
            group_id=GROUP, member_id="", process_id=str(uuid.uuid4()), topology=TOPOLOGY, session_timeout_ms=120_000
        )
        settings = LeaderSettings(
            group_id=GROUP, session_timeout_ms=120_000, num_standby_replicas=standbys, record_max_bytes=record_max_bytes
        )
        self.machine = TimedMember(membership, settings, unique=uuid.uuid4().int & 0x3FFF_FFFF)
        self.machine.led = []
        self.tasks = NOTHING
        self.has_left = False

    def start(self) -> None:
        self._connections = Connections(ClientConfig(bootstrap_servers=self._servers))
        self._metadata = Metadata(self._connections)
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        await self._metadata.cluster_info()
        work = LeaderWork(self._connections, Admin(self._connections, self._metadata), GROUP)
        self.driver = ClassicDriver(self.machine, work, self._connections, Signal())
        self.driver.start()

    def turn(self) -> None:
        if not self._opening.done():
            return
        self._opening.result()
        self.driver.polled()
        for event in self.driver.events():
            if isinstance(event, AssignmentChanged):
                self._take(event.tasks)
            elif isinstance(event, ReleaseTasks):
                self._take(NOTHING)
            self.has_left = self.has_left or isinstance(event, LeftGroup)

    def _take(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.driver.send(ReportOwned(tasks))
        passive = dict.fromkeys(tasks.standby | tasks.warmup, 1_000)
        self.driver.send(SetTaskOffsets(passive, passive))

    async def close(self) -> None:
        self.driver.close()
        await self._connections.close()


def own_memory_mb() -> tuple[float, float]:
    """Now, and at most."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    now, most = (int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return now, most


async def sit(options: argparse.Namespace) -> None:
    """So many members, until stdin ends: they join on the first line, and on each further one the last of them leaves. Tells
    its progress each time something has changed."""
    ended, leave, begin = threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=_listen, args=(ended, leave, lambda: loop.call_soon_threadsafe(begin.set)), daemon=True
    ).start()
    seats = [Seat(options.servers, options.standbys, options.record_max_bytes) for _ in range(options.sit)]
    before, _ = own_memory_mb()
    profile = cProfile.Profile() if options.profile else None
    print(json.dumps(_progress(seats, before)), flush=True)
    await begin.wait()
    for seat in seats:
        seat.machine.profile = profile
        seat.start()
    last: dict[str, Any] = {}
    pause = asyncio.Event()
    while not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pause.wait(), TURN_S)
        for seat in seats:
            seat.turn()
        if leave.is_set():
            leave.clear()
            seats[-1].driver.send(Leave())
        for seat in [each for each in seats if each.has_left]:
            seats.remove(seat)
            await seat.close()
        line = _progress(seats, before)
        if line != last:
            last = line
            print(json.dumps(line | {"at_s": time.monotonic()}), flush=True)
    if profile is not None:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(45)


def _progress(seats: list[Seat], before_mb: float) -> dict[str, Any]:
    inside = [seat.machine for seat in seats if seat.machine.session.group is ClassicMemberState.IN]
    return {
        "members": len(seats),
        # With an id: a JoinGroup without one is only answered with it.
        "joining": any(
            bool(seat.machine.member_id) and seat.machine.session.group is ClassicMemberState.JOINING for seat in seats
        ),
        "at_s": 0.0,
        "generations": sorted({machine.session.generation for machine in inside}) if len(inside) == len(seats) else [],
        "active": sum(len(seat.tasks.active) for seat in seats),
        "passive": sum(len(seat.tasks.standby | seat.tasks.warmup) for seat in seats),
        "led": [round(1000 * each) for seat in seats for each in seat.machine.led],
        "memory_mb": round(own_memory_mb()[1] - before_mb),
    }


def _listen(ended: threading.Event, leave: threading.Event, begin: Callable[[], object]) -> None:
    sys.stdin.readline()
    begin()
    for _ in sys.stdin:
        leave.set()
    ended.set()


# ------------------------------------------------------------------------------------------------------ the measurement


class Crew:
    """A process of members, and its latest line."""

    def __init__(self, members: int, servers: str, options: argparse.Namespace, *, profile: bool = False) -> None:
        command = [sys.executable, "-m", "tests.bench.bench_classic_scale", "--sit", str(members), "--servers", servers]
        command += ["--standbys", str(options.standbys), "--record-max-bytes", str(options.record_max_bytes)]
        self._process = subprocess.Popen(
            command + ["--profile"] * profile,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(ROOT),
        )
        self.line: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.line = json.loads(line)

    def go(self) -> None:
        """Its members join; from the second time on, one leaves."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait_for(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        wait_until(lambda: bool(self.line) and holds(self.line), "members", timeout_s=PATIENCE_S)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60.0)
        finally:
            self._process.kill()
            self._reader.join()


def settled(crews: list[Crew], members: int, tasks: int, standbys: int) -> float:
    """When the last change was before the group was quiet."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pause.wait(0.1)
        lines = [crew.line for crew in crews]
        if not all(lines) or sum(line["members"] for line in lines) != members:
            continue
        generations = {generation for line in lines for generation in (line["generations"] or [-1])}
        changed = max(float(line["at_s"]) for line in lines)
        is_whole = sum(line["active"] for line in lines) == tasks
        is_whole = is_whole and sum(line["passive"] for line in lines) == tasks // 2 * standbys
        if len(generations) == 1 and is_whole and time.monotonic() - changed > QUIET_S:
            return changed
    raise AssertionError(f"not settled in {PATIENCE_S:g} s: {[crew.line for crew in crews]}")


@contextlib.contextmanager
def running_broker(folder: Path, record_max_bytes: int) -> Iterator[BundledBroker]:
    # So that those who start together are together in the first generation.
    settings = {"group.initial.rebalance.delay.ms": "10000", "message.max.bytes": str(record_max_bytes)}
    broker = BundledBroker(folder, settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def record_bytes(broker: BundledBroker) -> int:
    """The largest record of the group."""
    with connected(broker) as cluster:
        records = cluster.read("__consumer_offsets")
    return max(len(record.value) for record in records if record.value and GROUP.encode() in (record.key or b""))


def make_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Thousands of partitions may take longer than the client waits for the answer."""
    with contextlib.suppress(RequestTimedOutError):
        cluster.make_topics(partitions, name)
    admin = cluster.network.admin
    wait_until(lambda: admin.partitions_for([name]).get(name) == partitions, f"{name} is made", timeout_s=PATIENCE_S)


def measure(options: argparse.Namespace, folder: Path) -> None:
    with running_broker(folder, options.record_max_bytes) as broker, contextlib.ExitStack() as stack:
        with connected(broker) as cluster:
            # Making thousands of partitions is no part of what is measured.
            for name in ("in", "r", "c"):
                make_topic(cluster, name, options.tasks // 2)
        servers = broker.bootstrap_servers

        def crew(members: int, *, profile: bool = False) -> Crew:
            made = Crew(members, servers, options, profile=profile)
            stack.callback(made.close)
            return made

        leader = crew(1, profile=options.profile)
        others = options.members - 1
        shares = [
            others // options.processes + (index < others % options.processes) for index in range(options.processes)
        ]
        crews = [leader, *(crew(share) for share in shares)]
        members, done = options.members, 0
        for each in crews:
            each.wait_for(lambda line: bool(line["members"]))
        began = time.monotonic()
        # Who joins first leads.
        leader.go()
        leader.wait_for(lambda line: bool(line["joining"]))
        for each in crews[1:]:
            each.go()

        def tell(what: str, since: float) -> None:
            nonlocal done
            at = settled(crews, members, options.tasks, options.standbys)
            led = leader.line["led"][done:]
            done += len(led)
            print(
                f"{what:24} {members:7} {at - since:8.1f} s {len(led):11} {max(led, default=0):8} ms "
                f"{record_bytes(broker):12,} {leader.line['memory_mb']:6} MB",
                flush=True,
            )

        heads = f"{'settled in':>10} {'generations':>11} {'leader CPU':>11} {'record bytes':>12} {'memory':>9}"
        print(f"{'':24} {'members':>7} {heads}", flush=True)
        tell("all start", began)
        began, members = time.monotonic(), members - 1
        crews[1].go()
        tell("one leaves", began)
        began, members = time.monotonic(), members + 1
        crews.append(crew(1))
        crews[-1].go()
        tell("one joins", began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=500)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--standbys", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--record-max-bytes", type=int, default=RECORD_MAX_BYTES)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sit", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sit:
        asyncio.run(sit(options))
        return
    with tempfile.TemporaryDirectory() as name:
        measure(options, Path(name))


if __name__ == "__main__":
    main()
