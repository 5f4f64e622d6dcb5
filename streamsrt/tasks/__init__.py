"""Tasks: one subtopology over one partition number, and the manager that keeps them as assigned.

- ``task``          a task: one subtopology for one partition, as a value machine
- ``task_meter``    what a task counts about itself: once a run of records and once an iteration, never once a record
- ``async_calls``   asynchronous functions of operators, called side by side
- ``input``         what a task reads, and in which order
- ``output``        what a task writes
- ``restore``       its stores from their changelogs
- ``global_state``  global stores of one instance: filled from all partitions of their topics, read by all of its tasks
- ``manager``       which tasks are open on this member, and what is fetched for them
- ``error_policy``  what is done about each class of error: the table that tasks and their thread go by

Tasks process on the processing thread. Whatever else has a thread gives them values.
"""
