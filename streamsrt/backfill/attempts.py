"""Attempts at tasks: a folder for each, who works in it, and what is left of those that nobody works in.

1. Every attempt has a folder with a name of its own and writes nowhere else. Its process holds a lock in the folder until
   the result is published or given up; the lock of a process that was killed is free.
2. Whoever deletes an attempt takes its lock first, and looks then whether a manifest names it: from there on nobody can
   publish one. So a folder is deleted neither while it is written nor if its result counts.
3. An attempt ends if another driver has taken over since it began. It looks when it says how far it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.manifest import STAGES_FILE, load_manifest
from streamsrt.backfill.plan import BackfillPlan
from streamsrt.backfill.slices.share import all_slices

DRIVER_FILE = ".lock"
"""Locked by the one process that runs or hands over; it holds that process's pid and a name of its run."""
TOKEN = "seen-"
"""How files begin by which workers on other machines find out whether they see the directory."""
GLOBAL_TABLES = "global"
"""The folder with the rows of global tables."""
_ATTEMPTS = "attempts"
_LOCK = "lock"


@contextlib.contextmanager
def new_attempt(directory: Path, task_id: str, name: str | None = None) -> Iterator[Path]:
    """The folder of a new attempt, which this process has to itself meanwhile. ``name``: of one that was made elsewhere."""
    while True:
        folder = directory / _ATTEMPTS / (name or f"{task_id}-{uuid.uuid4().hex[:8]}")
        folder.mkdir(parents=True)
        with _alone_in(folder) as alone:
            # Before it was locked it was nobody's, and may have been deleted.
            if alone:
                yield folder
                return


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[bool]:
    """Holds the lock of an attempt's folder, if it is free and the folder exists."""
    path = folder / _LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        yield False
        return
    try:
        yield take_lock(descriptor) and _is_file_at(descriptor, path)
    finally:
        os.close(descriptor)


def take_lock(descriptor: int) -> bool:
    """Locks an open file, if no other process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def driver_of(directory: Path) -> bytes:
    """Returns the id of the driver that has or last had the backfill; empty if there was none."""
    try:
        return (directory / DRIVER_FILE).read_bytes()
    except FileNotFoundError:
        return b""


def check_driver(directory: Path, task_id: str, driver: bytes) -> None:
    """Raises BackfillError if another driver has taken over from the one that an attempt began under."""
    if driver_of(directory) != driver:
        raise BackfillError(
            f"another process has taken over the backfill in {directory}: this attempt at task {task_id} ends, and its "
            "files are deleted by the next run"
        )


def leftovers(directory: Path, plan: BackfillPlan) -> list[Path]:
    """Lists what killed runs have left: attempts without a manifest and without a process, and documents about attempts.
    Call it only while nothing of the plan runs."""
    return [*_abandoned(directory, plan), *_documents(directory), *_unnamed_tables(directory, plan)]


def remove_leftovers(directory: Path, plan: BackfillPlan) -> None:
    """Deletes what :func:`leftovers` finds."""
    for folder in _abandoned(directory, plan):
        shutil.rmtree(folder, ignore_errors=True)
    for path in _documents(directory):
        path.unlink(missing_ok=True)
    for path in _unnamed_tables(directory, plan):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _abandoned(directory: Path, plan: BackfillPlan) -> Iterator[Path]:
    """Yields the folders of unused attempts, each locked until the next one is requested."""
    tasks = {task.id for task in plan.tasks} | {each.id for each in all_slices(plan)}
    for folder in sorted(directory.glob(f"{_ATTEMPTS}/*")):
        with _alone_in(folder) as alone:
            if not alone:
                continue
            task_id = folder.name.rpartition("-")[0]
            manifest = load_manifest(directory, plan, task_id) if task_id in tasks else None
            if manifest is None or directory / manifest.attempt != folder:
                yield folder


def _documents(directory: Path) -> list[Path]:
    return [path for name in ("progress-", STAGES_FILE, TOKEN) for path in sorted(directory.glob(f"{name}*"))]


def _unnamed_tables(directory: Path, plan: BackfillPlan) -> list[Path]:
    """Rows of global tables that a plan has left which was killed, or refused because the directory has another one."""
    named = {directory / table.path for table in plan.global_tables}
    return [path for path in sorted(directory.glob(f"{GLOBAL_TABLES}/*")) if path not in named]
