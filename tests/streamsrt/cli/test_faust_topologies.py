"""Commands that look at topologies take a ``faust.App``, and ``streamsrt run`` says how one is run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.streamsrt.faust.needed import require_faust

require_faust()

from streamsrt.cli.application import load_topology  # noqa: E402
from streamsrt.cli.topology_versions import version_of  # noqa: E402
from streamsrt.errors import ConfigError  # noqa: E402

PROGRAM = """
import faust

app = faust.App("shown", broker="kafka://localhost:9092")
config = "not settings"


@app.agent(app.topic("in"))
async def read(stream):
    async for value in stream:
        pass
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "shown.py").write_text(PROGRAM)
    path = list(sys.path)
    yield f"{tmp_path / 'shown.py'}:app"
    sys.modules.pop("shown", None)
    sys.path[:] = path


def test_a_faust_app_is_described_and_compared(program: str) -> None:
    found = version_of(program)
    assert [part.source_topics for part in found.subtopologies] == [("in",)]


def test_running_it_as_a_topology_says_what_to_run(program: str) -> None:
    with pytest.raises(ConfigError, match=r"is a faust\.App: run it with `streamsrt faust run "):
        load_topology(program)
