"""Two actors that work in one directory, interleaved at each of their steps: a run that resumes, an attempt that goes on.

    python -m tests.streamsrt.backfill.interleaving PLANNED SCRATCH PAIRS [SEED]

Every call of the file system in the directory is a step. One actor goes on until it is stopped at a step; then the other one
does, until it is stopped or has ended. Where they stop is a :class:`Schedule`, so each case can be repeated. It needs a
process of its own: a hook for audit events stays for ever.
"""

from __future__ import annotations

import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.manifest import load_manifest
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.run_task import run_task
from tests.streamsrt.backfill.processes import InProcess

EVENTS = {"open", "os.mkdir", "os.link", "os.remove", "os.rmdir", "os.rename", "os.scandir", "fcntl.flock"}
ORPHAN, RESUME = "orphan", "resume"
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Schedule:
    """The step at which each actor stops, from 1 on; 0: at none. The orphan is first."""

    orphan: int
    resume: int = 0


class Actor:
    """Something that runs in a thread, a stretch at a time."""

    def __init__(self, name: str, work: Callable[[], object], stop_at: int, directory: Path) -> None:
        self.error: Exception | None = None
        self.has_ended = False
        self.steps = 0
        self._stop_at = stop_at
        self._directory = str(directory)
        self._go, self._stopped = threading.Event(), threading.Event()
        self._work = work
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self._wait()
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  # whatever it is, the case is judged by it
            self.error = error
        self.has_ended = True
        self._stopped.set()

    def _wait(self) -> None:
        assert self._go.wait(_TIMEOUT_S)
        self._go.clear()

    def go_on(self) -> None:
        """Until it stops, or has ended."""
        self._stopped.clear()
        self._go.set()
        assert self._stopped.wait(_TIMEOUT_S)

    def step(self, event: str, arguments: tuple[object, ...]) -> None:
        """In its own thread, before each call."""
        if event in ("open", "os.mkdir", "os.scandir") and self._directory not in str(arguments[0]):
            return
        self.steps += 1
        if self.steps == self._stop_at:
            self._stopped.set()
            self._wait()


actors: dict[threading.Thread, Actor] = {}


def hook(event: str, arguments: tuple[object, ...]) -> None:
    if event in EVENTS and actors:
        actor = actors.get(threading.current_thread())
        if actor is not None:
            actor.step(event, arguments)


def play(directory: Path, task_id: str, schedule: Schedule) -> tuple[Actor, Actor]:
    """Both to their ends."""
    orphan = Actor(ORPHAN, lambda: run_task(directory, task_id), schedule.orphan, directory)
    resume = Actor(RESUME, lambda: Backfill(directory).run(InProcess()), schedule.resume, directory)
    actors.update({orphan.thread: orphan, resume.thread: resume})
    for actor in (orphan, resume, orphan, resume):
        if not actor.has_ended:
            actor.go_on()
    actors.clear()
    assert orphan.has_ended
    assert resume.has_ended
    return orphan, resume


def check(directory: Path, schedule: Schedule, orphan: Actor, resume: Actor) -> None:
    """The run has ended well, its results are whole, and the next one leaves nothing but them."""
    said = f"{schedule}: {orphan.error!r}, {resume.error!r}"
    assert resume.error is None, said
    assert orphan.error is None or isinstance(orphan.error, BackfillError), said
    backfill = Backfill(directory)
    manifests = backfill.verify()
    backfill.run(InProcess())
    assert backfill.verify() == manifests, said
    left = sorted(path.name for path in (directory / "attempts").iterdir())
    assert left == sorted(Path(manifest.attempt).name for manifest in manifests), said
    assert not list(directory.glob("progress-*")), said


def schedules(orphan_steps: int, resume_steps: int, pairs: int, seed: int) -> Iterator[Schedule]:
    """The attempt stopped at each step; then both stopped, at random steps."""
    yield from (Schedule(step) for step in range(1, orphan_steps + 1))
    steps = [Schedule(one, two) for one in range(1, orphan_steps + 1) for two in range(1, resume_steps + 1)]
    yield from random.Random(seed).sample(steps, pairs)


def main(planned: Path, scratch: Path, pairs: int, seed: int = 1) -> None:
    """All cases of the first task that is not finished."""
    sys.addaudithook(hook)
    plan = load_plan(planned)
    task_id = next(task.id for task in plan.tasks if load_manifest(planned, plan, task.id) is None)
    numbers = count()

    def case(schedule: Schedule) -> tuple[Actor, Actor]:
        directory = scratch / str(next(numbers))
        shutil.copytree(planned, directory)
        orphan, resume = play(directory, task_id, schedule)
        check(directory, schedule, orphan, resume)
        shutil.rmtree(directory)
        return orphan, resume

    # To see how many steps each has that computes the task.
    orphan_steps, resume_steps = case(Schedule(0))[0].steps, case(Schedule(1))[1].steps
    for schedule in schedules(orphan_steps, resume_steps, pairs, seed):
        case(schedule)
    print(f"{next(numbers)} cases: {orphan_steps} steps of an attempt, {resume_steps} of a run")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
