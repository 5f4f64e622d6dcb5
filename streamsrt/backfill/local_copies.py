"""Copies of files that a plan names by their paths, on a machine that does not have the files there.

A plan names archives and an earlier backfill by absolute paths. A worker on another machine gets copies of what its task
reads, in a folder of its own, which repeats those paths below it. Everywhere else a file is where its path says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_folder: ContextVar[Path | None] = ContextVar("streamsrt_local_copies", default=None)


def copy_path(path: Path) -> Path:
    """Returns the place of a copy, relative to the folder of copies."""
    absolute = path.absolute()
    return absolute.relative_to(absolute.anchor)


def found_at(path: Path) -> Path:
    """Returns where a file or a folder is read here: its copy inside of :func:`copies_in`, else the path itself."""
    folder = _folder.get()
    return path if folder is None else folder / copy_path(path)


@contextmanager
def copies_in(folder: Path) -> Iterator[None]:
    """Reads the files that a plan names from their copies in a folder."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)
