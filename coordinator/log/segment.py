"""One file of the log, ``<base offset>.log``: batches back to back, exactly the bytes that readers get.

Rules
1. Only the last segment of a log is appended to, by one thread. An append that the disk refuses is cut off again before
   the error leaves this module, so the file never holds half a batch while the process lives.
2. The file is opened when it is first needed, and the index of a closed segment is read when it is first asked.
3. Reads find whole batches and start at the batch that holds the offset. Batch boundaries come from the index and a
   walk over at most one index interval. Where the last reads ended is remembered: a reader that continues there walks
   nothing.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import ref

from coordinator.log.errors import CorruptLogError, LogFailedError, LogFullError, LogStorageError
from coordinator.log.fsync import SharedFile
from coordinator.log.index import SegmentIndex
from coordinator.log.results import FileRecords
from coordinator.log.scan import FRAME, FRAME_BYTES, Expected, scan_batches
from streamsrt.wire.records import HEADER_SIZE_BYTES, BatchHeader, read_header

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

#: How many offsets one segment may span: the index keeps them relative to the base in 31 bits.
OFFSETS_MAX = (1 << 31) - 1
#: An offset or epoch beyond all that there are.
NEVER = (1 << 63) - 1

_BUFFERS_PER_WRITE = min(os.sysconf("SC_IOV_MAX"), 1024)
_POSITIONS_REMEMBERED = 64
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_WALK_BYTES = 8192


class SegmentRecords(NamedTuple):
    """Where whole batches of one segment are, and the offset after them."""

    records: FileRecords
    next_offset: int


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's file name: the offset in twenty digits, so that names sort as offsets do."""
    return f"{base_offset:020d}{suffix}"


def _no_file() -> None:
    """What is still open of a segment that was never opened."""


class Segment:
    """One segment. ``size_bytes`` counts whole batches only."""

    __slots__ = (
        "_closed_file",
        "_file",
        "_index",
        "_interval_bytes",
        "_is_told",
        "_positions",
        "base_offset",
        "first_append_ms",
        "path",
        "size_bytes",
    )

    def __init__(self, directory: Path, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.path = directory / file_name(base_offset, LOG_SUFFIX)
        self.size_bytes = 0
        #: The broker's clock at the first append, or the file's age for a segment that was there at start; -1 if empty.
        self.first_append_ms = -1
        self._interval_bytes = interval_bytes
        self._is_told = False
        self._file: SharedFile | None = None
        self._closed_file: Callable[[], SharedFile | None] = _no_file
        self._index: SegmentIndex | None = None
        self._positions: dict[int, int] = {}

    @classmethod
    def create(cls, directory: Path, base_offset: int, interval_bytes: int) -> Segment:
        """A new, empty segment. Raises :class:`LogStorageError` if the file cannot be made."""
        segment = cls(directory, base_offset, interval_bytes)
        segment._index = SegmentIndex(base_offset, interval_bytes)
        try:
            SharedFile(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        except OSError as error:
            raise storage_error(segment.path, error, "a new segment could not be created") from error
        return segment

    @classmethod
    def existing(cls, path: Path, interval_bytes: int) -> Segment:
        """The segment of an existing file, not read yet."""
        segment = cls(path.parent, int(path.stem), interval_bytes)
        status = path.stat()
        segment.size_bytes = status.st_size
        segment.first_append_ms = status.st_mtime_ns // 1_000_000 if status.st_size else -1
        return segment

    # ----------------------------------------------------------------------------------------------------- opening

    @property
    def file(self) -> SharedFile:
        """The open file. Raises :class:`LogStorageError`, after which a later use may succeed."""
        if self._file is None:
            # One that a reader still holds is shared: slow readers of many segments don't use up the descriptors.
            self._file = self._closed_file() or self._opened()
        return self._file

    def _opened(self) -> SharedFile:
        try:
            return SharedFile(self.path, os.O_RDWR)
        except OSError as error:
            raise LogStorageError(self.path, error, "could not be opened") from error

    @property
    def is_open(self) -> bool:
        """Whether the file is open now."""
        return self._file is not None

    def close(self) -> None:
        """Lets go of the file; the next use opens it again."""
        if self._file is not None:
            self._closed_file = ref(self._file)
        self._file = None

    @property
    def index(self) -> SegmentIndex:
        """The index, read from its file or rebuilt from the headers if that is no use."""
        if self._index is None:
            self._index = self.saved_index()
            if self._index is None or self._index.covered_bytes != self.size_bytes:
                self._check_size()
                self._index = self._rebuilt_index()
        return self._index

    @index.setter
    def index(self, index: SegmentIndex) -> None:
        self._index = index
        self._positions.clear()

    @property
    def index_path(self) -> Path:
        """The hint file beside the segment."""
        return self.path.with_suffix(INDEX_SUFFIX)

    def saved_index(self) -> SegmentIndex | None:
        """What the index file holds, if it describes this segment or a prefix of it."""
        return SegmentIndex.load(self.index_path, self.base_offset, self._interval_bytes, self.size_bytes)

    def _check_size(self) -> None:
        """A file cut off between two batches looks whole; its index may know better.

        This is for segments that no recovery reads: they were synced before they were closed.
        """
        index = SegmentIndex.load(self.index_path, self.base_offset, self._interval_bytes, NEVER)
        if index is not None and index.covered_bytes > self.size_bytes:
            reason = f"the file is shorter than the {index.covered_bytes} bytes that it once had"
            error = CorruptLogError(self.path, self.size_bytes, reason, (self.base_offset, index.next_offset))
            if not self._is_told:
                self._is_told = True
                logger.error("%s", error)
            raise error

    def new_index(self) -> SegmentIndex:
        """An empty index for this segment."""
        return SegmentIndex(self.base_offset, self._interval_bytes)

    def save_index(self) -> None:
        """Writes the index file if the index is in memory."""
        if self._index is not None:
            self._index.save(self.index_path)

    def expected(self) -> Expected:
        """What batches of this segment must at least fulfil for the index to hold them."""
        return Expected(self.base_offset, self.base_offset + OFFSETS_MAX, NEVER, NEVER, NEVER)

    def _rebuilt_index(self) -> SegmentIndex:
        index = self.new_index()

        def visit(header: BatchHeader, _: memoryview) -> None:
            index.add(header.base_offset, header.next_offset, header.size_bytes, header.max_timestamp)

        try:
            fault = scan_batches(
                self.file.fd, position=0, size_bytes=self.size_bytes, expected=self.expected(), visit=visit
            )
        except OSError as error:
            raise LogStorageError(self.path, error, "could not be read") from error
        if fault is not None:
            raise CorruptLogError(self.path, fault.position, fault.reason, (fault.expected_offset, None))
        index.save(self.index_path)
        return index

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record, -1 without any."""
        return self.index.max_timestamp

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.index.next_offset

    # --------------------------------------------------------------------------------------------------- appending

    def write(self, buffers: Sequence[bytes | memoryview], size_bytes: int) -> None:
        """Writes the buffers behind the last batch, all or nothing. The caller then adds the batches to ``index``.

        Raises :class:`LogFullError` if there is no space, :class:`LogFailedError` for any other refusal of the disk.
        """
        file = self.file
        end = self.size_bytes
        try:
            written = os.pwritev(file.fd, buffers[:_BUFFERS_PER_WRITE], end)
            if written != size_bytes:
                self._write_rest(file.fd, buffers, written, size_bytes)
        except OSError as error:
            self._cut_back(file.fd)
            raise storage_error(self.path, error, f"{size_bytes} bytes could not be appended") from error
        self.size_bytes = end + size_bytes

    def _write_rest(self, fd: int, buffers: Sequence[bytes | memoryview], written: int, size_bytes: int) -> None:
        rest = memoryview(b"".join(buffers))
        while written < size_bytes:
            count = os.pwrite(fd, rest[written:], self.size_bytes + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count

    def _cut_back(self, fd: int) -> None:
        try:
            os.ftruncate(fd, self.size_bytes)
        except OSError as error:
            raise LogFailedError(self.path, error, "a failed append could not be cut off again") from error

    def truncate(self, position: int) -> None:
        """Cuts the file at a batch boundary. The index must be rebuilt or replaced by the caller."""
        try:
            os.ftruncate(self.file.fd, position)
        except OSError as error:
            raise LogFailedError(self.path, error, f"could not be truncated to {position} bytes") from error
        self.size_bytes = position
        self._index = None
        self._positions.clear()

    # ----------------------------------------------------------------------------------------------------- reading

    def find(
        self, offset: int, max_bytes: int, limit: int, limit_offset: int, *, whole_first: bool
    ) -> SegmentRecords | None:
        """Whole batches from the one that holds ``offset``, at most ``max_bytes``, none at or after byte ``limit``.

        ``limit`` is a batch boundary and ``limit_offset`` the offset there. With ``whole_first`` the first batch comes
        even if it is larger than ``max_bytes``. ``None`` if there is nothing to return.
        """
        start = self.position_of(offset)
        if limit <= start:
            return None
        if limit - start <= max_bytes:
            end, next_offset = limit, limit_offset
        else:
            end, next_offset = self._cut(start, start + max_bytes)
            if end == start:
                if not whole_first:
                    return None
                base_offset, batch_length, last_delta = FRAME.unpack(self._read(FRAME.size, start))
                end, next_offset = start + FRAME_BYTES + batch_length, base_offset + last_delta + 1
        self._remember(next_offset, end)
        return SegmentRecords(FileRecords(self.file, start, end - start), next_offset)

    def _cut(self, start: int, stop: int) -> tuple[int, int]:
        """(position, offset) of the last batch boundary between two positions, of which the first one is a boundary."""
        end, next_offset = self.index.boundary_at_or_before(stop)
        end = max(start, end)
        for position, _, last_offset, size_bytes in self._frames(end):
            if position + size_bytes > stop:
                break
            end, next_offset = position + size_bytes, last_offset + 1
        return end, next_offset

    def position_of(self, offset: int) -> int:
        """Where the first batch begins that ends at or after ``offset``; the size of the file if none does."""
        if offset >= self.index.next_offset:
            return self.size_bytes
        known = self._positions.get(offset)
        if known is not None:
            return known
        for position, base_offset, last_offset, _ in self._frames(self.index.position_before(offset)):
            if last_offset >= offset:
                if base_offset <= offset:
                    self._remember(offset, position)
                return position
        return self.size_bytes

    def _frames(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """(position, base offset, last offset, size) of each batch from ``position`` on."""
        while position < self.size_bytes:
            chunk = self._read(min(_WALK_BYTES, self.size_bytes - position), position)
            at = 0
            while len(chunk) - at >= FRAME.size:
                base_offset, batch_length, last_delta = FRAME.unpack_from(chunk, at)
                yield position + at, base_offset, base_offset + last_delta, FRAME_BYTES + batch_length
                at += FRAME_BYTES + batch_length
            if at == 0:
                return
            position += at

    def _read(self, size_bytes: int, position: int) -> bytes:
        return FileRecords(self.file, position, size_bytes).read()

    def _remember(self, offset: int, position: int) -> None:
        if len(self._positions) >= _POSITIONS_REMEMBERED:
            self._positions.clear()
        self._positions[offset] = position

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> memoryview | None:
        """The first batch at or after ``from_offset`` whose largest timestamp is at least this one, or ``None``."""
        if self.max_timestamp < timestamp_ms:
            return None
        position = max(self.index.position_before_timestamp(timestamp_ms), self.index.position_before(from_offset))
        while position < self.size_bytes:
            header = read_header(self._read(HEADER_SIZE_BYTES, position))
            if header.max_timestamp >= timestamp_ms and header.last_offset >= from_offset:
                return memoryview(self._read(header.size_bytes, position))
            position += header.size_bytes
        return None

    def limit_at(self, offset: int) -> tuple[int, int]:
        """(position, offset) of the batch boundary at or before ``offset``: no batch before it reaches ``offset``."""
        if offset >= self.index.next_offset:
            return self.size_bytes, self.index.next_offset
        position = self.position_of(offset)
        base_offset: int = FRAME.unpack(self._read(FRAME.size, position))[0]
        return position, min(base_offset, offset)

    def bytes_between(self, offset: int, end: int) -> int:
        """The size of the batches from the one that holds ``offset`` on, of those before ``end``."""
        return max(0, self.limit_at(end)[0] - self.position_of(offset)) if self.size_bytes else 0

    def max_timestamp_from(self, offset: int) -> int:
        """The largest timestamp of the batches that reach ``offset``, -1 without any."""
        if offset <= self.base_offset:
            return self.max_timestamp
        largest = -1
        position = self.position_of(offset)
        while position < self.size_bytes:
            header = read_header(self._read(HEADER_SIZE_BYTES, position))
            largest = max(largest, header.max_timestamp)
            position += header.size_bytes
        return largest

    def newest_ms(self) -> int:
        """When the newest record was made: its timestamp, or the file's last change if no record has one."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.path.stat().st_mtime_ns // 1_000_000

    # ---------------------------------------------------------------------------------------------------- removing

    def rename_deleted(self) -> list[Path]:
        """Renames the segment's files so that no start sees them, and says which files are to be removed."""
        self.close()
        renamed = []
        for path in (self.path, self.index_path):
            target = path.with_name(path.name + DELETED_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, target)
                renamed.append(target)
        return renamed


def storage_error(path: Path, error: OSError, reason: str) -> LogStorageError:
    """The error of the log for an error of the disk."""
    kind = LogFullError if error.errno in _NO_SPACE else LogFailedError
    return kind(path, error, reason)
