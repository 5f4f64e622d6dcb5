"""Decides what is committed when the processing thread ends with an error, and what a stop without a last commit means. The
table: :mod:`streamsrt.tasks.error_policy`."""

from __future__ import annotations

from typing import Self

from streamsrt.errors import BrokerError, RecordError, StreamsError
from streamsrt.tasks.error_policy import ErrorAction, action_for

REPEATED = "is processed again, by other instances or at the next start"


class NotCommittedError(BrokerError):
    """The instance was stopped and its last commit failed. Nothing is lost: what it processed since the commit before is
    processed again, by other instances or at the next start. With at least once, results may be written twice."""

    def __init__(self, why: str) -> None:
        self._why = why
        why = why if why.endswith(".") else f"{why}."
        super().__init__(f"stopped without a last commit: {why} What was processed since the commit before {REPEATED}")

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._why,)


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
