"""The input of running tasks: fetched batches on their way from the network's fetcher to the tasks.

1. Fetched data of a partition that no running task reads is dropped.
2. A partition with more than ``input_buffer_bytes``, or its share of ``all_input_bytes`` where that is less, is paused until
   half of it is processed. What fetches of a few records take beside those counts, too. Partitions without input have no
   share: the others need not be fetched in small pieces. While all have ``all_input_bytes`` together, a share is small.
3. A task with several partitions begins when the broker has answered for each of them: what has old timestamps comes first.
4. If the log no longer has a position, the partition's reset policy applies. While the cluster does not answer, where that
   is is asked again, at most for ``task.timeout.ms``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamsrt.client.interface import Network
from streamsrt.client.unreadable import unreadable_batch
from streamsrt.client.values import (
    EARLIEST,
    Fetched,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    TopicPartition,
)
from streamsrt.errors import BrokerError
from streamsrt.tasks.input.input_buffer import InputBuffer
from streamsrt.tasks.manager.awake_tasks import AwakeTasks
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.start_positions import StartPositionFinder
from streamsrt.wire.primitives import DecodeError

logger = logging.getLogger(__name__)

_SMALLEST_SHARE_BYTES = 32 * 1024
_RETRY_MS = 500


class _Lost(NamedTuple):
    """A position that the log no longer has, as the fetcher said, and since when another one is looked for."""

    fetched: Fetched
    error: OffsetOutOfRangeError
    since_ms: int


def set_positions(owned: OwnedTask, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Sets the positions at which a task starts; nothing is fetched yet."""
    for tp, position in positions.items():
        owned.inputs[tp] = InputBuffer(position.offset, lazily=owned.task.only_counts(tp[0]))
        owned.task.start_at(*tp, position.offset)
        owned.task.restore_partition_time(*tp, position.metadata)


class TaskInputs:
    """The tasks by the partition that they read. ``buffer_bytes``: of a partition; ``all_bytes``: of all together."""

    def __init__(
        self,
        network: Network,
        finder: StartPositionFinder,
        awake: AwakeTasks,
        *,
        buffer_bytes: int,
        all_bytes: int,
        timeout_ms: int,
    ) -> None:
        self._network = network
        self._finder = finder
        self._awake = awake
        self._buffer_bytes = buffer_bytes
        self._all_bytes = all_bytes
        self._timeout_ms = timeout_ms
        self._by_partition: dict[TopicPartition, OwnedTask] = {}
        self._lost: dict[TopicPartition, _Lost] = {}
        self._retry_at_ms = 0
        self._held: dict[TopicPartition, int] = {}
        """What partitions with input have, in bytes."""
        self._held_bytes = 0
        """All of it."""

    def start(self, owned: OwnedTask, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Starts fetching for a running task; ``partitions``: only these."""
        wanted = list(owned.inputs if partitions is None else partitions)
        self._by_partition.update(dict.fromkeys(wanted, owned))
        self._awake.wake(owned)
        if len(owned.inputs) > 1:
            owned.task.wait_for(wanted)
        # The lag of an empty partition is known by that response, too.
        self._network.fetcher.add_partitions({tp: owned.inputs[tp].position for tp in wanted}, reports_empty=True)

    def stop(self, owned: OwnedTask, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Stops fetching for a task, and drops its unprocessed input; ``partitions``: only of these."""
        leaving = list(owned.inputs if partitions is None else partitions)
        if leaving:
            self._network.fetcher.remove_partitions(leaving)
            self._awake.wake(owned)
        for tp in leaving:
            self._by_partition.pop(tp, None)
            self._lost.pop(tp, None)
            self._note(tp, 0)
            owned.inputs.pop(tp, None)
            owned.paused.discard(tp)
            if partitions is not None:
                # The others don't wait for it any more.
                owned.task.note_high_watermark(*tp, 0, 0)

    def _note(self, tp: TopicPartition, held_bytes: int) -> None:
        """Notes what a partition has now."""
        self._held_bytes += held_bytes - self._held.pop(tp, 0)
        if held_bytes:
            self._held[tp] = held_bytes

    def _limit_bytes(self) -> int:
        """What a partition may have."""
        # Those that came first may have had more than their share is now.
        is_full = self._held_bytes >= self._all_bytes
        share_bytes = _SMALLEST_SHARE_BYTES if is_full else self._all_bytes // max(1, len(self._held))
        return min(self._buffer_bytes, max(_SMALLEST_SHARE_BYTES, share_bytes))

    def take(self, fetched: Fetched, now_ms: int) -> None:
        """Handles data of the main fetcher. Raises the broker's error if a partition can't be read."""
        tp = (fetched.topic, fetched.partition)
        owned = self._by_partition.get(tp)
        if owned is None:
            return
        self._awake.wake(owned)
        if fetched.error is not None:
            if not isinstance(fetched.error, OffsetOutOfRangeError):
                raise fetched.error
            self._lost[tp] = _Lost(fetched, fetched.error, now_ms)
            self.find_lost(now_ms)
            return
        if not fetched.buffer:
            owned.inputs[tp].high_watermark = fetched.readable_end
            owned.task.note_high_watermark(*tp, fetched.readable_end, fetched.next_offset)
            return
        buffer = owned.inputs[tp]
        buffer.add(fetched)
        self._note(tp, buffer.held_bytes)
        owned.task.note_high_watermark(*tp, fetched.readable_end)
        if buffer.held_bytes > self._limit_bytes() and tp not in owned.paused:
            owned.paused.add(tp)
            self._network.fetcher.pause([tp])

    def find_lost(self, now_ms: int) -> None:
        """Goes on elsewhere where the log no longer has a position. Raises what the cluster says when the time is up."""
        if not self._lost or now_ms < self._retry_at_ms:
            return
        for tp, lost in list(self._lost.items()):
            try:
                found, why = self._reset_position(tp, lost.error, now_ms)
            except BrokerError as error:
                if now_ms - lost.since_ms >= self._timeout_ms:
                    raise
                logger.warning("%s Where to go on is not known yet, trying again: %s", lost.error, error)
                self._retry_at_ms = now_ms + _RETRY_MS
                return
            if tp not in found:
                raise lost.error
            del self._lost[tp]
            owned = self._by_partition[tp]
            logger.warning("task %s: %s It continues at offset %d, %s", owned, lost.error, found[tp], why)
            owned.inputs[tp].jump(lost.fetched, found[tp])
            owned.paused.discard(tp)
            self._awake.wake(owned)
            self._network.fetcher.add_partitions(found, reports_empty=True)

    def _reset_position(
        self, tp: TopicPartition, error: OffsetOutOfRangeError, now_ms: int
    ) -> tuple[Mapping[TopicPartition, int], str]:
        """Returns where it goes on, and why. Raises BrokerError, and UserError if it is not to."""
        if error.is_new_topic:
            return self._finder.list_offsets([tp], EARLIEST), "the start of the new topic"
        why = "by its reset policy" if error.diverged_at is None else "where the records of its log are new"
        return self._finder.after_loss(tp, error, now_ms), why

    def refill(self, owned: OwnedTask) -> None:
        """Gives the task a batch of each partition for which it has none. Raises DeserializationError."""
        task = owned.task
        for tp, buffer in owned.inputs.items():
            while task.buffered_of(*tp) == 0:
                try:
                    columns = buffer.next_columns()
                except DecodeError as error:
                    raise unreadable_batch(tp, buffer.position, error) from error
                self._note(tp, buffer.held_bytes)
                if columns is None:
                    break
                task.add_batch(*tp, columns)
            if tp in owned.paused and buffer.held_bytes <= self._limit_bytes() // 2:
                owned.paused.discard(tp)
                self._network.fetcher.resume([tp])
