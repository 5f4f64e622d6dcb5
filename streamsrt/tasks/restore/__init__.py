"""Stores from their changelogs: for active tasks up to the end, for standbys on and on.

- ``changelog_work``  applies what is fetched of changelogs to the stores, step by step, for whoever has a thread for it
- ``listeners``       who is told how the state of tasks is restored and followed: on the processing thread, between two
                      batches
- ``progress``        how far each store is, and telling the listeners

1. Stores are restored, and standbys follow, wherever a
   :class:`~streamsrt.tasks.restore.changelog_work.Restoring` does the
   :class:`~streamsrt.tasks.restore.changelog_work.ChangelogWork`: on a thread of its own in an application, on the
   processing thread in the simulator and in tests.
2. A store is touched by one of the two at a time: by who restores it until its changelog is released, then by its task.
3. What was restored comes back as values. Tasks change their phases, listeners are called and errors are treated on the
   processing thread, between two batches.
"""
