"""The files that a task reads, brought to a worker that does not see them.

1. What a task reads: the results of tasks before it, the earlier backfill that its plan continues, archives, rows of global
   tables. The log and lakes need no files of the driver.
2. Spark brings them as broadcast variables, which only the machines fetch that run the task. Each holds a piece of limited
   size, so neither side has more than one in memory.
3. A worker has them below a folder of its own: those of the plan in one that stands for the plan's directory, others as
   :mod:`streamsrt.backfill.local_copies` finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamsrt.backfill.archive import check_archive
from streamsrt.backfill.earlier_task import earlier_task
from streamsrt.backfill.local_copies import copy_path
from streamsrt.backfill.manifest import TaskManifest, manifest_path
from streamsrt.backfill.plan import PLAN_FILE, BackfillPlan, TaskPlan

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

PIECE_BYTES = 16 << 20
PLAN_FOLDER = "plan"
COPIES_FOLDER = "copies"

Piece: TypeAlias = list[tuple[str, bytes]]
"""Parts of files, in their order: the path in the worker's folder, and bytes that come behind those before."""


# -------------------------------------------------------------------------------------------------------- in the driver


def files_read(
    directory: Path, plan: BackfillPlan, task: TaskPlan, finished: Callable[[str], TaskManifest]
) -> dict[str, Path]:
    """Returns the files that a task reads, by their paths in the folder of a worker. ``finished``: the manifest of a task
    before it. Raises PlanError, ArchiveError."""
    found = [*_results_before(directory, task, finished), *_earlier_results(plan, task)]
    found += [(f"{PLAN_FOLDER}/{table.path}", directory / table.path) for table in plan.global_tables]
    for source in task.sources:
        # The worker would name its copy.
        check_archive(source)
        copied = (Path(file.path) for file in source.archive if file.first_offset < source.end)
        found += [(_copied(path), path) for path in copied]
    return dict(found)


def _results_before(
    directory: Path, task: TaskPlan, finished: Callable[[str], TaskManifest]
) -> Iterator[tuple[str, Path]]:
    """What other tasks have written into the repartition topics of a task, and their manifests."""
    for source in task.repartition:
        for task_id in source.upstream:
            paths = [manifest_path(directory, task_id)]
            paths += [
                directory / log.file.path
                for log in finished(task_id).repartition
                if (log.topic, log.partition) == source.topic_partition
            ]
            yield from ((f"{PLAN_FOLDER}/{path.relative_to(directory)}", path) for path in paths)


def _earlier_results(plan: BackfillPlan, task: TaskPlan) -> Iterator[tuple[str, Path]]:
    """What a task takes over from an earlier backfill."""
    earlier = earlier_task(plan, task.id)
    if earlier is None:
        return
    writers = {task_id for source in task.repartition for task_id in source.upstream}
    paths = [earlier.directory / PLAN_FILE]
    paths += [manifest_path(earlier.directory, task_id) for task_id in sorted({task.id} | writers)]
    left = {log.file.path for log in earlier.manifest.repartition}
    paths += [earlier.directory / file.path for file in earlier.manifest.files if file.path not in left]
    # The worker says what is missing.
    yield from ((_copied(path), path) for path in paths if path.is_file())


def _copied(path: Path) -> str:
    return f"{COPIES_FOLDER}/{copy_path(path)}"


def broadcast_files(context: SparkContext, files: Mapping[str, Path]) -> tuple[Broadcast[Piece], ...]:
    """Hands files over to Spark, which brings them where they are used. Raises OSError."""
    return tuple(context.broadcast(piece) for piece in pieces_of(files))


def pieces_of(files: Mapping[str, Path]) -> Iterator[Piece]:
    """The content of files in pieces of limited size."""
    piece: Piece = []
    left = PIECE_BYTES
    for name, path in files.items():
        with open(path, "rb") as file:
            # An empty file, too, must be there.
            part = file.read(left)
            piece.append((name, part))
            left -= len(part)
            while part:
                if not left:
                    yield piece
                    piece, left = [], PIECE_BYTES
                part = file.read(left)
                if part:
                    piece.append((name, part))
                    left -= len(part)
    if piece:
        yield piece


# ------------------------------------------------------------------------------------------------------- in the workers


def write_files(folder: Path, pieces: Iterable[Piece]) -> None:
    """Writes files into a folder. Raises OSError."""
    for piece in pieces:
        for name, part in piece:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab") as file:
                file.write(part)


def received(pieces: Iterable[Broadcast[Piece]]) -> Iterator[Piece]:
    """The pieces that Spark has brought, of which one is in memory at a time."""
    for each in pieces:
        yield each.value
        # PySpark keeps each value that was asked for until the worker gets another task.
        vars(each).pop("_value", None)
