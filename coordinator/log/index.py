"""The sparse index of one segment: which byte position to start at for an offset or a timestamp.

Rules
1. The index is derived from the segment and never trusted over it: the file beside the segment is a hint with its own
   checksum, and a missing, short or foreign one is rebuilt from the batch headers.
2. There is one entry per ``interval_bytes`` of log, always at the start of a batch, and the first batch has one.
3. An entry holds the batch's relative offset, its position, and the largest timestamp of all batches *before* it.
   That column never falls, so both lookups are a binary search followed by a walk over one interval.
4. ``covered_bytes`` and ``next_offset`` say up to where the index describes the segment. A file that describes a prefix
   is good for that prefix; one that describes more than there is, is dropped.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from coordinator.log.files import write_hint
from streamsrt.checksum import crc32c

_HEADER = struct.Struct(
    "<8sqqqqqII"
)  # magic, base offset, covered bytes, next offset, max ts, its offset, entries, crc
_MAGIC = b"strmidx1"


class SegmentIndex:
    """Offset and time index of one segment, in memory, with its largest timestamp."""

    __slots__ = (
        "_interval_bytes",
        "_last_indexed_position",
        "_max_timestamps_before",
        "_offsets",
        "_positions",
        "base_offset",
        "covered_bytes",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.covered_bytes = 0
        self.next_offset = base_offset
        self.max_timestamp = -1
        #: base offset of the batch that holds ``max_timestamp``
        self.max_timestamp_offset = -1
        self._interval_bytes = interval_bytes
        self._last_indexed_position = -1
        self._offsets = array("I")
        self._positions = array("I")
        self._max_timestamps_before = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, base_offset: int, next_offset: int, size_bytes: int, max_timestamp: int) -> None:
        """Notes the batch that follows the covered bytes."""
        position = self.covered_bytes
        last = self._last_indexed_position
        if last < 0 or position - last >= self._interval_bytes:
            self._offsets.append(base_offset - self.base_offset)
            self._positions.append(position)
            self._max_timestamps_before.append(self.max_timestamp)
            self._last_indexed_position = position
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        self.covered_bytes = position + size_bytes
        self.next_offset = next_offset

    def position_before(self, offset: int) -> int:
        """The largest indexed position whose batch starts at or before ``offset`` (0 if none does)."""
        i = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[i] if i >= 0 else 0

    def position_before_timestamp(self, timestamp_ms: int) -> int:
        """A position from which the first batch with ``max_timestamp >= timestamp_ms`` is at most one interval away."""
        i = bisect_left(self._max_timestamps_before, timestamp_ms) - 1
        return self._positions[i] if i >= 0 else 0

    def boundary_at_or_before(self, position: int) -> tuple[int, int]:
        """(position, offset) of the last indexed batch that starts at or before ``position``."""
        i = bisect_right(self._positions, position) - 1
        return (self._positions[i], self._offsets[i] + self.base_offset) if i >= 0 else (0, self.base_offset)

    def save(self, path: Path) -> None:
        """Writes the hint file. Losing it costs a walk over the headers, so it is not synced."""
        body = b"".join((self._offsets.tobytes(), self._positions.tobytes(), self._max_timestamps_before.tobytes()))
        head = _HEADER.pack(
            _MAGIC,
            self.base_offset,
            self.covered_bytes,
            self.next_offset,
            self.max_timestamp,
            self.max_timestamp_offset,
            len(self._offsets),
            0,
        )
        checksum = crc32c(body, crc32c(head[:-4]))
        write_hint(path, [head[:-4], struct.pack("<I", checksum), body])

    @classmethod
    def load(cls, path: Path, base_offset: int, interval_bytes: int, log_bytes: int) -> SegmentIndex | None:
        """The index that ``path`` holds, or ``None`` if it is missing, damaged or describes another file than ours."""
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        if len(raw) < _HEADER.size or sys.byteorder != "little":
            return None
        magic, base, covered, next_offset, max_ts, max_ts_offset, entries, checksum = _HEADER.unpack_from(raw)
        body = raw[_HEADER.size :]
        if magic != _MAGIC or base != base_offset or covered > log_bytes or len(body) != entries * 16:
            return None
        if crc32c(body, crc32c(raw[: _HEADER.size - 4])) != checksum:
            return None
        index = cls(base_offset, interval_bytes)
        index._offsets.frombytes(body[: entries * 4])
        index._positions.frombytes(body[entries * 4 : entries * 8])
        index._max_timestamps_before.frombytes(body[entries * 8 :])
        index.covered_bytes, index.next_offset = covered, next_offset
        index.max_timestamp, index.max_timestamp_offset = max_ts, max_ts_offset
        index._last_indexed_position = index._positions[-1] if entries else -1
        return index
