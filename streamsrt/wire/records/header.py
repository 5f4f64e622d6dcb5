"""The header of a record batch, and its fields.

The CRC does not cover bytes 0-15 of a batch (base offset, length, leader epoch); it covers all from byte 21 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from streamsrt.checksum import crc32c
from streamsrt.wire.compression import Compression
from streamsrt.wire.primitives import Buffer, DecodeError

HEADER_SIZE_BYTES = 61
"""Size of a batch's header, its count of records included."""

MAGIC = 2

OVERHEAD_BYTES = 12
"""Base offset and batch length, which the batch length does not count."""

LENGTH_MINIMUM_BYTES = HEADER_SIZE_BYTES - OVERHEAD_BYTES

_CRC_START = 21
_HEADER = Struct(">qiibIhiqqqhii")

CONTROL_KEY = Struct(">hh")
CONTROL_VALUE = Struct(">hi")

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


class CorruptBatchError(DecodeError):
    """The CRC of a batch does not match its content; the sender gets CORRUPT_MESSAGE."""


class ControlType(IntEnum):
    """The type of a control batch, the end of a producer's transaction. UNKNOWN is for types of later brokers."""

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
        return self.batch_length + OVERHEAD_BYTES

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
        code = self.attributes & CODEC_MASK
        if code > Compression.ZSTD:
            raise DecodeError(f"batch at offset {self.base_offset}: unknown compression {code}")
        return Compression(code)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones, if its first pass has set that (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_log_append_time(self) -> bool:
        """True if the broker's `max_timestamp` is the timestamp of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """True if the records belong to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True for a batch of the broker itself, which no application sees."""
        return bool(self.attributes & CONTROL)


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
    if header.batch_length < LENGTH_MINIMUM_BYTES:
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
    """CorruptBatchError if the batch at `position` was changed; DecodeError if it is not complete."""
    end = batch_end(buffer, position, header)
    crc = crc32c(memoryview(buffer)[position + _CRC_START : end])
    if crc != header.crc:
        raise CorruptBatchError(
            f"batch at offset {header.base_offset} has CRC {crc:#010x}, its header says {header.crc:#010x}"
        )


def batch_end(buffer: Buffer, position: int, header: BatchHeader) -> int:
    end = position + header.size_bytes
    if end > len(buffer):
        raise DecodeError(
            f"batch at offset {header.base_offset} has {header.size_bytes} bytes, {len(buffer) - position} are left"
        )
    return end
