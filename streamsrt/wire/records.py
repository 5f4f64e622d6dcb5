"""Record batches, format version 2 (KIP-98): header fields, columns of records, control batches.

Rules of this module:
- The unit is a batch, its form is columns. Nothing here makes an object per record for its caller to keep.
- Bytes from the network decode or raise `DecodeError`, nothing else. Time and memory are bounded by their size and the
  limit for decompressed data. A caller's values encode or raise `EncodeError`.
- The codec is aiokafka's; its Cython reader trusts a varint to end within the buffer, so it gets only buffers for which
  that holds (`_readable`). The checksum and the compression are our own: aiokafka's are several times slower.
- Bytes 0-15 of a batch (base offset, length, leader epoch) lie outside its CRC; all from byte 21 on lie inside.
- Offsets here are absolute, timestamps are milliseconds since the epoch, -1 meaning none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, TypeAlias

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c

from streamsrt.wire.compression import DECOMPRESSED_LIMIT_BYTES, SLACK_BYTES, Compression, compress, inflate
from streamsrt.wire.primitives import Buffer, DecodeError, EncodeError
from streamsrt.wire.uniform_records import read_uniform

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

HEADER_SIZE_BYTES = 61
"""Size of a batch's header, its count of records included."""

MAGIC = 2

_OVERHEAD_BYTES = 12  # base offset and batch length, which the batch length does not count
_LENGTH_MINIMUM_BYTES = HEADER_SIZE_BYTES - _OVERHEAD_BYTES
_CRC_START = 21
_LEADER_EPOCH_START = 12
_ATTRIBUTES_LOW_BYTE = 22
_RECORD_MINIMUM_BYTES = 7  # length, attributes, two deltas, key length, value length, header count

_HEADER = Struct(">qiibIhiqqqhii")
_BEFORE_ATTRIBUTES = Struct(">qiibI")
_FROM_ATTRIBUTES = Struct(">hiqqqhii")
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

# What aiokafka's reader raises on bytes that are no records; the pure Python one runs off the end of its buffer.
_READER_ERRORS = (KafkaError, ValueError, IndexError, OverflowError, MemoryError, AssertionError, struct_error)


class CorruptBatchError(DecodeError):
    """The CRC of a batch does not fit its content: CORRUPT_MESSAGE to whoever sent it."""


class ControlType(IntEnum):
    """What a control batch says about its producer's transaction; UNKNOWN is for types of later brokers."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


class ControlRecord(NamedTuple):
    """The end of one transaction on one partition (Kafka's EndTransactionMarker)."""

    type: ControlType
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class BatchHeader(NamedTuple):
    """Header of a record batch, field by field as on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return self.batch_length + _OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record written in this batch, even if compaction dropped it since."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; numbers wrap from 2**31 - 1 to 0. -1 without a producer id."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> Compression:
        """Codec of the records; DecodeError for one that Kafka does not have."""
        code = self.attributes & _CODEC_MASK
        if code > Compression.ZSTD:
            raise DecodeError(f"batch at offset {self.base_offset}: unknown compression {code}")
        return Compression(code)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones, if a first pass of it said so (KIP-534)."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def is_log_append_time(self) -> bool:
        """True if the broker's `max_timestamp` is the timestamp of every record."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """True if the records belong to a transaction."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True for a batch of the broker's own that no application sees."""
        return bool(self.attributes & _CONTROL)


@dataclass(slots=True)
class RecordColumns:
    """Records of one batch, column by column.

    `offsets` is None where the offsets are `base_offset`, `base_offset + 1`, ...; `headers` is None where no record has
    one. `next_offset` is the position to read from after these records.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    base_offset: int
    next_offset: int
    offsets: list[int] | None = None
    headers: list[Headers] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def offset_at(self, index: int) -> int:
        """Offset of the record with this index (0 or more)."""
        return self.base_offset + index if self.offsets is None else self.offsets[index]

    def cut(self, start: int, stop: int | None = None) -> RecordColumns:
        """The records from index `start` up to before `stop` (None: to the end), as columns of their own."""
        if stop is None or stop >= len(self.keys):
            stop, next_offset = len(self.keys), self.next_offset
        else:
            next_offset = self.offset_at(stop)
        base_offset = self.offset_at(start) if start < stop else next_offset
        return RecordColumns(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            base_offset,
            next_offset,
            None if self.offsets is None else self.offsets[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )

    def from_offset(self, offset: int) -> RecordColumns:
        """The records at `offset` and after; itself if that is all of them."""
        if offset <= self.base_offset:
            return self
        if self.offsets is None:
            return self.cut(min(offset - self.base_offset, len(self.keys)))
        return self.cut(sum(1 for known in self.offsets if known < offset))


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Header of the batch at `position`; the rest of the batch need not be there.

    DecodeError if less than a header is left, for another format version, and for counts that no batch can have.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE_BYTES:
        raise DecodeError(f"a batch header is {HEADER_SIZE_BYTES} bytes, {len(buffer) - position} are left")
    header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise DecodeError(
            f"batch at offset {header.base_offset} has format version {header.magic}; only 2 is supported"
        )
    if header.batch_length < _LENGTH_MINIMUM_BYTES:
        raise DecodeError(f"batch at offset {header.base_offset} claims a length of {header.batch_length} bytes")
    if not 0 <= header.records_count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
        raise DecodeError(
            f"batch at offset {header.base_offset} claims {header.records_count} records "
            f"and a last offset delta of {header.last_offset_delta}"
        )
    return header


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch; ends before a truncated last one, which is normal in a fetch answer."""
    position = 0
    size = len(buffer)
    while size - position >= HEADER_SIZE_BYTES:
        header = read_header(buffer, position)
        end = position + header.size_bytes
        if end > size:
            return
        yield position, header
        position = end


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """CorruptBatchError if the batch at `position` is not what was written; DecodeError if it is not all there."""
    end = _batch_end(buffer, position, header)
    crc = crc32c(memoryview(buffer)[position + _CRC_START : end])
    if crc != header.crc:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset} has CRC {crc:#010x}, its header says {header.crc:#010x}"
        )


def _batch_end(buffer: Buffer, position: int, header: BatchHeader) -> int:
    end = position + header.size_bytes
    if end > len(buffer):
        raise DecodeError(
            f"batch at offset {header.base_offset} has {header.size_bytes} bytes, {len(buffer) - position} are left"
        )
    return end


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
    return _decode_records(buffer, position, header, headers, limit_bytes)


def _decode_records(
    buffer: Buffer, position: int, header: BatchHeader, headers: bool, limit_bytes: int
) -> RecordColumns:
    view = _readable(buffer, position, header, limit_bytes)
    if header.records_count * _RECORD_MINIMUM_BYTES > len(view) - HEADER_SIZE_BYTES:
        raise DecodeError(
            f"batch at offset {header.base_offset} claims {header.records_count} records "
            f"in {len(view) - HEADER_SIZE_BYTES} bytes"
        )
    if header.records_count > header.last_offset_delta:
        uniform = read_uniform(view[HEADER_SIZE_BYTES:], header.records_count, header.base_timestamp)
        if uniform is not None:
            keys, values, timestamps = uniform
            if header.is_log_append_time:
                timestamps = [header.max_timestamp] * header.records_count
            return RecordColumns(keys, values, timestamps, header.base_offset, header.next_offset)
    try:
        batch = DefaultRecordBatch(view)
        if header.records_count <= header.last_offset_delta:
            columns = _compacted_columns(batch, header, headers)
        elif headers:
            columns = _columns_with_headers(batch, header)
        else:
            columns = _columns(batch, header)
    except _READER_ERRORS as error:
        raise DecodeError(f"batch at offset {header.base_offset} holds broken records: {error}") from error
    return columns


def _readable(buffer: Buffer, position: int, header: BatchHeader, limit_bytes: int) -> memoryview:
    """The batch, uncompressed, such that reading a few bytes past its end stays in allocated memory.

    The Cython reader checks where each varint begins, not where it ends. A cut-off one runs past the batch by less
    than `SLACK_BYTES` bytes before the reader notices. So either that many bytes follow, or the batch ends in a byte
    that ends a varint and the zero that CPython keeps behind every bytes and bytearray follows, or it is copied.
    """
    end = _batch_end(buffer, position, header)
    if header.attributes & _CODEC_MASK:
        codec = header.compression
        head = bytearray(buffer[position : position + HEADER_SIZE_BYTES])
        head[_ATTRIBUTES_LOW_BYTE] &= ~_CODEC_MASK
        return inflate(
            codec, memoryview(buffer)[position + HEADER_SIZE_BYTES : end], head=head, limit_bytes=limit_bytes
        )
    view = memoryview(buffer)[position:end]
    left = len(buffer) - end
    if left >= SLACK_BYTES or (left == 0 and buffer[end - 1] < 0x80 and not isinstance(buffer, memoryview)):
        return view
    return memoryview(bytes(view) + bytes(SLACK_BYTES))[: end - position]


def _columns(batch: DefaultRecordBatch, header: BatchHeader) -> RecordColumns:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    add_key, add_value, add_timestamp = keys.append, values.append, timestamps.append
    for record in batch:
        add_key(record.key)
        add_value(record.value)
        add_timestamp(record.timestamp)
    return RecordColumns(keys, values, _plain(timestamps), header.base_offset, header.next_offset)


def _columns_with_headers(batch: DefaultRecordBatch, header: BatchHeader) -> RecordColumns:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    add_key, add_value, add_timestamp = keys.append, values.append, timestamps.append
    headers: list[Headers] | None = None
    for record in batch:
        add_key(record.key)
        add_value(record.value)
        add_timestamp(record.timestamp)
        if record.headers:
            headers = [()] * (len(keys) - 1)
            headers.append(tuple(record.headers))
            break
    if headers is not None:
        # Not `for record in batch`: the reader can be asked for an iterator once only.
        for record in iter(batch.__next__, None):
            add_key(record.key)
            add_value(record.value)
            add_timestamp(record.timestamp)
            headers.append(tuple(record.headers))
    return RecordColumns(keys, values, _plain(timestamps), header.base_offset, header.next_offset, None, headers)


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
    columns.timestamps = _plain(columns.timestamps)
    columns.offsets = offsets
    if headers and any(found):
        columns.headers = found
    return columns


def _plain(timestamps: list[int]) -> list[int]:
    """The reader gives None for -1. Summing finds that at a fraction of the cost of searching."""
    try:
        sum(timestamps)
    except TypeError:
        return [NO_TIMESTAMP if timestamp is None else timestamp for timestamp in timestamps]
    return timestamps


def decode_control_batch(buffer: Buffer, position: int = 0, *, verify_crc: bool = True) -> ControlRecord:
    """What the control batch at `position` says. DecodeError if it is a data batch or broken."""
    header = read_header(buffer, position)
    if not header.is_control:
        raise DecodeError(f"batch at offset {header.base_offset} is no control batch")
    if verify_crc:
        check_crc(buffer, position, header)
    columns = _decode_records(buffer, position, header, False, DECOMPRESSED_LIMIT_BYTES)
    key = columns.keys[0] if columns.keys else None
    if key is None or len(key) < _CONTROL_KEY.size:
        raise DecodeError(f"control batch at offset {header.base_offset} has no type")
    code = _CONTROL_KEY.unpack_from(key)[1]
    kind = ControlType(code) if code in (ControlType.ABORT, ControlType.COMMIT) else ControlType.UNKNOWN
    coordinator_epoch = -1
    if kind is not ControlType.UNKNOWN:
        value = columns.values[0]
        if value is None or len(value) < _CONTROL_VALUE.size:
            raise DecodeError(f"control batch at offset {header.base_offset} has no coordinator epoch")
        coordinator_epoch = _CONTROL_VALUE.unpack_from(value)[1]
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
    """What `iter_columns` gives, all at once: at 100,000 records and more, several times slower a record than in turn."""
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
) -> Iterator[RecordColumns]:
    """Records of a fetch answer from `from_offset` on, one item per batch that has any, each decoded when its turn comes.

    Control batches, and with `aborted` (the answer's (producer id, first offset) pairs, for read_committed) the batches
    of aborted transactions, are passed over: the `next_offset` of the item before moves past them. If there is no item
    at all, one without records carries the position. So the last item's `next_offset` is where to fetch next, and
    no item means that the buffer has no whole batch. Errors as of `decode_batch`, when the broken batch's turn comes.
    """
    transactions = _AbortedTransactions(aborted) if aborted is not None else None
    columns: RecordColumns | None = None
    next_offset = -1
    for position, header in iter_headers(buffer):
        next_offset = max(header.next_offset, from_offset)
        dropped = transactions is not None and transactions.drops(buffer, position, header, verify_crc)
        if not (dropped or header.is_control or header.last_offset < from_offset or header.records_count == 0):
            if columns:
                yield columns
            if verify_crc:
                check_crc(buffer, position, header)
            columns = _decode_records(buffer, position, header, headers, limit_bytes).from_offset(from_offset)
        if columns:
            columns.next_offset = next_offset
    if columns:
        yield columns
    elif next_offset >= 0:
        yield RecordColumns([], [], [], next_offset, next_offset)


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


def encode_batch(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    *,
    headers: Sequence[Headers] | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """One batch of at least one record.

    `offsets` are ascending absolute offsets, None for `base_offset` and up. For a batch that lost records to
    compaction, `last_offset` is the last offset that it once held, and `delete_horizon_ms` as in BatchHeader.
    EncodeError for columns of unequal length, values that are no bytes, and a batch over 2 GiB.
    """
    count = len(keys)
    if count == 0:
        raise EncodeError("a batch has at least one record; what compaction emptied is made by empty_batch()")
    if len(values) != count or len(timestamps) != count or (headers is not None and len(headers) != count):
        raise EncodeError(
            f"columns of unequal length: {count} keys, {len(values)} values, {len(timestamps)} timestamps"
        )
    deltas, last_delta = _offset_deltas(count, base_offset, offsets, last_offset)
    base_timestamp = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    records: Buffer = _encode_records(keys, values, timestamps, headers, deltas, base_timestamp)
    attributes = (_TRANSACTIONAL if transactional else 0) | (0 if delete_horizon_ms is None else _DELETE_HORIZON)
    if compression is not Compression.NONE:
        records = compress(compression, records, level)
    return _assemble(
        BatchHeader(
            base_offset,
            0,
            partition_leader_epoch,
            MAGIC,
            0,
            attributes | compression,
            last_delta,
            base_timestamp,
            max(timestamps),
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ),
        records,
    )


def _offset_deltas(
    count: int, base_offset: int, offsets: Sequence[int] | None, last_offset: int | None
) -> tuple[Iterable[int], int]:
    if offsets is None:
        deltas: Sequence[int] = range(count)
    elif len(offsets) != count:
        raise EncodeError(f"columns of unequal length: {count} keys, {len(offsets)} offsets")
    else:
        deltas = [offset - base_offset for offset in offsets]
    last_delta = deltas[-1] if last_offset is None else last_offset - base_offset
    if last_delta < deltas[-1] or deltas[0] < 0:
        raise EncodeError(
            f"offsets {deltas[0]} to {deltas[-1]} after the base offset don't lie within 0 to {last_delta}"
        )
    return deltas, last_delta


def _encode_records(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
    deltas: Iterable[int],
    base_timestamp: int,
) -> memoryview:
    builder = DefaultRecordBatchBuilder(
        magic=MAGIC,
        compression_type=Compression.NONE,
        is_transactional=0,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        batch_size=1 << 62,
    )
    # build() hands out the buffer that append() goes on to fill. Called first, it spares the slow CRC over the records.
    buffer = builder.build()
    if base_timestamp == NO_TIMESTAMP:
        # The builder takes a first timestamp of -1 for "no record yet". Only differences from the first get encoded.
        base_timestamp = 0
        timestamps = [timestamp - NO_TIMESTAMP for timestamp in timestamps]
    each_headers: Iterable[list[tuple[str, bytes | None]]] = repeat([]) if headers is None else map(list, headers)
    start = HEADER_SIZE_BYTES
    try:
        if base_timestamp != timestamps[0]:
            # The builder counts from its first record; this one is left out of the result.
            builder.append(0, base_timestamp, None, None, [])
            start = len(buffer)
        deque(map(builder.append, deltas, timestamps, keys, values, each_headers), maxlen=0)
    except (TypeError, ValueError, OverflowError, BufferError) as error:
        raise EncodeError(f"a record is not made of bytes and numbers that fit: {error}") from error
    return memoryview(buffer)[start:]


def _assemble(header: BatchHeader, records: Buffer) -> bytes:
    """The batch with this header over these (compressed) records; its length and CRC are computed."""
    try:
        covered = _FROM_ATTRIBUTES.pack(*header[5:])
        crc = crc32c(records, crc32c(covered))
        length = _LENGTH_MINIMUM_BYTES + len(records)
        head = _BEFORE_ATTRIBUTES.pack(header.base_offset, length, header.partition_leader_epoch, MAGIC, crc)
    except struct_error as error:
        raise EncodeError(f"a batch of {len(records)} bytes of records can't be written: {error}") from error
    return b"".join((head, covered, records))


def _replaced(batch: Buffer, **fields: int) -> bytes:
    header = read_header(batch)
    end = _batch_end(batch, 0, header)
    return _assemble(header._replace(**fields), memoryview(batch)[HEADER_SIZE_BYTES:end])


def encode_control_batch(
    control: ControlRecord, *, timestamp_ms: int, base_offset: int = 0, partition_leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """The batch by which a broker ends a transaction on a partition (Kafka's EndTransactionMarker, version 0)."""
    if control.type is ControlType.UNKNOWN:
        raise EncodeError("only COMMIT and ABORT can be written")
    records = _encode_records(
        [_CONTROL_KEY.pack(0, control.type)],
        [_CONTROL_VALUE.pack(0, control.coordinator_epoch)],
        [timestamp_ms],
        None,
        [0],
        timestamp_ms,
    )
    return _assemble(
        BatchHeader(
            base_offset,
            0,
            partition_leader_epoch,
            MAGIC,
            0,
            _TRANSACTIONAL | _CONTROL,
            0,
            timestamp_ms,
            timestamp_ms,
            control.producer_id,
            control.producer_epoch,
            NO_SEQUENCE,
            1,
        ),
        records,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone, as compaction keeps it where a batch lost all records: offsets and producer state survive."""
    attributes = header.attributes & ~(_CODEC_MASK | _DELETE_HORIZON)
    return _assemble(header._replace(attributes=attributes, records_count=0, base_timestamp=NO_TIMESTAMP), b"")


def patch_base_offset(head: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch with the offset and leader epoch that the broker gives it; the CRC stays valid."""
    return _INT64.pack(base_offset) + bytes(head[8:_LEADER_EPOCH_START]) + _INT32.pack(leader_epoch)


def rewrite_log_append_time(batch: Buffer, timestamp_ms: int) -> bytes:
    """The batch with the broker's time on every record (topic configuration message.timestamp.type=LogAppendTime)."""
    attributes = read_header(batch).attributes | _LOG_APPEND_TIME
    return _replaced(batch, attributes=attributes, max_timestamp=timestamp_ms)


def stamp_producer(batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """The batch as part of an idempotent producer's sequence."""
    return _replaced(batch, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def find_timestamp(buffer: Buffer, position: int, target_ms: int, *, from_offset: int = 0) -> tuple[int, int] | None:
    """(offset, timestamp) of the batch's first record at `target_ms` or later and `from_offset` or after, or None."""
    header = read_header(buffer, position)
    if header.max_timestamp < target_ms or header.last_offset < from_offset:
        return None
    columns = _decode_records(buffer, position, header, False, DECOMPRESSED_LIMIT_BYTES)
    for index, timestamp in enumerate(columns.timestamps):
        if timestamp >= target_ms and columns.offset_at(index) >= from_offset:
            return columns.offset_at(index), timestamp
    return None
