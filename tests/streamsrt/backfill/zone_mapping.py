"""Functions that make records with times that have no zone in Python: in workers, and in the driver."""

from __future__ import annotations

from datetime import UTC, datetime

import pyspark.sql.functions as f
from pyspark.sql import DataFrame


def by_worker(rows: DataFrame) -> DataFrame:
    """Each time made in a worker."""
    made = f.udf(lambda ms: datetime.fromtimestamp(ms / 1_000, UTC).replace(tzinfo=None), "timestamp")
    return rows.withColumn("timestamp", made("ms"))


def by_driver(rows: DataFrame) -> DataFrame:
    """One time for all of them."""
    return rows.withColumn("timestamp", f.lit(datetime(2026, 1, 15, 12)))
