"""The shuffle plan: a lake's rows brought to their tasks by Spark, in the order in which the task replays them.

1. Each row goes to the tasks that read its partition: every task of the plan is one partition of Spark's, and one Spark
   task replays it while its rows come in. Rows are spilled and sorted by Spark; the task holds its state only.
2. Within a task rows are sorted by ``(running maximum of the timestamps in the source partition, number of the source
   partition in the task, order, timestamp, key, value, headers)``: the order of :mod:`streamsrt.backfill.order`, with the
   order of :mod:`streamsrt.backfill.lake` within a partition. With one lake in a task, its own order is the whole order.
3. A task that also reads the log, an archive or repartition topics merges the rows with those, as live. Rows of a source
   partition then wait in memory as long as another one of the same task has a gap in time.
4. As many rows must come as the plan says, with ascending offsets: files that were changed since are noticed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamsrt.backfill.archive import batch_columns
from streamsrt.backfill.errors import ArchiveError
from streamsrt.backfill.manifest import AttemptProgress, TaskManifest, manifest_path, write_progress
from streamsrt.backfill.order import Inputs
from streamsrt.backfill.parquet_files import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from streamsrt.backfill.plan import BackfillPlan, LakePlan, SourceRange, TaskPlan, load_plan
from streamsrt.backfill.planned_application import application_of, subtopology_of
from streamsrt.backfill.run_task import run_task
from streamsrt.backfill.sources import open_inputs
from streamsrt.backfill.spark.encoding import SourceSerdes
from streamsrt.backfill.spark.reading import as_long, check_lake, read_lake
from streamsrt.backfill.spark.session import quiet
from streamsrt.backfill.spark.worker import Place, set_up_worker
from streamsrt.client.values import TopicPartition
from streamsrt.wire.murmur2 import PartitionMemo
from streamsrt.wire.records import RecordColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TASK, SOURCE, ORDER, RUNNING = "task", "source", "position", "running"
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


# -------------------------------------------------------------------------------------------------------- in the driver


def ordered_tasks(spark: SparkSession, plan: BackfillPlan, place: Place, task_ids: tuple[str, ...]) -> DataFrame:
    """A frame that runs these tasks over their rows. Raises ArchiveError where files of a lake were changed."""
    tasks = [plan.task(task_id) for task_id in task_ids]
    wanted = {source.topic for task in tasks for source in task.sources if source.lake_records}
    lakes = {lake.topic: lake for lake in plan.lakes if lake.topic in wanted}
    for lake in lakes.values():
        check_lake(spark, lake)
    topics = _topics_in_order(plan, tasks)
    serdes = SourceSerdes.of(plan, place.python_path)
    columns = [KEY, VALUE, HEADERS] if any(lake.headers for lake in lakes.values()) else [KEY, VALUE]
    parts = [
        _rows_of(spark, lake, serdes, plan.topics[lake.topic], _readers(tasks, topics, lake.topic)).select(
            TASK, SOURCE, ORDER, TIMESTAMP, *columns
        )
        for lake in lakes.values()
    ]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    several = any(sum(bool(source.lake_records) for source in task.sources) > 1 for task in tasks)
    # Offsets decide alone.
    order = [ORDER] if all(lake.order == OFFSET for lake in lakes.values()) else [ORDER, TIMESTAMP, *columns]
    if several:
        rows = rows.withColumn(RUNNING, _running_maximum(order))
        order = [RUNNING, SOURCE, *order]
    fold = OrderedTasks(place, task_ids, tuple(topics))
    with quiet():
        return rows.repartitionById(len(tasks), TASK).sortWithinPartitions(*order).mapInArrow(fold, place.schema)


def _topics_in_order(plan: BackfillPlan, tasks: Sequence[TaskPlan]) -> list[tuple[str, ...]]:
    """The topics of each task as its source partitions are in order."""
    topology, config = application_of(plan)
    of: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        if task.subtopology not in of:
            sources = [each for each in subtopology_of(topology, config, task).sources if not each.repartition]
            of[task.subtopology] = tuple(dict.fromkeys(topic for source in sources for topic in source.topics))
    return [of[task.subtopology] for task in tasks]


def _readers(tasks: Sequence[TaskPlan], topics: Sequence[tuple[str, ...]], topic: str) -> list[tuple[int, int, int]]:
    """Returns the readers of a topic: index of the task, partition, index of the topic in the task."""
    return [
        (index, task.partition, topics[index].index(topic))
        for index, task in enumerate(tasks)
        for source in task.sources
        if source.topic == topic and source.lake_records
    ]


def _rows_of(
    spark: SparkSession,
    lake: LakePlan,
    serdes: SourceSerdes,
    partitions: int,
    readers: Sequence[tuple[int, int, int]],
) -> DataFrame:
    """The rows of a lake, each as often as there are tasks that read it."""
    import pyspark.sql.functions as f

    frame = read_lake(spark, lake, serdes=serdes)
    none = f.array().cast(_HEADERS_TYPE)
    owner = f.col(PARTITION) if lake.partitioned else partition_of_key(partitions, f.col(KEY).cast("binary"))
    columns = [
        owner.cast("int").alias(PARTITION),
        as_long(frame, lake.order, per_second=1_000_000).alias(ORDER),
        as_long(frame, TIMESTAMP, per_second=1_000).alias(TIMESTAMP),
        f.col(KEY).cast("binary").alias(KEY),
        f.col(VALUE).cast("binary").alias(VALUE),
        # Spark takes ten times as long to hand over an array that is null as one that is empty.
        (f.coalesce(_headers_of(frame), none) if lake.headers else none).alias(HEADERS),
    ]
    of_partition: dict[int, list[tuple[int, int]]] = {}
    for index, partition, source in readers:
        of_partition.setdefault(partition, []).append((index, source))
    targets = f.array(
        *(
            f.array(*(f.struct(f.lit(index), f.lit(source)) for index, source in of_partition.get(partition, ()))).cast(
                "array<struct<task:int,source:int>>"
            )
            for partition in range(partitions)
        )
    )
    found = frame.select(*columns).withColumn("target", f.explode(f.get(targets, f.col(PARTITION))))
    return found.select(
        f.col("target.task").alias(TASK), f.col("target.source").alias(SOURCE), ORDER, TIMESTAMP, KEY, VALUE, HEADERS
    )


def _headers_of(frame: DataFrame) -> Column:
    import pyspark.sql.functions as f

    if dict(frame.dtypes)[HEADERS] == _HEADERS_TYPE:
        return f.col(HEADERS)
    # A cast of structs goes by their order, not by their names.
    return f.transform(
        f.col(HEADERS),
        lambda each: f.struct(each["key"].cast("string").alias("key"), each["value"].cast("binary").alias("value")),
    )


def partition_of_key(partitions: int, key: Column) -> Column:
    """Where Kafka's default partitioner puts a key of bytes."""
    import pyspark.sql.functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    # Its kind is in the annotations; PySpark's stubs want it said twice, at which PySpark warns.
    hashed = arrow_udf(_partitions_of_keys, returnType="int")  # type: ignore[call-overload]
    found: Column = hashed(key, f.lit(partitions))
    return found


def _running_maximum(order: Sequence[str]) -> Column:
    import pyspark.sql.functions as f
    from pyspark.sql import Window

    window = Window.partitionBy(TASK, SOURCE).orderBy(*order)
    return f.max(TIMESTAMP).over(window.rowsBetween(Window.unboundedPreceding, Window.currentRow))


# ----------------------------------------------------------------------------------------------------- in Spark's workers

_memo = PartitionMemo()


def _partitions_of_keys(keys: pa.Array, partitions: pa.Array) -> pa.Array:
    found = _memo.partitions(keys.to_pylist(), partitions[0].as_py()) if len(keys) else []
    return pa.array(found, pa.int32())


@dataclass(frozen=True, slots=True)
class OrderedTasks:
    """The rows of a Spark partition are those of one task, in order. ``topics``: those of each task in order."""

    place: Place
    task_ids: tuple[str, ...]
    topics: tuple[tuple[str, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        set_up_worker(self.place)
        self._report_sorting()
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        index = first.column(TASK)[0].as_py()
        rows = chain([first], batches)
        yield from self.place.answers(self.task_ids[index], partial(self._run, index, rows))
        # A task that was finished already has left them.
        deque(rows, maxlen=0)

    def _report_sorting(self) -> None:
        """Spark reads and sorts what this worker waits for."""
        from pyspark import TaskContext

        context, directory = TaskContext.get(), self.place.reported_in
        if directory is None or context is None:
            return
        task = self.task_ids[context.partitionId()]
        if not manifest_path(directory, task).exists():
            write_progress(directory, AttemptProgress(task=task, records=0, seconds=0.0, phase="sorting"))

    def _run(self, index: int, batches: Iterator[pa.RecordBatch], directory: Path) -> TaskManifest:
        servers = self.place.bootstrap_servers
        task_id, topics = self.task_ids[index], self.topics[index]
        plan = load_plan(directory)
        task = plan.task(task_id)
        exact = {lake.topic for lake in plan.lakes if lake.order == OFFSET}
        runs = _runs(batches, [_LakePartition(task, topic, exact=topic in exact) for topic in topics])
        lakes = [source for source in task.sources if source.lake_records]
        if not task.repartition and all(is_all_lake(source) for source in task.sources):
            return run_task(directory, task_id, runs=runs)
        with contextlib.ExitStack() as stack:

            def inputs(order: Sequence[TopicPartition]) -> Inputs:
                rest = stack.enter_context(open_inputs(directory, plan, task, order, servers))
                split = _split(runs, {source.topic_partition: source.lake_records for source in lakes})
                return {tp: chain(split[tp], batches) if tp in split else batches for tp, batches in rest.items()}

            return run_task(directory, task_id, inputs=inputs)


def is_all_lake(source: SourceRange) -> bool:
    """Whether there is nothing of a source partition but what a lake has of it."""
    return not source.archive and source.log_start >= source.end


class _LakePartition:
    """A source partition while its rows come in."""

    def __init__(self, task: TaskPlan, topic: str, *, exact: bool) -> None:
        source = next((source for source in task.sources if source.topic == topic), None)
        self.topic_partition: TopicPartition = (topic, task.partition)
        self._named = f"{topic}-{task.partition}"
        self.missing = 0 if source is None else source.lake_records
        self._exact = exact
        self._next = 0 if source is None else source.start

    def columns(self, rows: pa.RecordBatch) -> RecordColumns:
        """Rows as records. Raises ArchiveError where offsets come twice, or more rows than the plan has."""
        count = rows.num_rows
        self.missing -= count
        offsets = rows.column(ORDER)
        if self._exact:
            values = offsets.to_numpy()
            if values[0] < self._next or not (values[1:] > values[:-1]).all():
                raise ArchiveError(f"the lake of {self._named} has duplicate offsets: rewrite it")
            self._next = int(values[-1]) + 1
        else:
            offsets = pa.array(range(self._next, self._next + count), pa.int64())
            self._next += count
        if self.missing < 0:
            raise self.changed()
        names = [name for name in (TIMESTAMP, KEY, VALUE, HEADERS) if name in rows.schema.names]
        records = pa.record_batch([offsets, *(rows.column(name) for name in names)], names=[OFFSET, *names])
        return batch_columns(records, f"the lake of {self._named}")

    def changed(self) -> ArchiveError:
        return ArchiveError(
            f"the lake of {self._named} was changed since the plan was made: it has "
            f"{abs(self.missing)} records {'fewer' if self.missing > 0 else 'more'}. Plan again in another --dir"
        )


def _runs(
    batches: Iterator[pa.RecordBatch], lakes: Sequence[_LakePartition]
) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    """The rows in runs of one source partition. Raises ArchiveError where they are not those of the plan."""
    for batch in batches:
        if not batch.num_rows:
            continue
        owners = batch.column(SOURCE).to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        for start, stop in pairwise(cuts):
            lake = lakes[owners[start]]
            yield lake.topic_partition, lake.columns(batch.slice(start, stop - start))
    for lake in lakes:
        if lake.missing:
            raise lake.changed()


def _split(
    runs: Iterator[tuple[TopicPartition, RecordColumns]], records: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Iterator[RecordColumns]]:
    """Splits the runs by source partition. Runs of a partition wait until they are requested."""
    waiting: dict[TopicPartition, deque[RecordColumns]] = {tp: deque() for tp in records}
    to_come = sum(records.values())

    def of(tp: TopicPartition) -> Iterator[RecordColumns]:
        nonlocal to_come
        left = records[tp]
        while left:
            while not waiting[tp]:
                found, columns = next(runs)
                waiting[found].append(columns)
                to_come -= len(columns)
                if not to_come:
                    # Nothing follows; if something does, this raises.
                    next(runs, None)
            left -= len(waiting[tp][0])
            yield waiting[tp].popleft()

    return {tp: of(tp) for tp in records}
