"""What can happen to instances, stream processes, the broker, disks and the network, each as a value with a name.

1. A blow is drawn before anything runs: what happens, to whom, when, and for how long. Nothing that happens changes what is
   drawn next, so that a seed always stands for the same blows. Where exactly they hit is the machine's choice.
2. Faults are dealt out of a shuffled deck: each comes once before any comes again.
3. A full disk is a limit of the size of files (RLIMIT_FSIZE) that a process gets while it runs: nothing can grow any more.
4. Apache Kafka is stopped, not killed: a single node that was killed is fenced by its own controller while it starts, has no
   leaders then, and skips the markers of the transactions that it ends in that time ("these partitions are likely deleted
   already"): they hang for ever, whoever the client is. A full disk ends it in the same way, since it has only the one.
"""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tests.kafka_server import KafkaServer
from tests.system.processes import AppProcess, children

if TYPE_CHECKING:
    from tests.system.storm import Storm

SIZE_MAX = 4
PATIENCE_S = 180.0
FREEZE_S = 6.0
"""Longer than a session (4 s): who was frozen may find its tasks with others."""
EXIT_STATE = 4


class Blow(NamedTuple):
    """``victim``, ``moment`` and ``length`` are from 0 to 1: the fault says what of."""

    fault: Fault
    victim: float
    moment: float
    length: float


class Fault(NamedTuple):
    name: str
    strike: Callable[[Storm, Blow], None]


def processes(pid: int) -> Iterator[int]:
    """A process, and those below it; each before those that it has started."""
    yield pid
    for child in children(pid):
        yield from processes(child)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _limit_files(pid: int, soft: int) -> None:
    for each in processes(pid):
        with suppress(ProcessLookupError):
            resource.prlimit(each, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))


# --------------------------------------------------------------------------------------------------------- instances


def _kill(victim: AppProcess, blow: Blow) -> None:
    """All of its processes, or the first alone, which the others follow in good order."""
    if blow.length < 0.7:
        _signal(list(processes(victim.pid)), signal.SIGKILL)
    victim.kill()


def _kill_instance(storm: Storm, blow: Blow) -> None:
    victim = storm.pick(blow)
    _kill(victim, blow)
    victim.start()


def _lose_instance(storm: Storm, blow: Blow) -> None:
    """It starts again after the next blow only, so that others take its tasks over."""
    victim = storm.pick(blow)
    _kill(victim, blow)
    storm.down.append(victim)


def _kill_process(storm: Storm, blow: Blow) -> None:
    """One stream process of an instance; where it has only one, that is the instance."""
    victim = storm.pick(blow)
    workers = victim.workers
    if not workers:
        _kill_instance(storm, blow)
        return
    _signal([workers[int(blow.length * len(workers))]], signal.SIGKILL)


def _freeze_instance(storm: Storm, blow: Blow) -> None:
    _freeze(storm, processes(storm.pick(blow).pid), blow)


def _freeze_process(storm: Storm, blow: Blow) -> None:
    victim = storm.pick(blow)
    _freeze(storm, victim.workers[:1] or processes(victim.pid), blow)


def _freeze(storm: Storm, pids: Iterable[int], blow: Blow) -> None:
    frozen = list(pids)
    _signal(frozen, signal.SIGSTOP)
    storm.wait(0.3 + blow.length * FREEZE_S)
    _signal(frozen, signal.SIGCONT)


def _fill_disk_of_instance(storm: Storm, blow: Blow) -> None:
    """One that ends for it says so with its exit code, and starts again."""
    victim = storm.pick(blow)
    storm.had_no_space.append(victim)
    _limit_files(victim.pid, 0)
    storm.wait_while(lambda: not victim.has_ended, 0.5 + 2.5 * blow.length)
    _limit_files(victim.pid, resource.RLIM_INFINITY)
    # What has been noticed by now has its consequences within a short time.
    storm.wait_while(lambda: not victim.has_ended, 2.0)


def _stop_instance(storm: Storm, blow: Blow) -> None:
    victim = storm.pick(blow)
    storm.stop(victim)
    victim.start()


def _scale(storm: Storm, blow: Blow) -> None:
    """To another number of instances, from 1 to 4."""
    sizes = [size for size in range(1, SIZE_MAX + 1) if size != storm.size]
    storm.scale(sizes[int(blow.victim * len(sizes))])


def _roll(storm: Storm, blow: Blow) -> None:
    """Each instance is stopped and started, one after the other."""
    for each in storm.up:
        storm.stop(each)
        each.start()
        each.wait_for(lambda line: line["state"] == "RUNNING", "it runs", timeout_s=PATIENCE_S)


# ------------------------------------------------------------------------------------------------------------- broker


def _restart_broker(storm: Storm, blow: Blow) -> None:
    server = storm.cluster.server
    if isinstance(server, KafkaServer):
        server.stop()
    else:
        server.kill()
    server.start()


def _freeze_broker(storm: Storm, blow: Blow) -> None:
    pid = storm.cluster.server.pid
    _signal([pid], signal.SIGSTOP)
    storm.wait(0.3 + 3.0 * blow.length)
    _signal([pid], signal.SIGCONT)


def _fill_disk_of_broker(storm: Storm, blow: Blow) -> None:
    pid = storm.cluster.server.pid
    _limit_files(pid, 0)
    storm.wait(0.3 + 3.0 * blow.length)
    _limit_files(pid, resource.RLIM_INFINITY)


# ------------------------------------------------------------------------------------------------------------ network


def _cut(storm: Storm, blow: Blow) -> None:
    storm.proxy.cut((0.25, 0.5, 1.0)[int(blow.victim * 3)])


def _slow(storm: Storm, blow: Blow) -> None:
    storm.proxy.slow(0.01 + 0.2 * blow.victim)
    storm.wait(1.0 + 4.0 * blow.length)
    storm.proxy.calm()


def _hold(storm: Storm, blow: Blow) -> None:
    """Nothing comes through, for longer than a session at times; then all of it does, or the connections are gone."""
    storm.proxy.hold()
    storm.wait(0.3 + blow.length * FREEZE_S)
    if blow.victim < 0.5:
        storm.proxy.cut()
    storm.proxy.calm()


FAULTS = (
    Fault("instance killed", _kill_instance),
    Fault("instance killed and taken over", _lose_instance),
    Fault("stream process killed", _kill_process),
    Fault("instance frozen", _freeze_instance),
    Fault("stream process frozen", _freeze_process),
    Fault("disk of an instance full", _fill_disk_of_instance),
    Fault("instance stopped", _stop_instance),
    Fault("scaled", _scale),
    Fault("rolling restart", _roll),
    Fault("broker frozen", _freeze_broker),
    Fault("connections cut", _cut),
    Fault("network slow", _slow),
    Fault("network held", _hold),
)
KILL_BROKER, STOP_BROKER = Fault("broker killed", _restart_broker), Fault("broker stopped", _restart_broker)
FILL_DISK_OF_BROKER = Fault("disk of the broker full", _fill_disk_of_broker)


def faults_on(server: object) -> Sequence[Fault]:
    if isinstance(server, KafkaServer):
        return (*FAULTS, STOP_BROKER)
    return (*FAULTS, KILL_BROKER, FILL_DISK_OF_BROKER)


def plan(chance: random.Random, faults: Sequence[Fault], count: int) -> list[Blow]:
    """What will happen, in this order."""
    deck: list[Fault] = []
    blows = []
    for _ in range(count):
        if not deck:
            deck = chance.sample(faults, len(faults))
        blows.append(Blow(deck.pop(), chance.random(), chance.random(), chance.random()))
    return blows
