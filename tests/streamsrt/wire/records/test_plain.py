"""Batches of a single record, which are read and written without aiokafka's codec."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, Headers, decode_batch, encode_batch, read_header
from streamsrt.wire.records.encoding import encode_records
from streamsrt.wire.records.plain import write_plain
from streamsrt.wire.records.quick import READER_ERRORS, DefaultRecordBatch
from tests.streamsrt.wire.records.reference import SLACK, resealed

Found: TypeAlias = tuple[int, bytes | None, bytes | None, int, Headers] | None

sized = st.one_of(st.none(), st.binary(max_size=70), st.sampled_from([63, 64, 8191, 8192]).map(bytes))
times = st.sampled_from([-1, 0, 1, 1_700_000_000_000, 1 << 62])
headers = st.lists(st.tuples(st.sampled_from(["", "h", "ö"]), st.sampled_from([None, b"", b"\x80"])), max_size=2)


def read_quickly(batch: bytes) -> Found:
    """What aiokafka reads; None where it refuses."""
    try:
        records = list(DefaultRecordBatch(memoryview(batch + SLACK)[: len(batch)]))
    except READER_ERRORS:
        return None
    (record,) = records
    time_ms = -1 if record.timestamp is None else record.timestamp
    return record.offset, record.key, record.value, time_ms, tuple(record.headers)


def read_here(batch: bytes) -> Found:
    try:
        columns = decode_batch(batch, verify_crc=False)
    except DecodeError:
        return None
    found = columns.headers[0] if columns.headers else ()
    return columns.offset_at(0), columns.keys[0], columns.values[0], columns.timestamps[0], found


@given(sized, sized, times, headers, st.integers(0, 1 << 40))
def test_single_records_are_read_as_aiokafka_reads_them(
    key: bytes | None, value: bytes | None, time_ms: int, names: list[tuple[str, bytes | None]], offset: int
) -> None:
    batch = encode_batch([key], [value], [time_ms], headers=[tuple(names)], base_offset=offset)
    assert read_here(batch) == read_quickly(batch) == (offset, key, value, time_ms, tuple(names))


@given(
    sized,
    sized,
    st.lists(st.tuples(st.integers(1, 200), st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF])), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_damaged_single_records_are_refused_or_read_alike(
    key: bytes | None, value: bytes | None, damages: list[tuple[int, int]], missing: int
) -> None:
    whole = encode_batch([key], [value], [1_700_000_000_000])
    batch = bytearray(whole[: len(whole) - missing])
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    for at, byte in damages:
        # Not the attributes, which aiokafka takes for a number of any length.
        position = HEADER_SIZE_BYTES + at % (len(batch) - HEADER_SIZE_BYTES)
        if position > HEADER_SIZE_BYTES + 3:
            batch[position] = byte
    damaged = resealed(batch)
    expected = read_quickly(damaged)
    assert read_here(damaged) == expected


@given(sized, sized, times)
def test_single_records_are_written_as_aiokafka_writes_them(
    key: bytes | None, value: bytes | None, time_ms: int
) -> None:
    # Offset deltas in a list are left to aiokafka.
    assert write_plain(key, value, 0, 0) == bytes(encode_records([key], [value], [time_ms], None, [0], time_ms))
    batch = encode_batch([key], [value], [time_ms])
    assert batch == encode_batch([key], [value], [time_ms], offsets=[0])
    assert read_header(batch).max_timestamp == time_ms


ALONE = """
import sys
from streamsrt.wire.records import decode_batch, encode_batch
from streamsrt.wire.murmur2 import PartitionMemo, partition_for_key
columns = decode_batch(encode_batch([b"key"], [b"value"], [5]))
assert (columns.keys, columns.values, columns.timestamps) == ([b"key"], [b"value"], [5])
assert PartitionMemo().partitions([b"key"], 4) == [partition_for_key(b"key", 4)]
print([name for name in ("numpy", "aiokafka", "cramjam") if name in sys.modules])
"""


def test_a_single_record_takes_no_library_for_many() -> None:
    """They are a third of the memory of an instance that has little to do."""
    environment = {**os.environ, "STREAMSRT_PURE": "1"}
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
