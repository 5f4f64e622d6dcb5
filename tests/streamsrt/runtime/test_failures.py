"""What is done about each class of error, and that the thread does what the table says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamsrt.client.values import DeliveryTimeoutError, ProducerFencedError, TransactionLostError
from streamsrt.errors import (
    BrokerUnreachableError,
    MissingTopicError,
    ProcessingError,
    ProductionError,
    StateDirectoryLockedError,
    StateError,
    StoreCorruptedError,
    StreamsError,
)
from streamsrt.membership.values import Tasks
from streamsrt.runtime.failures import commits_at_the_end
from streamsrt.tasks.error_policy import ErrorAction, action_for
from streamsrt.tasks.manager.owned_task import OwnedTask
from tests.streamsrt.rig import Rig, number

CASES = [
    (DeliveryTimeoutError("late"), ErrorAction.START_OVER),
    (TransactionLostError("lost"), ErrorAction.START_OVER),
    (ProducerFencedError("fenced"), ErrorAction.START_OVER),
    (StoreCorruptedError("torn"), ErrorAction.RESTORE),
    (StateError("full"), ErrorAction.END_UNDONE),
    (StateDirectoryLockedError("held"), ErrorAction.END_UNDONE),
    (ProcessingError("raised", "in", 0, 1), ErrorAction.END_BEFORE_RECORD),
    (ProductionError("refused"), ErrorAction.END_BEFORE_RECORD),
    (BrokerUnreachableError("away"), ErrorAction.END_COMMITTED),
    (MissingTopicError("gone"), ErrorAction.END_COMMITTED),
]


@pytest.mark.parametrize(("error", "action"), CASES, ids=lambda each: getattr(each, "name", type(each).__name__))
def test_the_thread_does_what_the_table_says(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: StreamsError, action: ErrorAction
) -> None:
    assert action_for(error) is action
    rig.network.write(("in", 0), [(b"a", number(1))])
    rig.give(Tasks(active=rig.tasks(0)))
    rig.iterate(4)
    opened = rig.manager.opened
    commit = rig.committer.commit
    failures = [error]

    def fail_once(tasks: Sequence[OwnedTask], member_id: str, member_epoch: int) -> None:
        if failures:
            if isinstance(error, StoreCorruptedError):
                error.path = str(tasks[0].stores["counts"].path)
            raise failures.pop()
        commit(list(tasks), member_id, member_epoch)

    monkeypatch.setattr(rig.committer, "commit", fail_once)
    if action in (ErrorAction.START_OVER, ErrorAction.RESTORE):
        rig.thread._commit_all()
        assert rig.manager.opened == opened + 1
        assert ("in", 0) not in rig.network.admin.offsets
        return
    with pytest.raises(type(error)):
        rig.thread._commit_all()
    rig.thread._end_after_failure(error)
    is_committed = ("in", 0) in rig.network.admin.offsets
    assert is_committed == commits_at_the_end(error, is_atomic=False)
    assert is_committed == (action is ErrorAction.END_COMMITTED or isinstance(error, ProcessingError))
