"""Every operation and what runs it: the one place where a new operator is registered.

1. Each row names the processor node of the operation, and the code that runs it in a loop over columns; None if there
   is no such code. Both give the same results; the property tests of operators cover this table.
2. Properties that do not depend on the implementation are in :data:`topology.graph.operations.traits.TRAITS`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from topology.graph import operations
from topology.graph.operations.traits import TRAITS, Traits


class Operator(NamedTuple):
    """``make``: the step that runs it record by record. ``emit``: its code, None where it always runs record by record."""

    make: Maker
    emit: Emit | None
    traits: Traits


_RUNS: Mapping[type, tuple[Maker, Emit | None]] = MappingProxyType(
    {
        operations.Filter: (stateless.make_filter, stateless.emit_filter),
        operations.KeyNotNull: (stateless.make_key_not_null, stateless.emit_key_not_null),
        operations.Map: (stateless.make_map, stateless.emit_map),
        operations.SelectKey: (stateless.make_select_key, stateless.emit_select_key),
        operations.MapValues: (stateless.make_map_values, stateless.emit_map_values),
        operations.FlatMap: (stateless.make_flat_map, stateless.emit_flat_map),
        operations.FlatMapValues: (stateless.make_flat_map_values, stateless.emit_flat_map_values),
        operations.Peek: (stateless.make_peek, stateless.emit_peek),
        operations.ForEach: (stateless.make_peek, stateless.emit_peek),
        operations.PassThrough: (stateless.make_pass_through, stateless.emit_pass_through),
        operations.Branch: (stateless.make_branch, stateless.emit_branch),
        operations.MapBatches: (batches.make_map_batches, None),
        operations.MapAsync: (batches.make_map_async, None),
        operations.JoinLookup: (lookup_joins.make_join_lookup, None),
        operations.Process: (user_processors.make_process, None),
        operations.TableTransformValues: (grouped_tables.make_table_transform_values, None),
        operations.TableSource: (tables.make_table_step, tables.emit_table_source),
        operations.TableFilter: (tables.make_table_step, tables.emit_table_filter),
        operations.TableMapValues: (tables.make_table_step, tables.emit_table_map_values),
        operations.TableToStream: (stateless.make_to_stream, stateless.emit_to_stream),
        operations.GroupTable: (grouped_tables.make_group_table, grouped_tables.emit_group_table),
        operations.Aggregate: (aggregate_nodes.make_aggregate, aggregate.emit_aggregate),
        operations.TableAggregate: (grouped_tables.make_table_aggregate, grouped_tables.emit_table_aggregate),
        operations.SlidingAggregate: (sliding.make_sliding_aggregate, sliding.emit_sliding_aggregate),
        operations.CountWindowAggregate: (count_windows.make_count_window_aggregate, None),
        operations.SessionAggregate: (sessions.make_session_aggregate, sessions.emit_session_aggregate),
        operations.TableMerge: (aggregate_nodes.make_table_merge, aggregate.emit_table_merge),
        operations.Suppress: (suppress.make_suppress, suppress.emit_suppress),
        operations.StreamTableJoin: (tables.make_stream_table_join, tables.emit_stream_table_join),
        operations.StreamJoinWindow: (stream_joins.make_stream_join_window, stream_join_code.emit_join_window),
        operations.StreamStreamJoin: (stream_joins.make_stream_stream_join, stream_join_code.emit_stream_join),
        operations.StreamSelfJoin: (stream_joins.make_stream_self_join, stream_join_code.emit_self_join),
        operations.StreamTableGraceJoin: (grace_joins.make_stream_table_grace_join, None),
        operations.StreamGlobalTableJoin: (global_joins.make_stream_global_table_join, None),
        operations.AsofJoin: (asof_joins.make_asof_join, None),
        operations.AsofKeep: (asof_joins.make_asof_keep, None),
        operations.TableTableJoin: (table_joins.make_table_table_join, table_joins.emit_table_table_join),
        operations.TableJoinMerge: (table_joins.make_table_join_merge, table_joins.emit_table_join_merge),
        operations.SubscriptionSend: (foreign_key_joins.make_subscription_send, None),
        operations.SubscriptionReceive: (foreign_key_joins.make_subscription_receive, None),
        operations.SubscriptionJoin: (foreign_key_joins.make_subscription_join, None),
        operations.ForeignTableJoin: (foreign_key_joins.make_foreign_table_join, None),
        operations.ResponseJoin: (foreign_key_joins.make_response_join, None),
    }
)

OPERATIONS: Mapping[type, Operator] = MappingProxyType(
    {kind: Operator(make, emit, TRAITS[kind]) for kind, (make, emit) in _RUNS.items()}
)
MAKERS: Mapping[type, Maker] = MappingProxyType({kind: row.make for kind, row in OPERATIONS.items()})
EMITS: Mapping[type, Emit] = MappingProxyType(
    {kind: row.emit for kind, row in OPERATIONS.items() if row.emit is not None}
)
