"""What runs in Spark's workers: tasks, and how they answer.

1. A worker loads the application by its name, like every instance of it. No function and no object of it is shipped.
2. What a task itself raises is an answer: the same input would raise it again. Anything else is raised, and Spark tries the
   task again.
3. A task writes into the plan's directory if its worker sees it, and else into a folder of its own, which stands for that
   directory and is deleted. Its result then goes to the driver as rows (:mod:`streamsrt.backfill.spark.results`).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streamsrt.backfill.engine_local import failure_of
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.full_disk import full_disk_said
from streamsrt.backfill.local_copies import copies_in
from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.parquet_files import tune_arrow
from streamsrt.backfill.plan import PLAN_FILE, load_plan
from streamsrt.backfill.run_task import run_task
from streamsrt.backfill.spark.inputs import COPIES_FOLDER, PLAN_FOLDER, Piece, received, write_files
from streamsrt.backfill.spark.results import SCHEMA, ResultLayout, failure_row, result_rows
from streamsrt.errors import StreamsError
from streamsrt.runtime.tuning import few_heaps, tune_process
from topology.spec.errors import TopologyError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.core.broadcast import Broadcast

SEEN = "host string, unseen string"
_SPARKS_FOLDERS = (("SPARK_EXECUTOR_DIRS", os.pathsep), ("LOCAL_DIRS", ","), ("SPARK_LOCAL_DIRS", ","))
"""The folders that a cluster's machines have for an application, and delete with it, and what is between them."""


class Place(Protocol):
    """Where tasks run and write, as a worker needs to know it."""

    @property
    def bootstrap_servers(self) -> str | None:
        """Instead of those in the plan."""

    @property
    def python_path(self) -> tuple[str, ...]:
        """The driver's, if both are on one machine."""

    @property
    def schema(self) -> str:
        """Of the rows of answers."""

    @property
    def reported_in(self) -> Path | None:
        """The directory of the plan, if this machine has it."""

    def answers(self, task_id: str, run: Callable[[Path], TaskManifest]) -> Iterator[pyarrow.RecordBatch]:
        """Runs a task in the directory that it is given; its rows for the driver."""


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """The plan's directory, which all workers see. ``token``: the name of a file in it that only this run's driver has
    written; empty if driver and workers are on one machine."""

    directory: str
    fingerprint: str
    bootstrap_servers: str | None
    python_path: tuple[str, ...]
    token: str = ""

    @property
    def schema(self) -> str:
        return "task string, failure string"

    @property
    def reported_in(self) -> Path | None:
        directory = Path(self.directory)
        # If it is missing, the error is returned in place of rows.
        return directory if directory.is_dir() else None

    def answers(self, task_id: str, run: Callable[[Path], TaskManifest]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        failure = None
        try:
            self._check()
            run(Path(self.directory))
        except (StreamsError, TopologyError) as error:
            failure = _told(error)
        yield pa.record_batch([pa.array([task_id], pa.string()), pa.array([failure], pa.string())], ["task", "failure"])

    def _check(self) -> None:
        """Raises PlanError where the directory of the plan is not here."""
        try:
            found = load_plan(Path(self.directory)).fingerprint
        except PlanError as error:
            raise PlanError(f"{self._unseen}: {error}") from None
        if found != self.fingerprint:
            raise PlanError(f"{self._unseen}: {self.directory} holds another plan there")
        if not Path(self.directory, self.token).exists():
            raise PlanError(f"{self._unseen}: {self.directory} is another directory there, with a copy of the plan")

    @property
    def _unseen(self) -> str:
        return (
            f"a worker of Spark on {socket.gethostname()} does not see the plan's directory, where results go: give a --dir "
            "that all nodes have under the same path, or --results spark, which brings them through Spark"
        )


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """A folder for each task, on workers that don't see the plan's directory. ``plan``: the document, compressed;
    ``task_ids``: those of the job, by their numbers; ``inputs``: what they read of the driver's files."""

    plan: bytes
    bootstrap_servers: str | None
    python_path: tuple[str, ...]
    task_ids: tuple[str, ...]
    inputs: Mapping[str, tuple[Broadcast[Piece], ...]] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        return SCHEMA

    @property
    def reported_in(self) -> Path | None:
        return None

    def answers(self, task_id: str, run: Callable[[Path], TaskManifest]) -> Iterator[pyarrow.RecordBatch]:
        with tempfile.TemporaryDirectory(
            prefix="streamsrt-task-", dir=_folder_of_spark(), ignore_cleanup_errors=True
        ) as name:
            folder = Path(name)
            directory = folder / PLAN_FOLDER
            try:
                with full_disk_said(folder), copies_in(folder / COPIES_FOLDER):
                    directory.mkdir()
                    (directory / PLAN_FILE).write_bytes(zlib.decompress(self.plan))
                    write_files(folder, received(self.inputs.get(task_id, ())))
                    manifest = run(directory)
            except (StreamsError, TopologyError) as error:
                yield failure_row(task_id, _told(error))
                return
            yield from result_rows(ResultLayout(len(self.task_ids)), self.task_ids.index(task_id), directory, manifest)


def _folder_of_spark() -> str | None:
    """A folder of this machine that is deleted with the application, even if nobody here does it; None if Spark has none."""
    for name, separator in _SPARKS_FOLDERS:
        for folder in os.environ.get(name, "").split(separator):
            if folder and os.access(folder, os.W_OK):
                return folder
    return None


def _told(error: StreamsError | TopologyError) -> str:
    return json.dumps(asdict(failure_of(error, error.exit_code)))


@dataclass(frozen=True, slots=True)
class DirectTasks:
    """Rows are indexes into ``task_ids``; each task reads its own sources."""

    place: Place
    task_ids: tuple[str, ...]

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        set_up_worker(self.place)
        for batch in batches:
            for index in batch.column("id").to_pylist():
                task_id, servers = self.task_ids[index], self.place.bootstrap_servers
                yield from self.place.answers(task_id, partial(run_task, task_id=task_id, bootstrap_servers=servers))


@dataclass(frozen=True, slots=True)
class Look:
    """Looks for files of the driver: each task tells the first one that is not on its machine."""

    paths: tuple[str, ...]

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow as pa

        unseen = next((path for path in self.paths if not os.path.exists(path)), None)
        for batch in batches:
            hosts, paths = [socket.gethostname()] * len(batch), [unseen] * len(batch)
            yield pa.record_batch([pa.array(hosts, pa.string()), pa.array(paths, pa.string())], ["host", "unseen"])


def set_up_worker(place: Place) -> None:
    """Makes a worker's process ready for tasks."""
    known = set(sys.path)
    sys.path.extend(entry for entry in place.python_path if entry not in known)
    few_heaps()
    tune_process()
    tune_arrow()
