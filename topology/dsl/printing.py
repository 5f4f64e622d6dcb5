"""What ``KStream.print`` and ``KStream.print_table`` write, and where.

1. They are for watching a program while it runs. The output is not a result: a record that is processed again is printed
   again.
2. Without a file it is standard output as it is at that time, so that notebooks and tests see it too.
3. A table is redrawn in place on a terminal only; elsewhere each of its rows is a line.
4. The tasks of a step share its table, and all tables of a terminal are drawn together: tasks or steps that drew
   separately would erase each other's output.

Source: org.apache.kafka.streams.kstream.Printed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import TextIO, TypeAlias
from weakref import WeakKeyDictionary

from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import processor_of
from topology.graph.topology import Topology
from topology.spec.errors import TopologyError, call_site
from topology.spec.processor import Processor, ProcessorContext, PunctuationType, Record

Output: TypeAlias = TextIO | None
"""A text file that is open, or None: standard output."""

REDRAW_INTERVAL_MS = 250
"""How often a table is redrawn at most, by the wall clock."""
_WIDEST = 40


def check_output(output: object, operator: str) -> None:
    """Raises TopologyError where text can't be written to ``output``."""
    if output is not None and not all(callable(getattr(output, name, None)) for name in ("write", "flush", "isatty")):
        raise TopologyError(f"{operator}() writes to a text file that is open, not to {output!r}", call_site())


def _write(output: Output, text: str) -> None:
    """Writes it, visible at once."""
    shown = output or sys.stdout
    shown.write(text)
    shown.flush()


class Printer:
    """``[label]: key, value`` for the first record and each ``every``-th one after it."""

    def __init__(
        self, label: str, mapper: Callable[[object, object], object] | None, output: Output, every: int
    ) -> None:
        check_output(output, "print")
        if every < 1:
            raise TopologyError(f"print(every={every}): 1 prints all records, n each n-th one", call_site())
        self._label = label
        self._mapper = mapper
        self._output = output
        self._every = every
        self._skipped = every - 1

    def __call__(self, key: object, value: object) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        what = f"{key}, {value}" if self._mapper is None else self._mapper(key, value)
        _write(self._output, f"[{self._label}]: {what}\n")


class Screen:
    """The tables of one terminal: all of them are drawn together, so that none erases another."""

    def __init__(self) -> None:
        self._tables: dict[ShownTable, None] = {}
        self._drawn_lines = 0

    def enter(self, table: ShownTable) -> None:
        """``table`` has a task that runs."""
        self._tables[table] = None

    def redraw(self, output: Output) -> None:
        """Draws the tables where one of them changed."""
        if not any(each.changed for each in self._tables):
            return
        texts = ["\n".join(each.lines()) for each in self._tables if each.has_rows()]
        text = "\n\n".join(texts) + "\n"
        up = f"\x1b[{self._drawn_lines}F\x1b[J" if self._drawn_lines else ""
        _write(output, up + text)
        self._drawn_lines = text.count("\n")
        for each in self._tables:
            each.changed = False

    def leave(self) -> None:
        """A table has no task any more. What is shown stays; after the last one the next begins below."""
        if any(each.has_tasks() for each in self._tables):
            return
        for each in self._tables:
            each.clear()
        self._tables.clear()
        self._drawn_lines = 0


_screens: WeakKeyDictionary[TextIO, Screen] = WeakKeyDictionary()
"""There is one screen for each terminal, whoever writes to it."""


class ShownTable:
    """The rows of one ``print_table``: those of all tasks that run in this process."""

    def __init__(self, title: str, size: int, by_key: bool, output: Output) -> None:
        check_output(output, "print_table")
        if size < 1:
            raise TopologyError(f"print_table(size={size}): a table has at least 1 row", call_site())
        self.title = title
        self.changed = False
        self._by_key = by_key
        self._output = output
        self._rows: deque[tuple[TablePrinter, object, dict[str, str]]] = deque(maxlen=size)
        self._printers: set[TablePrinter] = set()

    def printer(self) -> TablePrinter:
        """What a task adds its records with."""
        return TablePrinter(self)

    def is_on_terminal(self) -> bool:
        """Whether the table is redrawn in place."""
        return (self._output or sys.stdout).isatty()

    def has_rows(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._rows)

    def has_tasks(self) -> bool:
        """Whether a task runs that may add to it."""
        return bool(self._printers)

    def clear(self) -> None:
        """The next record is the first one."""
        self._rows.clear()

    def begin(self, printer: TablePrinter) -> None:
        """A task begins."""
        self._printers.add(printer)
        if self.is_on_terminal():
            self._screen().enter(self)

    def add(self, printer: TablePrinter, key: object, value: object) -> None:
        """A record of a task."""
        row = {"key": _text(key), **_cells(value)}
        if not self.is_on_terminal():
            _write(self._output, f"{self.title}: " + "  ".join(f"{name}={cell}" for name, cell in row.items()) + "\n")
            return
        known = None
        if self._by_key:
            known = next((index for index, (_, other, _row) in enumerate(self._rows) if other == key), None)
        if known is None:
            self._rows.append((printer, key, row))
        else:
            self._rows[known] = (printer, key, row)
        self.changed = True

    def redraw(self, now_ms: int = 0) -> None:
        """Shows what changed since the last time."""
        if self.is_on_terminal():
            self._screen().redraw(self._output)

    def end(self, printer: TablePrinter) -> None:
        """A task ends: what came last is shown, and its rows are left out from the next change on."""
        self.redraw()
        self._printers.discard(printer)
        if self._printers:
            self._rows = deque((each for each in self._rows if each[0] is not printer), self._rows.maxlen)
        elif self.is_on_terminal():
            self._screen().leave()

    def lines(self) -> list[str]:
        """The table as text: its title, the names of the columns, a rule, the rows."""
        names = list(dict.fromkeys(name for *_, row in self._rows for name in row))
        cells = [names, *([row.get(name, "") for name in names] for *_, row in self._rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        drawn = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]
        return [self.title, drawn[0], "  ".join("-" * width for width in widths), *drawn[1:]]

    def _screen(self) -> Screen:
        return _screens.setdefault(self._output or sys.stdout, Screen())


class TablePrinter(Processor[object, object, object, object]):
    """A task's part of a table."""

    def __init__(self, table: ShownTable) -> None:
        self._table = table

    def init(self, context: ProcessorContext[object, object]) -> None:
        self._table.begin(self)
        if self._table.is_on_terminal():
            context.schedule(REDRAW_INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, self._table.redraw)

    def process(self, record: Record[object, object]) -> None:
        self._table.add(self, record.key, record.value)

    def close(self) -> None:
        self._table.end(self)


def draws_tables(topology: Topology) -> bool:
    """Whether a program draws tables by itself."""
    suppliers = (
        processor_of(node.operation)
        for subtopology in topology.subtopologies
        for node in subtopology.nodes
        if isinstance(node, ProcessorNode)
    )
    return any(isinstance(getattr(supplier, "__self__", None), ShownTable) for supplier in suppliers)


def _cells(value: object) -> dict[str, str]:
    """A mapping's fields are columns; anything else is one."""
    if isinstance(value, Mapping):
        return {str(name): _text(each) for name, each in value.items()}
    return {"value": _text(value)}


def _text(value: object) -> str:
    text = str(value).replace("\n", " ")
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."
