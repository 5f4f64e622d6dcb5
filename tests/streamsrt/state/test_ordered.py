"""Stores that keep their rows in an order of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from streamsrt.state.access import KeyValueAccess
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.directory import StateDirectory
from streamsrt.state.kinds import cache_over, lay_out, store_access
from streamsrt.state.memory import MemoryStore
from streamsrt.state.ordered import OrderedAccess, OrderedBytesStore
from topology.graph.nodes import StoreSpec
from topology.spec.codecs import OrderedKeys, bytes_

BY_END = OrderedKeys("by end", bytes, bytes, lambda raw: raw[-1:].rjust(8, b"\0"))
SPEC = StoreSpec(name="s", key_serde=BY_END, timestamped=False)


class CountedStore(MemoryStore):
    """Counts the rows that are read."""

    read = 0

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for row in super().range(start, end, reverse=reverse):
            self.read += 1
            yield row


def opened(below: MemoryStore) -> tuple[KeyValueCache, OrderedAccess]:
    store = lay_out(SPEC, below)
    cache = cast(KeyValueCache, cache_over(SPEC, store, RowFormat(bytes, bytes, timestamped=False)))
    access = store_access(SPEC, cache, BY_END, lambda: (0, (), 0), None, timestamped=False)
    assert isinstance(access, OrderedAccess)
    return cache, access


def write(cache: KeyValueCache) -> None:
    cache.flush()
    cache.write(None)
    cache.forget()


def keys(rows: Iterator[tuple[bytes, object]]) -> list[object]:
    return [key for _, key in rows]


def test_the_first_rows_are_had_without_the_others() -> None:
    below = CountedStore("s")
    cache, access = opened(below)
    for number in range(2_000):
        access.put(b"%04d-%c" % (number, 65 + number % 50), b"row")
    write(cache)
    assert keys(cast(Any, [next(access.in_order())])) == [b"0000-A"]
    assert keys(cast(Any, [next(access.in_order(reverse=True))])) == [b"1999-r"]
    assert below.read == 2


def test_what_is_not_written_yet_is_in_the_order_and_what_was_deleted_has_no_row() -> None:
    cache, access = opened(MemoryStore("s"))
    for key in (b"a3", b"b1", b"c2"):
        access.put(key, b"row")
    write(cache)
    access.put(b"d2", b"row")
    access.put(b"b1", None)
    access.put(b"c2", b"other")
    assert keys(access.in_order()) == [b"b1", b"c2", b"d2", b"a3"]
    assert [access.get(key) for key in (b"b1", b"c2", b"d2")] == [None, b"other", b"row"]
    cache.flush()
    assert keys(access.in_order(reverse=True)) == [b"a3", b"d2", b"c2", b"b1"], "changes are on their way to the store"
    place = [stored for stored, _ in access.in_order()][1]
    assert keys(access.in_order(place)) == [b"c2", b"d2", b"a3"]


def test_ranges_are_by_the_bytes_of_the_keys() -> None:
    store = lay_out(SPEC, MemoryStore("s"))
    assert isinstance(store, OrderedBytesStore)
    store.write([(b"a3", b"0"), (b"b1", b"1"), (b"c2", b"2"), (b"a3", b"3")])
    assert list(store.range()) == [(b"a3", b"3"), (b"b1", b"1"), (b"c2", b"2")]
    assert list(store.range(b"a4", b"c", reverse=True)) == [(b"b1", b"1")]
    assert list(store.prefix(b"c")) == [(b"c2", b"2")]
    store.restore([b"b1", b"z0"], [None, b"4"], 7)
    assert (list(store.range(b"b")), store.changelog_offset()) == ([(b"c2", b"2"), (b"z0", b"4")], 7)
    store.delete_range(b"b", b"d")
    assert [key for key, _ in store.range()] == [b"a3", b"z0"]


def test_files_in_another_order_are_restored_anew(tmp_path: Path) -> None:
    plain = StoreSpec(name="s", timestamped=False)
    for spec, offset in ((plain, None), (plain, 3), (SPEC, None), (SPEC, 3), (plain, None)):
        with StateDirectory(tmp_path, "my-app") as directory:
            store = directory.open_store(spec, 0)
            assert store.changelog_offset() == offset
            store.restore([b"k"], [b"v"], 3)


def test_other_keys_have_a_store_as_before() -> None:
    spec = StoreSpec(name="s", key_serde=bytes_, timestamped=False)
    below = MemoryStore("s")
    cache = cache_over(spec, lay_out(spec, below), RowFormat(bytes, bytes, timestamped=False))
    assert lay_out(spec, below) is below
    assert type(store_access(spec, cache, bytes_, lambda: (0, (), 0), None, timestamped=False)) is KeyValueAccess
