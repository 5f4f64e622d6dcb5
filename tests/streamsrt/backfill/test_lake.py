"""Lakes: what is planned of them, and the order into which Spark puts their records."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples import flights
from streamsrt.backfill import Archive, Backfill, Lake
from streamsrt.backfill.archive import write_archive
from streamsrt.backfill.engine_local import TaskFailedError
from streamsrt.backfill.errors import ArchiveError, PlanError
from streamsrt.backfill.lake import LakeShare, scan_lake
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.plan import load_plan, save_plan
from streamsrt.backfill.planning import splice_lake
from streamsrt.backfill.spark.engine import SparkEngine
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import Headers, RecordColumns
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.scene import APPLICATION, Scene, departures
from tests.streamsrt.backfill.spark.test_engine import results
from topology import serdes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True)
class Record:
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None


def column_of(record: Record, name: str) -> Any:
    if name == "headers" and record.headers is not None:
        return [{"key": key, "value": value} for key, value in record.headers]
    return getattr(record, name)


def write_lake(root: Path, records: Iterable[Record], columns: Sequence[str], *, files: int = 3, seed: int = 1) -> Path:
    """Writes records in no order, into several files."""
    mixed = list(records)
    random.Random(seed).shuffle(mixed)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    types = {"partition": pa.int32(), "key": pa.binary(), "value": pa.binary(), "headers": headers}
    root.mkdir()
    for index in range(files):
        part = mixed[index::files]
        table = {
            name: pa.array([column_of(record, name) for record in part], types.get(name, pa.int64()))
            for name in columns
        }
        pq.write_table(pa.table(table), root / f"part-{index}.parquet")
    return root


EXACT = ("partition", "offset", "timestamp", "key", "value")
KEYED = ("timestamp", "key", "value")


def some(count: int, partition: int = 0, start: int = 0) -> list[Record]:
    return [
        Record(partition, start + n, 1_000 + n, b"k%d" % (n % 5), b"v%d" % n if n % 3 else None) for n in range(count)
    ]


# ------------------------------------------------------------------------------------------------------------- planning


def test_offsets_and_counts_of_each_partition_are_found(tmp_path: Path) -> None:
    root = write_lake(tmp_path / "lake", [*some(10), *some(7, partition=2, start=4)], EXACT)
    plan, shares = scan_lake(Lake(root), "t", 3)
    assert (plan.order, plan.partitioned, plan.headers) == ("offset", True, False)
    assert sum(file.records for file in plan.files) == 17
    assert shares == {0: LakeShare(10, 0, 10, 3), 2: LakeShare(7, 4, 11, 3)}


def test_records_without_partition_go_where_kafka_puts_their_keys(tmp_path: Path) -> None:
    records = some(50)
    root = write_lake(tmp_path / "lake", records, KEYED)
    plan, shares = scan_lake(Lake(root), "t", 4)
    assert (plan.order, plan.partitioned) == ("timestamp", False)
    expected: dict[int, int] = {}
    for record in records:
        partition = partition_for_key(record.key or b"", 4)
        expected[partition] = expected.get(partition, 0) + 1
    assert {partition: share.records for partition, share in shares.items()} == expected


@pytest.mark.parametrize(
    ("records", "columns", "options", "says"),
    [
        (some(10)[:4] + some(10)[5:], EXACT, {}, "9 records of the 10 offsets.*some are missing.*--allow-gaps"),
        (some(10) + some(2), EXACT, {}, "12 records of the 10 offsets.*occur twice"),
        (some(10, partition=5), EXACT, {}, "records of partition 5, and topic t has 3 partitions"),
        (some(3), ("key", "value"), {}, "has no column timestamp; it has key, value"),
        (some(3), KEYED, {"order": "sequence"}, "has no column sequence"),
        (some(3), ("offset", *KEYED), {}, "but no column partition"),
        (some(3), KEYED, {"order": "value"}, "order is integers or timestamps"),
        ([Record(0, 0, 1, None, b"v")], KEYED, {}, "rows without key"),
        ([], KEYED, {}, "has no Parquet files with records"),
    ],
)
def test_what_is_wrong_with_a_lake_is_said(
    tmp_path: Path, records: list[Record], columns: Sequence[str], options: dict[str, Any], says: str
) -> None:
    root = write_lake(tmp_path / "lake", records, columns, files=1)
    with pytest.raises(ArchiveError, match=says):
        scan_lake(Lake(root, **options), "t", 3)


def test_an_offset_that_comes_twice_is_said_with_its_files(tmp_path: Path) -> None:
    root = write_lake(tmp_path / "lake", some(10), EXACT, files=2)
    write_lake(tmp_path / "more", some(10)[7:8], EXACT, files=1)
    (tmp_path / "more" / "part-0.parquet").rename(root / "part-2.parquet")
    holder = next(n for n in (0, 1) if 7 in pq.read_table(root / f"part-{n}.parquet")["offset"].to_pylist())
    says = rf"twice, such as 7 in \S+part-{holder}\.parquet and in \S+part-2\.parquet\. Remove one .*--lake-id"
    with pytest.raises(ArchiveError, match=says):
        scan_lake(Lake(root), "t", 3)


def test_a_file_beside_the_folders_of_partitions_is_refused(tmp_path: Path) -> None:
    """Else all of the lake would be dealt out by the keys' hash."""
    root = write_lake(tmp_path / "lake", some(10), KEYED, files=2)
    (root / "partition=1").mkdir()
    (root / "part-0.parquet").rename(root / "partition=1" / "part-0.parquet")
    with pytest.raises(ArchiveError, match="is not in a folder partition=N, and 1 files of lake"):
        scan_lake(Lake(root), "t", 3)


def test_a_column_of_nanoseconds_that_nobody_reads_is_refused_too(tmp_path: Path) -> None:
    root = write_lake(tmp_path / "lake", some(10), KEYED, files=1)
    table = pq.read_table(root / "part-0.parquet")
    pq.write_table(table.append_column("seen", pa.array([1] * 10, pa.timestamp("ns"))), root / "part-0.parquet")
    with pytest.raises(ArchiveError, match="column seen counts nanoseconds"):
        scan_lake(Lake(root), "t", 3)
    inside = pa.array([{"at": 1}] * 10, pa.struct([("at", pa.timestamp("ns"))]))
    pq.write_table(table.append_column("seen", inside), root / "part-0.parquet")
    with pytest.raises(ArchiveError, match=r"column seen\.at counts nanoseconds"):
        scan_lake(Lake(root), "t", 3)


def test_a_lake_goes_on_in_the_log() -> None:
    exact = splice_lake(("t", 0), LakeShare(10, 0, 10), 6, 15, allow_gaps=False)
    assert (exact.start, exact.log_start, exact.end, exact.archived_records) == (0, 10, 15, 10)
    with pytest.raises(ArchiveError, match=r"the lake of t-0 goes to offset 9, .*Give the lake that belongs"):
        splice_lake(("t", 0), LakeShare(10, 0, 10), 0, 5, allow_gaps=False)
    with pytest.raises(ArchiveError, match="are missing"):
        splice_lake(("t", 0), LakeShare(10, 0, 10), 12, 15, allow_gaps=False)
    before = splice_lake(("t", 0), LakeShare(10), 6, 15, allow_gaps=False)
    assert (before.start, before.log_start, before.end, before.archived_records) == (-4, 6, 15, 10)
    nothing = splice_lake(("t", 0), None, 6, 15, allow_gaps=False)
    assert (nothing.start, nothing.log_start, nothing.archived_records) == (6, 6, 0)


# -------------------------------------------------------------------------------------------------------------- running


def history(scene: Scene, topic: str) -> list[Record]:
    """Everything that the log holds of a topic."""
    return [
        Record(
            tp[1],
            columns.offset_at(index),
            columns.timestamps[index],
            columns.keys[index],
            columns.values[index],
            (columns.headers and columns.headers[index]) or None,
        )
        for tp, end in scene.ends(topic).items()
        for columns in read_log(scene.network, tp, 0, end)
        for index in range(len(columns))
    ]


def archived(root: Path, records: Iterable[Record]) -> Archive:
    """The same records as an archive, in this order in each partition."""
    by_partition: dict[int, list[Record]] = {}
    for record in records:
        by_partition.setdefault(record.partition, []).append(record)
    for partition, part in by_partition.items():
        columns = RecordColumns(
            [each.key for each in part], [each.value for each in part], [each.timestamp for each in part], 0, len(part)
        )
        write_archive(root, partition, [columns])
    return Archive(root)


def test_gaps_that_are_allowed_are_said(scene: Scene) -> None:
    """As those of an archive are."""
    scene.load(departures(200))
    found = [record for record in history(scene, "departures") if record.partition or record.offset not in (3, 4)]
    scene.network.admin.delete_records(scene.ends("departures"))
    lake = Lake(write_lake(scene.folder / "lake", found, EXACT), allow_gaps=True)
    plan = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers).plan(
        APPLICATION, application_id="flights", sources={"departures": lake}
    )
    end = max(record.offset for record in found if not record.partition) + 1
    assert f"the lake of departures-0 spans {end} offsets, 2 have no record" in plan.warnings


@pytest.mark.spark
def test_an_exact_lake_is_its_archive(spark: SparkSession, scene: Scene) -> None:
    """One lake, and the log for the rest of the same partitions and for the other topic of the join."""
    rows = departures(1_500)
    collector = RecordCollector(scene.network.producer.send, lambda _topic: flights.PARTITIONS)
    collector.add(
        "departures",
        [serdes.string.serialize(row.key) for row in rows],
        [serdes.json.serialize(row.value) for row in rows],
        [row.timestamp_ms for row in rows],
        [(("number", b"%d" % number), ("", None)) if number % 3 else () for number in range(len(rows))],
    )
    collector.flush()
    scene.network.producer.flush()
    found = history(scene, "departures")
    assert sum(record.headers is not None for record in found) == 1_000
    lake = write_lake(scene.folder / "lake", found, (*EXACT, "headers"))
    root = scene.archive_departures()
    scene.load(departures(500, start=100_000))
    plans = {}
    for name, source in (("archive", Archive(root)), ("lake", Lake(lake))):
        plans[name] = Backfill(scene.folder / name, bootstrap_servers=scene.servers)
        plans[name].plan(APPLICATION, application_id="flights", sources={"departures": source})
    with pytest.raises(PlanError, match="run with --engine spark"):
        plans["lake"].run(InProcess())
    plans["archive"].run(InProcess())
    plans["lake"].run(SparkEngine())
    assert results(plans["lake"], scene.folder) == results(plans["archive"], scene.folder)


@pytest.mark.spark
def test_lakes_without_offsets_are_replayed_in_the_order_of_time(spark: SparkSession, scene: Scene) -> None:
    """Both topics of the join: records are merged by the running maximum, at equal times by topic."""
    scene.load(departures(1_500))
    sources: dict[str, Lake] = {}
    archives: dict[str, Archive] = {}
    histories = {topic: history(scene, topic) for topic in ("departures", "airlines")}
    # Names that come while the departures do, some of them at the very same time.
    times = sorted(record.timestamp for record in histories["departures"])
    histories["airlines"] = [
        replace(each, timestamp=times[n * 90 % len(times)]) for n, each in enumerate(histories["airlines"])
    ]
    for topic, found in histories.items():
        sources[topic] = Lake(write_lake(scene.folder / f"lake-{topic}", found, KEYED, seed=len(topic)))
        found.sort(key=lambda each: (each.partition, each.timestamp, each.key or b"", each.value or b""))
        archives[topic] = archived(scene.folder / f"archive-{topic}", found)
        scene.create_topics(topic)
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    plan = backfill.plan(APPLICATION, application_id="flights", sources=sources)
    assert sum("have no offsets" in text or "has no offsets" in text for text in plan.warnings) == 2
    backfill.run(SparkEngine())
    usual = as_archives(plan, archives, scene.folder / "usual")
    usual.run(InProcess())
    computed, expected = results(backfill, scene.folder), results(usual, scene.folder)
    for task in (*computed, *expected):
        # Without offsets in the lake the ranges are not the same: they end where the log begins.
        task["reads"] = [(read["topic"], read["records"], read["partition_time_ms"]) for read in task["reads"]]
    assert computed == expected
    assert sum(task["counters"].get("dropped_late", 0) for task in computed) == 0


@pytest.mark.spark
def test_a_cut_by_time_takes_each_record_once(spark: SparkSession, scene: Scene) -> None:
    """The lake and the log hold the same records, the log without the first ones; late ones are on both sides of the cut."""
    scene.load(departures(600))
    found = history(scene, "departures")
    cut = sorted(record.timestamp for record in found)[len(found) // 2]
    late = [replace(record, timestamp=cut - 1_000) for record in found[-5:]]
    by_partition: dict[int, list[Record]] = {}
    for record in [*found, *late]:
        by_partition.setdefault(record.partition, []).append(record)
    scene.create_topics("departures")
    for partition, records in by_partition.items():
        assert {partition} == {partition_for_key(record.key or b"", flights.PARTITIONS) for record in records}
        collector = RecordCollector(scene.network.producer.send, lambda _topic: flights.PARTITIONS)
        collector.add(
            "departures",
            [record.key for record in records],
            [record.value for record in records],
            [record.timestamp for record in records],
        )
        collector.flush()
    scene.network.producer.flush()
    lake = Lake(write_lake(scene.folder / "lake", [*found, *late], KEYED), until_ms=cut)
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    plan = backfill.plan(APPLICATION, application_id="flights", sources={"departures": lake})
    backfill.run(SparkEngine())
    reads = [read for manifest in backfill.verify() for read in manifest.reads if read.topic == "departures"]
    assert sum(read.records for read in reads) == len(found) + len(late)
    in_lake = sum(record.timestamp < cut for record in [*found, *late])
    assert sum(plan.lakes[0].days.values()) == in_lake
    assert 0 < in_lake < len(found)
    # The first record that is left in the log is not older than the cut: there may have been others.
    scene.network.admin.delete_records({("departures", 0): scene.ends("departures")["departures", 0]})
    with pytest.raises(
        ArchiveError, match="holds no record before --lake-until: records of that time may have been del"
    ):
        Backfill(scene.folder / "other", bootstrap_servers=scene.servers).plan(
            APPLICATION, application_id="flights", sources={"departures": lake}
        )


def as_archives(plan: Any, archives: dict[str, Archive], directory: Path) -> Backfill:
    """The same plan over archives."""
    from streamsrt.backfill.archive import scan_archive

    files = {topic: scan_archive(Path(archive.path)) for topic, archive in archives.items()}
    tasks = []
    for task in plan.tasks:
        ranges = []
        for source in task.sources:
            found = files[source.topic].get(source.partition, ())
            end = found[-1].next_offset if found else 0
            update = {"start": 0, "end": end, "log_start": end, "archive": found, "lake_records": 0}
            ranges.append(source.model_copy(update=update))
        tasks.append(task.model_copy(update={"sources": tuple(ranges)}))
    save_plan(plan.model_copy(update={"tasks": tuple(tasks), "lakes": ()}).sealed(), directory)
    return Backfill(directory)


@pytest.mark.spark
def test_a_lake_that_was_changed_is_noticed(spark: SparkSession, scene: Scene) -> None:
    scene.load(departures(100))
    found = history(scene, "departures")
    root = write_lake(scene.folder / "lake", found, EXACT)
    scene.archive_departures()
    backfill = Backfill(scene.folder / "plan", bootstrap_servers=scene.servers)
    backfill.plan(APPLICATION, application_id="flights", sources={"departures": Lake(root)})
    (root / "part-1.parquet").rename(root / "kept")
    with pytest.raises(ArchiveError, match=r"part-1\.parquet can't be read"):
        backfill.run(SparkEngine())
    (root / "kept").rename(root / "part-1.parquet")
    doubled = load_plan(backfill.directory)
    file = doubled.lakes[0].files[0]
    lake = doubled.lakes[0].model_copy(update={"files": (*doubled.lakes[0].files, file)})
    save_plan(doubled.model_copy(update={"lakes": (lake,)}).sealed(), scene.folder / "doubled")
    with pytest.raises(TaskFailedError, match="duplicate offsets"):
        Backfill(scene.folder / "doubled", bootstrap_servers=scene.servers).run(SparkEngine())
    assert backfill.run(SparkEngine())
