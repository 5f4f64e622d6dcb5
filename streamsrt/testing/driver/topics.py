"""The input and output topics of the topology test driver, with keys and values instead of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import Generic, NamedTuple, Protocol, TypeVar

from streamsrt.errors import UserError
from streamsrt.testing.driver.produced_records import ProducedRecord
from streamsrt.wire.records import Headers
from topology.spec.serdes import Serde

K = TypeVar("K")
V = TypeVar("V")


class Pipe(Protocol):
    """Processes one record given as bytes: :meth:`TopologyTestDriver.pipe_raw`."""

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
        *,
        partition: int | None = None,
    ) -> None: ...


class TestRecord(NamedTuple, Generic[K, V]):
    """A record of an input or output topic. ``timestamp``: epoch milliseconds."""

    key: K | None
    value: V | None
    timestamp: int
    headers: Headers = ()


TestRecord.__test__ = False  # type: ignore[attr-defined]  # the name is Kafka Streams'; it is no test class


class TestInputTopic(Generic[K, V]):
    """An input topic. Timestamps start at ``start_timestamp`` and advance by ``auto_advance_ms``."""

    __test__ = False

    def __init__(
        self,
        pipe: Pipe,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_timestamp: int = 0,
        auto_advance_ms: int = 0,
    ) -> None:
        self.name = name
        self._pipe = pipe
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._timestamp = start_timestamp
        self._auto_advance_ms = auto_advance_ms

    def pipe_input(
        self,
        key: K | None,
        value: V | None,
        timestamp: int | None = None,
        headers: Headers = (),
        *,
        partition: int | None = None,
    ) -> None:
        """Processes one record and everything that follows from it. ``timestamp`` None: the topic's own clock.

        ``partition`` None: that of the key, as the default partitioner has it.
        """
        if timestamp is None:
            timestamp = self._timestamp
            self._timestamp += self._auto_advance_ms
        self._pipe(
            self.name,
            None if key is None else self._key_serde.serialize(key),
            None if value is None else self._value_serde.serialize(value),
            timestamp,
            headers,
            partition=partition,
        )

    def advance_time(self, duration: timedelta | int) -> None:
        """Advances the topic's own clock (milliseconds or timedelta)."""
        self._timestamp += to_whole_ms(duration)

    def pipe_values(self, values: Iterable[V | None]) -> None:
        """Processes several records without a key one after the other."""
        for value in values:
            self.pipe_input(None, value)

    def pipe_records(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Processes several records one after the other, each with its timestamp and headers."""
        for record in records:
            self.pipe_input(record.key, record.value, record.timestamp, record.headers)

    def pipe_key_values(self, pairs: Iterable[tuple[K | None, V | None]]) -> None:
        """Processes several records one after the other."""
        for key, value in pairs:
            self.pipe_input(key, value)


class TestOutputTopic(Generic[K, V]):
    """An output topic; each record is read once."""

    __test__ = False

    def __init__(self, queue: deque[ProducedRecord], name: str, key_serde: Serde[K], value_serde: Serde[V]) -> None:
        self.name = name
        self._queue = queue
        self._key_serde = key_serde
        self._value_serde = value_serde

    def is_empty(self) -> bool:
        return not self._queue

    def queue_size(self) -> int:
        return len(self._queue)

    def read_record(self) -> TestRecord[K, V]:
        """The next record. Raises UserError if there is none."""
        if not self._queue:
            raise UserError(f"topic {self.name!r} has no more records: check is_empty() first, or check the input")
        record = self._queue.popleft()
        return TestRecord(
            None if record.key is None else self._key_serde.deserialize(record.key),
            None if record.value is None else self._value_serde.deserialize(record.value),
            record.timestamp,
            record.headers,
        )

    def read_key_value(self) -> tuple[K | None, V | None]:
        record = self.read_record()
        return record.key, record.value

    def read_value(self) -> V | None:
        return self.read_record().value

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        return [self.read_record() for _ in range(len(self._queue))]

    def read_key_values_to_list(self) -> list[tuple[K | None, V | None]]:
        return [self.read_key_value() for _ in range(len(self._queue))]

    def read_values_to_list(self) -> list[V | None]:
        return [self.read_value() for _ in range(len(self._queue))]

    def read_key_values_to_map(self) -> dict[K | None, V | None]:
        """The last value of each key."""
        return dict(self.read_key_values_to_list())


def to_whole_ms(duration: timedelta | int) -> int:
    """The duration in milliseconds, rounded."""
    return round(duration / timedelta(milliseconds=1)) if isinstance(duration, timedelta) else duration
