"""Columns of records into batches, and batches with other headers.

A caller's values encode or raise :class:`EncodeError`. Records are written by aiokafka's Cython builder, or by the loop in C
where that was built (:mod:`streamsrt.wire.kernels`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from struct import Struct
from struct import error as struct_error

from streamsrt.checksum import crc32c
from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.kernels import RecordsWriter, write_records
from streamsrt.wire.primitives import Buffer, EncodeError
from streamsrt.wire.records.columns import Headers
from streamsrt.wire.records.header import (
    CODEC_MASK,
    CONTROL,
    CONTROL_KEY,
    CONTROL_VALUE,
    DELETE_HORIZON,
    HEADER_SIZE_BYTES,
    LENGTH_MINIMUM_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    ControlRecord,
    ControlType,
    batch_end,
    read_header,
)
from streamsrt.wire.records.plain import write_plain

_LEADER_EPOCH_START = 12
_BEFORE_ATTRIBUTES = Struct(">qiibI")
_FROM_ATTRIBUTES = Struct(">hiqqqhii")
_SEQUENCE = Struct(">qhi")
_SEQUENCE_START = 43
_SEQUENCE_END = _SEQUENCE_START + _SEQUENCE.size
_CRC_START, _CRC_END = 17, 21
_UINT32 = Struct(">I")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_TIMESTAMP_MAX = 1 << 62


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
        raise EncodeError(
            "a batch has at least one record: use empty_batch() for a batch without records after compaction"
        )
    if len(values) != count or len(timestamps) != count or (headers is not None and len(headers) != count):
        raise EncodeError(
            f"columns of unequal length: {count} keys, {len(values)} values, {len(timestamps)} timestamps"
        )
    deltas, last_delta = offset_deltas(count, base_offset, offsets, last_offset)
    base_timestamp = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    records = _records(keys, values, timestamps, headers, deltas, base_timestamp)
    attributes = (TRANSACTIONAL if transactional else 0) | (0 if delete_horizon_ms is None else DELETE_HORIZON)
    header = BatchHeader(
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
    )
    return _finished(header, records, level)


def encode_written(written: RecordsWriter, *, compression: Compression, transactional: bool) -> bytes:
    """As :func:`encode_batch`, for records that are written. They stay there."""
    first_ms, highest_ms = written.bounds()
    count = len(written)
    header = BatchHeader(
        0,
        0,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        (TRANSACTIONAL if transactional else 0) | compression,
        count - 1,
        first_ms,
        highest_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    return _finished(header, written, None)


def _finished(header: BatchHeader, records: RecordsWriter | memoryview, level: int | None) -> bytes:
    """The batch with this header over these records, compressed as it says."""
    with memoryview(records) as plain:
        if header.attributes & CODEC_MASK:
            return assemble(header, compress(header.compression, plain, level))
        if isinstance(records, memoryview):
            return assemble(header, plain)
        head = _head(header, plain)
    # The writer has room for the head: nothing is copied.
    return records.sealed(head)


def offset_deltas(
    count: int, base_offset: int, offsets: Sequence[int] | None, last_offset: int | None
) -> tuple[Iterable[int], int]:
    """Offsets relative to the base offset, as they are written, and the last one that the batch once held."""
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


def encode_records(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
    deltas: Iterable[int],
    base_timestamp: int,
) -> memoryview:
    """The part of a batch after its header, before compression. EncodeError for values that are no bytes."""
    return memoryview(_records(keys, values, timestamps, headers, deltas, base_timestamp))


def _records(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers] | None,
    deltas: Iterable[int],
    base_timestamp: int,
) -> RecordsWriter | memoryview:
    """The records as the loop in C writes them, or where it does not, as aiokafka's builder does."""
    if headers is None and deltas == range(len(keys)) and base_timestamp == timestamps[0]:
        written = write_records(keys, values, timestamps)
        if written is not None:
            return written
        if len(keys) == 1 and _are_plain(keys[0], values[0], base_timestamp):
            # Quicker, and instances with few records do without aiokafka.
            return memoryview(write_plain(keys[0], values[0], 0, 0))
    from streamsrt.wire.records.quick import DefaultRecordBatchBuilder  # see there

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
        raise EncodeError(f"a record can't be encoded: {error}") from error
    return memoryview(buffer)[start:]


def _are_plain(key: object, value: object, timestamp: object) -> bool:
    """Whether these are what each writer takes, and writes alike."""
    if not (key is None or type(key) is bytes) or not (value is None or type(value) is bytes):
        return False
    return type(timestamp) is int and NO_TIMESTAMP <= timestamp <= _TIMESTAMP_MAX


def assemble(header: BatchHeader, records: Buffer) -> bytes:
    """The batch with this header over these (compressed) records; its length and CRC are computed."""
    return b"".join((_head(header, records), records))


def _head(header: BatchHeader, records: Buffer) -> bytes:
    try:
        covered = _FROM_ATTRIBUTES.pack(*header[5:])
        crc = crc32c(records, crc32c(covered))
        length = LENGTH_MINIMUM_BYTES + len(records)
        return _BEFORE_ATTRIBUTES.pack(header.base_offset, length, header.partition_leader_epoch, MAGIC, crc) + covered
    except struct_error as error:
        raise EncodeError(f"a batch of {len(records)} bytes of records can't be written: {error}") from error


def _replaced(batch: Buffer, **fields: int) -> bytes:
    header = read_header(batch)
    end = batch_end(batch, 0, header)
    return assemble(header._replace(**fields), memoryview(batch)[HEADER_SIZE_BYTES:end])


def encode_control_batch(
    control: ControlRecord, *, timestamp_ms: int, base_offset: int = 0, partition_leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """The batch by which a broker ends a transaction on a partition (Kafka's EndTransactionMarker, version 0)."""
    if control.type is ControlType.UNKNOWN:
        raise EncodeError("only COMMIT and ABORT can be written")
    records = encode_records(
        [CONTROL_KEY.pack(0, control.type)],
        [CONTROL_VALUE.pack(0, control.coordinator_epoch)],
        [timestamp_ms],
        None,
        [0],
        timestamp_ms,
    )
    return assemble(
        BatchHeader(
            base_offset,
            0,
            partition_leader_epoch,
            MAGIC,
            0,
            TRANSACTIONAL | CONTROL,
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
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(header._replace(attributes=attributes, records_count=0, base_timestamp=NO_TIMESTAMP), b"")


def patch_base_offset(head: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch with the offset and leader epoch that the broker gives it; the CRC stays valid."""
    return _INT64.pack(base_offset) + bytes(head[8:_LEADER_EPOCH_START]) + _INT32.pack(leader_epoch)


def rewrite_log_append_time(batch: Buffer, timestamp_ms: int) -> bytes:
    """The batch with the broker's time on every record (topic configuration message.timestamp.type=LogAppendTime)."""
    attributes = read_header(batch).attributes | LOG_APPEND_TIME
    return _replaced(batch, attributes=attributes, max_timestamp=timestamp_ms)


def stamp_producer(batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """The batch as part of an idempotent producer's sequence. Raises DecodeError where ``batch`` is not whole."""
    return b"".join(stamped(batch, producer_id, producer_epoch, base_sequence))


def stamped(batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> tuple[bytes, memoryview]:
    """As :func:`stamp_producer`, in two parts: the new head, and the records where they are.

    Only what changes is written: it is done for each batch that is sent.
    """
    end = batch_end(batch, 0, read_header(batch))
    view = memoryview(batch)
    sequence = _SEQUENCE.pack(producer_id, producer_epoch, base_sequence)
    covered = b"".join((view[_CRC_END:_SEQUENCE_START], sequence, view[_SEQUENCE_END:HEADER_SIZE_BYTES]))
    records = view[HEADER_SIZE_BYTES:end]
    return b"".join((view[:_CRC_START], _UINT32.pack(crc32c(records, crc32c(covered))), covered)), records


def rewrite_timestamps(batch: Buffer, max_timestamp: int) -> bytes:
    """The batch with that largest timestamp, and with the timestamps of its records as theirs."""
    attributes = read_header(batch).attributes & ~LOG_APPEND_TIME
    return _replaced(batch, attributes=attributes, max_timestamp=max_timestamp)
