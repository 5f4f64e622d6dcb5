"""Reads and writes of a processor's key-value store as one function each, for stores of the usual kind.

They do what :class:`streamsrt.state.access.KeyValueAccess` does over a :class:`streamsrt.state.cache.KeyValueCache` whose
rows a processor sees as values. These are the two calls that most processors make for each record, and half of their time
would go into calling the layers between them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol, TypeAlias

from streamsrt.state.access import KeySerde, KeyValueAccess, Now
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from topology.spec import serdes
from topology.spec.processor import Record


class HasCurrent(Protocol):
    """Knows the record that a processor works on; None outside of one."""

    current: Record[object, object] | None


LogRow: TypeAlias = Callable[[bytes, bytes | None, int, Headers], None]
"""``(key, bytes of the value, timestamp, headers of the record that changed the row)``."""


class RowLog(NamedTuple):
    """Logs changes that are not cached. ``log_row`` takes every row, whose value ``serialize`` writes. Where ``keys`` is not
    empty, a row that is no deletion may as well be appended to ``keys``, ``values`` and ``timestamps``: these are always the
    same lists."""

    log_row: LogRow
    serialize: Callable[..., bytes]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]


class DirectAccess(KeyValueAccess):
    """As its base class, for a store whose rows are seen as values. ``cache``: a KeyValueCache itself, without counted rows.
    ``context``: whose current record gives changed rows their time. ``log``: None where changes are cached, or not logged.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        key_serde: KeySerde,
        now: Now,
        *,
        context: HasCurrent,
        sequence: count[int],
        log: RowLog | None,
    ) -> None:
        super().__init__(
            cache,
            key_serde,
            now,
            timestamped=False,
            on_change=None if log is None else lambda e, raw: log.log_row(e.key, raw, e.timestamp, e.headers),
        )
        serialize = key_serde.serialize
        # Bytes are keys as they are.
        plain = bytes if key_serde is serdes.bytes else None

        def get(key: object) -> object:
            return cache[key if type(key) is plain else serialize(key)].value

        log_row: LogRow | None = None
        serialize_value, keys, values, timestamps = serialize, [], [], []  # type: ignore[var-annotated]
        if log is not None:
            log_row, serialize_value, keys, values, timestamps = log
        add_key, add_value, add_time = keys.append, values.append, timestamps.append

        def put(key: object, value: object) -> None:
            record = context.current
            timestamp = now()[0] if record is None else record[2]
            raw: bytes = key if type(key) is plain else serialize(key)
            entry = cache[raw]
            headers = () if record is None else record[3]
            # A value that can't be written fails here, and the row stays what it was.
            if keys and value is not None:
                add_value(serialize_value(value))
                add_key(raw)
                add_time(timestamp)
            elif log_row is not None:
                log_row(raw, None if value is None else serialize_value(value), timestamp, headers)
            else:
                # What a flush forwards has an order, and headers.
                entry.headers = headers
                entry.sequence = next(sequence)
            if not entry.dirty:
                entry.dirty = True
                entry.old = entry.value
                cache.dirty.append(entry)
            entry.value = value
            entry.timestamp = timestamp

        self.get = get  # type: ignore[method-assign]
        self.put = put  # type: ignore[method-assign]
