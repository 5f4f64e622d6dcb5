from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression
from streamsrt.wire.primitives import DecodeError, EncodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    ControlRecord,
    ControlType,
    CorruptBatchError,
    Headers,
    RecordColumns,
    check_crc,
    decode_batch,
    decode_batches,
    decode_control_batch,
    empty_batch,
    encode_batch,
    encode_control_batch,
    find_timestamp,
    iter_columns,
    iter_headers,
    patch_base_offset,
    read_header,
    rewrite_log_append_time,
    stamp_producer,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, in kafka-python's package
    from kafka.record.memory_records import MemoryRecords

GOLDEN = Path(__file__).parents[2] / "golden" / "batches"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


JAVA = lines("java.jsonl")
DATA = [row for row in JAVA if not row["control"]]
BY_NAME = {row["name"]: bytes.fromhex(row["hex"]) for row in JAVA}
# What compaction or a broker rewrote is not what a producer would write for the same records.
AS_PRODUCED = [
    row
    for row in DATA
    if row["compression"] == "none" and not row["log_append_time"] and not row["name"].startswith("compacted")
]


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def java_headers(row: dict[str, Any]) -> list[Headers]:
    return [tuple((name, unhex(value)) for name, value in record["headers"]) for record in row["records"]]


def java_columns(row: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any], list[Any], list[Headers]]:
    records = row["records"]
    return (
        [unhex(record["key"]) for record in records],
        [unhex(record["value"]) for record in records],
        [record["timestamp"] for record in records],
        [record["offset"] for record in records],
        java_headers(row),
    )


def rows_of(columns: RecordColumns) -> list[tuple[Any, ...]]:
    headers: Sequence[Headers] = columns.headers or [()] * len(columns)
    offsets = map(columns.offset_at, range(len(columns)))
    return list(zip(columns.keys, columns.values, columns.timestamps, offsets, headers, strict=True))


def simple(count: int, base_offset: int = 0, **arguments: Any) -> bytes:
    keys = [b"k%d" % index for index in range(base_offset, base_offset + count)]
    return encode_batch(keys, keys, [1000 + index for index in range(count)], base_offset=base_offset, **arguments)


def resealed(batch: bytes | bytearray) -> bytes:
    """The batch with a CRC that fits its content, so that only the content is wrong."""
    out = bytearray(batch)
    out[8:12] = (len(out) - 12).to_bytes(4, "big")
    out[17:21] = crc32c(memoryview(out)[21:]).to_bytes(4, "big")
    return bytes(out)


# Kafka's own bytes


@pytest.mark.parametrize("row", JAVA, ids=lambda row: row["name"])
def test_the_header_is_what_kafka_reads(row: dict[str, Any]) -> None:
    header = read_header(bytes.fromhex(row["hex"]))
    assert {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "next_offset": header.next_offset,
        "size_bytes": header.size_bytes,
        "compression": header.compression.type_name,
        "log_append_time": header.is_log_append_time,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "leader_epoch": header.partition_leader_epoch,
        "records_count": header.records_count,
        "delete_horizon_ms": header.delete_horizon_ms,
    } == {name: row[name] for name in row if name not in ("name", "records", "hex")} | {
        "records_count": len(row["records"]),
        "delete_horizon_ms": 1_800_086_400_000 if "horizon" in row["name"] else None,
    }


@pytest.mark.parametrize("row", DATA, ids=lambda row: row["name"])
def test_records_are_what_kafka_reads(row: dict[str, Any]) -> None:
    columns = decode_batch(bytes.fromhex(row["hex"]))
    assert rows_of(columns) == list(zip(*java_columns(row), strict=True))
    assert columns.base_offset == row["base_offset"]
    assert columns.next_offset == row["next_offset"]
    assert (columns.headers is None) == (not any(java_headers(row)))
    assert (columns.offsets is None) == (not row["name"].startswith("compacted"))


@pytest.mark.parametrize("row", AS_PRODUCED, ids=lambda row: row["name"])
def test_records_are_written_as_kafka_writes_them(row: dict[str, Any]) -> None:
    keys, values, timestamps, offsets, headers = java_columns(row)
    for given_offsets in (None, offsets):
        written = encode_batch(
            keys,
            values,
            timestamps,
            headers=headers,
            base_offset=row["base_offset"],
            producer_id=row["producer_id"],
            producer_epoch=row["producer_epoch"],
            base_sequence=row["base_sequence"],
            transactional=row["transactional"],
            partition_leader_epoch=row["leader_epoch"],
            offsets=given_offsets,
        )
        assert written.hex() == row["hex"]


@pytest.mark.parametrize("name", ["compacted", "compacted, with a delete horizon"])
def test_a_compacted_batch_is_written_as_kafka_writes_it(name: str) -> None:
    row = next(row for row in JAVA if row["name"] == name)
    keys, values, timestamps, offsets, headers = java_columns(row)
    written = encode_batch(
        keys,
        values,
        timestamps,
        headers=headers,
        base_offset=row["base_offset"],
        offsets=offsets,
        last_offset=row["last_offset"],
        producer_id=row["producer_id"],
        producer_epoch=row["producer_epoch"],
        base_sequence=row["base_sequence"],
        partition_leader_epoch=row["leader_epoch"],
        delete_horizon_ms=1_800_086_400_000 if "horizon" in name else None,
    )
    assert written.hex() == row["hex"]


def test_an_emptied_batch_is_written_as_kafka_writes_it() -> None:
    batch = BY_NAME["compacted to nothing"]
    header = read_header(batch)
    full = header._replace(attributes=Compression.ZSTD, batch_length=5000, records_count=30, base_timestamp=5)
    assert empty_batch(full) == batch
    assert len(decode_batch(batch)) == 0


@pytest.mark.parametrize(
    ("name", "kind", "epoch"), [("commit", ControlType.COMMIT, 9), ("abort", ControlType.ABORT, 10)]
)
def test_the_end_of_a_transaction(name: str, kind: ControlType, epoch: int) -> None:
    batch = BY_NAME[name]
    control = decode_control_batch(batch)
    assert control == ControlRecord(kind, 4711, 3, epoch)
    header = read_header(batch)
    assert (
        encode_control_batch(
            control, timestamp_ms=header.max_timestamp, base_offset=header.base_offset, partition_leader_epoch=5
        )
        == batch
    )


@pytest.mark.parametrize("row", lines("recorded.jsonl"), ids=lambda row: row["api"])
def test_batches_off_the_wire_are_written_back_byte_for_byte(row: dict[str, Any]) -> None:
    batch = bytes.fromhex(row["hex"])
    header = read_header(batch)
    columns = decode_batch(batch)
    written = encode_batch(
        columns.keys,
        columns.values,
        columns.timestamps,
        base_offset=header.base_offset,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=header.partition_leader_epoch,
    )
    assert written == batch


# Other readers and writers

nullable = st.one_of(st.none(), st.binary(max_size=20))
record_headers = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple)
timestamp = st.one_of(st.just(-1), st.integers(0, 2**41))
records = st.lists(st.tuples(nullable, nullable, timestamp, record_headers), min_size=1, max_size=30)


@given(
    records,
    st.sampled_from(Compression),
    st.integers(0, 2**50),
    st.integers(-1, 2**60),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.booleans(),
)
def test_what_goes_in_comes_out(
    rows: list[tuple[Any, ...]],
    compression: Compression,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
) -> None:
    keys, values, timestamps, headers = map(list, zip(*rows, strict=True))
    batch = encode_batch(
        keys,
        values,
        timestamps,
        headers=headers,
        compression=compression,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert header[8:] == (max(timestamps), producer_id, producer_epoch, base_sequence, len(rows))
    assert (header.compression, header.is_transactional, header.is_control) == (compression, transactional, False)
    columns = decode_batch(batch)
    offsets = range(base_offset, base_offset + len(rows))
    assert rows_of(columns) == list(zip(keys, values, timestamps, offsets, headers, strict=True))
    assert (columns.headers is None) == (not any(headers))
    without = decode_batch(batch, headers=False)
    assert (without.keys, without.values, without.timestamps) == (keys, values, timestamps)
    assert without.headers is None


@given(records, st.sampled_from(Compression))
@settings(max_examples=50)
def test_aiokafka_reads_what_is_written(rows: list[tuple[Any, ...]], compression: Compression) -> None:
    keys, values, timestamps, headers = map(list, zip(*rows, strict=True))
    theirs = DefaultRecordBatch(encode_batch(keys, values, timestamps, headers=headers, compression=compression))
    assert theirs.validate_crc()
    assert [
        (one.key, one.value, -1 if one.timestamp is None else one.timestamp, tuple(one.headers), one.offset)
        for one in theirs
    ] == [(*row, index) for index, row in enumerate(rows)]


@given(records, st.sampled_from([0, 1, 2, 3, 4]))
@settings(max_examples=50)
def test_what_aiokafka_writes_is_read(rows: list[tuple[Any, ...]], codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 1, 77, 5, 9, 1 << 20)
    for index, (key, value, _, headers) in enumerate(rows):
        builder.append(index, 5000 + index, key, value, list(headers))
    batch = bytes(builder.build())
    assert rows_of(decode_batch(batch)) == [
        (key, value, 5000 + index, index, headers) for index, (key, value, _, headers) in enumerate(rows)
    ]
    assert read_header(batch)[9:] == (77, 5, 9, len(rows))


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_kafka_python_reads_what_is_written(compression: Compression) -> None:
    keys: list[bytes | None] = [b"key %d" % index for index in range(500)]
    batch = encode_batch(keys, keys, list(range(500)), compression=compression)
    theirs = MemoryRecords(batch).next_batch()
    assert theirs.validate_crc()
    assert [(one.key, one.value, one.timestamp) for one in theirs] == list(zip(keys, keys, range(500), strict=True))


def test_without_the_extension_the_bytes_are_the_same(tmp_path: Path) -> None:
    """aiokafka has a pure Python codec for platforms without wheels."""
    program = """if True:
        import json, sys
        from aiokafka.util import NO_EXTENSIONS
        from streamsrt.wire.records import decode_batch, encode_batch, read_header
        assert NO_EXTENSIONS
        for line in open(sys.argv[1], encoding="utf-8"):
            row = json.loads(line)
            batch = bytes.fromhex(row["hex"])
            header, columns = read_header(batch), decode_batch(batch)
            assert columns.timestamps == [record["timestamp"] for record in row["records"]], row["name"]
            assert [key and key.hex() for key in columns.keys] == [record["key"] or columns.keys[i]
                for i, record in enumerate(row["records"])], row["name"]
            if header.attributes & ~16 == 0 and columns.offsets is None:
                written = encode_batch(columns.keys, columns.values, columns.timestamps, headers=columns.headers,
                    base_offset=header.base_offset, producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch, base_sequence=header.base_sequence,
                    transactional=header.is_transactional, partition_leader_epoch=header.partition_leader_epoch)
                assert written == batch, row["name"]
                print(row["name"])
    """
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(GOLDEN / "java.jsonl")],
        env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == len(AS_PRODUCED)


# Headers and checksums


def test_headers_of_a_fetch_answer_end_before_a_cut_off_batch() -> None:
    whole = simple(2, 10) + simple(3, 12) + simple(1, 15)
    first, second = len(simple(2, 10)), len(simple(3, 12))
    for size in range(len(whole) + 1):
        found = [position for position, _ in iter_headers(whole[:size])]
        assert found == [
            start for start, end in ((0, first), (first, first + second), (first + second, len(whole))) if end <= size
        ]


def test_a_header_can_be_read_without_the_records() -> None:
    batch = simple(3, 5)
    assert read_header(b"xx" + batch[:HEADER_SIZE_BYTES], 2) == read_header(batch)
    with pytest.raises(DecodeError, match="60 are left"):
        read_header(batch[: HEADER_SIZE_BYTES - 1])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("magic", 1, "format version 1"),
        ("batch_length", 48, "length of 48"),
        ("batch_length", -1, "length of -1"),
        ("records_count", -1, "claims -1 records"),
        ("records_count", 4, "claims 4 records"),
        ("last_offset_delta", -1, "last offset delta of -1"),
    ],
)
def test_absurd_headers_are_refused(field: str, value: int, message: str) -> None:
    layout = {"batch_length": (8, 4), "magic": (16, 1), "last_offset_delta": (23, 4), "records_count": (57, 4)}
    batch = bytearray(simple(3))
    position, size = layout[field]
    batch[position : position + size] = value.to_bytes(size, "big", signed=True)
    with pytest.raises(DecodeError, match=message):
        read_header(batch)
    with pytest.raises(DecodeError, match=message):
        list(iter_headers(batch))


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    batch = BY_NAME["one"]
    for position in range(17, len(batch)):
        for bit in range(8):
            broken = bytearray(batch)
            broken[position] ^= 1 << bit
            with pytest.raises(DecodeError):
                decode_batch(broken)
            if not 23 <= position < 27 and not 57 <= position < 61:
                with pytest.raises(CorruptBatchError, match="its header says"):
                    check_crc(broken, 0, read_header(broken))


def test_the_broker_sets_offset_and_leader_epoch_outside_the_crc() -> None:
    batch = simple(3)
    patched = patch_base_offset(batch, 1 << 40, 7) + batch[16:]
    assert read_header(patched)[:3] == (1 << 40, len(batch) - 12, 7)
    columns = decode_batch(patched)
    assert (columns.base_offset, columns.next_offset) == (1 << 40, (1 << 40) + 3)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_log_append_time_is_every_records_timestamp(compression: Compression) -> None:
    batch = rewrite_log_append_time(simple(3, 5, compression=compression), 9999)
    header = read_header(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == 9999
    columns = decode_batch(batch)
    assert columns.timestamps == [9999] * 3
    assert columns.values == [b"k5", b"k6", b"k7"]


def test_an_encoded_batch_gets_its_place_in_the_sequence_later() -> None:
    stamped = stamp_producer(simple(3, transactional=True), 12, 1, 2**31 - 2)
    assert stamped == simple(3, transactional=True, producer_id=12, producer_epoch=1, base_sequence=2**31 - 2)
    assert read_header(stamped).last_sequence == 0


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_stamped_batch_is_whole_and_nothing_else(compression: Compression, kind: Callable[[bytes], Any]) -> None:
    batch = bytes(simple(3, 5, compression=compression))
    stamped = stamp_producer(kind(batch + b"more"), 12, 1, 7)
    check_crc(stamped, 0, read_header(stamped))
    sequence = {"producer_id": 12, "producer_epoch": 1, "base_sequence": 7}
    assert read_header(stamped) == read_header(batch)._replace(**sequence, crc=read_header(stamped).crc)
    assert stamped[HEADER_SIZE_BYTES:] == batch[HEADER_SIZE_BYTES:]
    with pytest.raises(DecodeError, match="are left"):
        stamp_producer(kind(batch[:-1]), 12, 1, 7)


def test_the_last_sequence_wraps() -> None:
    assert read_header(simple(3, producer_id=1, base_sequence=2**31 - 1)).last_sequence == 1
    assert read_header(simple(3)).last_sequence == -1


# Fetch answers


def test_records_below_the_asked_offset_are_cut_off() -> None:
    answer = simple(3, 10) + simple(3, 13)
    assert [rows_of(one) for one in decode_batches(answer, from_offset=10)] == [
        rows_of(decode_batch(simple(3, 10))),
        rows_of(decode_batch(simple(3, 13))),
    ]
    (first, second) = decode_batches(answer, from_offset=12)
    assert (first.keys, first.base_offset, first.next_offset) == ([b"k12"], 12, 13)
    assert len(second) == 3
    (only,) = decode_batches(answer, from_offset=14)
    assert (only.keys, only.base_offset, only.next_offset) == ([b"k14", b"k15"], 14, 16)


def test_compacted_records_are_cut_by_their_offsets() -> None:
    batch = BY_NAME["compacted"]
    kept = decode_batch(batch).offsets
    assert kept is not None
    for from_offset in range(198, 230):
        (columns,) = decode_batches(batch, from_offset=from_offset)
        assert [columns.offset_at(index) for index in range(len(columns))] == [o for o in kept if o >= from_offset]
        assert columns.next_offset == 230


def test_a_cut_off_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    answer = simple(2, 0) + simple(2, 2)[:-1]
    (columns,) = decode_batches(answer)
    assert columns.next_offset == 2
    assert decode_batches(simple(2)[:-1]) == []
    assert decode_batches(b"") == []


def marker(kind: ControlType, offset: int, producer_id: int) -> bytes:
    return encode_control_batch(ControlRecord(kind, producer_id, 0, 1), timestamp_ms=5, base_offset=offset)


def in_transaction(count: int, offset: int, producer_id: int) -> bytes:
    return simple(count, offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def test_control_batches_move_the_position_and_nothing_else() -> None:
    answer = in_transaction(2, 0, 1) + marker(ControlType.COMMIT, 2, 1) + simple(2, 3) + marker(ControlType.ABORT, 5, 9)
    columns = decode_batches(answer)
    assert [(one.base_offset, len(one), one.next_offset) for one in columns] == [(0, 2, 3), (3, 2, 6)]
    (nothing,) = decode_batches(marker(ControlType.COMMIT, 7, 1))
    assert (len(nothing), nothing.base_offset, nothing.next_offset) == (0, 8, 8)


def test_aborted_transactions_are_left_out_for_read_committed() -> None:
    answer = b"".join(
        [
            in_transaction(1, 0, 1),  # aborted
            in_transaction(1, 1, 2),  # committed
            simple(1, 2, producer_id=1, producer_epoch=0, base_sequence=5),  # outside of any transaction
            in_transaction(1, 3, 1),  # aborted
            marker(ControlType.ABORT, 4, 1),
            marker(ControlType.COMMIT, 5, 2),
            in_transaction(1, 6, 1),  # committed
            marker(ControlType.COMMIT, 7, 1),
            in_transaction(1, 8, 1),  # aborted
            marker(ControlType.ABORT, 9, 1),
        ]
    )
    aborted = [(1, 8), (1, 0)]
    committed = decode_batches(answer, aborted=aborted)
    assert [one.base_offset for one in committed] == [1, 2, 6]
    assert committed[-1].next_offset == 10
    assert [one.base_offset for one in decode_batches(answer)] == [0, 1, 2, 3, 6, 8]
    assert [one.base_offset for one in decode_batches(answer, aborted=[])] == [0, 1, 2, 3, 6, 8]
    assert [one.base_offset for one in decode_batches(answer, from_offset=3, aborted=aborted)] == [6]


def test_a_position_never_goes_back() -> None:
    (nothing,) = decode_batches(simple(2, 0), from_offset=50)
    assert (len(nothing), nothing.next_offset) == (0, 50)


def test_batches_are_decoded_in_turn() -> None:
    answer = bytearray(in_transaction(2, 0, 1) + marker(ControlType.COMMIT, 2, 1) + simple(2, 3))
    answer[-1] ^= 1
    columns = iter_columns(answer)
    first = next(columns)
    assert (first.keys, first.next_offset) == ([b"k0", b"k1"], 3)
    with pytest.raises(CorruptBatchError):
        next(columns)


# Columns


@given(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 12)), st.booleans())
def test_a_cut_is_the_records_between(start: int, stop: int | None, compacted: bool) -> None:
    offsets = [3, 4, 8, 9, 15, 16, 17, 20, 22, 29] if compacted else list(range(3, 13))
    headers: list[Headers] = [(("n", b"%d" % offset),) for offset in offsets]
    keys: list[bytes | None] = [b"%d" % offset for offset in offsets]
    batch = encode_batch(
        keys, keys, offsets, headers=headers, base_offset=3, offsets=offsets, last_offset=30 if compacted else None
    )
    columns = decode_batch(batch)
    part = columns.cut(start, stop)
    assert rows_of(part) == rows_of(columns)[start:stop]
    end = len(offsets) if stop is None else min(stop, len(offsets))
    assert part.next_offset == (columns.next_offset if end == len(offsets) else offsets[end])
    if len(part):
        assert part.base_offset == offsets[start]
    else:
        assert part.base_offset == part.next_offset


def test_the_first_record_at_or_after_a_time() -> None:
    batch = encode_batch([None] * 4, [None] * 4, [100, 300, 200, 400], base_offset=50)
    assert find_timestamp(b"pad" + batch, 3, 0) == (50, 100)
    assert find_timestamp(batch, 0, 150) == (51, 300)
    assert find_timestamp(batch, 0, 150, from_offset=52) == (52, 200)
    assert find_timestamp(batch, 0, 400) == (53, 400)
    assert find_timestamp(batch, 0, 401) is None
    assert find_timestamp(batch, 0, 100, from_offset=54) is None


# What a caller may not ask for


def test_columns_are_of_one_length() -> None:
    one: list[bytes | None] = [b"a"]
    two: list[bytes | None] = [b"a", b"b"]
    for arguments in ((two, one, [1, 2]), (one, two, [1]), (two, two, [1])):
        with pytest.raises(EncodeError, match="unequal length"):
            encode_batch(*arguments)
    with pytest.raises(EncodeError, match="unequal length"):
        encode_batch(one, one, [1], headers=[])
    with pytest.raises(EncodeError, match="unequal length"):
        encode_batch(one, one, [1], offsets=[1, 2])


def test_offsets_lie_within_the_batch() -> None:
    one: list[bytes | None] = [b"a"]
    with pytest.raises(EncodeError, match="offsets"):
        encode_batch(one, one, [1], base_offset=5, offsets=[4])
    with pytest.raises(EncodeError, match="offsets"):
        encode_batch(one, one, [1], base_offset=5, offsets=[7], last_offset=6)


def test_a_batch_has_records() -> None:
    with pytest.raises(EncodeError, match="empty_batch"):
        encode_batch([], [], [])


@pytest.mark.parametrize(
    ("key", "value", "time"), [("text", b"", 1), (b"", 5, 1), (b"", b"", "now"), (b"", b"", 1 << 70)]
)
def test_records_are_made_of_bytes(key: Any, value: Any, time: Any) -> None:
    with pytest.raises(EncodeError):
        encode_batch([key], [value], [time])
    with pytest.raises(EncodeError):
        encode_batch([b""], [b""], [1], headers=[(("name", key or value), (5, b""))])  # type: ignore[list-item]


def test_numbers_fit_their_fields() -> None:
    with pytest.raises(EncodeError, match="can't be written"):
        simple(1, producer_id=1, base_sequence=1 << 31)


def test_only_ends_of_transactions_are_written() -> None:
    with pytest.raises(EncodeError, match="COMMIT and ABORT"):
        encode_control_batch(ControlRecord(ControlType.UNKNOWN, 1, 1, 1), timestamp_ms=1)


# Hostile bytes


@pytest.mark.parametrize("name", ["headers", "none plain", "gzip plain", "snappy headers", "lz4 plain", "zstd headers"])
def test_truncation_is_refused_wherever_it_happens(name: str) -> None:
    batch = BY_NAME[name]
    for size in range(len(batch)):
        with pytest.raises(DecodeError):
            decode_batch(batch[:size], verify_crc=False)


def test_a_batch_that_ends_early_is_refused_though_its_length_and_crc_fit() -> None:
    batch = BY_NAME["headers"]
    for size in range(HEADER_SIZE_BYTES, len(batch)):
        with pytest.raises(DecodeError, match=r"claims 10 records|broken records"):
            decode_batch(resealed(batch[:size]))


def test_more_or_fewer_records_than_claimed_are_refused() -> None:
    for count in (9, 8, 1, 0):
        batch = bytearray(BY_NAME["headers"])
        batch[57:61] = count.to_bytes(4, "big")
        with pytest.raises(DecodeError, match="broken records"):
            decode_batch(resealed(batch))
    batch[23:27] = batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(DecodeError, match="claims 2147483647 records"):
        decode_batch(resealed(batch))


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(simple(2))
    batch[22] |= 5
    with pytest.raises(DecodeError, match="unknown compression 5"):
        decode_batch(resealed(batch))


def test_decompressed_records_are_limited() -> None:
    batch = encode_batch([None], [bytes(1_000_000)], [1], compression=Compression.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(DecodeError, match="limit"):
        decode_batch(batch, limit_bytes=500_000)


@pytest.mark.parametrize("offsets", [[0, 0], [1, 0], [0, 7]])
def test_offsets_of_a_compacted_batch_rise_within_it(offsets: list[int]) -> None:
    header = BatchHeader(0, 0, -1, 2, 0, 0, 5, 0, 0, -1, -1, -1, 2)
    batch = bytearray(encode_batch([b"a"] * 2, [b"b"] * 2, [0, 0], last_offset=header.last_offset_delta))
    record = len(batch) - HEADER_SIZE_BYTES >> 1
    for index, offset in enumerate(offsets):
        batch[HEADER_SIZE_BYTES + index * record + 3] = offset << 1
    with pytest.raises(DecodeError, match="holds offset"):
        decode_batch(resealed(batch))


@given(st.sampled_from(sorted(BY_NAME)), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=5))
@settings(max_examples=400)
def test_changed_records_decode_or_are_refused(name: str, changes: list[tuple[int, int]]) -> None:
    batch = bytearray(BY_NAME[name])
    for position, value in changes:
        batch[21 + position % (len(batch) - 21)] = value
    with contextlib.suppress(DecodeError):
        assert len(decode_batch(resealed(batch), limit_bytes=1 << 20)) <= len(batch) * 100
    with contextlib.suppress(DecodeError):
        decode_batches(resealed(batch), aborted=[(4711, 0)], limit_bytes=1 << 20)


@given(st.binary(max_size=60), st.integers(0, 5), st.integers(0, 3))
@settings(max_examples=300)
def test_noise_decodes_or_is_refused(noise: bytes, count: int, spare: int) -> None:
    header = BatchHeader(7, 49 + len(noise), 0, 2, 0, 0, count + spare, 0, 0, -1, -1, -1, count)
    batch = resealed(empty_batch(header)[:57] + count.to_bytes(4, "big") + noise)
    for form in (batch, bytearray(batch), memoryview(batch), batch + b"\x81" * 40):
        with contextlib.suppress(DecodeError):
            assert len(decode_batch(form)) == count


@pytest.mark.parametrize("length", [1 << 62, (1 << 63) - 1, (1 << 63) - 40, -(1 << 63)])
def test_lengths_beyond_all_memory_are_refused(length: int) -> None:
    zigzag = (length << 1 ^ length >> 63) & (1 << 64) - 1
    varint = b"".join(bytes([zigzag >> shift & 127 | (128 if zigzag >> shift + 7 else 0)]) for shift in range(0, 70, 7))
    header = BatchHeader(7, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
    one = empty_batch(header)[:57] + (1).to_bytes(4, "big")
    for record in (b"\x00\x00\x00" + varint, b"\x00\x00\x00\x01" + varint, b"\x00\x00\x00\x01\x01\x02" + varint):
        for size in (len(record) << 1, len(record) + 9 << 1):
            with pytest.raises(DecodeError, match="broken records"):
                decode_batch(resealed(one + bytes([size]) + record + b"padding.."))


def test_the_reader_stays_within_the_buffer() -> None:
    """A batch right before a page that must not be touched, its last varint cut off."""
    program = """if True:
        import ctypes, mmap, sys
        from streamsrt.wire.primitives import DecodeError
        from streamsrt.wire.records import decode_batch
        batch = bytes.fromhex(sys.argv[1])
        page = mmap.PAGESIZE
        pages = mmap.mmap(-1, 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
        view = memoryview(pages)[page - len(batch) : page]
        view[:] = batch
        try:
            decode_batch(view)
        except DecodeError as error:
            print(error)
        sys.stdout.flush()
        import os
        os._exit(0)
    """
    # A record with headers whose count, or whose first name's length, is a varint without an end.
    for tail in (b"\x02\x81", b"\x02\x02a\x81", b"\x81"):
        body = b"\x00\x00\x00\x01\x01" + tail
        noise = bytes([len(body) + 3 << 1]) + body
        header = BatchHeader(7, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
        batch = resealed(empty_batch(header)[:57] + (1).to_bytes(4, "big") + noise)
        result = subprocess.run(
            [sys.executable, "-c", program, batch.hex()], capture_output=True, text=True, timeout=60, check=False
        )
        assert result.returncode == 0, result.stderr
        assert "broken records" in result.stdout
