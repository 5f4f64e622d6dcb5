"""Tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import orjson
from rich.console import Console
from rich.table import Table

_WIDE = 10_000


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """One line a row: a table with these columns, or a JSON object with all that a row has."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper().replace("_", "-"), overflow="fold")
    for row in rows:
        table.add_row(*(str(row.get(column, "")) for column in columns))
    # A program that reads the table finds a row on a line, however long it is.
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def print_reasons(rows: Sequence[Mapping[str, object]]) -> None:
    """Why each row says what it says, below a table: sentences in a column would make it wider than a terminal."""
    sys.stdout.writelines(f"{row['what']} {row['name']}: {row['why']}\n" for row in rows if row.get("why"))


def print_json(value: object) -> None:
    """One JSON document on a line."""
    sys.stdout.write(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode() + "\n")


def note(text: str) -> None:
    """A line about what is going on, on stderr, so that stdout holds only the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
