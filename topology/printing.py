"""What ``KStream.print`` and ``KStream.print_table`` write, and where.

1. They are for people who look at a program while it runs: what is printed is no result, and a record that is processed
   again is printed again.
2. Without a file it is standard output as it is at that time, so that notebooks and tests see it too.
3. A table is redrawn in place on a terminal only; elsewhere each of its rows is a line.

Source: org.apache.kafka.streams.kstream.Printed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO, TypeAlias

from topology.errors import TopologyError, call_site
from topology.processor import Processor, ProcessorContext, PunctuationType, Record

Output: TypeAlias = TextIO | None
"""A text file that is open, or None: standard output."""

REDRAW_INTERVAL_MS = 250
"""How often a table is redrawn at most, by the wall clock."""
_WIDEST = 40


def _write(output: Output, text: str) -> None:
    """Writes it, visible at once."""
    shown = output or sys.stdout
    shown.write(text)
    shown.flush()


class Printer:
    """``[label]: key, value`` for the first record and each ``every``-th one after it."""

    def __init__(self, label: str, mapper: Callable[[Any, Any], object] | None, output: Output, every: int) -> None:
        if every < 1:
            raise TopologyError(f"print(every={every}): 1 prints all records, n each n-th one", call_site())
        self._label = label
        self._mapper = mapper
        self._output = output
        self._every = every
        self._skipped = every - 1

    def __call__(self, key: Any, value: Any) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        what = f"{key}, {value}" if self._mapper is None else self._mapper(key, value)
        _write(self._output, f"[{self._label}]: {what}\n")


class TablePrinter(Processor[Any, Any, Any, Any]):
    """The last ``size`` records as a table; ``by_key``: the last one of each of the last ``size`` keys."""

    def __init__(self, title: str, size: int, by_key: bool, output: Output) -> None:
        if size < 1:
            raise TopologyError(f"print_table(size={size}): a table has 1 row at least", call_site())
        self._title = title
        self._size = size
        self._by_key = by_key
        self._output = output
        self._rows: deque[tuple[Any, dict[str, str]]] = deque(maxlen=size)
        self._drawn_lines = 0
        self._changed = False

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        if self._is_terminal():
            context.schedule(REDRAW_INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, self._redraw)

    def process(self, record: Record[Any, Any]) -> None:
        row = {"key": _text(record.key), **_cells(record.value)}
        if not self._is_terminal():
            _write(self._output, f"{self._title}: " + "  ".join(f"{name}={cell}" for name, cell in row.items()) + "\n")
            return
        if self._by_key:
            known = next((place for place, (key, _) in enumerate(self._rows) if key == record.key), None)
            if known is not None:
                self._rows[known] = (record.key, row)
            else:
                self._rows.append((record.key, row))
        else:
            self._rows.append((record.key, row))
        self._changed = True

    def close(self) -> None:
        """What came last is shown."""
        self._redraw(0)

    def _is_terminal(self) -> bool:
        return (self._output or sys.stdout).isatty()

    def _redraw(self, now_ms: int) -> None:
        if not self._changed:
            return
        lines = self._lines()
        up = f"\x1b[{self._drawn_lines}F\x1b[J" if self._drawn_lines else ""
        _write(self._output, up + "".join(f"{line}\n" for line in lines))
        self._drawn_lines, self._changed = len(lines), False

    def _lines(self) -> list[str]:
        names = list(dict.fromkeys(name for _, row in self._rows for name in row))
        cells = [names, *([row.get(name, "") for name in names] for _, row in self._rows)]
        widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
        drawn = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]
        return [self._title, drawn[0], "  ".join("-" * width for width in widths), *drawn[1:]]


def _cells(value: Any) -> dict[str, str]:
    """A mapping's fields are columns; anything else is one."""
    if isinstance(value, Mapping):
        return {str(name): _text(each) for name, each in value.items()}
    return {"value": _text(value)}


def _text(value: Any) -> str:
    text = str(value).replace("\n", " ")
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
