"""What a task reads, from fetched bytes to the record that is processed next.

- ``input_buffer``      fetched data that is not decoded yet, per partition
- ``extraction``        timestamps that a program's extractor gives to the records of a batch
- ``offset_metadata``   metadata of committed offsets: what a backfill writes there, and what the runtime does
- ``stream_time_keys``  the names under which stream times of windowed operators are committed with the offsets
- ``selected``          some of the records of a batch
- ``partition_group``   the buffered input of a task, and the order in which it is processed

Nothing here depends on tasks. Where a task starts to read, and how it gets fetched data, is in
:mod:`streamsrt.tasks.manager`.
"""
