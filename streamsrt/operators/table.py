"""Every operation and what runs it: the one place where a new operator is registered.

1. Each row names the processor node of the operation, and the code that runs it in a loop over columns; None if there
   is no such code. Both give the same results; the property tests of operators cover this table.
2. A row also has what a backfill and ``state repartition`` need to know of the operation. No field has a default.
3. Properties that do not depend on the implementation are in :data:`topology.graph.operations.traits.TRAITS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from streamsrt.operators.engine.compiler import Emit
from streamsrt.operators.engine.processor_nodes import Maker
from streamsrt.operators.kinds import (
    aggregate,
    aggregate_nodes,
    asof_joins,
    batches,
    count_windows,
    foreign_key_joins,
    global_joins,
    grace_joins,
    grouped_tables,
    lookup_joins,
    sessions,
    sliding,
    stateless,
    stream_join_code,
    stream_joins,
    suppress,
    table_joins,
    tables,
    user_processors,
)
from streamsrt.operators.offline import (
    AGAIN,
    AGAIN_AS_OF_NOW,
    AS_LIVE,
    HELD_BACK,
    NO_FOREIGN_KEY_JOIN,
    NO_GLOBAL_TABLE,
    ONE_ORDER,
    WAITING,
    WALL_CLOCK_STANDS,
    Offline,
)
from topology.graph import operations


class OwnKeys(NamedTuple):
    """A store whose keys the operation makes itself: the field with its name, and how a record's key is read out of one."""

    field: str
    key_of: Callable[[bytes], bytes]


class StoreKeys(Enum):
    """The keys in the stores of an operation that makes none itself."""

    NO_STORE = "it has no store"
    OF_RECORDS = "those of the records, in the form of the kind of store"


NO_STORE, OF_RECORDS = StoreKeys.NO_STORE, StoreKeys.OF_RECORDS


class Operator(NamedTuple):
    """``make``: the step that runs it record by record. ``emit``: its code, None where it always runs record by record.
    ``offline``: how a backfill treats it. ``keys``: those of its stores, which decide where a row is placed."""

    make: Maker
    emit: Emit | None
    offline: Offline
    keys: OwnKeys | StoreKeys


OPERATIONS: Mapping[type, Operator] = MappingProxyType(
    {
        operations.Filter: Operator(stateless.make_filter, stateless.emit_filter, AS_LIVE, NO_STORE),
        operations.KeyNotNull: Operator(stateless.make_key_not_null, stateless.emit_key_not_null, AS_LIVE, NO_STORE),
        operations.Map: Operator(stateless.make_map, stateless.emit_map, AS_LIVE, NO_STORE),
        operations.SelectKey: Operator(stateless.make_select_key, stateless.emit_select_key, AS_LIVE, NO_STORE),
        operations.MapValues: Operator(stateless.make_map_values, stateless.emit_map_values, AS_LIVE, NO_STORE),
        operations.FlatMap: Operator(stateless.make_flat_map, stateless.emit_flat_map, AS_LIVE, NO_STORE),
        operations.FlatMapValues: Operator(
            stateless.make_flat_map_values, stateless.emit_flat_map_values, AS_LIVE, NO_STORE
        ),
        operations.PassThrough: Operator(stateless.make_pass_through, stateless.emit_pass_through, AS_LIVE, NO_STORE),
        operations.Branch: Operator(stateless.make_branch, stateless.emit_branch, AS_LIVE, NO_STORE),
        operations.Peek: Operator(stateless.make_peek, stateless.emit_peek, AGAIN, NO_STORE),
        operations.ForEach: Operator(stateless.make_peek, stateless.emit_peek, AGAIN, NO_STORE),
        operations.MapBatches: Operator(batches.make_map_batches, None, AS_LIVE, NO_STORE),
        operations.MapAsync: Operator(batches.make_map_async, None, AGAIN_AS_OF_NOW, NO_STORE),
        operations.JoinLookup: Operator(lookup_joins.make_join_lookup, None, AGAIN_AS_OF_NOW, NO_STORE),
        operations.Process: Operator(user_processors.make_process, None, WALL_CLOCK_STANDS, NO_STORE),
        operations.TableSource: Operator(tables.make_table_step, tables.emit_table_source, AS_LIVE, OF_RECORDS),
        operations.TableFilter: Operator(tables.make_table_step, tables.emit_table_filter, AS_LIVE, OF_RECORDS),
        operations.TableMapValues: Operator(tables.make_table_step, tables.emit_table_map_values, AS_LIVE, OF_RECORDS),
        operations.TableToStream: Operator(stateless.make_to_stream, stateless.emit_to_stream, AS_LIVE, NO_STORE),
        operations.TableTransformValues: Operator(
            grouped_tables.make_table_transform_values, None, AS_LIVE, OF_RECORDS
        ),
        operations.TableMerge: Operator(
            aggregate_nodes.make_table_merge, aggregate.emit_table_merge, AS_LIVE, OF_RECORDS
        ),
        operations.GroupTable: Operator(
            grouped_tables.make_group_table, grouped_tables.emit_group_table, AS_LIVE, NO_STORE
        ),
        operations.TableAggregate: Operator(
            grouped_tables.make_table_aggregate, grouped_tables.emit_table_aggregate, AS_LIVE, OF_RECORDS
        ),
        operations.Aggregate: Operator(aggregate_nodes.make_aggregate, aggregate.emit_aggregate, AS_LIVE, OF_RECORDS),
        operations.SlidingAggregate: Operator(
            sliding.make_sliding_aggregate, sliding.emit_sliding_aggregate, AS_LIVE, OF_RECORDS
        ),
        operations.CountWindowAggregate: Operator(count_windows.make_count_window_aggregate, None, AS_LIVE, OF_RECORDS),
        operations.SessionAggregate: Operator(
            sessions.make_session_aggregate, sessions.emit_session_aggregate, AS_LIVE, OF_RECORDS
        ),
        operations.Suppress: Operator(suppress.make_suppress, suppress.emit_suppress, HELD_BACK, OF_RECORDS),
        operations.TableTableJoin: Operator(
            table_joins.make_table_table_join, table_joins.emit_table_table_join, AS_LIVE, NO_STORE
        ),
        operations.TableJoinMerge: Operator(
            table_joins.make_table_join_merge, table_joins.emit_table_join_merge, AS_LIVE, OF_RECORDS
        ),
        operations.StreamTableJoin: Operator(
            tables.make_stream_table_join, tables.emit_stream_table_join, AS_LIVE, NO_STORE
        ),
        operations.StreamTableGraceJoin: Operator(
            grace_joins.make_stream_table_grace_join, None, WAITING, OwnKeys("buffer", grace_joins.key_of_waiting)
        ),
        operations.AsofJoin: Operator(
            asof_joins.make_asof_join, None, AS_LIVE, OwnKeys("waiting", asof_joins.key_of_waiting)
        ),
        operations.AsofKeep: Operator(asof_joins.make_asof_keep, None, AS_LIVE, OF_RECORDS),
        operations.StreamJoinWindow: Operator(
            stream_joins.make_stream_join_window, stream_join_code.emit_join_window, ONE_ORDER, OF_RECORDS
        ),
        operations.StreamStreamJoin: Operator(
            stream_joins.make_stream_stream_join,
            stream_join_code.emit_stream_join,
            ONE_ORDER,
            OwnKeys("shared", stream_joins.key_of_unmatched),
        ),
        operations.StreamSelfJoin: Operator(
            stream_joins.make_stream_self_join, stream_join_code.emit_self_join, ONE_ORDER, OF_RECORDS
        ),
        operations.SubscriptionSend: Operator(
            foreign_key_joins.make_subscription_send, None, NO_FOREIGN_KEY_JOIN, NO_STORE
        ),
        operations.SubscriptionReceive: Operator(
            foreign_key_joins.make_subscription_receive,
            None,
            NO_FOREIGN_KEY_JOIN,
            OwnKeys("store", foreign_key_joins.foreign_key_of),
        ),
        operations.SubscriptionJoin: Operator(
            foreign_key_joins.make_subscription_join, None, NO_FOREIGN_KEY_JOIN, NO_STORE
        ),
        operations.ForeignTableJoin: Operator(
            foreign_key_joins.make_foreign_table_join, None, NO_FOREIGN_KEY_JOIN, OF_RECORDS
        ),
        operations.ResponseJoin: Operator(foreign_key_joins.make_response_join, None, NO_FOREIGN_KEY_JOIN, NO_STORE),
        operations.StreamGlobalTableJoin: Operator(
            global_joins.make_stream_global_table_join, None, NO_GLOBAL_TABLE, OF_RECORDS
        ),
    }
)
MAKERS: Mapping[type, Maker] = MappingProxyType({kind: row.make for kind, row in OPERATIONS.items()})
EMITS: Mapping[type, Emit] = MappingProxyType(
    {kind: row.emit for kind, row in OPERATIONS.items() if row.emit is not None}
)
