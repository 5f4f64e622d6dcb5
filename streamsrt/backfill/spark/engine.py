"""The Spark engine: Spark hands out tasks, puts an unordered lake in order, and tries again; the task itself is the same.

1. Direct plan: one row, one Spark task, one :func:`~streamsrt.backfill.run_task.run_task`. It reads its own sources; of
   Spark it needs the processes only. Tasks that read a lake run by :mod:`streamsrt.backfill.spark.lake`.
2. Attempts may be repeated and may run twice at once: the first manifest wins, in the plan's directory. So do retries and
   speculation. Workers write there, or if they don't see it, the driver does (:mod:`streamsrt.backfill.spark.runs`).
3. What a task itself raises is final; other tasks of the level go on first. What kills a worker is tried again by Spark, as
   often as the master allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal

from streamsrt.backfill.application_bundle import check_environment
from streamsrt.backfill.engine_local import TaskFailedError, TaskFailure
from streamsrt.backfill.errors import BackfillError, WorkerDiedError
from streamsrt.backfill.manifest import IDLE, TaskManifest, finished_manifest, load_manifest, write_activity
from streamsrt.backfill.parquet_files import unreadable
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.spark.errors import file_in, last_cause, missing_module
from streamsrt.backfill.spark.runs import FetchedRun, Looked, SharedRun, TaskLevel, look, token_in
from streamsrt.backfill.spark.session import (
    NOTHING,
    QUICK_START,
    Shipment,
    SparkSessionHandle,
    check_installed,
    is_connect,
    is_local,
    open_session,
)
from streamsrt.errors import StreamsError

_POLL_S = 0.2
_REASON = "most recent failure: "


class SparkEngine:
    """Runs tasks on Spark. ``master``: as Spark has it, or ``sc://HOST`` for Spark Connect; without one the session that is
    active in this process, else all cores of this machine. ``conf``: Spark's settings; ``shipment``: what a cluster's
    workers get. ``results``: how results come into the plan's directory; ``on_note`` is called with sentences about a
    cluster, such as what is waited for. Raises BackfillError where Spark is not installed."""

    def __init__(
        self,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        shipment: Shipment = NOTHING,
        *,
        results: Literal["auto", "directory", "spark"] = "auto",
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        check_installed()
        self._results = results
        self._on_note = on_note or (lambda _: None)
        self._looked: dict[Path, Looked] = {}
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
            self._say_where()
            self._session = open_session(self._master, quick, self._conf, self._shipment)
        level = TaskLevel(directory, plan, tuple(task_ids), bootstrap_servers, self._session.python_path)
        with token_in(directory) as token:
            chosen = self._run_of(self._session, level, token)
            pool = ThreadPoolExecutor(1, thread_name_prefix="streamsrt-spark")
            job = pool.submit(chosen.run)
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
                    chosen.cancel()
                pool.shutdown()

    def _say_where(self) -> None:
        """A cluster may let its drivers wait for a minute: it starts Python on each node, which gets the bundle first."""
        if self._master is None or is_local(self._master):
            return
        bundle = self._shipment.bundle
        shipped = "" if bundle is None else f", whose workers get {bundle} ({bundle.stat().st_size >> 20} MB) first"
        self._on_note(f"connecting to {self._master}{shipped}")

    def _run_of(self, session: SparkSessionHandle, level: TaskLevel, token: str) -> SharedRun | FetchedRun:
        """Raises BackfillError."""
        spark, results = session.spark, self._results
        if results == "auto" and not is_local(session.master):
            if level.directory not in self._looked:
                self._on_note(f"asking the workers of {session.master} whether they see {level.directory}")
                try:
                    self._looked[level.directory] = look(spark, level, token)
                except Exception as error:
                    raise _explained(str(error), session.master) from error
                self._on_note(self._looked[level.directory].said(level.directory))
            results = "directory" if self._looked[level.directory].is_shared else "spark"
        if results == "spark" and is_connect(spark):
            raise BackfillError(
                f"workers of {session.master} do not see {level.directory}, and with Spark Connect results can't come "
                "through Spark: give a --dir that all nodes have under the same path, or another --master than sc://"
            )
        return FetchedRun(spark, level) if results == "spark" else SharedRun(spark, level, token)

    def close(self) -> None:
        """Stops the session, if it was made here."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _raise_failure(job: Future[dict[str, TaskFailure]], master: str) -> None:
    error = job.exception()
    if isinstance(error, StreamsError):
        raise error
    if error is not None:
        raise _explained(str(error), master) from error
    for task_id, failure in job.result().items():
        raise TaskFailedError(task_id, failure)


def _explained(text: str, master: str) -> StreamsError:
    """Returns the error to raise for the error with which Spark ended."""
    file, module = file_in(text), missing_module(text)
    if file is not None:
        return unreadable(file.removeprefix("file:"), last_cause(text) or _reason(text))
    if module is not None:
        return BackfillError(
            f"the workers of {master} can't import {module}: make a bundle with streamsrt backfill bundle and give it "
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
