"""Instances, stream processes, the broker, disks and the network fail at random while input comes in; then: what came out?

    python -m tests.system.storm --broker kafka:3.9.1 --protocol classic --program words --rounds 100 --seed 1

A round is one blow (:mod:`tests.system.faults`). Storms of ten blows follow one another, each with a seed of its own and all
on one broker; clients reach it through a proxy. The first wrong result ends the command, and says with what it can be
repeated; the logs of that storm stay.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from streamsrt.errors import StreamsError
from tests.fixtures_brokers import QUICK_GROUPS, BundledBroker
from tests.kafka_server import VERSION, KafkaServer
from tests.system import frozen_disk
from tests.system.cluster import Cluster, Server, connected
from tests.system.faults import EXIT_STATE, FAULTS, PATIENCE_S, SIZE_MAX, Blow, Fault, plan
from tests.system.processes import AppProcess, seen
from tests.system.storm_programs import PARTITIONS, PROGRAMS, Feed, Program, Verdict
from tests.tcp_proxy import TcpProxy

EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    "transaction.timeout.ms": 4_000,
    # Results are written at once and committed much later: a blow seldom finds nothing that is undecided.
    "linger.ms": 0,
    "commit.interval.ms": 400,
    "statestore.cache.max.bytes": 0,
    "repartition.purge.interval.ms": 3_600_000,
}
AT_LEAST_ONCE = {key: value for key, value in EXACTLY_ONCE.items() if key != "transaction.timeout.ms"} | {
    "processing.guarantee": "at_least_once"
}
GUARANTEES = {"exactly_once_v2": EXACTLY_ONCE, "at_least_once": AT_LEAST_ONCE}
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "streams": {},
    "classic": {"group.protocol": "classic", "session.timeout.ms": 4_000, "heartbeat.interval.ms": 400},
}
"""What a member sets itself in a classic group, the broker sets in a streams group (``QUICK_GROUPS``)."""
CHUNK, PAUSE_S = 50, 0.1
ROWS_PER_BLOW = 8_000
START_CPU_S, STARVED_S = 6.0, 900.0
"""What a start of an instance takes, and how long it gets on a machine that has no time for it."""
STEPS_MAX = 3
LONGEST_S = 1.0
FIRST_SIZE = 2
BLOWS_PER_STORM = 10


class Feeder:
    """Writes rows in small pieces on a thread of its own, over a connection of its own, until it is told to stop.
    ``written`` of them are acknowledged; no other was sent. ``limit``: so many may be written by now."""

    def __init__(self, cluster: Cluster, feed: Feed) -> None:
        self.written = 0
        self.limit = ROWS_PER_BLOW
        self._cluster = cluster
        self._feed = feed
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with connected(self._cluster.server, self._cluster.address) as cluster:
                while not self._stop.wait(PAUSE_S):
                    part = self._feed[self.written : min(self.limit, self.written + CHUNK)]
                    for topic in dict.fromkeys(topic for topic, _ in part):
                        rows = [row for name, row in part if name == topic]
                        # So long may a broker take that was killed, on a machine with much else to do.
                        cluster.write(topic, rows, PARTITIONS, timeout_s=PATIENCE_S)
                    self.written += len(part)
        except (StreamsError, AssertionError) as error:
            self._failure = error

    def finish(self) -> int:
        """Stops; how many rows are written."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.written


class Storm:
    """What blows are struck on: up to four instances of an application, the broker, and the network between them."""

    def __init__(
        self, cluster: Cluster, proxy: TcpProxy, feeder: Feeder, instances: list[AppProcess], size: int
    ) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.feeder = feeder
        self.size = size
        self.down: list[AppProcess] = []
        """Those that were lost, and start again after the next blow."""
        self.had_no_space: list[AppProcess] = []
        self._instances = instances
        self._pause = threading.Event()
        for each in instances[:size]:
            each.start()

    @property
    def up(self) -> list[AppProcess]:
        return [each for each in self._instances[: self.size] if each not in self.down]

    def pick(self, blow: Blow) -> AppProcess:
        """Whom it hits: one that runs, and that has not only just been started."""
        old = [each for each in self.up if each.progress] or self.up
        return old[int(blow.victim * len(old))]

    def wait(self, seconds: float) -> None:
        self._pause.wait(seconds)

    def wait_while(self, holds: Callable[[], bool], seconds: float) -> None:
        """Until it does not hold any more, at most for so long."""
        for _ in range(max(1, round(seconds / 0.05))):
            if not holds():
                return
            self.wait(0.05)

    def wait_until_all_run(self) -> None:
        """Each has joined and runs, two at least share the tasks, and something is processed. More need not have any: where
        there are more stream threads than tasks, two of an instance may have one each."""
        for each in self.up:
            each.wait_for(lambda line: line["state"] == "RUNNING", "it runs", timeout_s=PATIENCE_S)
        enough = min(2, len(self.up))
        self.wait_while(lambda: self._busy() < enough, PATIENCE_S)
        assert self._busy() >= enough, f"{self._busy()} of {len(self.up)} instances have tasks"
        # That may have taken longer than the input for one blow lasts.
        self.feeder.limit = max(self.feeder.limit, self.feeder.written + ROWS_PER_BLOW // 2)
        self._wait_for_work()

    def _busy(self) -> int:
        return sum(bool(each.tasks("active", "running")) for each in self.up)

    def strike(self, blow: Blow) -> None:
        """Waits for the moment, and lets it happen while the application is at work."""
        lost, self.down = self.down, []
        for each in lost:
            each.start()
        self._wait_for_work()
        self.wait(blow.moment * LONGEST_S)
        blow.fault.strike(self, blow)
        self.look_after()

    def look_after(self) -> None:
        """Nobody may have ended by himself, but one whose disk was full: that one starts again."""
        for each in self.up:
            if each.has_ended:
                code = each.wait_end()
                found = f"{each.folder.name} has ended with exit code {code}:\n{each.stderr[-4000:]}"
                assert code == EXIT_STATE, found
                assert each in self.had_no_space, found
                each.start()

    def _wait_for_work(self) -> None:
        def done() -> list[int]:
            return [each.progress.get("processed_records", 0) for each in self.up]

        before = done()

        def nothing() -> bool:
            return all(now <= then for now, then in zip(done(), before, strict=True))

        self.wait_while(nothing, PATIENCE_S)
        if nothing() and self._is_starved():
            self.wait_while(nothing, STARVED_S)
        if nothing():
            raise AssertionError(f"nothing is processed for {PATIENCE_S:g} s\n{self._sight()}")

    def _is_starved(self) -> bool:
        """Whether an instance that has said nothing yet has had less of the machine than a start takes."""
        return any(not each.progress and sum(one.cpu_s for one in seen(each.pid)) < START_CPU_S for each in self.up)

    def _sight(self) -> str:
        """What the instances do, and what they said last: one that is mute hangs, or has a machine that is busy."""
        found = [f"load {os.getloadavg()[0]:.0f}"]
        for each in self.up:
            found += [f"{each.folder.name} {each.progress}", *map(str, seen(each.pid)), each.stderr[-3000:]]
        return "\n".join(found)

    def stop(self, instance: AppProcess) -> None:
        """In good order."""
        # Before, it may not even have its signal handlers yet.
        instance.wait_for(lambda line: line["state"] != "CREATED", "it runs", timeout_s=PATIENCE_S)
        code = instance.terminate()
        found = f"{instance.folder.name}: exit code {code}\n{instance.stderr[-4000:]}"
        # One that was ending anyway may hear of it when it listens to no signals any more.
        has_failed = code in (EXIT_STATE, -signal.SIGTERM) and "the disk is full" in instance.last_words
        assert code == 0 or (has_failed and instance in self.had_no_space), found

    def scale(self, size: int) -> None:
        for each in self._instances[size : self.size]:
            if each not in self.down:
                self.stop(each)
        self.down = [each for each in self.down if each in self._instances[:size]]
        before, self.size = self.size, size
        for each in self._instances[before:size]:
            each.start()

    def calm_down(self) -> None:
        self.proxy.calm()
        for each in self.down:
            each.start()
        self.down = []

    def end(self) -> None:
        """Stops all of them."""
        self.look_after()
        for each in self.up:
            self.stop(each)


def weather(
    program: Program,
    guarantee: str,
    seed: int,
    blows: int,
    cluster: Cluster,
    folder: Path,
    application_id: str,
    faults: Sequence[Fault] = (),
    protocol: str = "streams",
) -> Counter[str]:
    """Runs an application through a storm, until all input is committed and all instances have stopped cleanly, and checks
    what it wrote; how often each fault struck. The seed says too whether there are standbys, and how many stream threads."""
    chance = random.Random(seed)
    threads, standbys = chance.randint(1, 2), chance.randint(0, 1)
    settings = {
        **GUARANTEES[guarantee],
        **PROTOCOLS[protocol],
        "num.stream.threads": threads,
        "num.standby.replicas": standbys,
        # Who starts while the broker does has patience.
        "default.api.timeout.ms": round(PATIENCE_S * 1_000),
    }
    proxy = cluster.server.proxy
    assert proxy is not None
    cluster.make_topics(PARTITIONS, *program.inputs, *program.outputs)
    program.prepare(cluster)
    feed = program.feed(ROWS_PER_BLOW * (1 + blows * (1 + STEPS_MAX)))
    struck: Counter[str] = Counter()
    with ExitStack() as stack:
        instances = [
            AppProcess(
                folder / name,
                program.module,
                application_id,
                cluster.address,
                settings,
                options=("--progress-interval", "0.2"),
                surroundings=frozen_disk.surroundings(folder, folder / name / "state"),
            )
            for name in "abcd"[:SIZE_MAX]
        ]
        for each in instances:
            stack.callback(each.kill)
        feeder = Feeder(cluster, feed)
        storm = Storm(cluster, proxy, feeder, instances, FIRST_SIZE)
        stack.callback(proxy.calm)
        with feeder:
            for blow in plan(chance, faults or FAULTS, blows):
                print(f"{time.strftime('%H:%M:%S')} seed {seed}: {blow.fault.name}", flush=True)
                storm.strike(blow)
                feeder.limit += ROWS_PER_BLOW
                struck[blow.fault.name] += 1
            storm.calm_down()
            written = feeder.finish()
        inputs = [*program.inputs, *(f"{application_id}-{name}" for name in program.internal)]
        cluster.wait_all_committed(application_id, *inputs, timeout_s=PATIENCE_S)
        storm.end()
    logs = [each.stderr for each in instances if each.folder.exists()]
    wiped = [line for log in logs for line in log.splitlines() if "wiped" in line]
    assert not wiped, "state was thrown away:\n" + "\n".join(wiped[:10])
    program.check(Verdict(cluster, application_id, feed[:written], guarantee == "exactly_once_v2"))
    return struck


def brew(name: str, folder: Path, proxy: TcpProxy) -> tuple[Server, str]:
    """A broker behind a proxy, and the address that clients connect to."""
    server: Server
    if name == "bundled":
        server = BundledBroker(folder, proxy=proxy)
    else:
        server = KafkaServer(folder, QUICK_GROUPS, proxy, version=version_of(name))
    server.start()
    return server, f"127.0.0.1:{proxy.port}"


def version_of(broker: str) -> str:
    """Of Apache Kafka, as ``kafka`` or ``kafka:3.9.1`` says it. Raises ArgumentTypeError."""
    found = re.fullmatch(r"kafka(?::([0-9]+\.[0-9]+\.[0-9]+))?", broker)
    if found is None:
        raise argparse.ArgumentTypeError(f"{broker!r}: expected bundled, kafka, or kafka:VERSION such as kafka:3.9.1")
    return found[1] or VERSION


def _broker(name: str) -> str:
    if name != "bundled":
        version_of(name)
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", type=_broker, default="bundled", help=f"bundled, kafka ({VERSION}), kafka:VERSION")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="streams", help="(default: %(default)s)")
    parser.add_argument("--program", choices=sorted(PROGRAMS), default="words")
    parser.add_argument("--guarantee", choices=sorted(GUARANTEES), default="exactly_once_v2")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first storm; the next ones count on")
    parser.add_argument("--fault", action="append", default=[], help="only this one; repeatable")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    done: Counter[str] = Counter()
    seed = arguments.seed
    with ExitStack() as stack:
        server, address = brew(arguments.broker, folder / "broker", stack.enter_context(TcpProxy()))
        stack.callback(server.kill)
        while done.total() < arguments.rounds:
            blows = min(BLOWS_PER_STORM, arguments.rounds - done.total())
            if not _one_storm(arguments, seed, blows, server, address, folder / f"storm-{seed}", done):
                return 1
            seed += 1
    scene = f"{arguments.broker}, {arguments.protocol}, {arguments.program}, {arguments.guarantee}"
    print(f"{scene}: all right after {done.total()}: {dict(done)}")
    shutil.rmtree(folder)
    return 0


def _one_storm(
    arguments: argparse.Namespace,
    seed: int,
    blows: int,
    server: Server,
    address: str,
    scene: Path,
    done: Counter[str],
) -> bool:
    started = time.monotonic()
    program = PROGRAMS[arguments.program]
    faults = [fault for fault in FAULTS if fault.name in arguments.fault]
    try:
        with connected(server, address) as cluster:
            struck = weather(
                program, arguments.guarantee, seed, blows, cluster, scene, f"storm-{seed}", faults, arguments.protocol
            )
    except (AssertionError, StreamsError) as error:
        again = f"--broker {arguments.broker} --protocol {arguments.protocol} --program {program.name}"
        again += f" --guarantee {arguments.guarantee}"
        print(f"WRONG; again: {again} --rounds {blows} --seed {seed}; logs in {scene}\n{error}", flush=True)
        return False
    shutil.rmtree(scene)
    done += struck
    took_s = time.monotonic() - started
    print(
        f"seed {seed}: right after {blows} rounds in {took_s:.0f} s; {done.total()} of {arguments.rounds}", flush=True
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
