"""A disk on which a backfill can't write its own files: never an error of a record, which a handler might skip."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from streamsrt.errors import StateError
from streamsrt.state.failures import is_full

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ResultsNotWrittenError(StateError):
    """Files of a backfill can't be written, in most cases because the disk is full. Free space, then run ``streamsrt
    backfill resume``: finished tasks are kept."""


RESUME = "streamsrt backfill resume; finished tasks are kept"


def not_written(folder: Path, cause: object, then: str = RESUME) -> ResultsNotWrittenError:
    """The error for files of a backfill in that folder that can't be written. ``then``: what to do when they can."""
    why = "the disk is full. Free space there" if is_full(str(cause)) else "correct that"
    return ResultsNotWrittenError(f"files of the backfill in {folder} can't be written: {why}, then {then}. ({cause})")


@contextlib.contextmanager
def full_disk_said(folder: Path, *, stores: bool = False, then: str = RESUME) -> Iterator[None]:
    """Raises ResultsNotWrittenError where a file can't be written because its disk is full. ``stores``: also one of a store,
    which is in that folder. ``then``: what to do when there is space."""
    try:
        yield
    except ResultsNotWrittenError:
        raise
    except StateError as error:
        if stores and is_full(str(error)):
            raise not_written(folder, error, then) from error
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise not_written(folder, error, then) from error
        raise
