"""The cache that is read by key against the one that is read by window, which does the same in another order."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.queries import readers
from streamsrt.state.cache import Flushed, RowFormat
from streamsrt.state.memory import MemoryStore
from streamsrt.state.sliding_cache import SlidingCache
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import WindowBytesStore
from topology import serdes

RETENTION_MS, SEGMENT_MS = 50, 30
LATEST_MS = 10_000
FORMAT = RowFormat(serdes.long.serialize, serdes.long.deserialize)
KEYS = [b"a", b"ab", b"b"]

Step: TypeAlias = tuple[str, bytes, int, int | None]
"""What is done; the key, how far the window's start lies from the newest one, the new value."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS), st.integers(-49, 70), st.none() | st.integers(0, 9)),
        st.tuples(st.sampled_from(["flush", "commit", "evict", "reopen"]), st.just(b""), st.just(0), st.none()),
    ),
    max_size=40,
)


def new_store(below: MemoryStore) -> WindowBytesStore:
    return WindowBytesStore(below, retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)


def new_cache(kind: type[WindowCache], store: WindowBytesStore) -> WindowCache:
    newest = store.stream_time_ms
    return kind("w", store, FORMAT, retention_ms=RETENTION_MS, newest_stored_start=newest)


class Side:
    """One of both caches, over a store of its own."""

    def __init__(self, kind: type[WindowCache]) -> None:
        self._kind = kind
        self._below = MemoryStore("w")
        self.cache = new_cache(kind, new_store(self._below))

    def put(self, key: bytes, start: int, value: int | None, sequence: int) -> None:
        self.cache.put(key, start, value, start + 5, (), sequence)

    def flush(self) -> tuple[object, ...] | None:
        flushed: Flushed | None = self.cache.flush()
        if flushed is None:
            return None
        self.cache.read_olds(flushed)
        return (flushed.store_keys, flushed.raw_values, flushed.timestamps, flushed.starts, flushed.olds)

    def reopen(self) -> None:
        self.cache = new_cache(self._kind, new_store(self._below))

    def rows(self) -> list[object]:
        """All that anyone can see."""
        cache, newest = self.cache, max(0, self.cache.newest())
        live = range(max(0, newest - RETENTION_MS + 1), newest + 1)
        return [
            [(entry.key, entry.start, entry.value, entry.timestamp) for entry in cache.rows()],
            [list(readers.windows_of_key(cache, key, 0, LATEST_MS, reverse=False)) for key in KEYS],
            list(readers.all_windows(cache, 0, LATEST_MS, None, None, reverse=True)),
            sorted(cache.starts(live[0])),
            [[(entry.key, entry.value) for entry in cache.rows_at(start)] for start in live],
            [cache[start][key].value for start in live[::7] for key in KEYS],
        ]


@settings(max_examples=120, deadline=None)
@given(STEPS, st.booleans())
def test_both_caches_hold_log_and_show_the_same(steps: list[Step], looks: bool) -> None:
    sides = by_window, by_key = Side(WindowCache), Side(SlidingCache)
    newest = 0
    for number, (what, key, distance, value) in enumerate(steps):
        start = max(0, newest + distance)
        for side in sides:
            if what == "put":
                side.put(key, start, value, number)
        if what == "put":
            newest = max(newest, start)
        else:
            assert by_window.flush() == by_key.flush()
            for side in sides:
                if what != "flush":
                    side.cache.write(number)
                if what == "evict":
                    side.cache.evict(0)
                elif what == "reopen":
                    side.reopen()
        if looks:
            assert by_window.rows() == by_key.rows()
    assert by_window.flush() == by_key.flush()
    assert by_window.rows() == by_key.rows()


class CountingStore(WindowBytesStore):
    """Counts how often it is asked for a key."""

    asked = 0

    def fetch(self, key, from_ms, to_ms, *, reverse=False):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().fetch(key, from_ms, to_ms, reverse=reverse)


@pytest.mark.parametrize(("newest", "asked"), [(30, 1), (90, 0)])
def test_the_store_is_asked_only_while_it_has_rows_that_are_not_known(newest: int, asked: int) -> None:
    below = MemoryStore("w")
    new_store(below).write([(b"a", 20, bytes(16))])
    store = CountingStore(below, retention_ms=RETENTION_MS)
    cache = SlidingCache("w", store, FORMAT, retention_ms=RETENTION_MS, newest_stored_start=20)
    cache.put(b"b", newest, 1, newest, (), 0)
    cache.flush()
    cache.write(None)
    store.asked = 0
    assert len(cache.windows_of(b"a")) == asked
    assert store.asked == asked


def test_a_stored_window_that_expires_can_be_emitted_until_the_next_write() -> None:
    below = MemoryStore("w")
    new_store(below).write([(b"a", 20, (25).to_bytes(8, "big") + (7).to_bytes(8, "big"))])
    cache = new_cache(SlidingCache, new_store(below))
    cache.put(b"b", 500, 1, 500, (), 0)
    assert [(entry.key, entry.value, entry.timestamp) for entry in cache.rows_at(20)] == [(b"a", 7, 25)]
    assert cache[20][b"a"].value == 7
    cache.flush()
    cache.write(None)
    assert (cache.rows_at(20), cache[20][b"a"].value) == ([], None)
