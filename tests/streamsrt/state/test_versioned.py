"""Versions by key and time: order of puts, retention, restoring, and the typed versions over the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import StateError
from streamsrt.state.cache import RowFormat
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.store import BytesStore
from streamsrt.state.versioned import RowVersion, VersionedBytesStore
from streamsrt.state.versioned_cache import VersionedCache
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.state.conftest import DEFAULTS, OpenStore
from topology import serdes

RETENTION_MS = 100
SEGMENT_MS = 30

Put = tuple[bytes, int, bytes | None]


def over(store: BytesStore) -> VersionedBytesStore:
    return VersionedBytesStore(store, history_retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)


def cache_over(store: BytesStore) -> VersionedCache:
    return VersionedCache("v", over(store), RowFormat(serdes.string.serialize, serdes.string.deserialize))


@pytest.fixture
def versions(store: BytesStore) -> VersionedBytesStore:
    return over(store)


# ---------------------------------------------------------------------------------------------------------------- bytes


def test_versions_in_order(versions: VersionedBytesStore) -> None:
    versions.write([(b"a", 10, b"1"), (b"a", 20, b"2"), (b"ab", 15, b"3")], changelog_offset=3)
    assert versions.latest(b"a") == (20, b"2")
    assert versions.versions(b"a") == [RowVersion(10, b"1", 20), RowVersion(20, b"2", None)]
    assert [versions.get(b"a", at) for at in (9, 10, 19, 20, 99)] == [
        None, RowVersion(10, b"1", 20), RowVersion(10, b"1", 20), RowVersion(20, b"2", None), RowVersion(20, b"2", None),
    ]  # fmt: skip
    assert list(versions.latest_rows()) == [(b"a", 20, b"2"), (b"ab", 15, b"3")]
    assert versions.changelog_offset() == 3


def test_versions_of_a_key_that_come_out_of_order_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = over(MemoryStore("v"))
    versions.write([(b"a", 10, b"1"), (b"a", 40, b"2"), (b"b", 50, b"3")])
    scans: list[bytes] = []
    scan = versions._store.range

    def counted(first: bytes | None = None, *more: bytes) -> Iterator[tuple[bytes, bytes]]:
        scans.append(first or b"")
        return scan(first, *more)

    monkeypatch.setattr(versions._store, "range", counted)
    versions.write([(b"a", 20, b"late")])
    read = len(scans)
    assert read > 0
    versions.write([(b"a", 15, b"later"), (b"a", 60, b"new"), (b"a", 45, None), (b"a", 30, b"again")])
    versions.write([(b"a", 41, b"last")])
    assert len(scans) == read
    monkeypatch.undo()
    assert [(each.timestamp_ms, each.value) for each in versions.versions(b"a")] == [
        (10, b"1"), (15, b"later"), (20, b"late"), (30, b"again"), (40, b"2"), (41, b"last"), (45, None), (60, b"new"),
    ]  # fmt: skip


def test_a_write_that_fails_leaves_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = over(MemoryStore("v"))
    versions.write([(b"a", 10, b"1"), (b"a", 40, b"2")])

    def refuse(*_: object, **__: object) -> None:
        raise StateError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(versions._store, "write", refuse)
        with pytest.raises(StateError, match="no space"):
            versions.write([(b"a", 20, b"lost")])
    versions.write([(b"a", 30, b"late")])
    assert [(each.timestamp_ms, each.value) for each in versions.versions(b"a")] == [
        (10, b"1"), (30, b"late"), (40, b"2"),
    ]  # fmt: skip


def test_a_version_put_late_ends_where_the_next_one_begins(versions: VersionedBytesStore) -> None:
    versions.write([(b"a", 10, b"1"), (b"a", 40, b"2")])
    versions.write([(b"a", 20, b"late")])
    assert versions.versions(b"a") == [
        RowVersion(10, b"1", 20),
        RowVersion(20, b"late", 40),
        RowVersion(40, b"2", None),
    ]


def test_deletion_ends_a_version(versions: VersionedBytesStore) -> None:
    versions.write([(b"a", 10, b"1"), (b"a", 30, None)])
    assert versions.latest(b"a") is None
    assert versions.get(b"a", 29) == RowVersion(10, b"1", 30)
    assert versions.get(b"a", 30) is None
    versions.write([(b"a", 20, b"late")])
    assert versions.get(b"a", 29) == RowVersion(20, b"late", 30), "the deletion still ends it"
    assert versions.latest(b"a") is None


def test_at_equal_timestamps_the_last_put_counts(versions: VersionedBytesStore) -> None:
    versions.write([(b"a", 10, b"1"), (b"a", 10, b"2")])
    assert versions.versions(b"a") == [RowVersion(10, b"2", None)]
    versions.write([(b"a", 20, b"3"), (b"a", 10, None)])
    assert versions.versions(b"a") == [RowVersion(10, None, 20), RowVersion(20, b"3", None)]
    versions.write([(b"a", 20, None), (b"a", 20, b"4")])
    assert versions.versions(b"a")[-1] == RowVersion(20, b"4", None)


def test_what_is_older_than_the_retention_is_not_put(versions: VersionedBytesStore) -> None:
    versions.write([(b"a", 500, b"1"), (b"b", 399, b"2"), (b"c", 400, b"3")])
    assert (versions.latest(b"b"), versions.latest(b"c"), versions.dropped_rows) == (None, (400, b"3"), 1)


def test_history_expires_by_segments_but_the_newest_version_stays(versions: VersionedBytesStore) -> None:
    versions.write([(b"a", 10, b"1"), (b"a", 20, b"2"), (b"b", 10, b"3"), (b"b", 20, None)])
    versions.write([(b"c", 500, b"4")])
    assert versions.versions(b"a") == [RowVersion(20, b"2", None)]
    assert versions.versions(b"b") == []
    assert versions.get(b"a", 25) == RowVersion(20, b"2", None), "older than the retention, but the newest"
    assert versions.get(b"a", 15) is None


def test_negative_timestamps_are_refused(versions: VersionedBytesStore) -> None:
    with pytest.raises(StateError, match="can't begin at -1 ms"):
        versions.write([(b"a", -1, b"1")])


def test_versions_and_stream_time_survive(open_persistent: OpenStore) -> None:
    first = over(open_persistent())
    first.write([(b"a", 10, b"1"), (b"a", 50, None), (b"b", 150, b"2")], changelog_offset=7)
    first.close()
    again = over(open_persistent())
    assert (again.stream_time_ms, again.changelog_offset()) == (150, 7)
    again.write([(b"a", 49, b"too old"), (b"a", 50, b"3")])
    assert (again.dropped_rows, again.latest(b"a")) == (1, (50, b"3"))
    again.close()


# --------------------------------------------------------------------------------------------------------------- model

keys = st.sampled_from([b"a", b"b", b"ab"])
puts = st.lists(st.tuples(keys, st.integers(0, 300), st.none() | st.sampled_from([b"x", b"y", b"z"])), max_size=40)


class Model:
    """Versions as a dictionary of dictionaries; nothing but the retention's bounds is ever forgotten."""

    def __init__(self) -> None:
        self.rows: dict[bytes, dict[int, bytes | None]] = {}
        self.stream_time_ms = -1

    def put(self, key: bytes, timestamp_ms: int, value: bytes | None) -> None:
        if timestamp_ms >= self.stream_time_ms - RETENTION_MS:
            self.stream_time_ms = max(self.stream_time_ms, timestamp_ms)
            self.rows.setdefault(key, {})[timestamp_ms] = value

    def value(self, key: bytes, as_of_ms: int) -> bytes | None:
        rows = self.rows.get(key, {})
        known = [timestamp_ms for timestamp_ms in rows if timestamp_ms <= as_of_ms]
        if as_of_ms < self.stream_time_ms - RETENTION_MS and max(rows, default=0) != max(known, default=-1):
            return None
        return rows[max(known)] if known else None


def check(found: VersionedBytesStore, model: Model) -> None:
    for key in (b"a", b"b", b"ab"):
        for as_of_ms in range(-1, 310, 3):
            version = found.get(key, as_of_ms)
            assert (None if version is None else version.value) == model.value(key, as_of_ms), (key, as_of_ms)


@given(puts, st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_any_puts_equal_the_model(rows: list[Put], cut: int) -> None:
    found, model = over(MemoryStore("v")), Model()
    for row in rows:
        model.put(*row)
    found.write(rows[:cut])
    found.write(rows[cut:])
    check(found, model)
    one_by_one = over(MemoryStore("v"))
    for row in rows:
        one_by_one.write([row])
    check(one_by_one, model)


@given(puts, st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_the_typed_versions_equal_the_model(rows: list[Put], written: int, restored: int) -> None:
    """Written, evicted and restored in between: nothing of it can be seen."""
    bytes_store = MemoryStore("v")
    cache, model = cache_over(bytes_store), Model()
    for index, (key, timestamp_ms, value) in enumerate(rows):
        if index == written:
            cache.flush()
            cache.write(index)
            cache.evict(0)
        if index == restored:
            cache = cache_over(MemoryStore("v"))
            cache.restore(columns(rows[:index]))
        cache.put(key, None if value is None else value.decode(), timestamp_ms, (), index)
        model.put(key, timestamp_ms, value)
    for key in (b"a", b"b", b"ab"):
        for as_of_ms in range(-1, 310, 3):
            expected = model.value(key, as_of_ms)
            assert cache.as_of(key, as_of_ms) == (None if expected is None else expected.decode()), (key, as_of_ms)
    cache.flush()
    cache.write(len(rows))
    check(cache.store, model)


def columns(rows: list[Put]) -> RecordColumns:
    return RecordColumns(
        [key for key, _, _ in rows],
        [value for _, _, value in rows],
        [at for _, at, _ in rows],
        0,
        len(rows),
        None,
        None,
    )


# --------------------------------------------------------------------------------------------------------------- typed


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[VersionedCache]:
    opened = cache_over(RocksDBStore(tmp_path / "v", "v", DEFAULTS))
    yield opened
    opened.store.close()


def test_a_put_says_up_to_when_it_is_valid(cache: VersionedCache) -> None:
    assert cache.put(b"a", "1", 100, (), 0).is_latest
    assert cache.put(b"a", "2", 200, (), 1).is_latest
    late = cache.put(b"a", "3", 150, (), 2)
    assert (late.valid_to_ms, late.is_stored) == (200, True)
    assert not cache.put(b"a", "4", 99, (), 3).is_stored
    assert cache.versions(b"a") == [("2", 200, None), ("3", 150, 200), ("1", 100, 150)]
    assert cache.expired_puts == 1


def test_nothing_is_in_the_store_before_it_is_written(cache: VersionedCache) -> None:
    cache.put(b"a", "1", 100, (), 0)
    cache.flush()
    assert cache.store.latest(b"a") is None
    cache.write(1)
    assert (cache.store.latest(b"a"), cache.store.changelog_offset()) == ((100, b"1"), 1)


def test_forgotten_puts_were_never_there(cache: VersionedCache) -> None:
    cache.put(b"a", "1", 100, (), 0)
    cache.forget()
    assert (cache[b"a"].value, cache.stream_time_ms) == (None, -1)


def test_versions_count_once_however_they_came(cache: VersionedCache) -> None:
    empty = cache.size_bytes()
    for value, timestamp in (("1", 100), ("2", 200), ("again", 200), ("expired", 50), ("3", 150)):
        cache.put(b"a", value, timestamp, (), 0)
    alone = cache_over(MemoryStore("v"))
    for timestamp in (100, 150, 200):
        alone.put(b"a", "1", timestamp, (), 0)
    before = cache.size_bytes()
    assert (len(cache.versions(b"a")), before) == (3, alone.size_bytes())
    cache.flush()
    cache.write(1)
    assert cache.size_bytes() == before
    cache.evict(0)
    assert cache.size_bytes() == empty


@pytest.mark.parametrize("value", [b"1", bytearray(b"1")])
def test_values_of_bytes_are_written_as_bytes(value: bytes) -> None:
    cache = VersionedCache("v", over(MemoryStore("v")), RowFormat(serdes.bytes.serialize, serdes.bytes.deserialize))
    cache.put(b"a", value, 100, (), 0)
    cache.put(b"b", None, 100, (), 1)
    cache.flush()
    assert cache.pending == [(b"a", 100, b"1"), (b"b", 100, None)]
    assert type(cache.pending[0][2]) is bytes
