"""What batches are held against: aiokafka's reader, record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, RecordColumns, decode_batch
from streamsrt.wire.records.plain import read_number

SLACK = bytes(40)

Columns: TypeAlias = tuple[list[bytes | None], list[bytes | None], list[int]]
Read: TypeAlias = Callable[[bytes], Columns | None]


def read_one_by_one(batch: bytes) -> Columns | None:
    """What aiokafka reads; None where it refuses, or finds headers."""
    rows = []
    try:
        for record in DefaultRecordBatch(memoryview(batch + SLACK)[: len(batch)]):
            if record.headers:
                return None
            rows.append((record.key, record.value, -1 if record.timestamp is None else record.timestamp))
    except (KafkaError, ValueError, OverflowError, MemoryError):
        return None
    keys, values, timestamps = map(list, zip(*rows, strict=True))
    return keys, values, timestamps


def rows_of(items: Iterable[RecordColumns]) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Offset, key, value and timestamp of each record."""
    return [
        (columns.offset_at(index), *row)
        for columns in items
        for index, row in enumerate(zip(columns.keys, columns.values, columns.timestamps, strict=True))
    ]


def without_attributes(batch: bytes) -> bytes:
    """With zeros for the attributes of records, which nobody writes otherwise: to Kafka a byte, to aiokafka a number of any
    length. A batch whose lengths lead nowhere stays as it is."""
    data, at = bytearray(batch), HEADER_SIZE_BYTES
    while at < len(data):
        try:
            size, start = read_number(memoryview(data), at)
        except (DecodeError, IndexError):
            return batch
        if not 0 < size <= len(data) - start:
            return batch
        data[start] = 0
        at = start + size
    return resealed(data)


def resealed(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def check_whole(read: Read, batch: bytes) -> None:
    """``read`` finds what is there or nothing, and so does the decoder."""
    found = read(batch)
    assert found is None or found == read_one_by_one(batch)
    columns = decode_batch(batch)
    if columns.headers is None:
        assert (columns.keys, columns.values, columns.timestamps) == read_one_by_one(batch)


def check_damaged(read: Read, whole: bytes, damages: list[tuple[int, int]], missing: int) -> None:
    """The same for a batch that is cut short by ``missing`` bytes, with other bytes at some positions."""
    batch = bytearray(whole[: len(whole) - missing])
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    for position, value in damages:
        batch[HEADER_SIZE_BYTES + position % (len(batch) - HEADER_SIZE_BYTES)] = value
    sealed = resealed(batch)
    expected = read_one_by_one(sealed)
    found = read(sealed)
    assert found is None or found == expected
    try:
        columns = decode_batch(sealed)
    except DecodeError:
        assert expected is None
    else:
        found = columns.keys, columns.values, columns.timestamps
        assert columns.headers is not None or found in (expected, read_one_by_one(without_attributes(sealed)))


def has_long_number(records: Buffer, count: int) -> bool:
    """Whether a number of one of these records takes more than five bytes, but for timestamps."""
    sizes: list[int] = []

    def number(at: int) -> tuple[int, int]:
        value, behind = read_number(memoryview(records), at)
        sizes.append(behind - at)
        return value, behind

    def behind_sized(at: int) -> int:
        size, at = number(at)
        return at + max(size, 0)

    at = 0
    for _ in range(count):
        _, at = number(at)
        _, at = read_number(memoryview(records), at + 1)
        _, at = number(at)
        headers_count, at = number(behind_sized(behind_sized(at)))
        for _ in range(headers_count):
            at = behind_sized(behind_sized(at))
    return max(sizes) > 5
