"""Queries, positions and results, as in Kafka Streams' interactive queries version 2 (``org.apache.kafka.streams.query``).

A :class:`Position` says what a store contains: for each input partition the offset of the last record in it. The store
of an active task contains what its task has processed. A standby knows its changelog only, so its position names that
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from streamsrt.wording import address_text
from topology.spec.serdes import Serde

Key: TypeAlias = Any  # any type: only the program knows it
Value: TypeAlias = Any  # likewise

R = TypeVar("R")
K = TypeVar("K")
Q = TypeVar("Q")

LATEST_MS = 2**63 - 1

# ------------------------------------------------------------------------------------------------------------ queries


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """The value of a key in a key-value store; None if the key is absent."""

    key: Key


@dataclass(frozen=True, slots=True)
class TimestampedKeyQuery:
    """The value of a key with its timestamp (:class:`topology.spec.stores.ValueAndTimestamp`)."""

    key: Key


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """Pairs ``(key, value)`` from ``lower`` to ``upper``, inclusive, in the order of the keys' bytes. None: unbounded."""

    lower: Key = None
    upper: Key = None
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class TimestampedRangeQuery:
    """As :class:`RangeQuery`; values are :class:`topology.spec.stores.ValueAndTimestamp`."""

    lower: Key = None
    upper: Key = None
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class PrefixQuery:
    """Pairs ``(key, value)`` whose key bytes start with ``prefix``, serialized by ``serde``. ``with_timestamps``: values of
    a timestamped store are :class:`topology.spec.stores.ValueAndTimestamp`."""

    prefix: Key
    serde: Serde[Key]
    reverse: bool = False
    with_timestamps: bool = False


@dataclass(frozen=True, slots=True)
class WindowKeyQuery:
    """Pairs ``(start, value)`` of the windows of a key that start in ``time_from``..``time_to``, epoch milliseconds, both
    included. Values of a timestamped store are :class:`topology.spec.stores.ValueAndTimestamp`."""

    key: Key
    time_from: int = 0
    time_to: int = LATEST_MS
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class WindowRangeQuery:
    """Pairs ``(windowed key, value)`` of the windows that start in ``time_from``..``time_to``, both included, of the keys
    from ``lower`` to ``upper``. Values of a timestamped store are :class:`topology.spec.stores.ValueAndTimestamp`."""

    time_from: int = 0
    time_to: int = LATEST_MS
    lower: Key = None
    upper: Key = None
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class SessionKeyQuery:
    """Pairs ``(windowed key, value)`` of the sessions of a key that end at ``earliest_end`` or later and start at
    ``latest_start`` or before, epoch milliseconds, by end. (Kafka Streams: ``WindowRangeQuery.withKey``.)"""

    key: Key
    earliest_end: int = 0
    latest_start: int = LATEST_MS
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class SessionRangeQuery:
    """Pairs ``(windowed key, value)`` of all sessions that end at ``earliest_end`` or later."""

    earliest_end: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class VersionedKeyQuery:
    """The version of a key that was valid at ``as_of``, epoch milliseconds; None: the newest
    (:class:`topology.spec.stores.VersionedRecord`)."""

    key: Key
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery:
    """The versions of a key that were valid at some time in ``time_from``..``time_to``, newest first."""

    key: Key
    time_from: int = 0
    time_to: int = LATEST_MS
    ascending: bool = False


Query: TypeAlias = (
    KeyQuery
    | TimestampedKeyQuery
    | RangeQuery
    | TimestampedRangeQuery
    | PrefixQuery
    | WindowKeyQuery
    | WindowRangeQuery
    | SessionKeyQuery
    | SessionRangeQuery
    | VersionedKeyQuery
    | MultiVersionedKeyQuery
)

# ---------------------------------------------------------------------------------------------------------- positions


class Position:
    """Offsets by topic and partition; a value. Source: ``Position``."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._offsets = {topic: dict(partitions) for topic, partitions in (offsets or {}).items() if partitions}

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """This position with another offset for one partition."""
        made = Position(self._offsets)
        made._offsets.setdefault(topic, {})[partition] = offset
        return made

    def merge(self, other: Position) -> Position:
        """Returns the higher offset of the two for each partition."""
        merged = Position(self._offsets)
        for topic, partition, offset in other:
            of_topic = merged._offsets.setdefault(topic, {})
            of_topic[partition] = max(offset, of_topic.get(partition, offset))
        return merged

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        return (
            (topic, partition, offset)
            for topic, partitions in self._offsets.items()
            for partition, offset in partitions.items()
        )

    def to_json(self) -> dict[str, dict[str, int]]:
        """``{topic: {partition: offset}}``, with strings as keys."""
        return {topic: {str(p): o for p, o in partitions.items()} for topic, partitions in self._offsets.items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Mapping[str, int]]) -> Position:
        """Parses a position that :meth:`to_json` wrote. Raises ValueError, TypeError or AttributeError for anything else."""
        return cls({str(t): {int(p): int(o) for p, o in parts.items()} for t, parts in values.items()})

    def offsets(self, topic: str) -> Mapping[int, int]:
        return MappingProxyType(self._offsets.get(topic, {}))

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Position) and self._offsets == other._offsets

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"Position({self._offsets})"


@dataclass(frozen=True, slots=True)
class PositionBound:
    """The position that a store must have reached to be queried. Source: ``PositionBound``."""

    position: Position = field(default_factory=Position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        return cls()

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        return cls(position)

    def missing_in(self, position: Position, partition: int | None) -> str:
        """Describes what a task's store at ``position`` lacks for the bound in ``partition``; empty if nothing.

        Only components of the task's own partition count; others belong to other tasks. None: all count (a global
        store).
        """
        for topic, number, offset in self.position:
            if partition in (None, number) and position.offsets(topic).get(number, -1) < offset:
                at = position.offsets(topic).get(number)
                return (
                    f"{topic}-{number} is at {'no known offset' if at is None else f'offset {at}'}, not yet at {offset}"
                )
        return ""


# ------------------------------------------------------------------------------------------------------------ results


class FailureReason(Enum):
    """Why a partition has no answer. Source: ``FailureReason``."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    NOT_ACTIVE = "NOT_ACTIVE"
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    NOT_PRESENT = "NOT_PRESENT"
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    STORE_EXCEPTION = "STORE_EXCEPTION"


@dataclass(frozen=True, slots=True)
class QueryResult(Generic[R]):
    """The answer of one partition: ``result``, or the reason why there is none. Source: ``QueryResult``."""

    result: R | None = None
    position: Position = field(default_factory=Position)
    failure_reason: FailureReason | None = None
    failure_message: str = ""

    @property
    def is_success(self) -> bool:
        return self.failure_reason is None


@dataclass(frozen=True, slots=True)
class StateQueryResult(Generic[R]):
    """The answers of a query, by partition. Source: ``StateQueryResult``."""

    partition_results: Mapping[int, QueryResult[R]]

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """The only non-empty answer, or None. Raises ValueError if there are several."""
        found = [each for each in self.partition_results.values() if not each.is_success or each.result is not None]
        if len(found) > 1:
            raise ValueError(f"{len(found)} partitions have an answer: look at partition_results")
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """The merged position of all answers. Use it as the bound of a later query that must not read older state."""
        merged = Position()
        for each in self.partition_results.values():
            merged = merged.merge(each.position)
        return merged


# ----------------------------------------------------------------------------------------------------------- metadata


@dataclass(frozen=True, slots=True, order=True)
class HostInfo:
    """The address at which an instance answers queries (``application.server``)."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """The tasks and stores of one instance. Source: ``StreamsMetadata``."""

    host_info: HostInfo
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[tuple[str, int]] = frozenset()
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """The instances that have a key. ``active_host`` is None while it is unknown. Source: ``KeyQueryMetadata``."""

    active_host: HostInfo | None
    standby_hosts: frozenset[HostInfo]
    partition: int


@dataclass(frozen=True, slots=True)
class StoreSize:
    """The approximate size of a task's store."""

    task_id: str
    store: str
    entries: int
    size_bytes: int
    cache_bytes: int


Partitioner: TypeAlias = Callable[[Key, int], int]
"""``(key, partitions) -> partition``, for input that is not partitioned by the key's bytes as Kafka's producers do."""
