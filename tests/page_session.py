"""The terminal session of a page, run as it stands: its files are written, its commands typed, their output is compared.

1. A fenced block belongs to the file that the paragraph before it names at its end: "Save it as `shop.py`:".
2. A line ``$ COMMAND`` is a command; the lines below it are what it says on both outputs. ``...`` stands for any text, and
   a line of its own for any lines. With no lines below it, a command may say anything. ``# exit code N`` behind it: it exits
   with N, else with 0.
3. ``COMMAND &`` is a job: the session continues when it has said its lines. ``kill %N`` ends job N with SIGTERM.
4. Who looks at something that others change looks again until it is there, as a person would.
5. Virtual environments and installations are not repeated, and the port 9092 is another one.

``python -m tests.page_session BIN PAGE`` runs a page in an empty folder with the commands of BIN, a virtual environment's.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.fixtures_brokers import ROOT
from tests.kafka_server import free_ports

PATIENCE_S = 120.0
LOOKS = ("streamsrt groups describe", "streamsrt upgrade status", "streamsrt consume", "streamsrt query")
NOT_REPEATED = ("pip install", "python3 -m venv")
PORT = "9092"

Look: TypeAlias = Callable[[], tuple[int, str]]


@dataclass(frozen=True)
class File:
    name: str
    text: str


@dataclass(frozen=True)
class Typed:
    """A command, and the lines that the page shows below it."""

    line: str
    shown: tuple[str, ...]
    exit_code: int = 0


def steps(page: str) -> Iterator[File | Typed]:
    """The files and commands of a page, in order."""
    before, block = "", ""
    lines = iter([*page.splitlines(keepends=True), "\n"])
    for line in lines:
        if line.startswith("    "):
            block += line
            continue
        yield from _typed(block)
        block = ""
        if line.startswith("```"):
            text = "".join(iter(lambda: next(lines), "```\n"))
            if named := re.search(r"`([\w./-]+)`:$", before):
                yield File(named[1], text)
        before = line.strip() or before


def _typed(block: str) -> Iterator[Typed]:
    for part in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
        first, *shown = part.splitlines()
        line, _, said = first.partition("   #")
        code = re.search(r"exit code (\d+)", said)
        yield Typed(line.strip(), tuple(each.removeprefix("    ") for each in shown), int(code[1]) if code else 0)


def fits(said: str, shown: tuple[str, ...]) -> bool:
    """Whether a command said what the page shows."""
    parts = [
        r"(?:.*\n)*?" if line == "..." else ".*".join(re.escape(part) for part in line.split("...")) + r"\s*\n"
        for line in shown
    ]
    return not shown or re.fullmatch("".join(parts), said if said.endswith("\n") else said + "\n") is not None


class PageSession:
    """A terminal in a folder. A context manager: what still runs at its end is stopped."""

    def __init__(self, folder: Path, commands: Path = Path(sys.executable).parent) -> None:
        """``commands``: where ``streamsrt`` and ``python`` are."""
        self._folder = folder
        self._port = str(free_ports(1)[0])
        own = {
            key: value for key, value in os.environ.items() if not key.startswith(("STREAMSRT_", "PYTEST_", "PYTHON"))
        }
        self._environment = {**own, "PATH": f"{commands}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "COLUMNS": "200"}
        if commands == Path(sys.executable).parent:
            self._environment["PYTHONPATH"] = str(ROOT)
        self._jobs: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._open = ExitStack()

    def __enter__(self) -> PageSession:
        return self

    def __exit__(self, *exception: object) -> None:
        for job, _ in reversed(self._jobs):
            if job.poll() is None:
                job.terminate()
                job.wait(PATIENCE_S)
        self._open.close()

    def follow(self, page: Path, *, only: str = "") -> list[str]:
        """Does all of it; the commands that were run. An AssertionError names the first one that says something else.

        ``only``: the beginning of the commands that are run.
        """
        run = []
        for step in steps(page.read_text(encoding="utf-8").replace(PORT, self._port)):
            if isinstance(step, File):
                path = self._folder / step.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, encoding="utf-8")
            elif step.line.startswith(only) and not any(each in step.line for each in NOT_REPEATED):
                self._do(step)
                run.append(step.line)
        return run

    def _do(self, step: Typed) -> None:
        if step.line.startswith("kill %"):
            job, log = self._jobs[int(step.line.removeprefix("kill %")) - 1]
            job.send_signal(signal.SIGTERM)
            assert job.wait(PATIENCE_S) == 0, log.read_text(encoding="utf-8")
        elif step.line.endswith(" &"):
            self._start(step)
        else:
            self._run(step)

    def _start(self, step: Typed) -> None:
        log = self._folder / f"job-{len(self._jobs) + 1}.log"
        output = self._open.enter_context(log.open("wb"))
        words = shlex.split(step.line.removesuffix(" &"))
        job = subprocess.Popen(
            words,
            executable=str(Path(self._environment["PATH"].split(":")[0]) / words[0]),
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        self._jobs.append((job, log))
        self._until(step, lambda: (0, log.read_text(encoding="utf-8")), lambda: job.poll() is None, whole=False)

    def _run(self, step: Typed) -> None:
        def said() -> tuple[int, str]:
            done = subprocess.run(
                ["bash", "-c", step.line],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_S,
            )
            return done.returncode, done.stdout

        self._until(step, said, lambda: step.line.startswith(LOOKS))

    def _until(self, step: Typed, look: Look, again: Callable[[], bool], *, whole: bool = True) -> None:
        shown = step.shown if whole or not step.shown else ("...", *step.shown, "...")
        pause, give_up = threading.Event(), time.monotonic() + PATIENCE_S
        while True:
            going_on = again()
            code, said = look()
            if code == step.exit_code and fits(said, shown):
                return
            if not going_on or time.monotonic() > give_up:
                raise AssertionError(f"$ {step.line}\nexit code {code}, said:\n{said}\nthe page:\n" + "\n".join(shown))
            pause.wait(0.2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty, PageSession(Path(empty), Path(sys.argv[1]).absolute()) as session:
        print("\n".join(session.follow(Path(sys.argv[2]))))
