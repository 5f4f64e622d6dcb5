"""Reads the schema table: messages, their structs and fields, versions, API keys; builds the message classes.

Rules: a message is parsed and its class built at the first use, so that an import costs nothing; one class serves all
versions of a message; a field that a version lacks keeps its default when decoded and is left out when encoded. The
grammar of the table is in :mod:`streamsrt.wire.schema_table`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from streamsrt.wire.primitives import ZERO_UUID
from streamsrt.wire.private_messages import PRIVATE_TABLE
from streamsrt.wire.schema_table import KAFKA_VERSION, TABLE

__all__ = [
    "KAFKA_VERSION",
    "ApiKey",
    "Field",
    "Message",
    "MessageSchema",
    "Request",
    "Struct",
    "is_flexible",
    "message_class",
    "message_names",
    "message_schema",
    "named_class",
    "private_message_names",
    "version_range",
]


class ApiKey(IntEnum):
    """The numbers of the APIs that clients speak with brokers (Apache Kafka's ``ApiKeys``)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


NUMERIC: Final = ("int8", "int16", "uint16", "int32", "int64", "float64")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct. ``attribute`` is its name in Python; ``versions`` are ranges of message versions."""

    name: str
    attribute: str
    type: str
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: int | str | bytes | bool | float | None

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type of the elements of an array, else the type itself."""
        return self.type.removeprefix("[]")

    @property
    def null_by_default(self) -> bool:
        return self.default is None


# The default of arrays and structs that are not null: every message gets its own.
FRESH: Final = b"<fresh>"


@dataclass(frozen=True, slots=True)
class Struct:
    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A message with all its versions. ``structs`` are the nested ones; their names are unique in a message."""

    name: str
    kind: str
    api_key: int | None
    record_type: int | None
    versions: range
    stable_versions: range
    flexible: range
    root: Struct
    structs: dict[str, Struct]


class TableLine(NamedTuple):
    """The fixed part of a line of the table and its fields, still as text."""

    kind: str
    key: int | None
    versions: range
    stable_versions: range
    flexible: range
    body: str


def read_versions(text: str, highest: int) -> range:
    if text == "none":
        return range(0)
    low, _, high = text.rstrip("+").partition("-")
    return range(int(low), (highest if text.endswith("+") else int(high or low)) + 1)


def read_rows(table: str) -> Iterator[tuple[str, TableLine]]:
    for line in table.strip().replace("\n ", " ").split("\n"):
        head, _, body = line.partition(" ; ")
        name, kind, key, versions, flexible = head.split()
        valid = read_versions(versions.rstrip("!"), 0)
        stable = valid[:-1] if versions.endswith("!") else valid
        number = None if key == "-" else int(key)
        yield name, TableLine(kind, number, valid, stable, read_versions(flexible, valid[-1]), body)


KAFKA_ROWS: Final = dict(read_rows(TABLE))
PRIVATE_ROWS: Final = dict(read_rows(PRIVATE_TABLE))
ROWS: Final = {**KAFKA_ROWS, **PRIVATE_ROWS}
REQUESTS: Final = {row.key: row for row in ROWS.values() if row.kind == "request"}

FIELD = re.compile(
    r"(?P<name>\w+):(?P<type>[\[\]\w]+)(?:/(?P<versions>[\d+-]+))?(?P<null>\?(?P<nullable>[\d+-]*))?"
    r"(?:#(?P<tag>\d+)(?:/(?P<tagged>[\d+-]+))?)?(?:=(?P<default>\S+))?"
)


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def read_default(text: str | None, kind: str) -> int | str | bytes | bool | float | None:
    if text == "null":
        return None
    if kind in NUMERIC:
        return float(text or 0) if kind == "float64" else int(text or 0)
    simple: dict[str, str | bytes | bool] = {"bool": text == "true", "string": "", "bytes": b"", "uuid": ZERO_UUID}
    return None if kind == "records" else simple.get(kind, FRESH)


def read_field(text: str, highest: int) -> Field:
    match = FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"not a field of the schema table: {text!r}")
    versions = read_versions(match["versions"] or "0+", highest)
    nullable = versions if match["null"] == "?" else read_versions(match["nullable"] or "none", highest)
    tagged = range(0)
    if match["tag"] is not None:
        tagged = read_versions(match["tagged"], highest) if match["tagged"] else versions
    return Field(
        name=match["name"],
        attribute=snake_case(match["name"]),
        type=match["type"],
        versions=versions,
        nullable=nullable,
        tag=None if match["tag"] is None else int(match["tag"]),
        tagged=tagged,
        default=read_default(match["default"], match["type"]),
    )


@cache
def message_schema(name: str) -> MessageSchema:
    """The schema of a message by its name in Kafka, e.g. ``StreamsGroupHeartbeatRequest``; KeyError if unknown."""
    row = ROWS[name]
    highest = row.versions[-1]
    root, *nested = row.body.split(" ; ")
    structs = {}
    for text in nested:
        struct_name, *fields = text.split()
        structs[struct_name] = Struct(struct_name, tuple(read_field(f, highest) for f in fields))
    is_api = row.kind in ("request", "response")
    return MessageSchema(
        name=name,
        kind=row.kind,
        api_key=row.key if is_api else None,
        record_type=None if is_api else row.key,
        versions=row.versions,
        stable_versions=row.stable_versions,
        flexible=row.flexible,
        root=Struct(name, tuple(read_field(f, highest) for f in root.split())),
        structs=structs,
    )


def message_names() -> list[str]:
    """The names of all messages of Kafka's table, sorted."""
    return sorted(KAFKA_ROWS)


def private_message_names() -> list[str]:
    """The names of the messages that are not Kafka's, sorted."""
    return sorted(PRIVATE_ROWS)


def version_range(api_key: int) -> tuple[int, int]:
    """The lowest and the highest stable version of an API in this release of Kafka; KeyError for an unknown key."""
    stable = REQUESTS[api_key].stable_versions
    return stable[0], stable[-1]


def is_flexible(api_key: int, version: int) -> bool:
    """Whether requests and answers of this version have tagged fields (KIP-482); KeyError for an unknown key."""
    return version in REQUESTS[api_key].flexible


def message_class(api_key: int, request: bool) -> type[Message]:
    """The class of the request or of the response of an API; KeyError for an unknown key."""
    return named_class(_api_names()[api_key] + ("Request" if request else "Response"))


@cache
def _api_names() -> dict[int, str]:
    return {
        row.key: name.removesuffix("Request")
        for name, row in ROWS.items()
        if row.kind == "request" and row.key is not None
    }


class Message:
    """A message or a struct inside one. Made from keywords: what is not given has the default of Kafka's schema.

    Mutable and not hashable. ``unknown_tags`` holds tagged fields of newer versions, so that they are written again.
    """

    __slots__ = ()

    API_KEY: ClassVar[int | None] = None
    NAME: ClassVar[str] = ""
    IS_REQUEST: ClassVar[bool] = False
    SCHEMA: ClassVar[MessageSchema]
    ATTRIBUTES: ClassVar[tuple[str, ...]] = ()
    READERS: ClassVar[dict[int, Callable[..., Any]]] = {}
    WRITERS: ClassVar[dict[int, Callable[..., Any]]] = {}
    VALUES: ClassVar[Callable[[Any], tuple[object, ...]]]
    unknown_tags: dict[int, bytes] | None

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        get = type(self).VALUES
        return get(self) == get(other)

    def __repr__(self) -> str:
        default = type(self)()
        changed = [(a, getattr(self, a)) for a in self.ATTRIBUTES if getattr(self, a) != getattr(default, a)]
        return f"{type(self).__qualname__}({', '.join(f'{a}={value!r}' for a, value in changed)})"


Response = TypeVar("Response", bound=Message, covariant=True)


class Request(Message, Generic[Response]):
    """A request; ``types.pyi`` names the message that answers it, so that the sender knows the type of the response."""

    __slots__ = ()


def constructor(struct: Struct, namespace: dict[str, Any]) -> Callable[..., None]:
    """``__init__`` of a struct's class, with one keyword for each field."""
    parameters, lines = [], []
    for field in struct.fields:
        if field.default is FRESH:
            fresh = "[]" if field.is_array else f"{field.type}()"
            parameters.append(f"{field.attribute}=FRESH")
            lines.append(f"self.{field.attribute} = {fresh} if {field.attribute} is FRESH else {field.attribute}")
        else:
            parameters.append(f"{field.attribute}={field.default!r}")
            lines.append(f"self.{field.attribute} = {field.attribute}")
    source = f"def __init__(self, *, {', '.join([*parameters, 'unknown_tags=None'])}):\n    "
    source += "\n    ".join([*lines, "self.unknown_tags = unknown_tags"])
    made: dict[str, Any] = {}
    # The table is a constant of this package: nothing that a peer or a user wrote reaches this text.
    exec(source, namespace, made)
    init: Callable[..., None] = made["__init__"]
    return init


def build_struct(schema: MessageSchema, struct: Struct, namespace: dict[str, Any]) -> type[Message]:
    attributes = (*(f.attribute for f in struct.fields), "unknown_tags")
    get = attrgetter(*attributes)
    nested = struct is not schema.root
    body: dict[str, Any] = {
        "__slots__": attributes,
        "__module__": "streamsrt.wire.types",
        "__qualname__": f"{schema.name}.{struct.name}" if nested else schema.name,
        "__doc__": schema.name
        + (f" of Apache Kafka {KAFKA_VERSION}" if schema.name in KAFKA_ROWS else "")
        + (f": {struct.name}." if nested else "."),
        "__init__": constructor(struct, namespace),
        "ATTRIBUTES": attributes,
        "SCHEMA": schema,
        "NAME": struct.name,
        "VALUES": staticmethod(get if len(attributes) > 1 else lambda message: (get(message),)),
    }
    return type(struct.name, (Message if nested or schema.kind != "request" else Request,), body)


@cache
def named_class(name: str) -> type[Message]:
    """The class of a message by its name in Kafka; KeyError if there is none."""
    schema = message_schema(name)
    namespace: dict[str, Any] = {"FRESH": FRESH}
    for struct in schema.structs.values():
        namespace[struct.name] = build_struct(schema, struct, namespace)
    made = build_struct(schema, schema.root, namespace)
    made.API_KEY = schema.api_key
    made.IS_REQUEST = schema.kind == "request"
    made.READERS, made.WRITERS = {}, {}
    for struct_name in schema.structs:
        setattr(made, struct_name, namespace[struct_name])
    return made
