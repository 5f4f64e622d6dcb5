"""The rules of :mod:`streamsrt.state.store`, for every store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from streamsrt.state.store import BytesStore, StoreClosedError, after_prefix

# Keys that an implementation could take for something else: empty, all zeros or ones, and its own reserved first bytes.
AWKWARD_KEYS = sorted(
    [b"", b"\0", b"\0\0", b"\xff", b"\xff\xff", b"a", b"d", b"dd", b"e", b"m", b"m:changelog-offset", b"n"]
)


def write_numbers(store: BytesStore, count: int, value: bytes = b"v") -> None:
    store.write([(b"%06d" % i, value) for i in range(count)])


def test_absent_key_is_none(store: BytesStore) -> None:
    assert store.get(b"nothing") is None


def test_written_is_read(store: BytesStore) -> None:
    store.write([(key, b"value of " + key) for key in AWKWARD_KEYS], changelog_offset=7)
    assert [store.get(key) for key in AWKWARD_KEYS] == [b"value of " + key for key in AWKWARD_KEYS]
    assert list(store.range()) == [(key, b"value of " + key) for key in AWKWARD_KEYS]


def test_empty_value_is_not_absence(store: BytesStore) -> None:
    store.write([(b"k", b"")])
    assert store.get(b"k") == b""
    assert list(store.range()) == [(b"k", b"")]


def test_none_deletes(store: BytesStore) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")])
    store.write([(b"a", None), (b"never there", None)])
    assert list(store.range()) == [(b"b", b"2")]


def test_last_of_several_values_in_a_batch_counts(store: BytesStore) -> None:
    store.write([(b"a", b"1"), (b"b", b"1"), (b"a", None), (b"b", b"2"), (b"c", None), (b"c", b"3")])
    assert list(store.range()) == [(b"b", b"2"), (b"c", b"3")]


def test_batch_that_fails_writes_nothing(store: BytesStore) -> None:
    store.write([(b"a", b"old")], changelog_offset=1)

    def puts() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"new"
        raise LookupError("serializer failed")

    with pytest.raises(LookupError):
        store.write(puts(), changelog_offset=2)
    assert (store.get(b"a"), store.changelog_offset()) == (b"old", 1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("start", [None, *AWKWARD_KEYS])
def test_range_is_that_of_sorted_keys(store: BytesStore, start: bytes | None, reverse: bool) -> None:
    store.write([(key, key) for key in AWKWARD_KEYS], changelog_offset=3)
    for end in [None, *AWKWARD_KEYS]:
        expected = [k for k in AWKWARD_KEYS if (start is None or start <= k) and (end is None or k < end)]
        rows = list(store.range(start, end, reverse=reverse))
        assert rows == [(key, key) for key in (reversed(expected) if reverse else expected)]


@pytest.mark.parametrize("reverse", [False, True])
def test_long_scan_gives_every_row_once(store: BytesStore, reverse: bool) -> None:
    write_numbers(store, 5000)
    keys = [key for key, _ in store.range(b"000010", b"004990", reverse=reverse)]
    assert keys == sorted((b"%06d" % i for i in range(10, 4990)), reverse=reverse)


@pytest.mark.parametrize("prefix", [b"", b"a", b"a\xff", b"\xff", b"\xff\xff", b"b"])
def test_prefix(store: BytesStore, prefix: bytes) -> None:
    keys = sorted([b"", b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff", b"\xff\xffa"])
    store.write([(key, b"") for key in keys])
    assert [key for key, _ in store.prefix(prefix)] == [key for key in keys if key.startswith(prefix)]


@pytest.mark.parametrize(
    ("prefix", "after"), [(b"a", b"b"), (b"a\xff", b"b"), (b"\0", b"\x01"), (b"\xff", None), (b"", None)]
)
def test_after_prefix(prefix: bytes, after: bytes | None) -> None:
    assert after_prefix(prefix) == after


def test_delete_range(store: BytesStore) -> None:
    store.write([(key, key) for key in AWKWARD_KEYS], changelog_offset=11)
    store.delete_range(b"a", b"e")
    assert [key for key, _ in store.range()] == [key for key in AWKWARD_KEYS if not b"a" <= key < b"e"]
    store.delete_range(b"z", b"a")
    assert len(list(store.range())) == len(AWKWARD_KEYS) - 3
    store.delete_range()
    assert list(store.range()) == []
    assert store.changelog_offset() == 11
    store.write([(b"d", b"again")])
    assert list(store.range()) == [(b"d", b"again")]


def test_iterator_sees_the_store_as_it_was(store: BytesStore) -> None:
    write_numbers(store, 3000, b"old")
    rows = store.range()
    reverse = store.range(reverse=True)
    write_numbers(store, 3100, b"new")
    store.write([(b"002999", None)])
    assert list(rows) == [(b"%06d" % i, b"old") for i in range(3000)]
    assert list(reverse) == [(b"%06d" % i, b"old") for i in reversed(range(3000))]


def test_iterators_are_apart(store: BytesStore) -> None:
    write_numbers(store, 100)
    first, second = store.range(), store.range()
    assert [next(first)[0], next(first)[0], next(second)[0]] == [b"000000", b"000001", b"000000"]


def test_changelog_offset_is_none_until_written(store: BytesStore) -> None:
    assert store.changelog_offset() is None
    store.write([(b"a", b"1")])
    assert store.changelog_offset() is None
    store.write([], changelog_offset=0)
    assert store.changelog_offset() == 0
    store.write([(b"a", b"2")])
    assert store.changelog_offset() == 0
    store.write([(b"a", b"2")], changelog_offset=2**62)
    assert store.changelog_offset() == 2**62


def test_restore_applies_columns(store: BytesStore) -> None:
    store.restore([b"b", b"a", b"b", b"c"], [b"1", b"2", b"3", None], 40)
    store.restore([b"a"], [None], 41)
    assert list(store.range()) == [(b"b", b"3")]
    assert store.changelog_offset() == 41


def test_restore_twice_is_as_once(store: BytesStore) -> None:
    for _ in range(2):
        store.restore([b"a", b"b", b"a"], [b"1", b"2", None], 3)
        store.restore([b"c"], [b"3"], 4)
    assert list(store.range()) == [(b"b", b"2"), (b"c", b"3")]


def test_columns_of_different_length_are_refused(store: BytesStore) -> None:
    with pytest.raises(ValueError, match=r"shorter|2 keys and 1 values"):
        store.restore([b"a", b"b"], [b"1"], 2)
    assert (store.get(b"a"), store.changelog_offset()) == (None, None)


def test_sizes_follow_the_data(store: BytesStore) -> None:
    write_numbers(store, 2000, b"v" * 100)
    store.write([], changelog_offset=1)
    store.flush()
    assert store.approximate_count() == 2000
    assert 100_000 < store.approximate_size_bytes() < 1_000_000


CLOSED_CALLS: list[Callable[[BytesStore], object]] = [
    lambda store: store.get(b"a"),
    lambda store: store.write([(b"a", b"1")]),
    lambda store: store.restore([b"a"], [b"1"], 1),
    lambda store: store.range(),
    lambda store: store.prefix(b"a"),
    lambda store: store.delete_range(),
    lambda store: store.changelog_offset(),
    lambda store: store.approximate_count(),
    lambda store: store.approximate_size_bytes(),
    lambda store: store.flush(),
]


@pytest.mark.parametrize("call", CLOSED_CALLS)
@pytest.mark.parametrize("end", ["close", "wipe"])
def test_closed_store_says_so(store: BytesStore, call: Callable[[BytesStore], object], end: str) -> None:
    assert store.is_open
    getattr(store, end)()
    assert not store.is_open
    with pytest.raises(StoreClosedError, match="'counts' is closed"):
        call(store)
    store.close()
    store.wipe()


def test_iterator_of_a_closed_store_does_not_just_end(store: BytesStore) -> None:
    write_numbers(store, 5000)
    rows = store.range()
    next(rows)
    store.close()
    with pytest.raises(StoreClosedError):
        list(itertools.islice(rows, 4999))
