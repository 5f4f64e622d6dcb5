"""The application's configuration: Kafka Streams' keys, checked before anything starts.

1. A key is known or refused, with the nearest known one named. ``application.id`` and ``application_id`` are the same
   key.
2. Values may be text, as from a properties file, or Python values; durations are milliseconds or ``timedelta``.
3. Settings of Kafka's and librdkafka's clients (``security.protocol``, ``sasl.*``, ``ssl.*``) are accepted unchanged.
   Keys with the prefix ``topic.`` are for the internal topics that the group coordinator creates, ``client.tag.`` for
   this instance's tags, and ``app.`` for the program's own settings.
4. Settings that this runtime does not support are refused, not ignored. In a streams group, those that the group coordinator
   decides (KIP-1071: assignment, sessions) are ignored, with a warning that names the setting of the group. In a classic
   group, the members decide them.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from streamsrt.errors import ConfigError
from streamsrt.wire.topic_settings import meant_setting
from topology import serdes
from topology.spec.names import is_legal


def _to_ms(value: object) -> object:
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    return value


Milliseconds = Annotated[int, BeforeValidator(_to_ms)]
AsGiven = Annotated[str, StringConstraints(strip_whitespace=False)]
"""A text that is not stripped: a name that is looked up elsewhere, as it was given."""
RecordingLevel = Literal["INFO", "DEBUG", "TRACE"]
EXACTLY_ONCE_COMMIT_INTERVAL_MS = 100
_RECORD_CACHES_BYTES, _STORES_BYTES, _UNCOMMITTED_BYTES = 64 << 20, 64 << 20, 16 << 20
_LEAST_MEMORY_BYTES, _LEAST_ROCKSDB_BYTES = 4 << 20, 1 << 20
STREAM_THREADS_MAX = 256
"""Each is a process with the memory of an interpreter, and connections of its own."""
_INT_MAX, _LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
_TOPIC_PREFIX, _TAG_PREFIX, _PROGRAM_PREFIX = "topic.", "client.tag.", "app."
_BELOW_PREFIXES = {"topic_configs": _TOPIC_PREFIX, "client_tags": _TAG_PREFIX, "app_configs": _PROGRAM_PREFIX}

_OF_THE_GROUP = {
    "acceptable.recovery.lag": "streams.acceptable.recovery.lag",
    "heartbeat.interval.ms": "streams.heartbeat.interval.ms",
    "max.warmup.replicas": "streams.num.warmup.replicas",
    "probing.rebalance.interval.ms": None,
    "rack.aware.assignment.non_overlap_cost": None,
    "rack.aware.assignment.strategy": None,
    "rack.aware.assignment.tags": "streams.rack.aware.assignment.tags",
    "rack.aware.assignment.traffic_cost": None,
    "session.timeout.ms": "streams.session.timeout.ms",
    "task.assignor.class": "streams.assignor.name",
}
"""Settings of Kafka Streams that the group coordinator decides, with their names as settings of the group."""

_INTS = frozenset(
    {
        "default_api_timeout_ms",
        "delivery_timeout_ms",
        "fetch_buffer_bytes",
        "fetch_max_bytes",
        "fetch_max_wait_ms",
        "fetch_min_bytes",
        "heartbeat_interval_ms",
        "http_max_rows",
        "max_partition_fetch_bytes",
        "max_poll_interval_ms",
        "max_request_size",
        "max_warmup_replicas",
        "num_stream_threads",
        "request_timeout_ms",
        "session_timeout_ms",
        "topology_epoch",
        "transaction_timeout_ms",
    }
)
"""Numbers that are of type int in Kafka; the others are of type long."""

_SECRET_WORDS = ("password", "secret", "token", "jaas")

_SERDES: Mapping[str, Any] = {
    serde.name: serde
    for serde in (
        serdes.boolean,
        serdes.bytes,
        serdes.double,
        serdes.float,
        serdes.integer,
        serdes.json,
        serdes.long,
        serdes.short,
        serdes.string,
        serdes.uuid,
        serdes.void,
    )
}
_JAVA_SERDE = re.compile(r"(?:org\.apache\.kafka\.common\.serialization\.)?Serdes\$([A-Za-z]+)Serde")
_JAVA_BYTES = ("bytearray", "bytebuffer")

logger = logging.getLogger(__name__)


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def named_serde(key: str, setting: object) -> object:
    """The serde that a text names: one of ours, or Java's class. Raises ValueError for what is none."""
    if isinstance(setting, str):
        java = _JAVA_SERDE.fullmatch(setting.strip())
        name = java[1].lower() if java else setting.strip()
        found = _SERDES.get("bytes" if java and name in _JAVA_BYTES else name)
        if found is None:
            close = difflib.get_close_matches(name, _SERDES, n=1)
            question = f": did you mean {close[0]!r}? Give" if close else ": give"
            raise ValueError(
                f"{key}={setting!r} does not name a serde{question} one of {', '.join(sorted(_SERDES))}. Give other "
                f"serdes in the program, as objects: KafkaStreams(topology, {{{key!r}: serde}}), or where a topic is "
                "declared"
            )
        return found
    methods = [getattr(setting, method, None) for method in ("serialize", "deserialize")]
    if setting is None or (not isinstance(setting, type) and all(map(callable, methods))):
        return setting
    raise ValueError(
        f"{key}={setting!r} is not a serde: give one of topology.serdes, an object with name, serialize(value) and "
        f"deserialize(data), or one of the names {', '.join(sorted(_SERDES))}"
    )


class StreamsConfig(BaseModel):
    """Settings of one application instance. Raises :class:`ConfigError` through :meth:`of`."""

    model_config = ConfigDict(
        alias_generator=_dotted,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        str_strip_whitespace=True,
        # A value may be a secret, also where StreamsConfig.of is not called.
        hide_input_in_errors=True,
    )

    # Who and where
    application_id: AsGiven = Field(min_length=1, pattern=r"^[A-Za-z0-9._-]+$", max_length=200)
    """Name of the application. It is also the name of its group and the prefix of its internal topics and transactional
    ids."""
    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """``host:port`` of one or more brokers, separated by commas. They are used to find the others."""
    client_id: str = ""
    """Name of this instance in the brokers' logs and quotas. Empty: ``streamsrt-`` and the application's id."""
    metrics_recording_level: RecordingLevel = "INFO"
    """``DEBUG``: also individual metrics of nodes, stores and RocksDB, which cost time; ``TRACE``: latencies at
    stores."""
    application_server: str = ""
    """``host:port`` at which other instances reach this one for interactive queries. Default: ``http.listen``,
    with the name of this machine where that is every address (``0.0.0.0``)."""
    http_listen: str = ""
    """``host:port`` where this instance answers queries, health and metrics over HTTP; port 0 picks a free port."""
    http_max_rows: int = Field(default=10_000, ge=1)
    """Maximum number of rows in an HTTP response, which says whether there are more."""
    group_instance_id: str | None = Field(default=None, min_length=1)
    """Makes the instance a static member: after a restart under the same id it gets its tasks back. One id per
    instance."""
    group_protocol: Literal["streams", "classic", "auto"] = "auto"
    """``auto``: the protocol of the existing group; a new group gets ``streams`` if the broker supports all of KIP-1071
    (the bundled one), else ``classic``. ``streams``: the broker assigns the tasks. ``classic``: the members do, on any
    broker from Kafka 2.8 on."""
    session_timeout_ms: Milliseconds = Field(default=45_000, ge=1)
    """How long a member may be silent before the group removes it. This setting and the next five apply to classic
    groups; a streams group has its own."""
    heartbeat_interval_ms: Milliseconds = Field(default=3_000, ge=1)
    """How often this member sends a heartbeat to the group. It must be below ``session.timeout.ms``, and should be at most
    a third of it."""
    acceptable_recovery_lag: int = Field(default=10_000, ge=0)
    """Maximum number of records left to restore for an instance to count as caught up, so that a task may move
    there."""
    max_warmup_replicas: int = Field(default=2, ge=1)
    """Maximum number of warm-up tasks at a time, in addition to standby tasks."""
    probing_rebalance_interval_ms: Milliseconds = Field(default=600_000, ge=60_000)
    """How often the group checks whether warm-up tasks have caught up, so that tasks can move."""
    rack_aware_assignment_tags: str = ""
    """Names of client tags, separated by commas. Standby tasks are distributed over different values of them."""
    state_dir: Path = Path(".streamsrt/state")
    """Directory of the state stores. Each instance needs its own."""

    # How the topology runs
    num_stream_threads: int = Field(default=1, ge=1)
    """Number of processes that share the tasks of this instance and its state directory. At most 256: for more, start more
    instances."""
    processing_guarantee: Literal["at_least_once", "exactly_once_v2"] = "at_least_once"
    """``exactly_once_v2``: input, state and output are committed in one transaction. ``at_least_once``: after a failure
    records since the last commit are processed again."""
    commit_interval_ms: Milliseconds = Field(default=30_000, ge=1)
    """How often progress is committed. With exactly once the default is 100, since results become visible when they are
    committed."""
    transaction_timeout_ms: Milliseconds = Field(default=10_000, ge=1)
    """After this time the cluster aborts the transaction of a failed instance. Until then, others wait for the state of
    its tasks."""
    cache_max_bytes: int | None = Field(default=None, ge=_LEAST_MEMORY_BYTES)
    """Memory budget for the state of all tasks: record caches, uncommitted changes, block caches and memtables. By
    default 128 MiB, of which record caches get half; or 64 MiB more than ``statestore.cache.max.bytes``."""
    statestore_cache_max_bytes: int | None = Field(default=None, ge=0)
    """Part of this budget that the record caches of all tasks get; 0 disables caching: every update is forwarded and
    logged immediately."""
    default_key_serde: Any = None
    """A serde, or the name of one of :mod:`topology.spec.serdes`."""
    default_value_serde: Any = None
    """The same for values."""
    default_timestamp_extractor: Any = None
    """Extracts the time of a record if its source does not set an extractor: a name of :mod:`topology.spec.timestamps`,
    or a function ``(record, partition_time_ms)``. None: the timestamp that the record has."""
    topology_epoch: int | None = Field(default=None, ge=0)
    """Epoch of the topology (KIP-1071): one more than that of the running version. Overrides the epoch that the topology
    was built with."""
    topology_lock: Path | None = None
    """Lock file with the agreed topology (``streamsrt topology lock``): any other topology is refused, and the epoch is
    that of the file."""
    upgrade_lose_in_flight: bool = False
    """Whether a new version may leave records unread that are in flight in repartition topics that it does not have.
    They stay there until the topics are deleted or their retention time passes, and a version that has the topic reads
    them later."""
    topology_optimization: str | None = None
    """The optimizations that the topology was built with (``builder.build(config)``). If it was built with others, this
    setting is refused."""
    processor_wrapper_class: Any = None
    """The wrapper that the topology was built with (``builder.build(config)``). If it was built without one, this setting
    is refused."""
    upgrade_from: str | None = None
    """The oldest Kafka Streams version in the group, e.g. ``3.4``, while this application replaces its Java members."""
    subtopology_id: Literal["hash", "number"] = "hash"
    """What the id of a subtopology is. ``hash``: a hash of its changelogged stores (without any, of its repartition
    topics, else of its source topics), which stays the same when other subtopologies are added. ``number``: its number
    in the topology, as in Kafka Streams."""
    num_standby_replicas: int = Field(default=0, ge=0, le=2)
    """Number of standby tasks of each stateful task. In a streams group, it becomes the group's setting
    ``streams.num.standby.replicas`` when the group is first joined."""
    max_task_idle_ms: Milliseconds = Field(default=0, ge=-1)
    """How long a task waits for records of an empty input, to process all inputs in timestamp order. -1: not at all; 0: as
    long as the broker has records that are not fetched yet; otherwise that much longer, once, until the input has records
    again."""
    emit_interval_ms_kstreams_outer_join_spurious_results_fix: Milliseconds = Field(default=0, ge=0)
    """Minimum time, by the wall clock, between two checks of a left or outer join of streams for records whose windows
    have closed. Kafka Streams has 1000; with 0, results do not depend on the wall clock."""
    max_poll_interval_ms: Milliseconds = Field(default=300_000, ge=1)
    """Maximum duration of one iteration before the instance counts as stuck. The log then names the record and the
    function."""
    rocksdb_config_setter: Any = None
    """``(store name, rocksdict.Options) -> anything``: changes the options of a store before it is opened. Memory that
    it adds is beyond the budget of ``cache.max.bytes``."""
    poll_ms: Milliseconds = Field(default=100, ge=0)
    """Maximum time that the processing thread waits for input."""
    deserialization_exception_handler: Any = "fail"
    """What happens to a record that a serde can't read: ``fail``, ``strict``, ``continue``, or a callable
    ``(context, error)`` that returns ``fail`` or ``continue``. With ``fail``, a key or value that no step reads may stay
    bytes, which then pass unchecked; with the others, every record is deserialized when it is read, as in Kafka
    Streams."""
    processing_exception_handler: Any = "fail"
    """What happens to a record for which a function of the program raised an exception: ``fail``, ``continue``, or a
    callable as above."""
    processing_exception_handler_global_enabled: bool = False
    """Whether that handler is also called for processors of global stores (KIP-1270); otherwise the first failure ends
    the thread."""
    production_exception_handler: Any = "fail"
    """The same for a result that a serde can't write or the cluster rejects; the callable may also return ``retry``."""
    errors_dead_letter_queue_topic_name: str | None = None
    """Topic for records that fail, with headers that give the reason; the built-in handlers (``fail``, ``strict``,
    ``continue``) send them there."""
    task_timeout_ms: Milliseconds = Field(default=300_000, ge=0)
    """How long a task may fail to start, for example because the leader of a partition is not known, before this is an
    error."""
    state_cleanup_delay_ms: Milliseconds = Field(default=600_000, ge=0)
    """How long the state of a task is kept after the task has moved to another instance."""
    state_cleanup_dir_max_age_ms: Milliseconds = Field(default=-1, ge=-1)
    """State that was not written to for this long is deleted when the application starts (KIP-1259); -1: never."""
    dsl_store_format: Literal["default", "headers"] = "default"
    """``headers``: rows of the DSL's stores are laid out with room for headers, which its operators leave empty."""
    dsl_store_suppliers_class: Any = "rocks_db"
    """``in_memory``: stores that name no kind are in memory. ``rocks_db``: on disk. Or a callable ``(name) -> store``
    that makes a ``streamsrt.state.store.BytesStore`` of the program's own."""
    windowstore_changelog_additional_retention_ms: Milliseconds = Field(default=86_400_000, ge=0)
    """How much longer the changelog of a window store keeps its windows than the store."""
    repartition_purge_interval_ms: Milliseconds = Field(default=30_000, ge=1)
    """How often processed records of repartition topics are deleted."""

    # How it talks to the cluster
    auto_offset_reset: Literal["earliest", "latest"] = "earliest"
    """Where to start reading an input that has no committed offset."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """``read_committed``: records of aborted transactions are skipped. This is the default with ``exactly_once_v2``."""
    fetch_min_bytes: int = Field(default=1, ge=0)
    """A broker responds to a fetch when this much data is available, or after ``fetch.max.wait.ms``."""
    fetch_max_wait_ms: Milliseconds = Field(default=500, ge=0)
    """Maximum time that a broker waits for ``fetch.min.bytes``."""
    fetch_max_bytes: int = Field(default=50 << 20, ge=1024)
    """Maximum number of bytes in the response to a fetch."""
    max_partition_fetch_bytes: int = Field(default=1 << 20, ge=1024)
    """Maximum number of bytes per partition in this response."""
    fetch_buffer_bytes: int = Field(default=64 << 20, ge=1024)
    """Maximum number of bytes that are fetched and wait for their tasks, for all partitions together. About as much may be
    with the tasks, and as much again is kept of partitions whose tasks have enough, with up to two fetches of 64 KiB, or of
    a batch, of each."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Compression of the record batches that this instance writes."""
    linger_ms: Milliseconds = Field(default=2, ge=0)
    """How long results wait for others before they are sent together. Under load, more are sent together anyway. Kafka
    Streams has 100: that saves CPU time where there are few records a second, and delays each result by 50 ms on average."""
    max_request_size: int = Field(default=1 << 20, ge=1024)
    """Maximum number of bytes in a Produce request, and thus in a record."""
    buffer_memory: int = Field(default=32 << 20, ge=1 << 20)
    """Maximum number of bytes that wait to be sent. If it is reached, processing waits."""
    delivery_timeout_ms: Milliseconds = Field(default=120_000, ge=1)
    """How long the producer tries to write a record before this is an error."""
    max_block_ms: Milliseconds = Field(default=60_000, ge=0)
    """Maximum time that processing waits for space in ``buffer.memory``, or for a transaction to begin or end."""
    request_timeout_ms: Milliseconds = Field(default=30_000, ge=1)
    """How long a request waits for its response before the connection is closed."""
    default_api_timeout_ms: Milliseconds = Field(default=30_000, ge=0)
    """How long the application waits for a broker to respond when it starts."""
    retry_backoff_ms: Milliseconds = Field(default=100, ge=0)
    """Delay before the first retry of a request; it doubles with each further retry."""
    retry_backoff_max_ms: Milliseconds = Field(default=1_000, ge=0)
    """Maximum delay before a retry."""
    reconnect_backoff_ms: Milliseconds = Field(default=50, ge=0)
    """Delay before the first attempt to reconnect; it doubles with each further attempt."""
    reconnect_backoff_max_ms: Milliseconds = Field(default=1_000, ge=0)
    """Maximum delay before an attempt to reconnect."""
    metadata_max_age_ms: Milliseconds = Field(default=300_000, ge=0)
    """How often leaders and partition counts are refreshed, even if nothing failed."""

    # Security, by the names of Kafka's and librdkafka's clients
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether connections are encrypted (``SSL``) and authenticated (``SASL``)."""
    sasl_mechanism: str = "PLAIN"
    """``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512``, ``OAUTHBEARER`` or ``GSSAPI``."""
    sasl_username: str | None = None
    """User of PLAIN and SCRAM."""
    sasl_password: str | None = Field(default=None, repr=False)
    """Password of PLAIN and SCRAM. It is never printed."""
    sasl_oauth_token_provider: Any = Field(default=None, repr=False)
    """Object with the tokens of OAUTHBEARER (``aiokafka.abc.AbstractTokenProvider``)."""
    sasl_kerberos_service_name: str = "kafka"
    """Name of the brokers' service, for GSSAPI."""
    sasl_kerberos_domain_name: str | None = None
    """Domain of the brokers, for GSSAPI, where it is not their host's name."""
    ssl_ca_location: str | None = None
    """PEM file with the trusted certificates. None: those that the machine trusts."""
    ssl_certificate_location: str | None = None
    """PEM file with this client's certificate, if brokers request one."""
    ssl_key_location: str | None = None
    """PEM file of its private key."""
    ssl_key_password: str | None = Field(default=None, repr=False)
    """Password of that file. It is never printed."""
    ssl_check_hostname: bool = True
    """Whether a broker's certificate must name the host that was connected to."""

    otel_spans: bool = False
    """OpenTelemetry spans of iterations and commits."""

    # Keys with a prefix
    topic_configs: dict[str, str] = Field(default_factory=dict)
    """``topic.KEY``: settings for internal topics. At the start, the cluster is asked whether it takes them."""
    client_tags: dict[str, str] = Field(default_factory=dict)
    """``client.tag.KEY``: tags for rack-aware standbys."""
    app_configs: dict[str, Any] = Field(default_factory=dict)
    """``app.KEY``: the program's own settings, for its processors (``context.app_configs_with_prefix("app.")``)."""

    @model_validator(mode="before")
    @classmethod
    def _collect_prefixes(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        plain: dict[str, Any] = {}
        topics = _mapping(values, "topic_configs", "topic.KEY")
        tags = _mapping(values, "client_tags", "client.tag.KEY")
        own = _mapping(values, "app_configs", "app.KEY")
        for key, value in values.items():
            if key in {"topic_configs", "topic.configs", "client_tags", "client.tags", "app_configs", "app.configs"}:
                continue
            if key.startswith(_TOPIC_PREFIX):
                topics[key.removeprefix(_TOPIC_PREFIX)] = str(value)
            elif key.startswith(_TAG_PREFIX):
                tags[key.removeprefix(_TAG_PREFIX)] = str(value)
            elif key.startswith(_PROGRAM_PREFIX):
                own[key.removeprefix(_PROGRAM_PREFIX)] = value
            else:
                plain[key] = value
        return {**plain, "topic_configs": topics, "client_tags": tags, "app_configs": own}

    @model_validator(mode="before")
    @classmethod
    def _set_defaults_of_exactly_once(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        if values.get("processing.guarantee", values.get("processing_guarantee")) != "exactly_once_v2":
            return values
        found = dict(values)
        if not {"commit.interval.ms", "commit_interval_ms"} & found.keys():
            found["commit.interval.ms"] = EXACTLY_ONCE_COMMIT_INTERVAL_MS
        if not {"isolation.level", "isolation_level"} & found.keys():
            found["isolation.level"] = "read_committed"
        return found

    @field_validator("*", mode="after")
    @classmethod
    def _fit_into_kafkas_types(cls, value: object, info: ValidationInfo) -> object:
        """Numbers are no larger than their types in Kafka."""
        name = info.field_name or ""
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if name == "num_stream_threads" and value > STREAM_THREADS_MAX:
            raise ValueError(
                f"num.stream.threads={value}: an instance has at most {STREAM_THREADS_MAX} stream threads, each a process "
                "of its own. Start more instances, each with a state directory of its own"
            )
        kind, value_max = ("an int", _INT_MAX) if name in _INTS else ("a long", _LONG_MAX)
        if value > value_max:
            raise ValueError(f"{_dotted(name)}={value} is too large: it is {kind}, at most {value_max}")
        return value

    @field_validator("default_key_serde", "default_value_serde", mode="before")
    @classmethod
    def _find_serde(cls, value: object, info: ValidationInfo) -> object:
        return named_serde(_dotted(info.field_name or ""), value)

    @field_validator("topic_configs", mode="after")
    @classmethod
    def _refuse_mistyped_topic_settings(cls, value: dict[str, str]) -> dict[str, str]:
        """Other unknown ones may be those of the cluster, which judges them at the start."""
        for key in value:
            if (meant := meant_setting(key)) is not None:
                raise ValueError(f"unknown setting 'topic.{key}': did you mean 'topic.{meant}'?")
        return value

    @model_validator(mode="after")
    def _refuse_what_cannot_be_done(self) -> StreamsConfig:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be below "
                f"session.timeout.ms={self.session_timeout_ms}, and should be at most a third of it: otherwise the group "
                "would remove this member between two heartbeats"
            )
        if self.processing_guarantee == "exactly_once_v2":
            if self.isolation_level != "read_committed":
                raise ValueError(
                    "processing.guarantee=exactly_once_v2 needs isolation.level=read_committed: uncommitted records "
                    "may be aborted later. Leave the setting out"
                )
            if self.commit_interval_ms >= self.transaction_timeout_ms:
                raise ValueError(
                    f"commit.interval.ms={self.commit_interval_ms} must be below transaction.timeout.ms="
                    f"{self.transaction_timeout_ms}: the cluster would abort every transaction before it is committed"
                )
        if self.rocksdb_bytes < _LEAST_ROCKSDB_BYTES:
            raise ValueError(
                f"statestore.cache.max.bytes={self.statestore_cache_max_bytes} leaves too little of cache.max.bytes="
                f"{self.cache_max_bytes} for RocksDB, which gets the rest and needs {_LEAST_ROCKSDB_BYTES}: cache.max.bytes "
                "is the budget of both. Raise it, or leave it out"
            )
        letters = self.errors_dead_letter_queue_topic_name
        if letters is not None and not is_legal(letters):
            raise ValueError(
                f"errors.dead.letter.queue.topic.name={letters!r} can't be the name of a topic: use letters, digits, '.', "
                "'_' and '-', but not '.' or '..' alone, and at most 249 characters"
            )
        if self.http_listen and not self.http_listen.rpartition(":")[0]:
            port = self.http_listen.removeprefix(":")
            raise ValueError(
                f"http.listen={self.http_listen}: expected HOST:PORT, such as 127.0.0.1:{port if port.isdigit() else 8080}"
            )
        return self

    @property
    def memory_bytes(self) -> int:
        """The whole budget."""
        if self.cache_max_bytes is not None:
            return self.cache_max_bytes
        return self.record_cache_bytes + _STORES_BYTES

    @property
    def record_cache_bytes(self) -> int:
        """The part of record caches; 0 where caching is off."""
        if self.statestore_cache_max_bytes is not None:
            return self.statestore_cache_max_bytes
        return _RECORD_CACHES_BYTES if self.cache_max_bytes is None else self.cache_max_bytes // 2

    @property
    def uncommitted_bytes(self) -> int:
        """The limit for uncommitted changes, which share the budget of the record caches."""
        return self.record_cache_bytes or min(_UNCOMMITTED_BYTES, self.memory_bytes // 4)

    @property
    def rocksdb_bytes(self) -> int:
        """The part of block caches and memtables."""
        return self.memory_bytes - self.uncommitted_bytes

    @property
    def is_exactly_once(self) -> bool:
        return self.processing_guarantee == "exactly_once_v2"

    def settings(self, *, only_given: bool = False) -> dict[str, Any]:
        """The settings by their names in Kafka's form; ``only_given``: without defaults."""
        found: dict[str, Any] = {}
        for name in type(self).model_fields:
            if name in _BELOW_PREFIXES:
                found |= {_BELOW_PREFIXES[name] + key: value for key, value in getattr(self, name).items()}
            elif not only_given or name in self.model_fields_set:
                found[_dotted(name)] = getattr(self, name)
        return found

    @classmethod
    def of(cls, *sources: Mapping[str, Any] | StreamsConfig | None, **values: Any) -> StreamsConfig:
        """The configuration from mappings; later ones override earlier ones. Raises :class:`ConfigError`."""
        merged: dict[str, Any] = {}
        for source in sources:
            if isinstance(source, StreamsConfig):
                merged.update({_dotted(key): getattr(source, key) for key in source.model_fields_set})
            elif source is not None and not isinstance(source, Mapping):
                raise ConfigError(
                    f"the configuration is of type {type(source).__name__}: give a dict of settings, or a StreamsConfig"
                )
            elif source is not None:
                merged.update({_canonical(key): value for key, value in source.items()})
        merged.update({_canonical(key): value for key, value in values.items() if value is not None})
        of_the_group = _OF_THE_GROUP.keys() & merged.keys()
        if merged.get("group.protocol", cls.model_fields["group_protocol"].default) != "streams":
            of_the_group -= {_dotted(name) for name in cls.model_fields}
        for key in sorted(of_the_group):
            del merged[key]
            name = _OF_THE_GROUP[key]
            instead = (
                f"set {name} of the group (kafka-configs --entity-type groups)" if name else "there is no such setting"
            )
            logger.warning("%s has no effect: the group coordinator decides; %s", key, instead)
        try:
            return cls.model_validate(merged)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from None


def below(prefix: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings whose names start with a prefix, without the prefix."""
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def known_keys() -> list[str]:
    """Every key that may be set, in Kafka's form."""
    return sorted(
        {_dotted(name) for name in StreamsConfig.model_fields} - {"topic.configs", "client.tags", "app.configs"}
    )


def _mapping(values: Mapping[str, Any], name: str, form: str) -> dict[str, Any]:
    """The settings below a prefix that were given as one mapping."""
    found = values.get(name, values.get(_dotted(name), {}))
    if not isinstance(found, Mapping):
        raise ValueError(
            f"{_dotted(name)} is a mapping of keys to values, not of type {type(found).__name__}: give {form}=VALUE for "
            "each key"
        )
    return {str(key): value if name == "app_configs" else str(value) for key, value in found.items()}


def _canonical(key: str) -> str:
    if key.startswith((_TOPIC_PREFIX, _TAG_PREFIX, _PROGRAM_PREFIX)):
        return key
    return _dotted(key) if key in StreamsConfig.model_fields else key


def _explain(error: ValidationError) -> str:
    lines = []
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            close = difflib.get_close_matches(key.replace("_", "."), known_keys(), n=1, cutoff=0.6)
            lines.append(f"unknown setting {key!r}" + (f": did you mean {close[0]!r}?" if close else ""))
        elif detail["type"] == "missing":
            lines.append(f"{key} is missing: set it in the configuration or give it on the command line")
        elif detail["type"] == "value_error":
            lines.append(str(detail["ctx"]["error"]) if "ctx" in detail else detail["msg"])
        elif detail["type"] == "string_pattern_mismatch" and key == "application.id":
            lines.append(
                f"{key}={detail['input']!r} has other characters than letters (a-z, A-Z), digits, '.', '_' and '-': it is "
                "part of the names of topics and directories"
            )
        else:
            given = "(not shown)" if _is_secret(key) else repr(detail["input"])
            lines.append(f"{key}={given}: {detail['msg']}")
    return "; ".join(lines)


def _is_secret(key: str) -> bool:
    """Whether a setting's value must not be printed: it, or its first part, names something secret."""
    field = StreamsConfig.model_fields.get(key.split(".")[0]) or StreamsConfig.model_fields.get(key.replace(".", "_"))
    return (field is not None and not field.repr) or any(word in key.lower() for word in _SECRET_WORDS)


def key_value_pairs(texts: Iterable[str], source: str = "--config") -> dict[str, str]:
    """The pairs, later ones over earlier ones. Raises ConfigError that names ``source``, an option or a file."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"{source} {text}: expected KEY=VALUE")
        pairs[key.strip()] = value.strip()
    return pairs
