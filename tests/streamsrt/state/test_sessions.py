"""Session stores: keys as in the changelog, sessions by key, retention, and the cache over them as a plain model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import StateError
from streamsrt.state.cache import RowFormat
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.session_cache import SessionCache
from streamsrt.state.sessions import SessionBytesStore, session_key, split_session_key

FORMAT = RowFormat(str.encode, bytes.decode, timestamped=False)


def over(store: Any, retention_ms: int = 100_000) -> SessionBytesStore:
    return SessionBytesStore(store, retention_ms=retention_ms, segment_interval_ms=60_000)


@pytest.fixture(params=["memory", "rocksdb"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SessionBytesStore]:
    if request.param == "memory":
        store = MemoryStore("s")
        return lambda: over(store)
    return lambda: over(RocksDBStore(tmp_path / "s", "s", RocksDBOptions()))


def test_a_changelog_key_ends_with_end_and_start() -> None:
    key = session_key(b"a", 1, 2)
    assert key == b"a" + (2).to_bytes(8, "big") + (1).to_bytes(8, "big")
    assert split_session_key(key) == (b"a", 1, 2)


def test_sessions_of_a_key_come_by_end(reopen: Callable[[], SessionBytesStore]) -> None:
    store = reopen()
    store.write_logged(
        {
            session_key(b"a", 70_000, 90_000): b"2",
            session_key(b"a", 5, 10): b"1",
            session_key(b"ab", 6, 11): b"x",
            session_key(b"b", 1, 2): b"y",
        }
    )
    assert list(store.sessions(b"a")) == [(5, 10, b"1"), (70_000, 90_000, b"2")]
    assert store.get(b"a", 5, 10) == b"1"
    assert store.get(b"a", 5, 11) is None
    assert sorted(store.all_sessions()) == [
        (b"a", 5, 10, b"1"),
        (b"a", 70_000, 90_000, b"2"),
        (b"ab", 6, 11, b"x"),
        (b"b", 1, 2, b"y"),
    ]
    store.close()


def test_what_is_beyond_retention_is_neither_read_nor_kept(reopen: Callable[[], SessionBytesStore]) -> None:
    store = reopen()
    store.write_logged({session_key(b"a", 0, 10): b"1", session_key(b"a", 0, 20): b"2"}, changelog_offset=7)
    store.expire(100_011)
    assert list(store.sessions(b"a")) == [(0, 20, b"2")]
    assert store.get(b"a", 0, 10) is None
    store.expire(300_000)
    store.write_logged({session_key(b"a", 0, 30): b"3"})
    assert (list(store.all_sessions()), store.dropped_rows, store.changelog_offset()) == ([], 1, 7)
    store.close()


def test_restored_from_the_changelog(reopen: Callable[[], SessionBytesStore]) -> None:
    store = reopen()
    store.restore([session_key(b"a", 1, 2), session_key(b"a", 1, 5), session_key(b"a", 1, 2)], [b"1", b"2", None], 3)
    assert (list(store.sessions(b"a")), store.stream_time_ms, store.changelog_offset()) == ([(1, 5, b"2")], 5, 3)
    with pytest.raises(StateError, match="ends with 16 bytes"):
        store.restore([b"short"], [b"1"], 4)
    store.close()


keys = st.sampled_from([b"a", b"ab"])
values = st.none() | st.text(max_size=3)
puts = st.lists(st.tuples(keys, st.integers(0, 30), st.integers(0, 9), values, st.integers(0, 5)), max_size=30)


@settings(max_examples=100, deadline=None)
@given(puts)
def test_a_cache_is_a_map_of_sessions_whatever_is_flushed_written_and_evicted_between(
    changes: list[tuple[bytes, int, int, str | None, int]],
) -> None:
    cache = SessionCache("s", over(MemoryStore("s")), FORMAT, retention_ms=100_000)
    model: dict[tuple[bytes, int, int], str] = {}
    logged: dict[bytes, bytes | None] = {}
    for sequence, (key, start, length, value, then) in enumerate(changes):
        place = (key, start + length, start)
        cache.put(key, start, start + length, value, 0, (), sequence)
        model.pop(place, None)
        if value is not None:
            model[place] = value
        if then >= 2:
            flushed = cache.flush()
            if flushed is not None:
                logged |= dict(zip(flushed.store_keys, flushed.raw_values, strict=True))
        if then == 4:
            cache.write(None)
        if then == 5:
            cache.write(None)
            cache.evict(0)
        found = {(e.key, e.end, e.start): e.value for k in (b"a", b"ab") for e in cache.find(k, 0, 1000)}
        assert found == model
    assert {(e.key, e.end, e.start): e.value for e in cache.rows()} == model
    flushed = cache.flush()
    if flushed is not None:
        logged |= dict(zip(flushed.store_keys, flushed.raw_values, strict=True))
    kept = {key: value for key, value in logged.items() if value is not None}
    assert kept == {session_key(k, s, e): v.encode() for (k, e, s), v in model.items()}


RETENTION_MS = 40
steps = st.lists(
    st.tuples(keys, st.integers(-60, 80), st.integers(0, 9), values) | st.sampled_from(["flush", "commit", "reopen"]),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.booleans())
def test_a_cache_is_a_map_of_the_sessions_within_retention(script: list[Any], evicts: bool) -> None:
    below = MemoryStore("s")

    def new_cache() -> SessionCache:
        store = SessionBytesStore(below, retention_ms=RETENTION_MS, segment_interval_ms=25)
        return SessionCache("s", store, FORMAT, retention_ms=RETENTION_MS)

    cache, newest = new_cache(), 0
    model: dict[tuple[bytes, int, int], str | None] = {}
    for sequence, step in enumerate(script):
        if step == "flush":
            cache.flush()
        elif isinstance(step, str):
            cache.flush()
            cache.write(sequence)
            if evicts:
                cache.evict(0)
            if step == "reopen":
                cache = new_cache()
        else:
            key, distance, length, value = step
            end = max(0, newest + distance)
            start = max(0, end - length)
            newest = max(newest, end)
            cache.put(key, start, end, value, 0, (), sequence)
            model[key, end, start] = value
        live = {each: v for each, v in model.items() if v is not None and each[1] >= newest - RETENTION_MS}
        assert {(e.key, e.end, e.start): e.value for e in cache.rows()} == live
        found = {(e.key, e.end, e.start): e.value for key in (b"a", b"ab") for e in cache.find(key, 0, 10_000)}
        assert found == live


def test_a_stored_session_that_expires_can_be_emitted_until_the_next_write() -> None:
    store = SessionBytesStore(MemoryStore("s"), retention_ms=100)
    store.write_logged({session_key(b"a", 5, 10): b"x"})
    cache = SessionCache("s", store, FORMAT, retention_ms=100)
    cache.put(b"b", 500, 500, "y", 0, (), 0)
    found = cache.session(b"a", 5, 10)
    assert found is not None
    assert found.value == "x"
    assert cache.find(b"a", 0, 1_000) == []
    cache.flush()
    cache.write(None)
    cache.evict(0)
    assert cache.session(b"a", 5, 10) is None
