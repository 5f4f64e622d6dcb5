"""Records that the loops in C write as they come, beside batches of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire import kernels
from streamsrt.wire.compression import Compression
from streamsrt.wire.kernels import Native
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import HEADER_SIZE_BYTES, decode_batch, encode_batch, encode_written

T0 = 1_700_000_000_000
HEAD = bytes(HEADER_SIZE_BYTES)
Row = tuple[bytes | None, bytes | None, int]

items = st.one_of(
    st.none(), st.binary(max_size=20), st.sampled_from([b"", bytes(63), bytes(64), bytes(8191), bytes(8192)])
)
times = st.one_of(st.integers(T0 - 100, T0 + 10_000), st.sampled_from([-1, 0, (1 << 61) - 1, 1 - (1 << 61)]))
rows = st.lists(st.tuples(items, items, times), max_size=60)


@pytest.fixture(scope="session")
def loops(load_native: Callable[[str], object]) -> Native:
    """The module in C, whether or not the tests run with it."""
    return cast(Native, load_native(kernels.MODULE))


@contextmanager
def without_loops() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kernels, "native", None)
        yield


def columns(some: list[Row]) -> tuple[list[bytes | None], list[bytes | None], list[int]]:
    return [key for key, _, _ in some], [value for _, value, _ in some], [time for _, _, time in some]


@given(runs=st.lists(rows, min_size=1, max_size=5), codec=st.sampled_from([Compression.NONE, Compression.GZIP]))
def test_runs_make_the_batch_that_their_columns_make(loops: Native, runs: list[list[Row]], codec: Compression) -> None:
    writer, every = loops.WrittenRecords(), [row for run in runs for row in run]
    for run in runs:
        assert writer.add(*columns(run), 0, len(run))
    assert len(writer) == len(every)
    if not every:
        return
    with without_loops():
        expected = encode_batch(*columns(every), compression=codec, transactional=True)
    stamps = columns(every)[2]
    assert writer.bounds() == (stamps[0], max(stamps))
    assert [writer.times(start, 3) for start in range(5)] == [stamps[start::3] for start in range(5)]
    batch = encode_written(writer, compression=codec, transactional=True)
    assert batch == expected
    # What was not sent stays, and more may come behind it.
    assert writer.add([b"more"], [None], [T0], 0, 1)
    again = encode_written(writer, compression=codec, transactional=True)
    assert decode_batch(again).keys == [*columns(every)[0], b"more"]
    assert batch == expected


@given(some=rows, start=st.integers(0, 70), stop=st.integers(0, 70))
def test_a_part_of_columns(loops: Native, some: list[Row], start: int, stop: int) -> None:
    writer = loops.WrittenRecords()
    written = writer.add(*columns(some), start, stop)
    assert written == (start <= stop <= len(some))
    if written and start < stop:
        with without_loops():
            expected = encode_batch(*columns(some[start:stop]))
        assert encode_written(writer, compression=Compression.NONE, transactional=False) == expected


@given(
    runs=st.lists(rows, min_size=1, max_size=4), count=st.integers(1, 9), null=st.integers(0, 8), other=st.booleans()
)
def test_each_record_is_written_where_its_key_belongs(
    loops: Native, runs: list[list[Row]], count: int, null: int, other: bool
) -> None:
    null %= count
    writers = tuple(loops.WrittenRecords() for _ in range(count))
    expected: list[list[Row]] = [[] for _ in range(count)]
    for run in runs:
        keys, values, stamps = columns(run)
        placed_by = values if other else keys
        assert loops.write_apart(writers, keys, values, stamps, placed_by, null)
        for row, key in zip(run, placed_by, strict=True):
            expected[null if key is None else partition_for_key(key, count)].append(row)
    for writer, there in zip(writers, expected, strict=True):
        assert len(writer) == len(there)
        if there:
            found = decode_batch(encode_written(writer, compression=Compression.NONE, transactional=False))
            assert (found.keys, found.values, found.timestamps) == columns(there)


@pytest.mark.parametrize(
    ("keys", "values", "stamps"),
    [
        ([b"a", "text"], [b"", b""], [T0, T0]),
        ([b"a", b""], [b"", bytearray(3)], [T0, T0]),
        ([b"a", b""], [b"", b""], [T0, 1.5]),
        ([b"a", b""], [b"", b""], [T0, True]),
        ([b"a", b""], [b"", b""], [T0, 1 << 61]),
        ([b"a", b""], [b"", b""], [T0, 1 << 80]),
        ([b"a", b""], [b""], [T0, T0]),
        ((b"a", b""), [b"", b""], [T0, T0]),
    ],
)
def test_of_what_can_not_be_written_nothing_is_written(loops: Native, keys: Any, values: Any, stamps: Any) -> None:
    writers = tuple(loops.WrittenRecords() for _ in range(3))
    assert not loops.write_apart(writers, keys, values, stamps, keys, 0)
    assert not writers[0].add(keys, values, stamps, 0, len(keys))
    assert [len(writer) for writer in writers] == [0, 0, 0]


def test_writers_and_partitions_that_there_are_not_are_left_to_others(loops: Native) -> None:
    one: Any = ([b"a"], [b""], [T0])
    writer: Any = loops.WrittenRecords()
    odd: list[Any] = [(), [writer], (writer, object()), (object(),)]
    assert not any(loops.write_apart(writers, *one, [b"a"], 0) for writers in odd)
    assert not loops.write_apart((writer,), *one, [b"a"], 1)
    assert not loops.write_apart((writer,), *one, [b"a"], -2)
    assert not loops.write_apart((writer,), *one, ["a"], 0)  # type: ignore[list-item]
    assert not loops.write_apart((writer,), *one, [b"a", b"b"], 0)
    assert len(writer) == 0


def test_what_is_looked_at_does_not_change(loops: Native) -> None:
    writer = loops.WrittenRecords()
    assert bytes(memoryview(writer)) == b""
    assert writer.add([b"a"], [b"1"], [T0], 0, 1)
    with memoryview(writer):
        with pytest.raises(BufferError):
            writer.add([b"b"], [b"2"], [T0], 0, 1)
        with pytest.raises(BufferError):
            writer.clear()
        with pytest.raises(ValueError, match="their head"):
            writer.sealed(HEAD)
    writer.clear()
    assert len(writer) == 0
    with pytest.raises(ValueError, match="no records"):
        writer.bounds()
    with pytest.raises(ValueError, match="their head"):
        writer.sealed(HEAD)


def test_a_batch_stays_as_it_is_when_more_is_written(loops: Native) -> None:
    writer = loops.WrittenRecords()
    assert writer.add([b"a"], [b"1"], [T0], 0, 1)
    first = writer.sealed(HEAD)
    before = bytes(bytearray(first))
    assert writer.add([b"b"] * 500, [b"2"] * 500, [T0] * 500, 0, 500)
    second = writer.sealed(b"x" * HEADER_SIZE_BYTES)
    writer.clear()
    assert writer.add([b"c"], [b"3"], [T0], 0, 1)
    assert first == before
    assert second[:HEADER_SIZE_BYTES] == b"x" * HEADER_SIZE_BYTES
    assert second[HEADER_SIZE_BYTES : len(first)] == first[HEADER_SIZE_BYTES:]


def test_arguments_of_other_types_are_refused(loops: Native) -> None:
    writer: Any = loops.WrittenRecords()
    with pytest.raises(TypeError):
        writer.add([b"a"], [b""], [T0])
    with pytest.raises(TypeError):
        writer.add([b"a"], [b""], [T0], "0", 1)
    with pytest.raises(TypeError):
        writer.times(0)
    for start, step in ((-1, 1), (0, 0), (0, -1)):
        with pytest.raises(ValueError, match="from 0 on"):
            writer.times(start, step)
    with pytest.raises(TypeError):
        loops.write_apart((writer,), [b"a"])  # type: ignore[call-arg, list-item]
