"""What a survey says of a batch is what decoding it gives, and it refuses what decoding refuses."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression, TooLargeError
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    decode_batch,
    encode_batch,
    largest_timestamp,
    read_header,
    renumbered_records,
    survey_batch,
)
from streamsrt.wire.records.plain import read_plain
from streamsrt.wire.records.survey import LONG_RECORD_BYTES
from streamsrt.wire.records.uniform import RECORDS_MIN
from tests.coordinator.broker.odd_batches import batch, record, several, sized, varint
from tests.streamsrt.wire.records.reference import resealed

T0 = 1_700_000_000_000

keys = st.one_of(st.none(), st.binary(max_size=9))
rows = st.lists(st.tuples(keys, keys, st.integers(-3, 1 << 50)), min_size=1, max_size=6)


@given(rows, st.sampled_from(Compression), st.booleans(), st.integers(0, 1 << 30), st.integers(0, 255))
def test_a_survey_and_decoding_agree(
    made: list[tuple[bytes | None, bytes | None, int]], codec: Compression, is_damaged: bool, place: int, byte: int
) -> None:
    data = bytearray(encode_batch(*zip(*made, strict=True), compression=codec))
    if is_damaged:
        data[HEADER_SIZE_BYTES + place % (len(data) - HEADER_SIZE_BYTES)] = byte
    check(resealed(data))


@given(rows, st.booleans(), st.integers(0, 1 << 30), st.integers(0, 255))
def test_the_plain_reader_is_as_strict_as_the_quick_one(
    made: list[tuple[bytes | None, bytes | None, int]], is_damaged: bool, place: int, byte: int
) -> None:
    data = bytearray(encode_batch(*zip(*made, strict=True), headers=[(("h", b"v"),)] * len(made)))
    if is_damaged:
        place = HEADER_SIZE_BYTES + place % (len(data) - HEADER_SIZE_BYTES)
        # The quick reader takes the attributes of a record, which nobody uses, for a number of several bytes.
        assume(byte < 0x80 or place not in attributes_of(data))
        data[place] = byte
    whole = resealed(data)
    try:
        columns = decode_batch(whole)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_plain(memoryview(whole), read_header(whole))
        return
    found = read_plain(memoryview(whole), read_header(whole))
    assert [(each.key, each.value, each.timestamp) for each in found] == list(
        zip(columns.keys, columns.values, columns.timestamps, strict=True)
    )


def attributes_of(data: bytearray) -> list[int]:
    """Where they stand, in records with lengths of one byte."""
    found, at = [], HEADER_SIZE_BYTES
    while at < len(data):
        found.append(at + 1)
        at += 1 + (data[at] >> 1)
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("key", [None, b"k"])
def test_long_records(codec: Compression, key: bytes | None) -> None:
    values = [bytes(LONG_RECORD_BYTES), bytes(3 * LONG_RECORD_BYTES)]
    data = encode_batch([key] * 2, values, [T0 + 5, T0], compression=codec)
    check(data)
    if codec is Compression.NONE:
        check(resealed(bytearray(data[:-1] + b"\x02")))


@pytest.mark.parametrize("has_keys", [True, False])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_of_records_of_one_size(codec: Compression, has_keys: bool) -> None:
    count = RECORDS_MIN + 9
    data = encode_batch(
        [b"k%07d" % index if has_keys else None for index in range(count)],
        [b"v" * 20] * count,
        [T0 + random.Random(3).randrange(500) for _ in range(count)],
        compression=codec,
    )
    check(data)


def check(data: bytes) -> None:
    header = read_header(data)
    try:
        columns = decode_batch(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            survey_batch(data, header)
        if header.compression is Compression.NONE:
            with pytest.raises(DecodeError):
                largest_timestamp(data, header)
        return
    found = survey_batch(data, header)
    assert list(found.timestamps) == columns.timestamps
    assert list(found.keyless) == [index for index, key in enumerate(columns.keys) if key is None]
    if header.compression is Compression.NONE:
        assert largest_timestamp(data, header) == max(columns.timestamps)


NO_TEXT = varint(2) + sized(b"\xff\xfe") + sized(b"v") + sized("\u00e9".encode()) + sized(None)


def test_header_keys_that_are_no_text_are_read_as_java_reads_them() -> None:
    data = batch(record(b"a", b"b") + record(None, None, ms=5, offset=1, headers=NO_TEXT), 2, max_ms=T0 + 5)
    columns = decode_batch(data)
    assert (columns.keys, columns.values, columns.timestamps) == ([b"a", None], [b"b", None], [T0, T0 + 5])
    assert columns.headers == [(), (("\ufffd\ufffd", b"v"), ("\u00e9", None))]
    assert decode_batch(data, headers=False).headers is None
    check(data)


@pytest.mark.parametrize("cut", [1, 2, 5, 9, 12])
def test_broken_ones_of_that_kind_are_refused(cut: int) -> None:
    whole = record(headers=NO_TEXT)
    with pytest.raises(DecodeError):
        decode_batch(batch(whole[:-cut]))
    with pytest.raises(DecodeError):
        decode_batch(batch(whole + b"\0" * cut))


@pytest.mark.parametrize(
    ("deltas", "is_in_order"), [((0, 1, 2), True), ((0, 0, 0), False), ((2, 1, 0), False), ((5, 6, 7), False)]
)
def test_offsets_within_a_batch(deltas: tuple[int, ...], is_in_order: bool) -> None:
    data = batch(several(*deltas), 3)
    assert survey_batch(data, read_header(data)).is_in_order is is_in_order
    assert bytes(renumbered_records(data)) == several(0, 1, 2)


def test_what_is_too_large_unpacked_is_told_from_what_is_broken() -> None:
    data = batch(record(b"k", bytes(10_000)), codec=Compression.ZSTD)
    with pytest.raises(TooLargeError):
        survey_batch(data, read_header(data), limit_bytes=9_000)
