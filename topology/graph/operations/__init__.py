"""What processor nodes compute: one frozen value for each operation.

- ``basic``           operations on records, tables, groups and processors that stand for themselves
- ``batches``         operations that see many records at once: a function over a whole batch, and asynchronous
                      functions side by side
- ``grouped_tables``  operations on tables that need the value that a change replaces, or a state of the user's own
- ``joins``           what the processor nodes of joins compute
- ``traits``          what is true of each kind of operation: one row each, looked up by whoever has to know
- ``windowed``        aggregations whose windows depend on the records: sliding windows and sessions; and what holds
                      results back

1. An operation holds the user's functions and the names of the stores that it uses, nothing that runs. It says *what* is
   computed; how is the runtime's business.
2. ``store`` is the store that an operation keeps its own result in; None where it keeps none.
3. A new family of operations has a module of its own, and its union stands in :data:`Operation`.
"""

from __future__ import annotations

from typing import TypeAlias

from topology.graph.operations.basic import (
    Aggregate,
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Function,
    KeyNotNull,
    Map,
    MapValues,
    PassThrough,
    Peek,
    Process,
    SelectKey,
    StreamTableJoin,
    TableFilter,
    TableMapValues,
    TableSource,
    TableToStream,
)
from topology.graph.operations.batches import JoinLookup, MapAsync, MapBatches
from topology.graph.operations.grouped_tables import GroupTable, TableAggregate, TableTransformValues
from topology.graph.operations.joins import (
    AsofJoin,
    AsofKeep,
    ForeignTableJoin,
    JoinOperation,
    ResponseJoin,
    StreamGlobalTableJoin,
    StreamJoinWindow,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableGraceJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    TableJoinMerge,
    TableTableJoin,
)
from topology.graph.operations.windowed import (
    CountWindowAggregate,
    SessionAggregate,
    SlidingAggregate,
    Suppress,
    TableMerge,
)

Operation: TypeAlias = (
    Filter
    | KeyNotNull
    | Map
    | SelectKey
    | MapValues
    | FlatMap
    | FlatMapValues
    | Peek
    | ForEach
    | PassThrough
    | Branch
    | TableSource
    | Aggregate
    | TableFilter
    | TableMapValues
    | TableToStream
    | StreamTableJoin
    | Process
    | GroupTable
    | TableAggregate
    | TableTransformValues
    | SlidingAggregate
    | CountWindowAggregate
    | SessionAggregate
    | TableMerge
    | Suppress
    | JoinOperation
    | MapAsync
    | MapBatches
    | JoinLookup
)

__all__ = [
    "Aggregate",
    "AsofJoin",
    "AsofKeep",
    "Branch",
    "CountWindowAggregate",
    "Filter",
    "FlatMap",
    "FlatMapValues",
    "ForEach",
    "ForeignTableJoin",
    "Function",
    "GroupTable",
    "JoinLookup",
    "JoinOperation",
    "KeyNotNull",
    "Map",
    "MapAsync",
    "MapBatches",
    "MapValues",
    "Operation",
    "PassThrough",
    "Peek",
    "Process",
    "ResponseJoin",
    "SelectKey",
    "SessionAggregate",
    "SlidingAggregate",
    "StreamGlobalTableJoin",
    "StreamJoinWindow",
    "StreamSelfJoin",
    "StreamStreamJoin",
    "StreamTableGraceJoin",
    "StreamTableJoin",
    "SubscriptionJoin",
    "SubscriptionReceive",
    "SubscriptionSend",
    "Suppress",
    "TableAggregate",
    "TableFilter",
    "TableJoinMerge",
    "TableMapValues",
    "TableMerge",
    "TableSource",
    "TableTableJoin",
    "TableToStream",
    "TableTransformValues",
]
