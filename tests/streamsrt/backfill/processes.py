"""Running tasks here, and processes that die in the middle of their work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamsrt.backfill.manifest import TaskManifest
from streamsrt.backfill.run_task import run_task


class InProcess:
    """An engine without processes, so that tests which are about something else don't wait for any."""

    def run(
        self, directory: Path, task_ids: Sequence[str], bootstrap_servers: str | None = None
    ) -> Iterator[TaskManifest]:
        for task_id in task_ids:
            yield run_task(directory, task_id, bootstrap_servers=bootstrap_servers)


def commit_and_die(directory: Path, servers: str, after: int, *, transactions: bool) -> int | None:
    """Hands over in a process of its own, which kills itself at its ``after``-th message; its exit code."""
    process = multiprocessing.get_context("spawn").Process(
        target=_commit, args=(str(directory), servers, after, transactions)
    )
    process.start()
    process.join()
    return process.exitcode


def _commit(directory: str, servers: str, after: int, transactions: bool) -> None:
    from streamsrt.backfill import Backfill

    said = 0

    def on_step(step: str, text: str) -> None:
        nonlocal said
        said += 1
        if said == after:
            os.kill(os.getpid(), signal.SIGKILL)

    Backfill(directory, bootstrap_servers=servers).commit(on_step=on_step, transactions=transactions)
