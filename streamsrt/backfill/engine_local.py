"""The local engine: tasks in processes of this machine.

1. Workers are fresh interpreters, which don't import the program that started them: it needs no guard around its main part.
   They live as long as the engine runs; each has one task at a time.
2. A worker that is killed loses its task, which another worker starts anew; after three deaths of one task it is given up.
   An error that the task itself raised is final: the same input would raise it again.
3. A worker ends as soon as the engine's process is gone, in the middle of a task. What it finished until then counts.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from streamsrt.backfill.errors import WorkerDiedError
from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.parquet_files import tune_arrow
from streamsrt.backfill.run_task import run_task
from streamsrt.errors import RecordError, StreamsError
from streamsrt.runtime.tuning import few_heaps, tune_process
from streamsrt.wording import error_text
from topology.spec.errors import TopologyError

ATTEMPTS_MAX = 3
_STOP_TIMEOUT_S = 5.0
_PROGRAM = """
import sys
number, sys.path[:] = int(sys.argv[1]), sys.argv[2:]
from streamsrt.backfill.engine_local import work
work(number)
"""


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """An error of a task, as it crosses from a worker's process."""

    kind: str
    message: str
    exit_code: int
    trace: str
    topic: str = ""
    partition: int = -1
    offset: int = -1


class TaskFailedError(StreamsError):
    """A task failed in a worker; ``exit_code`` is that of the original error, whose traceback is attached as a note. Fix
    the cause, then run ``streamsrt backfill resume``.
    """

    def __init__(self, task_id: str, failure: TaskFailure) -> None:
        super().__init__(f"task {task_id}: {failure.message}")
        self.exit_code = failure.exit_code
        self.add_note(failure.trace)


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    task_id: str | None = None


class LocalEngine:
    """Runs tasks in ``workers`` processes."""

    def __init__(self, workers: int = 2) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers: at least one is needed")
        self._count = workers

    def run(
        self, directory: Path, task_ids: Sequence[str], bootstrap_servers: str | None = None
    ) -> Iterator[TaskManifest]:
        """Runs tasks that don't depend on each other, and gives the manifest of each as it is finished.

        Raises WorkerDiedError, and TaskFailedError for what a task raised; tasks that run then are abandoned.
        """
        waiting = deque(task_ids)
        deaths = dict.fromkeys(task_ids, 0)
        workers: list[_Worker] = []
        try:
            while waiting or any(worker.task_id is not None for worker in workers):
                self._hand_out(workers, waiting, directory, bootstrap_servers)
                busy = {worker.connection: worker for worker in workers if worker.task_id is not None}
                for ready in wait(list(busy)):
                    worker = busy[ready]  # type: ignore[index]
                    manifest = self._take(worker, workers, waiting, deaths)
                    if manifest is not None:
                        yield manifest
        finally:
            _stop(workers)

    def _hand_out(
        self, workers: list[_Worker], waiting: deque[str], directory: Path, bootstrap_servers: str | None
    ) -> None:
        while waiting:
            idle = next((worker for worker in workers if worker.task_id is None), None)
            if idle is None:
                if len(workers) >= self._count:
                    return
                idle = _start()
                workers.append(idle)
            idle.task_id = waiting.popleft()
            try:
                idle.connection.send((str(directory), idle.task_id, bootstrap_servers))
            except (BrokenPipeError, ConnectionResetError):
                # It died while it was idle: that is no fault of the task.
                waiting.appendleft(idle.task_id)
                workers.remove(idle)

    def _take(
        self, worker: _Worker, workers: list[_Worker], waiting: deque[str], deaths: dict[str, int]
    ) -> TaskManifest | None:
        task_id = worker.task_id
        assert task_id is not None
        try:
            answer = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.process.wait()
            workers.remove(worker)
            deaths[task_id] += 1
            if deaths[task_id] >= ATTEMPTS_MAX:
                raise WorkerDiedError(
                    f"the worker of task {task_id} died {deaths[task_id]} times, the last time with exit code "
                    f"{worker.process.returncode} (-9: killed, often out of memory). Give fewer --workers, then "
                    "streamsrt "
                    "backfill resume; finished tasks are kept"
                ) from None
            waiting.appendleft(task_id)
            return None
        worker.task_id = None
        if isinstance(answer, TaskFailure):
            raise TaskFailedError(task_id, answer)
        return TaskManifest.model_validate_json(answer)


def _start() -> _Worker:
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        # Ctrl-C is for the engine, which stops them: to a terminal, they are another job.
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(number), *sys.path], pass_fds=[number], process_group=0
        )
    return _Worker(process, Connection(ours.detach()))


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        if worker.task_id is not None:
            worker.process.terminate()
        worker.connection.close()
    for worker in workers:
        try:
            worker.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def work(number: int) -> None:
    """The life of a worker: tasks, which come through that file, until the engine hangs up."""
    few_heaps()
    tune_process()
    tune_arrow()
    threading.Thread(target=_end_with_engine, args=(number,), name="streamsrt-engine", daemon=True).start()
    connection = Connection(number)
    while True:
        try:
            directory, task_id, bootstrap_servers = connection.recv()
        except EOFError:
            return
        try:
            manifest = run_task(directory, task_id, bootstrap_servers=bootstrap_servers)
        except (StreamsError, TopologyError) as error:
            connection.send(failure_of(error, error.exit_code))
        except Exception as error:  # noqa: BLE001  # whatever it is, the engine must hear of it
            connection.send(failure_of(error, StreamsError.exit_code))
        else:
            connection.send(manifest.model_dump_json())


def _end_with_engine(number: int) -> None:
    """Ends this process when the other end of that file is closed everywhere."""
    hang_up = select.poll()
    hang_up.register(number, 0)
    hang_up.poll()
    # In the middle of whatever it does: its files are in the folder of an attempt that nobody has published.
    os._exit(1)


def failure_of(error: Exception, exit_code: int) -> TaskFailure:
    """An error as it can be sent to another process."""
    where = (error.topic, error.partition, error.offset) if isinstance(error, RecordError) else ("", -1, -1)
    text = str(error) if isinstance(error, StreamsError | TopologyError) else error_text(error)
    trace = "".join(traceback.format_exception(error))
    return TaskFailure(type(error).__name__, text, exit_code, trace, *where)
