"""The plan: the calls of a program as steps, from which the passes make a graph.

1. An operator call adds steps, which take their names from the plan's counter immediately, in the order of Kafka
   Streams: so generated names are equal. The passes decide everything else.
2. A step knows its parents. ``order`` is the order in which steps were added; a step that several operators share takes the
   place of its last use.
3. A table's step holds a :class:`TableState`: later operators may ask the table to keep a store, or to send old values.
4. Building does not change the plan, so it can be built again.
5. A call that is refused gives its numbers back: in a notebook, the corrected call makes the names that it would have
   made the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from topology.graph.nodes import Side, StoreSpec
from topology.graph.operations import Function, Operation
from topology.graph.store_kinds import RowsOfKey, rows_of
from topology.spec.codecs import AnySerde, ProgramSerde
from topology.spec.errors import CallSite, TopologyError, call_site


@dataclass(frozen=True, slots=True)
class PlannedSerde:
    """What is known of the serde of what flows.

    ``serde`` None: nobody named one. Then ``changed_by`` says which operator changed the type, if one did, ``assumed`` is
    the serde from before that, and ``wrap`` makes the serde of what flows, where that is e.g. windows of this type.
    """

    serde: AnySerde = None
    changed_by: str | None = None
    assumed: AnySerde = None
    wrap: Callable[[ProgramSerde], ProgramSerde] | None = None

    def or_given(self, serde: AnySerde) -> PlannedSerde:
        return self if serde is None else PlannedSerde(serde)

    def wrapped(self, wrap: Callable[[ProgramSerde], ProgramSerde]) -> PlannedSerde:
        """What is known of the serde that ``wrap`` makes of this one."""
        if self.serde is not None:
            return PlannedSerde(wrap(self.serde))
        inner = self.wrap
        return replace(self, wrap=wrap if inner is None else lambda serde: wrap(inner(serde)))

    def changed(self, operator: str, site: CallSite, *, keep: bool = True) -> PlannedSerde:
        """What is known behind an operator that may change the type. ``keep`` False: it surely makes another type."""
        before = None if self.wrap is not None or not keep else self.serde or self.assumed
        return PlannedSerde(None, f"{operator}() at {site}", before)


@dataclass(frozen=True, slots=True)
class PlannedStore:
    """A store as the operator that has it would make it. ``shared``: several processors may bring the same one."""

    spec: StoreSpec
    key: PlannedSerde
    value: PlannedSerde
    shared: bool = False

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(slots=True, eq=False, kw_only=True)
class Step:
    """One operator call. ``name`` is the name that following steps know it by as a parent."""

    name: str
    site: CallSite
    parents: tuple[Step, ...] = ()
    order: int = 0
    late: str | None = None
    """The step behind it that gets the records which it drops as too late."""


@dataclass(slots=True, eq=False, kw_only=True)
class SourceStep(Step):
    """Reads topics, or the topics that a pattern matches."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key: PlannedSerde
    value: PlannedSerde
    timestamp_extractor: Function | None = None
    offset_reset: str | None = None
    is_shared: bool = True
    """Whether it may be one with another source of the same topics."""
    repartition: bool = False
    """An internal topic, that another step of the same operator writes."""


@dataclass(slots=True, eq=False, kw_only=True)
class TableSourceStep(SourceStep):
    """A source and the table behind it: two nodes. ``name`` is the table's."""

    source_name: str
    table: TableState


@dataclass(slots=True, eq=False, kw_only=True)
class GlobalStep(SourceStep):
    """A source and the one processor that fills a global store from it. ``name`` is the processor's."""

    source_name: str
    operation: Operation
    store: PlannedStore


@dataclass(slots=True, eq=False, kw_only=True)
class OperatorStep(Step):
    """``stores``: names of stores that it uses; ``own_stores``: those that it adds.

    ``serdes``: what is known of the serdes that the operation itself needs; ``key`` is its field ``key_serde``.
    """

    operation: Operation
    stores: tuple[str, ...] = ()
    own_stores: tuple[PlannedStore, ...] = ()
    serdes: Mapping[Side, PlannedSerde] = field(default_factory=dict)


@dataclass(slots=True, eq=False, kw_only=True)
class SplitStep(Step):
    """Sends each record to one of the branches, which are steps of their own."""

    predicates: list[Function | None] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class TableStep(Step):
    """A step that makes a table; its operation depends on what was asked of the table since.

    ``stores``: names of stores that it uses beside the table's own; ``own_stores``: those that it adds.
    """

    table: TableState
    stores: tuple[str, ...] = ()
    own_stores: tuple[PlannedStore, ...] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class TableJoinStep(TableStep):
    """Joins the tables of its two parents: three nodes. ``name`` is that of the node which brings both sides together.

    ``this_stores`` give the rows of the left side, so the right side's node reads them; and the other way round.
    """

    this_name: str
    other_name: str
    this_operation: Operation
    other_operation: Operation
    this_stores: tuple[str, ...]
    other_stores: tuple[str, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class StreamJoinStep(Step):
    """Joins the streams of its two parents: three nodes. ``name`` is that of the node which brings both sides together."""

    this_name: str
    other_name: str
    this_operation: Operation
    other_operation: Operation
    merge_operation: Operation
    this_stores: tuple[str, ...]
    other_stores: tuple[str, ...]
    own_stores: tuple[PlannedStore, ...] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class RepartitionStep(Step):
    """Writes to an internal topic and reads it again: three nodes. ``name`` is the source's.

    ``keeps_null_keys``: a left or outer join of streams follows, which wants records without a key too. ``filter_name``
    None: what comes has a key, so that there are two nodes only.
    """

    topic: str
    sink_name: str
    filter_name: str | None
    key: PlannedSerde
    value: PlannedSerde
    partitioner: Function | None = None
    partitions: int | None = None
    keeps_null_keys: bool = False
    is_mergeable: bool = False
    """Whether it is there because an operator needs it, and may be one with others."""


@dataclass(slots=True, eq=False, kw_only=True)
class SinkStep(Step):
    """Writes to a topic, or to the one that the extractor names. ``repartition``: to an internal one."""

    topic: str | None = None
    topic_extractor: Function | None = None
    key: PlannedSerde
    value: PlannedSerde
    partitioner: Function | None = None
    repartition: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class StoreStep(Step):
    """A store that the program adds by itself, for processors to connect to."""

    store: PlannedStore


@dataclass(slots=True, eq=False, kw_only=True)
class TableState:
    """What a table has been asked to do.

    ``kind`` source: keeps a store only when asked; derived: reads its parent's; join: reads those of its two sides.

    ``operation`` is made by the passes from ``make``: (name of its store or None) -> operation.
    """

    kind: Literal["source", "aggregate", "derived", "join"]
    name: str
    store: PlannedStore | None
    materialized: bool
    make: Function
    parent: TableState | None = None
    sides: tuple[TableState, ...] = ()
    sends_old_values: bool = False
    queryable_name: str | None = None
    """The store by which the table can be asked, where that is not its own."""
    closes_after_ms: int | None = None
    """Of a windowed aggregation: how long after its end a window is closed."""
    session_gap_ms: int = 0
    """Of an aggregation of sessions: the gap between them."""
    late: LateSource | None = None
    """The steps that drop late records, where the table's operator does."""
    has_own_rows: bool = False
    """Whether its rows can't be made out of its parent's: only its own store has them."""

    def materialize(self) -> tuple[str, ...]:
        """Asks for random access to the table's rows. The names of the stores that give it (``storeNames``).

        Raises TopologyError if there is no store for them.
        """
        nearest = self._nearest(TableState._has_rows_now)
        return tuple(dict.fromkeys(table.store.name for table in nearest if table.store is not None))

    def _has_rows_now(self) -> bool:
        """Whether the table's own store has its rows: a source keeps them when it is asked."""
        if self.kind == "source":
            self.materialized = True
        if self.materialized and self.store is not None:
            return True
        if self.has_own_rows:
            raise TopologyError(
                f"the rows of table {self.name!r} can't be looked up, because no store has them: name one where the table "
                "is made, with store=",
                call_site(),
            )
        return False

    def _nearest(self, is_one: Callable[[TableState], bool]) -> Iterator[TableState]:
        """The table, or else the nearest ones above it, of which ``is_one`` is true; each once, in their order: each join of
        a table with itself doubles the ways to those above."""
        left, seen = [self], set[TableState]()
        while left:
            table = left.pop()
            if table in seen:
                continue
            seen.add(table)
            if is_one(table):
                yield table
            else:
                left += reversed(table.sides if table.parent is None else (table.parent,))

    def closing_ms(self) -> int | None:
        """How long after its end a window of the table is closed: of two joined tables the longer time, because rows of
        either one change the result. None where it has no windows that close."""
        nearest = self._nearest(lambda table: table.closes_after_ms is not None)
        return max((table.closes_after_ms for table in nearest if table.closes_after_ms is not None), default=None)

    def session_gap(self) -> int:
        """The gap between the sessions that the table's keys are; 0 where they are not."""
        nearest = self._nearest(lambda table: table.session_gap_ms > 0)
        return max((table.session_gap_ms for table in nearest), default=0)

    def is_versioned(self) -> bool:
        """Whether the table's changes are versions: of its own store, of that of its sides by which it is asked, or of the
        one that it is derived from."""
        if self.store is not None and (self.materialized or self.kind == "source"):
            return rows_of(self.store.spec) is RowsOfKey.VERSIONS
        above = self.sides if self.queryable_name is not None else (self.parent,)
        return any(table is not None and table.is_versioned() for table in above)

    def send_old_values(self, *, force: bool) -> bool:
        """Asks for old values beside the new ones; ``force`` also where that needs a store more. Whether it will."""
        if self.sends_old_values:
            return True
        if self.kind == "source":
            if not self.materialized and not force:
                return False
            self.materialized = True
        elif self.kind == "join":
            for side in self.sides:
                side.send_old_values(force=True)
        elif self.kind == "derived" and not self.materialized and self.parent is not None:
            self.sends_old_values = self.parent.send_old_values(force=force)
            return self.sends_old_values
        self.sends_old_values = True
        return True


@dataclass(frozen=True, slots=True)
class LateSource:
    """The steps that drop late records, what is known of those records' serdes, and the sources above."""

    steps: tuple[Step, ...]
    key: PlannedSerde
    value: PlannedSerde
    sources: frozenset[str]


@dataclass(slots=True, eq=False)
class Plan:
    """The steps of one builder and its counter."""

    steps: list[Step] = field(default_factory=list)
    copartitioned: list[tuple[frozenset[str], CallSite]] = field(default_factory=list)
    """Names of sources that are joined."""
    _next_number: int = 0
    _next_order: int = 0

    def number(self, prefix: str) -> str:
        """A generated name: the prefix and the counter's next value."""
        name = f"{prefix}{self._next_number:010d}"
        self._next_number += 1
        return name

    def named(self, name: str | None, prefix: str) -> str:
        """The given name, or a generated one; takes a number either way."""
        generated = self.number(prefix)
        return generated if name is None else name

    def suffixed(self, name: str | None, suffix: str, prefix: str) -> str:
        """The given name with a suffix, or a generated one; takes a number either way."""
        return self.named(None if name is None else name + suffix, prefix)

    def savepoint(self) -> Callable[[], None]:
        """A call that gives back the numbers that are taken from now on, unless steps were added that may have them."""
        number, order, copartitioned = self._next_number, self._next_order, len(self.copartitioned)

        def give_back() -> None:
            if self._next_order == order:
                self._next_number = number
                del self.copartitioned[copartitioned:]

        return give_back

    def add(self, step: Step) -> None:
        """Adds a step behind all others; one that was added before moves there."""
        step.order = self._next_order
        self._next_order += 1
        if step not in self.steps:
            self.steps.append(step)


def frozen_config(config: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), str(value)) for key, value in config.items()))
