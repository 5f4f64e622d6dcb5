"""Tasks: each is one subtopology for one partition. The manager opens and closes them as assigned.

- ``task``                a task: one subtopology for one partition, as a value machine
- ``task_config``         the settings that a task needs, out of those of the application
- ``task_meter``          what a task counts about itself: once per run of records and per iteration, never per record
- ``async_calls``         concurrent calls of operators' asynchronous functions
- ``derived_partitions``  the tasks of a topology in a test, without a group
- ``input``               what a task reads, and in which order
- ``output``              what a task writes
- ``restore``             restoring stores from their changelogs
- ``global_state``        global stores of one instance: filled from all partitions of their topics, read by all of its
                          tasks
- ``manager``             which tasks are open on this member, and what is fetched for them
- ``error_policy``        how each class of error is handled: the table that tasks and their thread follow

Tasks run on the processing thread. Other threads exchange values with them.
"""
