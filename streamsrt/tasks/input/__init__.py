"""What a task reads, from bytes that were fetched to the record that is processed next.

- ``input_buffer``     what was fetched and is not decoded yet, per partition
- ``offset_metadata``  what a backfill leaves in the metadata of committed offsets, and what the runtime makes of it
- ``partition_group``  the buffered input of a task, and the order in which it is processed

Nothing here knows of tasks. Where a task begins to read, and how what is fetched gets to it, is
:mod:`streamsrt.tasks.manager`'s.
"""
