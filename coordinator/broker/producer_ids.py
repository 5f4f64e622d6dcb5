"""Producer ids: each is given out only once, also across restarts.

Ids are reserved in blocks that are written to an internal log before the first id of a block is given out; a restart
continues with the next block.
"""

from __future__ import annotations

import struct

from coordinator.broker.keyed_log import KeyedLog
from coordinator.broker.topics import PRODUCER_IDS_LOG
from coordinator.log import Fsync, LogDirectory, PartitionLog

BLOCK_SIZE = 1000
_NEXT_BLOCK = struct.Struct(">q")
_KEY = "next_block"


class ProducerIds:
    """Assigns producer ids."""

    def __init__(self, directory: LogDirectory, *, fsync: Fsync) -> None:
        self._rows = KeyedLog(directory, PRODUCER_IDS_LOG, fsync=fsync)
        self._next = 0
        self._block_end = 0

    @property
    def log(self) -> PartitionLog:
        return self._rows.log

    def load(self) -> None:
        value = self._rows.load().get(_KEY)
        if value is not None:
            self._next = self._block_end = _NEXT_BLOCK.unpack(value)[0]

    def allocate(self) -> int:
        """Returns the next producer id. Raises the log's errors if a block can't be reserved."""
        if self._next == self._block_end:
            end = self._block_end + BLOCK_SIZE
            self._rows.put(_KEY, _NEXT_BLOCK.pack(end))
            self._block_end = end
        self._next += 1
        return self._next - 1
