"""Lakes with typed columns: the application's serdes write the bytes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.backfill.column_types import column_type
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.spark.encoding import RowEncodingError, SourceSerdes, encoded_column, refused_row, serde_of
from streamsrt.backfill.spark.reading import read_lake
from streamsrt.backfill.spark.scan import scan_by_spark
from streamsrt.schema_registry import SchemaRegistry
from tests.streamsrt.backfill.typed_sources import ORDER, Line, Order
from topology import serdes
from topology.spec.codecs import ProgramSerde

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERDES = SourceSerdes("tests.streamsrt.backfill.typed_sources:topology", "typed", ())
AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)

EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "count", "type": "int", "default": 7},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
    ],
}


class _KnownSchemas(SchemaRegistry):
    """Has an id for every schema, and asks nobody."""

    def id_of(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        return 1

    def schema(self, schema_id: int) -> str:
        return orjson.dumps(EVENT).decode()


REGISTRY = _KnownSchemas("http://localhost:1")


def _read(column: pa.Array, serde: ProgramSerde) -> list[Any]:
    """What a program gets of the column."""
    return [
        None if data is None else serde.deserialize(data) for data in encoded_column(column, serde, "value").to_pylist()
    ]


# ---------------------------------------------------------------------------------------------------------- each serde


def test_a_struct_is_a_model() -> None:
    rows = [
        {
            "id": 1,
            "at": AT,
            "lines": [{"product": "tea", "price": Decimal("2.50"), "tags": ["a", "b"]}],
            "note": None,
            "priority": 1,
            "extra": [("x", 5)],
        },
        None,
    ]
    line = pa.struct(
        {"product": pa.string(), "price": pa.decimal128(9, 2), "tags": pa.list_(pa.string())},
    )
    kind = pa.struct(
        {
            "id": pa.int64(),
            "at": pa.timestamp("us", tz="UTC"),
            "lines": pa.list_(line),
            "note": pa.string(),
            "priority": pa.int32(),
            "extra": pa.map_(pa.string(), pa.int64()),
        }
    )
    expected = Order(
        id=1,
        at=AT,
        lines=[Line(product="tea", price=Decimal("2.50"), tags=["a", "b"])],
        note=None,
        priority=1,
        extra={"x": 5},
    )
    assert encoded_column(pa.array(rows, kind), ORDER, "value").to_pylist() == [ORDER.serialize(expected), None]


def test_a_null_field_has_its_default_where_the_model_takes_no_null() -> None:
    row = {"id": 1, "at": AT, "lines": [], "note": None, "priority": None, "extra": None}
    kind = pa.struct(
        {
            "id": pa.int64(),
            "at": pa.timestamp("us", tz="UTC"),
            "lines": pa.list_(pa.struct({"product": pa.string(), "price": pa.string(), "tags": pa.list_(pa.string())})),
            "note": pa.string(),
            "priority": pa.int32(),
            "extra": pa.map_(pa.string(), pa.int64()),
        }
    )
    inner = {**row, "lines": [{"product": "tea", "price": "1", "tags": None}]}
    assert _read(pa.array([inner], kind), ORDER)[0].lines == [Line(product="tea", price=Decimal(1))]
    assert _read(pa.array([row], kind), ORDER) == [Order(id=1, at=AT, lines=[], note=None, priority=3, extra={})]
    with pytest.raises(RowEncodingError, match="id; Field required"):
        encoded_column(pa.array([{**row, "id": None}], kind), ORDER, "value")


def test_a_struct_is_a_record_of_avro() -> None:
    kind = pa.struct(
        {
            "id": pa.int64(),
            "at": pa.timestamp("us", tz="UTC"),
            "price": pa.decimal128(9, 2),
            "note": pa.string(),
            "count": pa.int32(),
            "sizes": pa.map_(pa.string(), pa.int32()),
        }
    )
    row = {"id": 4, "at": AT, "price": Decimal("9.99"), "note": None, "count": 2, "sizes": [("s", 1)]}
    found = _read(pa.array([row], kind), REGISTRY.avro("events-value", EVENT))
    assert found == [{**row, "sizes": {"s": 1}}]


def _message_type() -> Any:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="encoding.proto", package="encoding", syntax="proto3")
    message = file.message_type.add(name="Event")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        {"id": kinds.TYPE_INT64, "note": kinds.TYPE_STRING, "data": kinds.TYPE_BYTES}.items(), 1
    ):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="tags", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("encoding.Event"))


def test_a_struct_is_a_message_of_protobuf() -> None:
    event = _message_type()
    serde = REGISTRY.protobuf("events-value", event, 'syntax = "proto3";')
    kind = pa.struct({"id": pa.int64(), "note": pa.string(), "data": pa.binary(), "tags": pa.list_(pa.string())})
    rows = [{"id": 2**60, "note": None, "data": b"\0\xff", "tags": ["a"]}]
    assert _read(pa.array(rows, kind), serde) == [event(id=2**60, data=b"\0\xff", tags=["a"])]


def test_plain_json_has_the_fields_as_they_are() -> None:
    kind = pa.struct({"a": pa.int64(), "at": pa.timestamp("us", tz="UTC"), "day": pa.date32(), "b": pa.string()})
    rows = [{"a": 1, "at": AT, "day": date(2026, 3, 1), "b": None}]
    assert _read(pa.array(rows, kind), serdes.json) == [
        {"a": 1, "at": "2026-03-01T12:30:00+00:00", "day": "2026-03-01", "b": None}
    ]


@pytest.mark.parametrize(
    ("serde", "kind", "value"),
    [
        (serdes.long, pa.int64(), -(2**63)),
        (serdes.integer, pa.int32(), 7),
        (serdes.short, pa.int16(), -3),
        (serdes.double, pa.float64(), 0.1),
        (serdes.float, pa.float32(), 0.5),
        (serdes.boolean, pa.bool_(), True),
        (serdes.json, pa.list_(pa.int64()), [1, 2]),
    ],
    ids=str,
)
def test_numbers_and_lists(serde: ProgramSerde, kind: pa.DataType, value: object) -> None:
    assert _read(pa.array([value, None], kind), serde) == [value, None]


def test_a_text_is_a_uuid() -> None:
    text = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    assert _read(pa.array([text]), serdes.uuid) == [UUID(text)]


_ORDERS = st.builds(
    Order,
    id=st.integers(-(2**63), 2**63 - 1),
    at=st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    lines=st.lists(
        st.builds(
            Line,
            product=st.text(max_size=5),
            price=st.decimals(-1000, 1000, places=2),
            tags=st.lists(st.text(max_size=3), max_size=2),
        ),
        max_size=2,
    ),
    note=st.none() | st.text(max_size=5),
    priority=st.integers(-5, 5),
    extra=st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=2),
)


@given(st.lists(st.none() | _ORDERS, max_size=3))
def test_what_state_is_exported_as_is_encoded_as_it_was(orders: list[Order | None]) -> None:
    """Typed columns of an export, encoded again, are the same values."""
    exported = column_type(ORDER)
    column = pa.array([exported.of(order) for order in orders], exported.type)
    assert _read(column, ORDER) == orders


# --------------------------------------------------------------------------------------------------------- what is wrong


def test_a_row_that_the_serde_refuses_is_shown() -> None:
    column = pa.array([{"id": "x" * 300}])
    with pytest.raises(RowEncodingError, match=r"value \{'id': 'xxx.*\.\.\. is not of json\(Order\): .*Field required"):
        encoded_column(column, ORDER, "value")
    with pytest.raises(RowEncodingError, match=r"key 'a' is not of long: "):
        encoded_column(pa.array(["a"]), serdes.long, "key")


def test_it_is_found_in_an_error_of_spark() -> None:
    with pytest.raises(RowEncodingError) as raised:
        encoded_column(pa.array([{"id": 1}]), ORDER, "value")
    text = f"[UDF] PythonException\n  File x\nstreamsrt.x.RowEncodingError: {raised.value}\n\tat org.apache"
    found = refused_row("orders", text)
    assert found is not None
    assert "the lake of orders has a row that its serde does not take: value {'id': 1} is not of json(Order)" in str(
        found
    )
    assert "--lake-column orders.value='struct(...)', or leave such rows out with --lake-where" in str(found)
    with pytest.raises(RowEncodingError) as raised:
        encoded_column(pa.array([5]), serdes.string, "key")
    found = refused_row("orders", str(raised.value))
    assert "--lake-column orders.key='cast(... as string)'" in str(found)
    assert refused_row("orders", "something else") is None


def test_a_source_has_the_serdes_that_the_application_gives() -> None:
    assert serde_of(SERDES, "orders", "key").name == "long"
    assert serde_of(SERDES, "any", "value").name == "json"


# ------------------------------------------------------------------------------------------------------------- on Spark


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    rows = [
        {"customer": 5, "id": 1, "at": AT.isoformat(), "lines": [{"product": "tea", "price": "2.50"}], "note": "x"},
        {"customer": 6, "id": 2, "at": AT.isoformat(), "lines": [], "note": "y", "priority": 9},
        {"customer": 5, "id": 3, "at": AT.isoformat(), "lines": None, "note": "z"},
    ]
    root = tmp_path / "orders"
    root.mkdir()
    (root / "a.json").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return root


_COLUMNS = {"key": "customer", "value": "struct(id, at, lines, note, priority)", "timestamp": "cast(at as timestamp)"}


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_a_lake_of_typed_rows_is_encoded(spark: SparkSession, orders: Path) -> None:
    lake = Lake(orders, columns=_COLUMNS, format="json", where="lines is not null")
    plan, shares = scan_by_spark(spark, lake, "orders", 2, serdes=SERDES)
    rows = read_lake(spark, plan, serdes=SERDES).orderBy("value").collect()
    expected = [
        (5, Order(id=1, at=AT, lines=[Line(product="tea", price=Decimal("2.50"))], note="x")),
        (6, Order(id=2, at=AT, lines=[], note="y", priority=9)),
    ]
    assert [(bytes(row["key"]), ORDER.deserialize(bytes(row["value"]))) for row in rows] == [
        (serdes.long.serialize(key), order) for key, order in expected
    ]
    # Records without a partition go where their keys, as bytes, belong.
    assert sum(share.records for share in shares.values()) == 2


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_rows_that_the_serde_refuses_end_the_plan(spark: SparkSession, orders: Path) -> None:
    with pytest.raises(
        ArchiveError, match=r"the lake of orders has a row that its serde does not take: value .*'id': 3"
    ):
        scan_by_spark(spark, Lake(orders, columns=_COLUMNS, format="json"), "orders", 2, serdes=SERDES)
