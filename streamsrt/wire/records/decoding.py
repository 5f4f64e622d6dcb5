"""Batches into columns of records.

1. Bytes from the network decode or raise :class:`DecodeError`, nothing else. Time and memory are bounded by their size and
   the limit for decompressed data.
2. Records without headers are read by the loop in C, if it was built (:mod:`streamsrt.wire.kernels`). Else, where all
   records have the same sizes, :mod:`streamsrt.wire.records.uniform` reads them, and small texts of any sizes
   :mod:`streamsrt.wire.records.small`; for restores, :mod:`streamsrt.wire.records.placed` reads those of any sizes, several
   batches at once; single records are read by :mod:`streamsrt.wire.records.plain`, and any others by aiokafka's Cython
   reader. It takes the attributes of records for a number (:mod:`streamsrt.wire.records.attributes`). It trusts a varint
   to end within the buffer, so it gets only buffers for which that holds (``readable``).
3. Threads beside this one get their turns, however many headers a record has: the Cython reader reads a record in one go,
   so it gets no batch with a record of more than :data:`LONG_RECORD_BYTES`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from streamsrt.wire.compression import DECOMPRESSED_LIMIT_BYTES, SLACK_BYTES, inflate
from streamsrt.wire.kernels import read_records
from streamsrt.wire.later_numpy import np
from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records.attributes import has_long_attributes, is_misread
from streamsrt.wire.records.columns import (
    Headers,
    LazyColumns,
    PlacedColumns,
    RecordColumns,
    TableColumns,
    UnreadRecords,
)
from streamsrt.wire.records.header import (
    CODEC_MASK,
    CONTROL_KEY,
    CONTROL_VALUE,
    HEADER_SIZE_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    ControlRecord,
    ControlType,
    batch_end,
    check_crc,
    iter_headers,
    read_header,
)
from streamsrt.wire.records.placed import PLACED_RECORDS_MIN, read_placed
from streamsrt.wire.records.plain import has_long_record, read_plain, read_single
from streamsrt.wire.records.small import read_small
from streamsrt.wire.records.uniform import read_uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamsrt.wire.records.quick import DefaultRecordBatch

LONG_RECORD_BYTES = 1 << 18
"""Of a record that has room for so many headers that reading them in one go takes more than ten milliseconds."""

_JOINED_RECORDS = 2048
_JOINED_BYTES = 1 << 20
"""Batches with so many records or bytes are not joined by another one: a step of a restore should be short."""
_ATTRIBUTES_LOW_BYTE = 22
_SHORT_BYTES = 1 << 12
"""Where a copy costs next to nothing."""
_SLACK = bytes(SLACK_BYTES)
_RECORD_MINIMUM_BYTES = 7  # length, attributes, two deltas, key length, value length, header count


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    verify_crc: bool = True,
    headers: bool = True,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    header: BatchHeader | None = None,
) -> RecordColumns:
    """Records of the batch at `position`, whose `header` need not be read again if it is given.

    `headers=False` leaves record headers unread, for callers that never look at them. A batch stamped by the broker
    (log append time) gives that one timestamp for every record. DecodeError or CorruptBatchError for broken content.
    """
    header = header or read_header(buffer, position)
    if verify_crc:
        check_crc(buffer, position, header)
    return decode_records(buffer, position, header, headers, limit_bytes)


def decode_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    headers: bool,
    limit_bytes: int,
    *,
    lazily: bool = False,
) -> RecordColumns:
    """``lazily``: keys, values and timestamps may be read later. That is slower if they are, as the bytes have left the
    processor's cache."""
    return _decoded(_unpacked(buffer, position, header, limit_bytes), header, headers, lazily)


def _unpacked(buffer: Buffer, position: int, header: BatchHeader, limit_bytes: int) -> memoryview:
    view = readable(buffer, position, header, limit_bytes)
    check_count(header, len(view))
    return view


def _decoded(view: memoryview, header: BatchHeader, headers: bool, lazily: bool = False) -> RecordColumns:
    records = view[HEADER_SIZE_BYTES:]
    if header.records_count > header.last_offset_delta:
        shape = header.records_count, header.base_timestamp
        native = read_records(records, *shape)
        if native is not None:
            return _unread_columns(native, header, (native.low_ms, native.high_ms), lazily)
        uniform = read_uniform(records, *shape)
        if uniform is not None:
            return _unread_columns(uniform, header, _bounds(uniform.times), lazily)
        small = read_small(records, *shape)
        if small is not None:
            keys, values, times = small
            return _timed_columns(keys, values, times, header, _bounds(times))
    if header.records_count == 1:
        # Nearly as quick here, and instances with few records do without aiokafka. It tells what is wrong with a broken one.
        with suppress(DecodeError):
            return _single_columns(view, header, headers)
    if has_long_record(records, LONG_RECORD_BYTES):
        return _plain_columns(view, header, headers)
    found_quickly = _quick_columns(view, records, header, headers)
    return _plain_columns(view, header, headers) if found_quickly is None else found_quickly


def _bounds(times: NDArray[np.int64]) -> tuple[int, int]:
    return int(times.min()), int(times.max())


def _unread_columns(
    records: UnreadRecords, header: BatchHeader, timestamp_bounds: tuple[int, int], lazily: bool
) -> RecordColumns:
    if not lazily:
        return _timed_columns(records.keys(), records.values(), records.times, header, timestamp_bounds)
    bounds = _dated(records.times, header, timestamp_bounds)
    return LazyColumns(records, header.base_offset, header.next_offset, bounds)


def _timed_columns(
    keys: list[bytes | None],
    values: list[bytes | None],
    times: NDArray[np.int64],
    header: BatchHeader,
    timestamp_bounds: tuple[int, int],
) -> RecordColumns:
    bounds = _dated(times, header, timestamp_bounds)
    columns = RecordColumns(keys, values, times.tolist(), header.base_offset, header.next_offset)
    columns.times = times
    columns.timestamp_bounds = bounds
    return columns


def _dated(times: NDArray[np.int64], header: BatchHeader, bounds: tuple[int, int]) -> tuple[int, int]:
    """Puts the broker's time in place of those of producers, where it counts. Returns the lowest and the highest time;
    ``bounds``: of those of producers."""
    if not header.is_log_append_time:
        return bounds
    times.fill(header.max_timestamp)
    return header.max_timestamp, header.max_timestamp


def _quick_columns(view: memoryview, records: memoryview, header: BatchHeader, headers: bool) -> RecordColumns | None:
    """The quick reader's result; None if Kafka would read the records differently."""
    from streamsrt.wire.records.quick import READER_ERRORS, DefaultRecordBatch  # see there

    try:
        batch = DefaultRecordBatch(view)
        if header.records_count <= header.last_offset_delta:
            columns = _compacted_columns(batch, header, headers)
        elif headers:
            columns = _columns_with_headers(batch, header)
        else:
            columns = _columns(batch, header)
    except UnicodeDecodeError:
        return None
    except (DecodeError, *READER_ERRORS) as error:
        if has_long_attributes(records, header.records_count):
            return None
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error
    if not columns.timestamps:
        return columns
    columns.timestamps, largest = with_largest(columns.timestamps)
    return None if is_misread(records, header, columns.timestamps, largest, 0, columns) else columns


def check_count(header: BatchHeader, size_bytes: int) -> None:
    """DecodeError if a batch of that size, not compressed, can't hold as many records as it claims."""
    left_bytes = size_bytes - HEADER_SIZE_BYTES
    if header.records_count * _RECORD_MINIMUM_BYTES > left_bytes:
        raise DecodeError(
            f"batch at offset {header.base_offset} claims {header.records_count} records in {left_bytes} bytes"
        )


def readable(buffer: Buffer, position: int, header: BatchHeader, limit_bytes: int) -> memoryview:
    """The batch, uncompressed, such that reading a few bytes past its end stays in allocated memory.

    The Cython reader checks where each varint begins, not where it ends. A cut-off one runs past the batch by less
    than `SLACK_BYTES` bytes before the reader notices. So either that many bytes follow, or the batch ends in a byte
    that ends a varint, in the memory of a bytes or bytearray, behind which CPython keeps a zero, or it is copied.
    """
    end = batch_end(buffer, position, header)
    if header.attributes & CODEC_MASK:
        codec = header.compression
        head = bytearray(buffer[position : position + HEADER_SIZE_BYTES])
        head[_ATTRIBUTES_LOW_BYTE] &= ~CODEC_MASK
        return inflate(
            codec, memoryview(buffer)[position + HEADER_SIZE_BYTES : end], head=head, limit_bytes=limit_bytes
        )
    view = memoryview(buffer)[position:end]
    left = len(buffer) - end
    if left >= SLACK_BYTES or (buffer[end - 1] < 0x80 and isinstance(view.obj, bytes | bytearray)):
        return view
    return memoryview(b"".join((view, _SLACK)))[: end - position]


def _columns(batch: DefaultRecordBatch, header: BatchHeader) -> RecordColumns:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    for record in batch:
        keys.append(record.key)
        values.append(record.value)
        timestamps.append(record.timestamp)
    return RecordColumns(keys, values, timestamps, header.base_offset, header.next_offset)


def _columns_with_headers(batch: DefaultRecordBatch, header: BatchHeader) -> RecordColumns:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    headers: list[Headers] | None = None
    for record in batch:
        keys.append(record.key)
        values.append(record.value)
        timestamps.append(record.timestamp)
        if record.headers:
            headers = [()] * (len(keys) - 1)
            headers.append(tuple(record.headers))
            break
    if headers is not None:
        # Not `for record in batch`: the reader can be asked for an iterator once only.
        for record in iter(batch.__next__, None):
            keys.append(record.key)
            values.append(record.value)
            timestamps.append(record.timestamp)
            headers.append(tuple(record.headers))
    return RecordColumns(keys, values, timestamps, header.base_offset, header.next_offset, None, headers)


def _compacted_columns(batch: DefaultRecordBatch, header: BatchHeader, headers: bool) -> RecordColumns:
    columns = RecordColumns([], [], [], header.base_offset, header.next_offset, [])
    offsets: list[int] = []
    found: list[Headers] = []
    previous = header.base_offset - 1
    for record in batch:
        offset = record.offset
        if not previous < offset < header.next_offset:
            raise DecodeError(f"batch at offset {header.base_offset} holds offset {offset} after {previous}")
        previous = offset
        offsets.append(offset)
        columns.keys.append(record.key)
        columns.values.append(record.value)
        columns.timestamps.append(record.timestamp)
        found.append(tuple(record.headers))
    columns.offsets = offsets
    if headers and any(found):
        columns.headers = found
    return columns


def _single_columns(view: memoryview, header: BatchHeader, headers: bool) -> RecordColumns:
    is_short = header.last_offset_delta == 0 and len(view) <= _SHORT_BYTES
    found = read_single(bytes(view[HEADER_SIZE_BYTES:])) if is_short else None
    if found is None:
        return _plain_columns(view, header, headers)
    key, value = found
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    return RecordColumns([key], [value], [timestamp], header.base_offset, header.next_offset)


def _plain_columns(view: memoryview, header: BatchHeader, headers: bool) -> RecordColumns:
    records = read_plain(view, header, headers)
    columns = RecordColumns(
        [None if record.key is None else bytes(record.key) for record in records],
        [None if record.value is None else bytes(record.value) for record in records],
        [record.timestamp for record in records],
        header.base_offset,
        header.next_offset,
    )
    if header.records_count <= header.last_offset_delta:
        columns.offsets = ascending([record.offset for record in records], header)
    if headers and any(record.headers for record in records):
        columns.headers = [record.headers for record in records]
    return columns


def ascending(offsets: list[int], header: BatchHeader) -> list[int]:
    """The offsets of a batch in which records are missing. DecodeError where they can't be these."""
    previous = header.base_offset - 1
    for offset in offsets:
        if not previous < offset < header.next_offset:
            raise DecodeError(f"batch at offset {header.base_offset} holds offset {offset} after {previous}")
        previous = offset
    return offsets


def with_largest(times: list[int]) -> tuple[list[int], int]:
    """The timestamps, and the largest of at least one. The quick reader gives None for -1, which is put right here."""
    try:
        largest: int | None = max(times)
    except TypeError:
        largest = None
    if largest is not None:
        return times, largest
    given = [NO_TIMESTAMP if time is None else time for time in times]
    return given, max(given)


def decode_control_batch(buffer: Buffer, position: int = 0, *, verify_crc: bool = True) -> ControlRecord:
    """Returns the content of the control batch at `position`. Raises DecodeError if it is a data batch or broken."""
    header = read_header(buffer, position)
    if not header.is_control:
        raise DecodeError(f"batch at offset {header.base_offset} is not a control batch")
    if verify_crc:
        check_crc(buffer, position, header)
    columns = decode_records(buffer, position, header, False, DECOMPRESSED_LIMIT_BYTES)
    key = columns.keys[0] if columns.keys else None
    if key is None or len(key) < CONTROL_KEY.size:
        raise DecodeError(f"control batch at offset {header.base_offset} has no type")
    code = CONTROL_KEY.unpack_from(key)[1]
    kind = ControlType(code) if code in (ControlType.ABORT, ControlType.COMMIT) else ControlType.UNKNOWN
    coordinator_epoch = -1
    if kind is not ControlType.UNKNOWN:
        value = columns.values[0]
        if value is None or len(value) < CONTROL_VALUE.size:
            raise DecodeError(f"control batch at offset {header.base_offset} has no coordinator epoch")
        coordinator_epoch = CONTROL_VALUE.unpack_from(value)[1]
    return ControlRecord(kind, header.producer_id, header.producer_epoch, coordinator_epoch)


def decode_batches(
    buffer: Buffer,
    *,
    from_offset: int = 0,
    aborted: Iterable[tuple[int, int]] | None = None,
    verify_crc: bool = True,
    headers: bool = True,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
) -> list[RecordColumns]:
    """All results of `iter_columns` as a list. From 100,000 records on, this is several times slower per record than
    iterating."""
    return list(
        iter_columns(
            buffer,
            from_offset=from_offset,
            aborted=aborted,
            verify_crc=verify_crc,
            headers=headers,
            limit_bytes=limit_bytes,
        )
    )


def iter_columns(
    buffer: Buffer,
    *,
    from_offset: int = 0,
    aborted: Iterable[tuple[int, int]] | None = None,
    verify_crc: bool = True,
    headers: bool = True,
    limit_bytes: int = DECOMPRESSED_LIMIT_BYTES,
    lazily: bool = False,
    as_tables: bool = False,
) -> Iterator[RecordColumns]:
    """Records of a fetch answer from `from_offset` on, one item per batch that has any, each decoded when its turn comes.

    Control batches, and with `aborted` (the answer's (producer id, first offset) pairs, for read_committed) the batches
    of aborted transactions, are passed over: the `next_offset` of the item before moves past them. If there is no item
    at all, one without records carries the position. So the last item's `next_offset` is where to fetch next, and
    no item means that the buffer has no whole batch. Errors as of `decode_batch`, when the broken batch's turn comes.
    `lazily`: as of `decode_records`. `as_tables`: for a caller that takes keys and values as tables, or where they lie; an
    item may have the records of several batches then.
    """
    transactions = _AbortedTransactions(aborted) if aborted is not None else None
    if as_tables:
        joined = _JoinedBatches(from_offset, headers)
        yield from _iter_joined(buffer, joined, transactions, verify_crc, limit_bytes)
        return
    columns: RecordColumns | None = None
    next_offset = -1
    for position, header in iter_headers(buffer):
        next_offset = max(header.next_offset, from_offset)
        try:
            if _wanted(buffer, position, header, from_offset, transactions, verify_crc):
                if columns:
                    yield columns
                if verify_crc:
                    check_crc(buffer, position, header)
                found = decode_records(buffer, position, header, headers, limit_bytes, lazily=lazily)
                columns = found.from_offset(from_offset)
        except DecodeError as error:
            error.next_offset = next_offset
            raise
        if columns:
            columns.next_offset = next_offset
    if columns:
        yield columns
    elif next_offset >= 0:
        yield RecordColumns([], [], [], next_offset, next_offset)


def _iter_joined(
    buffer: Buffer,
    joined: _JoinedBatches,
    transactions: _AbortedTransactions | None,
    verify_crc: bool,
    limit_bytes: int,
) -> Iterator[RecordColumns]:
    from_offset = joined.from_offset
    for position, header in iter_headers(buffer):
        next_offset = max(header.next_offset, from_offset)
        try:
            if _wanted(buffer, position, header, from_offset, transactions, verify_crc):
                if verify_crc:
                    check_crc(buffer, position, header)
                view = _unpacked(buffer, position, header, limit_bytes)
                yield from joined.add(view, header)
        except DecodeError as error:
            yield from joined.take()
            if error.next_offset < 0:
                error.next_offset = next_offset
            raise
        joined.next_offset = next_offset
    yield from joined.take()
    if joined.told_offset < joined.next_offset:
        yield RecordColumns([], [], [], joined.next_offset, joined.next_offset)


class _JoinedBatches:
    """Batches of a fetch answer that are read together, if they are no tables.

    ``next_offset``: where to read on after all that was added or passed over. ``told_offset``: the same, of what was taken.
    """

    def __init__(self, from_offset: int, headers: bool) -> None:
        self.from_offset = from_offset
        self.next_offset = self.told_offset = -1
        self._headers = headers
        self._batches: list[tuple[memoryview, BatchHeader]] = []
        self._records_count = self._size_bytes = 0
        self._columns: RecordColumns | None = None

    def add(self, view: memoryview, header: BatchHeader) -> Iterator[RecordColumns]:
        """Adds the next batch, after yielding those before it that are not read together with it. Raises DecodeError."""
        is_whole = header.base_offset >= self.from_offset
        tables = _tables(view, header) if is_whole else None
        # Where the last record has headers, others mostly have them, too.
        joins = is_whole and tables is None and view[-1] == 0
        is_full = self._records_count >= _JOINED_RECORDS or self._size_bytes >= _JOINED_BYTES
        if not joins or is_full or self._columns is not None:
            yield from self.take()
        if joins:
            self._batches.append((view, header))
            self._records_count += header.records_count
            self._size_bytes += len(view)
        else:
            self._columns = tables or _decoded(view, header, self._headers).from_offset(self.from_offset)

    def take(self) -> Iterator[RecordColumns]:
        """Yields what was added, and was not yielded before. Raises DecodeError."""
        for columns in self._taken():
            if columns:
                self.told_offset = columns.next_offset
                yield columns

    def _taken(self) -> Iterator[RecordColumns]:
        batches, columns = self._batches, self._columns
        count, next_offset = self._records_count, self.next_offset
        self._batches, self._columns, self._records_count, self._size_bytes = [], None, 0, 0
        if columns is None and count >= PLACED_RECORDS_MIN:
            placed = read_placed([(view[HEADER_SIZE_BYTES:], header) for view, header in batches])
            if placed is not None:
                batches, columns = [], PlacedColumns(placed, batches[0][1].base_offset, next_offset)
        if columns is not None:
            columns.next_offset = next_offset
            yield columns
        for view, header in batches:
            try:
                columns = _decoded(view, header, self._headers)
            except DecodeError as error:
                error.next_offset = header.next_offset
                raise
            if header is batches[-1][1]:
                columns.next_offset = next_offset
            yield columns


def _tables(view: memoryview, header: BatchHeader) -> TableColumns | None:
    """The records as tables, where they all have the same sizes."""
    if header.records_count <= header.last_offset_delta:
        return None
    uniform = read_uniform(view[HEADER_SIZE_BYTES:], header.records_count, header.base_timestamp)
    tables = None if uniform is None else uniform.tables()
    if tables is None:
        return None
    bounds = _dated(tables.times, header, _bounds(tables.times))
    return TableColumns(tables, header.base_offset, header.next_offset, bounds)


def _wanted(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    from_offset: int,
    transactions: _AbortedTransactions | None,
    verify_crc: bool,
) -> bool:
    """Whether a reader gets records of the batch. Must be called for every batch, in order."""
    dropped = transactions is not None and transactions.drops(buffer, position, header, verify_crc)
    return not (dropped or header.is_control or header.last_offset < from_offset or header.records_count == 0)


class _AbortedTransactions:
    """Which batches of a fetch answer belong to aborted transactions; fed with every batch in order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._pending = deque(sorted(aborted, key=lambda pair: pair[1]))
        self._producer_ids: set[int] = set()

    def drops(self, buffer: Buffer, position: int, header: BatchHeader, verify_crc: bool) -> bool:
        while self._pending and self._pending[0][1] <= header.last_offset:
            self._producer_ids.add(self._pending.popleft()[0])
        if header.producer_id not in self._producer_ids:
            return False
        # An emptied control batch (compaction) says nothing; the producer's next list entry or marker does.
        if header.is_control and header.records_count > 0:
            marker = decode_control_batch(buffer, position, verify_crc=verify_crc)
            if marker.type is ControlType.ABORT:
                self._producer_ids.discard(header.producer_id)
        return header.is_transactional
