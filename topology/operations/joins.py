"""What the processor nodes of joins compute.

1. A joiner is always called with the left value first, whichever side the record that causes it came from; with the key
   before both where ``with_key``.
2. A node of a join names the node of the other side's table, or the store of the other side's window, that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

JoinKind: TypeAlias = Literal["inner", "left", "outer"]
Side: TypeAlias = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTableJoin:
    """One side of a join of two tables: what a change of this side does to the result. ``table``: the other side's node."""

    table: str
    joiner: Callable[..., Any]
    kind: JoinKind
    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinMerge:
    """The result of a join of two tables, from both sides' nodes; keeps it in ``store`` where it has one."""

    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoinWindow:
    """Keeps the records of one side of a stream-stream join in ``store``, each after it was joined."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoin:
    """One side of a join of two streams: joins a record with those that ``store`` has of the other side.

    A record of time t meets those from t - ``before_ms`` to t + ``after_ms``. ``emits_unmatched``: a record without any is a
    result by itself when its window is over; until then it waits in ``shared``, which both sides of a left or outer join
    have. ``time`` names the stream time that both sides observe.
    """

    store: str
    joiner: Callable[..., Any]
    side: Side
    time: str
    before_ms: int
    after_ms: int
    grace_ms: int
    emits_unmatched: bool = False
    shared: str | None = None
    with_key: bool = False


JoinOperation: TypeAlias = TableTableJoin | TableJoinMerge | StreamJoinWindow | StreamStreamJoin
