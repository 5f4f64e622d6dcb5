"""Queries over the tasks of this instance.

1. All partitions of a query are read, and all its scans begin, at once: the answers of all tasks are from one moment.
2. An active task answers when it runs, a standby when it follows its changelogs; an active task that is being restored
   answers like a standby, with what it has so far. ``require_active`` requires a running active task. A standby does not
   answer for a store without a changelog of its own: it has no rows of it.
3. A global store is one partition, 0, which every instance has.
4. A partition that can't answer says why, and which instance can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from struct import Struct
from typing import Any, TypeVar

from streamsrt.errors import StateError
from streamsrt.queries.errors import StreamsRebalancingError
from streamsrt.queries.gate import DEFAULT_TIMEOUT_S, QueryGate
from streamsrt.queries.preparation import Prepared, describe
from streamsrt.queries.readers import RawRow
from streamsrt.queries.routing import Routing
from streamsrt.queries.store_queries import CHUNK_ROWS, Selection, StoreQueries
from streamsrt.queries.values import FailureReason, Position, PositionBound, Query, QueryResult, StoreSize, Value
from streamsrt.state.store import StoreClosedError
from streamsrt.tasks.global_state import GlobalConsumer
from streamsrt.tasks.manager.owned_task import OwnedTask, Phase
from streamsrt.tasks.restore.changelog_work import Restoring
from streamsrt.wording import counted

T = TypeVar("T")

_timestamp_of = Struct(">q").unpack_from
_ANSWERING = (Phase.RUNNING, Phase.STANDBY, Phase.RESTORING)


class LocalQueries(StoreQueries):
    """Queries the tasks of one processing thread. ``tasks``: all open ones. ``restoring``: the driver that follows
    changelogs."""

    def __init__(
        self,
        tasks: Iterable[OwnedTask],
        gate: QueryGate,
        routing: Routing,
        global_consumer: Callable[[], GlobalConsumer | None] = lambda: None,
        restoring: Restoring | None = None,
    ) -> None:
        self._restoring = restoring
        self._global_consumer = global_consumer
        self._tasks = tasks
        self._gate = gate
        self._routing = routing

    @property
    def routing(self) -> Routing:
        return self._routing

    def query_store(
        self, store: str, query: Query, prepared: Prepared | None, selection: Selection
    ) -> dict[int, QueryResult[Value]]:
        def read() -> dict[int, QueryResult[Value]]:
            partitions, active_only = selection.partitions, selection.active_only
            if self.routing.stores.is_global(store):
                return {0: self._query_global(store, prepared, query, selection.bound)}
            chosen = [
                owned
                for owned in self._with_store(store)
                if (partitions is None or owned.key[1] in partitions) and (owned.is_active or not active_only)
            ]
            if active_only:
                _check_running(chosen)
            with self._still(chosen):
                return {owned.key[1]: self._query(owned, store, prepared, query, selection) for owned in chosen}

        return self._gate.run(read, selection.timeout_s)

    def more(self, rows: Any, timeout_s: float) -> list[RawRow]:
        def read() -> list[RawRow]:
            with self._still(self._tasks):
                return list(islice(rows, CHUNK_ROWS))

        return self._gate.run(read, timeout_s)

    def _still(self, tasks: Iterable[OwnedTask]) -> AbstractContextManager[None]:
        """Pauses the restore of these tasks' stores, if there is one."""
        if self._restoring is None or not any(owned.changelogs for owned in tasks):
            return nullcontext()
        return self._restoring.standing_still

    def run_on_tasks(self, work: Callable[[Iterable[OwnedTask]], T], timeout_s: float = DEFAULT_TIMEOUT_S) -> T:
        """Runs ``work`` on the tasks while no other thread uses them, and returns its result. Raises
        InvalidStateStoreError."""
        return self._gate.run(lambda: work(self._tasks), timeout_s)

    def run_on_globals(self, work: Callable[[GlobalConsumer], None], timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Runs ``work`` on the consumer of the global stores, if there is one. Raises InvalidStateStoreError."""
        consumer = self._global_consumer()
        if consumer is not None:
            self._gate.run(lambda: work(consumer), timeout_s)

    def store_sizes(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[StoreSize]:
        """Returns the size of each store of this instance."""

        def read() -> list[StoreSize]:
            return [
                StoreSize(
                    str(owned),
                    name,
                    store.approximate_count(),
                    store.approximate_size_bytes(),
                    owned.task.caches[name].size_bytes(),
                )
                for owned in self._tasks
                for name, store in owned.stores.items()
            ]

        return self._gate.run(read, timeout_s)

    def _with_store(self, store: str) -> list[OwnedTask]:
        return [owned for owned in self._tasks if store in owned.stores]

    def _query(
        self, owned: OwnedTask, store: str, prepared: Prepared | None, query: Query, selection: Selection
    ) -> QueryResult[Value]:
        require_active = selection.require_active
        position = self._position_of(owned, store)
        if prepared is None:
            return self._of_another_kind(store, query)
        if owned.phase not in _ANSWERING or (require_active and not _runs(owned)):
            return QueryResult(
                failure_reason=FailureReason.NOT_ACTIVE if require_active else FailureReason.NOT_PRESENT,
                failure_message=f"task {owned} is {owned.role} and {owned.phase.value} on this instance: {_outlook(owned)}",
            )
        if owned.phase is Phase.STANDBY and store not in owned.changelogs:
            return QueryResult(
                failure_reason=FailureReason.NOT_PRESENT,
                failure_message=f"task {owned} is {owned.role} on this instance, and store {store!r} has no changelog that "
                "a standby follows: ask the instance with the active task",
            )
        missing = selection.bound.missing_in(position, owned.key[1])
        if missing:
            return QueryResult(
                position=position,
                failure_reason=FailureReason.NOT_UP_TO_BOUND,
                failure_message=f"task {owned}: {missing}",
            )
        return _read(owned.task.caches[store], prepared, position)

    def _position_of(self, owned: OwnedTask, store: str) -> Position:
        """Returns what a task's store contains (see :mod:`streamsrt.queries.values`)."""
        offsets: dict[str, dict[int, int]] = {}
        if _runs(owned):
            for (topic, partition), offset in owned.task.position(store).items():
                offsets.setdefault(topic, {})[partition] = offset - 1
        elif store in owned.changelogs:
            progress = owned.changelogs[store]
            (topic, partition), at = progress.changelog, None
            if self._restoring is not None:
                # The report may be older than the contents of the store.
                at = self._restoring.position(progress.changelog)
            offsets[topic] = {partition: (progress.position if at is None else at) - 1}
        return Position(offsets)

    def _query_global(
        self, store: str, prepared: Prepared | None, query: Query, bound: PositionBound
    ) -> QueryResult[Value]:
        consumer = self._global_consumer()
        if consumer is None or not consumer.is_ready:
            raise StreamsRebalancingError(f"global store {store!r} is being read from its topic: try again")
        if prepared is None:
            return self._of_another_kind(store, query)
        position = Position()
        for (topic, partition), at in consumer.positions(store).items():
            position = position.with_component(topic, partition, at - 1)
        missing = bound.missing_in(position, None)
        if missing:
            return QueryResult(
                position=position,
                failure_reason=FailureReason.NOT_UP_TO_BOUND,
                failure_message=f"global store: {missing}",
            )
        return _read(consumer.state.store(store)[1], prepared, position)

    def _of_another_kind(self, store: str, query: Query) -> QueryResult[Value]:
        kind = describe(self.routing.stores.spec(store))
        return QueryResult(
            failure_reason=FailureReason.UNKNOWN_QUERY_TYPE,
            failure_message=f"store {store!r} ({kind}) can't answer a {type(query).__name__}",
        )


def _read(cache: Any, prepared: Prepared, position: Position) -> QueryResult[Value]:
    try:
        rows = prepared.read(cache)
        if not prepared.of_one_row:
            rows = (list(islice(rows, CHUNK_ROWS)), rows)
    except StoreClosedError:
        raise
    except StateError as error:
        return QueryResult(position=position, failure_reason=FailureReason.STORE_EXCEPTION, failure_message=str(error))
    return QueryResult(rows, position)


def _runs(owned: OwnedTask) -> bool:
    return owned.is_active and owned.phase is Phase.RUNNING


def _check_running(chosen: list[OwnedTask]) -> None:
    for owned in chosen:
        if not _runs(owned):
            raise StreamsRebalancingError(f"task {owned} is {owned.phase.value}: {_outlook(owned)}")


def _outlook(owned: OwnedTask) -> str:
    remaining = sum(each.remaining_records for each in owned.changelogs.values())
    if owned.phase is Phase.RESTORING:
        return f"{counted(remaining, 'changelog record')} left to restore. Try again, or allow stale answers"
    if owned.phase is Phase.CREATED:
        return "it is about to start. Try again"
    return f"{counted(remaining, 'changelog record')} behind. Ask the instance with the active task, or allow stale answers"
