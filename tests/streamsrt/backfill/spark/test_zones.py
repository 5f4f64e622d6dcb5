"""Times without a zone are UTC: the session of these tests was started by a process in New York."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from streamsrt.backfill.errors import ArchiveError, BackfillError
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.parquet_files import TimesRead
from streamsrt.backfill.plan import LakeFile, LakePlan
from streamsrt.backfill.spark.reading import as_long, check_lake, read_lake
from streamsrt.backfill.spark.scan import scan_by_spark
from streamsrt.backfill.spark.session import UTC_SETTINGS, quiet
from streamsrt.backfill.spark.zones import orc_columns_without_zone, python_zone, utc_in_this_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES_MS = [
    int(datetime(*each, tzinfo=UTC).timestamp()) * 1_000
    for each in ((1999, 12, 31, 23, 59, 59), (2026, 1, 15, 12), (2026, 3, 8, 2, 30), (2026, 7, 1), (2026, 11, 1, 1, 30))
]
MAPPINGS = "tests.streamsrt.backfill.zone_mapping"


def table(kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "key": ["k"] * len(TIMES_MS),
            "value": ["v"] * len(TIMES_MS),
            "seq": pa.array(range(len(TIMES_MS)), pa.int64()),
            "ms": pa.array(TIMES_MS, pa.int64()),
            "at": pa.array(TIMES_MS, pa.int64()).cast(pa.timestamp("ms")).cast(kind),
        }
    )


def times_of(spark: SparkSession, plan: LakePlan) -> list[int]:
    """The times of a planned lake's records, in its order."""
    with quiet():
        frame = read_lake(spark, plan).orderBy("seq")
    return [row[0] for row in frame.select(as_long(frame, "timestamp", per_second=1_000)).collect()]


@pytest.mark.spark
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_in_orc_are_utc_whatever_the_machine_has(spark: SparkSession, tmp_path: Path, zone: str | None) -> None:
    orc.write_table(table(pa.timestamp("ms", tz=zone)), tmp_path / "a.orc")
    times, lake = TimesRead(), Lake(tmp_path, order="seq", format="orc", columns={"timestamp": "at"})
    plan, _ = scan_by_spark(spark, lake, "lines", 1, times=times)
    assert times_of(spark, plan) == TIMES_MS
    assert list(plan.days) == ["1999-12-31", "2026-01-15", "2026-03-08", "2026-07-01", "2026-11-01"]
    notes = list(times.notes("lines"))
    if zone is None:
        assert len(notes) == 1
        assert notes[0].startswith("the times of lines (at) have no time zone: they are read as UTC.")
    else:
        assert notes == []


@pytest.mark.spark
def test_integers_that_count_no_milliseconds_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(pa.timestamp("ms")), tmp_path / "a.parquet")
    lake = Lake(tmp_path, order="seq", columns={"timestamp": "ms * 1000"})
    says = r"a\.parquet has records with a time after the year 9999.*lines\.timestamp='timestamp_micros"
    with pytest.raises(ArchiveError, match=says):
        scan_by_spark(spark, lake, "lines", 1)
    times = TimesRead()
    scan_by_spark(spark, replace(lake, columns={"timestamp": "ms div 1000"}), "lines", 1, times=times)
    assert next(times.notes("lines", TIMES_MS[-1])).startswith("the times of lines end at 1970-01-21T")


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in New York, too."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.spark
@pytest.mark.parametrize(("name", "expected"), [("by_worker", TIMES_MS), ("by_driver", [TIMES_MS[1]] * len(TIMES_MS))])
@pytest.mark.usefixtures("new_york")
def test_times_that_python_makes_without_a_zone_are_utc(
    spark: SparkSession, tmp_path: Path, name: str, expected: Sequence[int]
) -> None:
    pq.write_table(table(pa.timestamp("ms")), tmp_path / "a.parquet")
    plan, _ = scan_by_spark(spark, Lake(tmp_path, order="seq", mapping=f"{MAPPINGS}:{name}"), "lines", 1)
    assert times_of(spark, plan) == expected
    assert datetime.fromtimestamp(TIMES_MS[1] / 1_000).hour == 7  # this process is as it was


@pytest.mark.spark
def test_a_java_of_another_zone_is_refused_for_orc(spark: SparkSession, tmp_path: Path) -> None:
    """As the session of somebody else's program may be: by the plan, and by the run of a plan from elsewhere."""
    orc.write_table(table(pa.timestamp("ms")), tmp_path / "a.orc")
    lake = Lake(tmp_path, order="seq", format="orc", columns={"timestamp": "at"})
    plan, _ = scan_by_spark(spark, lake, "lines", 1)
    zones = spark.sparkContext._jvm.java.util.TimeZone
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Asia/Kathmandu"))
    try:
        with pytest.raises(
            BackfillError, match=r"Java has the time zone Asia/Kathmandu.* lines .*-Duser\.timezone=UTC in"
        ):
            scan_by_spark(spark, lake, "lines", 1)
        with pytest.raises(BackfillError, match="Java has the time zone Asia/Kathmandu"):
            check_lake(spark, plan)
    finally:
        zones.setDefault(before)
    check_lake(spark, plan)


def test_the_zone_of_a_process_is_known(new_york: None) -> None:
    assert python_zone() == "America/New_York"
    with utc_in_this_process():
        assert python_zone() == "UTC"
    assert python_zone() == "America/New_York"
    assert UTC_SETTINGS["spark.executorEnv.TZ"] == "UTC"


def test_times_without_a_zone_are_found_in_orc_files(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(
        pa.table({"naive": pa.array([1], pa.timestamp("ms")), "zoned": pa.array([1], pa.timestamp("ms", "UTC"))}), path
    )

    def lake(*paths: str) -> LakePlan:
        files = tuple(LakeFile(path=each, records=1, size_bytes=1) for each in paths)
        return LakePlan(topic="lines", files=files, order="seq", partitioned=False, headers=False, format="orc")

    assert orc_columns_without_zone(lake(f"file:{path}")) == {"naive"}
    assert orc_columns_without_zone(lake("s3a://lake/a.orc")) is None
    path.write_bytes(b"no such file")
    with pytest.raises(ArchiveError, match=r"a\.orc can't be read"):
        orc_columns_without_zone(lake(f"file:{path}"))
