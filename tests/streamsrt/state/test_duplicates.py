"""The cache of windows with duplicates beside a list that forgets nothing, over commits, restarts and restores."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.state.cache import RowFormat
from streamsrt.state.duplicates import DuplicatesBytesStore, DuplicatesCache
from streamsrt.state.memory import MemoryStore
from topology import serdes

KEYS = (b"a", b"b", b"", b"ab")


def same(value: bytes) -> bytes:
    return value


def cache_over(store: DuplicatesBytesStore) -> DuplicatesCache:
    return DuplicatesCache("s", store, RowFormat(same, same, timestamped=False), retention_ms=store.retention_ms)


def empty_store(retention_ms: int) -> DuplicatesBytesStore:
    return DuplicatesBytesStore(MemoryStore("s"), retention_ms=retention_ms, segment_interval_ms=2 * retention_ms + 1)


class Model:
    """All that was put, with its keys in the changelog."""

    def __init__(self, retention_ms: int) -> None:
        self.retention_ms = retention_ms
        self.put: list[tuple[bytes, int, bytes | None, bytes]] = []
        self.durable = 0

    def newest_ms(self) -> int:
        return max((at for _, at, value, _ in self.put if value is not None), default=-1)

    def rows(self) -> list[tuple[bytes, int, bytes]]:
        """Of each key by time, then as they came."""
        low_ms = self.newest_ms() - self.retention_ms
        seen = [(k, at, value) for k, at, value, _ in self.put if value is not None and at > low_ms]
        return sorted(seen, key=lambda row: row[:2])

    def fetch(self, key: bytes, from_ms: int, to_ms: int) -> list[tuple[int, bytes]]:
        return [(at, value) for k, at, value in self.rows() if k == key and from_ms <= at <= to_ms]


def check(cache: DuplicatesCache, model: Model, chance: Random) -> None:
    assert [(row.key, row.start, row.value) for row in cache.rows()] == model.rows()
    newest_ms = model.newest_ms()
    for key in KEYS:
        from_ms = max(0, newest_ms - chance.randrange(2 * model.retention_ms + 2))
        to_ms = from_ms + chance.randrange(model.retention_ms + 2)
        found = cache.fetch(key, from_ms, to_ms)
        assert [(at, value) for at, _, value in found] == model.fetch(key, from_ms, to_ms)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from((1, 7, 100)), st.sampled_from((0, 3, 60)))
def test_it_shows_what_a_list_of_everything_shows(seed: int, retention_ms: int, disorder_ms: int) -> None:
    chance = Random(seed)
    store, model = empty_store(retention_ms), Model(retention_ms)
    cache, now_ms = cache_over(store), 0
    for _ in range(chance.randrange(12)):
        for _ in range(chance.choice((1, 5, 100, 700))):
            now_ms += chance.choice((0, 0, 1, 2))
            now_ms += chance.randrange(3 * retention_ms) if chance.random() < 0.01 else 0
            at = max(0, now_ms - chance.randrange(disorder_ms + 1))
            key, value = chance.choice(KEYS), chance.choice((b"x", b"y", None, b""))
            model.put.append((key, at, value, cache.put(key, at, value, value)))
        check(cache, model, chance)
        what = chance.choice(("commit", "commit", "evict", "reopen", "restore", "lose", "go on"))
        if what not in ("go on", "lose"):
            cache.write(len(model.put))
            model.durable = len(model.put)
        if what == "evict":
            cache.evict(0)
        if what == "lose":
            # What was not committed is gone.
            del model.put[model.durable :]
        if what in ("reopen", "lose"):
            store = DuplicatesBytesStore(
                store.below, retention_ms=retention_ms, segment_interval_ms=store.segment_interval_ms
            )
            cache = cache_over(store)
        if what == "restore":
            store = empty_store(retention_ms)
            store.restore([row[3] for row in model.put], [row[2] for row in model.put], len(model.put))
            cache = cache_over(store)
        assert cache.sequence == len(model.put)
        check(cache, model, chance)
    assert len({row[3] for row in model.put}) == len(model.put)


@pytest.mark.parametrize("count", [10, 2000])
def test_what_is_over_before_a_commit_is_in_the_changelog_only(count: int) -> None:
    store = empty_store(retention_ms=50)
    cache = cache_over(store)
    logged = [cache.put(b"k%d" % (at % 7), at * 10, b"v", b"v") for at in range(count)]
    assert len(set(logged)) == count
    assert len(cache.pending) < 300
    cache.write(count)
    assert store.approximate_count() == 5
    assert store.stream_time_ms == (count - 1) * 10
    assert store.changelog_offset() == count
    assert [row.start for row in cache_over(store).rows()] == [row.start for row in cache.rows()]


def test_a_window_without_length_still_has_something_to_commit() -> None:
    store = empty_store(retention_ms=0)
    cache = cache_over(store)
    for at in range(1000):
        cache.put(b"k", at, b"v", b"v")
    assert cache.pending
    cache.write(None)
    assert store.stream_time_ms == 999
    assert store.last_sequence == 1000
    assert list(cache.rows()) == []


def test_values_of_other_types_are_read_as_they_were_written() -> None:
    store = empty_store(retention_ms=100)
    row_format = RowFormat(serdes.long.serialize, serdes.long.deserialize, timestamped=False)
    cache = DuplicatesCache("s", store, row_format, retention_ms=100)
    cache.put(b"k", 5, 7, serdes.long.serialize(7))
    cache.write(1)
    again = DuplicatesCache("s", store, row_format, retention_ms=100)
    assert again.fetch(b"k", 0, 10) == [(5, 1, 7)]


def test_a_row_whose_deletion_is_logged_is_restored_no_more() -> None:
    store = empty_store(1_000)
    keys = [b"k" + (100).to_bytes(8, "big") + number.to_bytes(4, "big") for number in (1, 2, 3)]
    store.restore(keys[:2], [b"one", b"two"], 2)
    # It has moved to another partition. The third record never had a value.
    store.restore([keys[0], keys[2]], [None, None], 4)
    assert list(store.rows_of(b"k")) == [(100, 2, b"two")]
    assert (store.last_sequence, store.stream_time_ms) == (3, 100)
    store.restore([keys[1], keys[1]], [b"again", None], 6)
    assert list(store.rows_of(b"k")) == []
