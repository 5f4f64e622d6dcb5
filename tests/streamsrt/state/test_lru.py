"""A store that keeps the entries used last: what goes, what is logged, what is restored."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.state.cache import Entry, RowFormat
from streamsrt.state.lru import LruCache
from streamsrt.state.memory import MemoryStore
from streamsrt.wire.records import RecordColumns
from topology import serdes

LIMIT = 2


def new_cache(log: list[tuple[bytes, bytes | None]]) -> LruCache:
    row_format = RowFormat(serdes.string.serialize, serdes.string.deserialize)
    cache = LruCache("lru", MemoryStore("lru"), row_format, max_entries=LIMIT)
    cache.on_drop = lambda entry: log.append(logged(entry))
    return cache


def logged(entry: Entry) -> tuple[bytes, bytes | None]:
    return entry.key, None if entry.value is None else entry.value.encode()


def put(cache: LruCache, log: list[tuple[bytes, bytes | None]], key: bytes, value: str | None) -> None:
    log.append(logged(cache.put(key, value, 7, (), 0)))


def rows(cache: LruCache) -> list[bytes]:
    return [entry.key for entry in cache.rows(None, None)]


def test_the_entry_that_was_not_used_for_longest_goes_first() -> None:
    log: list[tuple[bytes, bytes | None]] = []
    cache = new_cache(log)
    put(cache, log, b"a", "1")
    put(cache, log, b"b", "2")
    assert cache[b"a"].value == "1"
    put(cache, log, b"c", "3")
    assert rows(cache) == [b"a", b"c"]
    assert log == [(b"a", b"1"), (b"b", b"2"), (b"b", None), (b"c", b"3")], "the tombstone comes first"


def test_a_deleted_entry_takes_no_room() -> None:
    log: list[tuple[bytes, bytes | None]] = []
    cache = new_cache(log)
    for key, value in ((b"a", "1"), (b"b", "2"), (b"a", None), (b"c", "3")):
        put(cache, log, key, value)
    assert rows(cache) == [b"b", b"c"]
    assert cache[b"a"].value is None


def test_a_store_with_a_lower_limit_drops_what_is_too_much_with_the_next_entry() -> None:
    log: list[tuple[bytes, bytes | None]] = []
    cache = new_cache(log)
    keys = [b"d", b"a", b"c", b"b"]
    cache.restore(RecordColumns(keys, [b"1"] * 4, [7] * 4, 0, 4))
    put(cache, log, b"e", "2")
    assert rows(cache) == [b"b", b"e"]
    assert log == [(b"d", None), (b"a", None), (b"c", None), (b"e", b"2")]


actions = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.none() | st.sampled_from(["x", "y"])))


@settings(max_examples=60, deadline=None)
@given(actions, actions)
def test_a_restored_store_goes_on_as_if_nothing_happened(
    before: list[tuple[bytes, str | None]], after: list[tuple[bytes, str | None]]
) -> None:
    log: list[tuple[bytes, bytes | None]] = []
    cache = new_cache(log)
    for key, value in before:
        put(cache, log, key, value)
    keys, values = [key for key, _ in log], [value for _, value in log]
    other_log: list[tuple[bytes, bytes | None]] = []
    restored = new_cache(other_log)
    restored.restore(RecordColumns(keys, values, [7] * len(keys), 0, len(keys)))
    assert rows(restored) == rows(cache)
    log.clear()
    for key, value in after:
        put(cache, log, key, value)
        put(restored, other_log, key, value)
    assert other_log == log
    assert rows(restored) == rows(cache)
    assert len(rows(cache)) <= LIMIT
