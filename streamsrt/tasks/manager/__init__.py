"""Opens, restores, feeds and closes the tasks of one member, as the group assigns them.

- ``task_manager``        opens, recycles and closes tasks, and runs them
- ``assignment_changes``  which tasks were added, removed or changed their role here, and why, as far as this member
                          knows
- ``awake_tasks``         which running tasks an iteration of the loop looks at: an idle instance may have a thousand tasks
- ``damage``              which task a damaged store belongs to
- ``group_input``         input that the whole group has not read yet, for a member that ends when all present input is
                          processed
- ``lost_changelogs``     changelogs that were deleted while the application has state in them
- ``memory_shares``       how the active tasks of a process share the memory for record caches and uncommitted changes
- ``owned_task``          a task that this member owns, in one of a few phases
- ``source_topics``       which topics the sources of a task currently read: those that are named, and those that match
                          a pattern
- ``start_positions``     where tasks start to read: at committed offsets, or according to their reset policy
- ``task_inputs``         the input of running tasks: fetched batches on their way from the network's fetcher to the
                          tasks
- ``task_offsets``        how far the state of each task is, as reported to the group coordinator: one sum over the
                          changelogs of a task
- ``task_settings``       what all tasks of a member have in common
- ``waiting_tasks``       assigned tasks that can't be opened yet, because another process of this instance has not
                          closed their stores
"""
