"""Which Python ``make`` takes (``.ci/find-python``)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "find-python"


def command(folder: Path, name: str, *, text: str = "") -> str:
    """A command of that name: this Python, or a shell script with ``text``."""
    path = folder / name
    path.write_text(f'#!/bin/sh\n{text or f"""exec "{sys.executable}" "$@" """}\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def find(*commands: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *commands], capture_output=True, text=True)


def test_the_first_that_runs_is_taken(tmp_path: Path) -> None:
    shim = command(tmp_path, "python3.11", text="echo 'pyenv: python3.11: command not found' >&2; exit 127")
    old = command(tmp_path, "python2", text=f'shift; exec "{sys.executable}" -c "import sys; sys.exit(1)"')
    good = command(tmp_path, "python3.13")
    done = find("no-such-python", shim, old, good, sys.executable)
    assert done.returncode == 0
    assert done.stdout == f"{good}\n"
    assert not done.stderr


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    done = find("no-such-python", "nor-this")
    assert (done.returncode, done.stdout) == (1, "")
    expected = "no Python from 3.11 on among: no-such-python nor-this (give one with PYTHON=/path/to/python)\n"
    assert done.stderr == expected


def test_one_without_venv_is_told_and_another_taken(tmp_path: Path) -> None:
    text = f'case "$2" in *ensurepip*) exit 1;; esac; exec "{sys.executable}" "$@"'
    without = command(tmp_path, "python3.12", text=text)
    good = command(tmp_path, "python3.13")
    assert find(without, good).stdout == f"{good}\n"
    done = find(without)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{without} has no modules venv and ensurepip: install them")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_says_it_once(tmp_path: Path) -> None:
    root = SCRIPT.parents[1]
    wanted = [
        "make",
        "-s",
        "-C",
        str(root),
        f"VENV={tmp_path}/venv",
        "PYTHON=no-such-python",
        f"{tmp_path}/venv/bin/python",
    ]
    done = subprocess.run(wanted, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("no Python from 3.11 on among: no-such-python")
