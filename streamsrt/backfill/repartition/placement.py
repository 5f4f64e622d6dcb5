"""Which part of its key decides the partition of a row, and which stores can't be moved.

1. For stores with keys of the program, :mod:`streamsrt.state.kinds` extracts the record's key, by kind of store.
2. Some operators make the keys of their stores themselves: their row of :data:`streamsrt.operators.table.OPERATIONS`
   extracts the record's key from these.
3. Everything else is refused with a reason, never guessed.
4. A store that says up to when windows were closed by the wall clock has one row for each partition, and no keys of
   records: its latest time is for all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from streamsrt.operators.table import OPERATIONS, OwnKeys
from streamsrt.state.kinds import functions_of, record_key_of
from streamsrt.state.sessions import split_session_key
from streamsrt.state.windowed import split_window_key
from streamsrt.tasks.input.stream_time_keys import stream_time_keys
from topology.graph.nodes import ProcessorNode, StoreSpec, Subtopology
from topology.graph.operations import Operation
from topology.graph.operations.traits import Code, closed_store, emits_on_close, own_store, traits_of
from topology.graph.row_windows import closes_after_ms
from topology.spec.windows import SessionWindows, SlidingWindows, TimeWindows

KeyOf: TypeAlias = Callable[[bytes], bytes]


class Closing(NamedTuple):
    """Windows that an operator emits when they close, at a stream time that follows from a row's key. ``operator``: the
    name that its stream time has in commits. ``marks``: the store that says up to when they were closed by the wall clock,
    if the operator has an ``idle_timeout``."""

    operator: str
    at_ms: Callable[[bytes], int]
    marks: str | None = None


def refusal_of(spec: StoreSpec, subtopology: Subtopology) -> str:
    """Why the rows of a store can't be moved; nothing where they can."""
    if spec.source_topic is not None:
        return (
            f"it is restored from topic {spec.source_topic} itself (topology.optimization), in which other programs wrote "
            "its rows"
        )
    if not spec.logging:
        return "it has no changelog (logging=False)" if spec.persistent else ""
    return functions_of(spec).stays_because


def has_closed_marks(spec: StoreSpec, subtopology: Subtopology) -> bool:
    """Whether a store says for its partition up to when windows were closed by the wall clock (``idle_timeout``)."""
    return any(getattr(operation, "closed", None) == spec.name for _, operation in _operations(subtopology))


def key_of_rows(spec: StoreSpec, subtopology: Subtopology) -> KeyOf:
    """The key by which the default partitioner placed a row, given the row's key in the changelog."""
    return _own_key_of(spec, subtopology) or partial(record_key_of, spec)


def whole_key_of_rows(spec: StoreSpec, subtopology: Subtopology) -> KeyOf:
    """The same with the window that a record's key has."""
    return _own_key_of(spec, subtopology) or functions_of(spec).record_key


def _own_key_of(spec: StoreSpec, subtopology: Subtopology) -> KeyOf | None:
    for _, operation in _operations(subtopology):
        own = OPERATIONS[type(operation)].keys
        if isinstance(own, OwnKeys) and getattr(operation, own.field) == spec.name:
            return own.key_of
    return None


def has_own_keys(spec: StoreSpec, subtopology: Subtopology) -> bool:
    """Whether processors of the program, or its ids of duplicates, choose the keys of the rows."""
    return any(
        isinstance(node, ProcessorNode)
        and spec.name in node.stores
        and traits_of(node.operation).code is Code.PROCESSOR
        and own_store(node.operation) != spec.name
        for node in subtopology.nodes
    )


def closings_of(spec: StoreSpec, subtopology: Subtopology) -> tuple[Closing, ...]:
    """The operators that emit the rows of a store when windows close."""
    keys = stream_time_keys(subtopology)
    return tuple(
        Closing(keys[name], _closes_at(operation), closed_store(operation))
        for name, operation in _operations(subtopology)
        if emits_on_close(operation) and own_store(operation) == spec.name
    )


def _closes_at(operation: Operation) -> Callable[[bytes], int]:
    windows = getattr(operation, "windows", None)
    if isinstance(windows, SessionWindows):
        session_ms = windows.retention_ms + 1
        return lambda key: split_session_key(key)[2] + session_ms
    assert isinstance(windows, TimeWindows | SlidingWindows), (
        "the topology lets only windows that close be emitted then"
    )
    lasts_ms = closes_after_ms(windows)
    return lambda key: split_window_key(key)[1] + lasts_ms


def _operations(subtopology: Subtopology) -> Iterator[tuple[str, Operation]]:
    return ((node.name, node.operation) for node in subtopology.nodes if isinstance(node, ProcessorNode))
