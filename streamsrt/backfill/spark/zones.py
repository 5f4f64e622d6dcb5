"""Whose time zone a time without one gets: UTC, in the driver, in Spark's JVMs and in their Python workers.

1. ORC keeps such a time as it stood on the writer's clock. Spark reads it as a time of the JVM's zone, whatever zone the
   session has. So a session that is made here runs its JVMs in UTC (``UTC_SETTINGS`` of
   :mod:`streamsrt.backfill.spark.session`).
2. Python takes a ``datetime`` without a zone as a time of its process's zone: in the workers, where a mapping has functions
   in Python, and in the driver, where it makes literals.
3. What can't be set is looked at: a session that was there before, a server of Spark Connect, a user's own options for Java.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.lake_formats import TABLE
from streamsrt.backfill.parquet_files import unreadable
from streamsrt.backfill.plan import LakePlan
from streamsrt.backfill.spark.session import UTC_OPTION, quiet

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal"})
_BY_JAVA = ("orc", TABLE)
"""Formats in which there may be times without a zone that Spark reads by the JVM's zone."""
_PROBES = 4
_ANSWER = "java string, python string"


def check_zones(spark: SparkSession, lake: LakePlan) -> None:
    """Raises BackfillError where times of this lake would depend on the zone of a machine or of a session."""
    by_session(spark)
    if lake.format in _BY_JAVA or lake.mapping is not None:
        _check_workers(spark, lake.topic, has_mapping=lake.mapping is not None)


def by_session(spark: SparkSession) -> None:
    """Raises BackfillError where expressions go by another zone than UTC."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC"):
        raise BackfillError(
            f"the session of Spark has the time zone {zone}, by which expressions over times go: set "
            "spark.sql.session.timeZone to UTC"
        )


def _check_workers(spark: SparkSession, topic: str, *, has_mapping: bool) -> None:
    # Spark evaluates it where the rows are: in the executors.
    rows = spark.range(0, _PROBES, 1, _PROBES).selectExpr("java_method('java.time.ZoneId', 'systemDefault') as java")
    with quiet():
        found = (rows.mapInArrow(_with_own_zone, _ANSWER) if has_mapping else rows).distinct().collect()
    java = sorted({row["java"] for row in found} - UTC_NAMES)
    if java:
        raise BackfillError(
            f"Spark's Java has the time zone {java[0]}, and would read times without a zone in the lake of {topic} by it: "
            f"give {UTC_OPTION} in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions (of Spark Connect: "
            "of its server) before that Spark starts"
        )
    python = sorted({row["python"] for row in found} - UTC_NAMES) if has_mapping else []
    if python:
        raise BackfillError(
            f"Spark's Python workers have the time zone {python[0]}, and functions in Python that --lake-map uses for "
            f"{topic} would make times by it: set spark.executorEnv.TZ=UTC (of Spark Connect: TZ=UTC in the environment of "
            "its server and workers) before that Spark starts"
        )


def _with_own_zone(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Runs in a worker: adds the zone of its Python."""
    import pyarrow as pa

    for batch in batches:
        zone = pa.array([python_zone()] * batch.num_rows, pa.string())
        yield pa.record_batch([batch.column("java"), zone], ["java", "python"])


def python_zone() -> str:
    """The zone of this process: ``UTC``, or some name of another one."""
    if time.timezone == 0 and not time.daylight:
        return "UTC"
    return os.environ.get("TZ") or "/".join(time.tzname)


@contextlib.contextmanager
def utc_in_this_process() -> Iterator[None]:
    """Has Python take times without a zone as UTC meanwhile."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def orc_columns_without_zone(lake: LakePlan) -> frozenset[str] | None:
    """The columns of times without a zone in the ORC files of a lake; None where this process does not see the files. Spark
    has one type for both kinds. Raises ArchiveError."""
    from pyarrow import orc, types

    found = set[str]()
    for file in lake.files:
        if not file.path.startswith("file:"):
            return None
        path = file.path.removeprefix("file:")
        try:
            schema = orc.ORCFile(path).schema
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        found |= {field.name for field in schema if types.is_timestamp(field.type) and field.type.tz is None}
    return frozenset(found)
