"""Results that come back to the driver as rows of Spark, where workers don't see the plan's directory.

1. A worker answers with one row for its task, the manifest, and one for each chunk of a file. Spark keeps the rows on the
   worker's disk, as the output of a shuffle: chunks of one result lie in many of its partitions.
2. The driver asks for one partition at a time. So neither side has more than a few chunks in memory, whatever a result's
   size. It writes them into an attempt of its own, checks each file's digest, and publishes the manifest as a worker with
   the directory would: the first one counts.
3. If Spark lost the rows with a machine, it computes the task again. Files of stores differ in their bytes then, so chunks
   of two attempts are never put together: the driver begins that result again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from streamsrt.backfill.attempts import new_attempt
from streamsrt.backfill.engine_local import TaskFailure
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.manifest import AttemptProgress, TaskManifest, is_whole, publish, write_progress

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, Row

CHUNK_BYTES = 4 << 20
PARTITIONS = 1024
"""Of the chunks of one task, if it is the only one of its job."""
PARTITIONS_OF_ALL = 20_000
"""Spark's driver keeps a byte for each of them and each task."""
PARTITIONS_LEAST = 16
COMPUTED_MAX = 4
"""How often a result is begun again."""
SCHEMA = "part int, task string, attempt string, path string, at long, content binary, failure string"


class Chunk(NamedTuple):
    """A part of a file of a result. ``path``: relative to the plan's directory; ``part``: the partition of the shuffle."""

    part: int
    path: str
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class ResultLayout:
    """Which partition of a shuffle a row is in, of the results of so many ``tasks``. The first one has the manifests, and
    small results as a whole."""

    tasks: int

    @property
    def of_each(self) -> int:
        return max(PARTITIONS_LEAST, min(PARTITIONS, PARTITIONS_OF_ALL // self.tasks))

    @property
    def partitions(self) -> int:
        return 1 + self.tasks * self.of_each

    def chunks(self, number: int, manifest: TaskManifest) -> Iterator[Chunk]:
        """The chunks of the result of the task with that number, in the order of their partitions."""
        sizes = {file.path: file.size_bytes for file in manifest.files}
        cut = [(path, at) for path, size in sizes.items() for at in range(0, size, CHUNK_BYTES)]
        is_small = sum(sizes.values()) <= CHUNK_BYTES // self.tasks
        together = -(-len(cut) // self.of_each)
        for index, (path, at) in enumerate(cut):
            part = 0 if is_small else 1 + number * self.of_each + index // together
            yield Chunk(part, path, at, min(CHUNK_BYTES, sizes[path] - at))


# ------------------------------------------------------------------------------------------------------- in the workers


def result_rows(
    layout: ResultLayout, number: int, directory: Path, manifest: TaskManifest
) -> Iterator[pyarrow.RecordBatch]:
    """A finished result as rows, each in a batch of its own. ``number``: that of the task in its job. Raises OSError."""
    answer = manifest.model_dump_json().encode()
    yield _row(manifest.task, manifest.attempt, content=answer)
    for chunk in layout.chunks(number, manifest):
        with open(directory / chunk.path, "rb") as file:
            file.seek(chunk.at)
            content = file.read(chunk.size)
        yield _row(manifest.task, manifest.attempt, chunk, content=content)


def failure_row(task_id: str, failure: str) -> pyarrow.RecordBatch:
    """The answer of a task that failed."""
    return _row(task_id, "", failure=failure)


def _row(
    task: str, attempt: str, chunk: Chunk | None = None, *, content: bytes | None = None, failure: str | None = None
) -> pyarrow.RecordBatch:
    import pyarrow as pa

    part, path, at = (0, None, 0) if chunk is None else (chunk.part, chunk.path, chunk.at)
    columns = {
        "part": pa.array([part], pa.int32()),
        "task": pa.array([task], pa.string()),
        "attempt": pa.array([attempt], pa.string()),
        "path": pa.array([path], pa.string()),
        "at": pa.array([at], pa.int64()),
        "content": pa.array([content], pa.binary()),
        "failure": pa.array([failure], pa.string()),
    }
    return pa.record_batch(list(columns.values()), list(columns))


# -------------------------------------------------------------------------------------------------------- in the driver


class _ComputedAgainError(Exception):
    """Rows are those of another attempt than the manifest that was read before."""


class ResultRow(Protocol):
    """A row of an answer, as the driver sees it."""

    @property
    def task(self) -> str: ...
    @property
    def attempt(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def at(self) -> int: ...
    @property
    def content(self) -> bytes: ...
    @property
    def failure(self) -> str | None: ...


Partition: TypeAlias = Callable[[int], Sequence[ResultRow]]
"""The rows in one partition of the shuffle."""


def partitions_of(frame: DataFrame, layout: ResultLayout) -> Partition:
    """Asks Spark for the rows of a frame of :func:`result_rows`: the first call runs the tasks, and Spark keeps what they
    answer."""
    context = frame.sparkSession.sparkContext
    rows = frame.repartitionById(layout.partitions, "part").rdd

    def partition(part: int) -> list[Row]:
        # Of the builtin nothing is shipped.
        return context.runJob(rows, iter, [part])

    return partition


class ResultsTaken:
    """Takes the results of one job of Spark's into the plan's directory."""

    def __init__(self, directory: Path, task_ids: Sequence[str], partition: Partition) -> None:
        self._directory = directory
        self._task_ids = task_ids
        self._layout = ResultLayout(len(task_ids))
        self._partition = partition

    def take(self) -> dict[str, TaskFailure]:
        """Runs the tasks, and publishes their results; failures by task. Raises Spark's errors, OSError, BackfillError."""
        first, failures = self._partition(0), dict[str, TaskFailure]()
        for number, task_id in enumerate(self._task_ids):
            for _ in range(COMPUTED_MAX):
                rows = [row for row in first if row.task == task_id]
                # What is computed again may fail, too.
                failed = next((row.failure for row in rows if row.failure is not None), None)
                if failed is not None:
                    failures[task_id] = TaskFailure(**json.loads(failed))
                if failed is not None or not rows:
                    break
                try:
                    self._take(number, rows)
                    break
                except _ComputedAgainError:
                    first = self._partition(0)
            else:
                raise BackfillError(
                    f"Spark has lost the result of task {task_id} {COMPUTED_MAX} times while it was fetched: machines of "
                    "the cluster are lost again and again. Then run streamsrt backfill resume; finished tasks are kept"
                )
        return failures

    def _take(self, number: int, first: Sequence[ResultRow]) -> None:
        manifest = TaskManifest.model_validate_json(next(row.content for row in first if row.path is None))
        parts = sorted({chunk.part for chunk in self._layout.chunks(number, manifest)} - {0})
        with new_attempt(self._directory, manifest.task, Path(manifest.attempt).name) as attempt:
            for file in manifest.files:
                (self._directory / file.path).touch()
            try:
                self._report(manifest)
                self._write(manifest, first)
                for part in parts:
                    self._write(manifest, self._partition(part))
                self._check(manifest)
            except _ComputedAgainError:
                shutil.rmtree(attempt)
                raise
            publish(self._directory, manifest)

    def _write(self, manifest: TaskManifest, rows: Sequence[ResultRow]) -> None:
        for row in rows:
            if row.task != manifest.task or row.path is None:
                continue
            if row.attempt != manifest.attempt:
                raise _ComputedAgainError
            descriptor = os.open(self._directory / row.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                _write_at(descriptor, row.content, row.at)
            finally:
                os.close(descriptor)

    def _check(self, manifest: TaskManifest) -> None:
        for file in manifest.files:
            if not is_whole(self._directory, file):
                raise BackfillError(
                    f"{self._directory / file.path} did not arrive as the worker of task {manifest.task} has written it: "
                    "run streamsrt backfill resume; if that does not help, check the network and the disks of the cluster"
                )

    def _report(self, manifest: TaskManifest) -> None:
        """That it is computed; publishing takes the report away."""
        write_progress(
            self._directory,
            AttemptProgress(task=manifest.task, records=manifest.records, seconds=manifest.seconds, phase="writing"),
        )


def _write_at(descriptor: int, content: bytes, at: int) -> None:
    left = memoryview(content)
    while left:
        count = os.pwrite(descriptor, left, at)
        left, at = left[count:], at + count
