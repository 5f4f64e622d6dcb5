"""The operations by family: their rules, their code and the steps that run them record by record, side by side.

- ``aggregate``          code of aggregations, per key and per key and window
- ``aggregate_nodes``    aggregations of streams as processor nodes, per key and per key and window
- ``asof_joins``         as-of joins of two streams, as processor nodes
- ``batches``            operators over many records at once: functions over frames, and asynchronous functions side
                         by side
- ``call_windows``       asynchronous calls that are under way at an operator, and what waits for their outcomes
- ``closing``            which windows close as stream time moves on: what is emitted once, when nothing can change it
                         any more
- ``count_windows``      count windows: a fixed number of records of a key each
- ``counting``           counts of whole runs of records, without a step per record in Python
- ``foreign_key_joins``  foreign-key joins of two tables, as processor nodes
- ``global_joins``       looks up rows of global tables, as processor nodes
- ``grace_joins``        stream-table joins with a grace period, as processor nodes
- ``grouped_tables``     grouping rows of tables under another key, their aggregations, and transformers of rows
- ``idle``               closes windows, and lets go what is suppressed, where no more records come: stream time
                         stands still then
- ``lookup_joins``       joins with what a function looks up elsewhere: many keys in a call, answers remembered for a
                         time
- ``sessions``           aggregations over sessions: records of a key that follow each other within a gap
- ``sliding``            aggregations over sliding windows: a window for each set of records of a key within a time
                         difference
- ``stateless``          the operations that look at one record only: their code, and what runs them record by record
- ``stream_join_code``   code of joins of two streams within windows
- ``stream_joins``       joins of two streams within windows: their rules, and their processor nodes
- ``suppress``           suppression: of the changes of a row, only the last one within a time is forwarded
- ``table_joins``        joins of two tables: their rules, code and processor nodes
- ``tables``             sources, filters and mappers of tables, and look-ups from a stream: code and steps
- ``user_processors``    processors of the user's: as nodes of their own, and around operators

A new operation stands in one of these modules, or in a new one, and has its row in :mod:`streamsrt.operators.table`.
"""
