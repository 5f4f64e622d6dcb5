"""Counting a lake that Spark reads: only Spark can say what its records are, so it counts when the plan is made.

Every key and value is computed, though only counted: what can't be read or converted is refused before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from streamsrt.backfill.day_counts import DAY_MS, iso_date
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.lake import Lake, LakeShare, check_share, order_of
from streamsrt.backfill.lake_formats import FILES, check_format
from streamsrt.backfill.odd_times import check_calendar
from streamsrt.backfill.parquet_files import HEADERS, KEY, NEGATIVE_TIME, OFFSET, PARTITION, TIMESTAMP, VALUE, TimesRead
from streamsrt.backfill.plan import LakeFile, LakePlan
from streamsrt.backfill.spark.encoding import SourceSerdes
from streamsrt.backfill.spark.errors import plain_path
from streamsrt.backfill.spark.lake import partition_of_key
from streamsrt.backfill.spark.mapping import mapping_function
from streamsrt.backfill.spark.reading import (
    SPARK_ERRORS,
    as_long,
    count_rows,
    described_source,
    explained,
    read_lake,
)
from streamsrt.backfill.spark.session import quiet
from streamsrt.backfill.spark.zones import orc_columns_without_zone
from streamsrt.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

MAPPED = ("key", "value", "timestamp", "partition", "offset")
_OWNER, _POSITION, _TIME, _DAY, _FILE, _GROUP = "owner", "position", "time", "day", "file", "group"
_BY_OWNER, _BY_FILE, _BY_DAY = 0b011, 0b101, 0b110
"""The value of Spark's ``grouping_id`` for groups by one of three columns."""
_NAIVE = "timestamp_ntz"
_OF_A_ZONE = re.compile("utc_timestamp|convert_timezone", re.IGNORECASE)
"""Functions of Spark's that say of which zone a time is."""
_NO_KEY = -1


def check_options(lake: Lake, topic: str) -> None:
    """What can be refused before Spark is started, which takes its time. Raises ArchiveError, BackfillError, and the errors
    of a mapping's module."""
    check_format(topic, lake.format)
    unknown = sorted(set(lake.columns) - {*MAPPED, lake.order})
    if unknown:
        raise ArchiveError(
            f"a record has no {', '.join(unknown)}: expressions are for {', '.join(MAPPED)} and the column of --lake-order"
        )
    if lake.mapping is not None:
        mapping_function(topic, lake.mapping)


def scan_by_spark(
    spark: SparkSession,
    lake: Lake,
    topic: str,
    partitions: int,
    *,
    serdes: SourceSerdes | None = None,
    times: TimesRead | None = None,
) -> tuple[LakePlan, dict[int, LakeShare]]:
    """As :func:`~streamsrt.backfill.lake.scan_lake`, by Spark. Raises ArchiveError, BackfillError."""
    check_options(lake, topic)
    with quiet():
        source, rows = described_source(spark, lake, topic)
        names = {*rows.columns, *lake.columns}
        assert source.location is not None
        plan = source.model_copy(
            update={
                "order": order_of(lake, source.location, names),
                "partitioned": PARTITION in names,
                "headers": HEADERS in names,
            }
        )
        if plan.order == OFFSET and lake.until_ms is not None:
            raise ArchiveError(
                f"the lake of {topic} has offsets, which say where the log continues: leave out --lake-until, or the "
                f"column {OFFSET}"
            )
        try:
            count = None if plan.id is None else count_rows(spark, rows, plan, serdes)
            frame = read_lake(spark, plan, rows, _file_of(plan), serdes=serdes)
            groups = _counted(_positions(frame, plan, partitions)).collect()
        except SPARK_ERRORS as error:
            raise explained(spark, plan, error, rows.columns) from error
    by = {group: [row for row in groups if row[_GROUP] == group] for group in (_BY_OWNER, _BY_FILE, _BY_DAY)}
    if not by[_BY_OWNER]:
        raise _empty(plan)
    _check_keys(plan, by[_BY_OWNER])
    if times is None or not times.is_extracted:
        _check_times(plan, by[_BY_FILE])
        if times is not None:
            times.add_highest(max(-1 if row["latest_ms"] is None else row["latest_ms"] for row in by[_BY_OWNER]))
    if times is not None:
        finer = sum(row["finer"] for row in by[_BY_OWNER])
        times.add_by_spark(_time_of(plan), without_zone=_without_zone(plan, rows, frame), finer=finer)
    shares = {row[_OWNER]: _share(plan, row, partitions, allow_gaps=lake.allow_gaps) for row in by[_BY_OWNER]}
    update = {
        "files": _read_files(plan, by[_BY_FILE]),
        "days": {_day(row[_DAY]): row["records"] for row in sorted(by[_BY_DAY], key=lambda row: row[_DAY])},
        "null_keys": sum(row["nulls"] for row in by[_BY_OWNER]),
    }
    if count is not None:
        update["duplicates"] = count - sum(row["records"] for row in by[_BY_OWNER])
    return plan.model_copy(update=update), shares


def _time_of(plan: LakePlan) -> str:
    return plan.columns.get(TIMESTAMP, f"column {TIMESTAMP}")


def _without_zone(plan: LakePlan, rows: DataFrame, frame: DataFrame) -> str | None:
    """The column without a time zone, or the expression, that the times of records come from; None if they have one."""
    text = plan.columns.get(TIMESTAMP, TIMESTAMP)
    if _OF_A_ZONE.search(text):
        return None
    of_orc = _orc_times(plan)
    for name, kind in rows.dtypes:
        is_naive = kind == _NAIVE or (kind == "timestamp" and (of_orc is None or name in of_orc))
        if is_naive and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            return name
    return text if dict(frame.dtypes)[TIMESTAMP] == _NAIVE else None


def _orc_times(plan: LakePlan) -> Collection[str] | None:
    """The columns of a lake that are times without a zone in ORC; None for all of its times, as Spark and Hive write."""
    if plan.mapping is not None or (plan.format != "orc" and not (plan.files and plan.files[0].path.endswith(".orc"))):
        return ()
    return orc_columns_without_zone(plan)


def _file_of(plan: LakePlan) -> Column:
    import pyspark.sql.functions as f

    is_known = plan.format in FILES and plan.mapping is None
    return (f.col("_metadata.file_path") if is_known else f.lit(None).cast("string")).alias(_FILE)


def _positions(frame: DataFrame, plan: LakePlan, partitions: int) -> DataFrame:
    """Selects the columns of each record that are counted."""
    import pyspark.sql.functions as f

    if plan.partitioned:
        owner = f.col(PARTITION).cast("int")
    else:
        hashed = partition_of_key(partitions, f.coalesce(f.col(KEY).cast("binary"), f.lit(b"")))
        owner = f.when(f.col(KEY).isNull(), _NO_KEY).otherwise(hashed)
    time = as_long(frame, TIMESTAMP, per_second=1_000)
    is_time = dict(frame.dtypes)[TIMESTAMP] in ("timestamp", _NAIVE)
    finer = f.pmod(as_long(frame, TIMESTAMP, per_second=1_000_000), f.lit(1_000)) != 0 if is_time else f.lit(False)
    return frame.select(
        owner.alias(_OWNER),
        as_long(frame, plan.order, per_second=1_000_000).alias(_POSITION),
        time.alias(_TIME),
        f.floor(time / DAY_MS).alias(_DAY),
        finer.alias("finer"),
        f.col(_FILE),
        f.col(KEY).isNull().alias("no_key"),
        (f.octet_length(f.col(KEY)) + f.octet_length(f.col(VALUE))).alias("bytes"),
    )


def _counted(frame: DataFrame) -> DataFrame:
    import pyspark.sql.functions as f

    groups = frame.groupingSets([[_OWNER], [_FILE], [_DAY]], _OWNER, _FILE, _DAY)
    return groups.agg(
        f.grouping_id().alias(_GROUP),
        f.count("*").alias("records"),
        f.min(_POSITION).alias("first"),
        f.max(_POSITION).alias("last"),
        f.min(_TIME).alias("earliest_ms"),
        f.max(_TIME).alias("latest_ms"),
        f.count_if(f.col(_TIME).isNull() | f.col(_POSITION).isNull()).alias("lost"),
        f.count_if("finer").alias("finer"),
        f.count_if("no_key").alias("nulls"),
        f.min(f.when(f.col("no_key"), f.col(_FILE))).alias("null_file"),
        f.count_distinct(_FILE).alias("files"),
        f.sum("bytes").alias("bytes"),
    )


def _empty(plan: LakePlan) -> ArchiveError:
    if plan.until_ms is not None:
        return ArchiveError(
            f"lake {plan.location} of {plan.topic} has no rows before --lake-until"
            f"{'' if plan.where is None else f' that meet {plan.where!r}'}: give a later time, or no lake"
        )
    if plan.where is not None:
        return ArchiveError(
            f"--lake-where {plan.topic}={plan.where!r} leaves no row of lake {plan.location}: check the condition, and the "
            "types of the columns that it compares"
        )
    return ArchiveError(f"lake {plan.location} of {plan.topic} has no rows: check the path")


def _check_keys(plan: LakePlan, rows: Sequence[Row]) -> None:
    """Raises ArchiveError for records without a key if only the key determines their partition."""
    for row in rows:
        if row[_OWNER] == _NO_KEY and not plan.partitioned:
            where = f", e.g. in {plain_path(row['null_file'])}" if row["null_file"] else ""
            raise ArchiveError(
                f"the lake of {plan.topic} has {row['records']} rows without key{where}: nothing says to which partition "
                "they belong. Give an expression for partition, or for a key that every row has, or leave them out with "
                f"--lake-where {plan.topic}='... is not null'"
            )


def _check_times(plan: LakePlan, rows: Sequence[Row]) -> None:
    """Raises ArchiveError for records from before 1970, and for times that no calendar has."""
    for row in rows:
        if row["earliest_ms"] is None:
            continue
        check_calendar(
            plain_path(row[_FILE]) if row[_FILE] else f"the lake of {plan.topic}", plan.topic, row["latest_ms"]
        )
        if row["earliest_ms"] < 0:
            where = f", in {plain_path(row[_FILE])}" if row[_FILE] else ""
            raise ArchiveError(
                f"the lake of {plan.topic} has records with a time before 1970 (the lowest is {row['earliest_ms']} ms)"
                f"{where}: {NEGATIVE_TIME}"
            )


def _read_files(plan: LakePlan, rows: Sequence[Row]) -> tuple[LakeFile, ...]:
    """Returns the files that are read, with their numbers of records. Of a table, all files: nothing else shows which ones
    are new. Of rows that a function makes, all files, too: it does not say where they come from."""
    if plan.mapping is not None:
        return plan.files
    records = {plain_path(row[_FILE]): row["records"] for row in rows if row[_FILE] is not None}
    unknown = records.keys() - {file.path for file in plan.files}
    if unknown and plan.format in FILES:
        raise ArchiveError(
            f"{min(unknown)} came into the lake of {plan.topic} while it was counted: plan again when nothing is written"
        )
    return tuple(
        file.model_copy(update={"records": records.get(file.path, 0)})
        for file in plan.files
        if plan.format not in FILES or file.path in records
    )


def _day(number: int | None) -> str:
    return "" if number is None else iso_date(number)


def _share(plan: LakePlan, row: Row, partitions: int, *, allow_gaps: bool) -> LakeShare:
    """Returns Spark's counts of one partition. Raises ArchiveError."""
    owner = row[_OWNER]
    if owner is None or row["lost"]:
        what, count = (PARTITION, row["records"]) if owner is None else (f"{TIMESTAMP} or {plan.order}", row["lost"])
        raise ArchiveError(
            f"the lake of {plan.topic} has {count} rows without {what}: nothing says where they belong. Correct them, or "
            f"leave them out with --lake-where {plan.topic}='... is not null'"
        )
    if not 0 <= owner < partitions:
        raise ArchiveError(
            f"the lake of {plan.topic} has records of partition {owner}, and the topic has "
            f"{counted(partitions, 'partition')}: it is the lake of another topic, or the expression for "
            "partition is not that of Kafka"
        )
    if plan.order != OFFSET:
        return LakeShare(row["records"], files=row["files"])
    if row["first"] < 0:
        raise ArchiveError(f"the lake of {plan.topic} has offset {row['first']}: it must not be negative. Correct it")
    share = LakeShare(row["records"], row["first"], row["last"] + 1, row["files"])
    check_share((plan.topic, owner), share, allow_gaps=allow_gaps)
    return share
