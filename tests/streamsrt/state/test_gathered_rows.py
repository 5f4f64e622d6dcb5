"""Rows that are gathered while a store is restored, beside a dictionary of them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.state.gathered_rows import GatheredRows
from streamsrt.wire.records.columns import Placed, Tables
from streamsrt.wire.records.items import WIDTH_MAX

Records = list[tuple[bytes, bytes | None, int]]


def expected(records: Records, *, is_stamped: bool) -> list[tuple[bytes, bytes | None]]:
    rows: dict[bytes, bytes | None] = {}
    for key, value, timestamp in records:
        rows[b"d" + key] = struct.pack(">q", timestamp) + value if is_stamped and value is not None else value
    return sorted(rows.items())


def as_tables(records: Records) -> Tables:
    """In two runs, with something between the rows."""
    half, times = len(records) // 2, np.array([timestamp for _, _, timestamp in records])
    runs = []
    for part in filter(None, (records[:half], records[half:])):
        key_size, value_size = len(part[0][0]), len(part[0][1] or b"")
        laid_out = b"".join(b"-" + key + (value or b"") + b"-" for key, value, _ in part)
        table = np.frombuffer(laid_out, np.uint8).reshape(len(part), -1)
        runs.append((table[:, 1 : 1 + key_size], table[:, 1 + key_size : 1 + key_size + value_size]))
    return Tables(runs, times)


def as_placed(records: Records) -> Placed:
    """As they lie in a batch: with six bytes and the key before each value."""
    data, at, keys_at, values_at = b"", 0, [], []
    for key, value, _ in records:
        keys_at.append(at + 5)
        values_at.append(at + 6 + len(key))
        data += b"\xff" * 5 + key + b"\xff" + (value or b"")
        at = len(data)
    key_sizes = np.array([len(key) for key, _, _ in records])
    value_sizes = np.array([-1 if value is None else len(value) for _, value, _ in records])
    times = np.array([timestamp for _, _, timestamp in records])
    table = np.frombuffer(data + b"\xff" * WIDTH_MAX, np.uint8)
    places = np.array(keys_at), key_sizes, np.array(values_at), value_sizes
    return Placed(table, *places, times, np.arange(len(records)))


def gathered(batches: list[Records], *, is_stamped: bool, settles: bool) -> GatheredRows:
    rows = GatheredRows()
    for records in batches:
        keys, values, timestamps = zip(*records, strict=True)
        rows.add(keys, values, timestamps if is_stamped else None)
        if settles:
            rows.settle()
    return rows


def in_order(rows: GatheredRows) -> list[tuple[bytes, bytes | None]]:
    return [row for keys, values in rows.in_order() for row in zip(keys, values, strict=True)]


def of_size(size: int) -> st.SearchStrategy[bytes]:
    """Bytes that agree here and there, at the beginning and at the end."""
    return st.lists(st.sampled_from(b"\x00\x01a\xff"), min_size=size, max_size=size).map(bytes)


@st.composite
def batches_of_one_size(draw: st.DrawFn) -> list[Records]:
    key_size, value_size = draw(st.integers(1, 20)), draw(st.integers(1, 3))
    keys = draw(st.lists(of_size(key_size), min_size=1, max_size=40))
    count = draw(st.integers(1, 3))
    chance = draw(st.randoms(use_true_random=False))
    return [
        [
            (chance.choice(keys), bytes(chance.choices(b"\x00v", k=value_size)), chance.randint(-1, 1 << 60))
            for _ in range(chance.choice((1, 31, 32, 100)))
        ]
        for _ in range(count)
    ]


_records = st.tuples(st.binary(max_size=3), st.one_of(st.none(), st.binary(max_size=2)), st.integers(-1, 1 << 60))


@given(
    st.one_of(batches_of_one_size(), st.lists(st.lists(_records, min_size=1, max_size=40), min_size=1, max_size=4)),
    st.booleans(),
    st.booleans(),
)
def test_the_last_row_of_each_key_comes_out_in_order(batches: list[Records], is_stamped: bool, settles: bool) -> None:
    rows = gathered(batches, is_stamped=is_stamped, settles=settles)
    assert in_order(rows) == expected([row for batch in batches for row in batch], is_stamped=is_stamped)


@given(batches_of_one_size(), st.booleans(), st.lists(_records, max_size=40), st.sampled_from([0, 1, 3]))
def test_tables_are_gathered_as_their_records_are(
    batches: list[Records], settles: bool, odd: Records, odd_comes: int
) -> None:
    rows, added = GatheredRows(), list(batches)
    if odd:
        added.insert(odd_comes, odd)
    for records in added:
        if records is odd or not rows.add_tables(as_tables(records)):
            rows.add(*zip(*records, strict=True))  # type: ignore[arg-type]  # keys, values and timestamps
        if settles:
            rows.settle()
    assert in_order(rows) == expected([row for batch in added for row in batch], is_stamped=True)


@given(
    st.lists(
        st.one_of(batches_of_one_size().map(lambda batches: batches[0]), st.lists(_records, min_size=1)), min_size=1
    ),
    st.booleans(),
)
@settings(max_examples=40)
def test_placed_records_are_gathered_as_their_records_are(batches: list[Records], settles: bool) -> None:
    rows = GatheredRows()
    for records in batches:
        if not rows.add_placed(as_placed(records)):
            rows.add(*zip(*records, strict=True))  # type: ignore[arg-type]  # keys, values and timestamps
        if settles:
            rows.settle()
    assert in_order(rows) == expected([row for batch in batches for row in batch], is_stamped=True)


@pytest.mark.parametrize("size", [1, 65])
def test_placed_records_of_short_or_long_keys_are_refused(size: int) -> None:
    rows = GatheredRows()
    assert not rows.add_placed(as_placed([(b"k" * size, b"v", 1), (b"key", b"v", 1)]))
    assert (len(rows), rows.size_bytes) == (0, 0)
    assert rows.add_placed(as_placed([(b"kk", b"v", 1), (b"k" * 64, None, 1)]))


@pytest.mark.parametrize("size", [0, 65])
def test_tables_of_empty_or_long_keys_are_refused(size: int) -> None:
    rows = GatheredRows()
    assert not rows.add_tables(as_tables([(b"k" * size, b"v", 1)] * 400))
    assert (len(rows), rows.size_bytes) == (0, 0)


@pytest.mark.parametrize("odd", [(b"longer", b"v", 1), (b"k000", b"", 1), (b"k000", None, 1), (b"", b"v", 1)])
@pytest.mark.parametrize("where", ["first", "in between", "last"])
def test_records_of_other_sizes_come_among_those_of_one_size(odd: tuple[bytes, bytes | None, int], where: str) -> None:
    alike: list[Records] = [
        [(b"k%03d" % (7 * number % 400), b"%d" % batch, number) for number in range(300)] for batch in (1, 2)
    ]
    batches = {"first": [[odd], *alike], "in between": [alike[0], [odd], alike[1]], "last": [*alike, [odd]]}[where]
    rows = gathered(batches, is_stamped=True, settles=False)
    assert in_order(rows) == expected([row for batch in batches for row in batch], is_stamped=True)


@pytest.mark.parametrize("size", [8, 9, 36])
@pytest.mark.parametrize("spread", [1, 50])
def test_keys_that_differ_in_many_bytes(size: int, spread: int) -> None:
    keys = [(b"%07d" % (number * 7919 % (5000 // spread))).rjust(size, b"k")[::-1] for number in range(5000)]
    batch: Records = [(key, b"%04d" % number, number) for number, key in enumerate(keys)]
    rows = gathered([batch], is_stamped=True, settles=False)
    assert in_order(rows) == expected(batch, is_stamped=True)


def test_repeated_keys_make_room_for_others() -> None:
    for value in (b"12345678", None):
        rows = gathered([[(b"k%02d" % (n % 10), value, n) for n in range(1000)]], is_stamped=True, settles=False)
        before = rows.size_bytes
        rows.settle()
        assert rows.size_bytes < before / 5
        assert len(rows) == 10
        assert len(in_order(rows)) == 10


def test_nothing_is_gathered() -> None:
    rows = GatheredRows()
    rows.settle()
    assert (in_order(rows), len(rows), rows.size_bytes) == ([], 0, 0)
