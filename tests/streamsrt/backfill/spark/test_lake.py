"""Lakes on Spark, beside what they compute (:mod:`tests.streamsrt.backfill.test_lake`): zones, odd paths, damage, workers
that lack the package, and what can be seen meanwhile."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import ArchiveError, BackfillError, WorkerDiedError
from streamsrt.backfill.job import BackfillStatus
from streamsrt.backfill.lake import Lake, LakeShare, scan_lake
from streamsrt.backfill.lake_formats import VERIFY_CHECKSUMS
from streamsrt.backfill.parquet_files import TimesRead
from streamsrt.backfill.plan import BackfillPlan, LakePlan, load_plan, save_plan
from streamsrt.backfill.planning import splice_lake
from streamsrt.backfill.spark.engine import SparkEngine, _explained
from streamsrt.backfill.spark.reading import as_long, source_rows, spark_path
from streamsrt.backfill.spark.scan import scan_by_spark
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.spark.test_engine import results
from tests.streamsrt.backfill.test_engine_local import Line, lines, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)

ROOT = Path(__file__).resolve().parents[4]
ZONES = ("America/New_York", "Asia/Kathmandu")
SPRING_MS = 1_710_037_000_000
"""Ten minutes before two o'clock on 10 March 2024, read as UTC: the hour that follows does not exist in New York."""


def lake_plan(folder: Path, parts: Sequence[Sequence[Line]], times: Any = None) -> Backfill:
    """:func:`planned`, with a lake in place of the archive. ``times``: the Arrow type of its timestamps."""
    plan = load_plan(planned(folder / "archived", parts).directory)
    root = folder / "la[k]e {of} *?"
    root.mkdir()
    rows = [(index, offset, *row) for index, part in enumerate(parts) for offset, row in enumerate(part)]
    random.Random(1).shuffle(rows)
    for number in range(2):
        partitions, offsets, values, at = zip(*rows[number::2], strict=True)
        table = {
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(at, pa.int64()) if times is None else pa.array(at, pa.timestamp("ms")).cast(times),
            "key": pa.array([b"k"] * len(at), pa.binary()),
            "value": pa.array([value.encode() for value in values], pa.binary()),
        }
        pq.write_table(pa.table(table), root / f"part-{number}.parquet")
    return over_lake(plan, scan_lake(Lake(root), "lines", len(parts)), folder / "plan")


def over_lake(plan: BackfillPlan, scanned: tuple[LakePlan, Mapping[int, LakeShare]], directory: Path) -> Backfill:
    """A plan over an archive, with a lake in its place."""
    described, shares = scanned
    tasks = []
    for task in plan.tasks:
        sources = (
            splice_lake(source.topic_partition, shares[source.partition], source.end, source.end, allow_gaps=False)
            for source in task.sources
        )
        tasks.append(task.model_copy(update={"sources": tuple(sources)}))
    save_plan(plan.model_copy(update={"tasks": tuple(tasks), "lakes": (described,)}).sealed(), directory)
    return Backfill(directory)


def spring(count: int, seed: int) -> list[Line]:
    """Lines over an hour that does not exist in some zones, some of them late."""
    return [(value, SPRING_MS + 40 * at) for value, at in lines(count, seed)]


def from_archive(folder: Path) -> Backfill:
    usual = Backfill(folder / "archived" / "plan")
    usual.run(InProcess())
    return usual


@pytest.mark.spark
@pytest.mark.parametrize("zone", ZONES)
def test_times_without_a_zone_are_utc_in_a_session_of_any_zone(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """A session of the program's own: nothing of it is changed. The paths hold what Spark would expand, too."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        backfill = lake_plan(tmp_path, [spring(120, 1), spring(90, 2)], pa.timestamp("us"))
        backfill.run(SparkEngine())
        assert spark.conf.get("spark.sql.session.timeZone") == zone
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = results(backfill, tmp_path)
    assert found == results(from_archive(tmp_path), tmp_path)
    assert sum(task["counters"].get("dropped_late", 0) for task in found) > 0


_IN_A_ZONE = """
import sys
from streamsrt.backfill import Backfill
from streamsrt.backfill.spark.session import QUICK_START, open_session
options = QUICK_START["spark.driver.extraJavaOptions"] + " -Duser.timezone=" + sys.argv[2]
session = open_session("local[1]", {"spark.driver.extraJavaOptions": options})
assert session.spark.conf.get("spark.sql.session.timeZone") == "UTC"
Backfill(sys.argv[1]).run("spark")
session.close()
"""


@pytest.mark.spark
def test_a_machine_and_a_java_of_other_zones_change_nothing(tmp_path: Path) -> None:
    backfill = lake_plan(tmp_path, [spring(120, 3)], pa.timestamp("us"))
    ended = subprocess.run(
        [sys.executable, "-c", _IN_A_ZONE, str(backfill.directory), ZONES[1]],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TZ": ZONES[0], "PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0, ended.stderr
    assert results(backfill, tmp_path) == results(from_archive(tmp_path), tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("zone", ZONES)
def test_every_time_of_a_lake_is_the_one_that_an_archive_has(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    """Before 1970 and in summer, with and without a zone, in milli- and microseconds."""
    times = [
        datetime(1850, 1, 1, 1, 1, 1, 1, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2024, 3, 10, 2, 30, 0, 123_456, UTC),
        datetime(2024, 11, 3, 1, 30, 0, 999, UTC),
    ]
    table = pa.table(
        {"naive": pa.array(times, pa.timestamp("us")), "zoned": pa.array(times, pa.timestamp("us", tz=zone))}
    )
    pq.write_table(table, tmp_path / "times.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.parquet(spark_path(str(tmp_path / "times.parquet")))
        assert [kind for _, kind in frame.dtypes] == ["timestamp_ntz", "timestamp"]
        units = (1_000, 1_000_000)
        columns = [as_long(frame, name, per_second=unit) for name in ("naive", "zoned") for unit in units]
        found = [tuple(row) for row in frame.select(*columns).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    micros = table.column("naive").cast(pa.int64()).to_pylist()
    assert found == [(at // 1_000, at) * 2 for at in micros]


@pytest.mark.spark
def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Damaged where the plan does not look: in the values."""
    backfill = lake_plan(tmp_path, [lines(400, 4)])
    path = next((tmp_path / "la[k]e {of} *?").glob("part-1.parquet"))
    place = pq.ParquetFile(path).metadata.row_group(0).column(4)
    content = bytearray(path.read_bytes())
    content[place.dictionary_page_offset : place.data_page_offset + 20] = b"\xff" * (
        place.data_page_offset + 20 - place.dictionary_page_offset
    )
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ArchiveError, match=r"can't be read .*Bring the file back") as raised:
        backfill.run(SparkEngine())
    assert str(raised.value).startswith(f"{path} can't be read")
    assert "\n" not in str(raised.value)


@pytest.mark.spark
def test_a_page_with_another_checksum_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """One bit of one value: nothing else tells it. Files are read with other options where the plan's are given."""
    root = tmp_path / "lake"
    root.mkdir()
    path = root / "a.parquet"
    table = pa.table(
        {"key": ["k"] * 2, "value": ["first", "second"], "timestamp": [1, 2], "partition": [0, 0], "offset": [0, 1]}
    )
    pq.write_table(
        table, path, compression="NONE", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    share = scan_lake(Lake(root), "lines", 1)[0]
    mapped = scan_by_spark(spark, Lake(root, where="true"), "lines", 1)[0]
    for lake in (share, mapped):
        assert [row["value"] for row in source_rows(spark, lake).sort("offset").collect()] == ["first", "second"]
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[content.index(b"second")] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    crc = "CRC checksum verification failed"
    with pytest.raises(Exception, match=crc):
        spark.read.parquet(str(path)).collect()
    # As in a session that somebody else has made.
    spark.conf.set(VERIFY_CHECKSUMS, "false")
    try:
        assert len(spark.read.parquet(str(path)).collect()) == 2
        for lake in (share, mapped):
            with pytest.raises(Exception, match=crc) as raised:
                source_rows(spark, lake).collect()
            explained = str(_explained(str(raised.value), "local"))
            assert explained.startswith(f"{path} can't be read (it is damaged: a page does not have the checksum")
    finally:
        spark.conf.unset(VERIFY_CHECKSUMS)


@pytest.mark.spark
def test_workers_without_the_package_are_named(tmp_path: Path) -> None:
    """The workers' Python has what PySpark needs, and nothing of ours: as on a cluster that was not prepared."""
    backfill = planned(tmp_path, [lines(5, seed=7)])
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("streamsrt", "__editable__", "_editable")) and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from streamsrt.backfill.spark.session import QUICK_START, _environment, quiet\n"
        f"from pathlib import Path\nos.chdir({str(packages)!r})\n"
        f"with _environment(Path({str(tmp_path / 'java')!r}), local=False), quiet():\n"
        "    from pyspark.sql import SparkSession\n"
        "    settings = {'spark.ui.enabled': 'false', **QUICK_START}\n"
        "    spark = SparkSession.builder.master('local[1]').config(map=settings).getOrCreate()\n"
        "from streamsrt.cli import main\nsys.exit(main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "backfill", "run", "--engine", "spark", "--dir", str(backfill.directory)],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": os.environ["PATH"], "PYSPARK_PYTHON": str(python), "STREAMSRT_BOOTSTRAP_SERVERS": "127.0.0.1:1"},
    )
    said = " ".join(ended.stderr.split())
    assert ended.returncode == 2, said
    # What comes before is the log of the session, which is not ours.
    assert "the workers of local[1] can't import streamsrt: make a bundle with streamsrt backfill bundle" in said
    assert "Traceback" not in said.partition("the workers of")[2]


def test_what_spark_ends_with_is_explained() -> None:
    damaged = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a/b%20c.parquet.  SQLSTATE: KD001\n"
    )
    found = _explained(f"{damaged}\tat somewhere\nCaused by: java.io.IOException: crc\n", "local")
    assert str(found).startswith("/a/b c.parquet can't be read (java.io.IOException: crc). Bring")
    spaced = damaged.replace("b%20c", "b.%20c%2520")
    assert str(_explained(spaced, "local")).startswith("/a/b. c%20.parquet can't be read (")
    footer = damaged.replace("file:///a/b%20c.parquet. ", "file:/a/b c%20.parquet. Could not read footer. Please")
    assert str(_explained(footer, "local")).startswith("/a/b c%20.parquet can't be read (")
    missing = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'rocksdict'\n"
    assert isinstance(_explained(missing, "spark://h:7077"), BackfillError)
    assert "the workers of spark://h:7077 can't import rocksdict" in str(_explained(missing, "spark://h:7077"))
    lost = _explained("Job aborted: most recent failure: Lost task 0.3 (exit 137)\nDriver stacktrace:", "local")
    assert isinstance(lost, WorkerDiedError)
    assert "(Lost task 0.3 (exit 137))" in str(lost)


def _watched(backfill: Backfill) -> list[BackfillStatus]:
    """Runs it, and looks at it all the time."""
    seen: list[BackfillStatus] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.append(backfill.status())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        backfill.run(SparkEngine())
    finally:
        ended.set()
        looking.join()
    return seen


@pytest.mark.spark
def test_it_can_be_seen_that_spark_sorts(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark is at is looked at now and then: a sort may be over before that."""
    stages, states = 0, set[str]()
    for attempt in range(30):
        (folder := tmp_path / str(attempt)).mkdir()
        backfill = lake_plan(folder, [lines(200, 5), lines(100, 6)])
        seen = _watched(backfill)
        assert not backfill.status().spark.stages
        stages += sum(stage.total for status in seen for stage in status.spark.stages)
        states |= {task.state for status in seen for task in status.tasks}
        if stages and "sorting" in states:
            break
    assert stages
    assert "sorting" in states


# ---------------------------------------------------------------------------------------------------- lakes as they are


COLUMNS = {
    "key": "cast(customer as string)",
    "value": "concat(word, suffix)",
    "timestamp": "at",
    "partition": "shard",
    "offset": "number",
}


def typed_lake(root: Path, parts: Sequence[Sequence[Line]]) -> Path:
    """The lines in typed columns of other names, in folders by hour."""
    rows = [(index, offset, *row) for index, part in enumerate(parts) for offset, row in enumerate(part)]
    for hour in range(2):
        shards, numbers, values, at = zip(*rows[hour::2], strict=True)
        table = {
            "shard": pa.array(shards, pa.int16()),
            "number": pa.array(numbers, pa.int64()),
            "at": pa.array(at, pa.timestamp("ms")).cast(pa.timestamp("us")),
            "customer": pa.array([7] * len(at), pa.int64()),
            "word": pa.array([value[:1] for value in values]),
            "suffix": pa.array([value[1:] for value in values]),
        }
        folder = root / f"hour={hour}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(table), folder / "part.parquet")
    return root


@pytest.mark.spark
def test_records_are_made_of_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    parts = [spring(120, 1), spring(90, 2)]
    plan = load_plan(planned(tmp_path / "archived", parts).directory)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    lake = Lake(typed_lake(tmp_path / "lake", parts), columns=COLUMNS)
    try:
        with pytest.raises(
            BackfillError, match=r"time zone America/New_York.*set spark\.sql\.session\.timeZone to UTC"
        ):
            scan_by_spark(spark, lake, "lines", 2)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    described, shares = scan_by_spark(spark, lake, "lines", 2)
    assert {partition: (share.records, share.files) for partition, share in shares.items()} == {0: (120, 2), 1: (90, 2)}
    backfill = over_lake(plan, (described, shares), tmp_path / "plan")
    backfill.run(SparkEngine())
    assert results(backfill, tmp_path) == results(from_archive(tmp_path), tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "nowhere"}, r"has no such columns: .*nowhere.* Its columns are shard, number"),
        ({"value": "customer"}, r"value of the lake of lines \(customer\) is bigint, and must be string or binary"),
        ({"timestamp": "word"}, "timestamp of the lake of lines .word. is string"),
        ({"timestamp": "if(number = 3, null, at)"}, "rows without timestamp or offset"),
        ({"partition": "shard + 5"}, "records of partition [56], and the topic has 2 partitions"),
        ({"offset": "number * 2"}, "--allow-gaps"),
        ({"offset": "number - 1"}, "has offset -1"),
        ({"name": "word"}, "a record has no name: expressions are for key, value"),
        ({"key": "nullif(customer, 7)", "partition": None, "offset": None}, "key of the lake of lines .* is bigint"),
        ({"key": "nullif(word, 'a')", "partition": None, "offset": None}, r"has \d+ rows without key"),
    ],
)
def test_what_is_wrong_with_expressions_is_said_when_planning(
    spark: SparkSession, tmp_path: Path, change: dict[str, str | None], says: str
) -> None:
    columns = {name: text for name, text in {**COLUMNS, **change}.items() if text is not None}
    root = typed_lake(tmp_path / "lake", [lines(20, 1), lines(10, 2)])
    with pytest.raises(BackfillError, match=says) as raised:
        scan_by_spark(spark, Lake(root, columns=columns), "lines", 2)
    assert "\n" not in str(raised.value)


@pytest.mark.spark
def test_times_before_1970_are_refused_when_planning(spark: SparkSession, tmp_path: Path) -> None:
    root = typed_lake(tmp_path / "lake", [lines(20, 1)])
    lake = Lake(root, columns={**COLUMNS, "timestamp": "cast(-5 as bigint)"})
    with pytest.raises(ArchiveError, match=r"before 1970 .the lowest is -5 ms., in file:/\S+: .*timestamp extractor"):
        scan_by_spark(spark, lake, "lines", 1)
    scan_by_spark(spark, lake, "lines", 1, times=TimesRead(is_extracted=True))


@pytest.mark.spark
def test_the_advice_for_duplicate_offsets_leaves_out_the_copies(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table(
        {name: [0, 1, 2] for name in ("partition", "offset", "timestamp")} | {"key": ["k"] * 3, "value": ["v"] * 3}
    )
    (tmp_path / "lake").mkdir()
    zeros = table.set_column(0, "partition", pa.array([0, 0, 0]))
    pq.write_table(zeros, tmp_path / "lake" / "a.parquet")
    pq.write_table(zeros.slice(1), tmp_path / "lake" / "b.parquet")
    with pytest.raises(ArchiveError, match="--lake-id lines=") as raised:
        scan_lake(Lake(tmp_path / "lake"), "lines", 1)
    advised = str(raised.value).rpartition("--lake-id lines=")[2].strip("'")
    plan, shares = scan_by_spark(spark, Lake(tmp_path / "lake", id=advised), "lines", 1)
    assert plan.duplicates == 2
    assert (shares[0].records, shares[0].next_offset) == (3, 3)


@pytest.mark.spark
def test_folders_that_name_the_partition_are_a_column(spark: SparkSession, tmp_path: Path) -> None:
    parts = [lines(60, 1), lines(50, 2)]
    plan = load_plan(planned(tmp_path / "archived", parts).directory)
    for index, part in enumerate(parts):
        folder = tmp_path / "lake" / "day=2024-01-01" / f"partition={index}"
        folder.mkdir(parents=True)
        table = {
            "offset": list(range(len(part)))[::-1],
            "timestamp": [at for _, at in part][::-1],
            "key": [b"k"] * len(part),
            "value": [value for value, _ in part][::-1],
        }
        pq.write_table(pa.table(table), folder / "part.parquet")
    described, shares = scan_lake(Lake(tmp_path / "lake"), "lines", 2)
    assert (described.order, described.partitioned) == ("offset", True)
    backfill = over_lake(plan, (described, shares), tmp_path / "plan")
    backfill.run(SparkEngine())
    assert results(backfill, tmp_path) == results(from_archive(tmp_path), tmp_path)
