"""Commits at least once.

The order is what makes a crash harmless:

1. Every task flushes its caches: changelog records and outputs go to the producer.
2. The producer is flushed: all of it is acknowledged.
3. The input offsets are committed.
4. Meanwhile the stores are written, each in one batch with the offset of its changelog that it stands for. Those of a task
   with a store that has no changelog are written before.

A crash before 3 has the input since the last commit processed again. A store that was not written by then is behind its
changelog, and restored. Input offsets that could not be committed (the coordinator is away, the member epoch moved on) stay
pending and are committed with the next ones; the tasks continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from streamsrt.client.interface import Network
from streamsrt.client.values import (
    CommitError,
    OffsetAndMetadata,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicPartition,
    UnknownMemberError,
)
from streamsrt.errors import BrokerError
from streamsrt.tasks.manager.lost_changelogs import check_ends
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.task import CommitState

logger = logging.getLogger(__name__)

_COMMIT_TIMEOUT_S = 10.0


class Committing(Protocol):
    """What the processing thread needs from a committer, with either processing guarantee."""

    @property
    def is_atomic(self) -> bool:
        """Whether all running tasks must be committed together."""

    @property
    def is_stale(self) -> bool:
        """Whether the last commit was refused because the member epoch has changed: the same offsets can be committed
        soon."""

    @property
    def is_pending(self) -> bool:
        """Whether uncommitted offsets are pending."""

    @property
    def commits(self) -> int: ...

    @property
    def committed_records_end(self) -> Mapping[TopicPartition, int]: ...

    def prepare_start(self, now_ms: int) -> bool:
        """Returns whether tasks may start now."""

    def commit(self, tasks: Sequence[OwnedTask], member_id: str, member_epoch: int) -> None:
        """Commits the work of these tasks. Raises RecordError. Then it is unknown which of their results were written:
        nothing of them may be committed any more, and they have to be reopened."""

    def give_up_after(self, timeout_s: float) -> None:
        """From now on, a commit that the cluster does not take within that time fails: the application ends. May be called
        by any thread, and by a signal handler."""

    def commit_pending(self, member_id: str, member_epoch: int) -> None:
        """Commits the pending offsets. Offsets that can't be committed now stay pending, or are dropped with the
        membership.
        """

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Drops pending offsets of all other partitions: their new owners start from the group's committed offsets."""

    def forget(self) -> None:
        """Drops unsent output and uncommitted offsets: the tasks belong to other members, or repeat their work."""


class Committer:
    """Commits tasks at least once. Belongs to the processing thread. ``idle`` is entered while it waits for the cluster:
    other threads may read the tasks' stores then."""

    is_atomic = False

    def __init__(
        self,
        group_id: str,
        network: Network,
        collector: RecordCollector,
        *,
        idle: AbstractContextManager[None] | None = None,
    ) -> None:
        self._group_id = group_id
        self._idle = idle or nullcontext()
        self._network = network
        self._collector = collector
        self._pending: dict[TopicPartition, OffsetAndMetadata] = {}
        self.commits = 0
        self.is_stale = False
        """Whether the last commit was refused since the member epoch moves on: the same offsets may be committed soon."""
        self.committed_records_end: dict[TopicPartition, int] = {}

    @property
    def is_pending(self) -> bool:
        """Whether uncommitted offsets are pending."""
        return bool(self._pending)

    def prepare_start(self, now_ms: int) -> bool:
        """Tasks may start at any time."""
        return True

    def commit(self, tasks: Sequence[OwnedTask], member_id: str, member_epoch: int) -> None:
        """See :meth:`Committing.commit`."""
        busy = [owned for owned in tasks if owned.task.commit_needed]
        if busy:
            states = prepare_all(busy, self._idle)
            self._collector.flush()
            with self._idle:
                ends = self._network.producer.flush()
            checked = check_all(busy, ends)
            for _, state in states:
                for tp, (offset, metadata) in state.offsets.items():
                    self._pending[tp] = OffsetAndMetadata(offset, metadata)
            if not all(map(_is_logged, busy)):
                write_all(checked, self._idle)
                checked = []
            end = self._begin(member_id, member_epoch)
            write_all(checked, self._idle)
            end()
        else:
            self.commit_pending(member_id, member_epoch)

    def give_up_after(self, timeout_s: float) -> None:
        """See :meth:`Committing.give_up_after`."""
        self._network.producer.give_up_after(timeout_s)

    def commit_pending(self, member_id: str, member_epoch: int) -> None:
        """See :meth:`Committing.commit_pending`."""
        self._begin(member_id, member_epoch)()

    def _begin(self, member_id: str, member_epoch: int) -> Callable[[], None]:
        """Begins to commit the pending offsets. Returns the function that ends it."""
        # Nor is it later, where offsets were refused and have been dropped with the tasks since.
        self.is_stale = False
        if not self._pending or member_epoch < 0:
            return lambda: None
        offsets = dict(self._pending)
        wait = self._network.admin.begin_commit(
            self._group_id, offsets, member_id=member_id, member_epoch=member_epoch, timeout_s=_COMMIT_TIMEOUT_S
        )
        return lambda: self._end(offsets, wait)

    def _end(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], wait: Callable[[], None]) -> None:
        try:
            with self._idle:
                wait()
        except StaleMemberEpochError:
            self.is_stale = True
            logger.info("the offset commit is postponed until the next member epoch")
        except UnknownMemberError as error:
            logger.warning("offsets can't be committed, the group no longer knows this member: %s", error)
            self._pending.clear()
        except (CommitError, RequestTimedOutError, BrokerError) as error:
            logger.warning("offsets could not be committed, trying again: %s", error)
        else:
            self.commits += 1
            self.committed_records_end.update({tp: offset.offset for tp, offset in offsets.items()})
            self._pending.clear()

    def keep_only(self, partitions: Container[TopicPartition]) -> None:
        """Drops pending offsets of all other partitions: their new owners start from the group's committed offsets."""
        self._pending = {tp: offset for tp, offset in self._pending.items() if tp in partitions}

    def forget(self) -> None:
        """Drops unsent output and uncommitted offsets: the tasks belong to other members, or repeat their work."""
        self._pending.clear()
        self._collector.discard()
        self._network.producer.forget_failure()


def allow_queries(idle: AbstractContextManager[None]) -> None:
    """Releases the lock on tasks and stores and takes it again, so that pending queries are answered."""
    with idle:
        pass


def prepare_all(tasks: Sequence[OwnedTask], idle: AbstractContextManager[None]) -> list[tuple[OwnedTask, CommitState]]:
    """Does the first half of a commit of these tasks. Other threads may read the stores between two tasks."""
    states = []
    for owned in tasks:
        states.append((owned, owned.task.prepare_commit()))
        allow_queries(idle)
    return states


def check_all(tasks: Sequence[OwnedTask], ends: dict[TopicPartition, int]) -> list[tuple[OwnedTask, dict[str, int]]]:
    """Returns the tasks with the ends of their changelogs, by store. ``ends``: of this flush. Raises ChangelogLostError."""
    checked = [(owned, changelog_ends(owned, ends)) for owned in tasks]
    for owned, of_stores in checked:
        check_ends(owned, of_stores)
    return checked


def _is_logged(owned: OwnedTask) -> bool:
    """Whether a changelog has everything that the task's stores have."""
    return all(spec.logging or spec.source_topic is not None for spec in owned.task.subtopology.stores)


def write_all(checked: Sequence[tuple[OwnedTask, dict[str, int]]], idle: AbstractContextManager[None]) -> None:
    """Does the second half. Other threads may read the stores between two tasks."""
    for owned, of_stores in checked:
        owned.task.post_commit(of_stores)
        allow_queries(idle)


def changelog_ends(owned: OwnedTask, ends: dict[TopicPartition, int]) -> dict[str, int]:
    """Returns by store the offset after its last acknowledged changelog record of this flush."""
    found = {}
    for spec in owned.subtopology.stores:
        tp = owned.task.restore_target(spec.name)
        if tp is not None and tp in ends:
            found[spec.name] = ends[tp]
    return found
