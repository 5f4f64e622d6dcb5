"""Reads batches that contain one plain record, as most of a coordinator's do: a commit, a member, a transaction.

1. This is a shortcut, never a different reading: anything it does not know - compression, transactions, several
   records, headers, timestamps, damage - is left to the general reader, which also reports errors.
2. A log of a million commits is a million batches. This reads one in a fifth of the general reader's time.
"""

from __future__ import annotations

import struct

from streamsrt.checksum import crc32c

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_START = 21
_FRAME_BYTES = 12
_MAGIC = 2
_SMALLEST_BYTES = _HEADER.size + 7
_NO_DELTAS = b"\x00\x00\x00"
_NULL = 1


def lone_rows(data: bytes, position: int, from_offset: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    """(key, value) of each batch from ``position`` on, as long as they are of this kind; and where the next one begins.

    Rows below ``from_offset`` are left out.
    """
    rows: list[tuple[bytes, bytes | None]] = []
    size, view = len(data), memoryview(data)
    unpack = _HEADER.unpack_from
    while size - position >= _SMALLEST_BYTES:
        offset, length, _, magic, crc, attributes, delta, _, _, _, _, _, count = unpack(data, position)
        end = position + _FRAME_BYTES + length
        if (
            count != 1
            or attributes
            or delta
            or magic != _MAGIC
            or not position + _SMALLEST_BYTES <= end <= size
            or crc32c(view[position + _CRC_START : end]) != crc
        ):
            break
        row = _row(data, position + _HEADER.size, end)
        if row is None:
            break
        if offset >= from_offset:
            rows.append(row)
        position = end
    return rows, position


def _row(data: bytes, at: int, end: int) -> tuple[bytes, bytes | None] | None:
    """The one record of a batch; ``None`` if it is not plain. Lengths are varints, doubled, and odd if negative."""
    length = data[at]
    at += 1
    if length >= 0x80:
        length = length & 0x7F | data[at] << 7
        at += 1
    if length & 1 or length >= 0x4000 or at + (length >> 1) != end or data[at : at + 3] != _NO_DELTAS:
        return None
    length = data[at + 3]
    at += 4
    if length >= 0x80:
        length = length & 0x7F | data[at] << 7
        at += 1
    if length & 1 or length >= 0x4000 or at + (length >> 1) >= end:
        return None
    key = data[at : at + (length >> 1)]
    at += length >> 1
    length = data[at]
    at += 1
    if length >= 0x80 and at < end:
        length = length & 0x7F | data[at] << 7
        at += 1
    if at >= end:
        return None
    if length == _NULL:
        return (key, None) if at + 1 == end and data[at] == 0 else None
    value_end = at + (length >> 1)
    if length & 1 or length >= 0x4000 or value_end + 1 != end or data[value_end]:
        return None
    return key, data[at:value_end]
