"""A partition log in memory, for tests of what runs over it. It can be told to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coordinator.log.errors import LogClosedError
from streamsrt.wire.compacted import compacted_batch
from streamsrt.wire.records import (
    BatchHeader,
    RecordColumns,
    decode_batches,
    patch_base_offset,
    read_header,
)


class Appended(NamedTuple):
    last_offset: int


class Read(NamedTuple):
    buffers: list[memoryview]
    next_offset: int


class MemoryLog:
    """Keeps whole batches. ``fail_next`` appends are refused as a closed log refuses them.

    ``failure``: what an append of these batches raises.
    """

    log_start_offset = 0

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_end_offset = 0
        self.fail_next = 0
        self.failure: Callable[[bytes], Exception | None] = lambda batches: None

    def append(self, batches: bytes, *, now_ms: int, from_coordinator: bool = False) -> Appended:
        if self.fail_next:
            self.fail_next -= 1
            raise LogClosedError("closed for the test")
        failure = self.failure(batches)
        if failure is not None:
            raise failure
        header = read_header(batches)
        head = patch_base_offset(batches, self.log_end_offset, 0)
        self.batches.append(bytes(head) + bytes(batches[len(head) :]))
        self.log_end_offset += header.records_count
        return Appended(self.log_end_offset - 1)

    def compact(self, tail: int) -> None:
        """Leaves only the last record of each key in all batches but the last ``tail`` ones; offsets stay.

        Without a tail, tombstones go as well: there is nothing left that they take away.
        """
        cut = max(len(self.batches) - tail, 0)
        decoded = [(header, columns) for each in self.batches[:cut] for header, columns in _decoded(each)]
        latest = {key: columns.offset_at(i) for _, columns in decoded for i, key in enumerate(columns.keys)}
        compacted = []
        for header, columns in decoded:
            kept = [
                i
                for i, key in enumerate(columns.keys)
                if latest[key] == columns.offset_at(i) and (tail or columns.values[i] is not None)
            ]
            if kept:
                chosen = RecordColumns(
                    [columns.keys[i] for i in kept],
                    [columns.values[i] for i in kept],
                    [columns.timestamps[i] for i in kept],
                    columns.base_offset,
                    columns.next_offset,
                    [columns.offset_at(i) for i in kept],
                )
                compacted.append(compacted_batch(header, chosen))
        self.batches[:cut] = compacted

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


def _decoded(batch: bytes) -> list[tuple[BatchHeader, RecordColumns]]:
    return [(read_header(batch), columns) for columns in decode_batches(batch)]
