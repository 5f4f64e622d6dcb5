"""The query methods of :class:`streamsrt.app.KafkaStreams`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from streamsrt.errors import UserError
from streamsrt.queries.errors import StreamsNotStartedError
from streamsrt.queries.gate import DEFAULT_TIMEOUT_S
from streamsrt.queries.read_only import VIEWS
from streamsrt.queries.routing import StoreDirectory
from streamsrt.queries.store_queries import StoreQueries
from streamsrt.queries.values import (
    Key,
    KeyQueryMetadata,
    Partitioner,
    PositionBound,
    Query,
    StateQueryResult,
    StreamsMetadata,
    Value,
)
from topology.graph.store_kinds import rows_of


class Queryable:
    """``store_directory``: the stores of the topology."""

    store_directory: StoreDirectory

    def local_queries(self) -> StoreQueries:
        """Returns the queries of the current run. Raises InvalidStateStoreError if nothing runs."""
        raise StreamsNotStartedError("no application runs here")

    def query(
        self,
        store: str,
        query: Query,
        *,
        partitions: Collection[int] | None = None,
        require_active: bool = False,
        position_bound: PositionBound | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> StateQueryResult[Value]:
        """Queries the partitions of a store on this instance, or only ``partitions``. May be called from any thread.

        Active tasks and standbys answer; ``require_active``: running active tasks only. ``position_bound``: what a
        partition must contain to be queried. The result of a partition that can't answer has the reason. Results of
        ranges are iterators over a snapshot. Raises UnknownStateStoreError, StreamsNotStartedError,
        StreamsRebalancingError (not a member of the group yet), StreamsStoppedError, QueryTimedOutError, UserError (the
        key's type). Source: ``KafkaStreams.query`` (KIP-796).
        """
        self.store_directory.spec(store)
        return self.local_queries().query(
            store,
            query,
            partitions=partitions,
            require_active=require_active,
            position_bound=position_bound,
            timeout_s=timeout_s,
        )

    def store(
        self,
        name: str,
        *,
        partition: int | None = None,
        stale: bool = False,
        timestamped: bool = False,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Any:  # the store's kind decides on the class
        """Returns a store to read, over all its partitions on this instance or over one: a
        :class:`~streamsrt.queries.read_only.LocalKeyValueStore` or
        :class:`~streamsrt.queries.read_only.LocalWindowStore`.

        ``stale``: standbys and restoring tasks answer too. ``timestamped``: values are ValueAndTimestamp.
        Raises as :meth:`query` does. Source: ``KafkaStreams.store`` and ``StoreQueryParameters``.
        """
        spec = self.store_directory.spec(name)
        queries = self.local_queries()
        view = VIEWS.get(rows_of(spec))
        if view is None:
            raise UserError(f"store {name!r} is a {spec.kind} store, which can't be queried")
        return view(
            queries,
            queries.routing,
            name,
            partition=partition,
            stale=stale,
            timestamped=timestamped,
            timeout_s=timeout_s,
        )

    def all_metadata(self) -> list[StreamsMetadata]:
        """Returns metadata of every instance with an ``application.server``. Source: ``metadataForAllStreamsClients``."""
        return self.local_queries().routing.all_metadata()

    def metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Returns the instances that have partitions of a store. Source: ``streamsMetadataForStore``."""
        return self.local_queries().routing.metadata_for_store(store)

    def query_metadata_for_key(self, store: str, key: Key, partitioner: Partitioner | None = None) -> KeyQueryMetadata:
        """Returns the instances that have a key, active and standby. Source: ``queryMetadataForKey``."""
        return self.local_queries().routing.key_metadata(store, key, partitioner)

    def metadata_for_key(self, store: str, key: Key, partitioner: Partitioner | None = None) -> StreamsMetadata | None:
        """Returns the instance with the active task of a key; None if unknown."""
        host = self.query_metadata_for_key(store, key, partitioner).active_host
        return next((each for each in self.all_metadata() if each.host_info == host), None)
