"""Compaction in the background.

1. One log at a time, the dirtiest first; the event loop gets its turn after every few thousand records.
2. A log whose records can't be read is left alone until the broker starts again; after any other failure the log is
   tried again in the next round. Neither stops the compaction of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from weakref import WeakSet

from coordinator.log import LogClosedError, LogError, PartitionLog
from streamsrt.wire.primitives import DecodeError

logger = logging.getLogger("coordinator.broker")


class LogCleaner:
    """``logs`` gives those that are to be compacted now."""

    def __init__(self, logs: Callable[[], Iterable[PartitionLog]], now_ms: Callable[[], int]) -> None:
        self._logs = logs
        self._now_ms = now_ms
        self._unreadable: WeakSet[PartitionLog] = WeakSet()

    async def clean(self, map_bytes_max: int) -> int:
        """Compacts every log that is worth it now; how many there were."""
        found = self._worth_it()
        for log in found:
            try:
                await self._compact(log, map_bytes_max)
            except LogClosedError:
                continue
            except DecodeError as error:
                self._unreadable.add(log)
                logger.error(
                    "%s is not compacted any more: it holds records that can't be read: %s", log.directory, error
                )
            except (LogError, OSError) as error:
                logger.warning("compaction of %s is put off: %s", log.directory, error)
        return len(found)

    def _worth_it(self) -> list[PartitionLog]:
        now_ms = self._now_ms()
        found = []
        for log in self._logs():
            if log.segment_count > 1 and not log.is_closed and log not in self._unreadable:
                state = log.assess_compaction(now_ms)
                if state.is_worth_it(log.config):
                    found.append((state.dirty_ratio, log))
        found.sort(key=lambda pair: -pair[0])
        return [log for _, log in found]

    async def _compact(self, log: PartitionLog, map_bytes_max: int) -> None:
        for step in log.compact(self._now_ms(), map_bytes_max=map_bytes_max):
            if step is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wrap_future(step)
