"""A small durable map: the broker's own facts, as records of an internal log.

The map is the replay of the log, the last record of a key wins, a tombstone removes it; so the log may be compacted. A
change is appended before it is visible, so that a failed append changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.log import Fsync, LogConfig, LogDirectory, PartitionLog
from coordinator.log.errors import NewerLogError, UnreadableLogError
from streamsrt.wire.primitives import DecodeError, NewerRecordError
from streamsrt.wire.records import decode_batches, encode_batch

_READ_BYTES = 1 << 20
_SEGMENT_BYTES = 4 << 20


@contextmanager
def loading(log: PartitionLog) -> Iterator[None]:
    """Raises UnreadableLogError or NewerLogError with the log's name if records can't be decoded."""
    try:
        yield
    except NewerRecordError as error:
        raise NewerLogError(log.directory, str(error)) from error
    except DecodeError as error:
        raise UnreadableLogError(log.directory, str(error)) from error


class KeyedLog:
    """Keys and values of one internal log."""

    def __init__(self, directory: LogDirectory, name: str, *, fsync: Fsync) -> None:
        config = LogConfig(
            retention_ms=-1, fsync=fsync, segment_bytes=_SEGMENT_BYTES, cleanup_policy=frozenset({"compact"})
        )
        self._log = directory.partition(name, 0, config)
        self.removed: set[str] = set()
        """Keys that were removed in the end, as of :meth:`load`."""

    @property
    def log(self) -> PartitionLog:
        return self._log

    def load(self) -> dict[str, bytes]:
        """Returns the present contents, in the order in which the keys were first written. Raises the log's errors."""
        with loading(self._log):
            return self._replayed()

    def _replayed(self) -> dict[str, bytes]:
        rows: dict[str, bytes] = {}
        self.removed.clear()
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            result = self._log.read(offset, _READ_BYTES)
            for columns in decode_batches(b"".join(result.buffers), from_offset=offset):
                for key, value in zip(columns.keys, columns.values, strict=True):
                    name = (key or b"").decode()
                    if value is None:
                        rows.pop(name, None)
                        self.removed.add(name)
                    else:
                        rows[name] = bytes(value)
                        self.removed.discard(name)
            if result.next_offset <= offset:
                break
            offset = result.next_offset
        return rows

    def put(self, key: str, value: bytes | None) -> None:
        """Writes a key; None removes it. Raises the log's errors without any change."""
        self._log.append(encode_batch([key.encode()], [value], [-1]), now_ms=0)
