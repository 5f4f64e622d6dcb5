"""Dropping duplicates: ``KStream.deduplicate`` and its processor.

1. The store has one row for each id: the latest timestamp of a forwarded record with that id.
2. A record is dropped if its timestamp is within ``ttl`` of that, before or after. The result depends only on the
   records and their order, so a replay gives the same result.
3. A row expires when stream time is ``ttl + grace`` beyond it (the store's ``ttl``); later records of the id are
   forwarded again.
"""

from __future__ import annotations

from topology.build.materialize import as_store
from topology.build.planned import PlannedStream
from topology.dsl.stream_steps import process
from topology.graph.operations import Function
from topology.graph.store_kinds import RowsOfKey, rows_called
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
    store: str | Store | None,
    name: str | None,
) -> PlannedStream:
    """The stream without the records whose id came before. Raises TopologyError for a ``ttl`` below 1 ms."""
    check_function(id_of, "deduplicate", OF_RECORD)
    ttl_ms, grace_ms = to_ms(ttl, "ttl"), to_ms(grace, "grace")
    if ttl_ms < 1 or grace_ms < 0:
        raise TopologyError(f"deduplicate(ttl={ttl_ms} ms, grace={grace_ms} ms): ttl is at least 1 ms", call_site())
    given = as_store(store)
    own = given.name or stream.plan.number("KSTREAM-DEDUPLICATE-STATE-STORE-")
    seen = _seen(given, own, serde, ttl_ms + grace_ms)
    step_name = stream.plan.number("KSTREAM-DEDUPLICATE-") if name is None else name
    return process(stream, lambda: Deduplicator(own, id_of, ttl_ms), [seen], step_name, fixed_key=True)


def _seen(given: Store, name: str, serde: AnySerde, ttl_ms: int) -> Store:
    """The store of the ids, as the program describes it: what its rows are is up to the operator.

    Raises TopologyError for what it does not take.
    """
    wrong = {
        "kind=": rows_called(given.kind) is not RowsOfKey.ONE,
        "key=": given.key not in (None, serde),
        "value=": given.value is not None,
        "ttl=": given.ttl_ms is not None,
        "max_entries=": given.max_entries is not None,
        "window_size=": given.window_size_ms is not None,
        "segment_interval=": given.segment_interval_ms is not None,
        "retain_duplicates=": given.retain_duplicates,
        "plain_rows=": given.plain_rows,
        "timestamped=": given.timestamped is not None,
        "caching=": bool(given.caching),
        "version=": given.version > 1,
    }
    refused = [argument for argument, is_given in wrong.items() if is_given]
    if refused:
        raise TopologyError(
            f"the store of deduplicate() can't have {', '.join(refused)}: it keeps the time of each id for ttl + grace. "
            "Leave that away, and give the serde of the ids as serde=",
            call_site(),
        )
    return Store(
        name,
        key=serde,
        value=long,
        ttl=ttl_ms,
        keeps_headers=given.keeps_headers,
        logging=given.logging,
        changelog_config=given.changelog_config,
        in_memory=given.in_memory,
        supplier=given.supplier,
        renamed_from=given.renamed_from,
    )
