"""What a query reads equals a model, whatever is in the cache, waits to be written, or lies in the store."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.queries import readers
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.memory import MemoryStore
from streamsrt.state.session_cache import SessionCache
from streamsrt.state.sessions import SessionBytesStore
from streamsrt.state.versioned import VersionedBytesStore
from streamsrt.state.versioned_cache import VersionedCache
from streamsrt.state.window_cache import WindowCache
from streamsrt.state.windowed import WindowBytesStore

FORMAT = RowFormat(lambda number: b"%d" % number, int)
RETENTION_MS, SIZE_MS = 400_000, 10_000
MISSING = None

keys = st.binary(max_size=2)
bounds = st.none() | keys
starts = st.integers(0, 100).map(lambda n: n * SIZE_MS)
steps = st.sampled_from(["flush", "write", "evict", "read"])


def row(value: int, timestamp: int = 5) -> bytes:
    return timestamp.to_bytes(8, "big") + b"%d" % value


def keep(cache: KeyValueCache | WindowCache | SessionCache | VersionedCache, step: str) -> None:
    """A part of a commit."""
    if step == "flush":
        cache.flush()
    elif step == "write":
        cache.flush()
        cache.write(None)
    elif step == "evict":
        cache.evict(0)


puts = st.tuples(keys, st.none() | st.integers(0, 99))


@settings(deadline=None)
@given(st.lists(puts | steps, max_size=25), bounds, bounds, st.booleans())
def test_key_value_rows_equal_a_model(script: list[Any], start: bytes | None, end: bytes | None, reverse: bool) -> None:
    cache = KeyValueCache("kv", MemoryStore("kv"), FORMAT)
    model: dict[bytes, int] = {}
    for step in script:
        if isinstance(step, str):
            keep(cache, step)
            continue
        key, value = step
        cache.put(key, value, 5, (), 0)
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
    cached = len(cache)
    expected = [
        (key, row(value))
        for key, value in sorted(model.items(), reverse=reverse)
        if (start is None or start <= key) and (end is None or key < end)
    ]
    found = [(raw.key, raw.row) for raw in readers.key_rows(cache, start, end, reverse=reverse)]
    assert found == expected
    for key in {b"", b"a", *model}:
        assert readers.key_row(cache, key) == (row(model[key]) if key in model else MISSING)
    assert len(cache) == cached


window_puts = st.tuples(keys, starts, st.none() | st.integers(0, 99))


@settings(deadline=None)
@given(st.lists(window_puts | steps, max_size=25), starts, starts, bounds, bounds, st.booleans())
def test_windows_equal_a_model(
    script: list[Any], from_ms: int, to_ms: int, low: bytes | None, high: bytes | None, reverse: bool
) -> None:
    store = WindowBytesStore(MemoryStore("w"), retention_ms=RETENTION_MS)
    cache = WindowCache("w", store, FORMAT, retention_ms=RETENTION_MS, newest_stored_start=store.stream_time_ms)
    model: dict[tuple[bytes, int], int] = {}
    newest = -1
    for step in script:
        if isinstance(step, str):
            keep(cache, step)
            continue
        key, start, value = step
        if start <= newest - RETENTION_MS:
            continue
        newest = max(newest, start)
        cache.put(key, start, value, 5, (), 0)
        if value is None:
            model.pop((key, start), None)
        else:
            model[key, start] = value
    live = {place: value for place, value in model.items() if place[1] > newest - RETENTION_MS}

    found = [(r.key, r.start, r.row) for r in readers.all_windows(cache, from_ms, to_ms, low, high, reverse=reverse)]
    assert sorted(found) == sorted(
        (key, start, row(value))
        for (key, start), value in live.items()
        if from_ms <= start <= to_ms and (low is None or low <= key) and (high is None or key <= high)
    )
    for key in {b"a", *(key for key, _ in model)}:
        of_key = [(r.start, r.row) for r in readers.windows_of_key(cache, key, from_ms, to_ms, reverse=reverse)]
        assert of_key == [
            (start, row(live[key, start]))
            for start in sorted((s for k, s in live if k == key), reverse=reverse)
            if from_ms <= start <= to_ms
        ]


def test_a_scan_is_a_snapshot() -> None:
    cache = KeyValueCache("kv", MemoryStore("kv"), FORMAT)
    for key in (b"a", b"b", b"c"):
        cache.put(key, 1, 5, (), 0)
    keep(cache, "write")
    cache.put(b"b", 2, 5, (), 0)
    scan = readers.key_rows(cache, None, None, reverse=False)
    first = next(scan)
    cache.put(b"b", 3, 5, (), 0)
    cache.put(b"c", None, 5, (), 0)
    keep(cache, "write")
    assert [first.row, *(raw.row for raw in scan)] == [row(1), row(2), row(1)]


session_puts = st.tuples(keys, st.integers(0, 30), st.integers(0, 10), st.none() | st.integers(0, 99))


@settings(deadline=None)
@given(st.lists(session_puts | steps, max_size=25), st.integers(0, 400), st.integers(0, 400), st.booleans())
def test_sessions_equal_a_model(script: list[Any], earliest_end: int, latest_start: int, reverse: bool) -> None:
    retention_ms = 1_000_000
    store = SessionBytesStore(MemoryStore("s"), retention_ms=retention_ms)
    cache = SessionCache("s", store, FORMAT, retention_ms=retention_ms)
    model: dict[tuple[bytes, int, int], int] = {}
    for step in script:
        if isinstance(step, str):
            keep(cache, step)
            continue
        key, start, length, value = step
        start, end = start * 10, (start + length) * 10
        cache.put(key, start, end, value, 5, (), 0)
        if value is None:
            model.pop((key, end, start), None)
        else:
            model[key, end, start] = value
    cached = len(cache)
    expected = [
        (key, start, end, b"%d" % value)
        for (key, end, start), value in sorted(model.items(), reverse=reverse)
        if end >= earliest_end
    ]
    found = [(r.key, r.start, r.end, r.row) for r in readers.all_sessions(cache, earliest_end, reverse=reverse)]
    assert found == expected
    for key in {b"a", *(key for key, _, _ in model)}:
        of_key = readers.sessions_of_key(cache, key, earliest_end, latest_start, reverse=reverse)
        assert [(r.key, r.start, r.end, r.row) for r in of_key] == [
            each for each in expected if each[0] == key and each[1] <= latest_start
        ]
    assert len(cache) == cached


version_puts = st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 50), st.none() | st.integers(0, 99))


@settings(deadline=None)
@given(st.lists(version_puts | steps, max_size=25), st.integers(0, 50), st.integers(0, 50))
def test_versions_equal_a_model(script: list[Any], from_ms: int, to_ms: int) -> None:
    store = VersionedBytesStore(MemoryStore("v"), history_retention_ms=100_000, segment_interval_ms=50_000)
    cache = VersionedCache("v", store, FORMAT)
    model: dict[bytes, dict[int, int | None]] = {b"a": {}, b"b": {}}
    for step in script:
        if isinstance(step, str):
            keep(cache, step)
            continue
        key, timestamp, value = step
        cache.put(key, value, timestamp, (), 0)
        model[key][timestamp] = value
    for key, versions in model.items():
        times = sorted(versions)
        ends = [*times[1:], -1]
        rows = [
            (time, end, b"%d" % versions[time])
            for time, end in zip(times, ends, strict=False)
            if versions[time] is not None
        ]
        cached = len(cache)
        found = readers.versions_of_key(cache, key, from_ms, to_ms, ascending=True)
        assert [(r.start, r.end, r.row) for r in found] == [
            row for row in rows if row[0] <= to_ms and (row[1] < 0 or row[1] > from_ms)
        ]
        then = [row for row in rows if row[0] <= to_ms and (row[1] < 0 or row[1] > to_ms)]
        version = readers.version_row(cache, key, to_ms)
        assert ([] if version is None else [(version.start, version.end, version.row)]) == then
        assert len(cache) == cached
