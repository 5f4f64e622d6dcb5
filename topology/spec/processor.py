"""The Processor API: user code that sees each record, its stores and the time.

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
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K, V2]:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K, V]:
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K, V]:
        return Record(self.key, self.value, self.timestamp, headers)


class RecordMetadata(NamedTuple):
    """Where the record that is being processed came from."""

    topic: str
    partition: int
    offset: int


class RecordContext(NamedTuple):
    """What a topic extractor is told about the record besides key and value. ``timestamp``: epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers


class PunctuationType(Enum):
    """What drives a schedule: the times of the records, or the clock on the wall."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Cancellable(Protocol):
    """A schedule that can be stopped."""

    def cancel(self) -> None: ...


class ProcessorContext(Protocol[K, V]):
    """What a processor can do and know; ``K`` and ``V`` are the types that it forwards."""

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> str: ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """None in a punctuation."""

    @property
    def key_serde(self) -> Serde[Any]:
        """``default.key.serde`` (ConfigError where none is set)."""

    @property
    def value_serde(self) -> Serde[Any]:
        """``default.value.serde`` (ConfigError where none is set)."""

    @property
    def state_dir(self) -> DirectoryPath:
        """A directory of the task's own (a ``pathlib.Path``), which is made when it is first asked for.

        What is in it is the program's: it stays where it is when the task goes elsewhere, until
        :meth:`streamsrt.KafkaStreams.clean_up`. In tests it is a passing one. StateError where it can't be made.
        """

    @property
    def metrics(self) -> ProcessorMetrics:
        """Makes metrics of the program's own."""

    def app_configs(self) -> Mapping[str, Any]:
        """All settings of the application by their names in Kafka's form, those that were not given too."""

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """The settings that were given whose names begin with ``prefix``, without it.

        ``app.`` is for settings of the program's own: any key below it may be given.
        """

    def forward(self, record: Record[K, V], child: str | None = None) -> None:
        """Gives the record to every following step, or to the one named ``child``.

        Under ``process_values`` the record's key must be the one that came in.
        """

    def get_state_store(self, name: str) -> Any:
        """The store of that name, which the processor was connected to (else UnknownStoreError).

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

        ``start_time``: when it is due first, and then at ``start_time + n * interval`` for every n, however often the task
        starts anew; a start that has gone by counts on to the next such time. A datetime with a time zone, or epoch
        milliseconds; None: from now on (wall clock), or from the first record on (stream time). Raises UserError for an
        interval below 1 ms, WindowError for a start before the epoch. Source: KIP-1146.
        """

    def commit(self) -> None:
        """Asks for a commit as soon as possible."""

    def current_stream_time_ms(self) -> int: ...

    def current_system_time_ms(self) -> int: ...


class Processor(Protocol[K, V, K2, V2]):
    """User code behind :meth:`topology.KStream.process`: takes ``K, V``, forwards ``K2, V2``.

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
    """User code behind :meth:`topology.KStream.process_values`: what it forwards keeps the key that came in."""

    def init(self, context: ProcessorContext[K, V2]) -> None:
        """Called once before the first record."""
        return

    def process(self, record: Record[K, V]) -> None: ...

    def close(self) -> None:
        """Called once after the last record."""
        return


class ValueTransformer(Protocol[K, V_contra, V2]):
    """User code behind :meth:`topology.KTable.transform_values`: gives each row of a table another value.

    Source: org.apache.kafka.streams.kstream.ValueTransformerWithKey.
    """

    def init(self, context: ProcessorContext[K, V2]) -> None:
        """Called once before the first row; the context gives stores and times, and forwards nothing."""
        return

    def transform(self, key: K, value: V_contra | None) -> V2 | None:
        """The new value of a row; ``value`` None: the row was deleted. It may be asked for old values too."""

    def close(self) -> None:
        """Called once after the last row."""
        return
