"""Backfills on Spark: engine ``spark``.

| module | what it is |
| --- | --- |
| ``engine`` | tasks in Spark's workers |
| ``runs`` | the tasks of one level, with the plan's directory in sight of the workers or without |
| ``inputs`` | files that tasks read, brought to workers that don't see them |
| ``results`` | results that come back to the driver as rows |
| ``session`` | the Spark session that a backfill runs in |
| ``worker`` | what runs in Spark's workers: tasks, and how they answer |
| ``lake`` | Spark distributes a lake's rows to their tasks, sorted in replay order |
| ``reading`` | what Spark reads of a lake: files or a version, the rows, records made of them; its errors |
| ``avro_files`` | the columns of all files of a lake of Avro |
| ``encoding`` | keys and values with columns of types, encoded by the application's serdes |
| ``mapping`` | a user's function that makes records of rows |
| ``zones`` | times without a time zone: UTC everywhere, or refused |
| ``scan`` | counts the records of a lake for a plan |
| ``errors`` | what Spark's errors say: the file, the cause |

1. The driver reads no record: rows of a lake go from Spark's tasks to the workers that replay them. Where workers don't see
   its files it sends and receives them, in parts of limited size.
2. Every time is UTC, whatever zone the machines and the session have.
3. A worker imports this package, the application and what it needs, and nothing of the driver's program.
"""
