"""Columns of files that were written by several versions of a program."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructType

from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.spark.avro_files import columns_of_all

INT, LONG, TEXT = IntegerType(), LongType(), StringType()


class Headers:
    """What Spark says of files, by their paths."""

    def __init__(self, schemas: dict[str, StructType], schema: StructType) -> None:
        self._schemas = schemas
        self.schema = schema

    def load(self, path: str) -> Headers:
        return Headers(self._schemas, self._schemas[path])


def struct(**columns: DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind, nullable=False)
    return found


def merged(**schemas: StructType) -> str:
    paths = [(f"file:/lake/{path}", path) for path in schemas]
    return columns_of_all(Headers(schemas, StructType()), paths, "words").simpleString()  # type: ignore[arg-type]


def test_a_column_is_there_if_any_file_has_it() -> None:
    assert merged(a=struct(k=TEXT, n=LONG), b=struct(n=LONG, x=TEXT), c=struct(k=TEXT, n=LONG)) == (
        "struct<k:string,n:bigint,x:string>"
    )
    one, other = struct(x=INT), struct(y=INT)
    for outer, shown in (
        (lambda kind: kind, "{}"),
        (ArrayType, "array<{}>"),
        (lambda kind: MapType(TEXT, kind), "map<string,{}>"),
    ):
        both = shown.format("struct<x:int,y:int>")
        assert merged(a=struct(at=outer(one)), b=struct(at=outer(other))) == f"struct<at:{both}>"


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (INT, TEXT, "lake/b, of the lake of words: column at is string, and int in file:/lake/a"),
        (struct(x=INT), struct(x=LONG), r"column at\.x is bigint, and int in"),
        (INT, ArrayType(INT), "column at is array<int>, and int in"),
    ],
)
def test_two_types_of_a_column_are_refused(one: DataType, other: DataType, says: str) -> None:
    with pytest.raises(ArchiveError, match=says):
        merged(a=struct(at=one), b=struct(at=other))
