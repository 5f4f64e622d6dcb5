"""Filter, map and aggregate over orders in each format with quixstreams, which has no types for JSON: pydantic reads and
writes the values then, as users write it. What is kept as state is JSON in quixstreams, whatever the format."""

import os
from struct import Struct

# Beside this file, in no package: its folder is the last one on the path, as it has files named as runtimes are.
from order_schemas import AVRO, USED, message_classes
from order_types import OrderData, OrderDict, OrderModel, TotalData, TotalDict, TotalModel
from pydantic import TypeAdapter
from quixstreams.models import SchemaRegistryClientConfig
from quixstreams.models.serializers.avro import AvroDeserializer, AvroSerializer
from quixstreams.models.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer

LEAST_CENTS = 50_000

TYPES = {
    "pydantic": (OrderModel, TotalModel),
    "dataclass": (OrderData, TotalData),
    "typeddict": (OrderDict, TotalDict),
}


def summed(line, state):
    """Adds a line, (cents, city), to the total of its key."""
    total = state.get("total") or {"cents": 0, "orders": 0}
    total = {"cents": total["cents"] + line[0], "orders": total["orders"] + 1, "city": line[1]}
    state.set("total", total)
    return total


def of_dicts(app, source, sink, reader, writer):
    frame = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer=reader))
    (
        frame.filter(lambda order: order["cents"] >= LEAST_CENTS)
        .apply(lambda order: (order["cents"] * 2, order["address"]["city"]))
        .apply(summed, stateful=True)
        .to_topic(app.topic(sink, key_serializer="bytes", value_serializer=writer))
    )


def of_types(app, source, sink, order_type, total_type):
    read, total = TypeAdapter(order_type).validate_json, TypeAdapter(total_type)
    frame = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer="bytes")).apply(read)
    if order_type is OrderDict:
        lines = frame.filter(lambda order: order["cents"] >= LEAST_CENTS).apply(
            lambda order: (order["cents"] * 2, order["address"]["city"])
        )
    else:
        lines = frame.filter(lambda order: order.cents >= LEAST_CENTS).apply(
            lambda order: (order.cents * 2, order.address.city)
        )
    (
        lines.apply(summed, stateful=True)
        .apply(lambda fields: total.dump_json(total_type(**fields)))
        .to_topic(app.topic(sink, key_serializer="bytes", value_serializer="bytes"))
    )


def of_messages(app, source, sink, registry):
    order_class, total_class = message_classes()
    reader = ProtobufDeserializer(order_class, to_dict=False, schema_registry_client_config=registry)
    writer = ProtobufSerializer(total_class, schema_registry_client_config=registry)
    frame = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer=reader))
    (
        frame.filter(lambda order: order.cents >= LEAST_CENTS)
        .apply(lambda order: (order.cents * 2, order.address.city))
        .apply(summed, stateful=True)
        .apply(lambda total: total_class(**total))
        .to_topic(app.topic(sink, key_serializer="bytes", value_serializer=writer))
    )


def of_texts(app, source, sink):
    def line_of(text):
        fields = text.split(",")
        return int(fields[2]) * 2, fields[4]

    def added(line, state):
        cents, orders, _ = state.get("total", "0,0,").split(",")
        total = f"{int(cents) + line[0]},{int(orders) + 1},{line[1]}"
        state.set("total", total)
        return total

    frame = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer="string"))
    (
        frame.filter(lambda text: int(text.split(",", 3)[2]) >= LEAST_CENTS)
        .apply(line_of)
        .apply(added, stateful=True)
        .to_topic(app.topic(sink, key_serializer="bytes", value_serializer="string"))
    )


def of_numbers(app, source, sink):
    pack = Struct(">q").pack  # its own integers have four bytes

    def added(cents, state):
        total = state.get("total", 0) + cents
        state.set("total", total)
        return total

    frame = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer="double"))
    (
        frame.filter(lambda cents: cents >= LEAST_CENTS)
        .apply(lambda cents: int(cents) * 2)
        .apply(added, stateful=True)
        .apply(pack)
        .to_topic(app.topic(sink, key_serializer="bytes", value_serializer="bytes"))
    )


def add(app, name, source, sink):
    """The program of a format."""
    if name == "json":
        of_dicts(app, source, sink, "json", "json")
    elif name in TYPES:
        of_types(app, source, sink, *TYPES[name])
    elif name == "string":
        of_texts(app, source, sink)
    elif name == "number":
        of_numbers(app, source, sink)
    else:
        registry = SchemaRegistryClientConfig(url=os.environ["REGISTRY"])
        if name.startswith("avro"):
            reader = AvroDeserializer(USED if name == "avro-used" else None, schema_registry_client_config=registry)
            of_dicts(app, source, sink, reader, AvroSerializer(AVRO["Total"], schema_registry_client_config=registry))
        else:
            of_messages(app, source, sink, registry)
