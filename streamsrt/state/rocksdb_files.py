"""How a store is kept in the files of RocksDB, and such files without their owner.

1. Rows are under the first byte :data:`DATA`, the changelog offset under another one.
2. Files are opened with the options that are given, whatever the store was made with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from rocksdict import AccessType, Options, Rdict, ReadOptions

from streamsrt.errors import StateError
from streamsrt.state.failures import damaged_error, store_error

DATA = b"d"
AFTER_DATA = b"e"
CHANGELOG_OFFSET = b"m:changelog-offset"
OFFSET = struct.Struct(">q")
_READ_AND_WRITE = AccessType.read_write()


def open_database(path: Path, options: Options, access: AccessType = _READ_AND_WRITE) -> Rdict:
    """Opens the RocksDB at ``path``. Raises what rocksdict raises."""
    # Without families, rocksdict takes those options of a store that exists which are not of the whole database from the
    # store's file OPTIONS: with a cache of its own, and as they were when it was made.
    return Rdict(str(path), options, column_families={"default": options}, access_type=access)


class RocksDBFiles:
    """The files of a store as they are on disk, to be read only: what its owner has not flushed is not there.

    It is of one moment, that of its opening. Whoever wants all that was written must know that nobody has the store open.
    Raises StoreCorruptedError, also where rows are on disk of which the database knows nothing: whose list of files is gone
    or cut off. A store that is not there has no rows.
    """

    persistent = True

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self.path = path
        self._db: Rdict | None = None
        if (path / "CURRENT").exists():
            try:
                self._db = open_database(path, Options(raw_mode=True), AccessType.read_only())
            except Exception as error:
                raise self._failed(error, "opened") from error
            # A few files that it does not know may be left of a compaction that was interrupted.
            if self._db.live_files():
                return
        if next(path.glob("*.sst"), None) is not None:
            self.close()
            raise damaged_error("no list names its files with rows", name, path, "opened", of_owner=False)

    def _failed(self, error: Exception, doing: str) -> StateError:
        return store_error(str(error), self.name, self.path, doing, of_owner=False)

    def __enter__(self) -> RocksDBFiles:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._db is not None

    def _stored(self, stored_key: bytes) -> bytes | None:
        try:
            found: bytes | None = None if self._db is None else self._db.get(stored_key)
        except Exception as error:
            raise self._failed(error, "read") from error
        return found

    def get(self, key: bytes) -> bytes | None:
        return self._stored(DATA + key)

    def changelog_offset(self) -> int | None:
        """The offset that goes with the rows; None where there is none."""
        offset = self._stored(CHANGELOG_OFFSET)
        return None if offset is None else int(OFFSET.unpack(offset)[0])

    def estimated_rows(self) -> int:
        """About how many rows there are."""
        if self._db is None:
            return 0
        stored = self._db.property_int_value("rocksdb.estimate-num-keys") or 0
        return max(0, stored - (self._stored(CHANGELOG_OFFSET) is not None))

    def range(
        self, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``start`` <= key < ``end`` in the order of keys. Read to the end before it is closed."""
        if reverse:
            raise ValueError("files can't be read in reverse order")
        if self._db is None:
            return
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(AFTER_DATA if end is None else DATA + end)
        cursor = self._db.iter(bounds)
        cursor.seek(DATA if start is None else DATA + start)
        while cursor.valid():
            yield cursor.key()[1:], cursor.value()
            cursor.next()
        try:
            cursor.status()
        except Exception as error:
            raise self._failed(error, "read") from error

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def read_changelog_offset(path: Path, name: str) -> int | None:
    """The changelog offset of a store that nobody has open; None where it has none or is not there."""
    with RocksDBFiles(path, name) as files:
        return files.changelog_offset()
