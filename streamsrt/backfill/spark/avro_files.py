"""The columns of a lake of Avro files: those of all of its files.

1. Spark takes the columns of one file for those of all, and leaves out silently what others have in addition. So the header
   of every file is read when the plan is made, and the columns are merged: what a file lacks is null there.
2. A column that has two types is refused: Spark would fail at it in the middle of a run.
3. Who gives Spark a schema (option ``avroSchema``) decides this himself.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from streamsrt.backfill.errors import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader

_FILES_AT_ONCE = 8
"""An object store takes its time for each."""
OWN_SCHEMA = frozenset({"avroschema", "avroschemaurl"})
"""Options of Spark's reader, in lower case, by which the user gives the columns."""


def columns_of_all(reader: DataFrameReader, paths: Iterable[tuple[str, str]], topic: str) -> StructType:
    """Returns the columns of these files. ``paths``: of each file the path as Spark lists it, and as Spark takes it. Raises
    ArchiveError where two files give a column different types, Spark's errors where a file can't be read."""
    files = list(paths)
    found, seen = StructType(), set[str]()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for (listed, _), schema in zip(files, pool.map(lambda file: reader.load(file[1]).schema, files), strict=True):
            # Most files of a lake have the same one.
            if schema.json() not in seen:
                seen.add(schema.json())
                found = _merged(found, schema, "", f"{listed}, of the lake of {topic}", files[0][0])
    return found


def _merged(one: StructType, other: StructType, inside: str, where: str, before: str) -> StructType:
    fields = {field.name: field for field in one.fields}
    for field in other.fields:
        known = fields.get(field.name)
        kind = field.dataType
        if known is not None:
            kind = _merged_type(known.dataType, kind, f"{inside}{field.name}", where, before)
        # Any file may lack it.
        fields[field.name] = StructField(field.name, kind, nullable=True)
    return StructType(list(fields.values()))


def _merged_type(one: DataType, other: DataType, name: str, where: str, before: str) -> DataType:
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _merged(one, other, f"{name}.", where, before)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged_type(one.elementType, other.elementType, name, where, before), containsNull=True)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return MapType(one.keyType, _merged_type(one.valueType, other.valueType, name, where, before), True)
    if one != other:
        raise ArchiveError(
            f"{where}: column {name} is {other.simpleString()}, and {one.simpleString()} in {before} or a file after it: "
            "rewrite the files with one type, or move those of one type into a lake of their own"
        )
    return one
