"""What was fetched comes out as the records that decoding it at once gives, a batch at a time."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
from hypothesis import given, settings

from streamsrt.client.values import Fetched
from streamsrt.tasks.input.input_buffer import InputBuffer
from streamsrt.wire.records import decode_batches, encode_batch, stamp_producer

_BASE_OFFSET = struct.Struct(">q")


def batch(base_offset: int, values: list[bytes], producer_id: int | None) -> bytes:
    """A record batch in its place in a log; of a transaction where there is a producer id."""
    encoded = bytearray(
        encode_batch([None] * len(values), list(values), [1] * len(values), transactional=producer_id is not None)
    )
    if producer_id is not None:
        encoded = bytearray(stamp_producer(bytes(encoded), producer_id, 0, 0))
    _BASE_OFFSET.pack_into(encoded, 0, base_offset)
    return bytes(encoded)


batches = st.lists(
    st.tuples(st.lists(st.binary(max_size=3), min_size=1, max_size=4), st.sampled_from([None, 7, 8])), max_size=6
)


@settings(max_examples=150, deadline=None)
@given(
    fetches=st.lists(batches, max_size=5),
    aborted=st.lists(st.tuples(st.sampled_from([7, 8]), st.integers(0, 40)), max_size=3),
    skip=st.integers(0, 3),
)
def test_any_fetches_give_the_records_that_decoding_gives(
    fetches: list[list[tuple[list[bytes], int | None]]], aborted: list[tuple[int, int]], skip: int
) -> None:
    offset = end = 0
    buffer = InputBuffer(0)
    whole: list[tuple[int, bytes | None]] = []
    for number, content in enumerate(fetches):
        data = b""
        for values, producer_id in content:
            data += batch(end, values, producer_id)
            end += len(values)
        # The first fetch of all may begin inside of a batch.
        start = min(skip, end) if number == 0 else offset
        known = tuple(sorted(aborted, key=lambda each: each[1]))
        buffer.add(Fetched("t", 0, memoryview(data), start, max(end, start), 100, 100, 0, known))
        for columns in decode_batches(data, from_offset=start, aborted=known):
            whole += [(columns.offset_at(i), value) for i, value in enumerate(columns.values)]
        offset = max(end, start)

    got: list[tuple[int, bytes | None]] = []
    positions = [buffer.position]
    while (columns_now := buffer.next_columns()) is not None:
        got += [(columns_now.offset_at(i), value) for i, value in enumerate(columns_now.values)]
        positions.append(buffer.position)
        assert columns_now.next_offset == buffer.position
    assert got == whole
    assert positions == sorted(positions)
    assert buffer.position == offset
    assert buffer.buffered_bytes == 0


def fetched(data: bytes, offset: int, next_offset: int) -> Fetched:
    return Fetched("t", 0, memoryview(data), offset, next_offset, 10, 10, 0)


def test_bytes_count_until_the_last_batch_was_handed_out() -> None:
    buffer = InputBuffer(0)
    data = batch(0, [b"a"], None) + batch(1, [b"b"], None)
    buffer.add(fetched(data, 0, 2))
    first = buffer.next_columns()
    assert first is not None
    assert buffer.buffered_bytes == len(data)
    assert buffer.lag_records == 9
    second = buffer.next_columns()
    assert second is not None
    assert buffer.next_columns() is None
    assert buffer.buffered_bytes == 0


def test_offsets_without_records_move_the_position() -> None:
    buffer = InputBuffer(0)
    buffer.add(fetched(batch(0, [b"a"], None), 0, 3))
    assert buffer.next_columns() is not None
    assert buffer.position == 1
    moved = buffer.next_columns()
    assert moved is not None
    assert moved.keys == []
    assert (moved.next_offset, buffer.position) == (3, 3)


def test_a_jump_comes_behind_what_was_fetched() -> None:
    buffer = InputBuffer(0)
    buffer.add(fetched(batch(0, [b"a"], None), 0, 1))
    buffer.jump(fetched(b"", 1, 1), 7)
    first = buffer.next_columns()
    assert first is not None
    assert first.values == [b"a"]
    moved = buffer.next_columns()
    assert moved is not None
    assert (moved.keys, moved.next_offset) == ([], 7)
    assert buffer.next_columns() is None


def test_nothing_is_known_of_the_lag_before_the_first_fetch() -> None:
    assert InputBuffer(5).lag_records is None
