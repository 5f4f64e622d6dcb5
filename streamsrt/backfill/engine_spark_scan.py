"""Counting a lake whose records are made by expressions: only Spark can say what they are, so it counts when planning."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from streamsrt.backfill.engine_spark_lake import as_long, partition_of_key, read_lake
from streamsrt.backfill.engine_spark_session import first_line, open_session, quiet
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.lake import (
    Lake,
    LakeShare,
    check_alike,
    check_for_spark,
    check_share,
    is_in_folders,
    order_of,
    paths_of,
)
from streamsrt.backfill.parquet_files import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, opened
from streamsrt.backfill.plan import LakeFile, LakePlan

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

MAPPED = ("key", "value", "timestamp", "partition", "offset")
_OWNER, _POSITION, _NO_TIME, _FILE = "owner", "position", "no_time", "file"


def scan_mapped(lake: Lake, topic: str, partitions: int) -> tuple[LakePlan, dict[int, LakeShare]]:
    """As :func:`~streamsrt.backfill.lake.scan_lake`, by Spark. Raises ArchiveError, BackfillError."""
    root, paths = paths_of(lake)
    unknown = sorted(set(lake.columns) - set(MAPPED))
    if unknown:
        raise ArchiveError(f"a record has no {', '.join(unknown)}: expressions are for {', '.join(MAPPED)}")
    files, first = [], None
    for path in paths:
        with opened(path) as file:
            first = file.schema_arrow if first is None else first
            check_alike(path, file.schema_arrow, paths[0], first)
            check_for_spark(path, file)
            if file.metadata.num_rows:
                records = file.metadata.num_rows
                files.append(LakeFile(path=str(path), records=records, size_bytes=path.stat().st_size))
    if not files:
        raise ArchiveError(f"lake {root} has no Parquet files with records: check the path")
    assert first is not None
    names = {*first.names, *lake.columns}
    in_folders = PARTITION not in names and is_in_folders(root, paths)
    names |= {PARTITION} if in_folders else set()
    plan = LakePlan(
        topic=topic,
        files=tuple(files),
        order=order_of(lake, paths[0], names),
        partitioned=PARTITION in names,
        headers=HEADERS in names,
        columns=dict(lake.columns),
        root=str(root.absolute()) if in_folders else None,
    )
    with contextlib.closing(open_session()) as session, quiet():
        return plan, _shares(session.spark, plan, partitions, allow_gaps=lake.allow_gaps)


def _shares(spark: SparkSession, plan: LakePlan, partitions: int, *, allow_gaps: bool) -> dict[int, LakeShare]:
    import pyspark.sql.functions as f

    frame = read_lake(spark, plan)
    position = as_long(frame, plan.order, per_second=1_000_000)
    columns = [position.alias(_POSITION), f.col(TIMESTAMP).isNull().alias(_NO_TIME), f.input_file_name().alias(_FILE)]
    if plan.partitioned:
        frame = frame.select(f.col(PARTITION).cast("int").alias(_OWNER), *columns)
    else:
        nulls = frame.where(f.col(KEY).isNull()).count()
        if nulls:
            raise ArchiveError(
                f"the lake of {plan.topic} has {nulls} rows without key: nothing says to which partition they belong. Give "
                "an expression for partition, or for a key that every row has"
            )
        frame = frame.select(partition_of_key(partitions).alias(_OWNER), *columns)
    counts = frame.groupBy(_OWNER).agg(
        f.count("*").alias("records"),
        f.min(_POSITION).alias("first"),
        f.max(_POSITION).alias("last"),
        f.count_if(f.col(_NO_TIME) | f.col(_POSITION).isNull()).alias("lost"),
        f.count_distinct(_FILE).alias("files"),
    )
    try:
        rows = counts.collect()
    except PySparkException as error:
        raise ArchiveError(f"the lake of {plan.topic} can't be counted by Spark: {first_line(error)}") from error
    return {row[_OWNER]: _share(plan, row, partitions, allow_gaps=allow_gaps) for row in rows}


def _share(plan: LakePlan, row: Row, partitions: int, *, allow_gaps: bool) -> LakeShare:
    """What Spark has counted of one partition. Raises ArchiveError."""
    owner = row[_OWNER]
    if owner is None or row["lost"]:
        what, count = (PARTITION, row["records"]) if owner is None else (f"{TIMESTAMP} or {plan.order}", row["lost"])
        raise ArchiveError(f"the lake of {plan.topic} has {count} rows without {what}: nothing says where they belong")
    if not 0 <= owner < partitions:
        raise ArchiveError(
            f"the lake of {plan.topic} has records of partition {owner}, and the topic has {partitions} partitions: it "
            "is the lake of another topic, or the expression for partition is not that of Kafka"
        )
    if plan.order != OFFSET:
        return LakeShare(row["records"], files=row["files"])
    if row["first"] < 0:
        raise ArchiveError(f"the lake of {plan.topic} has offset {row['first']}: it must not be negative")
    share = LakeShare(row["records"], row["first"], row["last"] + 1, row["files"])
    check_share((plan.topic, owner), share, allow_gaps=allow_gaps)
    return share
