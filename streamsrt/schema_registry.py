"""Serdes whose schemas are in a schema registry (Confluent's, Karapace's, Apicurio's compatible API): Avro, JSON, Protobuf.

    registry = SchemaRegistry("http://localhost:8081")
    orders = builder.stream("orders", key=serdes.string, value=registry.avro("orders-value", schema))

1. Bytes are those of Confluent's serializers: a zero byte, the schema's id in four, then the value (Protobuf: with the
   indexes of its message type in between).
2. A schema is registered or looked up once, when the first value is written; schemas of values read are fetched once.
   Both are HTTP requests on the processing thread. What the registry refuses is raised as SchemaRegistryError, which goes
   to the exception handlers, and is not asked again for a while. An outage of the registry does not: the records are not
   at fault.
3. The program names the subject, e.g. ``orders-value``, because a serde does not know its topic.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from streamsrt.errors import ConfigError, OutageError, StreamsError
from streamsrt.wording import error_text
from topology import serdes
from topology.spec.codecs import AvroSerde, CallableSerde, ModelSerde, ProtobufSerde

T = TypeVar("T")

_HEAD = struct.Struct(">bi")
_NOT_FOUND = 404
_ABOUT_THE_SCHEMA = frozenset({400, _NOT_FOUND, 409, 422})
"""HTTP codes of what is refused for what it is: unknown, incompatible, invalid. The registry says which in the body."""
_UNKNOWN = frozenset({40401, 40402, 40403})
"""The error codes for a subject, a version and a schema that are not there. 404 is that of a path that is not there."""
_ID_MAX = 2**31 - 1
_REFUSED_S = 10.0
"""For so long the registry is not asked again what it has refused: each record might ask."""
_REFUSALS_MAX = 1_000
_SHOWN_MAX = 300
_PROTOBUF_IN_C = "google._upb._message"
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class SchemaRegistryError(StreamsError):
    """The registry rejects a schema, or does not know one, or one of that kind. The message says which, with the registry's
    answer: register a schema that is compatible, or correct the serde."""


class SchemaRegistryUnavailableError(SchemaRegistryError, OutageError):
    """The registry can't be reached, has an error of its own (HTTP 5xx), refuses the login, or something else answers at its
    address. Start the instance again when it answers, or correct its address."""


class _Found(NamedTuple):
    """A schema of the registry. ``references``: names of types that it has from other schemas."""

    kind: str
    text: str
    references: tuple[str, ...]


class SchemaRegistry:
    """A registry at ``url``, which may contain user and password (``https://user:password@host``, with ``%40`` for ``@``).

    ``register`` False: schemas are only looked up and must exist. Schemas are cached for the process. What the registry
    refuses is cached for ten seconds of ``clock_s``.
    """

    def __init__(
        self,
        url: str,
        *,
        register: bool = True,
        timeout_s: float = 10.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = _split(url)
        self._url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
            login = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        self._register = register
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, _Found] = {}
        self._refusals: dict[tuple[str, bytes | None], tuple[float, str]] = {}

    # ------------------------------------------------------------------------------------------------------- requests

    def id_of(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """The id of a schema of that subject. Raises SchemaRegistryError."""
        known = self._ids.get((subject, schema))
        if known is None:
            path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if self._register else "")
            body = {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}
            known = self._ids[subject, schema] = self._ask(path, _id_in, body)
        return known

    def schema(self, schema_id: int, kind: str = "AVRO") -> str:
        """The schema with that id. Raises SchemaRegistryError, also for one of another kind, or with references."""
        known = self._schemas.get(schema_id)
        if known is None:
            known = self._schemas[schema_id] = self._ask(f"/schemas/ids/{schema_id}", _schema_in)
        if known.kind != kind:
            raise SchemaRegistryError(
                f"schema {schema_id} of the schema registry is of the kind {known.kind}, not {kind}"
            )
        if known.references:
            raise SchemaRegistryError(
                f"schema {schema_id} of the schema registry has references to other schemas "
                f"({', '.join(known.references)[:_SHOWN_MAX]}), which are not supported: let producers use a schema that "
                "contains these types"
            )
        return known.text

    def _ask(self, path: str, read: Callable[[dict[str, Any]], T | None], body: dict[str, Any] | None = None) -> T:
        """What ``read`` finds in the answer. None: no registry says this, so it comes from something in front of it."""
        data = None if body is None else json.dumps(body).encode()
        until_s, refusal = self._refusals.get((path, data), (0.0, ""))
        if refusal and self._clock_s() < until_s:
            raise SchemaRegistryError(refusal)
        request = urllib.request.Request(self._url + path, data, self._headers)  # http or https, see above
        try:
            code, raw = self._answer(request)
        except (OSError, HTTPException) as error:
            raise SchemaRegistryUnavailableError(
                f"the schema registry at {self._url} did not answer {path}: {error or type(error).__name__}"
            ) from None
        answer, said = _as_mapping(raw), raw.decode(errors="replace")[:_SHOWN_MAX]
        if code >= 400:
            refusal = f"the schema registry refuses {path}: {code} {said}"
            if not _is_about_the_schema(code, answer.get("error_code")):
                raise SchemaRegistryUnavailableError(refusal)
            if len(self._refusals) >= _REFUSALS_MAX:
                self._refusals.clear()
            self._refusals[path, data] = self._clock_s() + _REFUSED_S, refusal
            raise SchemaRegistryError(refusal)
        found = read(answer)
        if found is None:
            raise SchemaRegistryUnavailableError(
                f"the schema registry at {self._url} did not answer {path}, but there came: {said or 'nothing'}"
            )
        return found

    def _answer(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    # --------------------------------------------------------------------------------------------------------- serdes

    def avro(self, subject: str, schema: str | dict[str, Any]) -> CallableSerde[Any]:
        """Values as fastavro has them (records are dicts), written with ``schema`` and read into it.

        Values written with another version of the schema are resolved by Avro's rules. Fields of a topic that the program
        does not use can be left out of ``schema``: to pass over a field takes less time than to read it. Raises ConfigError
        if fastavro is not installed, or for an invalid schema.
        """
        try:
            import fastavro
        except ImportError:
            raise ConfigError("Avro needs fastavro: pip install 'streamsrt[avro]'") from None
        wrong = (ValueError, TypeError, LookupError, fastavro.schema.SchemaParseException)
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            own: Any = fastavro.parse_schema(json.loads(text))
        except wrong as error:
            raise ConfigError(f"the schema of {subject!r} is not a valid Avro schema: {error_text(error)}") from None
        from streamsrt.avro.kernels import Read, Write
        from streamsrt.avro.values import deserializer, reader_of, serializer, writer_of

        def find_writer() -> tuple[Write, bytes]:
            head = _HEAD.pack(0, self.id_of(subject, text))
            return writer_of(own), head

        def find_reader(data: bytes) -> Read:
            schema_id = _schema_id(data)
            parts = json.loads(self.schema(schema_id))
            origin = f"schema {schema_id} of the schema registry"
            try:
                return reader_of(fastavro.parse_schema(parts), own, origin)
            except wrong as error:
                raise SchemaRegistryError(f"{origin} is not a valid Avro schema: {error_text(error)}") from None

        name = f"registry_avro({subject})"
        return AvroSerde(name, serializer(find_writer), deserializer(find_reader), own)

    def json(self, subject: str, model: type[T]) -> CallableSerde[T]:
        """Values of a type as ``serdes.json(model)`` takes it; the schema is generated from the type."""
        from pydantic import TypeAdapter

        inner, adapter = serdes.json(model), TypeAdapter(model)
        text = json.dumps(adapter.json_schema(), sort_keys=True)

        write, read = inner.serialize, inner.deserialize
        head = b""

        def serialize(value: T) -> bytes:
            nonlocal head
            if not head:
                head = _HEAD.pack(0, self.id_of(subject, text, "JSON"))
            return head + write(value)

        def deserialize(data: bytes) -> T:
            if len(data) < _HEAD.size or data[0]:
                _schema_id(data)
            return read(data[_HEAD.size :])

        return ModelSerde(f"registry_json({subject})", serialize, deserialize, adapter)

    def protobuf(self, subject: str, message: type[T], schema: str) -> CallableSerde[T]:
        """Messages of a class generated by protoc; ``schema`` is the text of its ``.proto`` file."""
        from streamsrt.wire.kernels import message_reader

        made: Any = message
        indexes, parse = _message_indexes(made.DESCRIPTOR), made.FromString
        head, behind_head = b"", _HEAD.size + len(indexes)
        alike = {made}

        def serialize(value: Any) -> bytes:
            nonlocal head
            # Its bytes would be read as if they were of this class.
            if type(value) not in alike:
                if not _is_same_message(getattr(value, "DESCRIPTOR", None), made.DESCRIPTOR):
                    raise _other_message(made, value)
                alike.add(type(value))
            raw: bytes = value.SerializeToString()
            if not head:
                head = _HEAD.pack(0, self.id_of(subject, schema, "PROTOBUF")) + indexes
            return head + raw

        def deserialize(data: bytes) -> T:
            found: T
            # Messages of this type, as nearly all are: zero, the id in four bytes, its indexes. To look up a name instead of
            # this number would take a tenth of the time that such a message takes.
            if data[5:behind_head] == indexes and not data[0]:
                found = parse(data[behind_head:])
                return found
            _schema_id(data)
            found = parse(data[_behind_indexes(data) :])
            return found

        def message_of(fields: object) -> T:
            from google.protobuf.json_format import ParseDict

            found: T = ParseDict(fields, made())
            return found

        name = f"registry_protobuf({subject}, {made.DESCRIPTOR.full_name})"
        # Only of Protobuf's own library in C it is known that what was read from a message outlives what becomes of it.
        again = made.ParseFromString if type(made).__module__ == _PROTOBUF_IN_C else None
        read = message_reader(parse, deserialize, again, indexes) or deserialize
        return ProtobufSerde(name, serialize, read, message_of)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError(f"a schema registry has a URL such as http://localhost:8081, not {url!r}")
    return parts


def _as_mapping(raw: bytes) -> dict[str, Any]:
    """JSON; empty for what is none, or no mapping."""
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_same_message(given: Any, wanted: Any) -> bool:
    """Whether a class of another descriptor pool was made from the same ``.proto`` files."""
    if getattr(given, "full_name", None) != wanted.full_name:
        return False
    left = [(given.file, wanted.file)]
    while left:
        mine, others = left.pop()
        if mine.serialized_pb != others.serialized_pb:
            return False
        left += zip(mine.dependencies, others.dependencies, strict=True)
    return True


def _is_about_the_schema(code: int, error_code: object) -> bool:
    """Whether a registry refuses a schema. Its error codes begin with the HTTP code; a proxy has none of them."""
    if code not in _ABOUT_THE_SCHEMA or type(error_code) is not int:
        return False
    return error_code in _UNKNOWN if code == _NOT_FOUND else code in (error_code, error_code // 100)


def _id_in(answer: dict[str, Any]) -> int | None:
    found = answer.get("id")
    return found if type(found) is int and 0 <= found <= _ID_MAX else None


def _schema_in(answer: dict[str, Any]) -> _Found | None:
    text, kind = answer.get("schema"), answer.get("schemaType") or "AVRO"
    if not isinstance(text, str) or (kind == "AVRO" and not _is_json(text)):
        return None
    references = answer.get("references")
    named = [each for each in references if isinstance(each, dict)] if isinstance(references, list) else []
    return _Found(str(kind), text, tuple(str(each.get("name")) for each in named))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _other_message(message: Any, value: Any) -> TypeError:
    descriptor = getattr(value, "DESCRIPTOR", None)
    given = getattr(descriptor, "full_name", type(value).__name__)
    if given == message.DESCRIPTOR.full_name:
        given = f"one of another class with that name ({type(value).__module__})"
    return TypeError(f"registry.protobuf takes a {message.DESCRIPTOR.full_name}, not {given}")


def _schema_id(data: bytes) -> int:
    if len(data) < _HEAD.size or data[0]:
        raise ValueError("it does not begin with a schema id: it was not written by a serializer of a schema registry")
    schema_id: int = _HEAD.unpack_from(data)[1]
    return schema_id


def _message_indexes(descriptor: Any) -> bytes:
    """Where in its file a message type stands, from the outside in; the first one of the file is a single zero."""
    indexes: list[int] = []
    while descriptor is not None:
        around = descriptor.containing_type
        siblings = descriptor.file.message_types_by_name.values() if around is None else around.nested_types
        indexes.insert(0, [each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = around
    return b"\0" if indexes == [0] else b"".join(map(_zigzag, (len(indexes), *indexes)))


def _zigzag(number: int) -> bytes:
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _behind_indexes(data: bytes) -> int:
    def number(at: int) -> tuple[int, int]:
        found = shift = 0
        while at < len(data):
            found |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                return found >> 1, at
        raise ValueError("it ends within the numbers of its message type")

    count, at = number(_HEAD.size)
    for _ in range(count):
        _, at = number(at)
    return at
