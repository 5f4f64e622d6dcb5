"""Reads and checks the batches of a segment file, without changing it.

Rules
1. A batch is whole when its length fits, its magic is 2, its offsets and leader epoch can follow the batch before it
   and, where asked for, its CRC is right. The CRC does not cover the offset and the epoch, so those are held against
   :class:`Expected`. The first batch that is not whole ends the walk with a :class:`BrokenBatch`; none behind it is visited.
2. Reading is by ``pread`` into one reused buffer: a failing disk raises ``OSError`` instead of killing the process as
   a memory map would.
3. Whether anything valid stands behind a fault decides between a torn tail and corruption. Lengths cannot be trusted
   there, so the bytes are searched for what the broker itself wrote into each batch: a leader epoch that the log has
   seen, followed by magic 2. A hit counts only with a right CRC and an offset that continues the log.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from streamsrt.checksum import crc32c
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, BatchHeader, read_header

#: Bytes of a batch before its length counts: base offset and the length itself.
FRAME_BYTES = 12
CHUNK_BYTES = 1 << 20
#: Where the bytes that the CRC covers begin.
CRC_START = 21
BATCH_LENGTH_MIN = HEADER_SIZE_BYTES - FRAME_BYTES

FRAME = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta


class BrokenBatch(NamedTuple):
    """The first batch of a file that is not whole: where, why, and the offset that was expected there."""

    position: int
    reason: str
    expected_offset: int


class Expected(NamedTuple):
    """What the batches of a segment may carry.

    Offsets begin at ``next_offset`` and stay below ``offset_limit``. They leave gaps only below ``contiguous_from``, as
    compaction does. CRCs are checked from offset ``check_crc_from`` on. No leader epoch is above ``leader_epoch_max``.
    """

    next_offset: int
    offset_limit: int
    contiguous_from: int
    check_crc_from: int
    leader_epoch_max: int


Visit = Callable[[BatchHeader, memoryview], None]


def scan_batches(
    fd: int,
    *,
    position: int,
    size_bytes: int,
    expected: Expected,
    visit: Visit,
) -> BrokenBatch | None:
    """Visits every batch from ``position`` to ``size_bytes`` with its header and its bytes (valid during the call).

    Returns the fault that ended the walk, ``None`` at the end of the file.
    """
    next_offset, check_crc_from = expected.next_offset, expected.check_crc_from
    buffer = bytearray(min(CHUNK_BYTES, max(size_bytes - position, 1)))
    while position < size_bytes:
        view = memoryview(buffer)
        filled = os.preadv(fd, [view], position)
        limit = min(filled, size_bytes - position)
        at = 0
        while limit - at >= HEADER_SIZE_BYTES:
            try:
                header = read_header(view, at)
            except DecodeError as error:
                return BrokenBatch(position + at, str(error), next_offset)
            reason = _misfit(header, next_offset, size_bytes - position - at, expected)
            if reason is not None:
                return BrokenBatch(position + at, reason, next_offset)
            end = at + header.size_bytes
            if end > limit:
                break
            if header.base_offset >= check_crc_from and crc32c(view[at + CRC_START : end]) != header.crc:
                return BrokenBatch(position + at, "the checksum of the batch does not match", next_offset)
            visit(header, view[at:end])
            next_offset = header.next_offset
            at = end
        position += at
        if at == 0:
            left = size_bytes - position
            if left < HEADER_SIZE_BYTES or filled == 0:
                return BrokenBatch(position, f"the file ends within a batch header ({left} bytes of it)", next_offset)
            needed = max(FRAME_BYTES + FRAME.unpack_from(buffer)[1], HEADER_SIZE_BYTES)
            if filled >= needed:
                return BrokenBatch(position, "the file became shorter while it was read", next_offset)
            view.release()
            buffer = bytearray(max(needed, CHUNK_BYTES))
    return None


def _misfit(header: BatchHeader, next_offset: int, left_bytes: int, expected: Expected) -> str | None:
    """Why a well-formed header cannot stand where it stands."""
    if header.size_bytes > left_bytes:
        return f"the batch has {header.size_bytes} bytes, but the file ends after {left_bytes} of them"
    base_offset = header.base_offset
    if base_offset < next_offset or (base_offset > next_offset and next_offset >= expected.contiguous_from):
        return f"the batch starts at offset {base_offset}, but offset {next_offset} is next"
    if header.next_offset > expected.offset_limit:
        return f"the batch ends at offset {header.last_offset}, but the segment ends before {expected.offset_limit}"
    if header.partition_leader_epoch > expected.leader_epoch_max:
        return f"the batch has leader epoch {header.partition_leader_epoch}, which this log has not reached"
    return None


def find_whole_batch(
    fd: int, *, position: int, size_bytes: int, offset_min: int, leader_epochs: Iterable[int]
) -> int | None:
    """The base offset of a whole batch somewhere in ``position`` to ``size_bytes``, or ``None``.

    ``offset_min`` is the lowest offset that it may have, ``leader_epochs`` are those that the log's batches may carry.
    """
    patterns = [struct.pack(">iB", epoch, 2) for epoch in leader_epochs]
    overlap = FRAME_BYTES + 5
    while position + HEADER_SIZE_BYTES <= size_bytes:
        chunk = os.pread(fd, min(CHUNK_BYTES, size_bytes - position), position)
        for pattern in patterns:
            hit = chunk.find(pattern, FRAME_BYTES)
            while hit >= 0:
                offset = _whole_batch_at(fd, position + hit - FRAME_BYTES, size_bytes, offset_min)
                if offset is not None:
                    return offset
                hit = chunk.find(pattern, hit + 1)
        if len(chunk) <= overlap:
            return None
        position += len(chunk) - overlap
    return None


def _whole_batch_at(fd: int, position: int, size_bytes: int, offset_min: int) -> int | None:
    head = os.pread(fd, HEADER_SIZE_BYTES, position)
    if len(head) < HEADER_SIZE_BYTES:
        return None
    base_offset, batch_length, last_offset_delta = FRAME.unpack_from(head)
    size = FRAME_BYTES + batch_length
    if batch_length < BATCH_LENGTH_MIN or position + size > size_bytes or last_offset_delta < 0:
        return None
    if not offset_min <= base_offset < offset_min + (1 << 31):
        return None
    batch = os.pread(fd, size, position)
    try:
        stored_crc = read_header(batch).crc
    except DecodeError:
        return None
    return base_offset if crc32c(memoryview(batch)[CRC_START:]) == stored_crc else None
