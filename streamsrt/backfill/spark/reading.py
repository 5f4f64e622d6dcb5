"""What Spark reads of a lake: its files or its version, the rows that the filter leaves, and records made of them.

1. A plan fixes what is read. Files are those that Spark lists, with sizes and times of their last change; a run reads these
   and no others, so what a lake gets later does not matter, and refuses where one is gone or was changed. Delta and Iceberg
   are read at the version of the plan. A table of other files must have the files that it had.
2. The types of columns are those that the lake had when the plan was made: nothing is inferred twice.
3. Nothing of a lake is left out silently: files beside the folders whose names are columns are refused.
4. Values are not changed by types that Spark infers: fields of JSON with several types are refused.
5. With an id, one row of each id is a record: the first in the order of the lake, whichever file it is in.
6. An error of Spark's becomes one sentence that names the lake and what to do (:func:`explained`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from streamsrt.backfill.errors import ArchiveError, BackfillError
from streamsrt.backfill.lake import Lake, check_unchanged, counts_nanoseconds, nanosecond_column
from streamsrt.backfill.lake_formats import (
    FILES,
    TABLE,
    VERIFY_CHECKSUMS,
    SparkVersions,
    check_packed,
    has_scheme,
    mixed_fields,
    package_of_format,
    package_of_scheme,
    packed_ending,
    reader_options,
)
from streamsrt.backfill.parquet_files import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE, opened, unreadable
from streamsrt.backfill.plan import LakeFile, LakePlan
from streamsrt.backfill.spark.avro_files import OWN_SCHEMA, columns_of_all
from streamsrt.backfill.spark.encoding import PARTS, SourceSerdes, refused_row
from streamsrt.backfill.spark.errors import file_in, last_cause, missing_module, plain_path, python_error
from streamsrt.backfill.spark.mapping import full_name, mapped, mapping_digests
from streamsrt.backfill.spark.session import hadoop_version
from streamsrt.backfill.spark.zones import by_session, check_zones

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession

SPARK_ERRORS = (PySparkException, Py4JError)
_GLOB = re.compile(r"[][{}*?\\]")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ?([^\n]+)")
_HEADER = re.compile(r"^ *(Header|Schema|Header length): *(.+)$", re.MULTILINE)
_TEXTS = ("json", "csv")
_OWN_TYPES = frozenset({"singlevariantcolumn", "primitivesasstring"})
_RECORD = (KEY, VALUE, TIMESTAMP, PARTITION, OFFSET, HEADERS)
_BYTES = ("string", "binary")
_OPAQUE = re.compile(r"\bvariant\b(?!:)")
"""Types, and not names of fields, of values that a worker gets as Spark's own bytes."""
_ROW = "__row"
_MISSING_CLASS = re.compile(r"(?:ClassNotFoundException|NoClassDefFoundError): (?:Class )?([\w.$/]+)")
_NOT_CONFIGURED = "requires the SparkSession to be configured with"
_NO_SQL = "and Spark has its package, but not its SQL"
_OTHER_SPARK = re.compile(r"java\.lang\.(?:IncompatibleClassChange|NoSuchMethod|AbstractMethod|NoSuchField)Error")
_LISTING = ("pathGlobFilter", "modifiedBefore", "modifiedAfter")
_ENTRIES = 3
_ID, _NUMBER = "__id", "__number"
_BROKEN, _PATH = "__broken", "__path"
_SHOWN = 80


# -------------------------------------------------------------------------------------------------------------- listing


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as Spark lists it."""

    path: str
    size_bytes: int
    modified_ms: int


def location_of(lake: Lake) -> str:
    """Where a lake is, as Spark takes it: a path with its file system, or the name of a table."""
    path = str(lake.path)
    named = lake.format == TABLE or (lake.format == "iceberg" and "/" not in path)
    return path if named or has_scheme(path) else f"file:{os.path.abspath(path)}"


def spark_path(path: str) -> str:
    """A path for Spark: with an explicit file system, and with wildcards escaped."""
    return _GLOB.sub(r"\\\g<0>", base_path(path))


def base_path(path: str) -> str:
    """The folder under which folders are columns: Spark expands nothing in it."""
    return path if has_scheme(path) else f"file:{path}"


def list_files(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> dict[str, ListedFile]:
    """The files with content under these paths; what begins with ``_`` or ``.`` is of the program that wrote them."""
    import pyspark.sql.functions as f

    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    for name in _LISTING:
        if name in options:
            reader = reader.option(name, options[name])
    frame = reader.load([spark_path(path) for path in paths])
    rows = frame.select("path", "length", f.unix_millis("modificationTime").alias("modified")).collect()
    found = [ListedFile(plain_path(row["path"].replace("%", "%25")), row["length"], row["modified"]) for row in rows]
    return {
        file.path: file
        for file in sorted(found, key=lambda file: file.path)
        if file.size_bytes and not file.path.rpartition("/")[2].startswith(("_", "."))
    }


def folders_of(root: str, paths: Iterable[str]) -> tuple[str, ...]:
    """The columns that folders under ``root`` name. Raises ArchiveError where they are not the same for all files."""
    prefix, first, columns = plain_path(root.replace("%", "%25")).rstrip("/") + "/", "", None
    for path in paths:
        parts = path.removeprefix(prefix).split("/")[:-1]
        found = tuple(part.partition("=")[0] for part in parts if "=" in part)
        if found and len(found) < len(parts):
            raise ArchiveError(
                f"{path} is in folders of which some are named COLUMN=VALUE and others are not: give the folder in which "
                "COLUMN=VALUE begins as the lake, or name all of them so"
            )
        if columns is not None and found != columns:
            raise ArchiveError(
                f"{path} is in folders of {', '.join(found) or 'no column'}, and {first} in folders of "
                f"{', '.join(columns) or 'no column'}: move it into such folders, or out of the lake"
            )
        first, columns = first or path, found
    return columns or ()


# -------------------------------------------------------------------------------------------------------------- reading


def described_source(spark: SparkSession, lake: Lake, topic: str) -> tuple[LakePlan, DataFrame]:
    """Returns the part of a lake that is read, without the meaning of its columns, and the rows. Raises ArchiveError,
    BackfillError."""
    by_session(spark)
    mapping = None if lake.mapping is None else full_name(lake.mapping)
    plan = LakePlan(
        topic=topic,
        files=(),
        order="",
        partitioned=False,
        headers=False,
        columns=dict(lake.columns),
        location=location_of(lake),
        format=lake.format,
        options=dict(lake.options),
        where=lake.where,
        id=lake.id,
        until_ms=lake.until_ms,
        mapping=mapping,
        mapping_modules={} if mapping is None else mapping_digests(mapping),
    )
    try:
        check_zones(spark, plan)
        plan, frame = _located(spark, plan)
        plan = plan.model_copy(update={"column_types": frame.schema.json()})
        return plan, _chosen(frame, plan)
    except SPARK_ERRORS as error:
        raise explained(spark, plan, error) from error


def _located(spark: SparkSession, plan: LakePlan) -> tuple[LakePlan, DataFrame]:
    """The plan with the lake's files or table version filled in."""
    assert plan.location is not None
    if plan.format in FILES:
        listed = list_files(spark, [plan.location], plan.options)
        if not listed:
            raise ArchiveError(f"lake {plan.location} of {plan.topic} has no files with content: check the path")
        folders = folders_of(plan.location, listed)
        reader = _reader(spark, plan)
        if not folders:
            # Else folders with other names, such as dates, would not be looked into.
            reader = reader.option("recursiveFileLookup", "true")
        if plan.format in _TEXTS:
            _check_packed(listed)
        if plan.format == "avro" and OWN_SCHEMA.isdisjoint(option.lower() for option in plan.options):
            reader = reader.schema(columns_of_all(_reader(spark, plan), _as_spark_takes(listed), plan.topic))
        frame = reader.load(spark_path(plan.location))
        if plan.format == "json":
            _check_types(reader, plan, frame)
        update = {"files": _files(listed), "root": plan.location if folders else None}
        return plan.model_copy(update=update), frame
    version = _version(spark, plan)
    plan = plan.model_copy(update={"version": version})
    frame = _versioned(spark, plan)
    if version is None:
        plan = plan.model_copy(update={"files": _files(_table_files(spark, plan, frame))})
    return plan, frame


def _as_spark_takes(listed: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in listed:
        yield path, spark_path(path)


def _check_packed(listed: Iterable[str]) -> None:
    """Raises ArchiveError for compressed files that Spark can't unpack."""
    for path in listed:
        if packed_ending(path):
            check_packed(path, _first_byte(path))


def _first_byte(path: str) -> int | None:
    """Of a file as Spark lists it; None where this process does not see it, as in object stores."""
    if not path.startswith("file:"):
        return None
    try:
        with open(path.removeprefix("file:"), "rb") as file:
            return next(iter(file.read(1)), None)
    except OSError:
        return None


def _check_types(reader: DataFrameReader, plan: LakePlan, frame: DataFrame) -> None:
    """Raises ArchiveError where the types that Spark infers for JSON change values that are read: of numbers and texts in
    one field it makes texts."""
    given = {option.lower() for option in plan.options}
    if not given.isdisjoint(_OWN_TYPES) or "string" not in frame.schema.simpleString():
        return
    import pyspark.sql.functions as f

    assert plan.location is not None
    rows = reader.option("singleVariantColumn", _ROW).load(spark_path(plan.location))
    schema = rows.select(f.schema_of_variant_agg(_ROW)).collect()[0][0]
    # A function in Python may read any of them.
    read = ["*"] if plan.mapping else []
    read += [*plan.columns.values(), *(text for text in (plan.where, plan.id) if text is not None)]
    mixed = [
        name
        for name in mixed_fields(schema or "")
        if any(name in text or "*" in text for text in read) or (name in _RECORD and name not in plan.columns)
    ]
    if mixed:
        topic, several = plan.topic, len(mixed) > 1
        raise ArchiveError(
            f"the lake of {topic} has values of several types in the field{'s' if several else ''} {', '.join(mixed)}, such "
            "as numbers and texts: Spark would make texts of them all. To read each row as it is, give --lake-option "
            f"{topic}.singleVariantColumn=row, and columns such as --lake-column {topic}.value='to_json(row)' and "
            f"--lake-column {topic}.key='row:FIELD::string'. If texts are right, give --lake-option "
            f"{topic}.primitivesAsString=true"
        )


def _files(listed: Mapping[str, ListedFile]) -> tuple[LakeFile, ...]:
    return tuple(
        LakeFile(path=file.path, records=0, size_bytes=file.size_bytes, modified_ms=file.modified_ms)
        for file in listed.values()
    )


def _reader(spark: SparkSession, plan: LakePlan) -> DataFrameReader:
    return spark.read.format(plan.format).options(**reader_options(plan.format, plan.options))


def _version(spark: SparkSession, plan: LakePlan) -> str | None:
    """The version that a lake has now; None for a table whose format keeps none."""
    assert plan.location is not None
    kind = _provider(spark, plan.location) if plan.format == TABLE else plan.format
    if kind == "delta":
        return _delta_version(spark, plan)
    if kind == "iceberg":
        named = plan.format == TABLE or "/" not in plan.location
        refs = (
            spark.read.table(f"{plan.location}.refs")
            if named
            else spark.read.format("iceberg").load(f"{plan.location}#refs")
        )
        rows = refs.where("name = 'main'").select("snapshot_id").collect()
        if not rows:
            raise ArchiveError(f"the lake of {plan.topic}, {plan.location}, has no snapshot: nothing was written to it")
        return str(rows[0]["snapshot_id"])
    return None


def _delta_version(spark: SparkSession, plan: LakePlan) -> str:
    assert plan.location is not None
    # Before its own SQL is used: whether the package is there.
    _versioned(spark, plan)
    table = plan.location if plan.format == TABLE else f"delta.`{plan.location.replace('`', '``')}`"
    try:
        return str(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])
    except PySparkException as error:
        if "[PARSE_SYNTAX_ERROR]" not in str(error):
            raise
        raise BackfillError(
            f"the lake of {plan.topic} has the format delta, {_NO_SQL}: "
            f"{package_of_format('delta', SparkVersions(spark.version, hadoop_version()))}"
        ) from error


def _provider(spark: SparkSession, table: str) -> str:
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    return next((row["data_type"] for row in rows if row["col_name"] == "Provider"), "").lower()


def _versioned(spark: SparkSession, plan: LakePlan) -> DataFrame:
    """The rows of a lake of versions at its version, or of a table."""
    assert plan.location is not None
    reader = spark.read.options(**plan.options)
    if plan.version is not None:
        kind = _provider(spark, plan.location) if plan.format == TABLE else plan.format
        reader = reader.option("versionAsOf" if kind == "delta" else "snapshot-id", plan.version)
    return reader.table(plan.location) if plan.format == TABLE else reader.format(plan.format).load(plan.location)


def _table_files(spark: SparkSession, plan: LakePlan, frame: DataFrame) -> dict[str, ListedFile]:
    paths = [plain_path(path) for path in frame.inputFiles()]
    if not paths:
        raise ArchiveError(
            f"table {plan.location}, the lake of {plan.topic}, has no files, so that a plan can't fix what is read: write "
            "it as a table of files first, or check that it has rows"
        )
    return list_files(spark, paths, {})


def _chosen(frame: DataFrame, plan: LakePlan) -> DataFrame:
    """The rows that the filter leaves, as the mapping makes them."""
    rows = frame if plan.where is None else frame.where(plan.where)
    return rows if plan.mapping is None else mapped(rows, plan.topic, plan.mapping, plan.mapping_modules)


def source_rows(spark: SparkSession, plan: LakePlan) -> DataFrame:
    """The rows of a planned lake, before its expressions."""
    if plan.location is None:
        reader = spark.read.option(VERIFY_CHECKSUMS, "true")
        if plan.root is not None:
            reader = reader.option("basePath", base_path(plan.root))
        return reader.parquet(*(spark_path(file.path) for file in plan.files))
    if plan.format not in FILES:
        return _chosen(_versioned(spark, plan), plan)
    from pyspark.sql.types import StructType

    assert plan.column_types is not None
    reader = _reader(spark, plan).schema(StructType.fromJson(json.loads(plan.column_types)))
    if plan.root is not None:
        reader = reader.option("basePath", base_path(plan.root))
    return _chosen(reader.load([spark_path(file.path) for file in plan.files]), plan)


def read_lake(
    spark: SparkSession,
    lake: LakePlan,
    rows: DataFrame | None = None,
    *also: Column,
    serdes: SourceSerdes | None = None,
) -> DataFrame:
    """The records of a lake, with the columns of a record and those of ``also``. Keys and values that are neither text nor
    bytes are encoded by ``serdes``; without any, they are refused. ``rows``: of :func:`source_rows`, where they are there
    already. Raises BackfillError where an expression is none of this lake."""
    try:
        frame = source_rows(spark, lake) if rows is None else rows
        if lake.location is None:
            return frame
        by_session(spark)
        from pyspark.sql import functions as f

        kept = [name for name in _RECORD if name in frame.columns]
        order = () if lake.order in (*kept, *lake.columns) else (lake.order,)
        plain = [f.col(name) for name in (*kept, *order) if name not in lake.columns]
        ids = () if lake.id is None else (f.expr(lake.id).alias(_ID),)
        found = frame.select(*plain, *(f.expr(text).alias(name) for name, text in lake.columns.items()), *also, *ids)
        kinds = dict(found.dtypes)
    except SPARK_ERRORS as error:
        raise explained(spark, lake, error, () if rows is None else rows.columns) from error
    _check_kinds(lake, kinds, can_encode=serdes is not None)
    for part in PARTS:
        if serdes is not None and kinds[part] not in _BYTES:
            found = found.withColumn(part, serdes.encoded(lake.topic, part, f.col(part)))
    if lake.until_ms is not None:
        is_before = as_long(found, TIMESTAMP, per_second=1_000) < lake.until_ms
        # Rows without a time are not left out silently: whoever counts them refuses them.
        found = found.where(f.coalesce(is_before, f.lit(True)))
    return found if lake.id is None else _first_of_each(found, lake)


def _first_of_each(frame: DataFrame, lake: LakePlan) -> DataFrame:
    """Of the rows with one id the first in the order of the lake. Where two differ in nothing but their file, either is."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    record = [name for name in (TIMESTAMP, KEY, VALUE, PARTITION, HEADERS) if name in frame.columns]
    order = dict.fromkeys([lake.order, *record, *(name for name in frame.columns if name not in (_ID, OFFSET))])
    numbered = frame.withColumn(_NUMBER, f.row_number().over(Window.partitionBy(_ID).orderBy(*order)))
    return numbered.where(f.col(_NUMBER) == 1).drop(_ID, _NUMBER)


def count_rows(spark: SparkSession, rows: DataFrame, lake: LakePlan, serdes: SourceSerdes | None = None) -> int:
    """Returns the number of rows of a lake with ids. Raises ArchiveError if some rows have none."""
    import pyspark.sql.functions as f

    assert lake.id is not None
    every = read_lake(spark, lake.model_copy(update={"id": None}), rows, f.expr(lake.id).alias(_ID), serdes=serdes)
    counted = every.agg(f.count("*").alias("rows"), f.count_if(f.col(_ID).isNull()).alias("lost")).collect()[0]
    if counted["lost"]:
        raise ArchiveError(
            f"the lake of {lake.topic} has {counted['lost']} rows without {lake.id}, which --lake-id names: nothing says "
            "whether they are there twice. Give an expression that every row has, or leave them out with --lake-where "
            f"{lake.topic}='{lake.id} is not null'"
        )
    return int(counted["rows"])


def _check_kinds(lake: LakePlan, kinds: Mapping[str, str], *, can_encode: bool) -> None:
    """Raises BackfillError where a column has another type than a record has."""
    integers = ("tinyint", "smallint", "int", "bigint")
    allowed = {
        TIMESTAMP: ("timestamp", "timestamp_ntz", *integers),
        PARTITION: integers,
        OFFSET: integers,
    }
    if not can_encode:
        allowed |= dict.fromkeys(PARTS, _BYTES)
    allowed.setdefault(lake.order, ("timestamp", "timestamp_ntz", *integers))
    missing = [name for name in (KEY, VALUE, TIMESTAMP) if name not in kinds]
    if missing:
        raise BackfillError(f"the lake of {lake.topic} has no {', '.join(missing)}: define it by an expression")
    for part in PARTS:
        if can_encode and _OPAQUE.search(kinds[part]):
            text = lake.columns.get(part, part)
            raise BackfillError(
                f"{part} of the lake of {lake.topic} ({text}) is {kinds[part]}, whose values only Spark can read: give "
                f"text, e.g. --lake-column {lake.topic}.{part}='to_json({text})'"
            )
    for name, wanted in allowed.items():
        if name in kinds and kinds[name] not in wanted:
            raise BackfillError(
                f"{name} of the lake of {lake.topic} ({lake.columns.get(name, name)}) is {kinds[name]}, and must be "
                f"{' or '.join(wanted)}: {_conversion(lake, name)}"
            )


def _conversion(lake: LakePlan, name: str) -> str:
    """Returns how a column gets a type that a record can have."""
    text = lake.columns.get(name, name)
    if name in PARTS:
        return f"write it as the application's serde does, e.g. cast({text} as string) or to_json(struct(*))"
    option = f"convert it, e.g. --lake-column {lake.topic}.{name}="
    if name == TIMESTAMP:
        return f"{option}'cast({text} as timestamp)'"
    if name in (PARTITION, OFFSET):
        return f"{option}'cast({text} as bigint)'"
    return f"{option}'cast({text} as timestamp)' if it is a time, or 'cast({text} as bigint)' if it is a number"


def as_long(frame: DataFrame, column: str, *, per_second: int) -> Column:
    """A column of integers as it is; a time as what has passed since 1970 in UTC, whatever zone the session has."""
    import pyspark.sql.functions as f

    kind, value = dict(frame.dtypes)[column], f.col(column)
    if kind == "timestamp":
        return f.call_function("unix_micros", value) if per_second == 1_000_000 else f.unix_millis(value)
    if kind != "timestamp_ntz":
        return value.cast("long")
    # Every cast between the two kinds of timestamps goes by the session's zone; parts of a time without one don't.
    seconds = f.extract(f.lit("SECOND"), value)
    in_day = f.hour(value).cast("long") * 3_600 + f.minute(value).cast("long") * 60
    whole = f.unix_date(value.cast("date")).cast("long") * 86_400 + in_day
    return whole * per_second + f.floor(seconds * per_second).cast("long")


# -------------------------------------------------------------------------------------------------------------- changes


def check_lake(spark: SparkSession, lake: LakePlan) -> None:
    """Raises ArchiveError where a lake is not what it was when the plan was made."""
    if lake.location is None:
        check_unchanged(lake)
        return
    check_zones(spark, lake)
    if lake.version is not None:
        # Read at that version, which fails where it is not kept any more.
        return
    try:
        if lake.format == TABLE:
            listed = _table_files(spark, lake, _versioned(spark, lake))
        else:
            listed = list_files(spark, [lake.location], lake.options)
    except SPARK_ERRORS as error:
        raise explained(spark, lake, error) from error
    changes = list(_changes(lake, listed))
    if changes:
        more = f" and {len(changes) - _ENTRIES} more" if len(changes) > _ENTRIES else ""
        raise ArchiveError(
            f"the lake of {lake.topic}, {lake.location}, was changed since the plan was made: "
            f"{', '.join(changes[:_ENTRIES])}{more}. Restore the files, or plan again in another --dir"
        )


def _changes(lake: LakePlan, listed: Mapping[str, ListedFile]) -> Iterable[str]:
    planned = {file.path: file for file in lake.files}
    for path, file in planned.items():
        now = listed.get(path)
        if now is None:
            yield f"{path} is gone"
        elif now.size_bytes != file.size_bytes:
            yield f"{path} has {now.size_bytes} bytes, not {file.size_bytes}"
        elif now.modified_ms != file.modified_ms:
            yield f"{path} was rewritten"
    if lake.format == TABLE:
        yield from (f"{path} is new" for path in listed if path not in planned)


# --------------------------------------------------------------------------------------------------------------- errors


def explained(
    spark: SparkSession, lake: LakePlan, error: Exception, columns: Collection[str] = ()
) -> ArchiveError | BackfillError:
    """Returns the error to raise for an error of Spark about a lake."""
    text = str(error)
    where, said, versions = (
        f"the lake of {lake.topic}",
        best_line(error),
        SparkVersions(spark.version, hadoop_version()),
    )
    refused = refused_row(lake.topic, text)
    if refused is not None:
        return refused
    of_file = _explained_by_file(spark, lake, text, said)
    if of_file is not None:
        return of_file
    module = missing_module(text)
    if module is not None:
        return BackfillError(
            f"{where} can't be read by Spark: its Python workers can't import {module}. Install streamsrt and the "
            "application for the Python that they run (PYSPARK_PYTHON, or --conf spark.pyspark.python), or give --bundle"
        )
    by_package = _explained_by_package(lake, text, where, versions)
    if by_package is not None:
        return by_package
    missing = _MISSING_CLASS.search(text)
    if missing is not None and ".fs." not in missing[1]:
        return BackfillError(
            f"{where}, {lake.location}: a package that Spark was given needs the class {missing[1].replace('/', '.')}, "
            "which is missing: give packages by --conf spark.jars.packages, which brings all that they need, instead of by "
            "spark.jars"
        )
    if missing is not None or "No FileSystem for scheme" in text:
        return BackfillError(
            f"{where} is on a file system that Spark does not have, {lake.location}: "
            f"{package_of_scheme(lake.location or '', versions)}"
        )
    if "[PATH_NOT_FOUND]" in text or "[TABLE_OR_VIEW_NOT_FOUND]" in text:
        what = "table" if lake.format == TABLE else "path"
        return ArchiveError(f"{where}: there is no {what} {lake.location}. Check it, and that Spark sees it")
    if "[UNRESOLVED_COLUMN" in text:
        known = f" Its columns are {', '.join(columns)}" if columns else ""
        return BackfillError(f"{where} has no such columns: {said}{known}")
    if lake.where is not None and ("[PARSE_SYNTAX_ERROR]" in text or "FILTER_NOT_BOOLEAN" in text):
        return BackfillError(f"--lake-where {lake.topic}={lake.where!r} is not a condition in Spark's SQL: {said}")
    at = f", at its version {lake.version}" if lake.version is not None else ""
    return BackfillError(f"{where} ({lake.location or lake.root}{at}) can't be read by Spark: {said}")


def _explained_by_package(lake: LakePlan, text: str, where: str, versions: SparkVersions) -> BackfillError | None:
    """Returns the error to raise where the package of a format is missing, or of another version; None if it is not that."""
    if "DATA_SOURCE_NOT_FOUND" in text or "Failed to find data source: avro" in text:
        what = f"for which Spark {versions.spark} has no package here"
    elif lake.format == "delta" and _NOT_CONFIGURED in text:
        what = _NO_SQL
    elif lake.format not in FILES and _OTHER_SPARK.search(text):
        what = f"and the package that Spark was given for it is not made for Spark {versions.spark}"
    else:
        return None
    remedy = package_of_format(lake.format if lake.format != TABLE else "iceberg", versions)
    return BackfillError(f"{where} has the format {lake.format}, {what}: {remedy}")


def _explained_by_file(spark: SparkSession, lake: LakePlan, text: str, said: str) -> ArchiveError | None:
    """Returns the error to raise where a file holds something else than what Spark can read; None if it is not that."""
    if "PARQUET_TYPE_ILLEGAL" in text and "NANOS" in text:
        return _nanoseconds(spark, lake)
    file = file_in(text)
    if file is not None and "CSV header" in text:
        return _other_header(lake, file, text)
    if file is not None:
        return unreadable(file, last_cause(text) or said)
    return _malformed(spark, lake) if "MALFORMED_RECORD_IN_PARSING" in text else None


def _malformed(spark: SparkSession, lake: LakePlan) -> ArchiveError:
    """Returns the error for rows that don't fit the format. Spark does not say in which file they are."""
    row = _broken_json(spark, lake) if lake.format == "json" else None
    advice = f"correct them; --lake-option {lake.topic}.mode=DROPMALFORMED leaves them out"
    if row is None:
        return ArchiveError(
            f"the lake of {lake.topic}, {lake.location}, has rows that are not valid {lake.format}: {advice}"
        )
    text = row[_BROKEN].strip()
    shown = repr(text[:_SHOWN]) + (" ..." if len(text) > _SHOWN else "")
    return ArchiveError(
        f"{plain_path(row[_PATH])}, of the lake of {lake.topic}, has rows that are not valid json, such as {shown}: {advice}"
    )


def _broken_json(spark: SparkSession, lake: LakePlan) -> Row | None:
    """A row that is no JSON, or not of the types of the lake; None if it can't be found."""
    import pyspark.sql.functions as f
    from pyspark.sql.types import StructType

    assert lake.location is not None
    options = {name: value for name, value in lake.options.items() if name.lower() not in _OWN_TYPES}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN, "recursiveFileLookup": "true"}
    known = StructType.fromJson(json.loads(lake.column_types)) if lake.column_types is not None else StructType()
    # Spark refuses to look at nothing but the broken rows.
    schema = known.add(_BROKEN, "string").add(_ROW, "string")
    paths = [file.path for file in lake.files] or [lake.location]
    try:
        rows = spark.read.format("json").options(**options).schema(schema).load([spark_path(path) for path in paths])
        return rows.select("*", f.col("_metadata.file_path").alias(_PATH)).where(f"{_BROKEN} is not null").first()
    except SPARK_ERRORS:
        return None


def _nanoseconds(spark: SparkSession, lake: LakePlan) -> ArchiveError:
    """Returns the error for times that Spark does not read, with the file if this process sees it."""
    paths = [file.path for file in lake.files]
    if not paths and lake.location is not None and lake.format in FILES:
        paths = list(list_files(spark, [lake.location], lake.options))
    for path in paths:
        local = Path(path.removeprefix("file:"))
        if path.startswith("file:") and local.exists():
            with opened(local) as file:
                column = nanosecond_column(file)
            if column is not None:
                return counts_nanoseconds(f"{path}: column {column}")
    return counts_nanoseconds(f"the lake of {lake.topic}, {lake.location or lake.root}: a column")


def _other_header(lake: LakePlan, path: str, text: str) -> ArchiveError:
    """Returns the error for a CSV file whose header is not that of the file from which Spark took the columns."""
    said = ", ".join(f"{name.lower()} {value.strip()}" for name, value in _HEADER.findall(text)[:2])
    return ArchiveError(
        f"{path} has another header than the columns that the lake of {lake.topic} has by another file ({said}). Rewrite "
        "one of them, or plan a backfill for each kind of file; with --lake-option "
        f"{lake.topic}.enforceSchema=true, columns are taken by place, whatever the headers say"
    )


def best_line(error: Exception) -> str:
    """The most informative line of an error."""
    text = str(error)
    raised = python_error(text)
    if raised:
        return f"a Python worker raised {raised}"
    found = _CONDITION.search(text)
    if found is not None:
        return f"[{found[1]}] {found[2]}".partition(" SQLSTATE:")[0]
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    # Of an error of Java's the first line says only through what it came.
    chosen = (
        lines[1] if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else (lines or [""])[0]
    )
    return chosen or type(error).__name__
