"""Producer ids: given out once, never again, across restarts.

Ids are reserved in blocks that are written to an internal log before the first id of a block is given out; a restart
goes on with the next block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from coordinator.log import Fsync, LogConfig, LogDirectory, PartitionLog
from streamsrt.wire.records import decode_batches, encode_batch

LOG_NAME = "__producer_ids"
BLOCK_SIZE = 1000
_NEXT_BLOCK = struct.Struct(">q")
_READ_BYTES = 1 << 20


class ProducerIds:
    """The source of producer ids."""

    def __init__(self, directory: LogDirectory, *, fsync: Fsync, sync: Callable[[PartitionLog], None]) -> None:
        self._log = directory.partition(LOG_NAME, 0, LogConfig(retention_ms=-1, fsync=fsync))
        self._sync = sync
        self._next = 0
        self._block_end = 0

    def load(self) -> None:
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            result = self._log.read(offset, _READ_BYTES)
            for columns in decode_batches(b"".join(result.buffers), from_offset=offset):
                for value in columns.values:
                    self._next = self._block_end = _NEXT_BLOCK.unpack(value or b"\0" * 8)[0]
            offset = result.next_offset

    def allocate(self) -> int:
        """The next producer id. Raises the log's errors where a block can't be reserved."""
        if self._next == self._block_end:
            end = self._block_end + BLOCK_SIZE
            self._log.append(encode_batch([None], [_NEXT_BLOCK.pack(end)], [-1]), now_ms=0)
            self._sync(self._log)
            self._block_end = end
        self._next += 1
        return self._next - 1
