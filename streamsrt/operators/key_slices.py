"""Whether the keys of a partition can be computed apart: one of these values stands in each row of
:mod:`streamsrt.operators.table`.

A slice processes the records of some keys. All that it knows of the others is their times. So an operation allows slices if
what it keeps and forwards depends on records of the same key, and on a stream time, and if it keeps the key.

1. ``refusal``: why it does not allow them, in words that follow the name of the step; None if it does.
2. ``through``: which records come out of it with their time, of which no state decides. None: state decides, so the stream
   time of what is behind it is not known without that of other keys.
3. ``pass_time``: of an operation that observes a stream time, what a record of another key does to it.
4. ``slack_ms``: how far a record may be behind that stream time without a difference in what becomes of it, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from streamsrt.operators.engine.processor_nodes import PathBuilder
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import AnyOperation

Reach = Callable[[object, object], bool]
"""``(key, value) -> whether`` a record gets from here to a certain step."""
Through = Callable[[AnyOperation, Mapping[str, Reach]], Reach | None]
"""``(operation, reach by child)``: the reach of a record that comes to the operation; None: state decides."""
PassTime = Callable[[PathBuilder, ProcessorNode], Callable[[int], None]]
"""``(builder, node) -> (ms) -> None``, which lets a time of other keys pass."""


@dataclass(frozen=True, slots=True)
class KeySlices:
    """The answer for one kind of operation. ``refusal_of``: of some of its uses only, instead of ``refusal``."""

    refusal: str | None = None
    through: Through | None = None
    pass_time: PassTime | None = None
    slack_ms: Callable[[AnyOperation], int] | None = None
    refusal_of: Callable[[AnyOperation], str | None] | None = None

    @property
    def allowed(self) -> Literal["yes", "in part", "no"]:
        """Whether the kind of operation allows slices."""
        return "no" if self.refusal is not None else "yes" if self.refusal_of is None else "in part"

    def refused(self, operation: AnyOperation) -> str | None:
        """Why an operation does not allow slices; None if it does."""
        return self.refusal if self.refusal_of is None else self.refusal_of(operation)


def always(key: object, value: object) -> bool:
    """The reach of a record that gets there whatever it is."""
    return True


def either(reaches: Mapping[str, Reach]) -> Reach:
    """The reach of a record that goes to all of these children."""
    found = list(reaches.values())
    if always in found:
        return always
    return found[0] if len(found) == 1 else lambda key, value: any(reach(key, value) for reach in found)


def as_it_came(operation: AnyOperation, reaches: Mapping[str, Reach]) -> Reach | None:
    """Of an operation that passes every record on that has a key."""
    return either(reaches)


def if_whatever_it_is(operation: AnyOperation, reaches: Mapping[str, Reach]) -> Reach | None:
    """Of an operation that has a result for every record in time, with a value that depends on state."""
    return always if either(reaches) is always else None


OF_KEY = KeySlices()
"""What it does with a record depends on what it keeps of the key."""
PASSED = KeySlices(through=as_it_came)
NEW_KEYS = KeySlices(
    "gives records other keys, and those that get one key come from several slices: their order would be lost. The "
    "subtopology behind the repartition topic can be sliced"
)
CALLS = KeySlices("takes records by the batch, and in slices its batches would be others")
PROCESSOR = KeySlices(
    "is a processor, whose stores and punctuations may concern any key. An aggregate() or a reduce() by key can be sliced"
)
OF_TWO_STREAMS = KeySlices(
    "keeps records of two streams that wait for each other, which it finds by their times and numbers, not by key"
)
WAITS = KeySlices("lets go what waits in the order of all keys")
BETWEEN_TOPICS = KeySlices("asks for rows of other keys")
BY_RECORD_TIMES = KeySlices(
    "has windows that begin with records of any key, which decide what is kept. TimeWindows and SessionWindows can be sliced"
)
