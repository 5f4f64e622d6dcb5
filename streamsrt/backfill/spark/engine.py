"""The Spark engine: Spark hands out tasks, puts an unordered lake in order, and tries again; the task itself is the same.

1. Direct plan: one row, one Spark task, one :func:`~streamsrt.backfill.run_task.run_task`. It reads its own sources; of
   Spark it needs the processes only. Tasks that read a lake run by :mod:`streamsrt.backfill.spark.lake`.
2. Attempts may be repeated and may run twice at once: the first manifest wins, in the plan's directory, which driver and
   workers share. So do retries and speculation.
3. What a task itself raises is final; other tasks of the level go on first. What kills a worker is tried again by Spark, as
   often as the master allows.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from streamsrt.backfill.application_bundle import check_environment
from streamsrt.backfill.engine_local import TaskFailedError, TaskFailure
from streamsrt.backfill.errors import BackfillError, WorkerDiedError
from streamsrt.backfill.manifest import IDLE, TaskManifest, finished_manifest, load_manifest, write_activity
from streamsrt.backfill.parquet_files import unreadable
from streamsrt.backfill.plan import BackfillPlan, load_plan
from streamsrt.backfill.spark.errors import file_in, last_cause
from streamsrt.backfill.spark.session import (
    NOTHING,
    QUICK_START,
    Shipment,
    SparkSessionHandle,
    check_installed,
    open_session,
    quiet,
)
from streamsrt.backfill.spark.worker import ANSWER, DirectTasks, Where
from streamsrt.errors import StreamsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL_S = 0.2
_REASON = "most recent failure: "
_MODULE = re.compile(r"No module named '([\w.]+)'")


class SparkEngine:
    """Runs tasks on Spark. ``master``: as Spark has it, or ``sc://HOST`` for Spark Connect; without one the session that is
    active in this process, else all cores of this machine. ``conf``: Spark's settings; ``shipment``: what a cluster's
    workers get. Raises BackfillError where Spark is not installed."""

    def __init__(
        self, master: str | None = None, conf: Mapping[str, str] | None = None, shipment: Shipment = NOTHING
    ) -> None:
        check_installed()
        self._shipment = shipment
        self._master = master
        self._conf = conf or {}
        self._session: SparkSessionHandle | None = None

    def run(
        self, directory: Path, task_ids: Sequence[str], bootstrap_servers: str | None = None
    ) -> Iterator[TaskManifest]:
        """Runs tasks that don't depend on each other, and gives the manifest of each as it is finished.

        Raises BackfillError, WorkerDiedError, and TaskFailedError for what a task raised.
        """
        plan = load_plan(directory)
        if self._session is None:
            if self._shipment.bundle is not None:
                check_environment(self._shipment.bundle, plan.application, plan.code_digest, plan.module_digests)
            quick = None if plan.lakes else QUICK_START
            self._session = open_session(self._master, quick, self._conf, self._shipment)
        spark, tag = self._session.spark, f"streamsrt-{uuid.uuid4().hex}"
        where = Where(str(directory.absolute()), plan.fingerprint, bootstrap_servers, self._session.python_path)
        with quiet():
            jobs = _jobs(spark, plan, where, task_ids)
        pool = ThreadPoolExecutor(1, thread_name_prefix="streamsrt-spark")
        job = pool.submit(_run, spark, tag, jobs)
        try:
            waiting = list(task_ids)
            while not job.done():
                wait([job], _POLL_S)
                found = {task_id: load_manifest(directory, plan, task_id) for task_id in waiting}
                waiting = [task_id for task_id, manifest in found.items() if manifest is None]
                write_activity(directory, self._session.activity())
                yield from filter(None, found.values())
            _raise_failure(job, self._session.master)
            yield from (finished_manifest(directory, plan, task_id) for task_id in waiting)
        finally:
            write_activity(directory, IDLE)
            if not job.done():
                spark.interruptTag(tag)
            pool.shutdown()

    def close(self) -> None:
        """Stops the session, if it was made here."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _jobs(spark: SparkSession, plan: BackfillPlan, where: Where, task_ids: Sequence[str]) -> list[DataFrame]:
    lake = {task.id for task in plan.tasks if any(source.lake_records for source in task.sources)}
    shuffled = tuple(task_id for task_id in task_ids if task_id in lake)
    direct = tuple(task_id for task_id in task_ids if task_id not in lake)
    jobs = [_direct(spark, where, direct)] if direct else []
    if shuffled:
        # Not before it is known that pyarrow is there.
        from streamsrt.backfill.spark.lake import ordered_tasks

        jobs.append(ordered_tasks(spark, plan, where, shuffled))
    return jobs


def _direct(spark: SparkSession, where: Where, task_ids: tuple[str, ...]) -> DataFrame:
    count = len(task_ids)
    with quiet():
        return spark.range(0, count, 1, count).mapInArrow(DirectTasks(where, task_ids), ANSWER)


def _run(spark: SparkSession, tag: str, jobs: Sequence[DataFrame]) -> dict[str, TaskFailure]:
    """Runs until every task has answered; failures by task. In a thread of its own, as a tag belongs to one."""
    spark.addTag(tag)
    rows = [row for tasks in jobs for row in tasks.collect()]
    return {row.task: TaskFailure(**json.loads(row.failure)) for row in rows if row.failure is not None}


def _raise_failure(job: Future[dict[str, TaskFailure]], master: str) -> None:
    error = job.exception()
    if error is not None:
        raise _explained(str(error), master) from error
    for task_id, failure in job.result().items():
        raise TaskFailedError(task_id, failure)


def _explained(text: str, master: str) -> StreamsError:
    """Returns the error to raise for the error with which Spark ended."""
    file, module = file_in(text), _MODULE.search(text)
    if file is not None:
        return unreadable(file.removeprefix("file:"), last_cause(text) or _reason(text))
    if module is not None and "Traceback" in text:
        return BackfillError(
            f"the workers of {master} can't import {module[1]}: make a bundle with streamsrt backfill bundle and give it "
            "(--bundle), or install streamsrt and the application on every node, for the Python that Spark runs there "
            "(PYSPARK_PYTHON). Then run streamsrt backfill resume"
        )
    return WorkerDiedError(
        f"Spark gave up a task after all attempts ({_reason(text)}). Finished tasks are kept: streamsrt backfill resume "
        "runs the others"
    )


def _reason(text: str) -> str:
    """Returns Spark's message about the last attempt, without stack traces."""
    _, found, reason = text.partition(_REASON)
    lines = [line for line in (reason if found else text).splitlines() if line.strip()]
    return lines[-1 if "Traceback" in text and not found else 0].strip()
