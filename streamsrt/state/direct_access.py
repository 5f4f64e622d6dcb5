"""Reads and writes of a processor's key-value store as one function each, for stores of the usual kind.

They do what :class:`streamsrt.state.access.KeyValueAccess` does over a :class:`streamsrt.state.cache.KeyValueCache` whose
rows a processor sees as values. These are the two calls that most processors make for each record, and half of their time
would go into calling the layers between them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Protocol

from streamsrt.state.access import KeySerde, KeyValueAccess, Now
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from topology.spec import serdes
from topology.spec.processor import Record


class HasCurrent(Protocol):
    """Knows the record that a processor works on; None outside of one."""

    current: Record[object, object] | None


class DirectAccess(KeyValueAccess):
    """As its base class, for a store whose rows are seen as values. ``cache``: a KeyValueCache itself. ``context``: whose
    current record gives changed rows their time. ``log_row``: logs each change that is not cached.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        key_serde: KeySerde,
        now: Now,
        *,
        context: HasCurrent,
        sequence: count[int],
        log_row: Callable[[bytes, object, int, Headers], None] | None,
    ) -> None:
        super().__init__(
            cache,
            key_serde,
            now,
            timestamped=False,
            on_change=None if log_row is None else lambda e: log_row(e.key, e.value, e.timestamp, e.headers),
        )
        serialize = key_serde.serialize
        # Bytes are keys as they are.
        plain = bytes if key_serde is serdes.bytes else None

        def get(key: object) -> object:
            return cache[key if type(key) is plain else serialize(key)].value

        def put(key: object, value: object) -> None:
            record = context.current
            if record is None:
                timestamp, headers, number = now()
            else:
                timestamp, headers, number = record[2], record[3], next(sequence)
            raw: bytes = key if type(key) is plain else serialize(key)
            if cache.counts is not None:
                cache.settle()
            entry = cache[raw]
            if not entry.dirty:
                entry.dirty = True
                entry.old = entry.value
                cache.dirty.append(entry)
            entry.value = value
            entry.timestamp = timestamp
            entry.headers = headers
            entry.sequence = number
            if log_row is not None:
                log_row(raw, value, timestamp, headers)

        self.get = get  # type: ignore[method-assign]
        self.put = put  # type: ignore[method-assign]
