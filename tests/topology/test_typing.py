"""Programs against mypy and pyright, both strict: what is right passes, mistakes are found in the lines that have them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import topology
from tests.topology.spec.test_arguments import RECEIVERS

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
MISTAKES = Path(__file__).with_name("typed_mistakes.py")

CLASSES = sorted(RECEIVERS.keys() - {topology.Suppressed, topology.Topology}, key=lambda kind: kind.__name__)
"""The classes whose methods add to a program."""


def errors_of_mypy() -> dict[str, set[int]]:
    """The lines with errors, by the file's name."""
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", str(PROGRAM), str(MISTAKES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found: dict[str, set[int]] = {}
    for name, line in re.findall(r"(\w+\.py):(\d+): error:", done.stdout):
        found.setdefault(name, set()).add(int(line))
    assert found, done.stdout + done.stderr
    return found


def errors_of_pyright(folder: Path) -> dict[str, set[int]]:
    config = {
        "include": [str(PROGRAM), str(MISTAKES)],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, set[int]] = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found.setdefault(Path(each["file"]).name, set()).add(each["range"]["start"]["line"] + 1)
    return found


def lines_that_are_wrong() -> set[int]:
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


@pytest.mark.slow
def test_mypy_passes_what_is_right_and_finds_what_is_wrong() -> None:
    assert errors_of_mypy() == {MISTAKES.name: lines_that_are_wrong()}


@pytest.mark.slow
def test_pyright_passes_what_is_right_and_finds_what_is_wrong(tmp_path: Path) -> None:
    assert errors_of_pyright(tmp_path) == {MISTAKES.name: lines_that_are_wrong()}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_the_program_uses_every_method(kind: type) -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    methods = {name for name in dir(kind) if not name.startswith("_")}
    unused = {name for name in methods if f".{name}" not in text}
    assert not unused, f"say in tests/topology/{PROGRAM.name} what the types of {sorted(unused)} are"


def test_the_typed_program_is_a_topology() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0
