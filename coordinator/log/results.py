"""The results of appends to a log and of reads from it."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """Where an append went. ``log_append_time_ms`` is -1 for ``CreateTime``; a ``duplicate`` was there before."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class ReadResult(NamedTuple):
    """Whole batches in order, their size, and the offset to read from next."""

    buffers: list[memoryview]
    size_bytes: int
    next_offset: int
