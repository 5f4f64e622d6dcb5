"""The Processor API: user code for each record, with stores and time.

1. A supplier makes one processor for each task; ``init`` comes first, ``close`` last.
2. Records are values: a changed record is a new one (``record.with_value(...)``).
3. Times are epoch milliseconds. Keys and values may be None.

Source: org.apache.kafka.streams.processor.api.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from topology.spec.codecs import Serde
from topology.spec.processor_metrics import ProcessorMetrics
from topology.spec.windows import Duration, Time

if TYPE_CHECKING:
    from pydantic import DirectoryPath

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V_contra = TypeVar("V_contra", contravariant=True)

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple, Generic[K, V]):
    """A record in a processor. ``timestamp``: epoch milliseconds. ``headers``: pairs of name and bytes, in order."""

    key: K
    value: V
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: K2) -> Record[K2, V]:
        return _new(Record, (key, self[1], self[2], self[3]))

    def with_value(self, value: V2) -> Record[K, V2]:
        return _new(Record, (self[0], value, self[2], self[3]))

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        return _new(Record, (self[0], self[1], timestamp, self[3]))

    def with_headers(self, headers: Headers) -> Record[K, V]:
        return _new(Record, (self[0], self[1], self[2], headers))


_new = tuple.__new__
"""What a named tuple does to make one, at a third of the time."""


class RecordMetadata(NamedTuple):
    """Where the record that is being processed came from."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """What a topic extractor gets besides key and value. ``timestamp``: epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers


class PunctuationType(Enum):
    """What drives a schedule: stream time or the wall clock."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Cancellable(Protocol):
    """A schedule that can be stopped."""

    def cancel(self) -> None: ...


class ProcessorContext(Protocol[K, V]):
    """The context of a processor; ``K`` and ``V`` are the types that it forwards."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> str: ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the record that is processed was read. None in a punctuation, and behind a cached table, whose updates
        combine several records."""

    @property
    def key_serde(self) -> Serde[Any]:
        """``default.key.serde`` (ConfigError if none is set)."""

    @property
    def value_serde(self) -> Serde[Any]:
        """``default.value.serde`` (ConfigError if none is set)."""

    @property
    def state_dir(self) -> DirectoryPath:
        """The task's own directory (a ``pathlib.Path``), created on first use.

        Its contents belong to the program. It does not move with the task, and :meth:`streamsrt.KafkaStreams.clean_up`
        deletes it. In tests it is a temporary directory. Raises StateError if it can't be created.
        """

    @property
    def metrics(self) -> ProcessorMetrics:
        """Creates metrics of the program."""

    def app_configs(self) -> Mapping[str, Any]:
        """All settings of the application by their Kafka names, including defaults."""

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """The given settings whose names start with ``prefix``, without the prefix.

        ``app.`` is for the program's own settings: any key with this prefix is accepted.
        """

    def forward(self, record: Record[K, V], child: str | None = None) -> None:
        """Forwards the record to every child, or to the one named ``child``.

        With ``process_values`` the record must have the key of the input record.
        """

    def get_state_store(self, name: str) -> Any:
        """The store with that name. Raises UnknownStoreError unless the processor is connected to it.

        Key-value stores are a :class:`topology.spec.stores.KeyValueStore`, window stores a
        :class:`topology.spec.stores.WindowStore`.
        """

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_time: Time | None = None,
    ) -> Cancellable:
        """Calls ``callback(timestamp)`` every ``interval`` of stream time or of the wall clock.

        ``start_time``: the first call is due then, the next ones at ``start_time + n * interval``, also after restarts.
        If it is in the past, the first call is at the next such time. A datetime with a time zone, or epoch
        milliseconds; None: the first call is after one interval (wall clock), or at the first record and then at multiples
        of the interval since the epoch (stream time). Raises UserError for an interval below 1 ms, WindowError for a start
        before the epoch. Source: KIP-1146.
        """

    def commit(self) -> None:
        """Requests a commit as soon as possible."""

    def current_stream_time_ms(self) -> int: ...

    def current_system_time_ms(self) -> int: ...


class Processor(Protocol[K, V, K2, V2]):
    """User code of :meth:`topology.KStream.process`: takes ``K, V``, forwards ``K2, V2``.

    Subclass it (``class Dedup(Processor[str, Order, str, Order])``) or match it.
    """

    # A body that does something: without one a type checker takes a method of a protocol for abstract.

    def init(self, context: ProcessorContext[K2, V2]) -> None:
        """Called once before the first record: keep the context, get stores, schedule punctuations."""
        return

    def process(self, record: Record[K, V]) -> None: ...

    def close(self) -> None:
        """Called once after the last record."""
        return


class FixedKeyProcessor(Protocol[K, V, V2]):
    """User code of :meth:`topology.KStream.process_values`: forwarded records keep the key of the input record."""

    def init(self, context: ProcessorContext[K, V2]) -> None:
        """Called once before the first record."""
        return

    def process(self, record: Record[K, V]) -> None: ...

    def close(self) -> None:
        """Called once after the last record."""
        return


class ValueTransformer(Protocol[K, V_contra, V2]):
    """User code of :meth:`topology.KTable.transform_values`: computes a new value for each row.

    Source: org.apache.kafka.streams.kstream.ValueTransformerWithKey.
    """

    def init(self, context: ProcessorContext[K, V2]) -> None:
        """Called once before the first row; the context has stores and times, but cannot forward."""
        return

    def transform(self, key: K, value: V_contra | None) -> V2 | None:
        """The new value of a row; ``value`` None: the row was deleted. It may also be called with old values."""

    def close(self) -> None:
        """Called once after the last row."""
        return
