"""Where the steps of joins keep the records of each side, in one table.

1. Every operation of a join has a row: what it keeps would have the rows of the other side if the sides changed places
   (:mod:`topology.graph.join_sides`). None: it keeps nothing of a side, or nothing depends on which one it is.
2. A row names the fields of the operation, without defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from topology.graph.operations import basic, joins


class SideTopics(Enum):
    """The internal topics whose records belong to the store of the other side's records."""

    NONE = "none"
    READ = "those that the step reads"
    WRITTEN = "those that the step writes"


class SideOfJoin(NamedTuple):
    """One row: fields of the operation, None where it has no such one.

    ``keeps``: the store with records of the step's own side. ``meets``: the store with those of the other one. ``shared``:
    the store with records of both, where the operation's ``side`` says which one the step is on. ``table``: the table whose
    rows are met. ``begins_at``: the first step of this side, if it is several.
    """

    keeps: str | None
    meets: str | None
    shared: str | None
    table: str | None
    begins_at: type | None
    topics: SideTopics


_NO, _READ, _WRITTEN = SideTopics.NONE, SideTopics.READ, SideTopics.WRITTEN

JOIN_SIDES: Mapping[type, SideOfJoin | None] = MappingProxyType(
    {
        basic.StreamTableJoin: SideOfJoin(None, None, None, "table", None, _NO),
        joins.StreamTableGraceJoin: SideOfJoin("buffer", None, None, "table", None, _NO),
        joins.StreamGlobalTableJoin: None,
        joins.StreamJoinWindow: SideOfJoin("store", None, None, None, None, _NO),
        joins.StreamStreamJoin: SideOfJoin(None, "store", "shared", None, joins.StreamJoinWindow, _NO),
        joins.StreamSelfJoin: None,
        joins.AsofJoin: SideOfJoin("waiting", "store", None, None, None, _NO),
        joins.AsofKeep: SideOfJoin("store", None, None, None, None, _NO),
        joins.TableTableJoin: None,
        joins.TableJoinMerge: None,
        joins.SubscriptionSend: None,
        joins.SubscriptionReceive: SideOfJoin("store", None, None, None, joins.SubscriptionSend, _READ),
        joins.SubscriptionJoin: None,
        joins.ForeignTableJoin: SideOfJoin(None, "store", None, None, None, _WRITTEN),
        joins.ResponseJoin: None,
    }
)


UNMATCHED: Mapping[type, str] = MappingProxyType(
    {
        basic.StreamTableJoin: "left",
        joins.StreamTableGraceJoin: "left",
        joins.StreamGlobalTableJoin: "left",
        joins.StreamStreamJoin: "emits_unmatched",
        joins.AsofJoin: "left",
    }
)
"""The joins of a stream whose results may have records of it without a match, so those without a key, too: the field that
says whether they do."""


def joins_null_keys(operation: object) -> bool:
    """Whether records of a stream without a key are results of this join, or lead to some."""
    field = UNMATCHED.get(type(operation))
    return field is not None and bool(getattr(operation, field))


def join_side(operation: object) -> SideOfJoin | None:
    """The row of an operation; None: it is not a step of one side of a join."""
    return JOIN_SIDES.get(type(operation))


def named(operation: object, field: str | None) -> str | None:
    """The store or table in a field of a row; None where the row or the operation has none."""
    found: str | None = None if field is None else getattr(operation, field)
    return found
