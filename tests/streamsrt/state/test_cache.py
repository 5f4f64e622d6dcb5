from __future__ import annotations

from struct import Struct

import pytest

from streamsrt.state.cache import ENTRY_OVERHEAD_BYTES, UNREAD, KeyValueCache, RowFormat
from streamsrt.state.memory import MemoryStore
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import WindowBytesStore
from topology import serdes

pack = Struct(">q").pack


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("counts")


@pytest.fixture
def cache(store: MemoryStore) -> KeyValueCache:
    return KeyValueCache("counts", store, RowFormat(serdes.long.serialize, serdes.long.deserialize))


def test_a_miss_loads_the_row(store: MemoryStore, cache: KeyValueCache) -> None:
    store.write([(b"a", pack(77) + pack(3))])
    assert (cache[b"a"].value, cache[b"a"].timestamp) == (3, 77)
    assert cache[b"b"].value is None


def test_a_flush_gives_columns_from_the_least_to_the_most_recently_changed(cache: KeyValueCache) -> None:
    for sequence, (key, value) in enumerate([(b"b", 1), (b"a", 2), (b"b", 3)]):
        cache.put(key, value, 10 + sequence, (), sequence)
    flushed = cache.flush()
    assert flushed is not None
    assert (flushed.keys, flushed.values, flushed.timestamps) == ([b"a", b"b"], [2, 3], [11, 12])
    assert flushed.raw_values == [pack(2), pack(3)]
    cache.read_olds(flushed)
    assert flushed.olds == [None, None]
    assert cache.flush() is None


def test_the_store_is_written_with_the_changelog_offset_and_not_before(
    store: MemoryStore, cache: KeyValueCache
) -> None:
    cache.put(b"a", 1, 10, (), 0)
    cache.flush()
    assert store.get(b"a") is None
    assert [entry.value for entry in cache.rows(None, None)] == [1]
    cache.write(42)
    assert (store.get(b"a"), store.changelog_offset()) == (pack(10) + pack(1), 42)


def test_what_came_and_went_between_two_flushes_is_left_out(cache: KeyValueCache) -> None:
    cache.put(b"a", 1, 10, (), 0)
    cache.put(b"a", None, 11, (), 1)
    assert cache.flush() is None
    cache.put(b"a", 1, 10, (), 2)
    cache.put(b"a", None, 11, (), 3)
    assert cache.flush(forwards=False) is None


def test_a_row_that_nobody_looked_up_is_deleted_whether_it_is_there_or_not(cache: KeyValueCache) -> None:
    entry = cache.unread(b"a")
    entry.value = None
    logged = cache.flush(forwards=False)
    assert logged is not None
    assert logged.values == [None]


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("before", [None, 1])
@pytest.mark.parametrize("after", [None, 2])
def test_a_row_is_flushed_alone_as_it_is_beside_another(forwards: bool, before: int | None, after: int | None) -> None:
    seen = []
    for others in ([], [b"z"]):
        cache = KeyValueCache(
            "counts", MemoryStore("counts"), RowFormat(serdes.long.serialize, serdes.long.deserialize)
        )
        if before is not None:
            cache.put(b"a", before, 5, (), 0)
            cache.flush()
            cache.write(None)
        for sequence, key in enumerate([b"a", *others]):
            cache.put(key, after if key == b"a" else 9, 10, (), sequence)
        flushed = cache.flush(forwards=forwards)
        assert not cache.dirty
        assert not cache[b"a"].dirty
        columns = ("keys", "store_keys", "values", "raw_values", "timestamps", "headers")
        row = [getattr(flushed, column)[:1] for column in columns] if flushed and flushed.keys[0] == b"a" else None
        seen.append((row, cache.pending.get(b"a", "nothing")))
        cache.write(None)
        assert cache.store.get(b"a") == (None if after is None else pack(10) + pack(after))
    assert seen[0] == seen[1]


def test_an_entry_to_overwrite_is_not_looked_up_until_somebody_needs_the_old_value(
    store: MemoryStore, cache: KeyValueCache
) -> None:
    store.write([(b"a", pack(1) + pack(9))])
    entry = cache.unread(b"a")
    assert entry.old is UNREAD
    entry.value, entry.timestamp = 10, 2
    flushed = cache.flush()
    assert flushed is not None
    cache.read_olds(flushed)
    assert flushed.olds == [9]


def test_a_deletion_of_a_row_that_nobody_read_is_flushed_where_the_store_has_it(
    store: MemoryStore, cache: KeyValueCache
) -> None:
    store.write([(b"a", pack(1) + pack(9))])
    for key in (b"a", b"b"):
        cache.unread(key).value = None
    flushed = cache.flush()
    assert flushed is not None
    assert flushed.keys == [b"a"]


def test_eviction_keeps_what_was_used_lately_and_all_that_is_not_written(cache: KeyValueCache) -> None:
    for index in range(100):
        cache.put(b"%03d" % index, index, 0, (), index)
    limit = 60 * ENTRY_OVERHEAD_BYTES
    cache.evict(limit)
    assert len(cache) == 100
    cache.flush()
    cache.evict(limit)
    assert len(cache) == 100
    cache.write(None)
    cache.evict(limit)
    assert cache.size_bytes() <= limit
    assert cache[b"007"].value == 7


def test_rows_are_in_the_order_of_keys_wherever_they_are(store: MemoryStore, cache: KeyValueCache) -> None:
    store.write([(b"b", pack(0) + pack(2)), (b"d", pack(0) + pack(4)), (b"e", pack(0) + pack(5))])
    cache.put(b"c", 3, 0, (), 0)
    cache.flush()
    cache.put(b"a", 1, 0, (), 1)
    cache.put(b"d", None, 0, (), 2)
    assert [(e.key, e.value) for e in cache.rows(None, None)] == [(b"a", 1), (b"b", 2), (b"c", 3), (b"e", 5)]
    assert [e.key for e in cache.rows(b"b", b"e", reverse=True)] == [b"c", b"b"]


def window_cache(store: WindowBytesStore) -> WindowCache:
    row_format = RowFormat(serdes.long.serialize, serdes.long.deserialize)
    return WindowCache("w", store, row_format, retention_ms=100, newest_stored_start=store.stream_time_ms)


def test_windows_newer_than_all_stored_ones_are_fresh() -> None:
    store = WindowBytesStore(MemoryStore("w"), retention_ms=100)
    store.write([(b"a", 50, pack(55) + pack(1))])
    cache = window_cache(store)
    assert not cache[50].fresh
    assert cache[50][b"a"].value == 1
    assert cache[60].fresh
    assert cache[60][b"a"].value is None


def test_a_window_is_logged_under_key_start_and_sequence_number() -> None:
    store = WindowBytesStore(MemoryStore("w"), retention_ms=100)
    cache = window_cache(store)
    cache.put(b"a", 10, 1, 12, (), 0)
    flushed = cache.flush()
    assert flushed is not None
    assert flushed.store_keys == [b"a" + pack(10) + bytes(4)]
    assert flushed.starts == [10]
    cache.write(5)
    assert store.get(b"a", 10) == pack(12) + pack(1)
    assert store.changelog_offset() == 5


def test_windows_beyond_retention_are_dropped_at_the_write() -> None:
    cache = window_cache(WindowBytesStore(MemoryStore("w"), retention_ms=100))
    cache.put(b"a", 0, 1, 5, (), 0)
    cache.put(b"a", 100, 1, 105, (), 1)
    cache.flush()
    cache.write(None)
    assert list(cache) == [100]
    assert [(e.key, e.start) for e in cache.rows()] == [(b"a", 100)]
