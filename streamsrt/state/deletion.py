"""Deletes the files of stores.

1. A store is deleted under RocksDB's lock: another process of the instance may have opened it since this one closed it.
2. It is renamed before it is deleted. A process that opens a store of that name meanwhile gets an empty directory of its
   own, and none of its files are deleted.
3. What a process that was killed has renamed and not deleted is deleted by the next one that has the state directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamsrt.state.failures import held_error, store_error

_AWAY = ".deleted."


@contextmanager
def lock_of_store(path: Path) -> Iterator[bool]:
    """Whether no process has the RocksDB at ``path`` open, and none can open it meanwhile. Not for one that is open here."""
    try:
        lock = os.open(path / "LOCK", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        with suppress(BlockingIOError):
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
            return
        yield False
    finally:
        os.close(lock)


def delete_store(path: Path, name: str) -> None:
    """Deletes the files of the store called ``name``, which is not open here; it need not exist.

    Raises StateDirectoryLockedError while another process has it open, and StateError.
    """
    away = path.with_name(f"{path.name}{_AWAY}{os.getpid()}")
    delete_tree(away, name)
    with lock_of_store(path) as is_free:
        if not is_free:
            raise held_error(name, path)
        try:
            path.rename(away)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(str(error), name, path, "deleted") from error
    delete_tree(away, name)


def delete_left_behind(stores: Path) -> None:
    """Deletes what killed processes have left of stores that they deleted, in ``stores/<store>/``, while no other process
    uses these. Raises StateError."""
    for away in list(stores.glob(f"*/*{_AWAY}*")):
        delete_tree(away, away.parent.name)


def delete_tree(path: Path, name: str) -> None:
    """Deletes the directory of the store called ``name`` with all that is in it; it need not exist. Raises StateError."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise store_error(str(error), name, path, "deleted") from error
