"""Serdes with schemas in a registry, against a registry of the test's own."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Callable, Iterator
from socketserver import BaseRequestHandler, TCPServer
from threading import Thread
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2
from google.protobuf.message import DecodeError, EncodeError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from streamsrt.errors import ConfigError, DeserializationError, ProductionError
from streamsrt.schema_registry import (
    SchemaRegistry,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    _behind_indexes,
    _schema_id,
)
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.schema_registry import Registry, running_registry
from topology import StreamsBuilder, serdes


@pytest.fixture
def server() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, *fields]}


CENTS = {"name": "cents", "type": "long", "default": 7}


def test_avro_has_the_bytes_of_confluents_serializer(server: Registry) -> None:
    serde = SchemaRegistry(server.url).avro("orders-value", schema(CENTS))
    data = serde.serialize({"id": "ab", "cents": 3})
    assert data == b"\0\0\0\0\1" + b"\x04ab" + b"\x06"
    assert serde.deserialize(data) == {"id": "ab", "cents": 3}
    serde.serialize({"id": "cd", "cents": 4})
    assert server.asked == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]
    assert json.loads(server.schemas[0]["schema"]) == schema(CENTS)


def test_an_older_schema_is_read_into_the_new_one(server: Registry) -> None:
    old, new = (SchemaRegistry(server.url).avro("o", each) for each in (schema(), json.dumps(schema(CENTS))))
    assert new.deserialize(old.serialize({"id": "ab"})) == {"id": "ab", "cents": 7}


class Order(BaseModel):
    id: str
    cents: int


def test_json_with_a_schema_made_of_the_model(server: Registry) -> None:
    serde = SchemaRegistry(server.url).json("orders-value", Order)
    data = serde.serialize(Order(id="ab", cents=3))
    assert data == b'\0\0\0\0\1{"id":"ab","cents":3}'
    assert serde.deserialize(data) == Order(id="ab", cents=3)
    assert server.schemas[0]["schemaType"] == "JSON"
    assert set(json.loads(server.schemas[0]["schema"])["properties"]) == {"id", "cents"}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (descriptor_pb2.FileDescriptorSet(), b"\0"),
        (wrappers_pb2.StringValue(value="ab"), b"\x02\x0e"),
        (descriptor_pb2.DescriptorProto.ExtensionRange(start=300), b"\x04\x04\x00"),
    ],
    ids=["first", "eighth", "nested"],
)
def test_protobuf_says_which_message_of_the_file_it_is(server: Registry, message: Any, place: bytes) -> None:
    serde = SchemaRegistry(server.url).protobuf("orders-value", type(message), 'syntax = "proto3";')
    data = serde.serialize(message)
    assert data == b"\0\0\0\0\1" + place + message.SerializeToString()
    assert serde.deserialize(data) == message
    assert server.schemas[0]["schemaType"] == "PROTOBUF"


@given(
    message=st.sampled_from(
        [descriptor_pb2.FileDescriptorSet, wrappers_pb2.StringValue, descriptor_pb2.DescriptorProto.ExtensionRange]
    ),
    place=st.sampled_from([b"\0", b"\2\0", b"\2\x0e", b"\4\4\0", b"\4\4", b"\2\x80\1", b"", b"\x80"]),
    raw=st.sampled_from([b"", b"\x0a\0", b"\x0a\2ab", b"\x08\5", b"\x0a\x7f", b"\0"]),
    magic=st.sampled_from([0, 0, 1]),
)
def test_messages_are_read_whatever_their_place_in_the_file(message: Any, place: bytes, raw: bytes, magic: int) -> None:
    """The numbers of a message type are passed over, also where they are those of another one, or are longer than needed."""
    serde = SchemaRegistry("http://localhost").protobuf("orders-value", message, 'syntax = "proto3";')
    data = bytes([magic, 0, 0, 0, 1]) + place + raw

    def outcome(read: Callable[[bytes], Any]) -> object:
        try:
            found = read(data)
        except (ValueError, DecodeError) as error:
            return type(error), str(error)
        return type(found), found.SerializeToString()

    def plainly(value: bytes) -> Any:
        _schema_id(value)
        return message.FromString(value[_behind_indexes(value) :])

    assert outcome(serde.deserialize) == outcome(plainly)


def test_an_application_with_them(server: Registry) -> None:
    registry = SchemaRegistry(server.url)
    orders = registry.avro("orders-value", schema(CENTS))
    builder = StreamsBuilder()
    totals = builder.stream("orders", key=serdes.string, value=orders).group_by_key()
    totals.reduce(lambda one, other: {**one, "cents": one["cents"] + other["cents"]}, store="totals").to_stream().to(
        "out"
    )
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("orders", serdes.string, orders)
        source.pipe_key_values([("k", {"id": "a", "cents": 1}), ("k", {"id": "b", "cents": 2})])
        driver.restart()
        source.pipe_input("k", {"id": "c", "cents": 4})
        result = driver.create_output_topic("out", serdes.string, orders)
        assert [value["cents"] for value in result.read_values_to_list() if value] == [1, 3, 7]


HANDLERS = {
    "deserialization.exception.handler": "continue",
    "production.exception.handler": "continue",
    "errors.dead.letter.queue.topic.name": "letters",
}


@pytest.mark.parametrize("code", [500, 503, 429, 401])
@pytest.mark.parametrize("where", ["reading", "writing"])
def test_an_outage_is_no_fault_of_a_record(server: Registry, code: int, where: str) -> None:
    orders = SchemaRegistry(server.url).avro("orders-value", schema(CENTS))
    letter = SchemaRegistry(server.url).avro("orders-value", schema(CENTS)).serialize({"id": "a", "cents": 1})
    builder = StreamsBuilder()
    if where == "reading":
        builder.stream("in", key=serdes.string, value=orders).map_values(lambda v: v["id"]).to(
            "out", value=serdes.string
        )
    else:
        stream = builder.stream("in", key=serdes.string, value=serdes.bytes)
        stream.map_values(lambda v: {"id": "a", "cents": 1}).to("out", value=orders)
    with TopologyTestDriver(builder.build(), HANDLERS) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.bytes)
        server.failure = code
        with pytest.raises((DeserializationError, ProductionError), match="record is not at fault") as failure:
            source.pipe_input("k", letter)
        assert failure.value.exit_code == 3
        assert isinstance(failure.value.__cause__, SchemaRegistryUnavailableError)
        server.failure = None
        driver.restart()
        result = driver.create_output_topic("out", serdes.string, serdes.bytes)
        assert result.read_value() in (b"a", letter)
        assert driver.create_output_topic("letters", serdes.bytes, serdes.bytes).is_empty()


def test_a_field_of_another_type_is_a_fault_of_the_record(server: Registry) -> None:
    orders = SchemaRegistry(server.url).avro("orders-value", schema(CENTS))
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.json).to("out", value=orders)
    with TopologyTestDriver(builder.build(), HANDLERS) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.json)
        for value in ({"id": None, "cents": 1}, {"id": "a", "cents": "1"}, {"id": "b", "cents": 1}):
            source.pipe_input("k", value)
        assert driver.create_output_topic("out", serdes.string, orders).read_values_to_list() == [
            {"id": "b", "cents": 1}
        ]
        letters = driver.create_output_topic("letters", serdes.string, serdes.json)
        assert [value["cents"] for value in letters.read_values_to_list()] == [1, "1"]


def test_a_schema_of_another_kind_is_told(server: Registry) -> None:
    registry = SchemaRegistry(server.url)
    data = registry.json("orders-value", Order).serialize(Order(id="a", cents=1))
    with pytest.raises(SchemaRegistryError, match="schema 1 of the schema registry is of the kind JSON, not AVRO"):
        registry.avro("orders-value", schema()).deserialize(data)


def test_a_header_that_ends_too_early_is_told(server: Registry) -> None:
    serde = SchemaRegistry(server.url).protobuf("p", wrappers_pb2.StringValue, "syntax = ...")
    for cut in (b"\0\0\0\0\1", b"\0\0\0\0\1\x80", b"\0\0\0\0\1\4\2"):
        with pytest.raises(ValueError, match="it ends within the numbers of its message type"):
            serde.deserialize(cut)


def test_schemas_may_have_to_be_there_already(server: Registry) -> None:
    clock = Clock()
    looking = SchemaRegistry(server.url, register=False, clock_s=clock)
    with pytest.raises(SchemaRegistryError, match=r"refuses /subjects/orders-value: 404 .*Schema not found"):
        looking.json("orders-value", Order).serialize(Order(id="a", cents=1))
    SchemaRegistry(server.url).json("orders-value", Order).serialize(Order(id="a", cents=1))
    clock.now_s += 10
    assert looking.json("orders-value", Order).serialize(Order(id="a", cents=1))[:5] == b"\0\0\0\0\1"


def test_user_and_password_are_sent(server: Registry) -> None:
    SchemaRegistry(server.url.replace("//", "//ada:secret@")).id_of("s", '"string"')
    assert server.login == "Basic " + base64.b64encode(b"ada:secret").decode()


def test_bytes_of_another_format_and_unknown_schemas_are_refused(server: Registry) -> None:
    registry = SchemaRegistry(server.url)
    for serde in (registry.avro("o", schema()), registry.json("o", Order)):
        with pytest.raises(ValueError, match="it does not begin with a schema id"):
            serde.deserialize(b"{}")
    with pytest.raises(SchemaRegistryError, match="/schemas/ids/9: 404"):
        registry.avro("o", schema()).deserialize(b"\0\0\0\0\x09ab")


def test_a_registry_that_is_not_there_is_named(server: Registry) -> None:
    gone = Registry()
    gone.server_close()
    with pytest.raises(SchemaRegistryError, match=r"did not answer /schemas/ids/1"):
        SchemaRegistry(gone.url).schema(1)


class Clock:
    """A clock that the test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


WAYS = ("reading Avro", "writing Avro", "writing JSON", "writing Protobuf")


def once(registry: SchemaRegistry, what: str) -> object:
    """Reads a value with the schema id 1, or writes one."""
    match what:
        case "writing JSON":
            return registry.json("o", Order).serialize(Order(id="a", cents=1))
        case "writing Protobuf":
            return registry.protobuf("o", wrappers_pb2.StringValue, "syntax = ...").serialize(
                wrappers_pb2.StringValue()
            )
        case "writing Avro":
            return registry.avro("o", schema()).serialize({"id": "a"})
    return registry.avro("o", schema()).deserialize(b"\0\0\0\0\1\x02a")


def test_a_schema_that_is_not_known_is_not_asked_for_with_each_record(server: Registry) -> None:
    clock = Clock()
    registry = SchemaRegistry(server.url, clock_s=clock)
    serde = registry.avro("o", schema())
    for _ in range(50):
        with pytest.raises(SchemaRegistryError, match="refuses /schemas/ids/1: 404"):
            serde.deserialize(b"\0\0\0\0\1\x02a")
    assert server.asked == ["GET /schemas/ids/1"]
    server.schemas.append({"schema": json.dumps(schema())})
    clock.now_s += 10
    assert serde.deserialize(b"\0\0\0\0\1\x02a") == {"id": "a"}
    assert len(server.asked) == 2


@pytest.mark.parametrize("what", WAYS[1:])
def test_a_schema_that_is_refused_is_not_registered_with_each_record(server: Registry, what: str) -> None:
    clock = Clock()
    registry = SchemaRegistry(server.url, clock_s=clock)
    server.failure = 409
    for _ in range(20):
        with pytest.raises(SchemaRegistryError, match="refuses /subjects/o/versions: 409") as refused:
            once(registry, what)
        assert not isinstance(refused.value, SchemaRegistryUnavailableError)
    assert len(server.asked) == 1
    server.failure = None
    clock.now_s += 10
    assert once(registry, what)
    assert len(server.asked) == 2


def test_the_refusals_that_are_remembered_are_not_too_many(server: Registry) -> None:
    registry = SchemaRegistry(server.url, clock_s=Clock())
    for schema_id in (*range(1, 1_002), 1_001, 1):
        with pytest.raises(SchemaRegistryError):
            registry.schema(schema_id)
    assert len(server.asked) == 1_002, "the first one was forgotten"


def test_an_outage_is_over_when_the_registry_answers(server: Registry) -> None:
    registry = SchemaRegistry(server.url, clock_s=Clock())
    server.failure = 503
    for what in WAYS:
        with pytest.raises(SchemaRegistryUnavailableError):
            once(registry, what)
    server.failure = None
    server.schemas.append({"schema": json.dumps(schema())})
    assert all(once(registry, what) for what in WAYS)


def test_a_schema_of_another_kind_is_fetched_once(server: Registry) -> None:
    server.schemas.append({"schema": "syntax", "schemaType": "PROTOBUF"})
    registry = SchemaRegistry(server.url)
    for _ in range(3):
        with pytest.raises(SchemaRegistryError, match="is of the kind PROTOBUF, not AVRO"):
            registry.schema(1)
    assert registry.schema(1, "PROTOBUF") == "syntax"
    assert len(server.asked) == 1


MONEY = {"name": "total", "type": "shop.Money"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            {"schema": json.dumps(schema(MONEY)), "references": [{"name": "shop.Money", "subject": "m", "version": 1}]},
            r"^schema 1 of the schema registry has references to other schemas \(shop\.Money\), which are not supported",
        ),
        (
            {"schema": json.dumps(schema(MONEY))},
            r"^schema 1 of the schema registry is not a valid Avro schema: UnknownType: shop\.Money$",
        ),
        ({"schema": "{}"}, r"^schema 1 of the schema registry is not a valid Avro schema: KeyError: "),
    ],
)
def test_a_schema_that_can_not_be_used_says_why(server: Registry, content: dict[str, Any], says: str) -> None:
    server.schemas.append(content)
    serde = SchemaRegistry(server.url).avro("o", schema())
    for _ in range(3):
        with pytest.raises(SchemaRegistryError, match=says) as refused:
            serde.deserialize(b"\0\0\0\0\1\x02a")
        assert not isinstance(refused.value, SchemaRegistryUnavailableError)
    assert len(server.asked) == 1


def _http(status: str, content: object) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


NOT_OF_A_REGISTRY = {
    "a 404 of an ingress": _http("404 Not Found", b"default backend - 404"),
    "a wrong base path": _http("404 Not Found", {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "a code as text": _http("404 Not Found", {"error_code": "40403"}),
    "no code": _http("404 Not Found", {"error_code": None}),
    "a code of its own": _http("404 Not Found", {"error_code": 7}),
    "a page for a bad request": _http("400 Bad Request", b"<h1>plain HTTP to an HTTPS port</h1>"),
    "a refusal without a code": _http("409 Conflict", {"message": "try again"}),
    "a code of another status": _http("422 Unprocessable Entity", {"error_code": 1001}),
    "an empty answer": _http("200 OK", b""),
    "a login page": _http("200 OK", b"<html>Sign in</html>"),
    "neither schema nor id": _http("200 OK", {}),
    "null": _http("200 OK", {"schema": None, "id": None}),
    "numbers": _http("200 OK", {"schema": 5, "id": 1.5}),
    "a broken schema": _http("200 OK", {"schema": '{"type": ', "id": True}),
    "an id below 0": _http("200 OK", {"schema": {}, "id": -1}),
    "an id of more than 32 bits": _http("200 OK", {"schema": [], "id": 1 << 31}),
    "another server's page": b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n<h1>No</h1>",
    "a wrong path": b'HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n{"error_code": 404}',
    "a page of maintenance": b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n<h1>...</h1",
    "JSON of something else": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    "an answer that is cut off": b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"schema": ',
    "a refusal that is cut off": b'HTTP/1.1 404 Not Found\r\nContent-Length: 90\r\n\r\n{"error_code": 40403',
    "no HTTP": b"220 mail\r\n",
}


@pytest.mark.parametrize("what", NOT_OF_A_REGISTRY)
def test_what_no_registry_says_is_an_outage(what: str) -> None:
    """A proxy in front of it says so while the registry is down: the records are not at fault, and it is not kept."""

    class Other(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(NOT_OF_A_REGISTRY[what])

    with TCPServer(("127.0.0.1", 0), Other) as other:
        registry = SchemaRegistry(f"http://127.0.0.1:{other.server_address[1]}")
        for way in (*WAYS, *WAYS):
            Thread(target=other.handle_request).start()
            with pytest.raises(SchemaRegistryUnavailableError, match="the schema registry"):
                once(registry, way)


def test_a_password_may_have_any_character(server: Registry) -> None:
    SchemaRegistry(server.url.replace("//", "//ada%40x:se%3Acret%2F@")).id_of("s", '"string"')
    assert server.login == "Basic " + base64.b64encode(b"ada@x:se:cret/").decode()


def test_an_address_of_ip_version_6_keeps_its_brackets() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        url = f"http://[::1]:{taken.getsockname()[1]}"
        with pytest.raises(
            SchemaRegistryUnavailableError, match=re.escape(f"the schema registry at {url} did not answer")
        ):
            SchemaRegistry(url).schema(1)


@pytest.mark.parametrize("url", ["localhost:8081", "ftp://host", "http://", "http://host:port", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="has a URL such as"):
        SchemaRegistry(url)


@pytest.mark.parametrize("wrong", ["{", "{}", "5", "null", '{"type": "record"}', '{"type": "no such type"}'])
def test_a_schema_that_is_none_is_refused(server: Registry, wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"the schema of 'o' is not a valid Avro schema"):
        SchemaRegistry(server.url).avro("o", wrong)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (wrappers_pb2.Int64Value(value=7), "google.protobuf.Int64Value"),
        ({"value": "text"}, "dict"),
        ("text", "str"),
    ],
)
def test_messages_of_another_class_are_a_mistake_of_the_program(server: Registry, value: object, name: str) -> None:
    """Their fields would be read as others."""
    serde = SchemaRegistry(server.url).protobuf("out-value", wrappers_pb2.StringValue, "syntax = ...")
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.string).map_values(lambda _: value).to("out", value=serde)
    handlers = {"production.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dlq"}
    with TopologyTestDriver(builder.build(), handlers) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        expected = f"takes a google.protobuf.StringValue, not {name} .* is an error in the program"
        with pytest.raises(ProductionError, match=expected):
            source.pipe_input("k", "v")
    assert not server.schemas


def test_the_same_message_of_another_pool_is_written(server: Registry) -> None:
    """As of a module that was imported twice."""
    serde = SchemaRegistry(server.url).protobuf("out-value", wrappers_pb2.StringValue, "syntax = ...")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    twin = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.StringValue"))
    assert twin is not wrappers_pb2.StringValue
    assert serde.deserialize(serde.serialize(twin(value="one"))) == wrappers_pb2.StringValue(value="one")
    other = descriptor_pb2.FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb)
    other.message_type.add(name="More")
    changed = descriptor_pool.DescriptorPool()
    changed.Add(other)
    stranger = message_factory.GetMessageClass(changed.FindMessageTypeByName("google.protobuf.StringValue"))
    with pytest.raises(TypeError, match="another class with that name"):
        serde.serialize(stranger(value="one"))


def test_a_message_without_a_required_field_fails_when_it_is_written(server: Registry) -> None:
    part = descriptor_pb2.UninterpretedOption.NamePart
    serde = SchemaRegistry(server.url).protobuf("out-value", part, 'syntax = "proto2";')
    found = serde.deserialize(serde.serialize(part(name_part="a", is_extension=True))[:-2])
    assert (found.name_part, found.HasField("is_extension")) == ("a", False)
    with pytest.raises(EncodeError, match="is_extension"):
        serde.serialize(found)
