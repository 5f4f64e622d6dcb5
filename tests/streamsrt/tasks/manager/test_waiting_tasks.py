"""Tasks that wait for another process to close their stores."""

from __future__ import annotations

import pytest

from streamsrt.errors import StateDirectoryLockedError
from streamsrt.tasks.manager.waiting_tasks import WaitingTasks

FIRST, SECOND = ("sub", 0), ("sub", 1)


def test_each_task_has_the_whole_time_out_each_time() -> None:
    waiting = WaitingTasks(timeout_ms=1_000)
    waiting.add(FIRST, "active", StateDirectoryLockedError("first"))
    assert list(waiting.due(0)) == [(FIRST, "active")]
    waiting.add(SECOND, "standby", StateDirectoryLockedError("second"))
    assert list(waiting.due(900)) == [(FIRST, "active"), (SECOND, "standby")]
    waiting.opened(FIRST)
    assert list(waiting.due(1_500)) == [(SECOND, "standby")]
    # It has to be opened again, long after, without another assignment.
    waiting.add(FIRST, "active", StateDirectoryLockedError("first"))
    assert list(waiting.due(1_800)) == [(FIRST, "active"), (SECOND, "standby")]
    with pytest.raises(StateDirectoryLockedError, match="second"):
        list(waiting.due(1_900))
    waiting.opened(SECOND)
    with pytest.raises(StateDirectoryLockedError, match="first"):
        list(waiting.due(2_800))
