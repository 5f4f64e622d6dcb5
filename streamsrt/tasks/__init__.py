"""Tasks: one subtopology over one partition number, and the manager that keeps them as assigned.

1. Tasks process on the processing thread. Stores are restored, and standbys follow, wherever a
   :class:`~streamsrt.tasks.changelog_work.Restoring` does the :class:`~streamsrt.tasks.changelog_work.ChangelogWork`: on a
   thread of its own in an application, on the processing thread in the simulator and in tests.
2. A store is touched by one of the two at a time: by who restores it until its changelog is released, then by its task.
3. What was restored comes back as values. Tasks change their phases, listeners are called and errors are treated on the
   processing thread, between two batches.
"""
