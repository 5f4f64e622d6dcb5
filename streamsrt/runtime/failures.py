"""Decides what is committed when the processing thread ends with an error. The table:
:mod:`streamsrt.tasks.error_policy`."""

from __future__ import annotations

from streamsrt.errors import RecordError, StreamsError
from streamsrt.tasks.error_policy import ErrorAction, action_for


def commits_at_the_end(error: StreamsError, *, is_atomic: bool) -> bool:
    """Whether earlier work is committed when the thread ends. ``is_atomic``: a failing record aborts its transaction."""
    if not error.is_in_order:
        return False
    match action_for(error):
        case ErrorAction.END_COMMITTED:
            return True
        case ErrorAction.END_UNDONE | ErrorAction.RESTORE:
            return False
        case _:
            is_before = isinstance(error, RecordError) and error.offset >= 0
            return not isinstance(error, RecordError) or (is_before and not is_atomic)
