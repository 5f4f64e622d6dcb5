"""What real formats cost: ``python -m tests.bench.bench_formats [--rounds 5] [name ...]``.

JSON, Avro and Protobuf of 300 bytes. Two programs over orders, in process as in :mod:`tests.bench.bench_operators`: filter
and map, in the format again; and filter and sum per key, with the sums in the same format. ``read`` and ``write`` are one
call of the serde, ``x library`` both as multiples of the calls of the library under it: orjson, pydantic's core, fastavro,
protobuf. CPU time, medians of interleaved rounds. There is no schema registry: it is asked once per process only.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from streamsrt.runtime.tuning import tune_process
from streamsrt.schema_registry import SchemaRegistry
from tests.bench.bench_operators import T0, Row, encoded, fresh
from tests.bench.measure import compare
from topology import StreamsBuilder, Topology, serdes
from topology.spec.codecs import ProgramSerde

RECORDS, KEYS = 20_000, 1_000
CALLS = 2_000


class Known(SchemaRegistry):
    """Knows every schema, each by the same id."""

    def __init__(self) -> None:
        super().__init__("http://localhost")
        self._text = ""

    def id_of(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        self._text = schema
        return 1

    def schema(self, schema_id: int) -> str:
        return self._text


# ------------------------------------------------------------------------------------------------------- the formats


FIELDS = {
    "id": (str, "string"),
    "customer": (str, "string"),
    "amount": (float, "double"),
    "currency": (str, "string"),
    "status": (str, "string"),
    "country": (str, "string"),
    "note": (str, "string"),
    "created": (int, "long"),
    "tags": (list[str], {"type": "array", "items": "string"}),
}


class OrderModel(BaseModel):
    id: str
    customer: str
    amount: float
    currency: str
    status: str
    country: str
    note: str
    created: int
    tags: list[str]


@dataclass
class OrderData:
    id: str
    customer: str
    amount: float
    currency: str
    status: str
    country: str
    note: str
    created: int
    tags: list[str]


class OrderDict(TypedDict):
    id: str
    customer: str
    amount: float
    currency: str
    status: str
    country: str
    note: str
    created: int
    tags: list[str]


AVRO = {"type": "record", "name": "Order", "fields": [{"name": n, "type": avro} for n, (_, avro) in FIELDS.items()]}


def protobuf_class() -> Any:
    """The class that protoc would generate."""
    kinds = descriptor_pb2.FieldDescriptorProto
    types = {str: kinds.TYPE_STRING, float: kinds.TYPE_DOUBLE, int: kinds.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(name="bench/order.proto", package="bench", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, (kind, _)) in enumerate(FIELDS.items(), 1):
        label = kinds.LABEL_REPEATED if kind == list[str] else kinds.LABEL_OPTIONAL
        order.field.add(name=name, number=number, type=types.get(kind, kinds.TYPE_STRING), label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Order"))


class Format(NamedTuple):
    """``make``: an order of its fields. ``amount``, ``with_amount``: what the program does. ``read``, ``write``: what the
    library does."""

    serde: ProgramSerde
    make: Callable[[dict[str, Any]], Any]
    amount: Callable[[Any], float]
    with_amount: Callable[[Any, float], Any]
    read: Callable[[bytes], object]
    write: Callable[[Any], bytes]


def _of_fields(serde: ProgramSerde, read: Callable[[bytes], object], write: Callable[[Any], bytes]) -> Format:
    return Format(serde, dict, lambda o: o["amount"], lambda o, amount: {**o, "amount": amount}, read, write)


def _of_type(model: Any, make: Callable[[dict[str, Any]], Any]) -> Format:
    core = TypeAdapter(model)

    def with_amount(order: Any, amount: float) -> Any:
        if isinstance(order, BaseModel):
            return order.model_copy(update={"amount": amount})
        return replace(order, amount=amount)

    return Format(
        serdes.json(model),
        make,
        lambda o: o.amount,
        with_amount,
        core.validator.validate_json,
        core.serializer.to_json,
    )


def _avro() -> Format:
    schema = fastavro.parse_schema(AVRO)

    def write(order: Any) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, schema, order)
        return out.getvalue()

    # The library reads what the serde wrote, behind the five bytes of the schema's id.
    def read(data: bytes) -> object:
        return fastavro.schemaless_reader(BytesIO(data[5:]), schema, None)

    return _of_fields(Known().avro("orders-value", AVRO), read, write)


def _protobuf() -> Format:
    message = protobuf_class()

    def with_amount(order: Any, amount: float) -> Any:
        changed = message()
        changed.CopyFrom(order)
        changed.amount = amount
        return changed

    return Format(
        Known().protobuf("orders-value", message, "syntax = 'proto3';"),
        lambda fields: message(**fields),
        lambda o: o.amount,
        with_amount,
        lambda data: message.FromString(data[6:]),
        lambda order: order.SerializeToString(),
    )


def formats() -> dict[str, Format]:
    typed = TypeAdapter(OrderDict)
    return {
        "json": _of_fields(serdes.json, orjson.loads, orjson.dumps),
        "json, pydantic model": _of_type(OrderModel, lambda fields: OrderModel(**fields)),
        "json, dataclass": _of_type(OrderData, lambda fields: OrderData(**fields)),
        "json, TypedDict": _of_fields(serdes.json(OrderDict), typed.validator.validate_json, typed.serializer.to_json),
        "avro": _avro(),
        "protobuf": _protobuf(),
    }


# ------------------------------------------------------------------------------------------------------- the programs


def mapped(each: Format) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in", key=serdes.bytes, value=each.serde)
    kept = orders.filter(lambda _, order: each.amount(order) > 50.0)
    kept.map_values(lambda order: each.with_amount(order, 1.0)).to("out", key=serdes.bytes, value=each.serde)
    return builder.build()


def aggregated(each: Format) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in", key=serdes.bytes, value=each.serde)
    kept = orders.filter(lambda _, order: each.amount(order) > 50.0)
    sums = kept.group_by_key().reduce(
        lambda before, order: each.with_amount(order, each.amount(before) + each.amount(order)), store="sums"
    )
    sums.to_stream().to("out", key=serdes.bytes, value=each.serde)
    return builder.build()


PROGRAMS: dict[str, Callable[[Format], Topology]] = {"filter + map": mapped, "filter + aggregate": aggregated}


def orders(count: int) -> Iterable[dict[str, Any]]:
    chance = random.Random(1)
    for number in range(count):
        yield {
            "id": f"order-{number:08d}",
            "customer": f"customer-{chance.randrange(KEYS):06d}",
            "amount": round(chance.uniform(1.0, 200.0), 2),
            "currency": "EUR",
            "status": chance.choice(["paid", "open", "sent"]),
            "country": chance.choice(["DE", "FR", "ES"]),
            "note": "leave it at the door, please, and ring the bell twice; " + chance.randbytes(16).hex(),
            "created": T0 + number,
            "tags": ["new", "web", chance.choice(["gift", "promotion", "regular"])],
        }


def rows(each: Format) -> list[Row]:
    chance = random.Random(2)
    return [
        ("in", b"key-%05d" % chance.randrange(KEYS), each.serde.serialize(each.make(fields)), T0 + number)
        for number, fields in enumerate(orders(RECORDS))
    ]


def called(function: Callable[[Any], object], arguments: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for argument in arguments:
            function(argument)

    return run


def round_of(name: str, folder: Path) -> Callable[[], object]:
    """One round of a program over a format: ``filter + map: json``."""
    program, _, format_name = name.partition(": ")
    each = formats()[format_name]
    return fresh(PROGRAMS[program](each), encoded(rows(each)), folder, together=1)


def main() -> None:
    known = formats()
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_formats")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known)}; all without")
    given = parser.parse_args()
    names = given.names or list(known)
    tune_process()
    variants: dict[str, Callable[[], object]] = {}
    folder = Path(tempfile.mkdtemp(prefix="bench-formats-"))
    try:
        for name in names:
            each = known[name]
            values = [each.make(fields) for fields in orders(CALLS)]
            raw = [each.serde.serialize(value) for value in values]
            variants |= {
                f"{name} read": called(each.serde.deserialize, raw),
                f"{name} write": called(each.serde.serialize, values),
                f"{name} read by library": called(each.read, raw),
                f"{name} write by library": called(each.write, values),
            }
            variants |= {f"{name} {program}": round_of(f"{program}: {name}", folder) for program in PROGRAMS}
        seconds = compare(variants, given.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{'':24}{'read, us':>10}{'write, us':>10}{'x library':>12}" + "".join(f"{p + ', k/s':>26}" for p in PROGRAMS)
    )
    for name in names:
        read, write = seconds[f"{name} read"], seconds[f"{name} write"]
        of_library = (
            f"{read / seconds[f'{name} read by library']:.2f} {write / seconds[f'{name} write by library']:.2f}"
        )
        rates = "".join(f"{RECORDS / seconds[f'{name} {program}'] / 1e3:26.0f}" for program in PROGRAMS)
        print(f"{name:24}{read / CALLS * 1e6:10.2f}{write / CALLS * 1e6:10.2f}{of_library:>12}{rates}")


if __name__ == "__main__":
    main()
