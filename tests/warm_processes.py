"""Starts of Python whose imports are done already: copies of a program that did them (:mod:`tests.process_template`).

1. What is started is a process with everything of its own, whatever it may be killed with. Only the imports were not: tests
   of imports, of the start itself and of the environment of Python start Python.
2. All copies of one template have its hash seed. Two templates take turns, so that the members of a group differ as they do
   when each of them is started alone.
3. Where Python would start differently, by a variable of the environment, it is started, as it is for benchmarks and
   whatever else is no test.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TextIO, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "tests" / "process_template.py"
IN_TURN = 2
TAKES_EFFECT_AT_THE_START = ("LD_", "MALLOC_", "OPENBLAS_", "PYTHON")
"""How the names of such variables begin."""


class Template:
    """One process that makes copies of itself."""

    def __init__(self, path: str) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, str(TEMPLATE), str(number)],
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                pass_fds=[number],
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._orders.close()
        self._process.wait()

    def copy(self, order: Mapping[str, object], files: Sequence[int]) -> int:
        """The process id of a copy with these files: stdin, stdout, stderr, and a pipe where it is told how it has ended."""
        socket.send_fds(self._orders, [json.dumps(order).encode()], files)
        return int(self._orders.recv(32))


class WarmProcess:
    """What tests need of ``subprocess.Popen``; ``stdout`` and ``stderr`` where a pipe was asked for."""

    def __init__(
        self,
        template: Template,
        order: Mapping[str, object],
        stdin: int | IO[str],
        stdout: int | IO[str],
        stderr: int | IO[str],
    ) -> None:
        self.returncode: int | None = None
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None
        self._reading = threading.Lock()
        self._told, telling = os.pipe()
        theirs = [telling]

        def file(asked: int | IO[str]) -> int:
            if not isinstance(asked, int):
                return asked.fileno()
            if asked == subprocess.DEVNULL:
                theirs.append(os.open(os.devnull, os.O_RDWR))
                return theirs[-1]
            assert asked == subprocess.PIPE
            ours, its = os.pipe()
            theirs.append(its)
            pipes.append(open(ours, encoding="utf-8", errors="replace"))  # noqa: SIM115
            return its

        pipes: list[TextIO] = []
        files = [file(stdin), file(stdout), file(stderr), telling]
        if stderr == subprocess.PIPE:
            self.stderr = pipes.pop()
        if stdout == subprocess.PIPE:
            self.stdout = pipes.pop()
        self.pid = template.copy(order, files)
        for each in theirs:
            os.close(each)

    def poll(self) -> int | None:
        """The exit code, or the number of the signal below zero; None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def _ended_within(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._told, select.POLLIN)
            if not ready.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            with self._reading:
                if self.returncode is None:
                    self.returncode = int(os.read(self._told, 32))
                    os.close(self._told)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Started: TypeAlias = WarmProcess | subprocess.Popen[str]
_templates: dict[str, list[Template]] = {}
_ordering = threading.Lock()


def start_python(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stdin: int | IO[str] = subprocess.DEVNULL,
    stdout: int | IO[str] = subprocess.PIPE,
    stderr: int | IO[str] = subprocess.PIPE,
) -> Started:
    """Starts ``python -c CODE ...`` or ``python -m MODULE ...``."""
    surroundings = dict(os.environ if environment is None else environment)
    if "PYTEST_VERSION" not in os.environ or _of_the_start(surroundings) != _of_the_start(os.environ):
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            cwd=cwd,
            env=surroundings,
        )
    order = {"arguments": list(arguments), "cwd": str(cwd.resolve()), "environment": surroundings}
    with _ordering:
        return WarmProcess(_template(surroundings.get("PYTHONPATH", ""), cwd), order, stdin, stdout, stderr)


def run_python(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """The same to its end, which is killed if it does not come in time."""
    with ExitStack() as closing:
        given, said, log = (closing.enter_context(TemporaryFile("w+", encoding="utf-8")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        process = start_python(arguments, cwd=cwd, environment=environment, stdin=given, stdout=said, stderr=log)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in (said, log):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess([sys.executable, *arguments], code, *texts)


def _of_the_start(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(TAKES_EFFECT_AT_THE_START) and name != "PYTHONPATH"
    }


def _template(path: str, cwd: Path) -> Template:
    """The template whose turn it is, of those that find modules where the copy finds them: not in the copy's own folder."""
    named = [entry for entry in path.split(os.pathsep) if entry and entry not in (str(ROOT), str(cwd))]
    searched = os.pathsep.join([*named, str(ROOT)])
    found = _templates.setdefault(searched, [])
    found.insert(0, found.pop() if len(found) == IN_TURN else Template(searched))
    return found[0]
