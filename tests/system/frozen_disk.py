"""A disk that hangs: the state directory of one instance, whose processes have ``frozen_disk.c`` preloaded.

Unlike a process that is stopped, one whose disk hangs goes on with everything else: it fetches, and its heartbeats go on.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = shutil.which("cc") if Path("/usr/include/dlfcn.h").exists() else None
"""None: disks can't be frozen here."""


def surroundings(folder: Path, directory: Path) -> Mapping[str, str]:
    """Environment variables of a process whose directory can be frozen. What is compiled for it goes into ``folder``."""
    if COMPILER is None:
        return {}
    library = folder / "frozen_disk.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return {"LD_PRELOAD": str(library), "FROZEN_DISK": str(directory)}


@contextlib.contextmanager
def frozen(directory: Path) -> Iterator[None]:
    """Meanwhile nobody who was started in these surroundings gets at what lies in the directory."""
    flag = directory.with_name(f"{directory.name}.frozen")
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()
