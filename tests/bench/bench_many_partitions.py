"""What a small produce request costs the bundled broker with 10 partitions, and with 10,000.

    python -m tests.bench.bench_many_partitions [--partitions 10,10000] [--rounds 7] [--fsync interval]

Each broker is a process of its own, all at the same time, and they take turns in every round: the CPU time of the process a
request, the time of a round by the wall clock, and the median of the ratios to the first one. The requests have one record
of 100 bytes, 50 of them under way: to one partition only; to 10 partitions in turn; to all of them in turn, where no two in
a row meet the same partition. With ``log.fsync=interval`` a thread writes all logs that have changed to the disk once a
second, as many as there are; with ``never`` it does not.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from streamsrt.wire.messages import encode_request
from tests.bench.bench_broker import QUIET_CONFIGS, Client, batch_of, cpu_s
from tests.coordinator.broker.in_process import creation, production
from tests.coordinator.server.processes import BrokerProcess, Wire

TOPIC_PARTITIONS = 1_000
REQUESTS = 20_000
WINDOW = 50


def frames_of(partitions: int) -> list[bytes]:
    """A request for each partition."""
    batch = batch_of(1, 100)
    return [
        encode_request(production(f"t{number // TOPIC_PARTITIONS}", {number % TOPIC_PARTITIONS: batch}), 12, 1, "bench")
        for number in range(partitions)
    ]


def create(broker: BrokerProcess, partitions: int) -> None:
    with Wire(broker.port) as wire:
        for number in range(0, partitions, TOPIC_PARTITIONS):
            count = min(TOPIC_PARTITIONS, partitions - number)
            answer = wire.ask(creation(f"t{number // TOPIC_PARTITIONS}", count))
            assert not answer.topics[0].error_code, answer


def produce(broker: BrokerProcess, client: Client, frames: Sequence[bytes]) -> tuple[float, float]:
    """Microseconds of the broker's CPU time, and of the clock, per request."""
    before_s, began_s = cpu_s(broker.process.pid), time.perf_counter()
    client.pipeline(frames, REQUESTS, WINDOW)
    ended_s = time.perf_counter()
    return (cpu_s(broker.process.pid) - before_s) / REQUESTS * 1e6, (ended_s - began_s) / REQUESTS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="10,10000", help="of each broker")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--fsync", default="interval", choices=["never", "interval", "group"])
    given = parser.parse_args()
    configs = (*QUIET_CONFIGS, "--config", f"log.fsync={given.fsync}")
    counts = [int(each) for each in given.partitions.split(",")]
    # A partition has an open file.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = {}
        for count in counts:
            broker = brokers[count] = stack.enter_context(BrokerProcess(folder / f"data-{count}", *configs))
            create(broker, count)
        frames, clients = frames_of(max(counts)), {count: Client(brokers[count].port) for count in counts}
        targets = {
            "one partition": lambda count: frames[:1],
            "10 partitions in turn": lambda count: frames[:10],
            "all partitions in turn": lambda count: frames[:count],
        }
        for number in range(given.rounds + 1):
            for name, target in targets.items():
                for count in counts:
                    sample = produce(brokers[count], clients[count], target(count))
                    # The first round creates what is created on first use.
                    if number:
                        found.setdefault((name, count), []).append(sample)
    print(f"{'a produce request to':26}{'partitions':>12}{'CPU, us':>10}{'x':>7}{'wall, us':>10}{'x':>7}")
    for (name, count), samples in found.items():
        firsts = found[name, counts[0]]
        each = []
        for index in (0, 1):
            ratios = [sample[index] / first[index] for sample, first in zip(samples, firsts, strict=True)]
            each.append(f"{statistics.median(s[index] for s in samples):10.1f}{statistics.median(ratios):7.2f}")
        print(f"{name:26}{count:12,}{each[0]}{each[1]}")


if __name__ == "__main__":
    main()
