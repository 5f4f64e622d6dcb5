"""Commits exactly once (KIP-447): results, changelogs and input offsets in one transaction.

1. A transaction belongs to the thread, not to a task: every commit includes all running tasks. What a task writes
   between two commits is either committed with its input, or aborted with it.
2. The order at a commit: caches are flushed, everything is sent, offsets are added to the transaction, the coordinator
   decides, and only then the stores are written. So a store never contains uncommitted data, and none has to be wiped
   after a crash: a store can only be behind its changelog, and restoring reads committed records.
3. Offsets carry the member epoch. If it has changed, the commit waits for the new one; a member that the group does not
   know any more can't commit, however late its requests arrive.
4. After any failure, the transaction is aborted and the tasks restart from the last commit. They start after the
   transactional id was initialized: by then, everything that an earlier producer with this id sent is decided. A failed
   transaction is never replaced while tasks run that have work in it.
5. A record that fails aborts the whole open transaction: its effects can't be separated from those of the records
   before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, nullcontext

from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.interface import GroupMember, Producing, Transacting
from streamsrt.client.values import (
    OffsetAndMetadata,
    StaleMemberEpochError,
    TopicPartition,
    TransactionLostError,
    UnknownMemberError,
)
from streamsrt.runtime.commit import check_all, prepare_all, write_all
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.output.record_collector import RecordCollector

logger = logging.getLogger(__name__)

INITIALIZE_TIMEOUT_S = 5.0
_RETRY_BACKOFF_MS = 500
_EPOCH_POLL_S = 0.02
_EPOCH_ATTEMPTS = 250


def transactional_sink(producer: Producing) -> Callable[[str, int, bytes, int], None]:
    """Returns the function with which an exactly-once application's collector sends its batches.

    A batch of a transaction that is lost already is dropped: the next iteration or commit says so, and the tasks start over.
    """

    def send(topic: str, partition: int, batch: bytes, record_count: int) -> None:
        try:
            producer.send(topic, partition, batch, record_count)
        except TransactionLostError as error:
            logger.debug("dropped, since the transaction is lost: %s", error)

    return send


class ExactlyOnceCommitter:
    """Commits all tasks of a thread in transactions. Belongs to the processing thread. ``idle`` is entered while it waits
    for the cluster: other threads may read the tasks' stores then."""

    is_atomic = True
    is_pending = False
    is_stale = False

    def __init__(
        self,
        group_id: str,
        transactions: Transacting,
        collector: RecordCollector,
        member: GroupMember,
        *,
        timeout_s: float,
        idle: AbstractContextManager[None] | None = None,
        blocking: Blocking = THREADS,
    ) -> None:
        self._blocking = blocking
        self._idle = idle or nullcontext()
        self._group_id = group_id
        self._transactions = transactions
        self._collector = collector
        self._member = member
        self._timeout_s = timeout_s
        self._retry_at_ms = 0
        self._told = ""
        """The last reason why the transactional id can't be initialized: each is logged once."""
        self._may_have_begun = False
        """Whether tasks may have work in the transaction: if it fails, they must restart before there is another one."""
        self.commits = 0
        self.committed_records_end: dict[TopicPartition, int] = {}

    # ---------------------------------------------------------------------------------------------------------- start

    def prepare_start(self, now_ms: int) -> bool:
        """Returns whether tasks may start: the transactional id belongs to this thread, and no earlier transaction of it
        is pending.

        Raises what made the transaction fail since tasks could start: without it, they would go on in a new one, and their
        offsets would be committed without what was lost.
        """
        if self._may_have_begun:
            self._transactions.check_ready()
        elif not self._transactions.is_ready:
            if now_ms < self._retry_at_ms:
                return False
            self._retry_at_ms = now_ms + _RETRY_BACKOFF_MS
            if not self._initialize():
                return False
        self._may_have_begun = True
        return True

    def _initialize(self) -> bool:
        try:
            self._transactions.initialize(INITIALIZE_TIMEOUT_S)
        except TransactionLostError as error:
            if str(error) != self._told:
                logger.warning("the transactional id can't be initialized yet, trying again: %s", error)
            self._told = str(error)
            return False
        self._told = ""
        return True

    # --------------------------------------------------------------------------------------------------------- commit

    def commit(self, tasks: Sequence[OwnedTask], member_id: str, member_epoch: int) -> None:
        """Commits the work of these tasks, which must include all tasks that have done any.

        Raises TransactionLostError, DeliveryTimeoutError: the tasks are to start over. Raises RecordError.
        """
        busy = [owned for owned in tasks if owned.task.commit_needed]
        states = prepare_all(busy, self._idle)
        self._collector.flush()
        if not busy and not self._transactions.is_open:
            return
        offsets = {
            tp: OffsetAndMetadata(offset, metadata)
            for _, state in states
            for tp, (offset, metadata) in state.offsets.items()
        }
        with self._idle:
            ends = self._commit_transaction(offsets)
        write_all(check_all(busy, ends), self._idle)
        self.commits += 1
        self.committed_records_end.update({tp: at.offset for tp, at in offsets.items()})

    def _commit_transaction(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, int]:
        for _ in range(_EPOCH_ATTEMPTS):
            epoch = self._member.member_epoch
            if epoch < 0:
                break
            try:
                return self._transactions.commit(
                    self._group_id,
                    offsets,
                    member_id=self._member.member_id,
                    member_epoch=epoch,
                    timeout_s=self._timeout_s,
                )
            except StaleMemberEpochError as error:
                logger.info("the transaction is postponed until the next member epoch: %s", error)
                self._blocking.pause(_EPOCH_POLL_S)
            except UnknownMemberError as error:
                raise TransactionLostError(f"this member's tasks now belong to others: {error}") from error
        raise TransactionLostError(
            f"the transaction can't be committed: this member of group {self._group_id} has no valid epoch"
        )

    def give_up_after(self, timeout_s: float) -> None:
        """See :meth:`streamsrt.runtime.commit.Committing.give_up_after`."""
        self._transactions.give_up_after(timeout_s)

    def commit_pending(self, member_id: str, member_epoch: int) -> None:
        """Does nothing: offsets are committed with the results or not at all."""

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Does nothing: there are no pending offsets."""

    # ----------------------------------------------------------------------------------------------------------- undo

    def forget(self) -> None:
        """Aborts uncommitted work: the tasks belong to other members, or repeat their work."""
        self._collector.discard()
        self._may_have_begun = False
        if self._transactions.is_open or not self._transactions.is_ready:
            self._initialize()
