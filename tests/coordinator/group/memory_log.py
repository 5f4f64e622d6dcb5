"""A partition log in memory, for tests of what runs over it. It can be told to fail."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.log.errors import LogClosedError
from streamsrt.wire.records import decode_batches, patch_base_offset, read_header


class Appended(NamedTuple):
    last_offset: int


class Read(NamedTuple):
    buffers: list[memoryview]
    next_offset: int


class MemoryLog:
    """Keeps whole batches. ``fail_next`` appends are refused as a closed log refuses them."""

    log_start_offset = 0

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_end_offset = 0
        self.fail_next = 0

    def append(self, batches: bytes, *, now_ms: int, from_coordinator: bool = False) -> Appended:
        if self.fail_next:
            self.fail_next -= 1
            raise LogClosedError("closed for the test")
        header = read_header(batches)
        head = patch_base_offset(batches, self.log_end_offset, 0)
        self.batches.append(bytes(head) + bytes(batches[len(head) :]))
        self.log_end_offset += header.records_count
        return Appended(self.log_end_offset - 1)

    def read(self, offset: int, max_bytes: int) -> Read:
        found: list[memoryview] = []
        size = 0
        for batch in self.batches:
            columns = decode_batches(batch)[0]
            if columns.next_offset <= offset or (found and size + len(batch) > max_bytes):
                continue
            found.append(memoryview(batch))
            size += len(batch)
            offset = columns.next_offset
        return Read(found, offset)
