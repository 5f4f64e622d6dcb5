"""The settings of the broker and of topics, by Kafka's names, with their types, defaults and bounds.

1. A setting is known, or it is one of Kafka's that this broker does not act on (``kafka_settings``), or it is refused: a
   typing mistake is named together with the nearest known key.
2. Values arrive as text (command line, properties file, admin requests) and are parsed once, here.
3. A topic's setting that is not given falls back to the broker's setting of the same meaning (``log.retention.ms`` for
   ``retention.ms``), as in Kafka.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from coordinator.group.settings import InvalidConfigError

Value = int | float | bool | str | tuple[str, ...]


class ConfigType(IntEnum):
    """Kafka's ``ConfigDef.Type`` as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting: its key, type, default and allowed values."""

    key: str
    type: ConfigType
    default: Value
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    broker_key: str | None = None
    documentation: str = ""

    def parse(self, text: str) -> Value:
        """Parses the value. Raises :class:`InvalidConfigError`."""
        text = text.strip()
        if self.type == ConfigType.BOOLEAN:
            return self._boolean(text)
        if self.type in (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD):
            return self._choice(text)
        if self.type == ConfigType.LIST:
            return tuple(self._choice(part.strip()) for part in text.split(",") if part.strip())
        return self._number(text)

    def render(self, value: Value) -> str:
        """Formats a value, as Kafka prints it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _boolean(self, text: str) -> bool:
        if text.lower() not in {"true", "false"}:
            raise InvalidConfigError(f"Invalid value {text} for configuration {self.key}: expected true or false.")
        return text.lower() == "true"

    def _choice(self, text: str) -> str:
        if self.allowed and text not in self.allowed:
            raise InvalidConfigError(
                f"Invalid value {text} for configuration {self.key}: expected one of {', '.join(self.allowed)}."
            )
        return text

    def _number(self, text: str) -> int | float:
        number = _double(text) if self.type == ConfigType.DOUBLE else _integer(text, _BITS[self.type])
        if number is None:
            raise InvalidConfigError(
                f"Invalid value {text[:100]} for configuration {self.key}: not a number of type {self.type.name}."
            )
        if self.minimum is not None and number < self.minimum:
            raise InvalidConfigError(
                f"Invalid value {text} for configuration {self.key}: must be at least {self.minimum:g}."
            )
        if self.maximum is not None and number > self.maximum:
            raise InvalidConfigError(
                f"Invalid value {text} for configuration {self.key}: must be at most {self.maximum:g}."
            )
        return number


def _double(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _integer(text: str, bits: int) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def nearest_key(key: str, known: Iterable[str]) -> str:
    """Returns a hint with the known key closest to a mistyped one, or nothing."""
    close = difflib.get_close_matches(key[:200], list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""


_INT_MAX = (1 << 31) - 1
_DAY_MS = 86_400_000
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _definitions(*rows: Definition) -> Mapping[str, Definition]:
    return MappingProxyType({row.key: row for row in rows})


TOPIC_CONFIGS = _definitions(
    Definition(
        "cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        allowed=("delete", "compact"),
        broker_key="log.cleanup.policy",
        documentation="What happens to old records: delete by time and size, compact by key, or both.",
    ),
    Definition(
        "compression.type",
        ConfigType.STRING,
        "producer",
        allowed=_CODECS,
        broker_key="compression.type",
        documentation="Compression of the stored batches; producer: as the producer sent them.",
    ),
    Definition(
        "delete.retention.ms",
        ConfigType.LONG,
        _DAY_MS,
        minimum=0,
        broker_key="log.cleaner.delete.retention.ms",
        documentation="How long a compacted log keeps tombstones.",
    ),
    Definition("file.delete.delay.ms", ConfigType.LONG, 60_000, minimum=0, broker_key="log.segment.delete.delay.ms"),
    Definition("flush.messages", ConfigType.LONG, (1 << 63) - 1, minimum=1, broker_key="log.flush.interval.messages"),
    Definition("flush.ms", ConfigType.LONG, (1 << 63) - 1, minimum=0, broker_key="log.flush.interval.ms"),
    Definition(
        "index.interval.bytes",
        ConfigType.INT,
        4096,
        minimum=0,
        broker_key="log.index.interval.bytes",
        documentation="How many bytes of a log there are per index entry.",
    ),
    Definition(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        (1 << 63) - 1,
        minimum=1,
        broker_key="log.cleaner.max.compaction.lag.ms",
        documentation="Maximum time before a record is compacted.",
    ),
    Definition(
        "max.message.bytes",
        ConfigType.INT,
        1_048_588,
        minimum=0,
        broker_key="message.max.bytes",
        documentation="Maximum size of a record batch.",
    ),
    Definition(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        3_600_000,
        minimum=0,
        broker_key="log.message.timestamp.after.max.ms",
        documentation="How far a timestamp may be ahead of the clock.",
    ),
    Definition(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        (1 << 63) - 1,
        minimum=0,
        broker_key="log.message.timestamp.before.max.ms",
        documentation="How far a timestamp may be behind the clock.",
    ),
    Definition(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        allowed=("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
        documentation="Which timestamp a record has: the producer's, or the time of the append.",
    ),
    Definition(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        0.5,
        minimum=0,
        maximum=1,
        broker_key="log.cleaner.min.cleanable.ratio",
        documentation="Minimum share of new records in a log before it is compacted.",
    ),
    Definition(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        0,
        minimum=0,
        broker_key="log.cleaner.min.compaction.lag.ms",
        documentation="Minimum time before a record is compacted.",
    ),
    Definition("min.insync.replicas", ConfigType.INT, 1, minimum=1, broker_key="min.insync.replicas"),
    Definition("preallocate", ConfigType.BOOLEAN, False, broker_key="log.preallocate"),
    Definition(
        "retention.bytes",
        ConfigType.LONG,
        -1,
        minimum=-1,
        broker_key="log.retention.bytes",
        documentation="How many bytes of a partition are kept; -1: all.",
    ),
    Definition(
        "retention.ms",
        ConfigType.LONG,
        7 * _DAY_MS,
        minimum=-1,
        broker_key="log.retention.ms",
        documentation="How long records are kept; -1: for ever.",
    ),
    Definition(
        "segment.bytes",
        ConfigType.INT,
        1 << 30,
        minimum=14,
        maximum=_INT_MAX,
        broker_key="log.segment.bytes",
        documentation="Maximum size of a segment.",
    ),
    Definition("segment.index.bytes", ConfigType.INT, 10 << 20, minimum=4, broker_key="log.index.size.max.bytes"),
    Definition("segment.jitter.ms", ConfigType.LONG, 0, minimum=0, broker_key="log.roll.jitter.ms"),
    Definition(
        "segment.ms",
        ConfigType.LONG,
        7 * _DAY_MS,
        minimum=1,
        broker_key="log.roll.ms",
        documentation="Maximum time before the next segment is started, even if this one is not full.",
    ),
    Definition(
        "unclean.leader.election.enable", ConfigType.BOOLEAN, False, broker_key="unclean.leader.election.enable"
    ),
)
"""What CreateTopics and IncrementalAlterConfigs take for a topic."""

_OWN = (
    Definition(
        "advertised.host",
        ConfigType.STRING,
        "",
        documentation="Host that clients connect to; empty: the one that the broker listens on.",
    ),
    Definition(
        "advertised.port",
        ConfigType.INT,
        0,
        minimum=0,
        maximum=65535,
        documentation="Port that clients connect to; 0: the one that the broker listens on.",
    ),
    Definition(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        documentation="Whether everybody may use a resource that has no ACL.",
    ),
    Definition(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        allowed=("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        documentation="Authorizer that checks ACLs; empty: none, and everybody may do everything.",
    ),
    Definition(
        "auto.create.topics.enable",
        ConfigType.BOOLEAN,
        False,
        documentation="Whether a topic is created when a client asks for it.",
    ),
    Definition("broker.id", ConfigType.INT, 1, minimum=0, documentation="Number of this broker, as clients see it."),
    Definition("broker.rack", ConfigType.STRING, "", documentation="Rack of this broker."),
    Definition(
        "cluster.id",
        ConfigType.STRING,
        "",
        documentation="Id of the cluster; empty: generated at the first start and kept in the data directory.",
    ),
    Definition(
        "connections.max.idle.ms",
        ConfigType.LONG,
        600_000,
        minimum=1,
        documentation="A connection without requests is closed after this time.",
    ),
    Definition(
        "default.replication.factor",
        ConfigType.INT,
        1,
        minimum=1,
        maximum=1,
        documentation="Replicas of a new topic. There is one broker, so 1.",
    ),
    Definition("delete.topic.enable", ConfigType.BOOLEAN, True, documentation="Whether topics can be deleted."),
    Definition(
        "fetch.max.bytes",
        ConfigType.INT,
        55 << 20,
        minimum=1024,
        documentation="Maximum number of bytes in the response to a fetch, whatever the client asks for.",
    ),
    Definition(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        15_000,
        minimum=1,
        documentation="How long compaction waits when there is nothing to compact.",
    ),
    Definition(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        128 << 20,
        minimum=1 << 20,
        documentation="Memory for the keys of a log that is compacted.",
    ),
    Definition("log.cleaner.enable", ConfigType.BOOLEAN, True, documentation="Whether logs are compacted."),
    Definition(
        "log.fsync",
        ConfigType.STRING,
        "interval",
        allowed=("never", "interval", "group"),
        documentation="When data is flushed to disk: by the operating system, at an interval, or before it is acknowledged.",
    ),
    Definition(
        "log.fsync.interval.ms", ConfigType.LONG, 1000, minimum=1, documentation="Interval of log.fsync=interval."
    ),
    Definition(
        "log.retention.check.interval.ms",
        ConfigType.LONG,
        300_000,
        minimum=1,
        documentation="How often expired segments are deleted.",
    ),
    Definition("max.connections", ConfigType.INT, 10_000, minimum=1, documentation="Maximum number of connections."),
    Definition(
        "max.connections.per.ip",
        ConfigType.INT,
        2_000,
        minimum=0,
        documentation="Maximum number of connections from one address.",
    ),
    Definition(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        documentation="Other maxima for single addresses: 10.0.0.1:5000,127.0.0.1:10000",
    ),
    Definition(
        "max.incremental.fetch.session.cache.slots",
        ConfigType.INT,
        1_000,
        minimum=0,
        documentation="Maximum number of fetch sessions: of clients whose requests name only the partitions that changed.",
    ),
    Definition(
        "message.max.unpacked.bytes",
        ConfigType.INT,
        64 << 20,
        minimum=1 << 20,
        documentation="Maximum unpacked size of a produced batch, where each record and each header counts 64 bytes more "
        "than its size; for all batches of a request together, four times as much.",
    ),
    Definition(
        "num.partitions",
        ConfigType.INT,
        1,
        minimum=1,
        maximum=10_000,
        documentation="Partitions of a new topic, if the request does not say how many.",
    ),
    Definition(
        "offsets.retention.check.interval.ms",
        ConfigType.LONG,
        600_000,
        minimum=1,
        documentation="How often expired committed offsets are deleted.",
    ),
    Definition(
        "offsets.retention.minutes",
        ConfigType.INT,
        10_080,
        minimum=1,
        documentation="How long a group without members keeps its committed offsets.",
    ),
    Definition(
        "offsets.topic.num.partitions",
        ConfigType.INT,
        1,
        minimum=1,
        maximum=50,
        documentation="Partitions of the log of groups and offsets.",
    ),
    Definition(
        "offsets.topic.segment.bytes",
        ConfigType.INT,
        100 << 20,
        minimum=1024,
        documentation="Size of the segments of that log.",
    ),
    Definition(
        "transaction.max.timeout.ms",
        ConfigType.INT,
        900_000,
        minimum=1,
        documentation="Maximum transaction.timeout.ms that a producer may set.",
    ),
    Definition(
        "transaction.state.log.num.partitions",
        ConfigType.INT,
        1,
        minimum=1,
        maximum=50,
        documentation="Partitions of the log of transactions.",
    ),
    Definition(
        "transaction.state.log.segment.bytes",
        ConfigType.INT,
        100 << 20,
        minimum=1024,
        documentation="Size of the segments of that log.",
    ),
    Definition(
        "transactional.id.expiration.ms",
        ConfigType.INT,
        604_800_000,
        minimum=1,
        documentation="How long a transactional id that nobody uses is kept.",
    ),
    Definition(
        "plain.sasl.jaas.config",
        ConfigType.PASSWORD,
        "",
        documentation='Users of SASL PLAIN, as the options of PlainLoginModule: user_NAME="PASSWORD" ...',
    ),
    Definition(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("SCRAM-SHA-512",),
        allowed=SASL_MECHANISMS,
        documentation="Mechanisms that clients may use to log in.",
    ),
    Definition(
        "queued.max.request.bytes",
        ConfigType.LONG,
        128 << 20,
        minimum=-1,
        documentation="Memory for large requests, and as much again for responses that wait to be read; -1: no bound.",
    ),
    Definition(
        "security.protocol",
        ConfigType.STRING,
        "PLAINTEXT",
        allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        documentation="Protocol of the listener.",
    ),
    Definition(
        "ssl.client.auth",
        ConfigType.STRING,
        "none",
        allowed=("none", "requested", "required"),
        documentation="Whether clients must present a certificate.",
    ),
    Definition("ssl.key.password", ConfigType.PASSWORD, "", documentation="Password of the private key."),
    Definition(
        "ssl.keystore.location",
        ConfigType.STRING,
        "",
        documentation="PEM file with the private key and its certificate chain.",
    ),
    Definition(
        "ssl.principal.mapping.rules",
        ConfigType.STRING,
        "DEFAULT",
        documentation="Rules that map a distinguished name to a principal: RULE:pattern/replacement/[LU], DEFAULT.",
    ),
    Definition(
        "ssl.truststore.location",
        ConfigType.STRING,
        "",
        documentation="PEM file with the authorities that sign clients' certificates.",
    ),
    Definition(
        "socket.request.max.bytes",
        ConfigType.INT,
        100 << 20,
        minimum=1024,
        documentation="Maximum size of a Produce request.",
    ),
    Definition(
        "super.users", ConfigType.STRING, "", documentation="Principals that may do everything: User:ada;User:bob"
    ),
)

BROKER_CONFIGS = _definitions(
    *_OWN,
    *(
        Definition(
            row.broker_key,
            row.type,
            row.default,
            row.minimum,
            row.maximum,
            row.allowed,
            documentation=row.documentation,
        )
        for row in TOPIC_CONFIGS.values()
        if row.broker_key is not None
    ),
)
"""What ``--config`` and ``--properties`` take, beside the group coordinator's own settings."""


_IN_COARSER_UNITS = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
}
COARSER_KEYS = frozenset(key for keys in _IN_COARSER_UNITS.values() for key, _ in keys)
"""Names under which Kafka takes some settings in minutes or hours; the one in milliseconds goes before them."""


def in_milliseconds(texts: Mapping[str, str]) -> dict[str, str]:
    """Converts settings in minutes and hours to milliseconds. Raises :class:`InvalidConfigError`."""
    found = {key: text for key, text in texts.items() if key not in COARSER_KEYS}
    for target, coarser in _IN_COARSER_UNITS.items():
        for key, factor_ms in coarser:
            if key in texts:
                count = Definition(key, ConfigType.INT, 0, minimum=-1).parse(texts[key])
                assert isinstance(count, int)
                found.setdefault(target, str(count * factor_ms if count > 0 else count))
    return found


def topic_defaults(broker: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the defaults of topics: the broker's settings of the same meaning."""
    return {
        key: broker.get(row.broker_key, row.default) if row.broker_key else row.default
        for key, row in TOPIC_CONFIGS.items()
    }


def parse_configs(
    pairs: Mapping[str, str], definitions: Mapping[str, Definition], *, what: str, others: Iterable[str] = ()
) -> dict[str, Value]:
    """Parses settings. Raises :class:`InvalidConfigError` for an unknown key (with the nearest) or a bad value."""
    parsed: dict[str, Value] = {}
    for key, text in pairs.items():
        definition = definitions.get(key)
        if definition is None:
            raise InvalidConfigError(f"Unknown {what} config name: {key}.{nearest_key(key, [*definitions, *others])}")
        parsed[key] = definition.parse(text)
    return parsed
