"""What ``streamsrt run`` shows of an application on a terminal, and for which programs it does."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.fixtures_brokers import BundledBroker
from tests.system.processes import COMMAND_LINE, environment
from topology import StreamsBuilder, serdes
from topology.dsl.printing import draws_tables

PROGRAM = """
from topology import StreamsBuilder
builder = StreamsBuilder()
builder.stream("shown-in").to("shown-out")
topology = builder.build()
"""


def test_programs_that_draw_tables_themselves_are_known() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.string)
    stream.print()
    assert not draws_tables(builder.build())
    stream.print_table()
    assert draws_tables(builder.build())


@pytest.mark.system
def test_on_a_terminal_the_log_comes_above_what_stays_in_place(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(PROGRAM, encoding="utf-8")
    address = bundled_broker.bootstrap_servers
    topics = [*COMMAND_LINE, "topics", "create", "shown-in", "shown-out", "-b", address]
    subprocess.run(topics, cwd=tmp_path, env=environment(tmp_path), check=True)
    ours, theirs = pty.openpty()
    settings = {**environment(tmp_path), "TERM": "xterm", "COLUMNS": "100"}
    command = [*COMMAND_LINE, "run", "./shown.py", "-a", "shown", "-b", address, "--until", "quiet"]
    with subprocess.Popen(command, cwd=tmp_path, env=settings, stderr=theirs, stdout=theirs) as process:
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    assert process.returncode == 0, said
    text = said.decode()
    assert text.index("\x1b[?25l") < text.index("INFO streamsrt") < text.rindex("\x1b[?25h")
    assert text.endswith("NOT_RUNNING: 0 tasks, 0 records processed, lag 0\r\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # Linux says so where nobody has the other end any more.
        return b""
