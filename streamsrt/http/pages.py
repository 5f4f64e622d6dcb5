"""Responses with many rows, sent in pieces: nobody holds all of them at once.

1. A page ends at its limit, and says whether there is more.
2. The first piece is computed before the response begins: an error until then has its own status. A later error breaks
   the response off, so that nobody takes it for complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from streamsrt.errors import StreamsError
from streamsrt.json_text import to_json
from streamsrt.queries.values import Position

PIECE_ROWS = 1_024
"""More than a query gets that does not ask for a number of rows: its response is complete before it begins."""

Row = dict[str, Any]


class QueryRefusedError(StreamsError):
    """The rows of a query over HTTP are not available. ``answer`` is the status and body of the response, which says why."""

    def __init__(self, answer: tuple[int, dict[str, Any]]) -> None:
        super().__init__(str(answer[1].get("message", "")))
        self.answer = answer


class Page:
    """A response with rows. ``make(page)`` yields them, by way of :meth:`up_to_limit`, and sets ``position`` to what they
    contain.

    ``about``: fields of the response that follow the rows.
    """

    def __init__(self, limit: int, make: Callable[[Page], Iterator[Row]], about: dict[str, Any] | None = None) -> None:
        self._limit = limit
        self._given = 0
        self._rows = make(self)
        self._about = about or {}
        self.position = Position()
        self.truncated = False
        self.is_whole = False
        """Whether all pieces are made."""

    def up_to_limit(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yields rows up to the limit."""
        for row in rows:
            if self._given == self._limit:
                self.truncated = True
                return
            self._given += 1
            yield row

    def pieces(self) -> Iterator[bytes]:
        """Yields the response's JSON. Raises QueryRefusedError, and what the queries raise."""
        before = b'{"rows":['
        while not self.is_whole:
            rows = list(islice(self._rows, PIECE_ROWS))
            self.is_whole = len(rows) < PIECE_ROWS
            piece = to_json(rows)[1:-1]
            if self.is_whole:
                tail = {"truncated": self.truncated, **self._about, "position": self.position.to_json()}
                yield (before if rows else before.rstrip(b",")) + piece + b"]," + to_json(tail)[1:]
            else:
                yield before + piece
            before = b","
