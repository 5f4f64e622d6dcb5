"""Formats of lakes, and what Spark must have been given to read them.

1. ``json``, ``csv``, ``orc``, ``avro`` and ``parquet`` are files: a plan names each with its size and the time of its last
   change. ``delta`` and ``iceberg`` keep versions: a plan names one. ``table`` is a table or view of Spark's catalog, over
   files of these formats.
2. A row that does not fit its format is an error, and not a row of nulls, unless the options say so.
3. A compressed file that Spark would misread is refused by its ending and first byte.
4. What is not part of PySpark is a package for the setting ``spark.jars.packages``. A message names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streamsrt.backfill.errors import ArchiveError, BackfillError

FILES = ("parquet", "json", "csv", "orc", "avro")
VERSIONED = ("delta", "iceberg")
TABLE = "table"
FORMATS = (*FILES, *VERSIONED, TABLE)

_BLOCKS = (".lz4", ".snappy")
_NEVER_UNPACKED = (
    ".xz",
    ".lzma",
    ".zip",
    ".7z",
    ".rar",
    ".br",
    ".lzo",
    ".tar",
    ".tgz",
    ".tar.gz",
    ".tar.bz2",
    ".tar.zst",
)
_FIELD = re.compile(r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^:`]+)): (?P<type>.*)", re.DOTALL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
VERIFY_CHECKSUMS = "parquet.page.verify-checksum.enabled"
"""The setting by which Hadoop's reader compares Parquet's pages with the checksums that they may have."""
_STRICT = {
    "json": {"mode": "FAILFAST"},
    # Else Spark looks at no more fields of a line than a query needs, and finds nothing wrong with it; and it takes the
    # columns of all files by place, in the order of one file's header.
    "csv": {"mode": "FAILFAST", "columnPruning": "false", "enforceSchema": "false"},
    # Files may have got columns in the course of time.
    "parquet": {"mergeSchema": "true", VERIFY_CHECKSUMS: "true"},
    "orc": {"mergeSchema": "true"},
}


@dataclass(frozen=True, slots=True)
class SparkVersions:
    """The versions that packages of Spark are built for. ``hadoop`` is empty if it is not known."""

    spark: str
    hadoop: str


def has_scheme(path: str) -> bool:
    """Whether a path names its file system."""
    return _SCHEME.match(path) is not None


def check_format(topic: str, name: str) -> None:
    """Raises BackfillError for a format that there is not."""
    if name not in FORMATS:
        raise BackfillError(f"the lake of {topic} has the format {name!r}, which is unknown: give {', '.join(FORMATS)}")


def reader_options(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's reader: those that were given, over those that keep it from leaving anything out."""
    given = {option.lower() for option in options}
    return {key: value for key, value in _STRICT.get(name, {}).items() if key.lower() not in given} | dict(options)


def check_packed(path: str, first_byte: int | None) -> None:
    """Raises ArchiveError for a compressed text file that Spark can't unpack. ``first_byte``: of its content, None where
    that is unknown.

    Files with the endings .lz4 and .snappy are read as Hadoop's blocks, which begin with a length. The frames that other
    programs write look like very long blocks, for which Spark's process runs out of memory and ends.
    """
    ending = packed_ending(path)
    if ending in _BLOCKS:
        if first_byte in (0, None):
            return
        why = f"has the ending {ending}, but is not in the blocks of Hadoop, which Spark expects there"
    elif ending:
        why = f"has the ending {ending}, which Spark can't unpack"
    else:
        return
    raise ArchiveError(f"{path} {why}: unpack it, or pack it again with gzip or zstd (.gz, .zst)")


def packed_ending(path: str) -> str:
    """The ending of a compressed file that Spark can't unpack, or only some of; empty for any other file."""
    name = path.rpartition("/")[2].lower()
    return next((ending for ending in (*_BLOCKS, *_NEVER_UNPACKED) if name.endswith(ending)), "")


def mixed_fields(schema: str) -> tuple[str, ...]:
    """The fields that hold values of several types, of a schema as ``schema_of_variant_agg`` writes it: VARIANT somewhere in
    their type."""
    inner = schema.removeprefix("ARRAY<").removeprefix("OBJECT<")
    depth, quoted, start, parts = 0, False, 0, []
    for index, letter in enumerate(inner):
        quoted ^= letter == "`"
        if not quoted:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and depth == 0:
                parts.append(inner[start:index])
                start = index + 1
    found = (_FIELD.match(part.strip()) for part in (*parts, inner[start:]))
    return tuple(
        (each["quoted"] or each["plain"]).replace("``", "`") for each in found if each and "VARIANT" in each["type"]
    )


def package_of_format(name: str, versions: SparkVersions) -> str:
    """Returns the remedy if Spark does not know a format."""
    if name == "avro":
        # Not of every patch there is a package, and that of another one does.
        minor = ".".join(versions.spark.split(".")[:2])
        return (
            f"{_packages(f'org.apache.spark:spark-avro_2.13:{minor}.0')}. If it can't be downloaded, convert the files to "
            "Parquet"
        )
    if name == "delta":
        extension = "io.delta.sql.DeltaSparkSessionExtension"
        catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        remedy = (
            f"{_packages('io.delta:delta-spark_2.13:4.2.0')} --conf spark.sql.extensions={extension} "
            f"--conf spark.sql.catalog.spark_catalog={catalog}"
        )
        if versions.spark.startswith("4.2."):
            return remedy
        return (
            f"{remedy}. This package is made for Spark 4.2: if it fails with Spark {versions.spark}, install PySpark 4.2 "
            "(pip install 'pyspark>=4.2,<4.3'), or take a later package of Delta"
        )
    minor = ".".join(versions.spark.split(".")[:2])
    return (
        f"{_packages(f'org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:VERSION')}. If there is none (for "
        "Spark 4.2 there was none when this version was made, and those for 4.1 do not load), export the table to Parquet"
    )


def package_of_scheme(location: str, versions: SparkVersions) -> str:
    """Returns the remedy if Spark does not have the file system of a location."""
    found = _SCHEME.match(location)
    scheme = found[1] if found is not None else ""
    modules = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "gs": "hadoop-gcp"}
    if scheme == "s3":
        return "write s3a:// in place of s3://"
    if scheme not in modules:
        return f"give the package and the settings of a Hadoop file system for {scheme}://, with --conf"
    hadoop = versions.hadoop or "VERSION, that of Spark's Hadoop"
    return f"{_packages(f'org.apache.hadoop:{modules[scheme]}:{hadoop}')}, and what the file system needs to log in"


def _packages(coordinate: str) -> str:
    return f"give --conf spark.jars.packages={coordinate}"
