"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamsrt.json_text import json_text
from streamsrt.wording import printable

_WIDE = 10_000
LINES = "\n\t"
"""What stays of the characters that move the cursor, where a text may have lines."""


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
        # Text: what a record has in square brackets is no markup.
        table.add_row(*(Text(_cell(row.get(column, ""))) for column in columns))
    if sys.stdout.isatty():
        Console().print(table)
        return
    # A program that reads the table finds a row on a line, however long it is; only the longest is as wide as the table.
    console = Console(width=_WIDE)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip(' ')}\n" for line in captured.get().removesuffix("\n").split("\n"))


def _cell(value: object) -> str:
    return "-" if value is None else printable(str(value))


def print_reasons(rows: Sequence[Mapping[str, object]]) -> None:
    """Why each row says what it says, below a table: sentences in a column would make it wider than a terminal."""
    said = (f"{row['what']} {row['name']}: {row['why']}" for row in rows if row.get("why"))
    sys.stdout.writelines(f"{printable(each, kept=LINES)}\n" for each in said)


def print_fields(row: Mapping[str, object]) -> None:
    """A line for each field, as ``name: value``, and an empty one at the end. Several lines are indented below their name,
    so that none of them can be taken for another field."""
    for name, value in row.items():
        text = printable(str(value).replace("\r\n", "\n"), kept=LINES)
        lines = text.rstrip("\n").split("\n")
        shown = f" {text}" if len(lines) == 1 else "".join(f"\n    {line}" if line else "\n" for line in lines)
        sys.stdout.write(f"{name}:{shown}\n")
    sys.stdout.write("\n")


def print_json(value: object) -> None:
    """One JSON document on a line. What a terminal would obey is escaped, which is the same JSON."""
    text = json_text(value)
    shown = text if text.isprintable() else "".join(map(_in_json, text))
    sys.stdout.write(shown + "\n")


def _in_json(character: str) -> str:
    # Characters that are not printable are in strings only.
    return character if printable(character) == character else json.dumps(character)[1:-1]


def note(text: str) -> None:
    """A line about what is going on, on stderr, so that stdout holds only the result."""
    sys.stderr.write(printable(text, kept=LINES) + "\n")
    sys.stderr.flush()


@contextmanager
def said_if_interrupted(text: str) -> Iterator[None]:
    """Says what Ctrl-C has left, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"interrupted: {text}")
        raise
