"""How tasks of one level run on Spark: with the plan's directory in sight of the workers, or without.

1. Workers that see the directory write their results there. All tasks that read their sources themselves are one job of
   Spark's, and so are those that read lakes.
2. Else results come back as rows (:mod:`streamsrt.backfill.spark.results`). Each task that reads its sources itself is a job
   of its own: its result is published as soon as it is there, and only the machine that runs it gets what it reads. There
   are as many jobs at a time as Spark has cores, so a result is fetched before another task takes the core.
3. Tasks that read lakes share one job in both cases, which reads each lake once. Their results are fetched when all of them
   are there, and every machine gets what any of them reads of the driver's files: so that is limited.
4. It is the workers who tell whether they see the directory: each looks for a file with a random name that the driver has
   just written. A copy of the directory, under the same path, does not count. They also look for what tasks read.
"""

from __future__ import annotations

import gc
import json
import threading
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from streamsrt.backfill.attempts import TOKEN
from streamsrt.backfill.engine_local import TaskFailure
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.full_disk import full_disk_said
from streamsrt.backfill.manifest import AttemptProgress, finished_manifest, write_progress
from streamsrt.backfill.plan import PLAN_FILE, BackfillPlan
from streamsrt.backfill.slices.share import part_called
from streamsrt.backfill.spark.inputs import Piece, broadcast_files, files_read
from streamsrt.backfill.spark.results import Partition, ResultLayout, ResultRow, ResultsTaken, partitions_of
from streamsrt.backfill.spark.session import is_connect, quiet
from streamsrt.backfill.spark.worker import SEEN, DirectTasks, Look, OwnFolders, Place, SharedDirectory

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast
    from pyspark.sql import DataFrame, SparkSession

INPUTS_OF_LAKES_BYTES = 1 << 30
_JOBS_MAX = 128
_LOOKS_MAX = 256
_POLL_S = 0.2
_making = threading.Lock()


@dataclass(frozen=True, slots=True)
class TaskLevel:
    """Tasks of a plan that don't depend on each other."""

    directory: Path
    plan: BackfillPlan
    task_ids: tuple[str, ...]
    bootstrap_servers: str | None
    python_path: tuple[str, ...]

    @property
    def over_lakes(self) -> tuple[str, ...]:
        """Those that read lakes."""
        with_lakes = {task.id for task in self.plan.tasks if any(source.lake_records for source in task.sources)}
        return tuple(task_id for task_id in self.task_ids if task_id in with_lakes)

    @property
    def direct(self) -> tuple[str, ...]:
        """Those that read their sources themselves."""
        return tuple(task_id for task_id in self.task_ids if task_id not in self.over_lakes)


class SharedRun:
    """Runs tasks on workers that see the plan's directory. ``token``: the name of a file that they must see, too."""

    def __init__(self, spark: SparkSession, level: TaskLevel, token: str = "") -> None:
        self._spark = spark
        self._tag = f"streamsrt-{uuid.uuid4().hex}"
        directory = str(level.directory.absolute())
        place = SharedDirectory(directory, level.plan.fingerprint, level.bootstrap_servers, level.python_path, token)
        self._jobs = [_direct(spark, place, level.direct)] if level.direct else []
        if level.over_lakes:
            self._jobs.append(_over_lakes(spark, level, place))

    def run(self) -> dict[str, TaskFailure]:
        """Runs until every task has answered; failures by task. In one thread, as a tag belongs to one. Raises Spark's
        errors."""
        self._spark.addTag(self._tag)
        rows = [row for tasks in self._jobs for row in tasks.collect()]
        return {row.task: TaskFailure(**json.loads(row.failure)) for row in rows if row.failure is not None}

    def cancel(self) -> None:
        """Ends what runs in Spark."""
        self._spark.interruptTag(self._tag)


class FetchedRun:
    """Runs tasks on workers that don't see the plan's directory, and fetches their results."""

    def __init__(self, spark: SparkSession, level: TaskLevel) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._level = level
        self._tag = f"streamsrt-{uuid.uuid4().hex}"
        self._stopped = threading.Event()
        # Many tasks read the results of all tasks before them.
        self._finished = cache(partial(finished_manifest, level.directory, level.plan))
        # As small as it gets: Spark ships it with each job.
        self._plan = zlib.compress((level.directory / PLAN_FILE).read_bytes())

    def run(self) -> dict[str, TaskFailure]:
        """Runs until every task's result is published or has failed; failures by task. Raises Spark's errors, BackfillError,
        OSError."""
        failures: dict[str, TaskFailure] = {}
        waiting = deque(self._level.direct)
        running: set[Future[dict[str, TaskFailure]]] = set()
        with ThreadPoolExecutor(_JOBS_MAX, thread_name_prefix="streamsrt-task") as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < self._at_once():
                        running.add(pool.submit(self._direct, waiting.popleft()))
                    done, running = wait(running, _POLL_S, FIRST_COMPLETED)
                    for each in done:
                        failures |= each.result()
                    if done:
                        # PySpark's objects hold each other: until they go, Spark keeps results on the disks of executors.
                        gc.collect()
                    if self._stopped.is_set():
                        return failures
                if self._level.over_lakes:
                    failures |= pool.submit(self._over_lakes).result()
            except BaseException:
                self.cancel()
                raise
        return failures

    def cancel(self) -> None:
        """Ends what runs in Spark."""
        self._stopped.set()
        self._context.cancelJobsWithTag(self._tag)

    def _at_once(self) -> int:
        """How many jobs keep all of Spark's cores busy: as many as it has now, or may get."""
        conf = self._context.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
            return _JOBS_MAX
        cores = self._context.defaultParallelism // int(conf.get("spark.task.cpus", "1") or 1)
        return max(1, min(_JOBS_MAX, cores))

    def _direct(self, task_id: str) -> dict[str, TaskFailure]:
        if self._stopped.is_set():
            return {}
        write_progress(self._level.directory, AttemptProgress(task=task_id, records=0, seconds=0.0))
        inputs = self._files_read((task_id,))
        return self._fetched((task_id,), inputs, lambda place: _direct(self._spark, place, (task_id,)))

    def _over_lakes(self) -> dict[str, TaskFailure]:
        task_ids = self._level.over_lakes
        for task_id in task_ids:
            write_progress(
                self._level.directory, AttemptProgress(task=task_id, records=0, seconds=0.0, phase="sorting")
            )
        inputs = self._files_read(task_ids)
        check_inputs(inputs)
        return self._fetched(task_ids, inputs, lambda place: _over_lakes(self._spark, self._level, place))

    def _files_read(self, task_ids: Sequence[str]) -> dict[str, dict[str, Path]]:
        directory, plan = self._level.directory, self._level.plan
        return {name: files_read(directory, plan, part_called(plan, name)[0], self._finished) for name in task_ids}

    def _fetched(
        self, task_ids: tuple[str, ...], files: Mapping[str, Mapping[str, Path]], tasks: Callable[[Place], DataFrame]
    ) -> dict[str, TaskFailure]:
        level = self._level
        self._context.addJobTag(self._tag)
        inputs: dict[str, tuple[Broadcast[Piece], ...]] = {}
        try:
            with full_disk_said(Path(self._context.getConf().get("spark.local.dir", "/tmp") or "/tmp")):
                for task_id, read in files.items():
                    inputs[task_id] = broadcast_files(self._context, read)
            place = OwnFolders(self._plan, level.bootstrap_servers, level.python_path, task_ids, inputs)
            with full_disk_said(level.directory):
                partition = partitions_of(tasks(place), ResultLayout(len(task_ids)))
                return ResultsTaken(level.directory, task_ids, partial(self._asked, partition)).take()
        finally:
            for piece in chain.from_iterable(inputs.values()):
                piece.destroy()

    def _asked(self, partition: Partition, part: int) -> Sequence[ResultRow]:
        # What is cancelled are jobs that run: another must not begin.
        if self._stopped.is_set():
            raise BackfillError("the run was stopped: streamsrt backfill resume continues it")
        return partition(part)


def _direct(spark: SparkSession, place: Place, task_ids: tuple[str, ...]) -> DataFrame:
    count = len(task_ids)
    # What is quiet is all of the process.
    with _making, quiet():
        return spark.range(0, count, 1, count).mapInArrow(DirectTasks(place, task_ids), place.schema)


def _over_lakes(spark: SparkSession, level: TaskLevel, place: Place) -> DataFrame:
    # Not before it is known that pyarrow is there.
    from streamsrt.backfill.spark.lake import ordered_tasks

    return ordered_tasks(spark, level.plan, place, level.over_lakes)


def check_inputs(files: Mapping[str, Mapping[str, Path]]) -> None:
    """Raises BackfillError if what tasks over lakes read of the driver's files is too much for every machine."""
    size = sum(path.stat().st_size for read in files.values() for path in read.values())
    if size > INPUTS_OF_LAKES_BYTES:
        raise BackfillError(
            f"tasks that read lakes also read {size >> 20} MB of files that only the driver sees (archives, results of "
            "other tasks, an earlier backfill, global tables), and every machine of the cluster would get all of them, if "
            f"not more than {INPUTS_OF_LAKES_BYTES >> 20} MB: use a --dir (and --archive, --after) that all nodes have "
            "under the same path"
        )


# ------------------------------------------------------------------------------------------------- what the workers see


@contextmanager
def token_in(directory: Path) -> Iterator[str]:
    """A file with a random name in the plan's directory, by which workers find out whether they see it; its name."""
    name = f"{TOKEN}{uuid.uuid4().hex}"
    path = directory / name
    path.touch()
    try:
        yield name
    finally:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Looked:
    """What workers have found. ``hosts``: the machines that have looked; ``blind``: by machine, a file or a folder of the
    driver that it does not see."""

    hosts: tuple[str, ...]
    blind: Mapping[str, str]

    @property
    def is_shared(self) -> bool:
        """Whether results are written there by workers: all have to see it."""
        return not self.blind

    def said(self, directory: Path) -> str:
        """What was found, for the user."""
        if self.is_shared:
            return f"workers write their results into {directory}: they see it (looked on {', '.join(self.hosts)})"
        host, path = min(self.blind.items())
        return (
            f"results come to {directory} through Spark, and so do the files of this machine that tasks read: workers don't "
            f"see {path} (looked on {host}{', ...' if len(self.blind) > 1 else ''})"
        )


def look(spark: SparkSession, level: TaskLevel, token: str) -> Looked:
    """Asks workers whether they see what tasks read and write: those that Spark has by now. Raises Spark's errors."""
    directory, plan = level.directory.absolute(), level.plan
    shown = {str(directory / token): str(directory)}
    if plan.after is not None:
        shown[str(Path(plan.after.directory, PLAN_FILE))] = plan.after.directory
    # One of each archive.
    archived = {source.topic: source.archive[0].path for source in plan.sources() if source.archive}
    shown |= {path: path for path in archived.values()}
    count = _LOOKS_MAX if is_connect(spark) else min(_LOOKS_MAX, 2 * spark.sparkContext.defaultParallelism)
    with quiet():
        rows = spark.range(0, count, 1, count).mapInArrow(Look(tuple(shown)), SEEN).distinct().collect()
    blind = {row.host: shown[row.unseen] for row in rows if row.unseen is not None}
    return Looked(tuple(sorted({row.host for row in rows})), blind)
