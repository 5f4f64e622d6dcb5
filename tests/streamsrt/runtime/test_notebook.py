"""What a notebook shows of a running application, in a real kernel."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.fixtures_brokers import BundledBroker
from tests.system.processes import COMMAND_LINE, environment

pytestmark = pytest.mark.system

APPLICATION = """
from streamsrt import KafkaStreams
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
words = builder.stream("notebook-words", key=serdes.string, value=serdes.string)
words.map_values(str.upper).to("notebook-loud", value=serdes.string)
app = KafkaStreams(builder.build(), {{
    "application.id": "notebook", "bootstrap.servers": {bootstrap_servers!r}, "state.dir": {state_dir!r},
}})
app
"""
RUN = "records = app.collect()"
SCRIPTED = """
from streamsrt.runtime.notebook import show_live
from streamsrt.runtime.task_table import TaskTable

row = ("0_0", "active", "running", "5", "0", "1", "0")
tables = [TaskTable("a <b>", ()), TaskTable("running", (row,)), TaskTable("ended", ())]
thread = show_live(iter(tables).__next__, iter([False, True]).__next__)
"""
JOIN = """
import threading
for each in threading.enumerate():
    if each.name == "notebook-table":
        each.join()
"""


def shown_by(cell: NotebookNode) -> tuple[str | None, list[list[str | None]]]:
    """The line above a cell's table, and its rows."""
    (output,) = cell.outputs
    table = ElementTree.fromstring(output.data["text/html"])
    return table.findtext("caption"), [[text.text for text in row.iter("td")] for row in table.iter("tr")][1:]


def test_a_cell_follows_the_application_while_other_cells_run(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    bootstrap_servers = bundled_broker.bootstrap_servers
    for words, given in (
        (("topics", "create", "notebook-words", "notebook-loud"), ""),
        (("produce", "notebook-words"), "a\nb\nc\n"),
    ):
        command = [*COMMAND_LINE, *words, "-b", bootstrap_servers]
        subprocess.run(command, input=given, text=True, env=environment(tmp_path), check=True)
    application = APPLICATION.format(bootstrap_servers=bootstrap_servers, state_dir=str(tmp_path))
    notebook = new_notebook(cells=[new_code_cell(each) for each in (application, RUN, SCRIPTED, JOIN)])
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={}).execute()
    shown, _, scripted, _ = notebook.cells
    caption, _ = shown_by(shown)
    assert caption == "NOT_RUNNING: 3 records processed, lag 0"
    assert shown_by(scripted) == ("ended", [["0_0", "active", "running", "5", "0", "1", "0"]])
