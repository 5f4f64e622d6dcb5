"""A copy of the template is what a start of Python is, apart from what is imported already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from tests.warm_processes import ROOT, WarmProcess, start_python

pytestmark = pytest.mark.system

SEEN = """
import atexit, json, os, signal, sys
print(json.dumps({
    "arguments": [sys.argv, sys.orig_argv], "path": sys.path, "folder": os.getcwd(), "environment": dict(os.environ),
    "files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")), "parent": os.getppid(),
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "text": [[f.encoding, f.errors, f.line_buffering, f.write_through] for f in (sys.stdin, sys.stdout, sys.stderr)],
    "given": sys.stdin.read(), "main": [__name__, sys.modules["__main__"].__dict__ is globals()], "seed": hash("seed"),
    "of tests": [name for name in sys.modules if name.partition(".")[0] == "tests"],
}))
atexit.register(print, "at its end")
"""
DIFFER = {"parent", "seed"}


def surroundings(folder: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "WORD": "ä"}


def read(file: IO[str] | None) -> str:
    assert file is not None
    with file:
        return file.read()


def seen_by_copy(folder: Path, *command: str) -> dict[str, Any]:
    process = start_python(command, cwd=folder, environment=surroundings(folder))
    assert isinstance(process, WarmProcess)
    said, log = read(process.stdout), read(process.stderr)
    assert process.wait(60.0) == 0, log
    seen, end = said.splitlines()
    assert end == "at its end"
    return dict(json.loads(seen))


@pytest.mark.parametrize(
    "command", [("-c", SEEN, "one", "--two"), ("-m", "seen", "one", "--two")], ids=["code", "module"]
)
@pytest.mark.parametrize("buffered", [True, False])
def test_it_is_as_a_start_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], buffered: bool
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if buffered else "1")
    (tmp_path / "seen.py").write_text(SEEN, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=surroundings(tmp_path),
        check=True,
    )
    expected = json.loads(done.stdout.splitlines()[0])
    found = seen_by_copy(tmp_path, *command)
    assert {name: found[name] for name in found.keys() - DIFFER} == {
        name: expected[name] for name in expected.keys() - DIFFER
    }


def test_copies_have_two_hash_seeds(tmp_path: Path) -> None:
    first, second, third = (seen_by_copy(tmp_path, "-c", SEEN)["seed"] for _ in range(3))
    assert first == third != second


@pytest.mark.parametrize(
    ("code", "expected", "last_line"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("raise ValueError('of its own')", 1, "ValueError: of its own"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
        ("import threading; threading.Timer(0.1, print, ['late']).start()", 0, ""),
    ],
)
def test_it_ends_as_a_start_of_python_does(tmp_path: Path, code: str, expected: int, last_line: str) -> None:
    process = start_python(["-c", code], cwd=tmp_path)
    assert isinstance(process, WarmProcess)
    assert read(process.stdout) == ("late\n" if "late" in code else "")
    assert read(process.stderr).rstrip("\n").rpartition("\n")[2] == last_line
    assert process.wait(60.0) == process.poll() == expected


def test_one_that_runs_has_not_ended(tmp_path: Path) -> None:
    process = start_python(["-c", "import signal; print('runs', flush=True); signal.pause()"], cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert read(process.stdout) == read(process.stderr) == ""


def test_what_is_no_test_starts_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_VERSION")
    process = start_python(["-c", "print('as always')"], cwd=tmp_path)
    assert isinstance(process, subprocess.Popen)
    assert process.communicate(timeout=60.0) == ("as always\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD"])
def test_what_takes_effect_at_the_start_of_python_starts_it(tmp_path: Path, name: str) -> None:
    process = start_python(
        ["-c", "print(hash('seed'))"],
        cwd=tmp_path,
        environment={**surroundings(tmp_path), name: "" if name[0] == "L" else "7"},
    )
    assert isinstance(process, subprocess.Popen)
    process.communicate(timeout=60.0)
    assert process.returncode == 0
