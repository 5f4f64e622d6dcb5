"""A running application in a notebook: a table of its tasks that follows what they do.

1. The cell that shows the application is updated about once a second, while other cells run too, until the application
   has ended. The last table remains.
2. Only a notebook imports this module: it needs IPython.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from IPython.display import display

from streamsrt.runtime.html_table import html_table
from streamsrt.runtime.task_table import NUMBER_COLUMNS, TEXT_COLUMNS, TaskTable

INTERVAL_S = 1.0


def show_live(table: Callable[[], TaskTable], has_ended: Callable[[], bool]) -> threading.Thread:
    """Shows a table below the current cell; the thread that updates it ends after ``has_ended()``."""
    first = table()
    handle = display({"text/html": _html(first)}, raw=True, display_id=True)

    def follow() -> None:
        last, waiting = first, threading.Event()
        is_over = False
        while not is_over:
            waiting.wait(INTERVAL_S)
            # Asked before the table is made: the last one is of an application that has ended.
            is_over = has_ended()
            now = table()
            # An application that has ended has no tasks, and an empty table would say nothing.
            shown = now if now.rows else TaskTable(now.title, last.rows)
            if shown != last:
                handle.update({"text/html": _html(shown)}, raw=True)
                last = shown

    thread = threading.Thread(target=follow, name="notebook-table", daemon=True)
    thread.start()
    return thread


def _html(table: TaskTable) -> str:
    return html_table(table.title, (*TEXT_COLUMNS, *NUMBER_COLUMNS), table.rows)
