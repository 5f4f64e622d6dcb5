"""Lakes: the history of a topic as unordered files or a table, for engine ``spark``.

1. A row is a record, as in an archive: ``key`` and ``value``, ``timestamp``, and where there are any ``headers``. A file
   may hold rows of any partition. All files have the same columns of the same types.
2. With the columns ``partition`` and ``offset`` a lake is exact: its records go on in the log where the highest offset of
   their partition ends, and holes and duplicates are refused, as in an archive.
3. Without ``offset``, the order of a partition's records is ``(order, timestamp, key, value, headers)``; ``order`` is a
   column of integers or timestamps, and ``timestamp`` unless another one is named. That is one order, however the files are
   laid out; where two records differ in no column, it does not matter which comes first. They stand directly before the
   first offset that the log holds: such a lake must not hold what the log still does, or it is cut by time.
   A cut by time takes records before it from the lake, and records from it on from the log, each by its own timestamp: so
   none counts twice, however late it came, and none is missing if the lake is complete before the cut and the log from it
   on. The log must hold a record that is older than the cut, or everything from offset 0 on; else retention may have
   deleted what neither holds.
4. Without ``partition``, a record belongs to where Kafka's default partitioner puts its key, which must not be null. Folders
   named ``partition=N`` are such a column; others, such as dates, only hold files.
5. Where the columns are others, ``columns`` says what a record is made of, in Spark's SQL. Such a lake, one of another
   format or on another file system, and one that a filter reads in part, is listed and counted by Spark when the plan is
   made (:mod:`streamsrt.backfill.spark.scan`). Its folders named ``NAME=VALUE`` are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.lake_formats import has_scheme
from streamsrt.backfill.parquet_files import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    VALUE,
    TimesRead,
    check_columns,
    check_no_nulls,
    check_times,
    check_unchanged_file,
    folder_partition,
    key_bytes,
    modified_ms,
    nothing_found,
    numbers,
    opened,
    other_folder,
    parquet_paths,
)
from streamsrt.backfill.plan import LakeFile, LakePlan
from streamsrt.client.values import TopicPartition
from streamsrt.wire.murmur2 import PartitionMemo
from streamsrt.wording import counted

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

_REQUIRED = (KEY, VALUE, TIMESTAMP)
_SCAN_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Lake:
    """The history of a topic as files or a table, in any order. ``path``: a folder, also on a Hadoop file system
    (``s3a://bucket/orders``), or with ``format="table"`` the name of a table. ``order``: the column by which the records
    of a partition are ordered, if there are no offsets. ``allow_gaps``: offsets may be missing because the topic was
    compacted or written in transactions.

    ``columns``: Spark SQL expressions for those of ``key``, ``value``, ``timestamp``, ``partition`` and ``offset`` that
    are not columns with these names: ``{"value": "to_json(struct(*))", "timestamp": "ts"}``; also for the column of
    ``order``, where it is text: ``{"seq": "cast(seq as bigint)"}``.

    ``mapping``: ``MODULE:FUNCTION`` in Python, which makes of the rows, as a data frame, rows with these columns.

    ``format``: one of :data:`~streamsrt.backfill.lake_formats.FORMATS`; ``options``: of Spark's reader of that format;
    ``where``: a Spark SQL condition: only rows that meet it are read; ``id``: an expression that identifies records: of
    several rows with the same id, only the first in the lake's order is read. ``until_ms``: the time (epoch
    milliseconds) up to which records are read from a lake without offsets, and from which on they are read from the log."""

    path: Path | str
    order: str | None = None
    allow_gaps: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    id: str | None = None
    until_ms: int | None = None
    mapping: str | None = None

    @property
    def is_read_by_spark(self) -> bool:
        """Whether Spark lists and counts its files; otherwise this process does."""
        plain = self.format == "parquet" and not has_scheme(str(self.path))
        chosen = self.where is not None or self.id is not None or self.until_ms is not None
        return not plain or chosen or bool(self.columns or self.options or self.mapping)


@dataclass(frozen=True, slots=True)
class LakeShare:
    """The records of one partition in a lake. Offsets are None if the lake has none; ``files``: the number of files with
    such records."""

    records: int
    first_offset: int | None = None
    next_offset: int | None = None
    files: int = 1


def scan_lake(
    lake: Lake, topic: str, partitions: int, *, times: TimesRead | None = None
) -> tuple[LakePlan, dict[int, LakeShare]]:
    """The files of a lake, and what they hold of each partition. ``times`` gets how their times are written. Raises
    ArchiveError."""
    root, paths = paths_of(lake, topic)
    first = _schema_of(paths[0])
    names = set(first.names)
    in_folders = PARTITION not in names and is_in_folders(root, paths)
    names |= {PARTITION} if in_folders else set()
    order, partitioned = order_of(lake, paths[0], names), PARTITION in names
    missing = sorted({KEY, VALUE, TIMESTAMP, order} - names)
    if missing:
        raise ArchiveError(f"{paths[0]} has no column {', '.join(missing)}; it has {', '.join(sorted(names))}")
    used = dict.fromkeys((*_REQUIRED, order))
    rows = _Rows(topic, partitions, order, root, partitioned=partitioned, in_folders=in_folders)
    count = _Counts(topic, partitions, exact=order == OFFSET)
    files = []
    for path in paths:
        with opened(path) as file:
            check_alike(path, file.schema_arrow, paths[0], first)
            check_columns(path, file, used)
            check_for_spark(path, file)
            records = file.metadata.num_rows
            if not records:
                continue
            check_no_nulls(path, file, TIMESTAMP)
            if times is None or not times.is_extracted:
                highest_ms = check_times(path, file)
                if times is not None:
                    times.add_highest(highest_ms)
            for owners, offsets in rows.of(path, file):
                count.add(path, owners, offsets)
            count.end_file()
            if times is not None:
                times.add(file.schema_arrow.field(TIMESTAMP).type)
        size_bytes = path.stat().st_size
        files.append(LakeFile(path=str(path), records=records, size_bytes=size_bytes, modified_ms=modified_ms(path)))
    if not files:
        raise nothing_found("lake", root, topic)
    described = LakePlan(
        topic=topic,
        files=tuple(files),
        order=order,
        partitioned=partitioned,
        headers=HEADERS in names,
        root=str(root.absolute()) if in_folders else None,
    )
    return described, count.shares(allow_gaps=lake.allow_gaps, twice=partial(_twice, paths, rows))


def paths_of(lake: Lake, topic: str = "TOPIC") -> tuple[Path, list[Path]]:
    """The folder of a lake, and its files. Raises ArchiveError where there are none."""
    root = Path(lake.path)
    if not root.is_dir():
        raise ArchiveError(f"lake {root} is not a directory: give TOPIC=DIRECTORY of Parquet files")
    paths = [path.absolute() for path in parquet_paths(root)]
    if not paths:
        raise nothing_found("lake", root, topic)
    return root, paths


def _folder_partition(root: Path, path: Path) -> int | None:
    """The partition that a folder of a lake names."""
    return folder_partition(path.parts[len(root.absolute().parts) : -1], path)


def is_in_folders(root: Path, paths: Sequence[Path]) -> bool:
    """Whether folders name the partition of each file. Raises ArchiveError where they do so of some only."""
    outside = [path for path in paths if _folder_partition(root, path) is None]
    if outside and len(outside) < len(paths):
        raise ArchiveError(
            f"{outside[0]} is not in a folder {PARTITION}=N, and {len(paths) - len(outside)} files of lake {root} "
            "are: move it into the folder of its partition, or out of the lake"
        )
    return not outside


def _schema_of(path: Path) -> pyarrow.Schema:
    with opened(path) as file:
        return file.schema_arrow


def check_alike(path: Path, schema: pyarrow.Schema, first: Path, expected: pyarrow.Schema) -> None:
    """Raises ArchiveError where Spark, which goes by one file, would misread another one."""
    if set(schema.names) != set(expected.names):
        raise ArchiveError(f"{path} has other columns than {first}: write the files of a lake alike")
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not kind.equals(expected.field(name).type):
            raise ArchiveError(
                f"{path}: column {name} is {kind}, and {expected.field(name).type} in {first}: write the files of a lake "
                "alike"
            )


def check_for_spark(path: Path, file: ParquetFile) -> None:
    """Raises ArchiveError for columns that pyarrow can read and Spark can't, even if they are not used."""
    lower: dict[str, str] = {}
    for name in file.schema_arrow.names:
        if name.lower() in lower:
            raise ArchiveError(
                f"{path} has columns {lower[name.lower()]} and {name}, which Spark takes for one name: rename "
                "one of them"
            )
        lower[name.lower()] = name
    column = nanosecond_column(file)
    if column is not None:
        raise counts_nanoseconds(f"{path}: column {column}")


def nanosecond_column(file: ParquetFile) -> str | None:
    """A column of times, or a part of one, that counts nanoseconds; None if there is none."""
    for index in range(len(file.schema)):
        leaf = file.schema.column(index)
        # INT96, of old versions of Spark, Hive and Impala, is another type.
        if leaf.physical_type == "INT64" and leaf.logical_type.type == "TIMESTAMP" and "nano" in str(leaf.logical_type):
            return str(leaf.path)
    return None


def counts_nanoseconds(what: str) -> ArchiveError:
    """Returns the error for times that pyarrow can read and Spark can't."""
    return ArchiveError(
        f"{what} counts nanoseconds, which Spark does not read: rewrite the files with microseconds (pyarrow: "
        "coerce_timestamps='us')"
    )


def order_of(lake: Lake, path: Path | str, names: set[str]) -> str:
    """The column by which the records of a partition are ordered. Raises ArchiveError."""
    order = lake.order or (OFFSET if OFFSET in names else TIMESTAMP)
    if order == OFFSET and PARTITION not in names:
        raise ArchiveError(
            f"{path} has offsets, but no column {PARTITION}: add that column, or remove {OFFSET} and give another "
            "order with --lake-order"
        )
    return order


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the rows of a lake belong. ``in_folders``: the folders under ``root`` name the partitions, not a column."""

    topic: str
    partitions: int
    order: str
    root: Path
    partitioned: bool
    in_folders: bool

    def of(self, path: Path, file: ParquetFile) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """The partition and the position of each row of a file. Raises ArchiveError."""
        import pyarrow as pa

        memo = PartitionMemo()
        kind = file.schema_arrow.field(self.order).type
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            raise ArchiveError(f"{path}: column {self.order} is {kind}; order is integers or timestamps")
        folder = _folder_partition(self.root, path)
        owner = self.order if self.in_folders else PARTITION if self.partitioned else KEY
        columns = list(dict.fromkeys([owner, self.order]))
        for batch in file.iter_batches(batch_size=_SCAN_ROWS, columns=columns):
            positions, owners = batch.column(self.order), batch.column(owner)
            if positions.null_count or owners.null_count:
                raise self._without(path, self.order if positions.null_count else owner)
            if self.in_folders:
                found = np.full(len(positions), folder, np.int64)
            elif self.partitioned:
                found = numbers(owners)
                if folder is not None and (found != folder).any():
                    raise other_folder(path, folder, int(found[found != folder][0]))
            else:
                found = np.array(memo.partitions(key_bytes(owners), self.partitions), np.int64)
            yield found, numbers(positions)

    def _without(self, path: Path, column: str) -> ArchiveError:
        also = f", add a column {PARTITION}" if column == KEY else ""
        return ArchiveError(
            f"{path} has rows without {column}: their place is not known. Rewrite the file with it{also}, or leave them out "
            f"with --lake-where {self.topic}='{column} is not null'"
        )


def _twice(paths: Sequence[Path], rows: _Rows, share: LakeShare, partition: int) -> str:
    """Which offset of a partition comes twice, and in which files: looked for once it is known that there is one."""
    assert share.first_offset is not None
    assert share.next_offset is not None
    seen = np.zeros(share.next_offset - share.first_offset, np.bool_)
    for number, path in enumerate(paths):
        for offsets in _offsets_in(path, rows, partition):
            values, counts = np.unique(offsets - share.first_offset, return_counts=True)
            again = values[(counts > 1) | seen[values]]
            seen[values] = True
            if len(again):
                offset = int(again[0]) + share.first_offset
                holders = [
                    each
                    for each in paths[: number + 1]
                    if any((found == offset).any() for found in _offsets_in(each, rows, partition))
                ]
                return f", such as {offset} in {' and in '.join(map(str, holders))}"
    return ""


def _offsets_in(path: Path, rows: _Rows, partition: int) -> Iterator[npt.NDArray[np.int64]]:
    with opened(path) as file:
        for owners, offsets in rows.of(path, file):
            yield offsets[owners == partition]


class _Counts:
    """Records and offsets of each partition, over all files."""

    def __init__(self, topic: str, partitions: int, *, exact: bool) -> None:
        self._topic = topic
        self._exact = exact
        self._records = np.zeros(partitions, np.int64)
        self._first = np.full(partitions, np.iinfo(np.int64).max)
        self._last = np.full(partitions, -1)
        self._files = np.zeros(partitions, np.int64)
        self._before = np.zeros(partitions, np.int64)
        """Of :attr:`_records`, those of the files that are counted."""

    def add(self, path: Path, owners: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        partitions = len(self._records)
        outside = owners[(owners < 0) | (owners >= partitions)]
        if len(outside):
            raise ArchiveError(
                f"{path} has records of partition {outside[0]}, and topic {self._topic} has "
                f"{counted(partitions, 'partition')}: it is the lake of another topic, or the topic was recreated"
            )
        if self._exact and len(offsets) and offsets.min() < 0:
            raise ArchiveError(f"{path} has offset {offsets.min()}: it must not be negative. Rewrite it")
        self._records += np.bincount(owners, minlength=partitions)
        if self._exact:
            np.minimum.at(self._first, owners, offsets)
            np.maximum.at(self._last, owners, offsets)

    def end_file(self) -> None:
        """Everything of a file was added."""
        self._files += self._records > self._before
        self._before = self._records.copy()

    def shares(self, *, allow_gaps: bool, twice: Callable[[LakeShare, int], str]) -> dict[int, LakeShare]:
        """What was counted of each partition. ``twice``: where its offsets are that come twice."""
        found = {}
        for partition in np.flatnonzero(self._records).tolist():
            records, files = int(self._records[partition]), int(self._files[partition])
            if not self._exact:
                found[partition] = LakeShare(records, files=files)
                continue
            first, end = int(self._first[partition]), int(self._last[partition]) + 1
            share = found[partition] = LakeShare(records, first, end, files)
            where = twice(share, partition) if records > end - first else ""
            check_share((self._topic, partition), share, allow_gaps=allow_gaps, where=where)
        return found


def check_share(tp: TopicPartition, share: LakeShare, *, allow_gaps: bool, where: str = "") -> None:
    """Raises ArchiveError where offsets are missing, or there twice; ``where`` says in which files."""
    first, end, records = share.first_offset, share.next_offset, share.records
    if first is None or end is None or records == end - first or (records < end - first and allow_gaps):
        return
    raise ArchiveError(
        f"the lake of {tp[0]}-{tp[1]} holds {records} records of the {end - first} offsets from {first} to {end - 1}: "
        + (
            f"some offsets occur twice{where}. Remove one of the copies, or read one row of each with --lake-id "
            f"{tp[0]}='struct(partition, offset)'"
            if records > end - first
            else "some are missing. Add them; if the topic was compacted or written in transactions, use --allow-gaps"
        )
    )


def check_unchanged(plan: LakePlan) -> None:
    """Raises ArchiveError where a file of a lake is not what it was when the plan was made."""
    for file in plan.files:
        check_unchanged_file(Path(file.path), file.size_bytes, file.modified_ms)
