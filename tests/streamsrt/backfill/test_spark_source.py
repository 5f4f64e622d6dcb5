"""State as a Spark data frame: the rows of the store, and nothing that a filter of another query left out."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest

from examples import flights
from streamsrt.backfill.spark.session import quiet
from streamsrt.backfill.state_reading import COLUMNS, TIMES, StateFiles, StateRow, StoreReading
from streamsrt.state.directory import StateDirectory
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

ID = "read"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of the flights application: a table in three partitions, windows in two."""
    root = tmp_path_factory.mktemp("state")
    specs = {spec.name: spec for each in flights.topology.subtopologies for spec in each.stores}
    with StateDirectory(root, ID) as state:
        for partition in range(3):
            table: Any = state.open_store(specs["airlines"], partition)
            table.write([(f"A{partition}{n:05}".encode(), pack(">q", n) + b"name %d" % n) for n in range(12_000)])
        for partition in range(2):
            windows: Any = state.open_store(specs["delays-per-hour"], partition)
            windows.write([(b"%d" % (n % 7), n * HOUR_MS, pack(">q", n) + b'{"departures":%d}' % n) for n in range(48)])
    return root


def local(state_dir: Path, store: str) -> list[StateRow]:
    files = StateFiles(StoreReading(APPLICATION, ID, store), state_dir)
    found: list[StateRow] = []
    for partition in files.partitions():
        with files.snapshot(partition) as snapshot:
            found += snapshot.rows
    return sorted(found, key=_place)


def _place(row: StateRow) -> tuple[int, str, int]:
    return row.partition, row.key, row.window_start or 0


def frame(spark: SparkSession, state_dir: Path, store: str, **options: str | int) -> DataFrame:
    with quiet():
        from streamsrt.backfill.spark_source import register

        register(spark)
        reader = spark.read.format("streamsrt-state").options(application=APPLICATION, application_id=ID)
        return reader.options(state_dir=str(state_dir), store=store, **options).load()


def rows(read: DataFrame) -> list[StateRow]:
    return sorted((StateRow(*row) for row in read.collect()), key=_place)


def test_the_frame_has_the_rows_of_the_store(spark: SparkSession, state_dir: Path) -> None:
    table = frame(spark, state_dir, "airlines")
    assert table.columns == list(COLUMNS)
    assert table.count() == 36_000
    assert rows(table.where("timestamp < 300")) == [
        row for row in local(state_dir, "airlines") if row.timestamp is not None and row.timestamp < 300
    ]
    windows = rows(frame(spark, state_dir, "delays-per-hour"))
    assert windows == local(state_dir, "delays-per-hour")
    assert {row.window_start for row in windows} == {n * HOUR_MS for n in range(48)}


def test_typed_frames_have_times_and_numbers(spark: SparkSession, state_dir: Path) -> None:
    windows = frame(spark, state_dir, "delays-per-hour", typed="true")
    types = dict(windows.dtypes)
    assert {types[name] for name in TIMES} == {"timestamp"}
    expected = local(state_dir, "delays-per-hour")
    assert windows.where("window_start = timestamp '1970-01-01 05:00:00 UTC'").count() == sum(
        row.window_start == 5 * HOUR_MS for row in expected
    )
    counted = windows.selectExpr("count(*)", "max(unix_millis(window_end))", "min(unix_millis(timestamp))").collect()
    assert tuple(counted[0]) == (96, 48 * HOUR_MS, 0)
    one = frame(spark, state_dir, "delays-per-hour", typed="true", key="3", partition=1).collect()
    assert {row.key for row in one} == {"3"}
    assert len(one) == sum(row.partition == 1 and row.key == "3" for row in expected)


def test_options_narrow_what_is_read(spark: SparkSession, state_dir: Path) -> None:
    expected = local(state_dir, "delays-per-hour")
    narrowed = frame(spark, state_dir, "delays-per-hour", partition=1, key="3")
    assert rows(narrowed) == [row for row in expected if row.partition == 1 and row.key == "3"] != []
    assert rows(frame(spark, state_dir, "delays-per-hour", partition=7)) == []
    assert rows(frame(spark, state_dir, "airlines", key="A000042")) == [
        row for row in local(state_dir, "airlines") if row.key == "A000042"
    ]


def test_a_filter_of_one_query_is_none_of_the_next(spark: SparkSession, state_dir: Path) -> None:
    windows = frame(spark, state_dir, "delays-per-hour")
    all_rows = len(local(state_dir, "delays-per-hour"))
    assert windows.where("partition = 1").count() == all_rows // 2
    assert windows.count() == all_rows
    both = windows.where("key = '1'").union(windows.where("key = '2'"))
    assert {row.key for row in both.collect()} == {"1", "2"}


def test_the_frame_of_a_cluster_has_what_is_committed(spark: SparkSession, scene: Scene) -> None:
    scene.load(departures(200))
    scene.run_live(ID)
    with quiet():
        from streamsrt.backfill.spark_source import register

        register(spark)
        options = {"application": APPLICATION, "application_id": ID, "bootstrap_servers": scene.servers}
        read = spark.read.format("streamsrt-state").options(**options, store="delays-per-hour").load()
    assert rows(read) == local(scene.state_dir(ID), "delays-per-hour") != []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"store": "nothing"}, "has no store 'nothing'; it has airlines, delays-per-hour"),
        ({"store": "airlines", "partitions": "1"}, "there is no option partitions; options are application"),
        ({"store": "airlines", "typed": "yes"}, "typed is 'yes': give true or false"),
        ({"store": "airlines", "partition": "one"}, "partition is 'one', which is not a number"),
        ({"store": "airlines", "bootstrap_servers": "localhost:1"}, "give either bootstrap_servers"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, state_dir: Path, options: dict[str, str], says: str) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=says):
        frame(spark, state_dir, **options)
