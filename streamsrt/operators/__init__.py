"""What a subtopology does to a run of records: functions over columns and stores.

- ``aggregate``          code of aggregations, per key and per key and window
- ``aggregate_nodes``    aggregations of streams as processor nodes, per key and per key and window
- ``asof_joins``         as-of joins of two streams, as processor nodes
- ``batches``            operators over many records at once: functions over frames, and asynchronous functions side
                         by side
- ``call_windows``       asynchronous calls that are under way at an operator, and what waits for their outcomes
- ``closing``            which windows close as stream time moves on: what is emitted once, when nothing can change it
                         any more
- ``compiler``           one generated function per source of a subtopology, and one per store whose cache forwards
                         when it is flushed
- ``count_windows``      windows of so many records of a key: the rules stand in ``count_windows``
- ``counting``           counts of whole runs of records, without a step per record in Python
- ``emitter``            writes the source of one generated function and remembers which node each of its lines
                         belongs to
- ``environment``        what the processor nodes of one task share: the current record, time, stores' caches,
                         counters, handlers, schedules
- ``expiry``             deletes the entries of stores with a time to live, between records
- ``foreign_key_joins``  foreign-key joins of two tables, as processor nodes
- ``global_joins``       looks up rows of global tables, as processor nodes
- ``grace_joins``        stream-table joins with a grace period, as processor nodes
- ``grouped_tables``     grouping rows of tables under another key, their aggregations, and transformers of rows
- ``handlers``           what happens to a record that fails: Kafka Streams' three exception handlers as callables
- ``idle``               closes windows, and lets go what is suppressed, where no more records come: stream time
                         stands still then
- ``lookup_joins``       joins with what a function looks up elsewhere: many keys in a call, answers remembered for a
                         time
- ``murmur3``            Murmur3, 128 bits, x64: the hash by which a foreign-key join knows whether a row has changed
                         since it asked
- ``node_meter``         what is counted of single nodes where that is asked for (``metrics.recording.level`` DEBUG
                         and up)
- ``plan``               what both ways of running a subtopology need to know of it: names, serdes and stores,
                         resolved once per task
- ``processor_nodes``    every operation as a processor node: one call per record and node, as in Kafka Streams
- ``punctuation_queue``  when punctuations are due, in the order of Kafka Streams
- ``runner``             runs one subtopology for one task: generated functions where there are any, processor nodes
                         for the rest
- ``sessions``           aggregations over sessions: records of a key that follow each other within a gap
- ``sliding``            aggregations over sliding windows: a window for each set of records of a key within a time
                         difference
- ``stateless``          code of the operations that look at one record only
- ``store_access``       state stores as user code sees them: typed keys and values over a task's caches
- ``stream_join_code``   code of joins of two streams within windows
- ``stream_joins``       joins of two streams within windows: their rules, and their processor nodes
- ``suppress``           suppression: of the changes of a row, only the last one within a time is forwarded
- ``table_joins``        joins of two tables: their rules, code and processor nodes
- ``table_views``        rows of tables as other operators see them: read from a store, or made on the fly of what the
                         nearest stores have
- ``tables``             code of tables: sources, filters and mappers of changes, and look-ups from a stream
- ``user_metrics``       metrics that the user's processors make (``ProcessorMetrics``): numbers of one task
"""
