"""What runs in Spark's workers: tasks, and how they answer.

1. A worker loads the application by its name, like every instance of it. No function and no object of it is shipped.
2. What a task itself raises is an answer: the same input would raise it again. Anything else is raised, and Spark tries the
   task again.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamsrt.backfill.engine_local import failure_of
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.parquet_files import tune_arrow
from streamsrt.backfill.plan import load_plan
from streamsrt.backfill.run_task import run_task
from streamsrt.errors import StreamsError
from streamsrt.runtime.tuning import tune_process
from topology.spec.errors import TopologyError

if TYPE_CHECKING:
    import pyarrow

ANSWER = "task string, failure string"


@dataclass(frozen=True, slots=True)
class Where:
    """The values that a worker needs to run tasks. ``python_path``: that of the driver, if both are on one machine."""

    directory: str
    fingerprint: str
    bootstrap_servers: str | None
    python_path: tuple[str, ...]

    def check(self) -> None:
        """Raises PlanError where the directory of the plan is not here."""
        try:
            found = load_plan(Path(self.directory)).fingerprint
        except PlanError as error:
            raise PlanError(f"{self._unseen}: {error}") from None
        if found != self.fingerprint:
            raise PlanError(f"{self._unseen}: {self.directory} holds another plan there")

    @property
    def _unseen(self) -> str:
        return (
            f"a worker of Spark on {socket.gethostname()} does not see the plan's directory, where results go: give a --dir "
            "that all nodes have under the same path"
        )


@dataclass(frozen=True, slots=True)
class DirectTasks:
    """Rows are indexes into ``task_ids``; each task reads its own sources."""

    where: Where
    task_ids: tuple[str, ...]

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        set_up_worker(self.where)
        for batch in batches:
            for index in batch.column("id").to_pylist():
                task_id, servers = self.task_ids[index], self.where.bootstrap_servers
                run = partial(run_task, self.where.directory, task_id, bootstrap_servers=servers)
                yield answer(self.where, task_id, run)


def set_up_worker(where: Where) -> None:
    """Makes a worker's process ready for tasks."""
    known = set(sys.path)
    sys.path.extend(entry for entry in where.python_path if entry not in known)
    tune_process()
    tune_arrow()


def answer(where: Where, task_id: str, run: Callable[[], TaskManifest]) -> pyarrow.RecordBatch:
    """Runs a task; its row for the driver."""
    import pyarrow as pa

    failure = None
    try:
        where.check()
        run()
    except (StreamsError, TopologyError) as error:
        failure = json.dumps(asdict(failure_of(error, error.exit_code)))
    return pa.record_batch([pa.array([task_id], pa.string()), pa.array([failure], pa.string())], ["task", "failure"])
