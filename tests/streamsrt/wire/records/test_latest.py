"""The quick look at simple batches says what reading them says, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    decode_batch,
    encode_batch,
    largest_of_simple,
    read_header,
    rewrite_log_append_time,
)
from streamsrt.wire.records.latest import EQUAL_MAX, EQUAL_MIN
from tests.coordinator.broker.odd_batches import batch, record, several
from tests.streamsrt.wire.records.reference import resealed

T0 = 1_700_000_000_000

counts = st.one_of(st.just(1), st.integers(EQUAL_MIN, 4 * EQUAL_MIN), st.sampled_from([500, EQUAL_MAX]))
sizes = st.sampled_from([None, 0, 1, 50, 51, 54, 55, 56, 57, 63, 64, 130, 8190])


def filled(size: int | None) -> bytes | None:
    return None if size is None else b"\1" * size


def simple(count: int, key_size: int | None, value_size: int | None, times: list[int]) -> bytes:
    return encode_batch([filled(key_size)] * count, [filled(value_size)] * count, times)


def largest(data: bytes) -> int | None:
    found = largest_of_simple(data, read_header(data))
    for other in (memoryview(data), bytearray(data)):
        assert largest_of_simple(other, read_header(data)) == found
    return found


@given(counts, sizes, sizes, st.lists(st.integers(-64, 63), max_size=20))
@settings(max_examples=60)
def test_simple_batches_are_known(count: int, key_size: int | None, value_size: int | None, more: list[int]) -> None:
    times = [T0, *(T0 + each for each in more[: count - 1])]
    times += [T0] * (count - len(times))
    assert largest(simple(count, key_size, value_size, times)) == max(times)


@given(
    st.one_of(st.just(1), st.integers(EQUAL_MIN, 100)),
    st.sampled_from([None, 0, 1, 5, 70]),
    st.sampled_from([None, 0, 1, 50]),
    st.lists(st.tuples(st.one_of(st.integers(0, 20), st.integers(0, 1 << 20)), st.integers(0, 255)), max_size=2),
    st.integers(0, 2),
)
@settings(max_examples=300)
def test_of_damaged_ones_it_says_what_reading_says_or_nothing(
    count: int, key_size: int | None, value_size: int | None, changes: list[tuple[int, int]], missing: int
) -> None:
    whole = bytearray(simple(count, key_size, value_size, [T0] * count))
    data = whole[: len(whole) - missing]
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    for position, value in changes:
        data[HEADER_SIZE_BYTES + position % (len(data) - HEADER_SIZE_BYTES)] = value
    check(resealed(data))


@pytest.mark.parametrize("count", [1, EQUAL_MIN, 70])
@pytest.mark.parametrize("sizes", [(None, 3), (2, 3), (2, None), (70, 200)])
def test_every_byte_of_a_batch_matters(count: int, sizes: tuple[int | None, int | None]) -> None:
    whole = simple(count, *sizes, [T0] * count)
    places = {*range(HEADER_SIZE_BYTES, HEADER_SIZE_BYTES + 90), *range(len(whole) - 90, len(whole))}
    for place in sorted(place for place in places if HEADER_SIZE_BYTES <= place < len(whole)):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF, whole[place] ^ 1, whole[place] ^ 0x80):
            data = bytearray(whole)
            data[place] = byte
            check(resealed(data))


def check(data: bytes) -> None:
    found = largest(data)
    if found is None:
        return
    try:
        columns = decode_batch(data)
    except DecodeError as error:
        raise AssertionError("a batch that can't be read passed") from error
    assert found == max(columns.timestamps)
    assert columns.headers is None


@pytest.mark.parametrize(
    "data",
    [
        encode_batch([None, b""] * EQUAL_MIN, [b"v"] * (2 * EQUAL_MIN), [T0] * (2 * EQUAL_MIN)),
        encode_batch([None] * 5, [b"v"] * 5, [T0] * 5),
        encode_batch([None] * (EQUAL_MAX + 1), [b"v"] * (EQUAL_MAX + 1), [T0] * (EQUAL_MAX + 1)),
        encode_batch([None] * EQUAL_MIN, [b"v"] * EQUAL_MIN, [T0, *[T0 + 64] * (EQUAL_MIN - 1)]),
        encode_batch([None], [b"v"], [T0], headers=[(("h", b"v"),)]),
        rewrite_log_append_time(encode_batch([None], [b"v"], [T0]), T0),
        batch(record(b"k", b"v", offset=1)),
        batch(several(*[0] * EQUAL_MIN), EQUAL_MIN),
        batch(b"\xff" * 90),
        batch(b"\x01"),
    ],
    ids=["sizes", "few", "many", "late", "headers", "broker's time", "offset", "offsets", "noise", "no record"],
)
def test_other_batches_are_left_to_the_codec(data: bytes) -> None:
    assert largest(data) is None
