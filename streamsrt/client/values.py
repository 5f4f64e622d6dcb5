"""Settings of the client and the values that cross between the network thread and the processing thread.

Times are in milliseconds, sizes in bytes, names Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

from streamsrt.errors import BrokerError, ProductionError, RequestFailedError, StreamsError
from streamsrt.wire.records import Headers

TopicPartition: TypeAlias = tuple[str, int]

EARLIEST = -2
LATEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """``security.protocol``, ``sasl.*`` and ``ssl.*`` of Kafka's and librdkafka's clients."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: Any = field(default=None, repr=False)  # of aiokafka, which has no types
    """An ``aiokafka.abc.AbstractTokenProvider``, for OAUTHBEARER."""
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True

    @property
    def principal(self) -> str | None:
        """The principal that the broker assigns to this client; None if only the broker knows."""
        if self.protocol.startswith("SASL"):
            return f"User:{self.sasl_username}" if self.sasl_username else None
        return "User:ANONYMOUS" if self.protocol == "PLAINTEXT" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Settings of one fetcher. ``buffer_bytes``: fetching stops while this much is waiting to be polled."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = 1024 * 1024
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    buffer_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Settings of the idempotent producer. ``acks`` is always all, and idempotence always on."""

    max_request_size: int = 1024 * 1024
    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    absent_topic_timeout_ms: int = 6_000
    """How long a batch waits at most for a topic that does not exist, according to the cluster."""
    max_in_flight_requests_per_connection: int = 5
    transactional_id: str | None = None
    """If set, everything is written in transactions (:class:`streamsrt.client.interface.Transacting`)."""
    transactional_id_prefix: str | None = None
    """How the transactional ids of all producers of the application begin."""
    transaction_timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The cluster's addresses and the connection settings."""

    bootstrap_servers: str
    """``host:port``, several separated by commas."""
    client_id: str = "streamsrt"
    security: SecurityConfig = SecurityConfig()
    request_timeout_ms: int = 30_000
    connection_setup_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    fetch: FetchConfig = FetchConfig()
    restore: FetchConfig = FetchConfig(max_wait_ms=100)
    producer: ProducerConfig = ProducerConfig()


# -------------------------------------------------------------------------------------------------------------- fetch


FETCHED_BYTES = 640
"""What a :class:`Fetched` takes beside its records: objects for it, its view, its numbers and its place in queues."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The data of one partition in a Fetch response.

    ``buffer`` holds whole record batches, undecoded; the first may begin before ``offset``, whose earlier records are to
    be skipped (``decode_batches(buffer, from_offset=offset, aborted=aborted)``). ``next_offset`` follows the last record
    of ``buffer`` and is where fetching goes on. ``aborted``: ``(producer id, first offset)`` of aborted transactions, None
    unless reading committed. With ``error`` set the buffer is empty, and the partition is not fetched any more until it
    is added again (remove it, find a position, add it).
    """

    topic: str
    partition: int
    buffer: memoryview
    offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] | None = None
    error: FetchError | None = None

    @property
    def held_bytes(self) -> int:
        """Returns what it takes in memory: where each fetch has a few records only, that is not so much the records."""
        return len(self.buffer) + FETCHED_BYTES

    @property
    def readable_end(self) -> int:
        """Returns the end of what can be read now: with read_committed, it is before the first undecided transaction."""
        return self.high_watermark if self.aborted is None else self.last_stable_offset


class FetchError(RequestFailedError):
    """A partition can no longer be fetched. ``error_code`` is the broker's, and the message says what is
    missing."""


class OffsetOutOfRangeError(FetchError):
    """The position is before the log's start (because of retention) or after its end (the log was truncated), or the log
    has other records before it than those that were read. The response may lack the bounds of the log: query them with
    ``list_offsets``."""

    is_new_topic = False
    """Whether the topic was deleted and created again: none of its records have been read."""
    diverged_at: int | None = None
    """The offset from which on the log has other records than those that were read; None if this is not why."""


# ------------------------------------------------------------------------------------------------------------ produce


class DeliveryTimeoutError(ProductionError):
    """The brokers did not acknowledge in time; it is unknown whether they have the records. A retry may succeed."""

    is_retriable = True


class RecordRefusedError(ProductionError):
    """The broker rejects a record. ``error_code`` is the broker's; the record was not written. Often it is too large:
    raise the topic's ``max.message.bytes``. ``would_be_any``: any other record would be rejected as well."""

    def __init__(
        self,
        message: str,
        topic: str,
        partition: int,
        *,
        error_code: int = -1,
        is_retriable: bool = False,
        would_be_any: bool = False,
    ) -> None:
        super().__init__(message, topic, partition)
        if would_be_any:
            self.exit_code = BrokerError.exit_code
        self.error_code = error_code
        self.is_retriable = is_retriable


class RefusedRecord(NamedTuple):
    """A rejected record, as it was to be written. ``timestamp``: epoch milliseconds."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    error: RecordRefusedError


class RefusalAnswer(Enum):
    """The decision about a rejected record."""

    DROP = "drop"
    """It is left out; everything else continues."""
    FAIL = "fail"
    """Its error is raised by ``send`` or ``flush``."""
    START_OVER = "start over"
    """DeliveryTimeoutError is raised: the work since the last commit has to be repeated."""


OnRefused: TypeAlias = Callable[[RefusedRecord], RefusalAnswer]


class TransactionLostError(RequestFailedError):
    """It is unknown whether the records sent since the last commit were written: initialize the transactional id
    again, which settles this, and repeat the work since the last commit."""


class ProducerFencedError(TransactionLostError):
    """A newer producer has the transactional id, or the transaction took too long and was aborted. The runtime gives
    up the tasks and rejoins the group; if this happens repeatedly, raise ``transaction.timeout.ms`` or lower
    ``commit.interval.ms``."""


# -------------------------------------------------------------------------------------------------------------- admin


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """``api_versions``: ``(lowest, highest)`` by API key, of the broker that answered; ``features``: the names of its
    features."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    api_versions: Mapping[int, tuple[int, int]]
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    partitions: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. -1: the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next one to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    group_type: str
    protocol_type: str
    state: str


class CommitError(RequestFailedError):
    """Offsets could not be committed. ``partitions`` says which, with the broker's error codes. After a restart,
    records since the last commit are processed again."""

    def __init__(self, message: str, error_code: int, partitions: Mapping[TopicPartition, int]) -> None:
        super().__init__(message, error_code)
        self.partitions = dict(partitions)


class StaleMemberEpochError(CommitError):
    """The member epoch has changed, or a classic group does not have its tasks yet: commit again a little later,
    with the new epoch."""


class UnknownMemberError(CommitError):
    """The group no longer knows this member: its tasks belong to others, and nothing may be committed."""


class CallAbandonedError(StreamsError):
    """The caller no longer waits for the response. This ends a thread that waited for the network; no action is
    needed."""


class RequestTimedOutError(BrokerError):
    """There was no response in time. Check whether the broker is overloaded; ``request.timeout.ms`` is how long a
    request
    waits."""


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
Topics: TypeAlias = Sequence[str]
