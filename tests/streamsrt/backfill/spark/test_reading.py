"""Lakes that Spark lists and reads: formats, folders that are columns, file systems, changes, and what is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cramjam
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import ArchiveError, BackfillError, PlanError
from streamsrt.backfill.lake import Lake, LakeShare
from streamsrt.backfill.parquet_files import TimesRead
from streamsrt.backfill.plan import LakePlan, load_plan
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.backfill.spark.reading import check_lake, described_source, explained, folders_of, read_lake
from streamsrt.backfill.spark.scan import scan_by_spark
from streamsrt.errors import StreamsError
from tests.streamsrt.backfill.spark.test_encoding import SERDES
from tests.streamsrt.backfill.spark.test_engine import results
from tests.streamsrt.backfill.spark.test_lake import from_archive, over_lake, spring
from tests.streamsrt.backfill.test_engine_local import Line, lines, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

COLUMNS = {
    "key": "customer",
    "value": "concat(word, suffix)",
    "timestamp": "cast(at as timestamp)",
    "partition": "cast(shard as int)",
    "offset": "cast(number as bigint)",
}
HEADER = {"header": "true"}
FOREIGN_DAY = "1999-12-31"
"""Of rows that belong to nothing here: they have the offsets of others."""


def write_rows(
    spark: SparkSession, root: Path, name: str, parts: Sequence[Sequence[Line]], options: Mapping[str, str] = {}
) -> Path:
    """The lines in typed columns, in two folders by day, and some rows of another day."""
    rows = [
        (shard, number, at, "7", value[:1], value[1:], f"2024-03-{10 + number % 2}")
        for shard, part in enumerate(parts)
        for number, (value, at) in enumerate(part)
    ]
    rows += [(shard, 0, 0, "8", "x", "y", FOREIGN_DAY) for shard in range(len(parts))]
    schema = "shard smallint, number bigint, ms bigint, customer string, word string, suffix string, day string"
    frame = spark.createDataFrame(rows, schema).selectExpr("* except (ms)", "timestamp_millis(ms) as at")
    frame.repartition(2, "number").write.format(name).options(**options).partitionBy("day").save(str(root))
    return root


def in_place_of_archive(folder: Path, scanned: tuple[LakePlan, Mapping[int, LakeShare]]) -> Backfill:
    """The plan of ``folder``, made by :func:`planned`, over a lake."""
    return over_lake(load_plan(folder / "archived" / "plan"), scanned, folder / f"plan-{scanned[0].format}")


WHERE = 'day >= "2024-01-01"'


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that nobody changes."""
    return write_rows(spark, tmp_path_factory.mktemp("lake") / "orders", "json", [lines(5, 1)])


def test_a_lake_of_any_format_gives_what_its_archive_gives(spark: SparkSession, tmp_path: Path) -> None:
    parts = [spring(110, 1)]
    planned(tmp_path / "archived", parts)
    expected = results(from_archive(tmp_path), tmp_path)
    seen = {}
    for name in ("json", "csv", "orc", "parquet"):
        options = HEADER if name == "csv" else {}
        root = write_rows(spark, tmp_path / f"la ke[{name}] 100%", name, parts, options)
        lake = Lake(root, columns=COLUMNS, format=name, options=options, where=WHERE)
        described, shares = scan_by_spark(spark, lake, "lines", 1)
        assert shares[0].records == 110
        # What the condition leaves out is not in the plan.
        assert described.files
        assert not [file.path for file in described.files if FOREIGN_DAY in file.path]
        assert sum(file.records for file in described.files) == 110
        seen[name] = described.days
        backfill = in_place_of_archive(tmp_path, (described, shares))
        backfill.run(SparkEngine())
        assert results(backfill, tmp_path) == expected, name
    assert all(days == {"2024-03-10": 110} for days in seen.values())


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A file system of another scheme than ``file``, over the test's folder."""
    setting = f"fs.viewfs.mounttable.{tmp_path.name}.link./lakes"
    spark.conf.set(setting, f"file:{tmp_path}")
    yield f"viewfs://{tmp_path.name}/lakes"
    spark.conf.unset(setting)


def test_a_lake_is_read_on_any_file_system_that_spark_has(spark: SparkSession, tmp_path: Path, mounted: str) -> None:
    parts = [lines(30, 3)]
    planned(tmp_path / "archived", parts)
    write_rows(spark, tmp_path / "orders", "json", parts)
    lake = Lake(f"{mounted}/orders", columns=COLUMNS, format="json", where=WHERE)
    scanned = scan_by_spark(spark, lake, "lines", 1)
    assert all(file.path.startswith(f"{mounted}/orders/day=") for file in scanned[0].files)
    backfill = in_place_of_archive(tmp_path, scanned)
    backfill.run(SparkEngine())
    assert results(backfill, tmp_path) == results(from_archive(tmp_path), tmp_path)
    lake = Lake(f"file://{tmp_path}/orders", columns=COLUMNS, format="json", where=WHERE)
    said, _ = scan_by_spark(spark, lake, "lines", 1)
    assert said.location == f"file://{tmp_path}/orders"


def test_what_changed_since_the_plan_was_made_is_named(spark: SparkSession, tmp_path: Path) -> None:
    root = write_rows(spark, tmp_path / "lake", "json", [lines(20, 1)])
    plan, _ = scan_by_spark(spark, Lake(root, columns=COLUMNS, format="json", where=WHERE), "lines", 1)
    check_lake(spark, plan)
    # Neither is of the plan.
    next(root.glob(f"day={FOREIGN_DAY}/*.json")).unlink()
    (root / "day=2024-03-10" / "new.json").write_text('{"number": 99}\n')
    check_lake(spark, plan)
    first, second, third = (Path(file.path.removeprefix("file:")) for file in plan.files[:3])
    os.utime(first, (1, 1))
    second.write_bytes(second.read_bytes() * 2)
    third.unlink()
    with pytest.raises(ArchiveError) as raised:
        check_lake(spark, plan)
    said = str(raised.value)
    for part in (f"{first} was rewritten", f"{second} has ", f"{third} is gone", "plan again in another --dir"):
        assert part in said


def test_a_table_has_the_files_that_it_had(spark: SparkSession, tmp_path: Path) -> None:
    parts = [lines(20, 5)]
    planned(tmp_path / "archived", parts)
    root = write_rows(spark, tmp_path / "lake", "parquet", parts)
    spark.sql("CREATE DATABASE IF NOT EXISTS shop")
    spark.sql(
        f"CREATE TABLE shop.lines USING parquet LOCATION 'file:{tmp_path}/table' AS SELECT * FROM parquet.`file:{root}`"
    )
    try:
        lake = Lake("shop.lines", columns=COLUMNS, format="table", where=WHERE)
        scanned = scan_by_spark(spark, lake, "lines", 1)
        backfill = in_place_of_archive(tmp_path, scanned)
        backfill.run(SparkEngine())
        assert results(backfill, tmp_path) == results(from_archive(tmp_path), tmp_path)
        source = next((tmp_path / "table").glob("*.parquet"))
        source.with_name("again.parquet").write_bytes(source.read_bytes())
        spark.catalog.refreshTable("shop.lines")
        with pytest.raises(ArchiveError, match=r"shop\.lines, was changed .*again\.parquet is new"):
            check_lake(spark, scanned[0])
    finally:
        spark.sql("DROP TABLE shop.lines")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "xml"}, "the format 'xml', which is unknown: give parquet, json"),
        (
            {"format": "avro"},
            r"has the format avro, for which Spark .* spark\.jars\.packages=org\.apache\.spark:spark-avro",
        ),
        ({"format": "delta"}, r"has the format delta, .* spark\.jars\.packages=io\.delta:delta-spark"),
        ({"format": "iceberg"}, r"has the format iceberg, .* spark\.jars\.packages=org\.apache\.iceberg"),
        ({"format": "table", "path": "nowhere.lines"}, r"there is no table nowhere\.lines"),
        ({"path": "s3a://lake/orders"}, r"does not have, s3a://lake/orders: .*org\.apache\.hadoop:hadoop-aws:3"),
        ({"path": "nofs://lake/orders"}, "a Hadoop file system for nofs://"),
        ({"path": "file:///nowhere/orders"}, "there is no path file:///nowhere/orders. Check it"),
        ({"columns": {**COLUMNS, "value": "nothing"}}, "no such columns: .*nothing.* Its columns are "),
        ({"where": "nothing = 1"}, "no such columns: .*nothing"),
        ({"where": "day >="}, "--lake-where lines='day >=' is not a condition"),
        ({"where": "number"}, "--lake-where lines='number' is not a condition"),
        ({"where": "day = '2001-01-01'"}, r"--lake-where .* leaves no row of lake file:/.*orders: check the condition"),
        ({"columns": {**COLUMNS, "timestamp": "at"}}, r"timestamp .* is string, .*'cast\(at as timestamp\)'"),
        ({"columns": {**COLUMNS, "value": "cast(word as int)"}}, "value of the lake of lines .* is int"),
        ({"columns": {**COLUMNS, "partition": "cast(word as int)"}}, r"can't be read by Spark: \[CAST_INVALID_INPUT\]"),
    ],
)
def test_one_sentence_says_what_is_wrong_with_a_lake(
    spark: SparkSession, orders: Path, change: dict[str, object], says: str
) -> None:
    lake = Lake(**{"path": orders, "columns": COLUMNS, "format": "json", "where": WHERE, **change})  # type: ignore[arg-type]
    with pytest.raises(BackfillError, match=says) as raised:
        scan_by_spark(spark, lake, "lines", 1)
    _is_one_sentence(str(raised.value))


def test_a_package_of_delta_without_its_sql_is_told_from_one_that_is_missing(spark: SparkSession) -> None:
    plan = LakePlan(
        topic="orders", files=(), order="", partitioned=False, headers=False, location="/lake/orders", format="delta"
    )
    error = PySparkException(
        "This Delta operation requires the SparkSession to be configured with the\nDeltaSparkSessionExtension and the "
        "DeltaCatalog. Please set the necessary\nconfigurations when creating the SparkSession as shown below."
    )
    said = str(explained(spark, plan, error))
    assert "has its package, but not its SQL: give --conf" in said
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in said
    _is_one_sentence(said)


def test_a_package_for_another_spark_is_told_from_one_that_is_missing(spark: SparkSession) -> None:
    plan = LakePlan(
        topic="orders", files=(), order="", partitioned=False, headers=False, location="shop.orders", format="iceberg"
    )
    cause = "Found interface org.apache.spark.sql.connector.catalog.CatalogManager, but class was expected"
    error = PySparkException(
        f"An error occurred\n: java.lang.IncompatibleClassChangeError: {cause}\n\tat org.apache.iceberg"
    )
    said = str(explained(spark, plan, error))
    assert f"the package that Spark was given for it is not made for Spark {spark.version}: give --conf" in said
    assert "export the table to Parquet" in said
    _is_one_sentence(said)


WORKER = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/spark/pyspark.zip/pyspark/worker.py", line 3602, in main
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
  File "/spark/pyspark.zip/pyspark/serializers.py", line 481, in loads
    return cloudpickle.loads(obj, encoding=encoding)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (
            "ModuleNotFoundError: No module named 'streamsrt'\n",
            "can't be read by Spark: its Python workers can't import streamsrt. Install streamsrt and the application for",
        ),
        (
            "KeyError: 'shop'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most "
            'recent call last):\n  File "/app/orders.py", line 7, in of\nValueError: no shop [A_B] here\n\n\tat '
            "org.apache.spark.api.python\n",
            "can't be read by Spark: a Python worker raised ValueError: no shop [A_B] here",
        ),
    ],
)
def test_the_error_of_a_python_worker_is_told(spark: SparkSession, raised: str, says: str) -> None:
    plan = LakePlan(
        topic="orders", files=(), order="", partitioned=False, headers=False, location="/lake/orders", format="delta"
    )
    said = str(explained(spark, plan, PySparkException(WORKER + raised)))
    assert says in said
    _is_one_sentence(said)


def _is_one_sentence(said: str) -> None:
    assert "\n" not in said
    assert "Exception: " not in said.partition("can't be read")[0]
    assert "\tat " not in said


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "json",
            '{"number": 1}\n{"number": tr',
            r"^file:/.*/lake/part\.json, of the lake of lines, has rows that are not valid json, such as "
            r"""'{"number": tr': correct them; --lake-option""",
        ),
        ("csv", "number,word\n1,a\n2\n", r"lake/part\.csv can't be read .*Bring the file back"),
        ("csv", "number,word\n1,a\n2,b,c\n", r"lake/part\.csv can't be read"),
        ("orc", "no orc at all", r"lake/part\.orc can't be read"),
        ("parquet", "no parquet at all", r"lake/part\.parquet can't be read"),
    ],
)
def test_a_damaged_file_is_found_when_planning(
    spark: SparkSession, tmp_path: Path, name: str, content: str, says: str
) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    (root / f"part.{name}").write_text(content)
    columns = {"key": "'k'", "value": "word", "timestamp": "1L", "partition": "0", "offset": "cast(number as bigint)"}
    lake = Lake(root, columns=columns, format=name, options=HEADER if name == "csv" else {})
    with pytest.raises(ArchiveError, match=says) as raised:
        scan_by_spark(spark, lake, "lines", 1)
    _is_one_sentence(str(raised.value))


def test_a_damaged_file_is_named_with_the_spaces_of_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """Found when Spark looks at footers, and when it reads: it writes the name in two ways."""
    root = tmp_path / "lake"
    root.mkdir()
    pq.write_table(pa.table({"key": ["k"], "value": ["v"], "timestamp": [1]}), root / "a.parquet")
    damaged = root / "a bad. one%20.parquet"
    damaged.write_bytes((root / "a.parquet").read_bytes()[:-100])
    for options in ({}, {"mergeSchema": "false"}):
        with pytest.raises(ArchiveError) as raised:
            scan_by_spark(spark, Lake(root, where="true", options=options), "lines", 1)
        assert str(raised.value).startswith(f"file:{damaged} can't be read (")


def test_a_file_that_counts_nanoseconds_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for name, unit in (("a", "us"), ("b c", "ns")):
        seen = pa.array([{"at": 1_000}], pa.struct([("at", pa.timestamp(unit))]))
        table = pa.table({"key": ["k"], "value": ["v"], "timestamp": [1], "seen": seen})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(ArchiveError) as raised:
        scan_by_spark(spark, Lake(tmp_path, where="true"), "lines", 1)
    assert str(raised.value) == (
        f"file:{tmp_path}/b c.parquet: column seen.at counts nanoseconds, which Spark does not read: rewrite the files with "
        "microseconds (pyarrow: coerce_timestamps='us')"
    )


def test_a_lake_is_ordered_by_a_column_of_text_as_the_refusal_advises(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "part.csv").write_text("key,value,timestamp,seq,at\nk,a,5,10,2024-03-10\nk,b,5,9,2024-03-11\n")
    columns = {"timestamp": "cast(timestamp as bigint)"}
    for column, first in (("at", "a"), ("seq", "b")):
        lake = Lake(tmp_path, column, columns=columns, format="csv", options=HEADER)
        with pytest.raises(BackfillError) as raised:
            scan_by_spark(spark, lake, "lines", 1)
        time, number = re.findall(rf"--lake-column lines\.{column}='(.*)' if .* or '(.*)' if", str(raised.value))[0]
        followed = replace(lake, columns={**columns, column: time if column == "at" else number})
        plan, _ = scan_by_spark(spark, followed, "lines", 1)
        rows = read_lake(spark, plan).orderBy(plan.order).collect()
        assert rows[0]["value"] == first


@pytest.mark.parametrize(
    ("time", "says"),
    [
        (None, ["(column timestamp) have no time zone: they are read as UTC", "microseconds in 1 record: "]),
        ("cast(timestamp as timestamp)", ["(cast(timestamp as timestamp)) have no time zone", "in 1 record: "]),
        (
            "zoned",
            ["the times of lines (zoned) count microseconds in 2 records: records have milliseconds, what is finer"],
        ),
        ("whole", []),
        ("12", []),
    ],
)
def test_the_plan_says_how_times_are_read(
    spark: SparkSession, tmp_path: Path, time: str | None, says: list[str]
) -> None:
    table = {
        "key": ["k", "k"],
        "value": ["a", "b"],
        "timestamp": pa.array([1_000, 2_001], pa.timestamp("us")),
        "zoned": pa.array([1_500, 2_001], pa.timestamp("us", tz="Asia/Kathmandu")),
        "whole": pa.array([1, 2], pa.timestamp("ms", tz="UTC")),
    }
    pq.write_table(pa.table(table), tmp_path / "part.parquet")
    times = TimesRead()
    columns = {} if time is None else {"timestamp": time}
    scan_by_spark(spark, Lake(tmp_path, columns=columns, where="true"), "lines", 1, times=times)
    notes = list(times.notes("lines"))
    assert len(notes) == len(says)
    for note, said in zip(notes, says, strict=True):
        assert said in note


def test_local_times_are_read_as_the_plan_advises(spark: SparkSession, tmp_path: Path) -> None:
    at = pa.array([datetime(2024, 3, 10, 12)], pa.timestamp("us"))
    pq.write_table(pa.table({"key": ["k"], "value": ["a"], "timestamp": at}), tmp_path / "part.parquet")
    times = TimesRead()
    scan_by_spark(spark, Lake(tmp_path, where="true"), "lines", 1, times=times)
    (note,) = times.notes("lines")
    advised = note.rpartition("--lake-column lines.timestamp=")[2].strip("'")
    times = TimesRead()
    plan, _ = scan_by_spark(spark, Lake(tmp_path, columns={"timestamp": advised}), "lines", 1, times=times)
    assert list(times.notes("lines")) == []
    assert read_lake(spark, plan).first()["timestamp"].timestamp() == datetime(2024, 3, 10, 16, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ("word,number\nb,2\n", r"\.csv has another header .*\(header .*, schema .*\)\. Rewrite one of them"),
        ("number\n2\n", r"\.csv has another header .*\(header length [12], schema size: [12]\)\. Rewrite one of them"),
    ],
)
def test_csv_files_with_other_headers_are_refused(spark: SparkSession, tmp_path: Path, other: str, says: str) -> None:
    """Spark would take their columns by place: words for numbers, in silence where the types allow it."""
    root = tmp_path / "lake"
    root.mkdir()
    (root / "one.csv").write_text("number,word\n1,a\n")
    (root / "two.csv").write_text(other)
    columns = {
        "key": "'k'",
        "value": "word",
        "timestamp": "1L",
        "partition": "0",
        "offset": "monotonically_increasing_id()",
    }
    with pytest.raises(ArchiveError, match=says) as raised:
        scan_by_spark(spark, Lake(root, columns=columns, format="csv", options=HEADER), "lines", 1)
    _is_one_sentence(str(raised.value))


def test_rows_without_key_are_counted_and_the_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    (root / "part.json").write_text('{"key": null, "value": "a", "timestamp": 1}\n' * 3)
    (root / "rest.json").write_text('{"key": "k", "value": "a", "timestamp": 1}\n')
    with pytest.raises(ArchiveError, match=r"3 rows without key, e\.g\. in file:/.*/part\.json: .*--lake-where lines="):
        scan_by_spark(spark, Lake(root, format="json"), "lines", 2)
    plan, shares = scan_by_spark(spark, Lake(root, format="json", columns={"partition": "1"}), "lines", 2)
    assert (plan.null_keys, shares[1].records, plan.days) == (3, 4, {"1970-01-01": 4})
    kept, _ = scan_by_spark(spark, Lake(root, format="json", where="key is not null"), "lines", 2)
    assert [Path(file.path).name for file in kept.files] == ["rest.json"]


def test_rows_without_a_time_are_refused_in_a_lake_that_is_cut_by_time(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"key": "k", "value": "a", "timestamp": time} for time in (1, None, 5)]
    (tmp_path / "part.json").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    with pytest.raises(ArchiveError, match="has 1 rows without timestamp"):
        scan_by_spark(spark, Lake(tmp_path, format="json", until_ms=3), "lines", 1)
    kept = Lake(tmp_path, format="json", until_ms=3, where="timestamp is not null")
    assert scan_by_spark(spark, kept, "lines", 1)[1][0].records == 1


def test_rows_with_the_same_id_are_one_record(spark: SparkSession, tmp_path: Path) -> None:
    """A lake to which some files were written twice, and some rows once more, later, with another value."""
    parts = [lines(20, 6)]
    planned(tmp_path / "archived", parts)
    root = write_rows(spark, tmp_path / "lake", "json", parts)
    files = sorted(root.glob("day=2024-03-1*/*.json"))
    twice = files[0].read_text()
    files[0].with_name("twice.json").write_text(twice)
    files[0].with_name("later.json").write_text(twice.replace('"word":"', '"word":"zz'))
    lake = Lake(root, columns=COLUMNS, format="json", where=WHERE, id="struct(shard, number)")
    plan, shares = scan_by_spark(spark, lake, "lines", 1)
    assert plan.duplicates == 2 * len(twice.splitlines())
    assert shares[0].records == 20
    backfill = in_place_of_archive(tmp_path, (plan, shares))
    backfill.run(SparkEngine())
    assert results(backfill, tmp_path) == results(from_archive(tmp_path), tmp_path)
    with pytest.raises(ArchiveError, match=r"rows without nullif\(word, 'a'\), which --lake-id names: .*is not null"):
        scan_by_spark(spark, replace(lake, id="nullif(word, 'a')"), "lines", 1)


def test_folders_without_names_of_columns_only_hold_files(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("01", "02"):
        folder = tmp_path / "lake" / "2024" / day
        folder.mkdir(parents=True)
        (folder / "part.json").write_text('{"key": "k", "value": "a", "timestamp": 1}\n')
    plan, shares = scan_by_spark(spark, Lake(tmp_path / "lake", format="json"), "lines", 1)
    assert (shares[0].records, shares[0].files, plan.root) == (2, 2, None)


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        (["file:/lake/day=1/a", "file:/lake/b"], "file:/lake/b is in folders of no column, and file:/lake/day=1/a in"),
        (["file:/lake/2024/day=1/a"], "some are named COLUMN=VALUE and others are not"),
        (["file:/lake/day=1/a", "file:/lake/hour=1/b"], "b is in folders of hour, and .* in folders of day"),
    ],
)
def test_files_outside_the_folders_of_columns_are_refused(paths: list[str], says: str) -> None:
    """Spark would leave them out, and say nothing."""
    with pytest.raises(ArchiveError, match=says):
        folders_of("file:/lake", paths)
    assert folders_of("file:///lake", ["file:/lake/day=1/hour=2/a", "file:/lake/day=2/hour=2/a"]) == ("day", "hour")


def mixed_rows(root: Path, name: str = "a.json", pack: Callable[[bytes], bytes] = bytes) -> Path:
    root.mkdir()
    rows = [
        {"customer": "7", "at": 1, "v": 1},
        {"customer": "8", "at": 2, "v": "x"},
        {"customer": "9", "at": 3, "v": None},
    ]
    (root / name).write_bytes(pack(b"".join(orjson.dumps(row) + b"\n" for row in rows)))
    return root


def test_json_whose_fields_have_several_types_is_not_made_text(spark: SparkSession, tmp_path: Path) -> None:
    root = mixed_rows(tmp_path / "orders")
    columns = {"key": "customer", "value": "to_json(struct(*))", "timestamp": "timestamp_millis(at)"}
    lake = Lake(root, columns=columns, format="json")
    with pytest.raises(
        ArchiveError, match=r"values of several types in the field v, .*orders\.singleVariantColumn=row"
    ):
        described_source(spark, lake, "orders")
    others = Lake(root, columns={**columns, "value": "customer"}, format="json")
    described_source(spark, others, "orders")
    texts = Lake(root, columns=columns, format="json", options={"primitivesAsString": "true"})
    assert described_source(spark, texts, "orders")[1].where("v = '1'").count() == 1


def test_json_rows_are_read_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "key": "row:customer::string",
        "value": "to_json(row)",
        "timestamp": "timestamp_millis(row:at::bigint)",
        "offset": "row:at::bigint",
        "partition": "0",
    }
    options = {"singleVariantColumn": "row"}
    lake = Lake(mixed_rows(tmp_path / "orders"), columns=columns, format="json", options=options)
    plan, _ = scan_by_spark(spark, lake, "orders", 1)
    rows = read_lake(spark, plan).orderBy("offset").select("key", "value").collect()
    assert [(row["key"], orjson.loads(row["value"])["v"]) for row in rows] == [("7", 1), ("8", "x"), ("9", None)]


# --------------------------------------------------------------------------------------------------- functions in Python


MAPPING = "tests.streamsrt.backfill.lake_mapping"


def test_a_function_makes_the_records(spark: SparkSession, orders: Path) -> None:
    by_columns, shares = scan_by_spark(spark, Lake(orders, columns=COLUMNS, format="json", where=WHERE), "lines", 1)
    plan, mapped_shares = scan_by_spark(spark, Lake(orders, format="json", where=WHERE, mapping=MAPPING), "lines", 1)
    assert {key: share.records for key, share in mapped_shares.items()} == {
        key: share.records for key, share in shares.items()
    }
    assert (plan.mapping, plan.days) == (f"{MAPPING}:records", by_columns.days)
    wanted = ["key", "value", "offset", "partition"]
    rows, expected = (
        [tuple(row) for row in read_lake(spark, each).orderBy("offset").select(*wanted).collect()]
        for each in (plan, by_columns)
    )
    assert rows == expected


def test_a_function_and_expressions_make_the_records_together(spark: SparkSession, orders: Path) -> None:
    lake = Lake(
        orders,
        format="json",
        where=WHERE,
        mapping=f"{MAPPING}:twice",
        columns={**COLUMNS, "offset": "number * 2 + copy"},
    )
    plan, shares = scan_by_spark(spark, lake, "lines", 1)
    assert [share.records for share in shares.values()] == [10]
    assert read_lake(spark, plan).select("offset").distinct().count() == 10


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("nothing", "returned NoneType instead of a data frame"),
        ("broken", "raised ZeroDivisionError: division by zero"),
        ("COPIES", "is no function"),
        ("record", "did you mean 'records'"),
        ("incomplete", "has no such columns: .*`timestamp`"),
    ],
)
def test_a_function_that_makes_no_records_is_refused(
    spark: SparkSession, orders: Path, function: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StreamsError, match=says):
        scan_by_spark(spark, Lake(orders, format="json", where=WHERE, mapping=f"{MAPPING}:{function}"), "lines", 1)
    # PySpark logs some errors beside raising them.
    assert not capfd.readouterr().err


def test_a_function_that_was_changed_is_refused(spark: SparkSession, orders: Path) -> None:
    plan, _ = scan_by_spark(spark, Lake(orders, format="json", where=WHERE, mapping=MAPPING), "lines", 1)
    assert MAPPING in plan.mapping_modules
    changed = plan.model_copy(update={"mapping_modules": {MAPPING: "another"}})
    with pytest.raises(
        PlanError, match=r"lake_mapping, which makes the records of lines .* differs from what the plan"
    ):
        read_lake(spark, changed)


def test_a_function_may_read_fields_that_have_several_types(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(mixed_rows(tmp_path / "orders"), format="json", mapping=MAPPING)
    with pytest.raises(ArchiveError, match=r"values of several types in the field v"):
        described_source(spark, lake, "orders")


def test_a_variant_is_not_encoded(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "key": "row:customer::string",
        "value": "row",
        "timestamp": "timestamp_millis(row:at::bigint)",
        "partition": "0",
    }
    options = {"singleVariantColumn": "row"}
    lake = Lake(mixed_rows(tmp_path / "orders"), columns=columns, format="json", options=options)
    with pytest.raises(BackfillError, match=r"--lake-column orders\.value='to_json\(row\)'"):
        scan_by_spark(spark, lake, "orders", 1, serdes=SERDES)
    named = replace(lake, columns={**columns, "value": "named_struct('variant', row:v::string)"})
    with pytest.raises(ArchiveError, match="a row that its serde does not take"):
        scan_by_spark(spark, named, "orders", 1, serdes=SERDES)


@pytest.mark.parametrize("ending", ["lz4", "snappy", "zip"])
def test_packed_files_that_spark_misreads_are_refused(spark: SparkSession, tmp_path: Path, ending: str) -> None:
    """Frames of LZ4 and Snappy end Spark's process."""
    pack: dict[str, Callable[[bytes], Any]] = {
        "lz4": cramjam.lz4.compress,
        "snappy": cramjam.snappy.compress,
        "zip": lambda rows: b"PK" + rows,
    }
    root = mixed_rows(tmp_path / "orders", f"a.json.{ending}", lambda rows: bytes(pack[ending](rows)))
    columns = {"key": "customer", "value": "customer", "timestamp": "timestamp_millis(at)"}
    with pytest.raises(ArchiveError, match=rf"a\.json\.{ending} has the ending .* pack it again with gzip"):
        described_source(spark, Lake(root, columns=columns, format="json"), "orders")


def test_files_of_the_program_zstd_are_read(spark: SparkSession, tmp_path: Path) -> None:
    root = mixed_rows(tmp_path / "orders", "a.json.zst", lambda rows: bytes(cramjam.zstd.compress(rows)))
    columns = {"key": "customer", "value": "customer", "timestamp": "timestamp_millis(at)"}
    assert described_source(spark, Lake(root, columns=columns, format="json"), "orders")[1].count() == 3


@pytest.mark.parametrize("codec", ["lz4", "snappy", "gzip", "bzip2", "deflate"])
def test_packed_files_of_spark_are_read(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    root = tmp_path / "orders"
    spark.range(9).selectExpr("string(id) as customer", "id as at").write.option("compression", codec).json(str(root))
    columns = {"key": "customer", "value": "customer", "timestamp": "timestamp_millis(at)"}
    assert described_source(spark, Lake(root, columns=columns, format="json"), "orders")[1].count() == 9


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "does not have, s3a://",
        ),
        (
            "java.lang.NoClassDefFoundError: software/amazon/s3/Client",
            "needs the class software.amazon.s3.Client, which is",
        ),
    ],
)
def test_a_file_system_that_is_missing_is_told_from_one_whose_packages_are(
    spark: SparkSession, cause: str, says: str
) -> None:
    plan = LakePlan(
        topic="orders",
        files=(),
        order="",
        partitioned=False,
        headers=False,
        columns={},
        location="s3a://shop/o",
        format="json",
    )
    error = PySparkException(f"o1.load: {cause}\n\tat org.apache.hadoop.fs.s3a.impl.Streams")
    assert says in str(explained(spark, plan, error))
