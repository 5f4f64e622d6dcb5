"""What the processor nodes of ``KTable.group_by``, its aggregations and ``transform_values`` compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.graph.operations.basic import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable:
    """Rows of a table under another key: ``fn(key, value) -> (key, value)``, as changes for a repartition topic.

    A row that leaves one group for another gives two changes, the old group's first; one that stays gives one.
    ``splits_changes``: two all the same, for members of a version that knows no other (``upgrade.from``).
    """

    fn: Function
    splits_changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAggregate:
    """Aggregates changes of grouped rows: what a change replaces is taken out, then what it brings is put in.

    ``aggregation`` count: no functions; reduce: ``adder(aggregate, value)`` and ``subtractor(aggregate, value)``;
    aggregate: ``initializer()``, ``adder(key, value, aggregate)`` and ``subtractor(key, value, aggregate)``.
    """

    store: str
    aggregation: Literal["count", "reduce", "aggregate"]
    initializer: Function | None = None
    adder: Function | None = None
    subtractor: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTransformValues:
    """A table with each value transformed by a user's transformer: ``supplier()`` makes one per task.

    Unlike :class:`topology.graph.operations.basic.TableMapValues` it sees deletions too, and may use stores.
    """

    supplier: Function
    store: str | None = None
