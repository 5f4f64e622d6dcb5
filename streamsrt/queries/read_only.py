"""Stores as a caller sees them: typed, over all tasks of this instance that have a partition of the store.

1. Every call uses the tasks present at that moment: a store object may be kept as long as the application runs.
2. Without ``stale`` only running active tasks answer; while one on this instance is restoring, calls raise
   StreamsRebalancingError. With ``stale``, standbys and restoring tasks answer too, with the state they have.
3. If a key is not found here but may be in a partition of another instance, InvalidStateStorePartitionError names that
   instance.

Source: ``KafkaStreams.store``, ``ReadOnlyKeyValueStore``, ``ReadOnlyWindowStore`` and their composite stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType

from streamsrt.queries.errors import InvalidStateStorePartitionError, UnknownStateStoreError
from streamsrt.queries.gate import DEFAULT_TIMEOUT_S
from streamsrt.queries.preparation import describe
from streamsrt.queries.routing import Routing
from streamsrt.queries.store_queries import StoreQueries
from streamsrt.queries.values import (
    LATEST_MS,
    Key,
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    Query,
    RangeQuery,
    SessionKeyQuery,
    SessionRangeQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    Value,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from topology.graph.store_kinds import RowsOfKey, rows_of
from topology.spec.serdes import Serde
from topology.spec.stores import ValueAndTimestamp, VersionedRecord
from topology.spec.windows import Windowed


class _LocalStore:
    """The common part of stores of all kinds: the class for a store says what ``rows`` it has. ``partition`` None: all that
    this instance has."""

    called: str
    rows: RowsOfKey

    def __init__(
        self,
        queries: StoreQueries,
        routing: Routing,
        name: str,
        *,
        partition: int | None = None,
        stale: bool = False,
        timestamped: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        spec = routing.stores.spec(name)
        if rows_of(spec) is not self.rows or (timestamped and not spec.timestamped):
            wanted = f"{'timestamped ' if timestamped else ''}{self.called} store"
            raise UnknownStateStoreError(f"store {name!r} is {describe(spec)}, not a {wanted}")
        self.name = name
        self._queries = queries
        self.routing = routing
        self._partition = partition
        self._stale = stale
        self._timestamped = timestamped
        self._timeout_s = timeout_s

    def _answers(self, query: Query) -> dict[int, Value]:
        """Returns the answer of each partition on this instance. Raises InvalidStateStoreError if it has none, or one
        can't answer."""
        found = self._queries.query(
            self.name,
            query,
            partitions=None if self._partition is None else (self._partition,),
            active_only=not self._stale,
            timeout_s=self._timeout_s,
        ).partition_results
        answers = {partition: each.result for partition, each in found.items() if each.is_success}
        if not answers:
            if self._partition is not None:
                raise self._elsewhere(self._partition)
            raise InvalidStateStorePartitionError(
                f"this instance now has no partition of store {self.name!r}"
                + ("" if self._stale else " with an active, running task")
                + f"; {self._who()}"
            )
        return answers

    def _who(self) -> str:
        hosts = [str(each.host_info) for each in self.routing.metadata_for_store(self.name)]
        return f"instances that have one: {', '.join(hosts)}" if hosts else "no instance is known that has one"

    def _elsewhere(self, partition: int) -> InvalidStateStorePartitionError:
        host, _ = self.routing.hosts_of(self.name, partition)
        return InvalidStateStorePartitionError(
            self._queries.whereabouts(self.name, partition), partition, "" if host is None else str(host)
        )

    def _check_is_here(self, key: Key, here: dict[int, Value]) -> None:
        """Raises if another instance may have the key. Called if nothing was found."""
        if self._partition is not None:
            return
        partition = self.routing.partition_of(self.name, key)
        if partition not in here:
            raise self._elsewhere(partition)


class LocalKeyValueStore(_LocalStore):
    """A :class:`topology.spec.stores.ReadOnlyKeyValueStore`. Ranges go through one partition after the other."""

    called = "key-value"
    rows = RowsOfKey.ONE

    def get(self, key: Key) -> Value:
        """The value, or None."""
        answers = self._answers(TimestampedKeyQuery(key) if self._timestamped else KeyQuery(key))
        found = next((value for value in answers.values() if value is not None), None)
        if found is None:
            self._check_is_here(key, answers)
        return found

    def range(self, start: Key, end: Key) -> Iterator[tuple[Key, Value]]:
        """From ``start`` to ``end``, inclusive; None: unbounded."""
        return self._rows(start, end, reverse=False)

    def reverse_range(self, start: Key, end: Key) -> Iterator[tuple[Key, Value]]:
        return self._rows(start, end, reverse=True)

    def all(self) -> Iterator[tuple[Key, Value]]:
        return self._rows(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[Key, Value]]:
        return self._rows(None, None, reverse=True)

    def _rows(self, start: Key, end: Key, *, reverse: bool) -> Iterator[tuple[Key, Value]]:
        kind = TimestampedRangeQuery if self._timestamped else RangeQuery
        return chain.from_iterable(self._answers(kind(start, end, reverse)).values())

    def prefix_scan(self, prefix: Key, serde: Serde[Key]) -> Iterator[tuple[Key, Value]]:
        """The entries whose key bytes start with the bytes of ``prefix``."""
        return chain.from_iterable(self._answers(PrefixQuery(prefix, serde)).values())

    def approximate_num_entries(self) -> int:
        """The number of entries; reads all of them."""
        return sum(1 for _ in self.all())


class LocalWindowStore(_LocalStore):
    """The reading half of a :class:`topology.spec.stores.WindowStore`. Times are epoch milliseconds of windows' starts."""

    called = "window"
    rows = RowsOfKey.WINDOWS

    def _value(self, value: Value) -> Value:
        return value.value if isinstance(value, ValueAndTimestamp) and not self._timestamped else value

    def fetch(self, key: Key, time: int) -> Value:
        """The value of the window that starts at ``time``, or None."""
        answers = {partition: list(rows) for partition, rows in self._answers(WindowKeyQuery(key, time, time)).items()}
        found = next((rows[0][1] for rows in answers.values() if rows), None)
        if found is None:
            self._check_is_here(key, answers)
        return self._value(found)

    def fetch_range(self, key: Key, time_from: int, time_to: int) -> Iterator[tuple[int, Value]]:
        """``(start, value)`` of the windows that start in ``time_from``..``time_to``, both included."""
        return self._of_key(WindowKeyQuery(key, time_from, time_to))

    def backward_fetch_range(self, key: Key, time_from: int, time_to: int) -> Iterator[tuple[int, Value]]:
        return self._of_key(WindowKeyQuery(key, time_from, time_to, reverse=True))

    def _of_key(self, query: WindowKeyQuery) -> Iterator[tuple[int, Value]]:
        answers = self._answers(query)
        rows = chain.from_iterable(answers.values())
        first = next(rows, None)
        if first is None:
            self._check_is_here(query.key, answers)
            return iter(())
        return ((start, self._value(value)) for start, value in chain((first,), rows))

    def fetch_keys(
        self, key_from: Key, key_to: Key, time_from: int, time_to: int
    ) -> Iterator[tuple[Windowed[Key], Value]]:
        """``(windowed key, value)`` of the keys from ``key_from`` to ``key_to``, inclusive; None: unbounded."""
        found = self._answers(WindowRangeQuery(time_from, time_to, key_from, key_to))
        return ((key, self._value(value)) for key, value in chain.from_iterable(found.values()))

    def fetch_all(self, time_from: int, time_to: int) -> Iterator[tuple[Windowed[Key], Value]]:
        return self.fetch_keys(None, None, time_from, time_to)

    def all(self) -> Iterator[tuple[Windowed[Key], Value]]:
        return self.fetch_keys(None, None, 0, LATEST_MS)


class LocalSessionStore(_LocalStore):
    """The reading half of a :class:`topology.spec.stores.SessionStore`; both bounds of a session are included."""

    called = "session"
    rows = RowsOfKey.SESSIONS

    def find_sessions(self, key: Key, earliest_end: int, latest_start: int) -> Iterator[tuple[Windowed[Key], Value]]:
        """The sessions of a key that end then or later and start then or before, by end."""
        answers = self._answers(SessionKeyQuery(key, earliest_end, latest_start))
        found = list(chain.from_iterable(answers.values()))
        if not found:
            self._check_is_here(key, answers)
        return iter(found)

    def fetch(self, key: Key) -> Iterator[tuple[Windowed[Key], Value]]:
        return self.find_sessions(key, 0, LATEST_MS)

    def fetch_session(self, key: Key, start: int, end: int) -> Value:
        """The value of the session with these bounds, or None."""
        found = self.find_sessions(key, end, start)
        return next((value for each, value in found if (each.start_ms, each.end_ms) == (start, end)), None)

    def all(self) -> Iterator[tuple[Windowed[Key], Value]]:
        return chain.from_iterable(self._answers(SessionRangeQuery()).values())


class LocalVersionedStore(_LocalStore):
    """The reading half of a :class:`topology.spec.stores.VersionedKeyValueStore`."""

    called = "versioned"
    rows = RowsOfKey.VERSIONS

    def get(self, key: Key, as_of: int | None = None) -> VersionedRecord[Value] | None:
        """The version that was valid then (None: the newest), or None."""
        answers = self._answers(VersionedKeyQuery(key, as_of))
        found: VersionedRecord[Value] | None = next((each for each in answers.values() if each is not None), None)
        if found is None:
            self._check_is_here(key, answers)
        return found

    def versions(self, key: Key) -> list[VersionedRecord[Value]]:
        """All versions that are stored, newest first; expired ones are removed some at a time."""
        answers = self._answers(MultiVersionedKeyQuery(key))
        found = list(chain.from_iterable(answers.values()))
        if not found:
            self._check_is_here(key, answers)
        return found


VIEWS: Mapping[RowsOfKey, type[_LocalStore]] = MappingProxyType(
    {view.rows: view for view in (LocalKeyValueStore, LocalWindowStore, LocalSessionStore, LocalVersionedStore)}
)
"""How a caller sees a store, by the rows that it has. What waits can't be read from outside."""
