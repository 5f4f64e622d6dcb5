"""Progress on a terminal and where there is none."""

from __future__ import annotations

import io
import threading

from rich.console import Console
from rich.table import Table

from streamsrt.cli.live_table import LiveTable


def a_table(cell: str) -> Table:
    table = Table("task")
    table.add_row(cell)
    return table


class Shown:
    """What is to be shown, and when it was asked for."""

    def __init__(self) -> None:
        self.cell: str | None = "0_0"
        self.asked = threading.Semaphore(0)

    def table(self) -> Table | None:
        self.asked.release()
        return None if self.cell is None else a_table(self.cell)

    def wait(self, times: int = 2) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=30)


def test_without_a_terminal_the_last_table_comes_at_the_end_with_a_newline() -> None:
    out, shown, lines = io.StringIO(), Shown(), iter(["one", "one", "two"])
    console = Console(file=out, width=40)
    line = lambda: next(lines, "two")  # noqa: E731
    with LiveTable(console, shown.table, line=line, line_interval_s=0.001):
        shown.wait(5)
        shown.cell = None
        shown.wait(2)
    said = out.getvalue()
    assert said.startswith("one\ntwo\n")
    assert said.count("one") == said.count("two") == 1
    assert said.count("0_0") == 1
    assert said.endswith("\n")
    assert "\x1b" not in said


def test_on_a_terminal_the_table_stays_in_place_and_is_not_emptied_at_the_end() -> None:
    out, shown = io.StringIO(), Shown()
    console = Console(file=out, width=40, force_terminal=True, _environ={"TERM": "xterm"})
    with LiveTable(console, shown.table, line=lambda: "never", interval_s=0.001):
        shown.wait(3)
        shown.cell = "0_1"
        shown.wait(3)
        shown.cell = None
        shown.wait(2)
    said = out.getvalue()
    assert "\x1b[1A\x1b[2K" in said
    assert "never" not in said
    assert "0_1" in said[said.rindex("task") :]
    assert said.endswith("\n\x1b[?25h")


def test_nothing_to_show_shows_nothing() -> None:
    out = io.StringIO()
    with LiveTable(Console(file=out), lambda: None):
        pass
    assert out.getvalue() == ""
