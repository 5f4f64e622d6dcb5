"""What is committed when the processing thread ends with an error. The table: :mod:`streamsrt.tasks.treatments`."""

from __future__ import annotations

from streamsrt.errors import RecordError, StreamsError
from streamsrt.tasks.treatments import Treatment, treatment_of


def commits_at_the_end(error: StreamsError, *, is_atomic: bool) -> bool:
    """Whether what was done before is committed when it ends. ``is_atomic``: a failing record undoes its transaction."""
    match treatment_of(error):
        case Treatment.END_COMMITTED:
            return True
        case Treatment.END_UNDONE | Treatment.RESTORE:
            return False
        case _:
            is_before = isinstance(error, RecordError) and error.offset >= 0 and error.is_in_order
            return not isinstance(error, RecordError) or (is_before and not is_atomic)
