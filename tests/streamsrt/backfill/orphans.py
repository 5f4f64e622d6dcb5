"""A run whose workers don't notice that it was killed, as on a cluster: each task in a process that is left alone.

python -m tests.streamsrt.backfill.orphans DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamsrt.backfill import Backfill
from streamsrt.backfill.manifest import TaskManifest, finished_manifest
from streamsrt.backfill.plan import load_plan

_TASK = "import sys; from streamsrt.backfill.run_task import run_task; run_task(*sys.argv[1:])"


class Detached:
    """An engine with a process of its own for each task."""

    def run(
        self, directory: Path, task_ids: Sequence[str], bootstrap_servers: str | None = None
    ) -> Iterator[TaskManifest]:
        for task_id in task_ids:
            subprocess.run([sys.executable, "-c", _TASK, str(directory), task_id], check=True)
            yield finished_manifest(directory, load_plan(directory), task_id)


if __name__ == "__main__":
    Backfill(sys.argv[1]).run(Detached())
