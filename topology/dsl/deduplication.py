"""Dropping duplicates: ``KStream.deduplicate`` and its processor.

1. The store has one row for each id: the latest timestamp of a forwarded record with that id.
2. A record is dropped if its timestamp is within ``ttl`` of that, before or after. The result depends only on the
   records and their order, so a replay gives the same result.
3. A row expires when stream time is ``ttl + grace`` beyond it (the store's ``ttl``); later records of the id are
   forwarded again.
"""

from __future__ import annotations

from topology.build.planned import PlannedStream
from topology.dsl.stream_steps import process
from topology.graph.operations import Function
from topology.spec.codecs import AnySerde, long
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import OF_RECORD, check_function
from topology.spec.processor import FixedKeyProcessor, ProcessorContext, Record
from topology.spec.stores import KeyValueStore, Store
from topology.spec.windows import Duration, to_ms


class Deduplicator(FixedKeyProcessor[object, object, object]):
    """Forwards the first record of each id. Times in milliseconds."""

    def __init__(self, store: str, id_of: Function, ttl_ms: int) -> None:
        self._name = store
        self._id_of = id_of
        self._ttl_ms = ttl_ms

    def init(self, context: ProcessorContext[object, object]) -> None:
        self._context = context
        self._seen: KeyValueStore[object, int] = context.get_state_store(self._name)

    def process(self, record: Record[object, object]) -> None:
        found = self._id_of(record.key, record.value)
        if found is not None:
            passed: int | None = self._seen.get(found)
            if passed is not None and abs(record.timestamp - passed) < self._ttl_ms:
                return
            if passed is None or record.timestamp > passed:
                self._seen.put(found, record.timestamp)
        self._context.forward(record)

    def close(self) -> None:
        """Nothing is held but the store, which is its task's."""


def deduplicate(
    stream: PlannedStream,
    id_of: Function,
    ttl: Duration,
    *,
    serde: AnySerde,
    grace: Duration,
    store: str | None,
    name: str | None,
) -> PlannedStream:
    """The stream without the records whose id came before. Raises TopologyError for a ``ttl`` below 1 ms."""
    check_function(id_of, "deduplicate", OF_RECORD)
    ttl_ms, grace_ms = to_ms(ttl, "ttl"), to_ms(grace, "grace")
    if ttl_ms < 1 or grace_ms < 0:
        raise TopologyError(f"deduplicate(ttl={ttl_ms} ms, grace={grace_ms} ms): ttl is at least 1 ms", call_site())
    own = store or stream.plan.number("KSTREAM-DEDUPLICATE-STATE-STORE-")
    seen = Store(own, key=serde, value=long, ttl=ttl_ms + grace_ms)
    step_name = name or stream.plan.number("KSTREAM-DEDUPLICATE-")
    return process(stream, lambda: Deduplicator(own, id_of, ttl_ms), [seen], step_name, fixed_key=True)
