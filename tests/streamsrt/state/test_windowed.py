"""Windows by key and start: order, bounds, expiry, and the changelog's bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.errors import StateError
from streamsrt.state.memory import MemoryStore
from streamsrt.state.store import BytesStore, StoreClosedError
from streamsrt.state.windowed import WindowBytesStore, window_key
from tests.streamsrt.state.conftest import OpenStore

RETENTION_MS = 1000
SEGMENT_MS = 300


@pytest.fixture
def windows(store: BytesStore) -> WindowBytesStore:
    return WindowBytesStore(store, retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)


# ---------------------------------------------------------------------------------------------------------------- bytes


def test_key_has_the_bytes_of_kafkas_changelog() -> None:
    # WindowKeySchema: key, 8 bytes of start, 4 bytes of sequence number, big endian.
    assert window_key(b"alice", 60_000) == b"alice" + bytes.fromhex("000000000000ea6000000000")
    assert window_key(b"", 1, 2) == bytes.fromhex("000000000000000100000002")


def test_restored_changelog_is_read_as_windows(windows: WindowBytesStore) -> None:
    keys = [window_key(b"a", 0), window_key(b"b", 100), window_key(b"a", 100), window_key(b"a", 0)]
    windows.restore(keys, [b"1", b"2", b"3", None], 17)
    assert list(windows.fetch_all()) == [(b"a", 100, b"3"), (b"b", 100, b"2")]
    assert (windows.changelog_offset(), windows.stream_time_ms) == (17, 100)


def test_changelog_of_something_else_is_refused(windows: WindowBytesStore) -> None:
    with pytest.raises(StateError, match="changelog of window store 'counts' has a key of 11 bytes below offset 5"):
        windows.restore([b"key-of-a-kv"], [b"1"], 5)
    assert windows.changelog_offset() is None


# -------------------------------------------------------------------------------------------------------------- reading


def test_get(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 0, b"1"), (b"a", 300, b"2"), (b"b", 300, b"3")], changelog_offset=3)
    assert [windows.get(b"a", 0), windows.get(b"a", 300), windows.get(b"b", 300)] == [b"1", b"2", b"3"]
    assert [windows.get(b"b", 0), windows.get(b"a", 1), windows.get(b"", 300), windows.get(b"a", 9999)] == [None] * 4
    assert windows.changelog_offset() == 3


def test_none_deletes_one_window(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 0, b"1"), (b"a", 300, b"2")])
    windows.write([(b"a", 0, None)])
    assert list(windows.fetch(b"a", 0, 1000)) == [(300, b"2")]


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "starts"),
    [
        (0, 900, [0, 100, 400, 900]),
        (100, 400, [100, 400]),
        (101, 399, []),
        (400, 10**15, [400, 900]),
        (5, 1, []),
        (-5, 0, [0]),
    ],
)
def test_fetch_bounds_are_included(windows: WindowBytesStore, from_ms: int, to_ms: int, starts: list[int]) -> None:
    windows.write([(key, start, b"%d" % start) for start in (900, 0, 400, 100) for key in (b"b", b"a")])
    assert list(windows.fetch(b"a", from_ms, to_ms)) == [(start, b"%d" % start) for start in starts]
    assert [start for start, _ in windows.fetch(b"a", from_ms, to_ms, reverse=True)] == starts[::-1]
    assert {start for _, start, _ in windows.fetch_all(from_ms, to_ms)} == set(starts)


def test_keys_that_begin_with_another_key_are_kept_apart(windows: WindowBytesStore) -> None:
    keys = [b"", b"a", b"a\0", b"a\0\0\0\0\0\0\0\0", b"a" + window_key(b"", 100), b"a\xff", b"aa"]
    windows.write([(key, start, key) for key in keys for start in (0, 100, 200)])
    for key in keys:
        assert list(windows.fetch(key, 0, 200)) == [(0, key), (100, key), (200, key)]
        assert list(windows.fetch(key, 50, 150)) == [(100, key)]


def test_all_windows_come_by_segment_key_and_start(windows: WindowBytesStore) -> None:
    windows.write([(key, start, b"") for start in (0, 100, 300, 500) for key in (b"b", b"a")])
    expected = [(k, s) for segment in ((0, 100), (300, 500)) for k in (b"a", b"b") for s in segment]
    assert [(key, start) for key, start, _ in windows.fetch_all()] == expected
    assert [(key, start) for key, start, _ in windows.fetch_all(reverse=True)] == expected[::-1]


def test_fetch_sees_one_moment_across_segments(windows: WindowBytesStore) -> None:
    windows.write([(b"a", start, b"old") for start in range(0, 900, 10)])
    rows = windows.fetch(b"a", 0, 900)
    windows.write([(b"a", start, b"new") for start in range(0, 900, 10)])
    assert {value for _, value in rows} == {b"old"}


def test_closed_store_says_so(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 0, b"1")])
    windows.close()
    assert not windows.is_open
    with pytest.raises(StoreClosedError):
        windows.get(b"a", 0)
    with pytest.raises(StoreClosedError):
        windows.write([(b"a", 0, b"1")])


# --------------------------------------------------------------------------------------------------------------- expiry


def test_rows_beyond_retention_are_not_read(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 600, b"1"), (b"a", 601, b"2")])
    windows.write([(b"b", 1600, b"3")])
    assert [windows.get(b"a", 600), windows.get(b"a", 601)] == [None, b"2"]
    assert list(windows.fetch(b"a", 0, 2000)) == [(601, b"2")]
    assert list(windows.fetch_all()) == [(b"a", 601, b"2"), (b"b", 1600, b"3")]


def test_late_row_is_taken_while_its_segment_lives(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 1600, b"1"), (b"late", 600, b"2"), (b"too late", 599, b"3")])
    assert windows.dropped_rows == 1
    # 600 is in a live segment but beyond retention.
    assert [key for key, _, _ in windows.fetch_all()] == [b"a"]
    windows.write([(b"late", 601, b"4")])
    assert windows.get(b"late", 601) == b"4"


def test_order_within_a_batch_decides_what_is_expired(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 0, b"1"), (b"b", 5000, b"2"), (b"c", 0, b"3"), (b"d", 5000, b"4")], changelog_offset=4)
    assert windows.dropped_rows == 1
    assert list(windows.fetch_all()) == [(b"b", 5000, b"2"), (b"d", 5000, b"4")]
    assert windows.changelog_offset() == 4


def test_expired_segments_are_deleted(store: BytesStore) -> None:
    windows = WindowBytesStore(store, retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)
    for start in range(0, 10_000, 100):
        windows.write([(b"a", start, b"v"), (b"b", start, b"v")])
    # Stream time 9900: the segment of 8900 is the oldest that lives, and begins at 8700.
    kept = [int.from_bytes(key[-12:-4], "big") for key, _ in store.range(b"\0")]
    assert sorted(set(kept)) == list(range(8700, 10_000, 100))
    windows.expire(20_000)
    assert list(store.range(b"\0")) == []
    assert windows.stream_time_ms == 20_000


def test_expire_never_goes_back(windows: WindowBytesStore) -> None:
    windows.write([(b"a", 5000, b"1")])
    windows.expire(10)
    assert windows.stream_time_ms == 5000
    assert windows.get(b"a", 5000) == b"1"


def test_start_before_the_epoch_is_refused(windows: WindowBytesStore) -> None:
    with pytest.raises(ValueError, match="can't start at -1 ms"):
        windows.write([(b"a", -1, b"1")])


def test_segment_interval_is_half_the_retention_and_a_minute_at_least() -> None:
    assert WindowBytesStore(MemoryStore("s"), retention_ms=1000).segment_interval_ms == 60_000
    assert WindowBytesStore(MemoryStore("s"), retention_ms=86_400_000).segment_interval_ms == 43_200_000


def test_stream_time_survives_with_the_data(open_persistent: OpenStore) -> None:
    windows = WindowBytesStore(open_persistent(), retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)
    assert windows.stream_time_ms == -1
    windows.write([(b"a", 599, b"0"), (b"a", 600, b"1")])
    assert windows.approximate_count() == 2
    windows.write([(b"a", 1600, b"2")], changelog_offset=2)
    windows.close()
    windows = WindowBytesStore(open_persistent(), retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)
    assert (windows.stream_time_ms, windows.changelog_offset()) == (1600, 2)
    assert windows.get(b"a", 600) is None
    windows.write([(b"late", 599, b"3")])
    assert windows.dropped_rows == 1
    windows.wipe()


# ---------------------------------------------------------------------------------------------------------------- model

window_rows = st.lists(
    st.tuples(
        st.sampled_from([b"", b"a", b"a\0", b"aa", b"b"]), st.integers(0, 4000), st.binary(max_size=2) | st.none()
    ),
    max_size=25,
)


def modelled(rows: list[tuple[bytes, int, bytes | None]]) -> dict[tuple[bytes, int], bytes]:
    """Rows that can be read after these were written one by one, by Kafka's rules."""
    model: dict[tuple[bytes, int], bytes] = {}
    stream_time_ms = -1
    for key, start, value in rows:
        stream_time_ms = max(stream_time_ms, start)
        if start // SEGMENT_MS < (stream_time_ms - RETENTION_MS) // SEGMENT_MS:
            continue
        if value is None:
            model.pop((key, start), None)
        else:
            model[key, start] = value
    return {place: value for place, value in model.items() if place[1] > stream_time_ms - RETENTION_MS}


def written_at_once(windows: WindowBytesStore, rows: list[tuple[bytes, int, bytes | None]]) -> None:
    windows.write(rows, changelog_offset=len(rows))


def written_one_by_one(windows: WindowBytesStore, rows: list[tuple[bytes, int, bytes | None]]) -> None:
    for number, row in enumerate(rows):
        windows.write([row], changelog_offset=number + 1)


def restored(windows: WindowBytesStore, rows: list[tuple[bytes, int, bytes | None]]) -> None:
    windows.restore([window_key(key, start) for key, start, _ in rows], [value for _, _, value in rows], len(rows))


@pytest.mark.parametrize("fill", [written_at_once, written_one_by_one, restored])
@settings(max_examples=60, deadline=None)
@given(rows=window_rows, low=st.integers(0, 4000), high=st.integers(0, 4000))
def test_windows_are_those_of_the_model(
    fill: Callable[[WindowBytesStore, list[tuple[bytes, int, bytes | None]]], None],
    rows: list[tuple[bytes, int, bytes | None]],
    low: int,
    high: int,
) -> None:
    windows = WindowBytesStore(MemoryStore("windows"), retention_ms=RETENTION_MS, segment_interval_ms=SEGMENT_MS)
    fill(windows, rows)
    model = modelled(rows)
    assert {(key, start): value for key, start, value in windows.fetch_all()} == model
    for key in (b"", b"a", b"a\0", b"aa", b"b"):
        expected = sorted((start, value) for (k, start), value in model.items() if k == key and low <= start <= high)
        assert list(windows.fetch(key, low, high)) == expected
        assert list(windows.fetch(key, low, high, reverse=True)) == expected[::-1]
    for key, start, _ in rows:
        assert windows.get(key, start) == model.get((key, start))
    windows.close()


def test_windows_on_disk_are_those_in_memory(open_persistent: OpenStore, tmp_path: Path) -> None:
    on_disk = WindowBytesStore(open_persistent(), retention_ms=50_000, segment_interval_ms=20_000)
    in_memory = WindowBytesStore(MemoryStore("windows"), retention_ms=50_000, segment_interval_ms=20_000)
    for start in range(0, 200_000, 1000):
        rows = [(b"key-%02d" % (i * start % 97), start - i * 100, b"%d" % start) for i in range(30) if start >= i * 100]
        for windows in (on_disk, in_memory):
            windows.write(rows)
    assert list(on_disk.fetch_all()) == list(in_memory.fetch_all())
    assert list(on_disk.fetch_all(reverse=True)) == list(in_memory.fetch_all(reverse=True))
    assert on_disk.dropped_rows == in_memory.dropped_rows
    on_disk.close()
