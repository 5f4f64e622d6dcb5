"""The schemas of the orders in Avro and Protobuf, for programs in Python; those in Java are made of the same files.

Programs of other runtimes import it too, so it needs nothing but fastavro's and protobuf's own modules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILES = Path(__file__).resolve().parent / "java"


def _records(name: str) -> dict[str, dict[str, Any]]:
    """By name."""
    protocol = json.loads((_FILES / name).read_text(encoding="utf-8"))
    return {each["name"]: {"namespace": protocol["namespace"], **each} for each in protocol["types"]}


AVRO = _records("orders.avpr")
USED = _records("used.avpr")["Order"]
"""The fields of orders that the programs use."""
ORDER_SUBJECT, TOTAL_SUBJECT = "orders-value", "totals-value"
"""Under which they are registered."""
PROTOBUF = (_FILES / "orders.proto").read_text(encoding="utf-8")


def message_classes() -> tuple[Any, Any]:
    """The classes of Order and Total, as protoc would generate them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    types = {"int32": kinds.TYPE_INT32, "int64": kinds.TYPE_INT64, "string": kinds.TYPE_STRING}
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="bench", syntax="proto3")
    for line in PROTOBUF.splitlines():
        words = line.strip().rstrip(";").split()
        if words[:1] == ["message"]:
            message = file.message_type.add(name=words[1])
        elif line.startswith("  "):
            repeated = words[0] == "repeated"
            kind, name, _, number = words[-4:]
            field = message.field.add(name=name, number=int(number))
            field.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in types:
                field.type = types[kind]
            else:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".bench.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    order, total = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bench.{name}")) for name in ("Order", "Total")
    )
    return order, total
