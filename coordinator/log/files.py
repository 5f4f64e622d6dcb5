"""Writing small files so that a crash leaves the old or the new content, and making directories durable.

Two kinds of small files stand beside the segments:

- *state* (format version, clean-shutdown marker, checkpoint): replaced by write, fsync, rename, fsync of the directory;
- *hints* (index, producer snapshot): derived from the segments and checked by their own CRC when read, so they are
  written without fsync, and failing to write one is not an error.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)


def sync_directory(directory: Path) -> None:
    """Makes the entries of ``directory`` durable: created, renamed and removed files."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Lets an error of the disk name the file: writing to an open one does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def with_suffix(directory: Path, *suffixes: str) -> list[Path]:
    """The files of ``directory`` whose names end with one of these, by name. One look at the disk, and no more."""
    return [directory / name for name in sorted(os.listdir(directory)) if name.endswith(suffixes)]


def replace_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replaces ``path`` by ``content``, whole or not at all: for a killed process, with ``durable`` for a power loss."""
    temporary = path.with_name(path.name + ".new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with naming(path):
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    if durable:
        sync_directory(path.parent)


def write_hint(path: Path, parts: Sequence[bytes]) -> None:
    """Writes a file that can be rebuilt. Without space there is none, and no error."""
    try:
        replace_file(path, b"".join(parts), durable=False)
    except OSError as error:
        logger.warning("%s was not written (%s): it will be rebuilt from the log when needed", path, error.strerror)
        with contextlib.suppress(OSError):
            path.with_name(path.name + ".new").unlink()
