"""What the README shows is what happens: its programs are run, and its commands print what it says they print."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
STREAMSRT = [sys.executable, "-c", "from streamsrt.cli import main; main()"]


def program(comment: str) -> str:
    """The Python block that contains ``comment``."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return next(block for block in blocks if comment in block)


def session() -> list[tuple[str, list[str]]]:
    """The commands of the first terminal session and the lines that each prints."""
    text = README.read_text(encoding="utf-8")
    block = text[text.index("    $ streamsrt broker") :].split("\n\n", 1)[0]
    steps: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        shown = line.removeprefix("    ")
        if shown.startswith("$ "):
            steps.append((shown.removeprefix("$ ").split("   #")[0].strip(), []))
        else:
            steps[-1][1].append(shown)
    return steps


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "wordcount.py").write_text(program("# wordcount.py"), encoding="utf-8")
    return tmp_path


@pytest.fixture
def broker(directory: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [*STREAMSRT, "broker", "--port", "0", "--data-dir", str(directory / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=directory,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5):
        pass
    yield address
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()


@pytest.mark.parametrize("line", ["TopologyTestDriver(topology) as driver", "simulate(topology, "])
def test_the_application_in_a_test(directory: Path, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program(line)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.system
def test_the_terminal_session(directory: Path, broker: str) -> None:
    steps = session()
    assert steps[0][0].startswith("streamsrt broker")
    environment = {**os.environ, "LC_ALL": "C"}
    for command, expected in steps[1:]:
        shell = command.replace("127.0.0.1:9092", broker).replace("streamsrt ", shlex.join(STREAMSRT) + " ")
        done = subprocess.run(
            ["bash", "-c", shell],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (command, done.stderr)
        printed = [line for line in (done.stdout + done.stderr).splitlines() if "WARNING" not in line]
        assert printed == expected, command
