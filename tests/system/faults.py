"""What can happen to instances, stream processes, the broker, disks and the network, each as a value with a name.

1. A blow is drawn before anything runs: what happens, to whom, when, and for how long. Nothing that happens changes what is
   drawn next, so that a seed always stands for the same blows. Where exactly they hit is the machine's choice.
2. Faults are dealt out of a shuffled deck: each comes once before any comes again.
3. A full disk is a limit of the size of files (RLIMIT_FSIZE) that a process gets while it runs: nothing can grow any more.
4. A disk that is lost is the state directory, deleted under an instance that was killed.
5. A disk hangs where there is a C compiler (:mod:`tests.system.frozen_disk`); elsewhere that is left out. That of the broker
   does not: a frozen broker is the same to its clients.
6. Apache Kafka ends itself when its disk is full, since it has only the one. The bundled broker goes on. How the former is
   brought up again is the business of :mod:`tests.kafka_server`.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tests.kafka_server import KafkaServer
from tests.system import frozen_disk
from tests.system.processes import AppProcess, family

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


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _limit_files(pid: int, soft: int) -> None:
    for each in family(pid):
        with suppress(ProcessLookupError):
            resource.prlimit(each, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))


# --------------------------------------------------------------------------------------------------------- instances


def _kill(victim: AppProcess, blow: Blow) -> None:
    """All of its processes, or the first alone, which the others follow in good order."""
    if blow.length < 0.7:
        _signal(list(family(victim.pid)), signal.SIGKILL)
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


def _lose_disk(storm: Storm, blow: Blow) -> None:
    """It starts again without any state, at once or when others have taken its tasks over."""
    victim = storm.pick(blow)
    _signal(list(family(victim.pid)), signal.SIGKILL)
    # It waits until all of them have closed their standard error: none writes any more.
    victim.kill()
    shutil.rmtree(victim.state_dir, ignore_errors=True)
    if blow.moment < 0.5:
        victim.start()
    else:
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
    _freeze(storm, family(storm.pick(blow).pid), blow)


def _freeze_process(storm: Storm, blow: Blow) -> None:
    victim = storm.pick(blow)
    _freeze(storm, victim.workers[:1] or family(victim.pid), blow)


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


def _freeze_disk(storm: Storm, blow: Blow) -> None:
    with frozen_disk.frozen(storm.pick(blow).state_dir):
        storm.wait(0.3 + blow.length * FREEZE_S)


def _stop_instance(storm: Storm, blow: Blow) -> None:
    victim = storm.pick(blow)
    storm.stop(victim)
    victim.start()


def _scale(storm: Storm, blow: Blow) -> None:
    """To another number of instances, from 1 to 4."""
    sizes = [size for size in range(1, SIZE_MAX + 1) if size != storm.size]
    storm.scale(sizes[int(blow.victim * len(sizes))])


def _scale_up_and_down(storm: Storm, blow: Blow) -> None:
    """To 1, to 4, and to 1 again; all of them run before the next step."""
    before = storm.size
    for size in (1, SIZE_MAX, 1):
        storm.scale(size)
        storm.wait_until_all_run()
    storm.scale(before)


def _roll(storm: Storm, blow: Blow) -> None:
    """Each instance is stopped and started, one after the other."""
    for each in storm.up:
        storm.stop(each)
        each.start()
        each.wait_for(lambda line: line["state"] == "RUNNING", "it runs", timeout_s=PATIENCE_S)


# ------------------------------------------------------------------------------------------------------------- broker


def _kill_broker(storm: Storm, blow: Blow) -> None:
    storm.cluster.server.kill()
    storm.cluster.server.start()


def _stop_broker(storm: Storm, blow: Blow) -> None:
    storm.cluster.server.stop()
    storm.cluster.server.start()


def _freeze_broker(storm: Storm, blow: Blow) -> None:
    pid = storm.cluster.server.pid
    _signal([pid], signal.SIGSTOP)
    storm.wait(0.3 + 3.0 * blow.length)
    _signal([pid], signal.SIGCONT)


def _fill_disk_of_broker(storm: Storm, blow: Blow) -> None:
    server = storm.cluster.server
    pid = server.pid
    _limit_files(pid, 0)
    storm.wait_while(lambda: not server.has_ended, 0.3 + 3.0 * blow.length)
    _limit_files(pid, resource.RLIM_INFINITY)
    if isinstance(server, KafkaServer):
        # It ends in its own time, and all at once.
        storm.wait_while(lambda: not server.has_ended, 3.0)
        if server.has_ended:
            server.start()


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


SCALE_UP_AND_DOWN, ROLL = Fault("scaled 1, 4, 1", _scale_up_and_down), Fault("rolling restart", _roll)
KILL_BROKER, FREEZE_DISK = Fault("broker killed", _kill_broker), Fault("disk of an instance frozen", _freeze_disk)
FAULTS = (
    Fault("instance killed", _kill_instance),
    Fault("instance killed and taken over", _lose_instance),
    Fault("stream process killed", _kill_process),
    Fault("instance frozen", _freeze_instance),
    Fault("stream process frozen", _freeze_process),
    Fault("disk of an instance full", _fill_disk_of_instance),
    Fault("disk of an instance lost", _lose_disk),
    Fault("instance stopped", _stop_instance),
    Fault("scaled", _scale),
    SCALE_UP_AND_DOWN,
    ROLL,
    KILL_BROKER,
    Fault("broker stopped", _stop_broker),
    Fault("broker frozen", _freeze_broker),
    Fault("disk of the broker full", _fill_disk_of_broker),
    Fault("connections cut", _cut),
    Fault("network slow", _slow),
    Fault("network held", _hold),
    *([] if frozen_disk.COMPILER is None else [FREEZE_DISK]),
)


def plan(chance: random.Random, faults: Sequence[Fault], count: int) -> list[Blow]:
    """What will happen, in this order."""
    deck: list[Fault] = []
    blows = []
    for _ in range(count):
        if not deck:
            deck = chance.sample(faults, len(faults))
        blows.append(Blow(deck.pop(), chance.random(), chance.random(), chance.random()))
    return blows
