"""A table that stays in place on a terminal while something runs; elsewhere lines, and the table at the end.

1. The last table remains: an application that has ended has no tasks, and an empty table would say nothing.
2. Other output to standard output or standard error appears above the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table


class LiveTable:
    """Shows what ``table()`` gives, None for nothing new, each ``interval_s`` seconds; a context manager.

    Where the console is no terminal: what ``line()`` gives, each ``line_interval_s`` seconds where it differs from the last
    one, and with ``at_end`` the last table.
    """

    def __init__(
        self,
        console: Console,
        table: Callable[[], Table | None],
        *,
        line: Callable[[], str] | None = None,
        interval_s: float = 0.125,
        line_interval_s: float = 2.0,
        at_end: bool = True,
    ) -> None:
        self._console = console
        self._table = table
        self._line = line
        self._interval_s = interval_s if console.is_terminal else line_interval_s
        self._at_end = at_end
        self._last: Table | None = None
        self._shown = ""
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-table", daemon=True)

    def __enter__(self) -> LiveTable:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._draw()
        if self._live is not None:
            self._live.stop()
        elif self._at_end and self._last is not None:
            self._console.print(self._last)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._draw()
            if self._live is None and self._line is not None and (line := self._line()) != self._shown:
                self._shown = line
                self._console.print(line, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        table = self._table()
        if table is not None:
            self._last = table
            if self._live is not None:
                self._live.update(table, refresh=True)
