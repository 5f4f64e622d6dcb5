"""What is done about each class of error, and that the thread does what the table says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

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
from streamsrt.operators.engine.handlers import ExceptionHandlers
from streamsrt.runtime.failures import commits_at_the_end
from streamsrt.tasks.error_policy import ErrorAction, action_for
from streamsrt.tasks.manager.owned_task import OwnedTask
from tests.streamsrt.in_process_network import InProcessNetwork
from tests.streamsrt.rig import APPLICATION_ID, Rig, number
from topology import StreamsBuilder, Topology, serdes

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


def once_each(text: Callable[[str], str]) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    first = stream.deduplicate(lambda key, value: key, 100, serde=serdes.string, store="seen")
    first.map_values(text).to("out", key=serdes.string, value=serdes.string)
    return builder.build()


def test_a_record_that_fails_behind_a_changed_store_is_written_after_the_next_start(tmp_path: Path) -> None:
    """Neither a commit nor the flush of its dead letter may write that its id came: it would be dropped as a duplicate."""
    network = InProcessNetwork({"in": 1, "out": 1, "dlq": 1, f"{APPLICATION_ID}-seen-changelog": 1})
    network.write(("in", 0), [(b"a", b"x"), (b"b", b"y")])
    handlers = ExceptionHandlers(dead_letter_topic="dlq")
    tasks = Tasks(active=frozenset({(once_each(str).subtopologies[0].id, 0)}))
    rig = Rig(tmp_path, once_each(lambda value: str(int(value))), network, handlers=handlers)
    rig.give(tasks)
    with pytest.raises(ProcessingError, match="in-0 offset 0"):
        rig.thread.run(lambda _: False)
    rig.close()
    assert [key for key, _ in network.read("dlq")] == [b"a"]
    rig = Rig(tmp_path, once_each(str.upper), network)
    rig.give(tasks)
    rig.iterate(8)
    rig.commit()
    rig.close()
    assert network.read("out") == [(b"a", b"X"), (b"b", b"Y")]
