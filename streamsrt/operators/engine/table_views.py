"""Rows of tables as other operators see them: read from a store, or made on the fly of what the nearest stores have.

A row is a value and its timestamp; a key without a row has the value None and the timestamp -1.

Source: KTableValueGetter and its suppliers in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamsrt.operators.engine.plan import ResolvedSubtopology, no_store_error
from streamsrt.state.buffer import SuppressionBuffer
from streamsrt.state.kinds import NO_ROW, Cache, TableRow, View, cache_of, forwarded_view, stored_view
from streamsrt.state.versioned_cache import VersionedCache
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import RowSource, derived_row, held_store, own_store, traits_of
from topology.spec.codecs import ProgramSerde


def table_view(plan: ResolvedSubtopology, caches: Mapping[str, Cache], table: str) -> View:
    """Returns how rows of the table of node ``table`` are found. Raises ConfigError if no store has them."""
    return _view(plan, caches, table, lambda store: _stored(plan, caches, store))


def _stored(plan: ResolvedSubtopology, caches: Mapping[str, Cache], store: str) -> View:
    spec = plan.specs[store]
    return stored_view(spec, caches[store], plan.key_serde(spec))


def view_as_forwarded(plan: ResolvedSubtopology, caches: Mapping[str, Cache], table: str) -> View:
    """Like :func:`table_view`, but rows as they were last forwarded: before the changes that caches hold back."""

    def stored(store: str) -> View:
        if not plan.is_cached(store):
            return _stored(plan, caches, store)
        spec = plan.specs[store]
        return forwarded_view(spec, caches[store], plan.key_serde(spec))

    return _view(plan, caches, table, stored)


def stores_of_rows(plan: ResolvedSubtopology, table: str) -> frozenset[str]:
    """The nearest stores, out of which rows of a table are made. Raises ConfigError if no store has them."""
    found: set[str] = set()
    # There may be many ways to a table: each join with itself doubles them.
    tables = [table]
    for name in tables:
        node = plan.node(name)
        if not isinstance(node, ProcessorNode):
            raise no_store_error(name)
        store = own_store(node.operation)
        if store is not None:
            found.add(store)
        else:
            tables += [parent for parent in node.parents if parent not in tables]
    return frozenset(found)


def _view(plan: ResolvedSubtopology, caches: Mapping[str, Cache], table: str, stored: Callable[[str], View]) -> View:
    known: dict[str, View] = {}

    def view(name: str) -> View:
        found = known.get(name)
        if found is None:
            found = known[name] = _made_view(plan, caches, name, stored, view)
        return found

    return view(table)


def _made_view(
    plan: ResolvedSubtopology,
    caches: Mapping[str, Cache],
    table: str,
    stored: Callable[[str], View],
    view: Callable[[str], View],
) -> View:
    """The view of a table; ``view`` gives those that it is made of."""
    node = plan.node(table)
    if isinstance(node, ProcessorNode):
        op = node.operation
        store = own_store(op)
        if store is not None:
            return stored(store)
        derive, held = derived_row(op), held_store(op)
        if derive is not None:
            return _through(view(node.parents[0]), derive)
        if held is not None:
            buffer = cache_of(SuppressionBuffer, caches, held)
            return _held_back(view(node.parents[0]), buffer, plan.key_serde(plan.specs[held]))
        if traits_of(op).row is RowSource.PARENTS:
            return _joined(plan, node, view)
    raise no_store_error(table)


def table_view_as_of(
    plan: ResolvedSubtopology, caches: Mapping[str, Cache], table: str
) -> Callable[[object, int], object] | None:
    """``(key, time) -> value`` that the table had at a time; None where it keeps no versions.

    Those of a versioned store, seen through the filters and mappers behind it.
    """
    node = plan.node(table)
    if not isinstance(node, ProcessorNode) or not plan.is_versioned(table):
        return None
    versions = stored_versions(plan, caches, table)
    if versions is not None:
        serialize, as_of = plan.key_serde(plan.specs[versions.name]).serialize, versions.as_of
        return lambda key, at_ms: as_of(serialize(key), at_ms)
    above, step = table_view_as_of(plan, caches, node.parents[0]), derived_row(node.operation)
    assert above is not None
    assert step is not None
    return lambda key, at_ms: step(key, above(key, at_ms))


def stored_versions(plan: ResolvedSubtopology, caches: Mapping[str, Cache], table: str) -> VersionedCache | None:
    """The versions of a table that keeps them itself; None of all others."""
    node = plan.node(table)
    if not isinstance(node, ProcessorNode) or not plan.is_versioned(table):
        return None
    store = own_store(node.operation)
    return None if store is None else cache_of(VersionedCache, caches, store)


def _held_back(above: View, buffer: SuppressionBuffer, serde: ProgramSerde) -> View:
    """Rows as they were last forwarded, without the changes that a suppression holds back."""
    serialize = serde.serialize

    def row(key: object) -> TableRow:
        held = buffer.get(serialize(key))
        if held is None:
            return above(key)
        return NO_ROW if held.prior is None else (held.prior, -1)

    return row


def _through(above: View, step: Callable[[object, object], object]) -> View:
    def row(key: object) -> TableRow:
        value, timestamp = above(key)
        value = step(key, value)
        return NO_ROW if value is None else (value, timestamp)

    return row


def _joined(plan: ResolvedSubtopology, merge: ProcessorNode, view: Callable[[str], View]) -> View:
    this, other = (plan.node(parent) for parent in merge.parents)
    assert isinstance(this, ProcessorNode)
    assert isinstance(other, ProcessorNode)
    op, reverse = this.operation, other.operation
    assert isinstance(op, operations.TableTableJoin)
    assert isinstance(reverse, operations.TableTableJoin)
    left, right = view(reverse.table), view(op.table)
    joiner, kind = op.joiner, op.kind

    def row(key: object) -> TableRow:
        left_value, left_time = left(key)
        if left_value is None and kind != "outer":
            return NO_ROW
        right_value, right_time = (left_value, left_time) if right is left else right(key)
        if right_value is None and (kind == "inner" or left_value is None):
            return NO_ROW
        return joiner(left_value, right_value), max(left_time, right_time)

    return row
