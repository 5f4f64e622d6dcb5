"""What the processor nodes of joins compute.

1. A joiner is always called with the left value first, whichever side caused the call; ``with_key``: with the key before
   both.
2. A node of a join names the node of the other side's table, or the store of the other side's window, that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from topology.graph.operations.basic import Function
from topology.spec.codecs import AnySerde

JoinKind: TypeAlias = Literal["inner", "left", "outer"]
Side: TypeAlias = Literal["left", "right"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTableJoin:
    """One side of a join of two tables: what a change of this side does to the result. ``table``: the other side's node."""

    table: str
    joiner: Function
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
    joiner: Function
    side: Side
    time: str
    before_ms: int
    after_ms: int
    grace_ms: int
    emits_unmatched: bool = False
    shared: str | None = None
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSelfJoin:
    """A join of a stream with itself, whose records ``store`` has once: what an optimised inner join becomes.

    Both ways a record of time t meets those from t - ``before_ms`` to t + ``after_ms``. It meets itself as long as the store
    would keep it, for ``retention_ms``.
    """

    store: str
    joiner: Function
    time: str
    before_ms: int
    after_ms: int
    retention_ms: int
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSend:
    """Left side of a foreign-key join: subscribes each row at the row that ``foreign_key(value)`` names.

    ``key_serde``, ``value_serde``: of this table; the foreign key's is that of the sink behind.
    """

    foreign_key: Function
    left: bool = False
    key_serde: AnySerde = None
    value_serde: AnySerde = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionReceive:
    """Right side of a foreign-key join: keeps subscriptions in ``store``, by foreign and primary key."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionJoin:
    """Answers a subscription with the row of ``table`` as it is now. ``value_serde``: of that table."""

    table: str
    value_serde: AnySerde = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTableJoin:
    """Tells a change of the right table to all that are subscribed in ``store``. The serdes are that table's."""

    store: str
    key_serde: AnySerde = None
    value_serde: AnySerde = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseJoin:
    """Left side again: joins an answer with the row of ``table``, if that is still the row that was asked for.

    ``value_serde``: of that table; ``other_value_serde``: of the right one.
    """

    table: str
    joiner: Function
    left: bool = False
    value_serde: AnySerde = None
    other_value_serde: AnySerde = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalTableJoin:
    """Looks up in the global ``store`` the row under the key that ``on(key, value)`` returns."""

    store: str
    on: Function
    joiner: Function
    left: bool = False
    with_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableGraceJoin:
    """Joins each record with the row that the versioned ``table`` had at its time, ``grace_ms`` after it in stream time.

    Until then it waits in ``buffer``. The serdes are the stream's.
    """

    table: str
    joiner: Function
    buffer: str
    grace_ms: int
    left: bool = False
    with_key: bool = False
    key_serde: AnySerde = None
    value_serde: AnySerde = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofJoin:
    """Left side of an as-of join: a record of time t meets the latest one that ``store`` has from t - ``within_ms`` to t.

    It waits in ``waiting`` until stream time is ``grace_ms`` beyond it; None: it is joined when it comes. Stream time is
    that of both sides, under the name ``time``; the other side's records are kept for ``keep_ms`` of it. The serdes are
    this side's.
    """

    store: str
    joiner: Function
    time: str
    within_ms: int
    keep_ms: int
    grace_ms: int = 0
    waiting: str | None = None
    left: bool = False
    with_key: bool = False
    key_serde: AnySerde = None
    value_serde: AnySerde = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofKeep:
    """Right side of an as-of join: keeps its records in ``store``. ``join``: the node of the left side."""

    store: str
    join: str


JoinOperation: TypeAlias = (
    AsofJoin
    | AsofKeep
    | StreamTableGraceJoin
    | StreamGlobalTableJoin
    | TableTableJoin
    | TableJoinMerge
    | StreamJoinWindow
    | StreamStreamJoin
    | StreamSelfJoin
    | SubscriptionSend
    | SubscriptionReceive
    | SubscriptionJoin
    | ForeignTableJoin
    | ResponseJoin
)
