"""Which entry of a store with a time to live expires next."""

from __future__ import annotations

from streamsrt.state.cache import RowFormat
from streamsrt.state.expiring import ExpiringCache
from streamsrt.state.memory import MemoryStore
from streamsrt.wire.records import RecordColumns


def test_a_row_that_goes_back_in_time_expires_earlier() -> None:
    cache = ExpiringCache("s", MemoryStore("s"), RowFormat(str.encode, bytes.decode), ttl_ms=5)
    cache.put(b"a", "x", 10, (), 0)
    cache.put(b"a", "y", 3, (), 1)
    cache.put(b"b", "z", 4, (), 2)
    cache.put(b"b", "z", 9, (), 3)
    first = cache.first(9)
    assert first is not None
    assert (first.key, first.value) == (b"a", "y")
    cache.put(b"a", None, 8, (), 4)
    assert cache.first(13) is None
    last = cache.first(14)
    assert last is not None
    assert last.key == b"b"


def test_what_is_restored_expires_when_it_would_have() -> None:
    cache = ExpiringCache("s", MemoryStore("s"), RowFormat(str.encode, bytes.decode), ttl_ms=5)
    cache.put(b"old", "x", 1, (), 0)
    cache.restore(RecordColumns([b"a", b"b", b"a"], [b"x", b"y", b"z"], [3, 2, 7], 0, 3))
    first = cache.first(100)
    assert first is not None
    assert (first.key, first.value, first.timestamp) == (b"b", "y", 2)
    cache.put(b"b", None, 7, (), 1)
    second = cache.first(100)
    assert second is not None
    assert (second.key, second.timestamp) == (b"a", 7)
