"""The attributes of a record are one byte to every reader, whatever that byte is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression
from streamsrt.wire.records import (
    HEADER_SIZE_BYTES,
    decode_batch,
    decode_control_batch,
    encode_control_batch,
    find_timestamp,
    iter_columns,
    largest_of_simple,
    largest_timestamp,
    read_header,
    renumbered_records,
    survey_batch,
)
from streamsrt.wire.records.attributes import FILLED_MIN
from streamsrt.wire.records.header import ControlRecord, ControlType
from streamsrt.wire.records.plain import read_number, read_plain, walk_plain
from streamsrt.wire.records.small import read_small
from streamsrt.wire.records.uniform import read_uniform, survey_uniform
from streamsrt.wire.records.unlike import survey_unlike
from tests.coordinator.broker.odd_batches import batch, record, sized
from tests.streamsrt.wire.records.reference import resealed

T0 = 1_700_000_000_000
BYTES = (0x01, 0x7F, 0x80, 0x81, 0xC0, 0xFF)


class Shape(NamedTuple):
    """What the records of a batch are like: as each of the readers wants them."""

    count: int
    key: Callable[[int], bytes | None]
    value: Callable[[int], bytes]
    ms: Callable[[int], int] = lambda _: 0
    headers: bytes = b"\0"
    gap: int = 1


SHAPES = {
    "one": Shape(1, lambda _: b"a", lambda _: b"1"),
    "one of null": Shape(1, lambda _: None, lambda _: b"1"),
    "a few, one byte as key": Shape(4, lambda _: b"a", lambda i: b"v" * i, lambda i: i),
    "a few": Shape(9, lambda i: b"k%d" % i, lambda i: b"v" * 7 * i),
    "backwards in time": Shape(9, lambda i: b"k" * i, lambda i: b"v" * 7 * i, lambda i: -i),
    "equal": Shape(40, lambda i: b"k%02d" % i, lambda _: b"v" * 80, lambda i: i),
    "uniform": Shape(500, lambda i: b"k%03d" % i, lambda _: b"v" * 90, lambda i: i // 7),
    "small": Shape(900, lambda i: b"%d" % i, lambda i: b"v%d" % (i * i), lambda i: i // 7),
    "unlike": Shape(300, lambda i: b"k%d" % i, lambda i: b"v" * (60 + i % 40), lambda i: i),
    "unlike, around 64 bytes": Shape(300, lambda i: b"k%d" % i, lambda i: b"v" * (40 + i % 40), lambda i: i),
    "unlike without keys": Shape(150, lambda _: None, lambda i: b"v" * (60 + i % 40), lambda i: i),
    "unlike, some without keys": Shape(150, lambda i: b"k" if i % 3 else None, lambda i: b"v" * i, lambda i: i),
    "unlike, of thousands of bytes": Shape(100, lambda i: b"k" * i, lambda i: b"v" * (8100 + i), lambda i: i),
    "keys as long as their indexes": Shape(200, lambda i: b"\x02" * i, lambda i: b"v" * (i % 7), lambda i: i),
    "keys that begin with their sizes": Shape(
        150, lambda i: sized(b"%d" % i), lambda i: b"v" * (60 + i % 9), lambda i: i
    ),
    "one byte as key, without values": Shape(150, lambda _: b"a", lambda _: b"", lambda i: i),
    "headers": Shape(300, lambda i: b"k%d" % i, lambda i: b"v" * (i % 40), headers=b"\x02" + sized(b"h") + sized(b"v")),
    "no text as header": Shape(9, lambda i: b"k" * i, lambda _: b"v", headers=b"\x02" + sized(b"\xff") + sized(b"v")),
    "long": Shape(3, lambda i: b"k" * i, lambda _: b"v" * 300_000),
    "more than a piece": Shape(90, lambda i: b"k" * i, lambda i: b"v" * (300 + i), lambda i: i),
    "compacted": Shape(40, lambda i: b"k" * (i % 3), lambda i: b"v" * i, lambda i: i, gap=3),
}


def made(shape: Shape, attributes: dict[int, int], codec: Compression = Compression.NONE, bits: int = 0) -> bytes:
    rows = [
        record(
            shape.key(i),
            shape.value(i),
            ms=shape.ms(i),
            offset=i * shape.gap,
            headers=shape.headers,
            attributes=attributes.get(i, 0),
        )
        for i in range(shape.count)
    ]
    largest = T0 + max(shape.ms(i) for i in range(shape.count))
    last = (shape.count - 1) * shape.gap
    fields = {"last_delta": last, "base_ms": T0, "max_ms": largest, "attributes": bits}
    return batch(b"".join(rows), shape.count, codec=codec, **fields)  # type: ignore[arg-type]


def everything(data: bytes) -> list[object]:
    """What the readers that answer for any batch say of it."""
    header = read_header(data)
    columns = [decode_batch(data), decode_batch(data, headers=False), *iter_columns(data)]
    for each in columns:
        each.timestamp_bounds = None
    survey = survey_batch(memoryview(data), header)
    found: list[object] = [
        columns,
        (list(survey.timestamps), list(survey.keyless), survey.is_in_order, survey.headers_count),
        [find_timestamp(data, 0, T0 + late) for late in (0, 1, 5, 30, 299)],
        bytes(renumbered_records(survey.batch)),
    ]
    if not header.compression:
        found.append(largest_timestamp(data, header))
        records = memoryview(data)[HEADER_SIZE_BYTES:]
        walked = walk_plain(records, header.records_count, header, 1 << 20)
        plain = read_plain(memoryview(data), header)
        found += [[each._replace(key=bytes(each.key or b"")) for each in walked], plain]
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("name", SHAPES)
def test_no_reader_minds_them(name: str, codec: Compression) -> None:
    shape = SHAPES[name]
    for bits in (0, 8) if codec is Compression.NONE else (0,):
        expected = everything(made(shape, {}, codec, bits))
        every = dict.fromkeys(range(shape.count), 0x80)
        for attributes in (every, {0: 0xFF}, {1: 0x80, shape.count // 2: 0xC1, shape.count - 1: 0x80}):
            assert everything(made(shape, attributes, codec, bits)) == expected


def columns_of_uniform(records: memoryview, count: int, base_timestamp: int) -> object:
    found = read_uniform(records, count, base_timestamp)
    return found and (found.keys(), found.values(), found.times)


@pytest.mark.parametrize("byte", BYTES)
@pytest.mark.parametrize("name", SHAPES)
def test_those_for_some_batches_leave_them_to_others_or_do_not_mind(name: str, byte: int) -> None:
    shape = SHAPES[name]
    for index in {0, 1, shape.count // 2, shape.count - 1}:
        whole, odd = made(shape, {}), made(shape, {index: byte})
        for read in (columns_of_uniform, read_small, survey_uniform, survey_unlike):
            found = read(memoryview(odd)[HEADER_SIZE_BYTES:], shape.count, T0)
            assert found is None or repr(found) == repr(read(memoryview(whole)[HEADER_SIZE_BYTES:], shape.count, T0))
        assert largest_of_simple(odd, read_header(odd)) in (None, largest_of_simple(whole, read_header(whole)))


@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.none() | st.binary(max_size=4), st.binary(max_size=9), st.integers(-2, 9)),
        min_size=1,
        max_size=9,
    )
)
def test_whatever_the_records_hold(rows: list[tuple[int, bytes | None, bytes, int]]) -> None:
    def of(is_odd: bool) -> bytes:
        records = [
            record(key, value, ms=ms, offset=index, attributes=odd if is_odd else 0)
            for index, (odd, key, value, ms) in enumerate(rows)
        ]
        return batch(b"".join(records), len(rows), base_ms=T0, max_ms=T0 + max(row[3] for row in rows))

    assert everything(of(True)) == everything(of(False))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255),
            # A wrong reading takes the first bytes of a key for a size.
            st.none() | st.binary(max_size=4) | st.binary(max_size=4).map(sized),
            st.binary(max_size=9),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_whatever_the_last_ones_hold_in_a_batch_whose_times_are_indexes(
    rows: list[tuple[int, bytes | None, bytes]],
) -> None:
    def of(is_odd: bool) -> bytes:
        records = [record(b"k", b"v" * (index % 9), ms=index, offset=index) for index in range(FILLED_MIN)]
        for index, (odd, key, value) in enumerate(rows, FILLED_MIN):
            records.append(record(key, value, ms=index, offset=index, attributes=odd if is_odd else 0))
        return batch(b"".join(records), len(records), base_ms=T0, max_ms=T0 + len(records) - 1)

    assert everything(of(True)) == everything(of(False))


@pytest.mark.parametrize("byte", BYTES)
def test_of_control_batches(byte: int) -> None:
    marker = ControlRecord(ControlType.COMMIT, 5, 0, 3)
    data = bytearray(encode_control_batch(marker, timestamp_ms=T0))
    _, start = read_number(memoryview(data), HEADER_SIZE_BYTES)
    data[start] = byte
    assert decode_control_batch(resealed(data)) == marker
