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
from streamsrt.operators.key_slices import (
    BETWEEN_TOPICS,
    BY_RECORD_TIMES,
    CALLS,
    NEW_KEYS,
    OF_KEY,
    OF_TWO_STREAMS,
    PASSED,
    PROCESSOR,
    WAITS,
    KeySlices,
)
from streamsrt.operators.kinds import (
    aggregate,
    aggregate_nodes,
    asof_joins,
    batches,
    count_windows,
    foreign_key_joins,
    global_joins,
    grace_join_code,
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
    AS_OF_PLAN,
    HELD_BACK,
    NO_FOREIGN_KEY_JOIN,
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
    ``offline``: how a backfill treats it. ``keys``: those of its stores, which decide where a row is placed. ``slices``:
    whether a backfill may compute the keys of a partition apart."""

    make: Maker
    emit: Emit | None
    offline: Offline
    keys: OwnKeys | StoreKeys
    slices: KeySlices


OPERATIONS: Mapping[type, Operator] = MappingProxyType(
    {
        operations.Filter: Operator(
            stateless.make_filter, stateless.emit_filter, AS_LIVE, NO_STORE, KeySlices(through=stateless.kept_by_filter)
        ),
        operations.KeyNotNull: Operator(
            stateless.make_key_not_null, stateless.emit_key_not_null, AS_LIVE, NO_STORE, PASSED
        ),
        operations.Map: Operator(stateless.make_map, stateless.emit_map, AS_LIVE, NO_STORE, NEW_KEYS),
        operations.SelectKey: Operator(
            stateless.make_select_key, stateless.emit_select_key, AS_LIVE, NO_STORE, NEW_KEYS
        ),
        operations.MapValues: Operator(
            stateless.make_map_values, stateless.emit_map_values, AS_LIVE, NO_STORE, KeySlices(through=stateless.mapped)
        ),
        operations.FlatMap: Operator(stateless.make_flat_map, stateless.emit_flat_map, AS_LIVE, NO_STORE, NEW_KEYS),
        operations.FlatMapValues: Operator(
            stateless.make_flat_map_values,
            stateless.emit_flat_map_values,
            AS_LIVE,
            NO_STORE,
            KeySlices(through=stateless.flat_mapped),
        ),
        operations.PassThrough: Operator(
            stateless.make_pass_through, stateless.emit_pass_through, AS_LIVE, NO_STORE, PASSED
        ),
        operations.Branch: Operator(
            stateless.make_branch, stateless.emit_branch, AS_LIVE, NO_STORE, KeySlices(through=stateless.branched)
        ),
        operations.Peek: Operator(stateless.make_peek, stateless.emit_peek, AGAIN, NO_STORE, PASSED),
        operations.ForEach: Operator(stateless.make_peek, stateless.emit_peek, AGAIN, NO_STORE, PASSED),
        operations.MapBatches: Operator(batches.make_map_batches, None, AS_LIVE, NO_STORE, CALLS),
        operations.MapAsync: Operator(batches.make_map_async, None, AGAIN_AS_OF_NOW, NO_STORE, CALLS),
        operations.JoinLookup: Operator(lookup_joins.make_join_lookup, None, AGAIN_AS_OF_NOW, NO_STORE, CALLS),
        operations.Process: Operator(user_processors.make_process, None, WALL_CLOCK_STANDS, NO_STORE, PROCESSOR),
        operations.TableSource: Operator(tables.make_table_step, tables.emit_table_source, AS_LIVE, OF_RECORDS, OF_KEY),
        operations.TableFilter: Operator(tables.make_table_step, tables.emit_table_filter, AS_LIVE, OF_RECORDS, OF_KEY),
        operations.TableMapValues: Operator(
            tables.make_table_step, tables.emit_table_map_values, AS_LIVE, OF_RECORDS, OF_KEY
        ),
        operations.TableToStream: Operator(
            stateless.make_to_stream, stateless.emit_to_stream, AS_LIVE, NO_STORE, PASSED
        ),
        operations.TableTransformValues: Operator(
            grouped_tables.make_table_transform_values, None, AS_LIVE, OF_RECORDS, PROCESSOR
        ),
        operations.TableMerge: Operator(
            aggregate_nodes.make_table_merge, aggregate.emit_table_merge, AS_LIVE, OF_RECORDS, OF_KEY
        ),
        operations.GroupTable: Operator(
            grouped_tables.make_group_table, grouped_tables.emit_group_table, AS_LIVE, NO_STORE, NEW_KEYS
        ),
        operations.TableAggregate: Operator(
            grouped_tables.make_table_aggregate, grouped_tables.emit_table_aggregate, AS_LIVE, OF_RECORDS, OF_KEY
        ),
        operations.Aggregate: Operator(
            aggregate_nodes.make_aggregate, aggregate.emit_aggregate, AS_LIVE, OF_RECORDS, aggregate.IN_SLICES
        ),
        operations.SlidingAggregate: Operator(
            sliding.make_sliding_aggregate, sliding.emit_sliding_aggregate, AS_LIVE, OF_RECORDS, BY_RECORD_TIMES
        ),
        operations.CountWindowAggregate: Operator(
            count_windows.make_count_window_aggregate, None, AS_LIVE, OF_RECORDS, OF_KEY
        ),
        operations.SessionAggregate: Operator(
            sessions.make_session_aggregate, sessions.emit_session_aggregate, AS_LIVE, OF_RECORDS, sessions.IN_SLICES
        ),
        operations.Suppress: Operator(
            suppress.make_suppress, suppress.emit_suppress, HELD_BACK, OF_RECORDS, suppress.IN_SLICES
        ),
        operations.TableTableJoin: Operator(
            table_joins.make_table_table_join, table_joins.emit_table_table_join, AS_LIVE, NO_STORE, OF_KEY
        ),
        operations.TableJoinMerge: Operator(
            table_joins.make_table_join_merge, table_joins.emit_table_join_merge, AS_LIVE, OF_RECORDS, OF_KEY
        ),
        operations.StreamTableJoin: Operator(
            tables.make_stream_table_join, tables.emit_stream_table_join, AS_LIVE, NO_STORE, tables.JOIN_IN_SLICES
        ),
        operations.StreamTableGraceJoin: Operator(
            grace_joins.make_stream_table_grace_join,
            grace_join_code.emit_grace_join,
            WAITING,
            OwnKeys("buffer", grace_joins.key_of_waiting),
            WAITS,
        ),
        operations.AsofJoin: Operator(
            asof_joins.make_asof_join, None, AS_LIVE, OwnKeys("waiting", asof_joins.key_of_waiting), WAITS
        ),
        operations.AsofKeep: Operator(asof_joins.make_asof_keep, None, AS_LIVE, OF_RECORDS, WAITS),
        operations.StreamJoinWindow: Operator(
            stream_joins.make_stream_join_window,
            stream_join_code.emit_join_window,
            ONE_ORDER,
            OF_RECORDS,
            OF_TWO_STREAMS,
        ),
        operations.StreamStreamJoin: Operator(
            stream_joins.make_stream_stream_join,
            stream_join_code.emit_stream_join,
            ONE_ORDER,
            OwnKeys("shared", stream_joins.key_of_unmatched),
            OF_TWO_STREAMS,
        ),
        operations.StreamSelfJoin: Operator(
            stream_joins.make_stream_self_join, stream_join_code.emit_self_join, ONE_ORDER, OF_RECORDS, OF_TWO_STREAMS
        ),
        operations.SubscriptionSend: Operator(
            foreign_key_joins.make_subscription_send, None, NO_FOREIGN_KEY_JOIN, NO_STORE, BETWEEN_TOPICS
        ),
        operations.SubscriptionReceive: Operator(
            foreign_key_joins.make_subscription_receive,
            None,
            NO_FOREIGN_KEY_JOIN,
            OwnKeys("store", foreign_key_joins.foreign_key_of),
            BETWEEN_TOPICS,
        ),
        operations.SubscriptionJoin: Operator(
            foreign_key_joins.make_subscription_join, None, NO_FOREIGN_KEY_JOIN, NO_STORE, BETWEEN_TOPICS
        ),
        operations.ForeignTableJoin: Operator(
            foreign_key_joins.make_foreign_table_join, None, NO_FOREIGN_KEY_JOIN, OF_RECORDS, BETWEEN_TOPICS
        ),
        operations.ResponseJoin: Operator(
            foreign_key_joins.make_response_join, None, NO_FOREIGN_KEY_JOIN, NO_STORE, BETWEEN_TOPICS
        ),
        operations.StreamGlobalTableJoin: Operator(
            global_joins.make_stream_global_table_join,
            global_joins.emit_stream_global_table_join,
            AS_OF_PLAN,
            OF_RECORDS,
            global_joins.IN_SLICES,
        ),
    }
)
MAKERS: Mapping[type, Maker] = MappingProxyType({kind: row.make for kind, row in OPERATIONS.items()})
EMITS: Mapping[type, Emit] = MappingProxyType(
    {kind: row.emit for kind, row in OPERATIONS.items() if row.emit is not None}
)
OF_VERSIONS: frozenset[type] = frozenset(
    {operations.TableSource, operations.StreamTableJoin, operations.StreamTableGraceJoin}
)
"""Operations whose code knows versioned stores."""
