"""docs/tutorial.md is followed in an empty folder, with the installed commands alone.

The whole session runs with ``--full``, and with nothing but a wheel by ``make tutorial``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures_brokers import ROOT
from tests.page_session import File, PageSession, Typed, fits, steps

TUTORIAL = ROOT / "docs" / "tutorial.md"


@pytest.mark.system
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_newcomer_follows_the_tutorial(tmp_path: Path) -> None:
    with PageSession(tmp_path) as session:
        run = session.follow(TUTORIAL)
    assert len(run) > 30
    assert sum(line.startswith("streamsrt ") for line in run) > 20


@pytest.mark.system
def test_the_programs_of_the_tutorial_run_and_its_test_passes(tmp_path: Path) -> None:
    with PageSession(tmp_path) as session:
        run = session.follow(TUTORIAL, only="python -m pytest")
        assert run == ["python -m pytest -q test_shop.py"]
    built = "import report, shop, shop_v2; print(len({each.topology.digest for each in (report, shop, shop_v2)}))"
    done = subprocess.run(
        [sys.executable, "-c", built], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"3\n", b"")


def test_files_and_commands_of_a_page_are_found() -> None:
    fenced = "Save it as `a.py`:\n\n```python\n    $ no command\n```\n\n"
    page = fenced + "    $ one | two      # exit code 3\n    said\n    $ three &\n"
    assert list(steps(page)) == [
        File("a.py", "    $ no command\n"),
        Typed("one | two", ("said",), 3),
        Typed("three &", ()),
    ]


@pytest.mark.parametrize(
    ("said", "shown", "expected"),
    [
        ("1 passed\n", ("1 passed",), True),
        ("1 passed\n2 failed\n", ("1 passed",), False),
        ("", ("1 passed",), False),
        ("a\nb\nc 7 d\n", ("...", "c ... d"), True),
        ("a\nb\nc 7 d\ne\n", ("...", "c ... d"), False),
        ("a\nb\n", ("...", "b", "..."), True),
        ("anything", (), True),
    ],
)
def test_what_a_command_says_is_compared_line_by_line(said: str, shown: tuple[str, ...], expected: bool) -> None:
    assert fits(said, shown) == expected
