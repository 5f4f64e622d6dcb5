"""A custom state store: its rows are in a table of SQLite, in a temporary file.

``Store("counts", supplier=SqliteStore)`` creates one for each task; when the task starts on an instance, the store is
filled from its changelog. ``streamsrt.state.store`` describes the interface. One thread at a time calls it, not always
the same one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from streamsrt.state.store import StoreClosedError, after_prefix

Row = tuple[bytes, bytes]


class SqliteStore:
    """An ordered map of bytes to bytes."""

    persistent = False

    def __init__(self, name: str) -> None:
        self.name = name
        self._next_offset: int | None = None
        # A database without a name is a temporary file, which goes when the connection does.
        self._open: sqlite3.Connection | None = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._open.execute("CREATE TABLE store (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def _database(self) -> sqlite3.Connection:
        if self._open is None:
            raise StoreClosedError(self.name)
        return self._open

    def get(self, key: bytes) -> bytes | None:
        row = self._database.execute("SELECT value FROM store WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def write(self, puts: Iterable[tuple[bytes, bytes | None]], *, changelog_offset: int | None = None) -> None:
        # Of several values for one key the last one counts.
        last = dict(puts)
        database = self._database
        with database:
            database.execute("BEGIN")
            database.executemany(
                "INSERT INTO store VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [(key, value) for key, value in last.items() if value is not None],
            )
            database.executemany(
                "DELETE FROM store WHERE key = ?", [(key,) for key, value in last.items() if value is None]
            )
        if changelog_offset is not None:
            self._next_offset = changelog_offset

    def restore(self, keys: Sequence[bytes], values: Sequence[bytes | None], next_offset: int) -> None:
        self.write(zip(keys, values, strict=True), changelog_offset=next_offset)

    def changelog_offset(self) -> int | None:
        return self._next_offset if self._database else None

    def range(self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        where, bounds = _within(start, end)
        order = "DESC" if reverse else "ASC"
        found = self._database.execute(f"SELECT key, value FROM store {where} ORDER BY key {order}", bounds)
        # All rows now: an iterator sees the store as it was when it was asked for.
        return self._rows(found.fetchall())

    def _rows(self, rows: list[Row]) -> Iterator[Row]:
        for row in rows:
            if self._open is None:
                raise StoreClosedError(self.name)
            yield row

    def prefix(self, prefix: bytes) -> Iterator[Row]:
        return self.range(prefix, after_prefix(prefix))

    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None:
        where, bounds = _within(start, end)
        self._database.execute(f"DELETE FROM store {where}", bounds)

    def approximate_count(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM store").fetchone()[0])

    def approximate_size_bytes(self) -> int:
        total = self._database.execute("SELECT sum(length(key) + length(value)) FROM store").fetchone()[0]
        return int(total or 0)

    def flush(self) -> None:
        """Nothing is kept beyond the process."""
        assert self._database

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def wipe(self) -> None:
        self.close()
        self._next_offset = None


def _within(start: bytes | None, end: bytes | None) -> tuple[str, list[bytes]]:
    """The condition for ``start <= key < end``, and its values."""
    bounds = [(f"key {sign} ?", key) for sign, key in ((">=", start), ("<", end)) if key is not None]
    where = " AND ".join(condition for condition, _ in bounds)
    return f"WHERE {where}" if where else "", [key for _, key in bounds]
