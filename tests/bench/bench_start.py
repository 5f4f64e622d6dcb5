"""How quickly a process starts, and what an idle instance costs: ``python -m tests.bench.bench_start [--tasks 1,100]``.

First commands and imports, each in a process of its own: CPU time, medians of interleaved rounds; Python alone is the
floor. Then an application that counts per key, on the bundled broker: CPU time from the start of the process
to the first result in the output topic, and the time by the wall clock, which only means something on an idle machine.
After that nothing comes for ``--seconds``: the share of a core that the instance takes, its memory (RSS), and what of that
is its own, without the pages of programs and libraries, which the system reads from files and shares between processes. With
``--tasks 1,1000`` the same for an instance with a thousand tasks.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig
from tests.bench.bench_end_to_end import clusters
from tests.bench.bench_latency import cpu_seconds
from tests.bench.bench_memory import fill, make_topics, resident_bytes, until_counted
from tests.bench.peer_programs import ROOT, PeerProgram, say

COMMANDS = {
    "python": ["-c", "pass"],
    "import streamsrt": ["-c", "import streamsrt"],
    "import StreamsBuilder": ["-c", "from topology import StreamsBuilder"],
    "import TopologyTestDriver": ["-c", "from streamsrt import TopologyTestDriver"],
    "import KafkaStreams": ["-c", "from streamsrt import KafkaStreams"],
    "streamsrt --help": ["-m", "streamsrt", "--help"],
    "streamsrt run --help": ["-m", "streamsrt", "run", "--help"],
}
SETTLE_S = 5.0


def one_start(arguments: list[str]) -> float:
    """CPU seconds of a process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return used.ru_utime + used.ru_stime


def starts(rounds: int) -> None:
    for arguments in COMMANDS.values():
        one_start(arguments)
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, arguments in COMMANDS.items():
            found[name].append(one_start(arguments))
    print(f"{'':28}{'CPU, ms':>10}{'over Python':>13}")
    floor = statistics.median(found["python"])
    for name, each in found.items():
        cpu_s = statistics.median(each)
        print(f"{name:28}{cpu_s * 1e3:10.0f}{(cpu_s - floor) * 1e3:13.0f}", flush=True)


@dataclass(frozen=True, slots=True)
class Idle:
    """An instance that has started and has nothing to do."""

    started_cpu_s: float
    started_s: float
    share: float
    memory_bytes: int
    own_bytes: int


def idle(tasks: int, address: str, folder: Path, seconds: float) -> Idle:
    name = f"start-{tasks}"
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="bench-start"))
    network.start()
    pause = threading.Event()
    try:
        make_topics(network, {f"in-{name}": tasks, f"out-{name}": 4})
        fill(network, f"in-{name}", tasks, 1)
        (folder / name).mkdir()
        arguments = [address, "W2", f"in-{name}", f"out-{name}", name, "0", str(folder / name)]
        began_s = time.monotonic()
        with PeerProgram("ours", arguments, folder / "program.log") as program:
            pid = program.process.pid
            until_counted(address, f"out-{name}", 1)
            started_s, started_cpu_s = time.monotonic() - began_s, cpu_seconds(pid)
            until_counted(address, f"out-{name}", tasks)
            pause.wait(SETTLE_S)
            before_s, since_s = cpu_seconds(pid), time.monotonic()
            pause.wait(seconds)
            share = (cpu_seconds(pid) - before_s) / (time.monotonic() - since_s)
            return Idle(started_cpu_s, started_s, share, resident_bytes(pid), resident_bytes(pid, "RssAnon"))
    finally:
        network.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_start")
    parser.add_argument("--tasks", default="1,100", help="of an instance; empty: only commands and imports")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    if given.rounds:
        starts(given.rounds)
    counts = [int(each) for each in given.tasks.split(",") if each]
    if not counts:
        return
    folder = Path(tempfile.mkdtemp(prefix="streamsrt-bench-"))
    # A thousand stores have a few files each.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    try:
        with clusters(["bundled"], folder) as where:
            found = {tasks: idle(tasks, where["bundled"].address, folder, given.seconds) for tasks in counts}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say("from the start of the process to the first result, and then idle")
    print(f"{'tasks':>8}{'CPU s':>10}{'seconds':>10}{'core, %':>10}{'MB':>8}{'own':>8}")
    for tasks, each in found.items():
        print(
            f"{tasks:8}{each.started_cpu_s:10.2f}{each.started_s:10.1f}{each.share * 100:10.1f}"
            f"{each.memory_bytes / 1e6:8.0f}{each.own_bytes / 1e6:8.0f}"
        )


if __name__ == "__main__":
    main()
