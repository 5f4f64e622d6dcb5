from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Headers,
    decode_batch,
    encode_batch,
    read_header,
    rewrite_log_append_time,
)
from streamsrt.wire.records.small import RECORDS_MIN, read_small
from tests.streamsrt.wire.records.reference import Columns, check_damaged, check_whole, read_one_by_one, resealed

T0 = 1_700_000_000_000
COUNT = RECORDS_MIN + 40

Items = list[bytes | None]


def small(batch: bytes) -> Columns | None:
    header = read_header(batch)
    found = read_small(memoryview(batch)[HEADER_SIZE_BYTES:], header.records_count, header.base_timestamp)
    if found is None:
        return None
    keys, values, times = found
    return keys, values, times.tolist()


def texts(seed: int, count: int = COUNT, shortest: int = 1, longest: int = 9) -> Items:
    chance = random.Random(seed)
    return ["".join(chance.choices("abcdefgh", k=chance.randint(shortest, longest))).encode() for _ in range(count)]


def times_of(count: int = COUNT, step_ms: int = 1) -> list[int]:
    return [T0 + index // 12 * step_ms for index in range(count)]


steps = st.sampled_from([0, 1, 40, 9000, 5_000_000, -1, -70])
changes = st.lists(
    st.tuples(
        st.integers(0, COUNT - 1),
        st.sampled_from([None, b"", b"\0", b"word\0", b"\0word", b"a\0b", b"\0\x0c\0", b"\x01", b"x\x01", b"y" * 70]),
    ),
    max_size=2,
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Batches of small texts, or nearly so."""
    times = times_of(step_ms=draw(steps))
    for index in draw(st.lists(st.integers(0, COUNT - 1), max_size=2)):
        times[index] += draw(st.integers(-100, 10_000))
    keys = texts(draw(st.integers(0, 9)), longest=draw(st.sampled_from([1, 7, 8, 9, 20])))
    others = [texts(3), [None] * COUNT, [b""] * COUNT, keys.copy(), keys.copy()]
    values: Items = draw(st.sampled_from(others))
    for items in (keys, values):
        for index, item in draw(changes):
            items[index] = item
    headers: list[Headers] | None = None
    if draw(st.booleans()):
        headers = [()] * COUNT
        headers[draw(st.integers(0, COUNT - 1))] = draw(
            st.sampled_from([(), (("", None),), (("", b""),), (("name", b"value"),)])
        )
    return encode_batch(keys, values, times, headers=headers)


@given(batches())
@settings(max_examples=60)
def test_small_or_not_the_records_are_the_same(batch: bytes) -> None:
    check_whole(small, batch)


@given(
    batches(),
    st.lists(
        st.tuples(st.one_of(st.integers(0, 40), st.integers(-20, -1), st.integers(0, 1 << 20)), st.integers(0, 255)),
        max_size=4,
    ),
    st.integers(0, 3),
)
@settings(max_examples=150)
def test_what_is_damaged_is_read_as_records_one_by_one_or_not_at_all(
    whole: bytes, damages: list[tuple[int, int]], missing: int
) -> None:
    check_damaged(small, whole, damages, missing)


@pytest.mark.parametrize("index", [0, 1, 500])
def test_attributes_that_are_no_number_of_one_byte_are_left_to_others(index: int) -> None:
    batch = encode_batch(texts(1), texts(2), times_of())
    at = sum((len(key or b"") + len(value or b"") for key, value in list(zip(texts(1), texts(2), strict=True))[:index]))
    assert small(batch) is not None
    check_damaged(small, batch, [(at, 0x80), (1, 0x80)], 0)


# Lengths lead from record to record, and a zero stands on either side of each: what is between them is noise.
noise = st.lists(
    st.lists(st.one_of(st.sampled_from([0, 1, 2, 4, 0x80, 0xFF]), st.integers(0, 255)), min_size=4, max_size=12),
    min_size=1,
    max_size=3,
)


@given(noise)
@settings(max_examples=100)
def test_noise_of_fitting_lengths_is_read_as_records_one_by_one_or_not_at_all(between: list[list[int]]) -> None:
    batch = bytearray(encode_batch(texts(1), texts(2), times_of())[:HEADER_SIZE_BYTES])
    good = encode_batch(texts(1), texts(1), times_of())[HEADER_SIZE_BYTES:]
    position = 0
    for index in range(COUNT):
        size = (good[position] >> 1) + 1
        record = good[position : position + size]
        if index % 400 < len(between):
            middle = bytes(between[index % 400])
            record = bytes((len(middle) + 2 << 1, 0)) + middle + b"\0"
        batch += record
        position += size
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    sealed = resealed(batch)
    found = small(sealed)
    assert found is None or found == read_one_by_one(sealed)


@pytest.mark.parametrize("step_ms", [0, 1, 70, 200_000, -70])
@pytest.mark.parametrize("longest", [3, 8, 17, 25])
def test_small_texts_of_many_sizes_are_read(step_ms: int, longest: int) -> None:
    keys, values, times = texts(1, longest=9), texts(2, longest=longest), times_of(step_ms=step_ms)
    assert small(encode_batch(keys, values, times)) == (keys, values, times)


def test_a_few_places_that_look_like_records_do_no_harm() -> None:
    keys, values = texts(1), texts(2)
    for index in (1, 300, COUNT - 1):
        keys[index], values[index] = b"a\0\x0c\0b", b"\0\x10\0"
    assert small(encode_batch(keys, values, times_of())) == (keys, values, times_of())
    chance = random.Random(1)
    keys = [chance.randbytes(chance.randint(2, 16)) for _ in keys]
    assert small(encode_batch(keys, values, times_of())) == (keys, values, times_of())


def test_keys_that_are_their_values_are_made_once() -> None:
    words = texts(1)
    found = small(encode_batch(words, words, times_of()))
    assert found is not None
    assert found == (words, words, times_of())
    assert all(key is value for key, value in zip(found[0], found[1], strict=True))
    assert found[0] is not found[1]


@pytest.mark.parametrize("key", [None, b"", b"a\0", b"a\0b", b"ab\x01"])
def test_a_key_that_is_nearly_its_value_stays_what_it_is(key: bytes | None) -> None:
    words = texts(1)
    keys = words.copy()
    for index in (0, 500, COUNT - 1):
        keys[index] = key
    assert small(encode_batch(keys, words, times_of())) == (keys, words, times_of())


def test_nulls_and_empty_bytes_are_told_apart() -> None:
    keys: Items = [None, *texts(1, COUNT - 1)]
    nothing: Items = [None if index % 7 else b"" for index in range(COUNT)]
    values = texts(2)
    assert small(encode_batch(keys, nothing, times_of(step_ms=50))) == (keys, nothing, times_of(step_ms=50))
    assert small(encode_batch([None] * COUNT, values, times_of())) == ([None] * COUNT, values, times_of())


@pytest.mark.parametrize("at", [0, 1, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize("header", [("", None), ("", b""), ("name", b"value")])
def test_one_record_with_headers_is_enough_to_leave_the_batch(at: int, header: tuple[str, bytes | None]) -> None:
    words = texts(1)
    headers: list[Headers] = [()] * COUNT
    headers[at] = (header,)
    batch = encode_batch(words, words, times_of(), headers=headers)
    assert small(batch) is None
    assert decode_batch(batch).headers == headers


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        (texts(1, RECORDS_MIN - 1), texts(2, RECORDS_MIN - 1)),
        (texts(1), texts(2, longest=200)),
        (texts(1), [index.to_bytes(8, "big") for index in range(COUNT)]),
        (texts(1, 9000), texts(2, 9000)),
    ],
    ids=["few", "long", "numbers in binary", "many"],
)
def test_other_records_are_left_to_the_codec_for_any(keys: Items, values: Items) -> None:
    batch = encode_batch(keys, values, times_of(len(keys)))
    assert small(batch) is None
    assert (decode_batch(batch).keys, decode_batch(batch).values) == (keys, values)


@pytest.mark.parametrize("arguments", [{}, {"compression": Compression.LZ4}, {"base_offset": 1 << 40}])
def test_a_batch_of_small_records_decodes_with_offsets_and_bounds(arguments: dict[str, Any]) -> None:
    keys, values = texts(1), texts(2)
    columns = decode_batch(encode_batch(keys, values, times_of(), **arguments))
    base = arguments.get("base_offset", 0)
    assert (columns.keys, columns.values, columns.timestamps) == (keys, values, times_of())
    assert (columns.base_offset, columns.next_offset, columns.headers) == (base, base + COUNT, None)
    assert columns.timestamp_bounds == (T0, times_of()[-1])
    assert columns.times is not None
    assert columns.times.tolist() == columns.timestamps
    assert columns.cut(3).times is None
    stamped = decode_batch(rewrite_log_append_time(encode_batch(keys, values, times_of()), T0 + 9))
    assert (stamped.timestamps, stamped.timestamp_bounds) == ([T0 + 9] * COUNT, (T0 + 9, T0 + 9))
    assert stamped.times is not None
    assert stamped.times.tolist() == stamped.timestamps
