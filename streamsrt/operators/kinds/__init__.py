"""The operations by family: their rules, their code and the steps that run them record by record, side by side.

- ``aggregate``          code of aggregations, per key and per key and window
- ``aggregate_nodes``    the same aggregations as processor nodes, where there is no generated code
- ``asof_joins``         as-of joins of two streams, as processor nodes
- ``batches``            ``map_batches`` and ``map_async``: many records at once
- ``call_windows``       pending asynchronous calls, and the records that wait for them
- ``closing``            results that are emitted once, when their window closes
- ``count_windows``      count windows: a fixed number of records of a key each
- ``counting``           counts of whole runs of records, without a step per record in Python
- ``foreign_key_joins``  foreign-key joins of two tables, as processor nodes
- ``global_joins``       joins of a stream with a global table, as processor nodes
- ``grace_join_code``    code of stream-table joins with a grace period
- ``grace_joins``        stream-table joins with a grace period: their rules, and their processor nodes
- ``grouped_tables``     ``KTable.group_by`` and its aggregations, and ``transform_values``
- ``idle``               ``idle_timeout``: closes windows when an input has no more records
- ``left_calls``         pending asynchronous calls that an end leaves to the next start
- ``lookup_joins``       ``join_lookup``: joins with what a function of the program finds elsewhere
- ``sessions``           aggregations over sessions: records of a key that follow each other within a gap
- ``sliding``            aggregations over sliding windows: a window for each set of records of a key within a time
                         difference
- ``stateless``          ``filter``, ``map``, ``branch`` and the like, which look at one record only
- ``stream_join_code``   code of joins of two streams within windows
- ``stream_joins``       joins of two streams within windows: their rules, and their processor nodes
- ``suppress``           suppression: of the changes of a row, only the last one within a time is forwarded
- ``table_joins``        joins of two tables: their rules, code and processor nodes
- ``tables``             sources, filters and mappers of tables, and look-ups from a stream: code and steps
- ``user_processors``    user processors, as nodes of their own and around operators

A new operation is in one of these modules, or in a new one, and has a row in :mod:`streamsrt.operators.table`.
"""
