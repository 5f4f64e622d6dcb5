"""Reading the segments that are compacted, and writing the kept records into one file beside them.

Rules
1. Both passes work in steps of a few thousand records. ``run`` executes the reads, for instance on another thread; the
   caller of the passes can do other work in between, and continues when the step is done.
2. The first pass reads only the dirty part: it finds the last offset of each key. It ends early when the map has
   reached its limit; the rest is left for a later compaction.
3. The second pass reads every segment from the start of the log to the end of the first pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

from coordinator.log.compaction.survivors import AbortedData, Survivors
from coordinator.log.errors import LogFullError
from coordinator.log.fsync import SharedFile
from coordinator.log.index import SegmentIndex
from coordinator.log.segment import Segment, storage_error
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import BatchHeader, CorruptBatchError, decode_batch, iter_headers

CLEANED_SUFFIX = ".cleaned"
STEP_BYTES = 1 << 17
#: The approximate size of a key and its offset in a dict, the key's own bytes included.
KEY_COST_BYTES = 200


Run = Callable[[Callable[[], None]], "Future[None] | None"]
"""Executes a step, at once or later: it is done when the future is done."""


def at_once(step: Callable[[], None]) -> None:
    step()


class LatestOffsets:
    """The last offset of each key in the dirty part. ``end_offset``: the offset up to which it was read."""

    def __init__(self, aborted: AbortedData, first_offset: int, bytes_max: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.end_offset = first_offset
        self._aborted = aborted
        self._keys_max = max(bytes_max // KEY_COST_BYTES, 1)

    def read(self, segments: Sequence[Segment], end_offset: int, run: Run) -> Iterator[Future[None] | None]:
        """Reads, in steps, segments that end at ``end_offset``. Raises DecodeError and OSError."""
        for segment in segments:
            for data in _steps(segment, self.end_offset):
                yield run(partial(self._add_all, segment, data))
                if self._is_full:
                    return
        self.end_offset = max(self.end_offset, end_offset)

    @property
    def _is_full(self) -> bool:
        return len(self.offsets) >= self._keys_max

    def _add_all(self, segment: Segment, data: memoryview) -> None:
        for position, header in _headers(segment, data):
            if header.base_offset >= self.end_offset:
                self._add(data, position, header)
            if self._is_full:
                return

    def _add(self, data: memoryview, position: int, header: BatchHeader) -> None:
        self.end_offset = header.next_offset
        if header.is_control or header.records_count == 0 or self._aborted.holds(header):
            return
        try:
            columns = decode_batch(data, position, headers=False)
        except DecodeError:
            return  # The second pass reports it.
        offsets = columns.offsets or range(header.base_offset, header.base_offset + len(columns))
        self.offsets.update((key, at) for key, at in zip(columns.keys, offsets, strict=True) if key is not None)


class CleanedFile:
    """The kept records of one group of segments, in a file that no start takes for a segment."""

    def __init__(self, sources: Sequence[Segment], interval_bytes: int) -> None:
        first = sources[0]
        self.sources = tuple(sources)
        self.path = first.path.with_suffix(CLEANED_SUFFIX)
        self.index = SegmentIndex(first.base_offset, interval_bytes)
        self.size_bytes = 0
        try:
            self.file = SharedFile(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        except OSError as error:
            raise storage_error(self.path, error, "compaction could not create it") from error

    def write(self, survivors: Survivors, run: Run) -> Iterator[Future[None] | None]:
        """Writes in steps. Raises DecodeError and the log's errors."""
        for segment in self.sources:
            for data in _steps(segment, segment.base_offset):
                parts: list[bytes | memoryview] = []
                yield run(partial(self._choose, survivors, segment, data, parts))
                self._write(b"".join(parts))
        os.utime(self.path, ns=(self._modified_ns, self._modified_ns))

    def _choose(
        self, survivors: Survivors, segment: Segment, data: memoryview, parts: list[bytes | memoryview]
    ) -> None:
        for position, header in _headers(segment, data):
            left = survivors.of(header, data[position : position + header.size_bytes])
            if left is not None:
                self.index.add(header.base_offset, header.next_offset, len(left), header.max_timestamp)
                parts.append(left)

    @property
    def _modified_ns(self) -> int:
        return max(segment.path.stat().st_mtime_ns for segment in self.sources)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                count = os.pwrite(self.file.fd, view, self.size_bytes)
                if not count:
                    raise LogFullError(self.path, None, "compaction could not write to it")
                self.size_bytes += count
                view = view[count:]
        except OSError as error:
            raise storage_error(self.path, error, "compaction could not write to it") from error

    def discard(self) -> None:
        """Removes the file."""
        self.path.unlink(missing_ok=True)


def _headers(segment: Segment, data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch. The checksum does not cover offsets, so they are compared with each other."""
    lowest = segment.base_offset
    for position, header in iter_headers(data):
        if header.base_offset < lowest or header.next_offset > segment.next_offset:
            raise CorruptBatchError(
                f"{segment.path}: a batch with offsets {header.base_offset} to {header.last_offset} "
                f"where {lowest} to {segment.next_offset - 1} are possible"
            )
        lowest = header.next_offset
        yield position, header


def _steps(segment: Segment, from_offset: int) -> Iterator[memoryview]:
    """The segment's batches from the one that contains ``from_offset`` on, a few at a time."""
    offset = max(from_offset, segment.base_offset)
    while offset < segment.next_offset:
        found = segment.find(offset, STEP_BYTES, segment.size_bytes, segment.next_offset, whole_first=True)
        if found is None:
            return
        yield memoryview(found.records.read())
        offset = found.next_offset
