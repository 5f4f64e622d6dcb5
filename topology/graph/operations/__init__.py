"""What processor nodes compute: one frozen value for each operation.

- ``basic``           operations on records, tables and groups, and user processors
- ``batches``         operations on many records at once: functions of a whole batch, and concurrent asynchronous
                      functions
- ``grouped_tables``  operations on tables that need the replaced value of a change, or user-defined state
- ``joins``           what the processor nodes of joins compute
- ``sides``           where the steps of joins keep the records of each side, in one table
- ``traits``          the properties of each kind of operation, in one table
- ``windowed``        aggregations whose windows depend on the records (sliding windows, sessions), and suppression

1. An operation holds the user's functions and the names of the stores that it uses, nothing that runs. It says *what* is
   computed; the runtime decides how.
2. ``store`` is the store with the operation's own result; None if it has none.
3. A new family of operations gets its own module, and its union is added to :data:`Operation`.
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
