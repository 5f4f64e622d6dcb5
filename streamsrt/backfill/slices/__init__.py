"""Key slices: a task computed by several processes, each for some of its keys.

1. A slice reads all records of the task's partitions in the task's order, and processes those whose keys are its own. Of the
   others it takes the times: they move the stream times of operations on, so that the same records are late, and the same
   windows closed, as without slices.
2. Which subtopologies allow slices, their operations say (:data:`streamsrt.operators.table.OPERATIONS`).
3. The results of all slices are merged into the one result that the task has without slices
   (:mod:`streamsrt.backfill.slice_merging`). Everything else knows tasks only.

- ``division``     divides the tasks of a plan
- ``eligibility``  which subtopologies can be sliced, and what prevents it in others
- ``own_records``  the records of a slice, and the times of the others
- ``share``        slices of a plan, their names and their keys
"""
