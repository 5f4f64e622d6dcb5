"""The properties of each kind of operation, in one table.

1. Every operation has a row, and every row has all properties: there are no defaults. A property that depends on an
   operation's fields is a function below the table.
2. The rows say what an operation means. How it runs is in ``streamsrt.operators.table``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from topology.graph.operations import basic, batches, grouped_tables, joins, windowed
from topology.graph.operations.sides import join_side
from topology.graph.row_windows import RowWindows
from topology.spec.processor_wrapper import ProcessorSupplier
from topology.spec.windows import SessionWindows, SlidingWindows, TimeWindows

AnyOperation: TypeAlias = Any  # which fields it has, its row tells


class Key(Enum):
    """What an operation does with the key."""

    KEPT = "kept"
    CHANGED = "changed: what needs records by key needs a repartition topic behind it"
    GROUPED = "changed, for the repartition topic that stands right behind it"
    CHOSEN = "changed or kept, as the operation's fixed_key says"


class ResultsPerRecord(Enum):
    """The results of one record."""

    PASSED = "the record as it came"
    SAME = "the record as it came, or nothing"
    ONE = "one result, always"
    AT_MOST_ONE = "one result or none"
    TO_ONE_CHILD = "the record as it came, for the first child whose predicate holds"
    ANY = "any number"
    BY_WINDOW = "one for each window that the record is in"


class Reads(Enum):
    """The parts of a record that are always deserialised."""

    NOTHING = "neither key nor value"
    VALUE = "the value"
    BOTH = "key and value"
    AS_CHILDREN = "what the steps behind it read"
    MAPPED_VALUE = "the value, and the key where the function wants it or a step behind it reads it"


class RowSource(Enum):
    """Where a reader of the table finds a row."""

    STORE = "in its own store"
    PARENTS = "in its own store if it has one, else computed from the rows of the two joined tables"
    FORWARDED = "the parent's row, as it was last forwarded: changes that are held back do not show"
    NO_TABLE = "the result is not a table"


Derive: TypeAlias = Callable[[object, object], object]
"""``(key, value) -> value`` of a table that is derived from another one. None is no row, before and after."""


class FromParent(NamedTuple):
    """A reader finds a row in the operation's own store if it has one; else ``derive`` says, given the operation, how it is
    computed from the parent's row."""

    derive: Callable[[AnyOperation], Derive]


class Code(Enum):
    """Whose code runs."""

    OURS = "the operator's, with functions that see one record or value"
    PROCESSOR = "a processor of the user's, with a context, stores and punctuations"
    EFFECT = "a function that is called for what it does, not for what it returns"


class Rereading(Enum):
    """What becomes of what an operation keeps in stores if its input is read again from the beginning."""

    NOTHING = "it keeps nothing, or what another step has filled"
    SAME = "in the end it keeps the same"
    AGAIN = "a record counts once more, or meets what it had left behind"


class ObservedTime(Enum):
    """Whether an operation observes a stream time, which decides what is late."""

    NONE = "it observes none"
    OF_WINDOWS = "it observes one if it has windows"
    ALWAYS = "it observes one"


class RunEnd(Enum):
    """What an operation has left to do when a run of records ends."""

    NOTHING = "nothing: a record is done before the next one comes"
    BATCH = "its function takes the records that it has gathered"
    CALLS = "it looks up or awaits something for the records that it has gathered"


class Traits(NamedTuple):
    """One row. ``keeps_result``: the operation's ``store`` holds its own result. ``holds_back``: records leave it later than
    they came, also after a restart."""

    key: Key
    results: ResultsPerRecord
    reads: Reads
    row: RowSource | FromParent
    code: Code
    keeps_result: bool
    holds_back: bool
    rereading: Rereading
    stream_time: ObservedTime
    run_end: RunEnd


def _filtered(operation: basic.TableFilter) -> Derive:
    predicate, negate = operation.predicate, operation.negate
    return lambda k, v: None if v is None or bool(predicate(k, v)) is negate else v


def _mapped(operation: basic.TableMapValues) -> Derive:
    fn, with_key = operation.fn, operation.with_key
    return lambda k, v: None if v is None else fn(k, v) if with_key else fn(v)


Op = TypeVar("Op")
_K, _R, _D, _T, _C, _A = Key, ResultsPerRecord, Reads, RowSource, Code, Rereading
_S, _E = ObservedTime, RunEnd

TRAITS: Mapping[type, Traits] = MappingProxyType(
    {
        # One record at a time.
        basic.Filter: Traits(
            _K.KEPT, _R.SAME, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.KeyNotNull: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.AS_CHILDREN, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.Map: Traits(
            _K.CHANGED, _R.ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.SelectKey: Traits(
            _K.CHANGED, _R.ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.MapValues: Traits(
            _K.KEPT, _R.ONE, _D.MAPPED_VALUE, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.FlatMap: Traits(
            _K.CHANGED, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.FlatMapValues: Traits(
            _K.KEPT, _R.ANY, _D.MAPPED_VALUE, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.Peek: Traits(
            _K.KEPT, _R.PASSED, _D.BOTH, _T.NO_TABLE, _C.EFFECT, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.ForEach: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.EFFECT, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.PassThrough: Traits(
            _K.KEPT, _R.PASSED, _D.AS_CHILDREN, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        basic.Branch: Traits(
            _K.KEPT, _R.TO_ONE_CHILD, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        batches.MapBatches: Traits(
            _K.CHANGED, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.BATCH
        ),
        batches.MapAsync: Traits(
            _K.KEPT, _R.ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.CALLS
        ),
        batches.JoinLookup: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.CALLS
        ),
        # Processors of the user's.
        basic.Process: Traits(
            _K.CHOSEN, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.PROCESSOR, False, False, _A.AGAIN, _S.NONE, _E.NOTHING
        ),
        grouped_tables.TableTransformValues: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.STORE, _C.PROCESSOR, True, False, _A.AGAIN, _S.NONE, _E.NOTHING
        ),
        # Tables.
        basic.TableSource: Traits(
            _K.KEPT, _R.ONE, _D.NOTHING, _T.STORE, _C.OURS, True, False, _A.SAME, _S.NONE, _E.NOTHING
        ),
        basic.TableFilter: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, FromParent(_filtered), _C.OURS, True, False, _A.SAME, _S.NONE, _E.NOTHING
        ),
        basic.TableMapValues: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, FromParent(_mapped), _C.OURS, True, False, _A.SAME, _S.NONE, _E.NOTHING
        ),
        basic.TableToStream: Traits(
            _K.KEPT, _R.ONE, _D.AS_CHILDREN, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        grouped_tables.GroupTable: Traits(
            _K.GROUPED, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        # Aggregates.
        basic.Aggregate: Traits(
            _K.KEPT, _R.BY_WINDOW, _D.NOTHING, _T.STORE, _C.OURS, True, False, _A.AGAIN, _S.OF_WINDOWS, _E.NOTHING
        ),
        grouped_tables.TableAggregate: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.STORE, _C.OURS, True, False, _A.SAME, _S.NONE, _E.NOTHING
        ),
        windowed.SlidingAggregate: Traits(
            _K.KEPT, _R.ANY, _D.NOTHING, _T.STORE, _C.OURS, True, False, _A.AGAIN, _S.ALWAYS, _E.NOTHING
        ),
        windowed.CountWindowAggregate: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.AGAIN, _S.NONE, _E.NOTHING
        ),
        windowed.SessionAggregate: Traits(
            _K.KEPT, _R.ANY, _D.NOTHING, _T.STORE, _C.OURS, True, False, _A.AGAIN, _S.ALWAYS, _E.NOTHING
        ),
        windowed.TableMerge: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.STORE, _C.OURS, True, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        windowed.Suppress: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.FORWARDED, _C.OURS, False, True, _A.SAME, _S.ALWAYS, _E.NOTHING
        ),
        # Joins.
        basic.StreamTableJoin: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.NOTHING, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        joins.StreamJoinWindow: Traits(
            _K.KEPT, _R.PASSED, _D.VALUE, _T.NO_TABLE, _C.OURS, False, False, _A.AGAIN, _S.NONE, _E.NOTHING
        ),
        joins.StreamStreamJoin: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.AGAIN, _S.ALWAYS, _E.NOTHING
        ),
        joins.StreamSelfJoin: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.AGAIN, _S.ALWAYS, _E.NOTHING
        ),
        joins.StreamTableGraceJoin: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, True, _A.AGAIN, _S.ALWAYS, _E.NOTHING
        ),
        joins.StreamGlobalTableJoin: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        joins.AsofJoin: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, True, _A.AGAIN, _S.ALWAYS, _E.NOTHING
        ),
        joins.AsofKeep: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.AGAIN, _S.NONE, _E.NOTHING
        ),
        joins.TableTableJoin: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        joins.TableJoinMerge: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.PARENTS, _C.OURS, True, False, _A.SAME, _S.NONE, _E.NOTHING
        ),
        joins.SubscriptionSend: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        joins.SubscriptionReceive: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.SAME, _S.NONE, _E.NOTHING
        ),
        joins.SubscriptionJoin: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        joins.ForeignTableJoin: Traits(
            _K.KEPT, _R.ANY, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
        joins.ResponseJoin: Traits(
            _K.KEPT, _R.AT_MOST_ONE, _D.BOTH, _T.NO_TABLE, _C.OURS, False, False, _A.NOTHING, _S.NONE, _E.NOTHING
        ),
    }
)


def traits_of(operation: AnyOperation) -> Traits:
    """The row of an operation."""
    return TRAITS[type(operation)]


def with_fields(operation: Op, **values: object) -> Op:
    """The operation with other values in fields that an operation with its row has."""
    alterable: AnyOperation = operation
    altered: Op = replace(alterable, **values)
    return altered


def changes_key(operation: AnyOperation) -> bool:
    """Whether a forwarded record may have another key than its input."""
    key = traits_of(operation).key
    return key in {Key.CHANGED, Key.GROUPED} or (key is Key.CHOSEN and not operation.fixed_key)


def needs_repartition(operation: AnyOperation) -> bool:
    """Whether operations that need records by key need an additional repartition topic behind this operation."""
    return traits_of(operation).key is not Key.GROUPED and changes_key(operation)


def has_one_result(operation: AnyOperation) -> bool:
    """Whether one input record gives at most one result."""
    results = traits_of(operation).results
    if results is ResultsPerRecord.BY_WINDOW:
        hops = isinstance(operation.windows, TimeWindows) and operation.windows.advance_ms < operation.windows.size_ms
        return not hops and not operation.emit_on_close
    return results is not ResultsPerRecord.ANY


def own_store(operation: AnyOperation) -> str | None:
    """The store in which an operation keeps its result."""
    store: str | None = operation.store if traits_of(operation).keeps_result else None
    return store


def derived_row(operation: AnyOperation) -> Derive | None:
    """How a row is computed from the parent's; None where it is not."""
    row = traits_of(operation).row
    return row.derive(operation) if isinstance(row, FromParent) else None


def held_store(operation: AnyOperation) -> str | None:
    """The store in which an operation holds back changes of a table whose rows are those that it has forwarded."""
    store: str | None = operation.store if traits_of(operation).row is RowSource.FORWARDED else None
    return store


def processor_of(operation: AnyOperation) -> ProcessorSupplier | None:
    """What makes the processor of the user's that is the whole step; None: the step is one of ours. A processor that makes
    the rows of a table returns them to a step of ours."""
    traits = traits_of(operation)
    if traits.code is not Code.PROCESSOR or traits.row is not RowSource.NO_TABLE:
        return None
    supplier: ProcessorSupplier = operation.supplier
    return supplier


def branches_of(operation: AnyOperation) -> dict[str, object]:
    """The children of a split with their predicates; none of another operation, all of whose children get its results."""
    if traits_of(operation).results is not ResultsPerRecord.TO_ONE_CHILD:
        return {}
    return dict(zip(operation.children, operation.predicates, strict=True))


def closed_store(operation: object) -> str | None:
    """The store that remembers up to when the windows of an operation's own rows were closed by the wall clock."""
    store: str | None = None if own_store(operation) is None else getattr(operation, "closed", None)
    return store


def calls_async(operation: object) -> bool:
    """Whether an operation awaits functions of the user's."""
    return traits_of(operation).run_end is RunEnd.CALLS and getattr(operation, "calls", operation) is not None


def takes_key(operation: object) -> bool:
    """Whether the function of an operation takes the key, too: as ``with_key`` says, where the program chooses."""
    chosen: bool | None = getattr(operation, "with_key", None)
    row = traits_of(operation)
    return (row.reads is not Reads.VALUE and row.run_end is not RunEnd.BATCH) if chosen is None else chosen


def stream_time_store(operation: AnyOperation) -> str | None:
    """The store that an operation's stream time belongs to: of records that wait for a table, the one in which they wait. Of
    a stream-stream join, the right side has that of both."""
    observed = traits_of(operation).stream_time
    has_windows = getattr(operation, "windows", None) is not None
    if observed is ObservedTime.NONE or (observed is ObservedTime.OF_WINDOWS and not has_windows):
        return None
    side = join_side(operation)
    if side is not None and side.shared is not None and operation.side == "left":
        return None
    waiting = None if side is None or side.table is None else side.keeps
    store: str = operation.store if waiting is None else getattr(operation, waiting)
    return store


def row_windows(operation: object) -> RowWindows | None:
    """What the windows of an operation's own rows are."""
    windows = _windows(operation)
    return None if windows is None else RowWindows.of(windows)


def window_size_ms(operation: AnyOperation) -> int | None:
    """The size of the windows of an operation's own rows; None if rows have no windows, or sessions."""
    windows = _windows(operation)
    if windows is None or isinstance(windows, SessionWindows):
        return None
    size_ms: int = windows.size_ms
    return size_ms


def has_sessions(operation: AnyOperation) -> bool:
    """Whether an operation's own rows are sessions."""
    return isinstance(_windows(operation), SessionWindows)


def has_sliding_windows(operation: object) -> bool:
    """Whether an operation's own rows have windows that depend on the records."""
    return isinstance(_windows(operation), SlidingWindows)


def emits_on_close(operation: AnyOperation) -> bool:
    """Whether an operation forwards its rows when their windows close, and not when its cache is flushed."""
    return bool(getattr(operation, "emit_on_close", False))


def _windows(operation: AnyOperation) -> Any:
    return None if own_store(operation) is None else getattr(operation, "windows", None)
