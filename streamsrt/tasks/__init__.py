"""Tasks: one subtopology over one partition number, and the manager that keeps them as assigned.

- ``async_calls``       asynchronous functions of operators, called side by side
- ``changelog_work``    applies what is fetched of changelogs to the stores, step by step, for whoever has a thread
                        for it
- ``damage``            which task a damaged store belongs to
- ``error_policy``      what is done about each class of error: the table that tasks and their thread go by
- ``global_state``      global stores of one instance: filled from all partitions of their topics, read by all of its
                        tasks
- ``input_buffer``      what was fetched and is not decoded yet, per partition
- ``listeners``         who is told how the state of tasks is restored and followed: on the processing thread, between
                        two batches
- ``memory_shares``     how the active tasks of a process share what it may take for record caches and for changes
                        that wait for a commit
- ``moves``             which tasks came, went and changed their role here, and why, as far as this member can know
- ``offset_metadata``   what a backfill leaves in the metadata of committed offsets, and what the runtime makes of it
- ``owned_task``        a task that this member owns, in one of a few phases
- ``partition_group``   the buffered input of a task, and the order in which it is processed
- ``placement``         what a partitioner may return for a record: a partition, None, or several partitions
- ``record_collector``  what a task writes, column by column, until there is enough of it for a record batch
- ``refused_records``   records that the cluster does not take: the production exception handler decides (KIP-210,
                        KIP-1065)
- ``restore``           how far stores are brought up to their changelogs: for active tasks to the end, for standbys
                        on and on
- ``source_topics``     which topics the sources of a task read now: those that are named, and those that a pattern
                        matches
- ``start_positions``   what tasks read, and where they begin: at committed offsets, or as their reset policy says
- ``task``              a task: one subtopology for one partition, as a value machine
- ``task_inputs``       the input of running tasks: fetched batches on their way from the network's fetcher to the
                        tasks
- ``task_manager``      keeps the tasks of this member as the group wants them
- ``task_meter``        what a task counts about itself: once a run of records and once a turn, never once a record
- ``task_offsets``      how far the state of each task is, as the group coordinator asks for it: one sum over the
                        changelogs of a task
- ``task_settings``     what all tasks of a member have in common
- ``waiting_tasks``     tasks that are to be open here and can't be opened yet: another process of this instance has
                        not closed their stores

1. Tasks process on the processing thread. Stores are restored, and standbys follow, wherever a
   :class:`~streamsrt.tasks.changelog_work.Restoring` does the :class:`~streamsrt.tasks.changelog_work.ChangelogWork`: on a
   thread of its own in an application, on the processing thread in the simulator and in tests.
2. A store is touched by one of the two at a time: by who restores it until its changelog is released, then by its task.
3. What was restored comes back as values. Tasks change their phases, listeners are called and errors are treated on the
   processing thread, between two batches.
"""
