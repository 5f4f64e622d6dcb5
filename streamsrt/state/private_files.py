"""Directories and files that only their owner may read, because they contain the application's records.

The files of RocksDB have the process's umask, but nobody else can enter their directory.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o077


def make_private(path: Path) -> None:
    """Makes the directory where it is not there, and closes it to others where it is theirs, too. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        # A directory of another user, which was made for this one, stays as it was made.
        with suppress(PermissionError):
            path.chmod(mode & ~_OTHERS)


def write_private(path: Path, text: str, *, durably: bool = False) -> None:
    """Writes a file, replacing an existing one. Raises OSError."""
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
        if durably:
            file.flush()
            os.fsync(file.fileno())
