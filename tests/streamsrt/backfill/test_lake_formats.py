"""Formats of lakes: what is read strictly, and what a message tells to install."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamsrt.backfill.errors import ArchiveError, BackfillError
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.lake_formats import (
    FORMATS,
    SparkVersions,
    check_format,
    check_packed,
    mixed_fields,
    package_of_format,
    package_of_scheme,
    packed_ending,
    reader_options,
)

VERSIONS = SparkVersions("4.2.1", "3.5.0")


def test_options_of_the_user_go_over_those_that_leave_nothing_out() -> None:
    assert reader_options("csv", {"header": "true"}) == {
        "mode": "FAILFAST",
        "columnPruning": "false",
        "enforceSchema": "false",
        "header": "true",
    }
    assert reader_options("json", {"MODE": "PERMISSIVE"}) == {"MODE": "PERMISSIVE"}
    assert reader_options("delta", {}) == {}


def test_a_format_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    for name in FORMATS:
        check_format("orders", name)
    with pytest.raises(
        BackfillError, match="lake of orders has the format 'xml', which is unknown: give parquet, json"
    ):
        check_format("orders", "xml")


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("avro", "spark.jars.packages=org.apache.spark:spark-avro_2.13:4.2.0"),
        ("delta", "spark.jars.packages=io.delta:delta-spark_2.13:4.2.0 --conf spark.sql.extensions=io.delta"),
        ("iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.2_2.13"),
    ],
)
def test_the_package_of_a_format_is_named(name: str, package: str) -> None:
    assert package in package_of_format(name, VERSIONS)


def test_of_delta_it_is_said_for_which_spark_there_is_a_package() -> None:
    assert "install PySpark 4.2" in package_of_format("delta", replace(VERSIONS, spark="4.3.0"))
    assert "install PySpark" not in package_of_format("delta", VERSIONS)


@pytest.mark.parametrize(
    ("location", "package"),
    [
        ("s3a://lake/orders", "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0"),
        ("abfss://lake@account/orders", "org.apache.hadoop:hadoop-azure:3.5.0"),
        ("gs://lake/orders", "org.apache.hadoop:hadoop-gcp:3.5.0"),
        ("s3://lake/orders", "write s3a:// in place of s3://"),
        ("oss://lake/orders", "Hadoop file system for oss://"),
    ],
)
def test_the_package_of_a_file_system_is_named(location: str, package: str) -> None:
    assert package in package_of_scheme(location, VERSIONS)


@pytest.mark.parametrize(
    ("lake", "by_spark"),
    [
        (Lake("lake/orders"), False),
        (Lake("lake/orders", order="at", allow_gaps=True), False),
        (Lake("file:///lake/orders"), True),
        (Lake("lake/orders", format="json"), True),
        (Lake("lake/orders", where="day > 1"), True),
        (Lake("lake/orders", columns={"key": "id"}), True),
        (Lake("lake/orders", options={"pathGlobFilter": "*.parquet"}), True),
    ],
)
def test_what_only_spark_can_read_is_left_to_it(lake: Lake, by_spark: bool) -> None:
    assert lake.is_read_by_spark is by_spark


@pytest.mark.parametrize(
    ("schema", "mixed"),
    [
        ("OBJECT<k: STRING, v: BIGINT>", ()),
        ("OBJECT<k: STRING, v: VARIANT>", ("v",)),
        ("OBJECT<o: OBJECT<x: VARIANT, `y z`: ARRAY<BIGINT>>, v: DECIMAL(21,1), w: STRING>", ("o",)),
        ("OBJECT<`a, b: VARIANT`: STRING, `c``d`: ARRAY<VARIANT>>", ("c`d",)),
        ("ARRAY<OBJECT<k: VARIANT, v: STRING>>", ("k",)),
        ("VOID", ()),
    ],
)
def test_fields_of_several_types_are_found_in_a_schema_of_variants(schema: str, mixed: tuple[str, ...]) -> None:
    assert mixed_fields(schema) == mixed


def test_compressed_files_that_spark_misreads_are_refused() -> None:
    for path in ("file:/a/x.json", "file:/a/x.json.gz", "file:/a.zip/x.csv", "file:/a/x.csv.zst", "file:/a/x.bz2"):
        assert packed_ending(path) == ""
        check_packed(path, None)
    check_packed("file:/a/part-0.json.lz4", 0)
    with pytest.raises(ArchiveError, match=r"x\.json\.lz4 .* not in the blocks of Hadoop.* pack it again with gzip"):
        check_packed("file:/a/x.json.lz4", 4)
    with pytest.raises(ArchiveError, match=r"x\.csv\.ZIP has the ending \.zip, which Spark can't unpack"):
        check_packed("file:/a/x.csv.ZIP", 80)
    with pytest.raises(ArchiveError, match=r"ending \.tar\.gz"):
        check_packed("file:/a/x.tar.gz", 31)
