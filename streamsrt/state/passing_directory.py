"""A temporary directory, for a task without a state directory (tests, backfills)."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class PassingDirectory:
    """Makes a directory when it is first called, the same one again later; it is deleted with this object."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def __call__(self) -> Path:
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="streamsrt-"))
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        return self._path
