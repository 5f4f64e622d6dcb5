"""Functions that make records of the rows of a lake, and some that don't."""

from __future__ import annotations

import pyspark.sql.functions as f
from pyspark.sql import DataFrame

COPIES = 2


def records(rows: DataFrame) -> DataFrame:
    return rows.select(
        f.col("customer").alias("key"),
        f.concat("word", "suffix").alias("value"),
        f.col("at").cast("timestamp").alias("timestamp"),
        f.col("shard").cast("int").alias("partition"),
        f.col("number").cast("bigint").alias("offset"),
    )


def twice(rows: DataFrame) -> DataFrame:
    return rows.withColumn("copy", f.explode(f.sequence(f.lit(0), f.lit(COPIES - 1))))


def incomplete(rows: DataFrame) -> DataFrame:
    return rows.select("number")


def nothing(rows: DataFrame) -> None:
    """Forgets to return its rows."""


def broken(rows: DataFrame) -> float:
    return 1 / (len(rows.columns) - len(rows.columns))
