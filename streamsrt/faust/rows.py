"""What is asked of the rows of a table, whichever store has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ReadableRows(Protocol):
    """Rows that somebody else may write."""

    def get(self, key: object, /) -> object: ...
    def all(self) -> Iterator[tuple[object, object]]: ...
    def approximate_num_entries(self) -> int: ...


class Rows(ReadableRows, Protocol):
    """Rows that an agent changes."""

    def put(self, key: object, value: object, /) -> None: ...
