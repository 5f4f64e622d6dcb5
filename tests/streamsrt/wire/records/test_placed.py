"""Records of several batches that are read at once, where they lie, beside the batches one by one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire import kernels
from streamsrt.wire.compression import Compression
from streamsrt.wire.kernels import Native
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    ControlRecord,
    ControlType,
    decode_batches,
    encode_batch,
    encode_control_batch,
    iter_columns,
    patch_base_offset,
    read_header,
    rewrite_log_append_time,
)
from streamsrt.wire.records.header import CODEC_MASK, iter_headers
from streamsrt.wire.records.items import WIDTH_MAX, Items
from streamsrt.wire.records.placed import PLACED_RECORDS_MIN, read_placed
from tests.streamsrt.wire.records.reference import Columns, check_damaged, check_whole, resealed, rows_of

T0 = 1_700_000_000_000
COUNT = PLACED_RECORDS_MIN


@pytest.fixture(scope="session")
def loops(load_native: Callable[[str], object]) -> Native:
    """The module in C, whether or not the tests run with it."""
    return cast(Native, load_native(kernels.MODULE))


@contextmanager
def using(native: Native | None) -> Iterator[None]:
    """In here, the code runs with these loops, or with none."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernels, "native", native)
        yield


def placed(batch: bytes) -> Columns | None:
    header = read_header(batch)
    found = read_placed([(memoryview(batch)[HEADER_SIZE_BYTES:], header)])
    if found is None:
        return None
    keys, values = found.keys(), found.values()
    assert (found.has_null_keys, found.has_null_values) == (None in keys, None in values)
    return keys, values, found.times.tolist()


_parts = st.sampled_from([b"\0", b"\0\0\0\x0c\0", b"a", b"\x80", b"some text ", b"long" * 40])
_items = st.one_of(st.none(), st.lists(_parts, max_size=4).map(b"".join))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch with records of a few kinds, in any order."""
    count = draw(st.integers(1, 2 * COUNT))
    kinds = draw(st.lists(st.tuples(_items, _items), min_size=1, max_size=5))
    chance = draw(st.randoms(use_true_random=False))
    chosen = [chance.choice(kinds) for _ in range(count)]
    step = draw(st.sampled_from([0, 1, 40, 9_000, -70, 1 << 33]))
    times = [T0 + step * chance.randrange(10) for _ in range(count)]
    every = draw(st.sampled_from([1, 1, 2, 100]))
    offsets = None if every == 1 else sorted(chance.sample(range(every * count), count))
    keys, values = zip(*chosen, strict=True)
    compression = draw(st.sampled_from([Compression.NONE, Compression.NONE, Compression.LZ4]))
    headers = [()] * (count - 1) + [(("name", b"v\0"),)] if draw(st.integers(0, 9)) == 9 else None
    batch = encode_batch(keys, values, times, offsets=offsets, headers=headers, compression=compression)
    return rewrite_log_append_time(batch, T0 + 7) if draw(st.integers(0, 4)) == 4 else batch


def answer(parts: list[bytes]) -> bytes:
    """Of a fetch."""
    whole, offset = b"", 0
    for part in parts:
        batch = patch_base_offset(part, offset, 0) + part[16:]
        whole += batch
        offset = read_header(batch).next_offset
    return whole


@given(st.lists(batches(), min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 400))
@settings(max_examples=30)
def test_together_or_one_by_one_the_records_are_the_same(parts: list[bytes], markers: int, from_offset: int) -> None:
    for _ in range(markers):
        parts.insert(len(parts) // 2, encode_control_batch(ControlRecord(ControlType.COMMIT, 7, 0, 1), timestamp_ms=T0))
    whole = answer(parts)
    read = list(iter_columns(whole, from_offset=from_offset, as_tables=True))
    expected = decode_batches(whole, from_offset=from_offset)
    assert rows_of(read) == rows_of(expected)
    assert [each.next_offset for each in read[-1:]] == [each.next_offset for each in expected[-1:]]
    assert all(one.next_offset <= other.base_offset for one, other in pairwise(read))
    assert pickle.loads(pickle.dumps(read)) == read
    for columns in read:
        assert columns.has_nulls == (None in columns.keys, None in columns.values)
        if len(columns):
            assert (columns.timestamp_min, columns.timestamp_max) == (min(columns.timestamps), max(columns.timestamps))
            half = len(columns) // 2
            assert rows_of([columns.cut(0, half), columns.cut(half)]) == rows_of([columns])


def uncompressed(batch: bytes) -> bool:
    header = read_header(batch)
    return header.attributes == 0 and header.records_count > header.last_offset_delta


plain_batches = batches().filter(uncompressed)


@given(plain_batches)
@settings(max_examples=25)
def test_what_is_read_is_what_the_codec_reads(batch: bytes) -> None:
    check_whole(placed, batch)


@given(
    plain_batches,
    st.lists(st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 1 << 20)), st.integers(0, 255)), max_size=4),
    st.integers(0, 3),
)
@settings(max_examples=50)
def test_what_is_damaged_is_read_as_records_one_by_one_or_not_at_all(
    whole: bytes, changes: list[tuple[int, int]], missing: int
) -> None:
    check_damaged(placed, whole, changes, missing)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("value_bytes", [3, 90, 900])
def test_records_of_many_sizes_are_read_together(compression: Compression, value_bytes: int) -> None:
    parts = []
    for number in range(5):
        keys: list[bytes | None] = [b"%d-%d" % (number, index) for index in range(60)]
        values: list[bytes | None] = [b"v" * (value_bytes + index) if index % 10 else None for index in range(60)]
        times = [T0 + index for index in range(60)]
        parts.append(encode_batch(keys, values, times, compression=compression))
    whole = answer(parts)
    (columns,) = iter_columns(whole, as_tables=True)
    assert columns.placed is not None
    assert (len(columns), columns.offsets, columns.next_offset) == (300, None, 300)
    assert rows_of([columns]) == rows_of(decode_batches(whole))


def test_records_of_aborted_transactions_are_missing() -> None:
    def of(producer: int, count: int) -> bytes:
        keys: list[bytes | None] = [b"k" * (index % 9) for index in range(count)]
        return encode_batch(keys, keys, [T0] * count, producer_id=producer, producer_epoch=0, transactional=True)

    abort = encode_control_batch(ControlRecord(ControlType.ABORT, 1, 0, 1), timestamp_ms=T0)
    whole = answer([of(2, 150), of(1, 100), abort, of(2, 150), of(1, 30), abort])
    aborted = [(1, 150), (1, 401)]
    (columns,) = iter_columns(whole, aborted=aborted, as_tables=True)
    assert columns.placed is not None
    assert columns.offsets == [*range(150), *range(251, 401)]
    assert columns.next_offset == 432
    assert rows_of([columns]) == rows_of(decode_batches(whole, aborted=aborted))


def test_what_comes_before_a_broken_batch_is_read_first() -> None:
    keys: list[bytes | None] = [b"k" * (index % 9) for index in range(COUNT)]
    whole = bytearray(answer([encode_batch(keys, keys, [T0] * COUNT)] * 3))
    whole[-1] ^= 1
    found = iter_columns(whole, as_tables=True)
    assert len(next(found)) == 2 * COUNT
    with pytest.raises(DecodeError) as raised:
        next(found)
    assert raised.value.next_offset == 3 * COUNT
    broken = bytearray(encode_batch(keys, keys, [T0] * COUNT)[:-3] + b"\0")
    broken[8:12] = (len(broken) - 12).to_bytes(4, "big")
    found = iter_columns(
        answer([encode_batch(keys, keys, [T0] * COUNT), resealed(broken), resealed(broken)]), as_tables=True
    )
    assert len(next(found)) == COUNT
    with pytest.raises(DecodeError) as raised:
        next(found)
    assert raised.value.next_offset == 2 * COUNT


_sizes = st.sampled_from([0, 1, 254, 255, 256, 700])


@pytest.mark.parametrize("with_loops", [False, True])
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=20), _sizes.map(b"x".__mul__), st.just(b"y\0")), min_size=1),
    st.integers(0, 2),
    st.integers(1, 300),
)
@settings(max_examples=60)
def test_items_come_out_as_they_were(
    loops: Native, with_loops: bool, items: list[bytes | None], before: int, repeated: int
) -> None:
    items = items * (1 + repeated // len(items))
    sizes = np.array([-1 if item is None else len(item) for item in items])
    positive = np.maximum(sizes, 0)
    data = np.frombuffer(b"\xff" * before + b"".join(filter(None, items)) + b"\xff" * WIDTH_MAX, np.uint8)
    order = np.arange(len(items))[::-1]
    with using(loops if with_loops else None):
        found = Items(data, before + positive.cumsum() - positive, sizes)
        assert (found.all(), found.taken(order)) == (items, items[::-1])


def test_items_that_are_not_in_the_data_are_refused(loops: Native) -> None:
    data, one = np.zeros(10, np.uint8), np.zeros(1, np.int64)
    for at, size in [(-1, 1), (0, 11), (10, 1), (11, 0), (1 << 62, 1), (5, 1 << 62), (-(1 << 63), 1)]:
        with pytest.raises(ValueError, match="no bytes at this position"):
            loops.take_items(data, one + at, one + size, one)
    for index in (-1, 1, 1 << 62):
        with pytest.raises(IndexError):
            loops.take_items(data, one, one + 1, one + index)
    assert loops.take_items(data, one + 10, one, one) == [b""]
    assert loops.take_items(data, one + (1 << 62), one - 1, one) == [None]


@given(plain_batches)
@settings(max_examples=25)
def test_the_loop_reads_what_the_codec_reads(loops: Native, batch: bytes) -> None:
    with using(loops):
        check_whole(placed, batch)


@given(
    plain_batches,
    st.lists(st.tuples(st.one_of(st.integers(0, 40), st.integers(0, 1 << 20)), st.integers(0, 255)), max_size=4),
    st.integers(0, 3),
)
@settings(max_examples=50)
def test_the_loop_reads_what_is_damaged_as_the_codec_or_not_at_all(
    loops: Native, whole: bytes, changes: list[tuple[int, int]], missing: int
) -> None:
    with using(loops):
        check_damaged(placed, whole, changes, missing)


@given(st.lists(batches(), min_size=1, max_size=5))
@settings(max_examples=30)
def test_the_loop_and_numpy_read_the_same(loops: Native, parts: list[bytes]) -> None:
    whole = answer(parts)
    given = [
        (memoryview(whole)[at + HEADER_SIZE_BYTES : at + head.size_bytes], head) for at, head in iter_headers(whole)
    ]
    taken = [(records, head) for records, head in given if not head.attributes & CODEC_MASK]
    if not taken:
        return
    found = []
    for native in (None, loops):
        with using(native):
            one = read_placed(taken)
        found.append(one)
    expected, read = found
    if expected is None:
        return
    assert read is not None
    assert [each.tolist() for each in read[1:]] == [each.tolist() for each in expected[1:]]


@given(st.binary(max_size=60), st.integers(0, 3), st.lists(st.integers(-3, 70), min_size=10, max_size=10))
@settings(max_examples=200)
def test_noise_is_never_read_beyond_its_end(loops: Native, noise: bytes, count: int, known: list[int]) -> None:
    columns = np.empty((6, count), np.int64)
    if loops.place_records(noise, np.array(known, np.int64).reshape(5, 2), columns):
        assert known[0] + known[1] <= len(noise)
        assert known[2] + known[3] == count


@pytest.mark.parametrize("which", ["size", "count", "base time", "base offset"])
def test_what_is_said_of_batches_is_checked(loops: Native, which: str) -> None:
    batch = encode_batch([b"key"] * 3, [b"value"] * 3, [T0] * 3)
    records, columns = batch[HEADER_SIZE_BYTES:], np.empty((6, 3), np.int64)
    known = np.array([[len(records)], [3], [T0], [0], [3]])
    assert loops.place_records(records, known, columns)
    row = ["size", "count", "base time", "base offset"].index(which)
    for value in ([-1, 0, 1, 1 << 62, -(1 << 63), (1 << 63) - 1], [-1, 2, 4, 1 << 62], [1 << 62, -(1 << 62)], [1, 3])[
        row
    ]:
        wrong = known.copy()
        wrong[row] = value
        assert not loops.place_records(records, wrong, columns)


def test_other_arguments_are_refused(loops: Native) -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(BufferError):
        loops.place_records(b"", one, b"not to be written")  # type: ignore[arg-type]
    for arguments in ((b"",), (b"", one, one, one), ("", one, one)):
        with pytest.raises(TypeError):
            loops.place_records(*arguments)
    for few in ((b"", one), (b"", one, "", one)):
        with pytest.raises(TypeError):
            loops.take_items(*few)
