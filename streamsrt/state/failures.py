"""Errors of RocksDB and the file system, as errors that say what to do next.

1. rocksdict raises plain ``Exception`` with RocksDB's text, without a code, so the text is parsed.
2. Damage is distinguished from everything else, because only damaged state may be wiped. Unknown errors are not damage,
   and neither is any file that can't be written.
3. For a lock, the error names the pid that holds it.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
from pathlib import Path

from streamsrt.errors import StateDirectoryLockedError, StateError, StoreCorruptedError

_DAMAGE = ("Corruption", "No such file or directory: While open", "MANIFEST")
_FULL = ("No space left", "File too large", "Disk quota")
_OPENED_AT_ONCE = re.compile(r"/LOG(\.old\.\d+)?: No such file or directory")
"""RocksDB puts old info logs aside before it takes its lock: of two processes that open a store, one does not find them."""
_READ_ONLY = "Read-only file system"
_NOT_PERMITTED = ("Permission denied", "Operation not permitted")


def store_error(cause: str, name: str, path: Path, doing: str, *, of_owner: bool = True) -> StateError:
    """The error for a store called ``name`` at ``path`` that can't be "opened", "read", "written" or "deleted".
    ``of_owner``: for who restores what is damaged, not for who only looks."""
    where = f"state store {name!r} in {path}"
    if "lock hold by current process" in cause:
        return StateDirectoryLockedError(
            f"{where} is already open in this process (pid {os.getpid()}). "
            "Close it, and the iterators on it, before opening it again."
        )
    if "While lock file" in cause:
        return held_error(name, path)
    if _OPENED_AT_ONCE.search(cause):
        return StateDirectoryLockedError(
            f"{where} is being opened by another process. Stop it, or give this one another state.dir or application.id."
        )
    if any(text in cause for text in _DAMAGE) and not any(
        text in cause for text in (*_FULL, _READ_ONLY, *_NOT_PERMITTED)
    ):
        return damaged_error(cause, name, path, doing, of_owner=of_owner)
    return storage_error(cause, where, doing)


def damaged_error(cause: str, name: str, path: Path, doing: str, *, of_owner: bool) -> StoreCorruptedError:
    """The error for a store whose files are damaged; as :func:`store_error`."""
    then = (
        "It will be wiped and restored from its changelog"
        if of_owner
        else "Nothing is changed. An instance that opens it restores it from its changelog, if it has one"
    )
    damaged = StoreCorruptedError(
        f"state store {name!r} in {path} can't be {doing}: its files are damaged. {then}. ({cause})"
    )
    damaged.path = str(path)
    return damaged


def is_full(cause: str) -> bool:
    """Whether this is what is said of a full disk."""
    return any(text in cause for text in _FULL)


def held_error(name: str, path: Path) -> StateDirectoryLockedError:
    """The error for a store called ``name`` at ``path`` that another process has open."""
    return StateDirectoryLockedError(
        f"state store {name!r} in {path} is held by another process ({_lock_holder(path / 'LOCK')}). "
        "Stop it, or give this one another state.dir or application.id."
    )


def storage_error(cause: str, where: str, doing: str) -> StateError:
    """The error for anything below ``state.dir`` that can't be "opened", "read", "written" or "deleted"."""
    failed = f"{where} can't be {doing}"
    if is_full(cause):
        return StateError(
            f"{failed}: the disk is full. Free space there, or move state.dir to a larger disk, and restart. ({cause})"
        )
    if _READ_ONLY in cause:
        return StateError(
            f"{failed}: its file system is read-only. Mount it writable (the kernel's log says why if it was writable "
            f"before), or point state.dir elsewhere. ({cause})"
        )
    if any(text in cause for text in _NOT_PERMITTED):
        return StateError(
            f"{failed}: this user may not write there. Make it writable, or point state.dir elsewhere. ({cause})"
        )
    return StateError(f"{failed}: {cause}. Check that state.dir is a directory that can be written.")


def _lock_holder(lock: Path) -> str:
    """Returns who holds the lock of a RocksDB. Must not be called while this process holds it: closing the file would
    release it."""
    if sys.platform != "linux":
        return "pid unknown"
    layout = struct.Struct("hhqqi0q")
    try:
        with open(lock, "rb+") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, layout.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
    except OSError:
        return "pid unknown"
    kind, _, _, _, pid = layout.unpack(answer)
    return "pid unknown" if kind == fcntl.F_UNLCK else f"pid {pid}"
