"""Keeps the tasks of one member as the group wants them: opened, restored, fed, closed.

- ``task_manager``        opens, recycles and closes tasks, and gives them time
- ``assignment_changes``  which tasks came, went and changed their role here, and why, as far as this member can know
- ``damage``              which task a damaged store belongs to
- ``group_input``         what the whole group has not read yet, for a member that would end when all present input is
                          processed
- ``memory_shares``       how the active tasks of a process share what it may take for record caches and for changes that
                          wait for a commit
- ``owned_task``          a task that this member owns, in one of a few phases
- ``source_topics``       which topics the sources of a task read now: those that are named, and those that a pattern
                          matches
- ``start_positions``     what tasks read, and where they begin: at committed offsets, or as their reset policy says
- ``task_inputs``         the input of running tasks: fetched batches on their way from the network's fetcher to the tasks
- ``task_offsets``        how far the state of each task is, as the group coordinator asks for it: one sum over the
                          changelogs of a task
- ``task_settings``       what all tasks of a member have in common
- ``waiting_tasks``       tasks that are to be open here and can't be opened yet: another process of this instance has not
                          closed their stores
"""
