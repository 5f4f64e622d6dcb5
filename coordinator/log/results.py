"""The results of appends to a log and of reads from it."""

from __future__ import annotations

import os
from typing import NamedTuple

from coordinator.log.errors import LogStorageError
from coordinator.log.fsync import SharedFile


class AppendInfo(NamedTuple):
    """Where an append went. ``log_append_time_ms`` is -1 for ``CreateTime``; a ``duplicate`` was there before."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class FileRecords:
    """Whole batches in a file, read when they are needed. The file stays open, even if the segment is deleted."""

    __slots__ = ("_file", "_position", "_size_bytes")

    def __init__(self, file: SharedFile, position: int, size_bytes: int) -> None:
        self._file = file
        self._position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def read(self) -> bytes:
        """The bytes. Raises :class:`LogStorageError`."""
        try:
            data = os.pread(self._file.fd, self._size_bytes, self._position)
        except OSError as error:
            raise LogStorageError(self._file.path, error, "records could not be read") from error
        if len(data) != self._size_bytes:
            raise LogStorageError(self._file.path, None, f"the file ends at byte {self._position + len(data)}")
        return data

    def split(self, size_bytes: int) -> tuple[FileRecords, FileRecords]:
        """The first ``size_bytes``, and what comes behind them."""
        position, left = self._position + size_bytes, self._size_bytes - size_bytes
        return FileRecords(self._file, self._position, size_bytes), FileRecords(self._file, position, left)


class FoundRecords(NamedTuple):
    """Where whole batches are, in order, their size, and the offset to read from next."""

    records: list[FileRecords]
    size_bytes: int
    next_offset: int


class ReadResult(NamedTuple):
    """Whole batches in order, their size, and the offset to read from next."""

    buffers: list[memoryview]
    size_bytes: int
    next_offset: int
