from __future__ import annotations

import pickle
import sys
import tracemalloc
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    Headers,
    decode_batch,
    decode_batches,
    encode_batch,
    iter_columns,
    read_header,
    rewrite_log_append_time,
)
from streamsrt.wire.records import uniform as uniform_records
from streamsrt.wire.records.columns import TableColumns
from streamsrt.wire.records.uniform import RECORDS_MIN, read_uniform
from tests.streamsrt.wire.records.reference import (
    Columns,
    check_damaged,
    check_whole,
    read_one_by_one,
    resealed,
    rows_of,
)

T0 = 1_700_000_000_000


def uniform(batch: bytes) -> Columns | None:
    header = read_header(batch)
    found = read_uniform(memoryview(batch)[HEADER_SIZE_BYTES:], header.records_count, header.base_timestamp)
    if found is None:
        return None
    keys, values = found.keys(), found.values()
    assert (found.has_null_keys, found.has_null_values) == (None in keys, None in values)
    return keys, values, found.times.tolist()


def column(count: int, size: int | None) -> list[bytes | None]:
    if size is None:
        return [None] * count
    return [(b"%d." % index * size)[:size] for index in range(count)]


def batch_of(count: int, key_size: int | None, value_size: int | None, times: list[int], **arguments: Any) -> bytes:
    return encode_batch(column(count, key_size), column(count, value_size), times, **arguments)


sizes = st.sampled_from([None, 0, 1, 5, 16, 55, 63, 64, 130])
counts = st.integers(RECORDS_MIN, RECORDS_MIN + 200)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Batches that are uniform or nearly so."""
    count = draw(counts)
    step, every = draw(st.sampled_from([0, 1, 40, 9000, -1, -70])), draw(st.sampled_from([1, 12, 300]))
    times = [T0 + index // every * step for index in range(count)]
    for index in draw(st.lists(st.integers(0, count - 1), max_size=2)):
        times[index] += draw(st.integers(-100, 10_000))
    keys, values = column(count, draw(sizes)), column(count, draw(sizes))
    for items in (keys, values):
        for index in draw(st.lists(st.integers(0, count - 1), max_size=1)):
            items[index] = draw(st.sampled_from([None, b"", b"\0", b"other"]))
    headers: list[Headers] | None = None
    if draw(st.booleans()):
        headers = [()] * count
        headers[draw(st.integers(0, count - 1))] = draw(st.sampled_from([(), (("", None),), (("name", b"value"),)]))
    return encode_batch(keys, values, times, headers=headers)


@given(batches())
@settings(max_examples=60)
def test_uniform_or_not_the_records_are_the_same(batch: bytes) -> None:
    check_whole(uniform, batch)


@given(
    batches(),
    st.lists(st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 1 << 20)), st.integers(0, 255)), max_size=4),
    st.integers(0, 3),
)
@settings(max_examples=150)
def test_what_is_damaged_is_read_as_records_one_by_one_or_not_at_all(
    whole: bytes, changes: list[tuple[int, int]], missing: int
) -> None:
    check_damaged(uniform, whole, changes, missing)


@given(st.binary(min_size=7, max_size=24), counts, st.integers(0, 7))
@settings(max_examples=100)
def test_noise_that_repeats_is_read_as_records_one_by_one_or_not_at_all(noise: bytes, count: int, more: int) -> None:
    head = bytearray(batch_of(count, 1, 1, [T0] * count)[:HEADER_SIZE_BYTES])
    for length in (len(noise), len(noise) - 1 << 1):
        batch = head + (bytes((length & 0x7F,)) + noise[1:]) * count + noise[:more]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        sealed = resealed(batch)
        found = uniform(sealed)
        assert found is None or found == read_one_by_one(sealed)


@pytest.mark.parametrize("key_size", [None, 0, 9, 200])
@pytest.mark.parametrize("value_size", [None, 0, 8, 100, 5000])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_records_of_equal_sizes_are_uniform(key_size: int | None, value_size: int | None, step: int) -> None:
    times = [T0 + index * step for index in range(600)]
    found = uniform(batch_of(600, key_size, value_size, times))
    assert found == (column(600, key_size), column(600, value_size), times)


def test_records_of_a_large_batch_are_uniform() -> None:
    times = [T0 - index // 50 for index in range(20_000)]
    assert uniform(batch_of(20_000, 3, 4, times)) == (column(20_000, 3), column(20_000, 4), times)


@pytest.mark.parametrize(
    ("count", "key_sizes", "times", "headers"),
    [
        (RECORDS_MIN - 1, [5], [0], False),
        (RECORDS_MIN, [5, 6], [0], False),
        (RECORDS_MIN, [5], [0, 7000], False),
        (RECORDS_MIN, [5], [0], True),
    ],
    ids=["few", "keys of two sizes", "times of two sizes", "headers"],
)
def test_other_records_are_left_to_the_codec(count: int, key_sizes: list[int], times: list[int], headers: bool) -> None:
    keys: list[bytes | None] = [b"k" * key_sizes[index % len(key_sizes)] for index in range(count)]
    stamps = [T0 + times[index % len(times)] for index in range(count)]
    batch = encode_batch(keys, keys, stamps, headers=[(("n", None),)] * count if headers else None)
    assert uniform(batch) is None
    columns = decode_batch(batch)
    assert (columns.keys, columns.values, columns.timestamps) == (keys, keys, stamps)


@pytest.mark.parametrize("data", [b"", b"\x0c", b"\x80", bytes(RECORDS_MIN)])
def test_fewer_bytes_than_records(data: bytes) -> None:
    assert read_uniform(memoryview(data), RECORDS_MIN, T0) is None


def test_batches_of_many_records_leave_nothing_behind() -> None:
    count = 20_000
    records, shorter = (
        memoryview(encode_batch([b"k"] * each, [b"v"] * each, [T0] * each))[HEADER_SIZE_BYTES:]
        for each in (count, count - 1)
    )
    size_bytes = len(records) - len(shorter)
    assert read_uniform(records, count, T0) is not None
    tracemalloc.start()
    try:
        for fewer in range(1, 60):
            assert read_uniform(records[: -fewer * size_bytes], count - fewer, T0) is not None
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1 << 20


@given(st.lists(st.tuples(st.integers(1, 200), st.sampled_from([None, 0, 5, 100, 130])), min_size=3, max_size=12))
@settings(max_examples=40)
def test_records_of_few_sizes_are_the_same(stretches: list[tuple[int, int | None]]) -> None:
    values = [None if size is None else b"x" * size for length, size in stretches for _ in range(length)]
    values += [b"y" * 5] * max(0, RECORDS_MIN - len(values))
    times = [T0 + index for index in range(len(values))]
    check_whole(uniform, encode_batch(column(len(values), 5), values, times))


@pytest.mark.parametrize(("odd", "looked_at"), [(range(20, 1000, 30), 4), (range(600, 601), 4), (range(0), 2)])
def test_a_batch_of_few_sizes_is_left_to_the_codec_early(odd: range, looked_at: int) -> None:
    """It takes few looks to see that; a single record of another size is none of them."""
    values = [b"x" * (120 if index in odd else 100) for index in range(1000)]
    batch = encode_batch(column(1000, 5), values, [T0 + index for index in range(1000)])
    looks = []

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is uniform_records._run.__code__:
            looks.append(frame)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        found = uniform(batch)
    finally:
        sys.setprofile(before)
    assert (found is None) == (len(odd) > 1)
    assert len(looks) == looked_at


def test_bytes_keep_their_zeros() -> None:
    keys: list[bytes | None] = [bytes(4)] * RECORDS_MIN
    assert uniform(encode_batch(keys, keys, [0] * RECORDS_MIN)) == (keys, keys, [0] * RECORDS_MIN)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("base", [-1, 0, 32_700, T0, 1 << 61])
def test_uniform_batches_decode_in_every_form(compression: Compression, base: int) -> None:
    times = [base + index for index in range(500)]
    batch = batch_of(500, 9, 20, times, compression=compression, base_offset=77)
    for form in (
        batch,
        bytearray(batch),
        memoryview(batch),
        memoryview(b"before" + batch + b"behind")[6 : len(batch) + 6],
    ):
        columns = decode_batch(form)
        assert (columns.keys, columns.values, columns.timestamps) == (column(500, 9), column(500, 20), times)
        assert (columns.base_offset, columns.next_offset, columns.offsets, columns.headers) == (77, 577, None, None)


def test_the_brokers_time_is_every_records_timestamp() -> None:
    batch = rewrite_log_append_time(batch_of(500, 9, 20, [T0] * 500), 9999)
    columns = decode_batch(batch)
    assert columns.timestamps == [9999] * 500
    assert (columns.timestamp_min, columns.timestamp_max) == (9999, 9999)


def test_a_part_of_a_batch_has_bounds_of_its_own() -> None:
    times = [T0 + index * 7 % 100 for index in range(500)]
    columns = decode_batch(batch_of(500, 9, 20, times))
    for part, its_times in ((columns, times), (columns.cut(3, 9), times[3:9]), (columns.from_offset(490), times[490:])):
        assert (part.timestamp_min, part.timestamp_max) == (min(its_times), max(its_times))


def test_a_batch_that_lost_records_keeps_its_offsets() -> None:
    offsets = list(range(0, 1000, 2))
    batch = batch_of(500, 9, 20, [T0] * 500, offsets=offsets)
    columns = decode_batch(batch)
    assert columns.keys == column(500, 9)
    assert columns.offsets == offsets


@given(batches(), st.integers(0, 500))
@settings(max_examples=60)
def test_as_tables_or_not_the_records_are_the_same(batch: bytes, from_offset: int) -> None:
    read = list(iter_columns(batch, from_offset=from_offset, as_tables=True))
    assert rows_of(read) == rows_of(decode_batches(batch, from_offset=from_offset))
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize("key_size", [0, 5, 130])
@pytest.mark.parametrize("value_size", [0, 8, 130])
@pytest.mark.parametrize("count", [RECORDS_MIN, 9_000])
@pytest.mark.parametrize("is_stamped_by_broker", [True, False])
def test_records_of_one_size_are_read_as_tables(
    key_size: int, value_size: int, count: int, is_stamped_by_broker: bool
) -> None:
    times = [T0 + index // 7 for index in range(count)]
    batch = batch_of(count, key_size, value_size, times, base_offset=70)
    if is_stamped_by_broker:
        batch = rewrite_log_append_time(batch, T0 + 5)
    (columns,) = iter_columns(batch, as_tables=True)
    assert isinstance(columns, TableColumns)
    assert len(columns) == count
    assert columns.has_nulls == (False, False)
    assert b"".join(keys.tobytes() for keys, _ in columns.tables.runs) == b"".join(
        filter(None, column(count, key_size))
    )
    assert sum(len(values) for _, values in columns.tables.runs) == count
    plain = decode_batch(batch)
    assert columns == plain
    assert (columns.timestamp_min, columns.timestamp_max, columns.first_timestamp) == (
        plain.timestamp_min,
        plain.timestamp_max,
        plain.first_timestamp,
    )
    assert columns.cut(3, 9) == plain.cut(3, 9)


@pytest.mark.parametrize("null", ["key", "value"])
@pytest.mark.parametrize("nulls", [1, RECORDS_MIN])
def test_nulls_are_no_tables(null: str, nulls: int) -> None:
    keys, values = column(RECORDS_MIN, 5), column(RECORDS_MIN, 5)
    (keys if null == "key" else values)[:nulls] = [None] * nulls
    (columns,) = iter_columns(encode_batch(keys, values, [T0] * RECORDS_MIN), as_tables=True)
    assert columns.tables is None
    assert (columns.keys, columns.values) == (keys, values)
