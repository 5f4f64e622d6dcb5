"""Restoring stores from their changelogs: for active tasks up to the end, for standbys continuously.

- ``changelog_work``  applies fetched changelog data to the stores, step by step, on whichever thread runs it
- ``listeners``       calls the listeners of restoring and standby tasks: on the processing thread, between two batches
- ``progress``        the progress of each store, and telling the listeners

1. A :class:`~streamsrt.tasks.restore.changelog_work.Restoring` runs the
   :class:`~streamsrt.tasks.restore.changelog_work.ChangelogWork`, which restores stores and updates standbys: on its
   own thread in an application, on the processing thread in the simulator and in tests.
2. A store is used by one side at a time: by the restoring side until its changelog is released, then by its task.
3. What was restored is reported as values. The processing thread changes the phases of tasks, calls listeners and
   handles errors, between two batches.
"""
