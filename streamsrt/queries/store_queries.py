"""The common part of all ways to query state: queries are typed at the caller, and rows are bytes at the store.

A partition with many rows returns them in chunks of one snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from streamsrt.queries.gate import DEFAULT_TIMEOUT_S
from streamsrt.queries.preparation import Convert, Prepared, prepare
from streamsrt.queries.readers import RawRow
from streamsrt.queries.routing import Routing
from streamsrt.queries.values import (
    FailureReason,
    PositionBound,
    Query,
    QueryResult,
    StateQueryResult,
    StoreSize,
    Value,
)

CHUNK_ROWS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tasks answer, how far they must be, and how long the caller waits.

    ``partitions``: None for all. ``require_active``: only running active tasks can answer. ``active_only``: standbys are
    left out, and an active task that does not run yet raises StreamsRebalancingError.
    """

    partitions: frozenset[int] | None
    require_active: bool
    bound: PositionBound
    active_only: bool
    timeout_s: float


class StoreQueries(ABC):
    """Queries the tasks of an instance, in this process or others."""

    @property
    @abstractmethod
    def routing(self) -> Routing:
        """Returns the instances with their partitions, as known now."""

    @abstractmethod
    def query_store(
        self, store: str, query: Query, prepared: Prepared | None, selection: Selection
    ) -> dict[int, QueryResult[Value]]:
        """Returns the answer of each partition on this instance: a :class:`RawRow` or None, or the first chunk of rows
        with the handle for :meth:`more`."""

    @abstractmethod
    def more(self, rows: Any, timeout_s: float) -> list[RawRow]:
        """Returns the next chunk."""

    @abstractmethod
    def store_sizes(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[StoreSize]:
        """Returns the size of each store of this instance."""

    def query(
        self,
        store: str,
        query: Query,
        *,
        partitions: Collection[int] | None = None,
        require_active: bool = False,
        position_bound: PositionBound | None = None,
        active_only: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> StateQueryResult[Value]:
        """See :meth:`streamsrt.app.KafkaStreams.query`; ``active_only``: see :class:`Selection`."""
        prepared = prepare(self.routing, store, query)
        selection = Selection(
            partitions=None if partitions is None else frozenset(partitions),
            require_active=require_active,
            bound=position_bound or PositionBound.unbounded(),
            active_only=active_only,
            timeout_s=timeout_s,
        )
        found = self.query_store(store, query, prepared, selection)
        answers = {partition: self._typed(answer, prepared, timeout_s) for partition, answer in sorted(found.items())}
        for partition in sorted(set(partitions or ()) - answers.keys()):
            answers[partition] = self._absent(store, partition)
        return StateQueryResult(answers)

    def _typed(self, answer: QueryResult[Value], prepared: Prepared | None, timeout_s: float) -> QueryResult[Value]:
        if not answer.is_success or prepared is None or answer.result is None:
            return answer
        if prepared.of_one_row:
            return QueryResult(prepared.convert(answer.result), answer.position)
        first, rows = answer.result
        return QueryResult(self._scan(first, rows, prepared.convert, timeout_s), answer.position)

    def _scan(self, chunk: list[RawRow], rows: Any, convert: Convert, timeout_s: float) -> Iterator[Value]:
        while chunk:
            yield from map(convert, chunk)
            if len(chunk) < CHUNK_ROWS:
                return
            chunk = self.more(rows, timeout_s)

    def _absent(self, store: str, partition: int) -> QueryResult[Value]:
        count = self.routing.partition_count(store)
        if not 0 <= partition < count:
            return QueryResult(
                failure_reason=FailureReason.DOES_NOT_EXIST,
                failure_message=f"store {store!r} has the partitions 0 to {count - 1}, and no partition {partition}",
            )
        return QueryResult(failure_reason=FailureReason.NOT_PRESENT, failure_message=self.whereabouts(store, partition))

    def whereabouts(self, store: str, partition: int) -> str:
        """Describes which instance has a partition that this one does not have."""
        active, standbys = self.routing.hosts_of(store, partition)
        what = f"partition {partition} of store {store!r} is not on this instance"
        if active is not None and active != self.routing.own_host:
            return f"{what}: ask {active}"
        if standbys:
            return f"{what}: no instance has it active, {', '.join(map(str, sorted(standbys)))} has a standby of it"
        return f"{what}, and no other instance with application.server is known to have it yet: try again"
