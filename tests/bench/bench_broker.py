"""What the bundled broker does per second: produce, fetch, small requests, heartbeats, over loopback sockets.

Run it as ``python -m tests.bench.bench_broker [--directory D] [--rounds N]``. The broker is a process of its own; each row
is the median of several rounds. Wall-clock figures include the client, which shares the machine, so the CPU time of the
broker's process per unit stands beside them: it is the steadier figure. MB are 10^6 bytes.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from streamsrt.wire import types
from streamsrt.wire.messages import encode_request
from streamsrt.wire.records import encode_batch
from tests.coordinator.broker.in_process import creation, fetching, production
from tests.coordinator.server.processes import BrokerProcess, Wire

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
QUIET_CONFIGS = (
    *("--config", "message.max.bytes=8000000", "--config", "log.retention.ms=-1"),
    *("--config", "group.streams.initial.rebalance.delay.ms=0", "--config", "group.streams.assignment.interval.ms=0"),
)


class Sample(NamedTuple):
    wall_s: float
    broker_cpu_s: float


class Row(NamedTuple):
    name: str
    rate: str
    cpu: str
    goal: str


def cpu_s(pid: int) -> float:
    """User and system time of a process; the clock has 10 ms, so that a round must last long beside that."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def batch_of(record_count: int, value_bytes: int) -> bytes:
    return encode_batch([None] * record_count, [os.urandom(value_bytes)] * record_count, [1000] * record_count)


class Client:
    """Sends prepared frames and counts whole answers, with as little work as possible."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(4 << 20)

    def pipeline(self, frames: bytes | Sequence[bytes], count: int, window: int) -> int:
        """Sends ``count`` frames, one or some in turn, with at most ``window`` unanswered; the bytes of all answers."""
        turn = [frames] if isinstance(frames, bytes) else frames
        sent = answered = total = 0
        left = 0
        head = b""
        view = memoryview(self._buffer)
        while answered < count:
            burst = min(count - sent, window - (sent - answered))
            if burst > 0:
                self.socket.sendall(b"".join([turn[number % len(turn)] for number in range(sent, sent + burst)]))
                sent += burst
            received = self.socket.recv_into(view)
            total += received
            at = 0
            while at < received:
                if left:
                    step = min(left, received - at)
                    left -= step
                    at += step
                else:
                    need = 4 - len(head)
                    head += bytes(view[at : min(at + need, received)])
                    at += min(need, received - at)
                    if len(head) < 4:
                        break
                    left, head = int.from_bytes(head, "big"), b""
                if not left and not head:
                    answered += 1
        return total


def measured(broker: BrokerProcess, rounds: int, work: Callable[[], None]) -> Sample:
    work()
    samples = []
    for _ in range(rounds):
        cpu, wall = cpu_s(broker.process.pid), time.perf_counter()
        work()
        samples.append(Sample(time.perf_counter() - wall, cpu_s(broker.process.pid) - cpu))
    return Sample(*(statistics.median(column) for column in zip(*samples, strict=True)))


def producing(broker: BrokerProcess, rounds: int) -> Row:
    with Wire(broker.port) as wire:
        wire.ask(creation("bulk"))
    batch = batch_of(1000, 1024)
    frame = encode_request(production("bulk", {0: batch}), 12, 1, "bench")
    client = Client(broker.port)
    count = 300
    sample = measured(broker, rounds, lambda: discard(client.pipeline(frame, count, 5)))
    megabytes = count * len(batch) / 1e6
    return Row(
        "produce 1,000 records of 1 KB per request",
        f"{megabytes / sample.wall_s:,.0f} MB/s",
        f"{sample.broker_cpu_s / megabytes * 1e3:.2f} ms/MB",
        "250 MB/s",
    )


def discard(_: object) -> None:
    """Makes a callable for :func:`measured` of one that returns something."""


def fetching_back(broker: BrokerProcess, rounds: int, max_bytes: int) -> Row:
    """The same megabytes again and again, so that they come out of the page cache."""
    frame = encode_request(
        fetching("bulk", {0: 5000}, max_bytes=max_bytes, partition_max_bytes=max_bytes), 12, 1, "bench"
    )
    client = Client(broker.port)
    count = (300 << 20) // max_bytes
    received = 0

    def work() -> None:
        nonlocal received
        received = client.pipeline(frame, count, 2)

    sample = measured(broker, rounds, work)
    return Row(
        f"fetch of {max_bytes >> 20} MiB per request",
        f"{received / 1e6 / sample.wall_s:,.0f} MB/s",
        f"{sample.broker_cpu_s / (received / 1e6) * 1e3:.2f} ms/MB",
        "",
    )


def small_requests(broker: BrokerProcess, rounds: int, name: str, frame: bytes, window: int, goal: str = "") -> Row:
    client = Client(broker.port)
    count = 20_000
    sample = measured(broker, rounds, lambda: discard(client.pipeline(frame, count, window)))
    return Row(name, f"{count / sample.wall_s:,.0f} /s", f"{sample.broker_cpu_s / count * 1e6:.1f} us/request", goal)


def many_members(broker: BrokerProcess, rounds: int, members: int) -> Row:
    """Heartbeats of members that have what they are to have, each on a connection of its own."""
    heartbeat = types.StreamsGroupHeartbeatRequest
    subtopology = heartbeat.Subtopology(subtopology_id="0", source_topics=["bulk"])
    frames, sockets, epochs = [], [], []
    for i in range(members):
        join = heartbeat(
            group_id=f"group-{i % 10}",
            member_id=f"member-{i}",
            member_epoch=0,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=300_000,
            topology=heartbeat.Topology(epoch=0, subtopologies=[subtopology]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=f"process-{i}",
            client_tags=[],
        )
        sockets.append(Wire(broker.port))
        epochs.append(sockets[-1].ask(join, 0).member_epoch)
    for i, wire in enumerate(sockets):
        frames.append(
            encode_request(settled_heartbeat(wire, f"group-{i % 10}", f"member-{i}", epochs[i]), 0, 1, "bench")
        )
    count = 400
    sample = measured(broker, rounds, lambda: exchange([wire.socket for wire in sockets], frames, count))
    total = count * members
    return Row(
        f"StreamsGroupHeartbeat, {members} connections",
        f"{total / sample.wall_s:,.0f} /s",
        f"{sample.broker_cpu_s / total * 1e6:.1f} us/request",
        "",
    )


def settled_heartbeat(
    wire: Wire, group_id: str, member_id: str, member_epoch: int
) -> types.StreamsGroupHeartbeatRequest:
    """The heartbeat of a member that has all it is to have; all members have joined."""
    beat = types.StreamsGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=member_epoch)
    beat.endpoint_information_epoch = 0
    deadline = time.monotonic() + 60
    while True:
        answer = wire.ask(beat, 0)
        assert not answer.error_code, answer
        if answer.member_epoch == beat.member_epoch > 1 and answer.active_tasks is None and not answer.status:
            beat.active_tasks = beat.standby_tasks = beat.warmup_tasks = None
            return beat
        assert time.monotonic() < deadline, answer
        beat.member_epoch = answer.member_epoch
        if answer.active_tasks is not None:
            beat.active_tasks = [
                types.StreamsGroupHeartbeatRequest.TaskIds(
                    subtopology_id=task.subtopology_id, partitions=list(task.partitions)
                )
                for task in answer.active_tasks
            ]
            beat.standby_tasks, beat.warmup_tasks = [], []


def exchange(sockets: Sequence[socket.socket], frames: Sequence[bytes], count: int) -> None:
    """One request under way on each connection, ``count`` times."""
    with selectors.DefaultSelector() as selector:
        left = [count] * len(sockets)
        for i, each in enumerate(sockets):
            selector.register(each, selectors.EVENT_READ, i)
            each.sendall(frames[i])
        open_count = len(sockets)
        while open_count:
            for key, _ in selector.select():
                i = key.data
                sockets[i].recv(65_536)
                left[i] -= 1
                if left[i]:
                    sockets[i].sendall(frames[i])
                else:
                    open_count -= 1


def rows(broker: BrokerProcess, rounds: int) -> list[Row]:
    found = [producing(broker, rounds), fetching_back(broker, rounds, 1 << 20), fetching_back(broker, rounds, 8 << 20)]
    with Wire(broker.port) as wire:
        wire.ask(creation("small"))
    produce = encode_request(production("small", {0: batch_of(1, 100)}), 12, 1, "bench")
    fetch = encode_request(fetching("small", {0: 100}, max_bytes=100, partition_max_bytes=100), 12, 1, "bench")
    metadata = encode_request(types.MetadataRequest(topics=[]), 12, 1, "bench")
    found += [
        small_requests(broker, rounds, "produce 1 record of 100 bytes, 50 under way", produce, 50, "15,000 /s"),
        small_requests(broker, rounds, "produce 1 record of 100 bytes, one by one", produce, 1, "15,000 /s"),
        small_requests(broker, rounds, "fetch 1 record of 100 bytes, one by one", fetch, 1),
        small_requests(broker, rounds, "metadata of no topic, one by one", metadata, 1),
        many_members(broker, rounds, 50),
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where the broker keeps its data (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fsync", default="interval", choices=["never", "interval", "group"])
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as folder,
        BrokerProcess(Path(folder) / "data", *QUIET_CONFIGS, "--config", f"log.fsync={options.fsync}") as broker,
    ):
        print(f"{'':46}  {'rate':>14}  {'broker CPU':>18}  {'goal':>10}")
        for row in rows(broker, options.rounds):
            print(f"{row.name:46}  {row.rate:>14}  {row.cpu:>18}  {row.goal:>10}", flush=True)


if __name__ == "__main__":
    main()
