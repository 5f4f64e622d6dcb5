"""The manifest of a finished task: the only proof that it is finished.

1. A manifest is published by linking a complete file to its name. The first writer wins; another attempt of the same task
   has the same result and gives its files up. It names files of its own attempt only, each with size and digest, and
   they are durable before it is published.
2. A manifest names the fingerprint of its plan. One of another plan counts for nothing and is refused.
3. A manifest has a digest of itself: one whose numbers were changed is damaged.
4. Digests of entries are sums of hashes of entries modulo 2**128: they can be merged, and don't depend on order.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from streamsrt.backfill.errors import BackfillError, PlanError
from streamsrt.backfill.plan import BackfillPlan, write_durably

_DIGEST = "digest"
STAGES_FILE = "stages.json"
_MODULUS = 1 << 128
_LENGTHS = Struct(">iiq").pack


class DamagedManifestError(PlanError):
    """The manifest of a finished task can't be read. The next ``streamsrt backfill resume`` computes the task again."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileResult(_Value):
    """A file of a task's result. ``path`` is relative to the plan's directory."""

    path: str
    records: int
    size_bytes: int
    digest: str


class LogResult(_Value):
    """Records for one partition of a topic, as record batches in a file, in the order in which they are to be written."""

    topic: str
    partition: int
    file: FileResult


class StrayRows(_Value):
    """Rows in another partition than their keys belong to. ``explained_by``: the smaller numbers of partitions by each of
    which all of them are where they belong; ``belong_to``: the first keys in hexadecimal digits, with their partitions by
    the present number; ``has_own_keys``: the program chooses the keys, which need not be those of its records."""

    rows: int
    explained_by: tuple[int, ...] = ()
    belong_to: dict[str, int] = Field(default_factory=dict)
    has_own_keys: bool = False


class StoreResult(_Value):
    """A store as it is at the end. ``bundle`` is an SST file, None where the store is empty or not kept on disk."""

    name: str
    entries: int
    bundle: FileResult | None = None
    rows: FileResult | None = None
    """The same of a store that is not kept on disk: for a backfill that continues this one."""
    changelog: LogResult | None = None
    changelog_digest: str = ""
    """The sum over (key, value, timestamp) of the changelog's records."""
    oldest_ms: int | None = None
    newest_ms: int | None = None
    """The first and the last timestamp of the changelog's records; None without records, and in older manifests."""
    strays: StrayRows | None = None
    """Its rows that lie elsewhere than their keys belong."""


class PartitionRead(_Value):
    """The range that was read of one input partition. ``partition_time_ms``: the stream time for the live task; ``days``:
    how many of its records have a timestamp of that day in UTC, empty in older manifests."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    partition_time_ms: int
    days: dict[str, int] = Field(default_factory=dict)


class TaskManifest(_Value):
    """The result of one task."""

    task: str
    fingerprint: str
    attempt: str
    """The folder of the attempt that won, relative to the plan's directory."""
    reads: tuple[PartitionRead, ...] = ()
    stores: tuple[StoreResult, ...] = ()
    outputs: tuple[LogResult, ...] = ()
    repartition: tuple[LogResult, ...] = ()
    stream_time_ms: int = -1
    operator_times_ms: dict[str, int] = Field(default_factory=dict)
    counters: dict[str, int] = Field(default_factory=dict)
    flushes: int = 0
    """How often caches were flushed before the end, because they were full or a processor requested a commit."""
    carried: dict[str, list[int | str]] | None = None
    """The task's state outside its stores, for a backfill that continues this one; None in older manifests."""
    reached: dict[str, int] = Field(default_factory=dict)
    """By ``topic-partition``, the latest timestamp of what it wrote to repartition topics, in earlier backfills too."""
    overtaken: int = 0
    """Of a backfill that continues an earlier one: how many records one backfill over everything would have processed
    before the end of that one, as they are older than what other partitions had by then."""
    peak_memory_bytes: int = 0
    """Of the process that ran it, up to its end."""
    seconds: float = 0.0
    slices: int = 1
    """How many slices of its keys it was computed in: ``seconds`` are those of the one that took longest, and of merging."""

    @property
    def records(self) -> int:
        return sum(read.records for read in self.reads)

    @property
    def files(self) -> Iterator[FileResult]:
        """Everything that the result is in."""
        for store in self.stores:
            yield from filter(None, (store.bundle, store.rows))
            if store.changelog is not None:
                yield store.changelog.file
        for log in (*self.outputs, *self.repartition):
            yield log.file

    @model_validator(mode="after")
    def _check_files(self) -> TaskManifest:
        for file in self.files:
            if Path(file.path).parent != Path(self.attempt):
                raise ValueError(f"{file.path} is not a file of {self.attempt}")
        return self


class AttemptProgress(_Value):
    """The progress of a running task; the attempt that runs it rewrites this file about every second. ``rows``: the number
    of rows of state and changelogs that are written."""

    task: str
    records: int
    seconds: float
    phase: Literal["sorting", "running", "writing"] = "running"
    rows: int = 0


class StageProgress(_Value):
    """A stage of Spark's, in Spark's own tasks."""

    stage: int
    done: int
    running: int
    total: int


class SparkActivity(_Value):
    """What Spark is doing. ``ui``: the address of its pages, if they are served (``spark.ui.enabled``)."""

    stages: tuple[StageProgress, ...] = ()
    ui: str | None = None


IDLE = SparkActivity()


def digest_sum(entries: Iterable[tuple[bytes | None, bytes | None, int]]) -> int:
    """The digest of entries (key, value, timestamp in ms)."""
    total = 0
    for key, value, timestamp in entries:
        lengths = _LENGTHS(-1 if key is None else len(key), -1 if value is None else len(value), timestamp)
        entry = blake2b(lengths + (key or b"") + (value or b""), digest_size=16).digest()
        total += int.from_bytes(entry, "big")
    return total % _MODULUS


def digest_text(total: int) -> str:
    """A digest as it stands in a manifest."""
    return f"{total % _MODULUS:032x}"


def merged(digests: Iterable[str]) -> str:
    """The digest of everything that these digests are of."""
    return digest_text(sum(int(digest, 16) for digest in digests))


# -------------------------------------------------------------------------------------------------------------- on disk


def manifest_path(directory: Path, task_id: str) -> Path:
    return directory / f"task-{task_id}.json"


def progress_path(directory: Path, task_id: str) -> Path:
    return directory / f"progress-{task_id}.json"


def load_manifest(directory: Path, plan: BackfillPlan, task_id: str) -> TaskManifest | None:
    """The manifest of a task, None where it is not finished. Raises PlanError for one of another plan."""
    path = manifest_path(directory, task_id)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = _unsealed(text)
    except ValueError as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise DamagedManifestError(
            f"{path} is damaged ({said}): streamsrt backfill resume computes task {task_id} again"
        ) from None
    if manifest.fingerprint != plan.fingerprint or manifest.task != task_id:
        raise PlanError(f"{path} belongs to another plan: use a separate --dir for each plan")
    return manifest


def _sealed(manifest: TaskManifest) -> bytes:
    """A manifest as it stands in its file."""
    content = manifest.model_dump(mode="json")
    return json.dumps({_DIGEST: _digest_of(content), **content}, indent=1).encode()


def _unsealed(text: bytes) -> TaskManifest:
    """The manifest that a file holds. Raises ValueError where it is damaged. Older ones have no digest."""
    content = json.loads(text)
    digest = content.pop(_DIGEST, None) if isinstance(content, dict) else None
    if digest is not None and digest != _digest_of(content):
        raise ValueError("it does not have its digest")
    return TaskManifest.model_validate(content)


def _digest_of(content: Mapping[str, object]) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def finished_manifest(directory: Path, plan: BackfillPlan, task_id: str) -> TaskManifest:
    """The manifest of a task that must be finished. Raises PlanError."""
    manifest = load_manifest(directory, plan, task_id)
    if manifest is None:
        raise PlanError(f"task {task_id} is not finished: run streamsrt backfill resume first")
    return manifest


def publish(directory: Path, manifest: TaskManifest) -> bool:
    """Makes a task finished; False if another attempt was first, whose result counts then. Raises BackfillError if files
    of this attempt were taken away."""
    for file in manifest.files:
        if not has_size(directory, file):
            raise BackfillError(
                f"{directory / file.path} was deleted or changed while task {manifest.task} was computed, so its result "
                "does not count: something else than streamsrt works in that directory"
            )
    path = manifest_path(directory, manifest.task)
    fresh = directory / manifest.attempt / "manifest.json"
    content = _sealed(manifest)
    write_durably(fresh, content)
    # A crash of the machine must not leave a manifest whose files are empty.
    for file in manifest.files:
        sync(directory / file.path)
    sync(fresh.parent)
    try:
        os.link(fresh, path)
    except FileExistsError:
        # A file server whose answer was lost is asked once more, and finds the link that it has made.
        if not _reads(path, content):
            shutil.rmtree(directory / manifest.attempt, ignore_errors=True)
            return False
    finally:
        progress_path(directory, manifest.task).unlink(missing_ok=True)
    sync(directory)
    return True


def _reads(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def has_size(directory: Path, file: FileResult) -> bool:
    """Whether a file of a result is there, as large as it was written."""
    path = directory / file.path
    return path.is_file() and path.stat().st_size == file.size_bytes


def is_whole(directory: Path, file: FileResult) -> bool:
    """Whether a file of a result is there as it was written."""
    return has_size(directory, file) and file_digest(directory / file.path) == file.digest


def write_progress(directory: Path, progress: AttemptProgress) -> None:
    """Writes the progress of a task, as one whole document."""
    # Processes of two machines may have one number.
    fresh = directory / f"progress-{progress.task}.{uuid.uuid4().hex[:8]}"
    fresh.write_text(progress.model_dump_json(), encoding="ascii")
    # Whoever has taken over deletes such files.
    with contextlib.suppress(FileNotFoundError):
        fresh.replace(progress_path(directory, progress.task))


def read_progress(directory: Path, task_id: str) -> AttemptProgress | None:
    """Returns the progress of a task; None if it does not run."""
    try:
        return AttemptProgress.model_validate_json(progress_path(directory, task_id).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_activity(directory: Path, activity: SparkActivity) -> None:
    """Writes what Spark is doing; removes the file if it does nothing."""
    path = directory / STAGES_FILE
    if activity == IDLE:
        path.unlink(missing_ok=True)
        return
    fresh = directory / f"{STAGES_FILE}.{os.getpid()}"
    fresh.write_text(activity.model_dump_json(), encoding="ascii")
    fresh.replace(path)


def read_activity(directory: Path) -> SparkActivity:
    """Returns what Spark is doing."""
    try:
        return SparkActivity.model_validate_json((directory / STAGES_FILE).read_bytes())
    except (FileNotFoundError, ValidationError):
        return IDLE


def file_digest(path: Path) -> str:
    """A hash of a file's bytes."""
    found = blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def sync(path: Path) -> None:
    """Makes a file's bytes, or the names in a folder, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
