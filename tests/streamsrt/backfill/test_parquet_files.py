"""The table of bad inputs: what is wrong with files of an archive or a lake, and what is said of it when planning; and what
is unusual, and read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsrt.backfill.archive import batch_columns, read_archive, scan_archive
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.lake import Lake, scan_lake
from streamsrt.backfill.parquet_files import TimesRead
from streamsrt.backfill.plan import SourceRange
from streamsrt.wire.records import RecordColumns

COUNT = 4
_NAIVE = [datetime(2024, 3, 10, 2, 30, 0, 123_456) + timedelta(hours=n) for n in range(COUNT)]
_AT_MS = [1_710_037_800_123 + n * 3_600_000 for n in range(COUNT)]
"""Half past two does not exist on that day in New York."""


def columns(**changed: Any) -> dict[str, Any]:
    """A sound file; a column that is None is left out."""
    found = {
        "partition": pa.array([0] * COUNT, pa.int32()),
        "offset": pa.array(range(COUNT), pa.int64()),
        "timestamp": pa.array(range(COUNT), pa.int64()),
        "key": pa.array([b"k"] * COUNT, pa.binary()),
        "value": pa.array([b"v"] * COUNT, pa.binary()),
        **changed,
    }
    return {name: column for name, column in found.items() if column is not None}


def nested() -> Any:
    return pa.array([{"a": 7, "b": 8}] * COUNT, pa.struct([("a", pa.int64()), ("b", pa.int64())]))


def headers(key: Any = "name", of_key: str = "key", kind: Any = None) -> Any:
    kind = pa.string() if kind is None else kind
    entry = pa.list_(pa.struct([(of_key, kind), ("value", pa.binary())]))
    return pa.array([[{of_key: key, "value": b"1"}]] * COUNT, entry)


def numbers(kind: Any, *values: Any) -> Any:
    return pa.array(values or range(COUNT), kind)


ANY = "(archive or lake)"
BAD_INPUTS: list[tuple[str, str, dict[str, Any], str]] = [
    # where it matters, what is wrong, the columns, what is said
    (ANY, "no value", {"value": None}, "has no column value; it has key, offset, partition, timestamp"),
    (ANY, "an offset of text", {"offset": pa.array(["0", "1", "2", "3"])}, "column offset is string; offsets are integers"),
    (ANY, "an offset that is nested", {"offset": nested()}, "column offset is struct.*offsets are integers"),
    (ANY, "an offset that is null", {"offset": numbers(pa.int64(), 0, None, 2, 3)}, "rows without offset"),
    (ANY, "an offset below zero", {"offset": numbers(pa.int64(), -1, 0, 1, 2)}, "has offset -1: it must not be negative"),
    (ANY, "an offset that is twice", {"offset": numbers(pa.int64(), 0, 1, 1, 2)}, "twice"),
    (ANY, "a hole", {"offset": numbers(pa.int64(), 0, 1, 2, 9)}, "--allow-gaps"),
    (ANY, "a zip code", {"partition": pa.array(["02134"] * COUNT)}, "column partition is string; .*another name"),
    (ANY, "a partition that is a share", {"partition": numbers(pa.float64())}, "column partition is double"),
    ("archive", "rows of several partitions", {"partition": numbers(pa.int32())}, "records of partitions 0 to 3"),
    (ANY, "times of text", {"timestamp": pa.array(["2024-01-01"] * COUNT)}, "column timestamp is string; times are"),
    (ANY, "times that are dates", {"timestamp": pa.array([0] * COUNT, pa.date32())}, "column timestamp is date32"),
    (ANY, "times that are broken", {"timestamp": numbers(pa.float64())}, "column timestamp is double; times are"),
    (ANY, "a time that is null", {"timestamp": numbers(pa.int64(), 0, None, 2, 3)}, "has 1 rows without timestamp"),
    ("lake", "nanoseconds", {"timestamp": numbers(pa.timestamp("ns"))}, "nanoseconds, .*coerce_timestamps='us'"),
    (ANY, "a key that is a number", {"key": numbers(pa.int64())}, "column key is int64; a record's key is bytes"),
    (ANY, "a value that is nested", {"value": nested()}, "column value is struct.*a record's value is bytes"),
    (ANY, "a value that is decimal", {"value": pa.array([Decimal("1.5")] * COUNT)}, "column value is decimal"),
    (ANY, "headers that are a map", {"headers": pa.array([[("k", b"v")]] * COUNT, pa.map_(pa.string(), pa.binary()))},
     "column headers is map.*headers are list<struct"),
    (ANY, "headers that are named otherwise", {"headers": headers(of_key="name")}, "headers are list<struct"),
    (ANY, "headers of numbers", {"headers": headers(7, kind=pa.int64())}, "headers are list<struct"),
    (ANY, "a time before 1970", {"timestamp": numbers(pa.int64(), 5, -7, 2, 3)},
     r"before 1970 .*timestamp is -7\): .*extractor"),
    (ANY, "a date before 1970", {"timestamp": numbers(pa.timestamp("us"), 5, -7, 2, 3)}, "before 1970"),
    ("lake", "an offset that is null, in a lake", {"offset": numbers(pa.int64(), 0, None, 2, 3)},
     "--lake-where t='offset is not null'"),
    ("lake", "names that are one to Spark", {"Key": pa.array([b"K"] * COUNT)}, "columns key and Key, which Spark"),
]  # fmt: skip


CASES = [
    pytest.param(kind, what, changed, says, id=f"{kind}: {what}")
    for where, what, changed, says in BAD_INPUTS
    for kind in ("archive", "lake")
    if where in (ANY, kind)
]


@pytest.mark.parametrize(("kind", "what", "changed", "says"), CASES)
def test_the_plan_says_what_is_wrong(tmp_path: Path, kind: str, what: str, changed: dict[str, Any], says: str) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table(columns(**changed)), path)
    with pytest.raises(ArchiveError, match=says) as raised:
        _ = scan_archive(tmp_path) if kind == "archive" else scan_lake(Lake(tmp_path), "t", 4)
    if "hole" not in what:
        assert str(path) in str(raised.value)


def scanned(kind: str, root: Path, times: TimesRead | None = None) -> None:
    _ = scan_archive(root, times=times, topic="t") if kind == "archive" else scan_lake(Lake(root), "t", 4, times=times)


KINDS = pytest.mark.parametrize("kind", ["archive", "lake"])


@KINDS
@pytest.mark.parametrize("statistics", [True, False])
def test_a_source_with_a_timestamp_extractor_takes_any_time(tmp_path: Path, kind: str, statistics: bool) -> None:
    times = numbers(pa.int64(), 5, -7, 2, 3)
    pq.write_table(pa.table(columns(timestamp=times)), tmp_path / "a.parquet", write_statistics=statistics)
    scanned(kind, tmp_path, TimesRead(is_extracted=True))
    with pytest.raises(ArchiveError, match="before 1970"):
        scanned(kind, tmp_path, TimesRead())


_2040_MS = 2_208_988_800_123
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@KINDS
@pytest.mark.parametrize("unit", [None, "s", "ms", "us", "ns"])
@pytest.mark.parametrize("statistics", [True, False])
def test_the_plan_warns_of_times_in_the_future(tmp_path: Path, kind: str, unit: str | None, statistics: bool) -> None:
    per_second = _PER_SECOND[unit or "ms"]
    times = numbers(pa.int64(), *(_2040_MS // 1_000 * per_second + n for n in range(COUNT)))
    column = times if unit is None else times.cast(pa.timestamp(unit, tz="UTC"))
    pq.write_table(pa.table(columns(timestamp=column)), tmp_path / "a.parquet", write_statistics=statistics)
    if (kind, unit) == ("lake", "ns"):
        return
    found = TimesRead()
    scanned(kind, tmp_path, found)
    highest_ms = _2040_MS // 1_000 * 1_000 + {"s": 3_000, None: 3, "ms": 3}.get(unit, 0)
    two_days_before = highest_ms - 2 * 86_400_000
    assert next(found.notes("t", two_days_before)).startswith("the times of t go up to 2040-01-01T00:00:0")
    assert "which is 2 days in the future" in next(found.notes("t", two_days_before))
    assert not [each for each in found.notes("t", highest_ms - 3_600_000) if "future" in each]
    assert [each for each in found.notes("t", highest_ms - 3_600_001) if "1 hour in the future" in each]


@KINDS
@pytest.mark.parametrize("statistics", [True, False])
def test_integers_that_count_no_milliseconds_are_noticed(tmp_path: Path, kind: str, statistics: bool) -> None:
    path, now_ms = tmp_path / "a.parquet", _AT_MS[-1]
    micros = numbers(pa.int64(), *(at * 1_000 for at in _AT_MS))
    pq.write_table(pa.table(columns(timestamp=micros)), path, write_statistics=statistics)
    with pytest.raises(ArchiveError, match=r"a\.parquet has records with a time after the year 9999.* micro- or nano"):
        scanned(kind, tmp_path)
    scanned(kind, tmp_path, TimesRead(is_extracted=True))
    last_ms = 253_402_300_799_999
    pq.write_table(
        pa.table(columns(timestamp=numbers(pa.int64(), *[last_ms] * COUNT))), path, write_statistics=statistics
    )
    scanned(kind, tmp_path)
    seconds = numbers(pa.int64(), *(at // 1_000 for at in _AT_MS))
    pq.write_table(pa.table(columns(timestamp=seconds)), path, write_statistics=statistics)
    found = TimesRead()
    scanned(kind, tmp_path, found)
    assert next(found.notes("t", now_ms)).startswith("the times of t end at 1970-01-20T19:00:48Z: integers count milli")
    pq.write_table(pa.table(columns(timestamp=numbers(pa.int64(), *_AT_MS))), path)
    found = TimesRead()
    scanned(kind, tmp_path, found)
    assert list(found.notes("t", now_ms)) == []


@KINDS
@pytest.mark.parametrize("folder", ["partition=-1", "partition=north", "partition="])
def test_a_folder_that_names_no_partition_is_quoted(tmp_path: Path, kind: str, folder: str) -> None:
    (tmp_path / folder).mkdir()
    pq.write_table(pa.table(columns(partition=None)), tmp_path / folder / "a.parquet")
    with pytest.raises(
        ArchiveError, match=rf"a.parquet is in the folder '{folder}', .*rename the folder to partition=N"
    ):
        scanned(kind, tmp_path)


@KINDS
def test_a_folder_and_a_column_that_disagree_are_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "partition=0").mkdir()
    ones = numbers(pa.int32(), 1, 1, 1, 1)
    pq.write_table(pa.table(columns(partition=ones)), tmp_path / "partition=0" / "a.parquet")
    with pytest.raises(ArchiveError, match=r"a\.parquet is in the folder partition=0, and its column partition says 1"):
        scanned(kind, tmp_path)


@KINDS
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("a.csv.gz", "b.csv.gz", "_SUCCESS"), "It has 2 files .csv.gz: .*--lake-format t=csv"),
        (("a.ndjson",), "It has 1 file .ndjson: .*--lake-format t=json"),
        (
            ("part-0",),
            "It has 1 file without an ending: check the path. Parquet files are found by the ending .parquet",
        ),
        (("_SUCCESS",), "nor any other: check the path"),
    ],
)
def test_a_folder_without_parquet_files_says_what_it_has(
    tmp_path: Path, kind: str, names: tuple[str, ...], says: str
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"1,2")
    with pytest.raises(ArchiveError, match=says):
        scanned(kind, tmp_path)


@KINDS
def test_a_file_of_another_format_is_not_to_be_brought_back(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.parquet").write_text("key,value\n1,2\n", encoding="ascii")
    with pytest.raises(ArchiveError, match=r"it is no Parquet file .it begins with b'key,value") as raised:
        scanned(kind, tmp_path)
    assert "ring" not in str(raised.value)


@KINDS
def test_a_link_to_nothing_is_said_to_be_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.parquet"
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(ArchiveError, match=r"is a link to .*gone, where there is no file") as raised:
        scanned(kind, tmp_path)
    assert str(raised.value).count(str(path)) == 1


@KINDS
def test_a_folder_may_have_the_name_of_a_file(tmp_path: Path, kind: str) -> None:
    """Spark writes folders, whatever their names."""
    (tmp_path / "orders.parquet").mkdir()
    pq.write_table(pa.table(columns()), tmp_path / "orders.parquet" / "part-0.parquet")
    scanned(kind, tmp_path)


def test_files_of_a_lake_are_of_one_kind(tmp_path: Path) -> None:
    pq.write_table(pa.table(columns(timestamp=pa.array(_NAIVE, pa.timestamp("us")))), tmp_path / "a.parquet")
    zoned = pa.array(_NAIVE, pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table(columns(timestamp=zoned)), tmp_path / "b.parquet")
    with pytest.raises(ArchiveError, match=r"b\.parquet: column timestamp is .*tz=UTC.*, and timestamp\[us\] in .*a\."):
        scan_lake(Lake(tmp_path), "t", 1)


def test_a_file_of_an_archive_must_say_its_partition(tmp_path: Path) -> None:
    pq.write_table(pa.table(columns(partition=None)), tmp_path / "a.parquet")
    with pytest.raises(ArchiveError, match=r"does not say which partition .* Add the column, or move the file into"):
        scan_archive(tmp_path)


def test_a_topic_of_one_partition_is_worded_so(tmp_path: Path) -> None:
    pq.write_table(pa.table(columns(partition=pa.array([2] * COUNT))), tmp_path / "a.parquet")
    with pytest.raises(ArchiveError, match="has records of partition 2, and topic t has 1 partition: it is"):
        scan_lake(Lake(tmp_path), "t", 1)


def read(root: Path) -> RecordColumns:
    (files,) = scan_archive(root).values()
    source = SourceRange(topic="t", partition=0, start=0, end=COUNT, log_start=COUNT, archive=files)
    (found,) = read_archive(source)
    return found


@pytest.mark.parametrize("statistics", [True, False])
def test_columns_are_found_by_their_names_behind_nested_ones(tmp_path: Path, statistics: bool) -> None:
    table = {"customer": nested(), "headers": headers(), **columns()}
    pq.write_table(pa.table(table), tmp_path / "part.parquet", write_statistics=statistics)
    found = read(tmp_path)
    assert [found.offset_at(index) for index in range(COUNT)] == list(range(COUNT))
    assert found.headers == [(("name", b"1"),)] * COUNT
    ((partition, (file,)),) = scan_archive(tmp_path).items()
    assert (partition, file.first_offset, file.next_offset) == (0, 0, COUNT)


TIMES: list[tuple[str, Any, str | None]] = [
    ("integers", pa.array(_AT_MS), None),
    ("seconds", pa.array(_AT_MS).cast(pa.timestamp("ms")).cast(pa.timestamp("s"), safe=False), "no time zone"),
    ("milliseconds with a zone", pa.array(_AT_MS).cast(pa.timestamp("ms", tz="Asia/Kathmandu")), None),
    ("microseconds", pa.array(_NAIVE, pa.timestamp("us")), "no time zone"),
    (
        "microseconds with a zone",
        pa.array(_NAIVE, pa.timestamp("us", tz="America/New_York")),
        "what is finer is cut off",
    ),
    ("nanoseconds", pa.array(_NAIVE, pa.timestamp("ns")), "count nanoseconds"),
    ("INT96", pa.array(_NAIVE, pa.timestamp("us")), "no time zone"),
]


@pytest.mark.parametrize(("what", "times", "note"), TIMES, ids=[each[0] for each in TIMES])
def test_times_are_milliseconds_in_utc(tmp_path: Path, what: str, times: Any, note: str | None) -> None:
    int96 = what == "INT96"
    pq.write_table(pa.table(columns(timestamp=times)), tmp_path / "x.parquet", use_deprecated_int96_timestamps=int96)
    expected = [at // 1000 * 1000 for at in _AT_MS] if what == "seconds" else _AT_MS
    assert read(tmp_path).timestamps == expected
    for scan in (scan_archive, lambda root, times: scan_lake(Lake(root), "t", 1, times=times)):
        found = TimesRead()
        if what != "nanoseconds" or scan is scan_archive:
            scan(tmp_path, times=found)
            notes = " ".join(found.notes("t"))
            assert note in notes if note else not notes


def test_what_is_before_1970_is_cut_off_towards_the_past() -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    batch = pa.record_batch(columns(timestamp=pa.array([before] * COUNT, pa.timestamp("us", tz="UTC"))))
    assert batch_columns(batch, "x").timestamps == [-1] * COUNT


KINDS: dict[str, Callable[[], Any]] = {
    "large text": lambda: pa.array(["x"] * COUNT, pa.large_string()),
    "large bytes": lambda: pa.array([b"x"] * COUNT, pa.large_binary()),
    "as many bytes each": lambda: pa.array([b"x"] * COUNT, pa.binary(1)),
    "text out of a dictionary": lambda: pa.array(["x"] * COUNT).dictionary_encode(),
    "nothing": lambda: pa.nulls(COUNT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_and_bytes_of_every_kind_are_values(tmp_path: Path, kind: str) -> None:
    pq.write_table(pa.table(columns(value=KINDS[kind]())), tmp_path / "part.parquet")
    assert read(tmp_path).values == [None if kind == "nothing" else b"x"] * COUNT


def test_headers_may_stand_the_other_way_round_and_be_text(tmp_path: Path) -> None:
    entry = pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())]))
    given = pa.array([[{"key": "a", "value": "b"}, {"key": "c", "value": None}], None, [], None], entry)
    pq.write_table(pa.table(columns(headers=given)), tmp_path / "part.parquet")
    assert read(tmp_path).headers == [(("a", b"b"), ("c", None)), (), (), ()]


def test_wrong_statistics_are_noticed_where_gaps_are_allowed(tmp_path: Path) -> None:
    pq.write_table(pa.table(columns()), tmp_path / "part.parquet")
    (files,) = scan_archive(tmp_path, allow_gaps=True).values()
    wrong = files[0].model_copy(update={"next_offset": 50})
    source = SourceRange(
        topic="t", partition=0, start=0, end=50, log_start=50, archive=(wrong,), allow_gaps=True
    )  # fmt: skip
    with pytest.raises(ArchiveError, match=r"part\.parquet holds offsets 0 to 3, and its statistics say 0 to 49"):
        list(read_archive(source))
