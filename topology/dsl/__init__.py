"""The DSL that programs call: builders, streams, tables, groups and their operators.

- ``asof_joins``          joins of a stream with the latest record of another one
- ``batches``             operators over many records at once, and over async functions
- ``builder``             ``StreamsBuilder``, where a topology begins
- ``cogrouping``          aggregations of several grouped streams into one table
- ``count_windowing``     aggregations in count windows
- ``deduplication``       dropping duplicates by id
- ``foreign_key_joins``   joins of tables by a foreign key
- ``global_tables``       tables of which every instance holds a full copy
- ``grouping``            aggregations of grouped streams, in windows and without
- ``late_records``        late records of operators, as a stream
- ``lookup_joins``        joins of a stream with lookups in other systems
- ``printing``            records on a terminal
- ``processor_api``       ``TopologyBuilder``: sources, processors and sinks by name
- ``stream_joins``        joins of a stream with a stream, a table or a global table
- ``stream_steps``        the other operators of streams
- ``streams_and_tables``  the classes: streams, tables and groups, whose methods return each other
- ``table_grouping``      aggregations of grouped tables
- ``table_joins``         joins of tables by their keys
- ``table_steps``         the other operators of tables

1. A method of a class has its types and its documentation. A function of another module adds the steps to the plan; it
   takes and returns the values of :mod:`topology.build.planned` and does not know the classes.
2. Nothing runs: a call checks its arguments, takes names from the plan and adds steps to it.
"""
