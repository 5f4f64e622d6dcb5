"""The input of running tasks: fetched batches on their way from the network's fetcher to the tasks.

1. What is fetched of a partition that no running task reads is dropped.
2. A partition that has more than ``input_buffer_bytes`` is paused until half of it is used up.
3. A position that the log does not hold any more is treated as the partition's reset policy says.
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
from streamsrt.tasks.manager.owned_task import OwnedTask
from streamsrt.tasks.manager.start_positions import StartPositionFinder
from streamsrt.wire.primitives import DecodeError

logger = logging.getLogger(__name__)


def set_positions(owned: OwnedTask, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Lets a task begin at these positions; nothing is fetched yet."""
    for place, position in positions.items():
        owned.inputs[place] = InputBuffer(position.offset)
        owned.task.start_at(*place, position.offset)
        owned.task.restore_partition_time(*place, position.metadata)


class TaskInputs:
    """Which task reads which partition."""

    def __init__(self, network: Network, finder: StartPositionFinder, buffer_bytes: int) -> None:
        self._network = network
        self._finder = finder
        self._buffer_bytes = buffer_bytes
        self._by_place: dict[TopicPartition, OwnedTask] = {}

    def start(self, owned: OwnedTask, places: Iterable[TopicPartition] | None = None) -> None:
        """Fetches for a task that runs from now on; ``places``: these only."""
        wanted = list(owned.inputs if places is None else places)
        self._by_place.update(dict.fromkeys(wanted, owned))
        self._network.fetcher.add_partitions({place: owned.inputs[place].position for place in wanted})

    def stop(self, owned: OwnedTask, places: Iterable[TopicPartition] | None = None) -> None:
        """Fetches no more for a task, and drops what it has not processed; ``places``: of these only."""
        leaving = list(owned.inputs if places is None else places)
        if leaving:
            self._network.fetcher.remove_partitions(leaving)
        for place in leaving:
            self._by_place.pop(place, None)
            owned.inputs.pop(place, None)
            owned.paused.discard(place)

    def take(self, fetched: Fetched) -> None:
        """Takes over what the main fetcher brought. Raises what the broker said where a partition can't be read."""
        place = (fetched.topic, fetched.partition)
        owned = self._by_place.get(place)
        if owned is None:
            return
        if fetched.error is not None:
            self._reset_position(owned, place, fetched)
            return
        buffer = owned.inputs[place]
        buffer.add(fetched)
        owned.task.note_high_watermark(*place, fetched.readable_end)
        if buffer.buffered_bytes > self._buffer_bytes and place not in owned.paused:
            owned.paused.add(place)
            self._network.fetcher.pause([place])

    def _reset_position(self, owned: OwnedTask, place: TopicPartition, fetched: Fetched) -> None:
        error = fetched.error
        if not isinstance(error, OffsetOutOfRangeError):
            assert error is not None
            raise error
        policy = EARLIEST if self._finder.reset_policy(place) == "earliest" else LATEST
        found = self._finder.list_offsets([place], policy)
        if place not in found:
            raise error
        logger.warning("task %s: %s It goes on at offset %d, as auto.offset.reset says", owned, error, found[place])
        owned.inputs[place].jump(fetched, found[place])
        owned.paused.discard(place)
        self._network.fetcher.add_partitions(found)

    def refill(self, owned: OwnedTask) -> None:
        """Gives the task a batch of each partition of which it has none. Raises DeserializationError."""
        task = owned.task
        for place, buffer in owned.inputs.items():
            while task.buffered_of(*place) == 0:
                try:
                    columns = buffer.next_columns()
                except DecodeError as error:
                    raise unreadable_batch(place, buffer.position, error) from error
                if columns is None:
                    break
                task.add_batch(*place, columns)
            if place in owned.paused and buffer.buffered_bytes <= self._buffer_bytes // 2:
                owned.paused.discard(place)
                self._network.fetcher.resume([place])
