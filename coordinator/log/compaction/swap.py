"""Replacing segments by the cleaned file that was made of them.

Rules
1. A cleaned file that is completely on disk is renamed to a swap file, whose name has the offsets that it replaces.
   From that moment, once the directory is synced, the file replaces the segments in that range: a start after a crash
   finishes the replacement.
2. A crash before that moment leaves the segments as they were.
3. The first of the segments is replaced by the swap file in one rename and never removed before. If it does not exist,
   retention has removed it and the swap file is void: the others are complete without it.
"""

from __future__ import annotations

import os
from pathlib import Path

from coordinator.log.files import sync_directory
from coordinator.log.segment import INDEX_SUFFIX, LOG_SUFFIX, file_name

SWAP_SUFFIX = ".swap"


def swap_path(directory: Path, base_offset: int, end_offset: int) -> Path:
    """The swap file for the segments from ``base_offset`` up to ``end_offset``."""
    return directory / f"{base_offset:020d}.{end_offset:020d}{SWAP_SUFFIX}"


def finish_swaps(directory: Path) -> None:
    """Finishes the swaps that a killed process did not complete."""
    for path in sorted(directory.glob("*" + SWAP_SUFFIX)):
        base_offset, end_offset = (int(part) for part in path.stem.split("."))
        target = directory / file_name(base_offset, LOG_SUFFIX)
        if not target.exists():
            path.unlink()
            continue
        for log in directory.glob("*" + LOG_SUFFIX):
            if base_offset < int(log.stem) < end_offset:
                log.unlink()
                log.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
        target.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
        os.replace(path, target)
        sync_directory(directory)


def discard_swaps(directory: Path) -> None:
    """Removes the files of swaps that were not begun in the log itself."""
    for path in directory.glob("*" + SWAP_SUFFIX):
        path.unlink()
