"""Compaction in the background.

1. One log at a time, the dirtiest first; its records are read beside the event loop, a few thousand at a time.
2. A batch that can't be read is kept, and logged once. If not even its header can be read, what follows is unknown: the
   log is not compacted until the broker is restarted, nor after an unexpected exception. After a failure of the disk the log
   is tried again in the next round. None of it stops the compaction of other logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from weakref import WeakKeyDictionary, WeakSet

from coordinator.log import LogClosedError, LogError, PartitionLog
from streamsrt.wire.primitives import DecodeError

logger = logging.getLogger("coordinator.broker")


class LogCleaner:
    """Compacts logs. ``logs`` returns those to be compacted now; ``readers`` reads their records."""

    def __init__(
        self, logs: Callable[[], Iterable[PartitionLog]], now_ms: Callable[[], int], readers: Executor
    ) -> None:
        self._logs = logs
        self._now_ms = now_ms
        self._readers = readers
        self._unreadable_batches: WeakKeyDictionary[PartitionLog, frozenset[int]] = WeakKeyDictionary()
        self._unreadable: WeakSet[PartitionLog] = WeakSet()

    @property
    def unreadable_batches(self) -> int:
        """Returns the number of unreadable batches, which were kept."""
        return sum(map(len, self._unreadable_batches.values()))

    @property
    def uncleanable_logs(self) -> int:
        """Returns the number of logs that are not compacted any more."""
        return len(self._unreadable)

    async def clean(self, map_bytes_max: int) -> int:
        """Compacts every log that needs it now; returns their number."""
        found = self._worth_it()
        for log in found:
            try:
                await self._compact(log, map_bytes_max)
            except LogClosedError:
                continue
            except DecodeError as error:
                self._unreadable.add(log)
                logger.error("%s is no longer compacted: it has records that can't be read: %s", log.directory, error)
            except (LogError, OSError) as error:
                logger.warning("compaction of %s is postponed: %s", log.directory, error)
            except Exception as error:  # noqa: BLE001  # logged there
                self._give_up(log, error)
        return len(found)

    def _worth_it(self) -> list[PartitionLog]:
        now_ms = self._now_ms()
        found = []
        for log in self._logs():
            if log.segment_count > 1 and not log.is_closed and log not in self._unreadable:
                try:
                    state = log.assess_compaction(now_ms)
                except Exception as error:  # noqa: BLE001  # logged there
                    self._give_up(log, error)
                    continue
                if state.is_worth_it(log.config):
                    found.append((state.dirty_ratio, log))
        found.sort(key=lambda pair: -pair[0])
        return [log for _, log in found]

    def _give_up(self, log: PartitionLog, error: Exception) -> None:
        self._unreadable.add(log)
        logger.error(
            "%s is no longer compacted until the broker is restarted, and grows: please report this",
            log.directory,
            exc_info=error,
        )

    async def _compact(self, log: PartitionLog, map_bytes_max: int) -> None:
        steps = log.compact(self._now_ms(), map_bytes_max=map_bytes_max, run=self._readers.submit)
        while True:
            try:
                step = next(steps)
            except StopIteration as done:
                self._note_unreadable(log, done.value)
                return
            if step is not None:
                await asyncio.wrap_future(step)

    def _note_unreadable(self, log: PartitionLog, reasons: Mapping[int, str]) -> None:
        known = self._unreadable_batches.get(log, frozenset())
        for offset in sorted(reasons.keys() - known):
            logger.error(
                "%s: the batch at offset %d can't be read and stays as it is, whatever its keys: %s. Consumers stop "
                "at it; if its records are not needed, use kafka-delete-records to move the start of the partition "
                "beyond it",
                log.directory,
                offset,
                reasons[offset],
            )
        if reasons or known:
            self._unreadable_batches[log] = frozenset(reasons)
