"""Deletes expired entries of stores with a ``ttl``, between records.

1. The time is the task's stream time: the latest timestamp of all records that it has read. Each record advances it
   first, then expired entries are deleted, then the record is processed; if it puts an entry that is already expired,
   the entry is deleted immediately.
2. Entries are deleted in the order in which they expired, then of the stores in the subtopology, then of keys. So the
   results do not depend on how records are cut into batches, or on when the task was started.
3. A deletion has the time at which the entry expired, in the changelog and downstream. A table forwards it, with the
   old value if old values are needed.
"""

from __future__ import annotations

from collections.abc import Callable

from streamsrt.operators.engine.processor_nodes import PathBuilder
from streamsrt.state.cache import Entry
from streamsrt.state.expiring import ExpiringCache
from streamsrt.state.kinds import cache_of
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import own_store
from topology.graph.store_kinds import Limit, store_traits


class Expiry:
    """The stores of one task whose entries expire."""

    def __init__(self, builder: PathBuilder) -> None:
        self._builder = builder
        caches = builder.env.caches
        self.stores = [
            spec.name for spec in builder.plan.subtopology.stores if store_traits(spec).limit is Limit.LAST_UPDATE
        ]
        self._caches = [cache_of(ExpiringCache, caches, name) for name in self.stores]
        self._deletes: list[Callable[[Entry, int], None]] = []

    def run(self, now_ms: int) -> None:
        """Deletes what has expired at that stream time, and what expires of what follows from it."""
        if len(self._caches) == 1:
            (cache,) = self._caches
            while (found := cache.first(now_ms)) is not None:
                self._delete(0, found, found.timestamp + cache.ttl_ms)
            return
        while True:
            due = [
                (found.timestamp + cache.ttl_ms, index)
                for index, cache in enumerate(self._caches)
                if (found := cache.first(now_ms)) is not None
            ]
            if not due:
                return
            at_ms, index = min(due)
            entry = self._caches[index].first(now_ms)
            assert entry is not None
            self._delete(index, entry, at_ms)

    def _delete(self, index: int, entry: Entry, at_ms: int) -> None:
        if not self._deletes:
            self._deletes = [self._deletion(store) for store in self.stores]
        self._deletes[index](entry, at_ms)

    def _deletion(self, store: str) -> Callable[[Entry, int], None]:
        builder, env = self._builder, self._builder.env
        change = builder.change(store)
        deserialize = builder.plan.key_serde(builder.plan.specs[store]).deserialize
        owner = next(
            (
                node
                for node in builder.plan.subtopology.nodes
                if isinstance(node, ProcessorNode) and own_store(node.operation) == store
            ),
            None,
        )
        target = None if owner is None else builder.node(owner.name)

        def delete(entry: Entry, at_ms: int) -> None:
            key, before = entry.key, entry.value
            change(key, None, at_ms, (), -1)
            if target is not None and owner is not None:
                env.is_expiring = True
                target.forward(deserialize(key), None, at_ms, (), before if owner.sends_old_values else None)
                env.is_expiring = False

        return delete
