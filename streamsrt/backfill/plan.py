"""The plan of a backfill: what is read, which tasks there are, what they need. One JSON document, never changed.

1. Everything that decides the result is in the plan, and only that makes its fingerprint: the application and its code, the
   topology's digest, the settings, and the exact ranges of all sources. So a task of a plan has one result, whoever runs it
   and how often.
2. Source ranges are frozen when the plan is made: ``start`` is included, ``end`` is not. A partition is read from its
   archive first, then from the log of the cluster at ``log_start``, up to ``end``.
3. A task reads repartition topics out of the results of other tasks: it stands on a higher level than those. Tasks of one
   level don't depend on each other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.full_disk import full_disk_said

FORMAT = 1
PLAN_FILE = "plan.json"
ID_DIGITS = 12
Changelogs = Literal["live", "full"]
_NOT_IN_FINGERPRINT = {
    "outline",
    "created_ms",
    "clock_ms",
    "cluster_id",
    "bootstrap_servers",
    "topic_ids",
    "warnings",
    "fingerprint",
}


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArchiveFile(_Value):
    """One Parquet file that holds the offsets ``first_offset`` to before ``next_offset`` of one partition.
    ``modified_ms``: when it was written; None in older plans."""

    path: str
    first_offset: int
    next_offset: int
    records: int
    size_bytes: int
    modified_ms: int | None = None

    @model_serializer(mode="wrap")
    def _without_what_is_unknown(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        # Plans without it keep the fingerprint that they have.
        found: dict[str, object] = write(self)
        return {name: value for name, value in found.items() if name != "modified_ms" or value is not None}


class LakeFile(_Value):
    """One file of a lake. ``modified_ms``: when it was written; None in older plans of lakes that Spark does not list."""

    path: str
    records: int
    size_bytes: int
    modified_ms: int | None = None


class LakePlan(_Value):
    """A lake: unordered files or a table with a topic's records. ``order``: the column that gives it; ``partitioned``:
    there is a column for
    the partition; ``headers``: there is one for headers. ``columns``: SQL expressions of Spark's for what is not a column of
    that name; ``root``: where folders begin whose names are columns.

    Of a lake that Spark lists: ``location``, a path or a table, with its ``format``, the ``options`` of Spark's reader, the
    condition ``where`` for rows, ``column_types`` (Spark's schema as JSON, as it was then), and ``version`` where the format
    keeps old ones. ``days``: how many records it has of each day in UTC; ``null_keys``: how many have no key.
    ``id``: the expression by which records are told apart, and ``duplicates``, how many rows it leaves out.
    ``until_ms``: records at and after this time are those of the log. ``mapping``: the function that makes records of its
    rows, with the digests of its modules."""

    topic: str
    files: tuple[LakeFile, ...]
    order: str
    partitioned: bool
    headers: bool
    columns: dict[str, str] = Field(default_factory=dict)
    root: str | None = None
    location: str | None = None
    format: str = "parquet"
    options: dict[str, str] = Field(default_factory=dict)
    where: str | None = None
    column_types: str | None = None
    version: str | None = None
    days: dict[str, int] = Field(default_factory=dict)
    null_keys: int = 0
    id: str | None = None
    duplicates: int = 0
    until_ms: int | None = None
    mapping: str | None = None
    mapping_modules: dict[str, str] = Field(default_factory=dict)


class SourceRange(_Value):
    """The range of one source partition. ``log_start`` equals ``end`` if nothing is read from the cluster. ``lake_records``:
    the number of its records in a lake, instead of an archive; ``lake_files``: the number of files with them.
    ``log_from_ms``: only records of the log with at least this timestamp are read. ``passed_records``: the number of
    records of the archive's files before the start, which an earlier backfill has read."""

    topic: str
    partition: int
    start: int
    end: int
    log_start: int
    archive: tuple[ArchiveFile, ...] = ()
    lake_records: int = 0
    lake_files: int = 0
    log_from_ms: int | None = None
    allow_gaps: bool = False
    passed_records: int = 0

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def archived_records(self) -> int:
        return sum(file.records for file in self.archive) - self.passed_records + self.lake_records


class RepartitionRange(_Value):
    """A partition of a repartition topic, and the ids of the tasks whose results fill it, in the order of their ids."""

    topic: str
    partition: int
    upstream: tuple[str, ...]
    start: int = 0
    """The offset of the first record: behind those of an earlier backfill."""

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.partition


class StorePlan(_Value):
    """A store of a task. ``changelog``: full name of the topic; ``own_changelog`` False: a source topic serves as it.
    ``renamed_from``: the name that its files have, where it is another one."""

    name: str
    changelog: str | None
    own_changelog: bool
    persistent: bool
    renamed_from: str | None = None

    @property
    def kept_as(self) -> str:
        return self.renamed_from or self.name


class TaskPlan(_Value):
    """One task: a subtopology for a partition. ``id`` is ``<subtopology id>_<partition>``."""

    id: str
    subtopology: str
    partition: int
    level: int
    sources: tuple[SourceRange, ...] = ()
    repartition: tuple[RepartitionRange, ...] = ()
    stores: tuple[StorePlan, ...] = ()


class InternalTopicPlan(_Value):
    """A changelog or repartition topic of the application, as the group coordinator would create it."""

    name: str
    kind: Literal["changelog", "repartition"]
    partitions: int
    configs: dict[str, str] = Field(default_factory=dict)


class GlobalTablePlan(_Value):
    """The rows of a global table or store when the plan was made, in a file of the plan's directory. ``ends``: of each
    partition of its topic, the offset behind the last record that they are made of. ``path`` is relative to the directory;
    ``records``, ``size_bytes`` and ``digest`` are of the file."""

    store: str
    topic: str
    ends: tuple[int, ...]
    path: str
    records: int
    size_bytes: int
    digest: str


class After(_Value):
    """The earlier backfill that a plan continues: where it is, and the fingerprint of its plan."""

    directory: str
    fingerprint: str


Compared = Literal["rows", "common rows", "keys"]
"""What must be the same in two changelogs of a store: all rows; the rows that both have; the keys."""


class ReadPosition(_Value):
    """An offset that the application has committed, with its metadata."""

    offset: int
    metadata: str = ""


class StoreRepair(_Value):
    """The one store that a plan rebuilds, of an application that has run and is stopped. ``feeding``: the other stores that
    it is computed from. ``fed``: those that are computed from it, in the order in which they can be repaired. ``committed``:
    by ``topic-partition``, where the application stands in the inputs. ``beside``: it was running, in a version without the
    store, so what is rebuilt is only the part up to there."""

    store: str
    feeding: dict[str, Compared] = Field(default_factory=dict)
    fed: tuple[str, ...] = ()
    committed: dict[str, ReadPosition]
    beside: bool = False


class CopiedStore(_Value):
    """The changelog that a store is filled from. ``ends``: of each of its partitions, the offset behind the last record.
    ``left_partitions``: of a store with the subscriptions of a foreign-key join, the number of partitions that the left
    table has in the other application; None for other stores."""

    topic: str
    ends: tuple[int, ...]
    left_partitions: int | None = None

    @model_serializer(mode="wrap")
    def _without_what_others_lack(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        # Plans without it keep the fingerprint that they have.
        found: dict[str, object] = write(self)
        return {name: value for name, value in found.items() if name != "left_partitions" or value is not None}


class StateCopy(_Value):
    """The other application whose state is taken over instead of computed. ``stores``: by name, those that are filled;
    ``positions``: by ``topic-partition``, what it has committed."""

    application_id: str
    stores: dict[str, CopiedStore]
    positions: dict[str, ReadPosition]


class BackfillPlan(_Value):
    """A backfill of one application."""

    format: int = FORMAT
    application: str
    """``MODULE:ATTRIBUTE``"""
    application_id: str
    code_digest: str
    """Of the source of the application's module."""
    module_digests: dict[str, str] = Field(default_factory=dict)
    """Of the sources of the modules that it imports, by name, without installed packages."""
    version: str
    """Of this package."""
    topology_digest: str
    outline: dict[str, JsonValue] = Field(default_factory=dict)
    """What a state directory says of the topology of its stores; none in plans of earlier releases. The digest decides."""
    config: dict[str, str] = Field(default_factory=dict)
    topics: dict[str, int] = Field(default_factory=dict)
    """Partition counts of all topics that are read or written."""
    topic_ids: dict[str, str] = Field(default_factory=dict)
    """Of topics that are read, as hexadecimal digits: one that is created again has another id."""
    internal_topics: tuple[InternalTopicPlan, ...] = ()
    lakes: tuple[LakePlan, ...] = ()
    slices: dict[str, int] = Field(default_factory=dict)
    """By subtopology, into how many slices of its keys each of its tasks is divided; 1 is left out."""
    global_tables: tuple[GlobalTablePlan, ...] = ()
    """What the tasks see of global tables and stores."""
    changelogs: Changelogs = "live"
    """``live``: what the stores hold at the end; ``full``: also windows and sessions beyond retention."""
    tasks: tuple[TaskPlan, ...] = ()
    warnings: tuple[str, ...] = ()
    after: After | None = None
    """The earlier backfill; the ranges in ``sources`` begin at its end."""
    repair: StoreRepair | None = None
    """What is rebuilt, if it is one store only."""
    copied: StateCopy | None = None
    """Whose state is taken over. Nothing is computed then."""
    created_ms: int
    clock_ms: int | None = None
    """The fixed wall-clock time of tasks, if it is not the time of the plan: a plan that continues a backfill keeps the time
    of the first one."""
    cluster_id: str | None = None
    bootstrap_servers: str = ""
    fingerprint: str = ""

    @property
    def wall_clock_ms(self) -> int:
        """The wall-clock time of all tasks."""
        return self.created_ms if self.clock_ms is None else self.clock_ms

    @property
    def id(self) -> str:
        """The name of this backfill in offset metadata and transactional ids."""
        return self.fingerprint[:ID_DIGITS]

    def computed_fingerprint(self) -> str:
        """A hash over everything that decides the result."""
        content = self.model_dump(mode="json", exclude=_NOT_IN_FINGERPRINT)
        if not self.module_digests:
            # Plans without it keep the fingerprint that they have.
            del content["module_digests"]
        if not self.slices:
            del content["slices"]
        if not self.global_tables:
            del content["global_tables"]
        if self.copied is None:
            del content["copied"]
        if self.repair is None:
            del content["repair"]
        else:
            del content["repair"]["fed"]
            if not self.repair.beside:
                del content["repair"]["beside"]
        return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def sealed(self) -> BackfillPlan:
        """The same plan with its fingerprint."""
        return self.model_copy(update={"fingerprint": self.computed_fingerprint()})

    def task(self, task_id: str) -> TaskPlan:
        """The task of that id. Raises PlanError."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise PlanError(f"the plan has no task {task_id!r}; it has {', '.join(task.id for task in self.tasks)}")

    def levels(self) -> Iterator[tuple[TaskPlan, ...]]:
        """The tasks level by level: those of one level need only results of levels before."""
        for level in sorted({task.level for task in self.tasks}):
            yield tuple(task for task in self.tasks if task.level == level)

    def sources(self) -> Iterator[SourceRange]:
        """Every source partition, each once: two subtopologies may read the same one."""
        seen: Mapping[tuple[str, int], SourceRange] = {
            source.topic_partition: source for task in self.tasks for source in task.sources
        }
        yield from (seen[tp] for tp in sorted(seen))


def save_plan(plan: BackfillPlan, directory: Path) -> None:
    """Writes the plan. A directory that has one keeps it: the same plan is fine, another one raises PlanError. Raises
    ResultsNotWrittenError if the disk is full."""
    with full_disk_said(directory, then="streamsrt backfill plan again"):
        _save(plan, directory)


def _save(plan: BackfillPlan, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / PLAN_FILE
    fresh = directory / f"{PLAN_FILE}.{os.getpid()}"
    try:
        write_durably(fresh, plan.model_dump_json(indent=1).encode())
        os.link(fresh, path)
    except FileExistsError:
        known = load_plan(directory)
        if known.fingerprint != plan.fingerprint:
            raise PlanError(
                f"{directory} holds another plan ({known.id}, of {known.application_id}) than this one ({plan.id}): "
                "source "
                "ranges, code or settings differ. Continue with that one (streamsrt backfill resume), abort it (streamsrt "
                "backfill abort), or give another --dir"
            ) from None
    finally:
        fresh.unlink(missing_ok=True)


def load_plan(directory: Path) -> BackfillPlan:
    """The plan of a directory. Raises PlanError where there is none that this version can run."""
    path = directory / PLAN_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise PlanError(f"there is no plan in {directory}: make one with streamsrt backfill plan") from None
    except OSError as error:
        raise PlanError(f"{path} can't be read: {error.strerror}") from None
    try:
        plan = BackfillPlan.model_validate_json(text)
    except ValidationError as error:
        raise PlanError(f"{path} is not a plan of this version: {error.errors()[0]['msg']}. Plan again") from None
    if plan.format != FORMAT or plan.fingerprint != plan.computed_fingerprint():
        raise PlanError(f"{path} was changed since it was made, or by another version: plan again in another --dir")
    return plan


def write_durably(path: Path, content: bytes) -> None:
    """Writes a file so that a crash of the machine does not lose it once its name is known."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
