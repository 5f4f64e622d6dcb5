"""Archives: the history of topics as Parquet files.

1. A row is a record: ``offset`` and ``timestamp`` (ms, or a timestamp, which is read as UTC where it has no zone), ``key``
   and ``value`` (binary or text, null allowed), and where there are any ``headers`` (a list of ``key``, ``value``).
   ``partition`` is a column, or stands in the folder's name as ``partition=N``.
2. A file holds records of one partition in the order of offsets. Files of one partition follow each other without overlap.
3. Gaps, duplicates and unreadable files are refused when the plan is made, where the files' statistics show it,
   and else when they are read. A topic that was compacted or written in transactions has holes by nature: ``allow_gaps``.
4. pyarrow is needed here and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.lake_formats import has_scheme
from streamsrt.backfill.local_copies import found_at
from streamsrt.backfill.parquet_files import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    VALUE,
    TimesRead,
    bounds,
    check_columns,
    check_no_nulls,
    check_times,
    check_unchanged_file,
    folder_partition,
    key_bytes,
    milliseconds,
    modified_ms,
    nothing_found,
    numbers,
    opened,
    other_folder,
    parquet,
    parquet_paths,
)
from streamsrt.backfill.plan import ArchiveFile, SourceRange
from streamsrt.wire.records import Headers, RecordColumns

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

BATCH_RECORDS = 4_000
FILE_RECORDS = 100_000
_REQUIRED = (OFFSET, TIMESTAMP, KEY, VALUE)


# ------------------------------------------------------------------------------------------------------------- planning


def scan_archive(
    path: Path | str, *, allow_gaps: bool = False, times: TimesRead | None = None, topic: str = "TOPIC"
) -> dict[int, tuple[ArchiveFile, ...]]:
    """The files of a topic's archive by partition, in the order of offsets. ``times`` gets how their times are written.
    Raises ArchiveError."""
    if has_scheme(str(path)):
        raise ArchiveError(
            f"archive {path} is not a directory of this machine: --lake {topic}={path} reads it, by Spark "
            "(pip install 'streamsrt[spark]')"
        )
    root = Path(path)
    if not root.is_dir():
        raise ArchiveError(f"archive {root} is not a directory: give TOPIC=DIRECTORY of Parquet files")
    found: dict[int, list[ArchiveFile]] = {}
    for path in parquet_paths(root):
        described = _describe(path.absolute(), times)
        if described is not None:
            found.setdefault(described[0], []).append(described[1])
    if not found:
        raise nothing_found("archive", root, topic)
    return {partition: _in_order(partition, files, allow_gaps=allow_gaps) for partition, files in sorted(found.items())}


def _describe(path: Path, times: TimesRead | None) -> tuple[int, ArchiveFile] | None:
    # Before it is read: what changes meanwhile is noticed.
    written_ms = modified_ms(path)
    with opened(path) as file:
        check_columns(path, file, _REQUIRED)
        if not file.metadata.num_rows:
            return None
        first, last = bounds(path, file, OFFSET)
        check_no_nulls(path, file, TIMESTAMP)
        if times is None or not times.is_extracted:
            highest_ms = check_times(path, file)
            if times is not None:
                times.add_highest(highest_ms)
        if times is not None:
            times.add(file.schema_arrow.field(TIMESTAMP).type)
        partition = _partition_of(path, file)
        records = file.metadata.num_rows
    return partition, ArchiveFile(
        path=str(path),
        first_offset=first,
        next_offset=last + 1,
        records=records,
        size_bytes=path.stat().st_size,
        modified_ms=written_ms,
    )


def _partition_of(path: Path, file: ParquetFile) -> int:
    folder = folder_partition(reversed(path.parts[:-1]), path)
    if PARTITION in file.schema_arrow.names:
        low, high = bounds(path, file, PARTITION)
        if low != high:
            raise ArchiveError(
                f"{path} holds records of partitions {low} to {high}: an archive has one partition in a file. Use "
                "--engine "
                "spark with a lake, or write the files by partition"
            )
        if folder not in (None, low):
            raise other_folder(path, folder, low)
        return low
    if folder is not None:
        return folder
    raise ArchiveError(
        f"{path} does not say which partition it holds: it has no column partition and is in no folder partition=N. "
        "Add the column, or move the file into the folder of its partition"
    )


def _in_order(partition: int, files: list[ArchiveFile], *, allow_gaps: bool) -> tuple[ArchiveFile, ...]:
    files.sort(key=lambda file: (file.first_offset, file.next_offset))
    for file in files:
        span = file.next_offset - file.first_offset
        if file.records > span:
            raise ArchiveError(f"{file.path} holds offsets twice: {file.records} records in {span} offsets. Rewrite it")
        if file.records < span and not allow_gaps:
            raise _hole(f"{file.path} holds {file.records} records of {span} offsets", partition)
    for before, after in pairwise(files):
        if after.first_offset < before.next_offset:
            raise ArchiveError(
                f"{before.path} and {after.path} both hold offsets {after.first_offset} to "
                f"{min(before.next_offset, after.next_offset) - 1} of partition {partition}: remove one of them"
            )
        if after.first_offset > before.next_offset and not allow_gaps:
            raise _hole(
                f"offsets {before.next_offset} to {after.first_offset - 1} are missing between {before.path} and "
                f"{after.path}",
                partition,
            )
    return tuple(files)


def _hole(what: str, partition: int) -> ArchiveError:
    return ArchiveError(
        f"the archive has a hole in partition {partition}: {what}. Restore the missing files; if the topic was "
        "compacted "
        "or written in transactions, gaps are expected: use --allow-gaps"
    )


def archived_offsets(file: ArchiveFile) -> set[int]:
    """The offsets that a file holds. Raises ArchiveError."""
    found: set[int] = set()
    with opened(Path(file.path)) as content:
        for batch in content.iter_batches(columns=[OFFSET], use_threads=False):
            found.update(numbers(batch.column(OFFSET)).tolist())
    return found


# -------------------------------------------------------------------------------------------------------------- reading


def read_archive(source: SourceRange) -> Iterator[RecordColumns]:
    """The archived records of a source partition, batch by batch. Raises ArchiveError."""
    for file in source.archive:
        if file.first_offset < source.end:
            yield from _read_file(file, source)


def check_archive(source: SourceRange) -> None:
    """Raises ArchiveError if a file that is read of a source partition is missing, or not the planned one any more."""
    for file in source.archive:
        if file.first_offset < source.end:
            check_unchanged_file(Path(file.path), file.size_bytes, file.modified_ms)


def _read_file(file: ArchiveFile, source: SourceRange) -> Iterator[RecordColumns]:
    planned = Path(file.path)
    path = found_at(planned)
    # A copy is younger.
    check_unchanged_file(path, file.size_bytes, file.modified_ms if path == planned else None)
    position, records, first = file.first_offset, 0, None
    with opened(path) as content:
        names = content.schema_arrow.names
        columns = [name for name in (*_REQUIRED, HEADERS) if name in names]
        for batch in content.iter_batches(batch_size=BATCH_RECORDS, columns=columns, use_threads=False):
            read = batch_columns(batch, str(path))
            _check_order(read, position, file)
            first = read.base_offset if first is None else first
            position = read.next_offset
            records += len(read)
            yield _within(read, source.start, source.end)
    if records != file.records:
        raise ArchiveError(f"{path} holds {records} records, {file.records} when the plan was made: plan again")
    if (first, position) != (file.first_offset, file.next_offset):
        raise ArchiveError(
            f"{path} holds offsets {first} to {position - 1}, and its statistics say {file.first_offset} to "
            f"{file.next_offset - 1}: rewrite it, then plan again"
        )


def batch_columns(batch: pyarrow.RecordBatch, where: str) -> RecordColumns:
    """The records of an Arrow batch in the order of offsets. ``where``: what they are read from, for messages. Raises
    ArchiveError where a header has no name."""
    positions = numbers(batch.column(OFFSET))
    offsets: list[int] = positions.tolist()
    has_headers = HEADERS in batch.schema.names and len(batch.column(HEADERS).flatten())
    headers = batch.column(HEADERS).to_pylist() if has_headers else ()
    consecutive = bool((np.diff(positions) == 1).all())
    timestamps = milliseconds(batch.column(TIMESTAMP))
    for each, timestamp in zip(headers, timestamps, strict=False):
        if each and any(header is None or header["key"] is None for header in each):
            # The statistics of a file don't show it: records without headers count as nulls there, too.
            raise ArchiveError(
                f"{where} has a record with a header without a name (timestamp {timestamp}): each entry of {HEADERS} needs "
                "a key; its value may be null. Rewrite it without such entries"
            )
    return RecordColumns(
        key_bytes(batch.column(KEY)),
        key_bytes(batch.column(VALUE)),
        timestamps,
        offsets[0],
        offsets[-1] + 1,
        None if consecutive else offsets,
        [_headers(each) for each in headers] if any(headers) else None,
    )


def _headers(headers: Sequence[Mapping[str, Any]] | None) -> Headers:
    return tuple((header["key"], _as_bytes(header["value"])) for header in headers or ())


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _check_order(columns: RecordColumns, position: int, file: ArchiveFile) -> None:
    offsets = columns.offsets
    ascending = offsets is None or all(a < b for a, b in pairwise(offsets))
    if columns.base_offset < position or not ascending:
        raise ArchiveError(
            f"{file.path} is not sorted by offset, or has offsets twice, after offset {position}: rewrite it, sorted "
            "by offset. If it was written so, it is damaged: bring it back from where it was written"
        )


def _within(columns: RecordColumns, start: int, end: int) -> RecordColumns:
    if start <= columns.base_offset and columns.next_offset <= end:
        return columns
    offsets = [columns.offset_at(index) for index in range(len(columns))]
    return columns.cut(bisect_left(offsets, start), bisect_left(offsets, end))


# -------------------------------------------------------------------------------------------------------------- writing


def write_archive(
    root: Path, partition: int, batches: Iterable[RecordColumns], *, file_records: int = FILE_RECORDS
) -> list[Path]:
    """Writes records of one partition as an archive that :func:`scan_archive` reads; the files that were written."""
    folder = root / f"partition={partition}"
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    waiting: list[RecordColumns] = []
    for columns in batches:
        waiting.append(columns)
        if sum(map(len, waiting)) >= file_records:
            paths.append(_write_file(folder, partition, waiting))
            waiting = []
    if sum(map(len, waiting)):
        paths.append(_write_file(folder, partition, waiting))
    return paths


def _write_file(folder: Path, partition: int, batches: Sequence[RecordColumns]) -> Path:
    import pyarrow as pa

    pq = parquet()
    offsets = [columns.offset_at(index) for columns in batches for index in range(len(columns))]
    headers = [
        [{"key": name, "value": value} for name, value in each]
        for columns in batches
        for each in (columns.headers or [()] * len(columns))
    ]
    header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([time for columns in batches for time in columns.timestamps], pa.int64()),
            "key": pa.array([key for columns in batches for key in columns.keys], pa.binary()),
            "value": pa.array([value for columns in batches for value in columns.values], pa.binary()),
            "headers": pa.array(headers, header_type),
        }
    )
    path = folder / f"{offsets[0]:020d}.parquet"
    fresh = path.with_suffix(".new")
    pq.write_table(table, fresh, compression="zstd", write_page_checksum=True)
    fresh.replace(path)
    return path
