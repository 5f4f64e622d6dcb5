"""What both ways of running a subtopology need to know of it: names, serdes and stores, resolved once per task.

A node whose operation has a store with caching on forwards nothing while records are processed; its children run when
the cache is flushed. ``ResolvedSubtopology.flushed_stores`` lists the stores in the order of flushing: a store that is
fed by another one's flush comes later. What a flush does with each of them is resolved there, too: small commits flush as
often as records come.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any, Literal

from streamsrt.errors import ConfigError
from streamsrt.operators.engine.handlers import ExceptionHandlers
from streamsrt.operators.engine.program_clock import ProgramClock
from streamsrt.state.snapshots import Values
from topology.graph import nodes, operations
from topology.graph.nodes import ProcessorNode, SinkNode, SourceNode, StoreSpec, Subtopology, internal_topic_name
from topology.graph.operations.traits import (
    Code,
    FromParent,
    Rereading,
    RowSource,
    derived_row,
    emits_on_close,
    has_sliding_windows,
    own_store,
    traits_of,
)
from topology.graph.store_kinds import RowsOfKey, rows_of, store_traits
from topology.spec.codecs import ProgramSerde

_CALLS_PER_STEP = 2
_OTHER_CALLS = 40
"""What else is on the stack while a record is processed, about."""


class Counters:
    """Plain integers that operators add to once per run.

    ``dropped_late``: records of windows that have closed. ``dropped_outdated``: changes of a table that a newer one of the
    same key has overtaken: the result is that of the newer one, and nothing is missing.
    ``unkeyed``: records that stood before a repartition topic without a key. Kafka Streams does not count them, so they are
    no part of :meth:`dropped`. ``last_skipped``: by the name of a counter of failures, what the last record of it was that
    a handler let go, and why, as text.
    """

    __slots__ = (
        "dropped_late",
        "dropped_null",
        "dropped_outdated",
        "failed_deserialization",
        "failed_processing",
        "failed_production",
        "last_skipped",
        "unkeyed",
    )

    def __init__(self) -> None:
        self.dropped_null = 0
        self.dropped_late = 0
        self.dropped_outdated = 0
        self.failed_deserialization = 0
        self.failed_processing = 0
        self.failed_production = 0
        self.unkeyed = 0
        self.last_skipped: dict[str, str] = {}

    def dropped(self) -> int:
        """Kafka Streams' ``dropped-records-total``."""
        failed = self.failed_deserialization + self.failed_processing + self.failed_production
        return self.dropped_null + self.dropped_late + self.dropped_outdated + failed


class StreamTime:
    """The stream time that one windowed operation has observed, in milliseconds; -1 before the first record. ``closed_ms``:
    windows that close by this stream time were emitted, if windows are emitted when they close; ``closing`` knows the
    open windows, for all functions of the operation.

    ``closed_ms``: what was closed at that stream time was emitted, where windows are emitted when they close; ``closing`` is
    what knows the open ones then, once for all functions that the operation is in.
    """

    __slots__ = ("closed_ms", "closing", "lets_go", "ms")

    def __init__(self) -> None:
        self.ms = -1
        self.closed_ms = -1
        self.closing: object = None
        self.lets_go = False
        """Whether it has begun to forward what it held back, or what closes, and has not come to the end."""

    def snapshot(self) -> Values:
        return [self.ms, self.closed_ms]

    def resume_from(self, values: Values) -> None:
        self.ms, self.closed_ms = map(int, values)


@dataclass(frozen=True, slots=True)
class FlushedStore:
    """A store, and what becomes of its changes at a flush.

    ``holds_back``: it is a suppression's. ``is_cached``: they are forwarded and logged then only. ``changelog``: the topic
    that logs them; None where the application does not write one. ``marks_deletions``: with the headers of deletions.
    ``owner``: the node whose children get them; None: there are none.
    """

    name: str
    holds_back: bool
    is_cached: bool
    changelog: str | None
    marks_deletions: bool
    owner: ProcessorNode | None


@dataclass(slots=True, kw_only=True)
class ResolvedSubtopology:
    """A subtopology with everything resolved that it needs to run as a task."""

    subtopology: Subtopology
    application_id: str
    default_key_serde: ProgramSerde | None = None
    default_value_serde: ProgramSerde | None = None
    caching: bool = True
    handlers: ExceptionHandlers = field(default_factory=ExceptionHandlers)
    outer_join_emit_interval_ms: int = 0
    """The minimum wall-clock time between two scans of a stream-stream join for unmatched records."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    given_settings: Mapping[str, Any] = field(default_factory=dict)
    """All settings of the application, and those that were given, by their names in Kafka's form."""
    clock: ProgramClock = field(default_factory=ProgramClock)
    specs: Mapping[str, StoreSpec] = field(init=False)
    flushed_stores: tuple[FlushedStore, ...] = field(init=False)
    sliding_stores: frozenset[str] = field(init=False)
    """Those of sliding aggregations."""
    _forwarding: dict[str, bool] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_depth(self.subtopology)
        self.specs = {spec.name: spec for spec in self.subtopology.stores}
        order: list[str] = []
        seen: set[str] = set()
        for source in self.subtopology.sources:
            self._visit(source.name, seen, order)
        rest = [name for name in self.specs if name not in order]
        processors = [node for node in self.subtopology.nodes if isinstance(node, ProcessorNode)]
        owned = [(store, node) for node in processors if (store := own_store(node.operation))]
        owners = {store: node for store, node in owned if not emits_on_close(node.operation) and node.result_children}
        self.flushed_stores = tuple(self._flushed(name, owners.get(name)) for name in (*reversed(order), *rest))
        self.sliding_stores = frozenset(store for store, node in owned if has_sliding_windows(node.operation))

    def _flushed(self, name: str, owner: ProcessorNode | None) -> FlushedStore:
        return FlushedStore(
            name,
            holds_back=rows_of(self.specs[name]) is RowsOfKey.HELD,
            is_cached=self.is_cached(name),
            changelog=self.changelog_topic(name) if self.writes_changelog(name) else None,
            marks_deletions=self.marks_deletions(name),
            owner=owner,
        )

    def _visit(self, name: str, seen: set[str], order: list[str]) -> None:
        """Depth first, a node after its children: reversed, that is an order in which parents come first."""
        if name in seen:
            return
        seen.add(name)
        node = self.subtopology.node(name)
        if isinstance(node, SinkNode):
            return
        for child in reversed(node.children):
            self._visit(child, seen, order)
        if isinstance(node, ProcessorNode):
            stores = (store,) if (store := own_store(node.operation)) else node.stores
            order.extend(s for s in reversed(stores) if s in self.specs and s not in order)

    def node(self, name: str) -> nodes.Node:
        return self.subtopology.node(name)

    def location(self, name: str) -> str:
        """A node and the line of the program that made it, for messages."""
        try:
            site = self.subtopology.node(name).site
        except KeyError:
            site = None
        return name if site is None else f"{name} ({site})"

    def topic(self, name: str, internal: bool) -> str:
        """The full name of a topic of the subtopology."""
        return internal_topic_name(self.application_id, name) if internal else name

    def source_topics(self, source: SourceNode) -> tuple[str, ...]:
        return tuple(self.topic(topic, source.repartition) for topic in source.topics)

    def changelog_topic(self, store: str) -> str | None:
        """The changelog of a store; None where it has none."""
        spec = self.specs[store]
        if not spec.logging and spec.source_topic is None:
            return None
        return spec.source_topic or internal_topic_name(self.application_id, spec.changelog_name)

    def writes_changelog(self, store: str) -> bool:
        return self.specs[store].has_own_changelog

    def is_cached(self, store: str) -> bool:
        """Whether changes of the store are forwarded and logged at flushes only."""
        return self.caching and self.specs[store].caching

    def is_plain(self, store: str) -> bool:
        """Whether a store's entries may be changed in place."""
        spec = self.specs.get(store)
        if spec is None:
            return True
        return store_traits(spec).changed_in_place and not spec.plain_rows and not spec.keeps_headers

    def keeps_versions(self, store: str) -> bool:
        """Whether it is a store of the subtopology that has several versions of a row."""
        spec = self.specs.get(store)
        return spec is not None and rows_of(spec) is RowsOfKey.VERSIONS

    def marks_deletions(self, store: str) -> bool:
        """Whether a tombstone of the store's changelog has the headers of the record that deleted the row: where rows have
        room for headers, which in Java are those of persistent stores only."""
        spec = self.specs[store]
        return spec.keeps_headers and spec.persistent and store_traits(spec).deletion_headers

    def is_versioned(self, table: str) -> bool:
        """Whether the changes of a table's node are versions: of its own versioned store, or of its parent's."""
        node = self.node(table)
        if not isinstance(node, ProcessorNode):
            return False
        store = own_store(node.operation)
        if store is not None:
            return rows_of(self.specs[store]) is RowsOfKey.VERSIONS
        return isinstance(traits_of(node.operation).row, FromParent) and self.is_versioned(node.parents[0])

    def has_changed(self, name: str) -> bool:
        """Whether a record that fails in a node may have changed a store before: one of a processor, or one whose changes
        are forwarded at once. Such a record is not the same when it is read again."""
        node = self.subtopology.node(name)
        if isinstance(node, SourceNode):
            return False
        if isinstance(node, ProcessorNode) and traits_of(node.operation).code is Code.PROCESSOR and node.stores:
            return True
        return any(self._forwards_changed(parent) for parent in node.parents)

    def _forwards_changed(self, name: str) -> bool:
        found = self._forwarding.get(name)
        if found is None:
            # There may be many ways to a node: each pair of branches that is merged again doubles them.
            found = self._forwarding[name] = self._changes_or_parents_do(name)
        return found

    def _changes_or_parents_do(self, name: str) -> bool:
        node = self.subtopology.node(name)
        if not isinstance(node, ProcessorNode):
            return False
        store = own_store(node.operation)
        if traits_of(node.operation).rereading is not Rereading.NOTHING and node.stores:
            return store is None or not self.is_cached(store)
        return any(self._forwards_changed(parent) for parent in node.parents)

    def serde_or_default(self, own: ProgramSerde | None, what: Literal["key", "value"], where: str) -> ProgramSerde:
        """A serde that an operation itself needs. Raises ConfigError where there is none."""
        return self._resolve(own, self.default_key_serde if what == "key" else self.default_value_serde, what, where)

    def key_serde(self, of: SourceNode | SinkNode | StoreSpec) -> ProgramSerde:
        return self._resolve(of.key_serde, self.default_key_serde, "key", of.name)

    def value_serde(self, of: SourceNode | SinkNode | StoreSpec) -> ProgramSerde:
        return self._resolve(of.value_serde, self.default_value_serde, "value", of.name)

    def _resolve(self, own: ProgramSerde | None, default: ProgramSerde | None, what: str, where: str) -> ProgramSerde:
        serde = own or default
        if serde is None:
            raise ConfigError(
                f"no {what} serde for {where!r}: give one where it is declared, or set default.{what}.serde"
            )
        return serde


def stores_behind_caches(plan: ResolvedSubtopology) -> frozenset[str]:
    """The stores that get changes out of another store's cache, and so only when that is flushed."""
    found: set[str] = set()

    seen: set[tuple[str, frozenset[str]]] = set()

    def visit(name: str, caches: frozenset[str]) -> None:
        node = plan.node(name)
        if isinstance(node, SinkNode) or (name, caches) in seen:
            return
        seen.add((name, caches))
        if isinstance(node, ProcessorNode):
            own = own_store(node.operation)
            found.update(store for store in ((own,) if own else node.stores) if caches - {store})
            if own is not None and plan.is_cached(own):
                caches |= {own}
        for child in node.children:
            visit(child, caches)

    for source in plan.subtopology.sources:
        visit(source.name, frozenset())
    return frozenset(found)


def check_depth(subtopology: Subtopology) -> None:
    """Raises ConfigError where more steps follow one another than Python's stack has room for: each calls the next one."""
    depths: dict[str, int] = {}
    parents = {node.name: () if isinstance(node, SourceNode) else node.parents for node in subtopology.nodes}
    for name in TopologicalSorter(parents).static_order():
        depths[name] = 1 + max((depths[parent] for parent in parents[name]), default=0)
    most = (sys.getrecursionlimit() - _OTHER_CALLS) // _CALLS_PER_STEP
    deepest = max(depths, key=depths.__getitem__)
    if depths[deepest] > most:
        raise ConfigError(
            f"{depths[deepest]} steps follow one another up to {deepest}, and Python's stack has room for {most}: do the "
            "work of several steps in one function, put a repartition() between them, which divides the chain, or raise "
            "sys.setrecursionlimit()"
        )


def same_bytes(one: ProgramSerde | None, other: ProgramSerde | None) -> bool:
    """Whether two serdes write the same bytes for the same value."""
    return one is other or (
        one is not None and other is not None and one.name == other.name and type(one) is type(other)
    )


@dataclass(frozen=True, slots=True)
class TableLookup:
    """How a table's row is found: in ``store``, then through ``steps`` (filters and mappers), in order."""

    store: str
    steps: tuple[operations.Operation, ...]


def table_lookup(plan: ResolvedSubtopology, table: str) -> TableLookup | None:
    """The nearest ancestor of a table that has a store, and what lies between; None where a join or a suppression does."""
    steps: list[operations.Operation] = []
    node = plan.node(table)
    while isinstance(node, ProcessorNode):
        store = own_store(node.operation)
        if store is not None:
            return TableLookup(store, tuple(reversed(steps)))
        if traits_of(node.operation).row in {RowSource.PARENTS, RowSource.FORWARDED}:
            return None
        if derived_row(node.operation) is None:
            break
        steps.append(node.operation)
        node = plan.node(node.parents[0])
    raise no_store_error(table)


def no_store_error(table: str) -> ConfigError:
    return ConfigError(f"table {table!r} has no store to look rows up in: name one with store=")
