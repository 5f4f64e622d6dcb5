from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsrt.backfill.archive import read_archive, scan_archive, write_archive
from streamsrt.backfill.errors import ArchiveError, BackfillError
from streamsrt.backfill.lake import Lake, check_unchanged, scan_lake
from streamsrt.backfill.plan import ArchiveFile, SourceRange
from streamsrt.backfill.planning import splice
from streamsrt.wire.records import RecordColumns

PLACE = ("t", 0)


def records(start: int, stop: int) -> RecordColumns:
    count = stop - start
    keys: list[bytes | None] = [b"k%d" % offset if offset % 5 else None for offset in range(start, stop)]
    values: list[bytes | None] = [b"v%d" % offset if offset % 7 else None for offset in range(start, stop)]
    headers = [(("h", b"1"), ("empty", None)) if offset % 3 == 0 else () for offset in range(start, stop)]
    return RecordColumns(keys, values, [1_000 + offset for offset in range(count)], start, stop, None, list(headers))


def archive(root: Path, stop: int = 30, file_records: int = 10) -> list[Path]:
    parts = [records(start, min(start + file_records, stop)) for start in range(0, stop, file_records)]
    return write_archive(root, 0, parts, file_records=file_records)


def read(root: Path, end: int) -> list[RecordColumns]:
    files = scan_archive(root)[0]
    return list(read_archive(SourceRange(topic="t", partition=0, start=0, end=end, log_start=end, archive=files)))


def table(offsets: list[int], **columns: object) -> pa.Table:
    values = [b"x"] * len(offsets)
    return pa.table(
        {
            "offset": offsets,
            "timestamp": offsets,
            "key": values,
            "value": values,
            "partition": [0] * len(offsets),
            **columns,
        }
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    archive(tmp_path)
    got = read(tmp_path, 25)
    whole = records(0, 25)
    assert [key for columns in got for key in columns.keys] == whole.keys
    assert [value for columns in got for value in columns.values] == whole.values
    assert [columns.offset_at(i) for columns in got for i in range(len(columns))] == list(range(25))
    assert [each for columns in got for each in columns.headers or ()] == whole.headers
    assert [time for columns in got for time in columns.timestamps] == [1_000 + offset % 10 for offset in range(25)]


@pytest.mark.parametrize("entry", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_name_is_refused_for_what_it_is(tmp_path: Path, entry: object) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[], None, [{"key": "h", "value": None}, entry]], kind)
    pq.write_table(table([0, 1, 2], headers=headers), tmp_path / "a.parquet")
    with pytest.raises(ArchiveError, match=r"a\.parquet has a record with a header without a name \(timestamp 2\)"):
        read(tmp_path, 3)


def test_text_arrow_times_and_the_folders_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "topic" / "partition=3"
    folder.mkdir(parents=True)
    times = pa.array([1_700_000_000_123_000, None], pa.timestamp("us")).fill_null(0)
    columns = {"offset": [0, 1], "timestamp": times, "key": ["a", None], "value": ["ä", "b"]}
    pq.write_table(pa.table(columns), folder / "part.parquet")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "x.parquet").write_bytes(b"half")
    (partition, files), *_ = scan_archive(tmp_path).items()
    source = SourceRange(topic="t", partition=3, start=0, end=2, log_start=2, archive=files)
    (got,) = read_archive(source)
    assert partition == 3
    assert (got.keys, got.values) == ([b"a", None], ["ä".encode(), b"b"])
    assert got.timestamps == [1_700_000_000_123, 0]


def _delete(paths: list[Path]) -> None:
    paths[1].unlink()


def _twice(paths: list[Path]) -> None:
    shutil.copy(paths[1], paths[1].with_name("again.parquet"))


def _half(paths: list[Path]) -> None:
    paths[1].write_bytes(paths[1].read_bytes()[:200])


def _rows_missing(paths: list[Path]) -> None:
    pq.write_table(table([10, 11, 15, 19]), paths[1])


def _rows_twice(paths: list[Path]) -> None:
    pq.write_table(table([10, 10, 11]), paths[1])


def _mixed(paths: list[Path]) -> None:
    pq.write_table(table([10, 11], partition=[0, 1]), paths[1])


def _no_column(paths: list[Path]) -> None:
    pq.write_table(table([10, 11]).drop_columns("key"), paths[1])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_delete, "offsets 10 to 19 are missing between"),
        (_twice, "both hold offsets 10 to 19"),
        (_half, "can't be read"),
        (_rows_missing, "holds 4 records of 10 offsets"),
        (_rows_twice, "holds offsets twice"),
        (_mixed, "partitions 0 to 1"),
        (_no_column, "no column key"),
    ],
)
def test_what_is_wrong_is_found_when_planning(tmp_path: Path, damage: Callable[[list[Path]], None], says: str) -> None:
    damage(archive(tmp_path))
    with pytest.raises(ArchiveError, match=says):
        scan_archive(tmp_path)


def test_holes_by_nature_are_allowed_when_asked_for(tmp_path: Path) -> None:
    paths = archive(tmp_path)
    _rows_missing(paths)
    paths[2].unlink()
    archive_files = scan_archive(tmp_path, allow_gaps=True)[0]
    source = SourceRange(topic="t", partition=0, start=0, end=99, log_start=99, archive=archive_files, allow_gaps=True)
    offsets = [columns.offset_at(i) for columns in read_archive(source) for i in range(len(columns))]
    assert offsets == [*range(10), 10, 11, 15, 19]


def _shuffled(path: Path) -> None:
    pq.write_table(table([10, 12, 11, *range(13, 20)]), path)


def _changed(path: Path) -> None:
    pq.write_table(table(list(range(10, 21))), path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [(_shuffled, r"is not sorted by offset.*If it was written so, it is damaged"), (_changed, "was changed")],
)
def test_what_planning_can_not_see_is_found_when_reading(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    path = archive(tmp_path)[1]
    files = None
    if damage is _changed:
        files = scan_archive(tmp_path)[0]
    damage(path)
    files = files or scan_archive(tmp_path)[0]
    source = SourceRange(topic="t", partition=0, start=0, end=30, log_start=30, archive=files)
    with pytest.raises(ArchiveError, match=says):
        list(read_archive(source))


@pytest.mark.parametrize("kind", ["archive", "lake"])
def test_a_file_that_was_rewritten_with_the_same_size_is_refused(tmp_path: Path, kind: str) -> None:
    path = archive(tmp_path)[1]
    source = SourceRange(topic="t", partition=0, start=0, end=30, log_start=30, archive=scan_archive(tmp_path)[0])
    described, _ = scan_lake(Lake(tmp_path), "t", 1)

    def read() -> None:
        if kind == "lake":
            check_unchanged(described)
        else:
            list(read_archive(source))

    read()
    before = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 5_000_000))
    with pytest.raises(ArchiveError, match=rf"{path.name} was changed since .*written at .*Z, and then at .*cp -p"):
        read()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    read()


def test_what_is_known_of_a_file_only_now_does_not_change_older_plans() -> None:
    file = ArchiveFile(path="f", first_offset=0, next_offset=1, records=1, size_bytes=1)
    assert "modified_ms" not in file.model_dump(mode="json")
    assert file.model_copy(update={"modified_ms": 7}).model_dump(mode="json")["modified_ms"] == 7


def test_a_file_that_is_gone_since_the_plan_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path)[1]
    source = SourceRange(topic="t", partition=0, start=0, end=30, log_start=30, archive=scan_archive(tmp_path)[0])
    path.unlink()
    with pytest.raises(ArchiveError, match=path.name):
        list(read_archive(source))


def test_an_archive_that_is_no_folder_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="not a directory"):
        scan_archive(tmp_path / "nowhere")
    with pytest.raises(ArchiveError, match="no Parquet files"):
        scan_archive(tmp_path)


def file(first: int, after: int) -> ArchiveFile:
    return ArchiveFile(path="f", first_offset=first, next_offset=after, records=after - first, size_bytes=1)


@pytest.mark.parametrize(
    ("files", "log", "expected"),
    [
        ((file(0, 10),), (10, 20), (0, 10, 20)),
        ((file(0, 10),), (3, 20), (0, 10, 20)),
        ((file(0, 20),), (20, 20), (0, 20, 20)),
        ((file(0, 10), file(10, 20)), (5, 21), (0, 20, 21)),
        ((), (0, 7), (0, 0, 7)),
        ((), (0, 0), (0, 0, 0)),
    ],
)
def test_archive_and_log_are_spliced_by_offset(
    files: tuple[ArchiveFile, ...], log: tuple[int, int], expected: tuple[int, int, int]
) -> None:
    found = splice(PLACE, files, *log, allow_gaps=False)
    assert (found.start, found.log_start, found.end) == expected


@pytest.mark.parametrize(
    ("files", "log", "says"),
    [
        ((file(0, 10),), (12, 20), "offsets 10 to 11 of t-0 are missing"),
        ((file(2, 10),), (0, 20), "begins at offset 2"),
        ((file(0, 30),), (0, 20), "another topic"),
        ((), (4, 20), "begins at offset 4"),
    ],
)
def test_what_does_not_fit_is_refused(files: tuple[ArchiveFile, ...], log: tuple[int, int], says: str) -> None:
    with pytest.raises(ArchiveError, match=says):
        splice(PLACE, files, *log, allow_gaps=False)


def test_gaps_between_archive_and_log_are_allowed_when_asked_for() -> None:
    found = splice(PLACE, (file(2, 10),), 12, 20, allow_gaps=True)
    assert (found.start, found.log_start, found.end) == (2, 12, 20)


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(BackfillError, match=r"pip install 'streamsrt\[backfill\]'"):
        scan_archive(tmp_path)


def damage_a_value(path: Path, value: bytes) -> None:
    """One bit, where nothing but a checksum tells it. The file's time stays."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[content.index(value)] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_page_with_another_checksum_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    whole = table([0, 1], value=[b"first", b"second"])
    pq.write_table(
        whole, path, compression="NONE", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    assert [columns.values for columns in read(tmp_path, 2)] == [[b"first", b"second"]]
    damage_a_value(path, b"second")
    with pytest.raises(
        ArchiveError, match=r"a\.parquet can't be read \(it is damaged: .* checksum .*Bring the file back"
    ):
        read(tmp_path, 2)


def test_pages_that_we_write_have_checksums(tmp_path: Path) -> None:
    """Zstandard unpacks some damaged pages without an error."""
    path = archive(tmp_path, 10)[0]
    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match="it is damaged"):
        read(tmp_path, 10)
