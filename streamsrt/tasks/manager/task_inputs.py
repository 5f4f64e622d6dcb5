"""The input of running tasks: fetched batches on their way from the network's fetcher to the tasks.

1. Fetched data of a partition that no running task reads is dropped.
2. A partition with more than ``input_buffer_bytes``, or its share of ``all_input_bytes`` where that is less, is paused until
   half of it is processed. What fetches of a few records take beside those counts, too. Partitions without input have no
   share: the others need not be fetched in small pieces.
3. A task with several partitions begins when the broker has answered for each of them: what has old timestamps comes first.
4. If the log no longer has a position, the partition's reset policy applies.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from streamsrt.client.interface import Network
from streamsrt.client.unreadable import unreadable_batch
from streamsrt.client.values import (
    EARLIEST,
    LATEST,
    Fetched,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    TopicPartition,
)
from streamsrt.tasks.input.input_buffer import InputBuffer
from streamsrt.tasks.manager.awake_tasks import AwakeTasks
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.start_positions import StartPositionFinder
from streamsrt.wire.primitives import DecodeError

logger = logging.getLogger(__name__)

_SMALLEST_SHARE_BYTES = 32 * 1024


def set_positions(owned: OwnedTask, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Sets the positions at which a task starts; nothing is fetched yet."""
    for tp, position in positions.items():
        owned.inputs[tp] = InputBuffer(position.offset, lazily=owned.task.only_counts(tp[0]))
        owned.task.start_at(*tp, position.offset)
        owned.task.restore_partition_time(*tp, position.metadata)


class TaskInputs:
    """The tasks by the partition that they read. ``buffer_bytes``: of a partition; ``all_bytes``: of all together."""

    def __init__(
        self, network: Network, finder: StartPositionFinder, awake: AwakeTasks, buffer_bytes: int, all_bytes: int
    ) -> None:
        self._network = network
        self._finder = finder
        self._awake = awake
        self._buffer_bytes = buffer_bytes
        self._all_bytes = all_bytes
        self._by_partition: dict[TopicPartition, OwnedTask] = {}
        self._filled: set[TopicPartition] = set()
        """The partitions that have a share."""

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
            self._filled.discard(tp)
            owned.inputs.pop(tp, None)
            owned.paused.discard(tp)
            if partitions is not None:
                # The others don't wait for it any more.
                owned.task.note_high_watermark(*tp, 0, 0)

    def _limit_bytes(self) -> int:
        """What a partition may have."""
        share_bytes = max(_SMALLEST_SHARE_BYTES, self._all_bytes // max(1, len(self._filled)))
        return min(self._buffer_bytes, share_bytes)

    def take(self, fetched: Fetched) -> None:
        """Handles data of the main fetcher. Raises the broker's error if a partition can't be read."""
        tp = (fetched.topic, fetched.partition)
        owned = self._by_partition.get(tp)
        if owned is None:
            return
        self._awake.wake(owned)
        if fetched.error is not None:
            self._reset_position(owned, tp, fetched)
            return
        if not fetched.buffer:
            owned.inputs[tp].high_watermark = fetched.readable_end
            owned.task.note_high_watermark(*tp, fetched.readable_end, fetched.next_offset)
            return
        buffer = owned.inputs[tp]
        buffer.add(fetched)
        self._filled.add(tp)
        owned.task.note_high_watermark(*tp, fetched.readable_end)
        if buffer.held_bytes > self._limit_bytes() and tp not in owned.paused:
            owned.paused.add(tp)
            self._network.fetcher.pause([tp])

    def _reset_position(self, owned: OwnedTask, tp: TopicPartition, fetched: Fetched) -> None:
        error = fetched.error
        if not isinstance(error, OffsetOutOfRangeError):
            assert error is not None
            raise error
        policy = EARLIEST if error.is_new_topic or self._finder.reset_policy(tp) == "earliest" else LATEST
        found = self._finder.list_offsets([tp], policy)
        if tp not in found:
            raise error
        why = "the start of the new topic" if error.is_new_topic else "by auto.offset.reset"
        logger.warning("task %s: %s It continues at offset %d, %s", owned, error, found[tp], why)
        owned.inputs[tp].jump(fetched, found[tp])
        owned.paused.discard(tp)
        self._network.fetcher.add_partitions(found, reports_empty=True)

    def refill(self, owned: OwnedTask) -> None:
        """Gives the task a batch of each partition for which it has none. Raises DeserializationError."""
        task = owned.task
        for tp, buffer in owned.inputs.items():
            while task.buffered_of(*tp) == 0:
                try:
                    columns = buffer.next_columns()
                except DecodeError as error:
                    raise unreadable_batch(tp, buffer.position, error) from error
                if columns is None:
                    self._filled.discard(tp)
                    break
                task.add_batch(*tp, columns)
            if tp in owned.paused and buffer.held_bytes <= self._limit_bytes() // 2:
                owned.paused.discard(tp)
                self._network.fetcher.resume([tp])
