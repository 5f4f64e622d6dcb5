"""Rows of tables that can't be read: the application stops, and none of its records is passed over for it.

An agent that raises is restarted behind its record, as with faust. That record is not to blame for a row that was restored
from bytes of something else, and the next ones would be lost in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from streamsrt.errors import UserError
from streamsrt.faust.rows import ReadableRows
from streamsrt.faust.unwritable import UnwritableKeyError, named_with_line
from streamsrt.wording import error_text

if TYPE_CHECKING:
    import faust


class UnreadableRowError(UserError):
    """A row of a Faust table is not what the table's types and codecs expect. Give the table the type and the codec that its
    rows were written with, or repair the row in the table's changelog."""

    def __init__(self, table: str, reason: str, key: str = "") -> None:
        self._table, self._reason = table, reason
        super().__init__(
            f"a row{key} of table {table} can't be read: {reason}. The application has stopped, and nothing is lost: the "
            "records that it was working on come again. Give the table the type and the codec that its rows were written "
            "with, or repair the row in the table's changelog"
        )

    def of_key(self, key: object) -> Self:
        """The same, where the key is known."""
        return type(self)(self._table, self._reason, f" with key {key!r}")


class RowReader:
    """Reads the rows that ``rows`` finds. ``fail`` hears of one that can't be read: whatever the agent makes of the
    exception, nothing of its records may be committed.
    """

    def __init__(self, rows: Callable[[], ReadableRows], fail: Callable[[UnreadableRowError], None]) -> None:
        self._rows = rows
        self._fail = fail

    def get(self, key: object) -> object:
        """Returns the row of that key, or None."""
        try:
            return self._rows().get(key)
        except UnwritableKeyError:
            # No row has such a key.
            return None
        except UnreadableRowError as error:
            named = error.of_key(key)
            self._fail(named)
            raise named from error

    def keys(self) -> list[object]:
        """Returns the keys of all rows."""
        try:
            return [key for key, _ in self._rows().all()]
        except UnreadableRowError as error:
            self._fail(error)
            raise


def reading(table: faust.Table, decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Decodes rows of a table. What it returns raises UnreadableRowError."""

    def read(raw: bytes) -> object:
        try:
            return decode(raw)
        except Exception as error:
            reason = f"{error_text(error)}, in {raw[:80]!r}"
            raise UnreadableRowError(named_with_line(table), reason) from error

    return read
