"""A program that has imported what applications and brokers import, and turns copies of itself into them.

A start of Python with ``streamsrt`` or ``coordinator`` takes a second or two of CPU time, nearly all for imports, and the
tests of the system start hundreds. So :mod:`tests.warm_processes` starts this program once, and then asks it for a copy
(``fork``) wherever a test would start ``python -c CODE ...`` or ``python -m MODULE ...``. A copy has the arguments, folder,
environment, import path, files and signals that the program would have, runs the same code as ``__main__``, and ends as a
program of its own does: with tracebacks, exit code, ``atexit`` and flushed output.

It is run as a file and imports nothing of the tests: a copy has none of their modules.
"""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

MODULES = ("coordinator.server.main", "streamsrt.app", "streamsrt.cli.entry", "streamsrt.cli.run")
MOST = 1 << 20
"""Bytes of an order."""


def serve(orders: socket.socket) -> dict[str, Any] | None:
    """Makes copies until the other side is closed. In a copy it returns the order: what to become."""
    ready = select.poll()
    ready.register(orders, select.POLLIN)
    ends: dict[int, tuple[int, int]] = {}
    while True:
        for number, _ in ready.poll():
            if number in ends:
                ready.unregister(number)
                _tell_end(number, *ends.pop(number))
                continue
            message, files, _, _ = socket.recv_fds(orders, MOST, 4)
            if not message:
                return None
            pid = _fork()
            if pid == 0:
                _take(files[:3])
                return dict(json.loads(message))
            watched = os.pidfd_open(pid)
            ready.register(watched, select.POLLIN)
            ends[watched] = pid, files[3]
            for file in files[:3]:
                os.close(file)
            orders.send(str(pid).encode())


def _fork() -> int:
    """Threads of libraries, which wait for work, are no concern of a copy: the libraries start others there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _tell_end(watched: int, pid: int, told: int) -> None:
    _, status = os.waitpid(pid, 0)
    os.close(watched)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(told)


def _take(files: list[int]) -> None:
    """Has these files as stdin, stdout and stderr, and no others."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def become(order: dict[str, Any], path: Sequence[str]) -> None:
    """Runs what was ordered as ``__main__``, as a start of Python does. ``path``: where its own modules and packages are."""
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    kind, name, *arguments = order["arguments"]
    sys.path[:] = ["" if kind == "-c" else order["cwd"], *entries(os.environ.get("PYTHONPATH", "")), *path]
    sys.path_importer_cache.clear()
    sys.orig_argv[:] = [sys.executable, *order["arguments"]]
    sys.argv[:] = [kind, *arguments]
    _open_files()
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if kind == "-c":
        exec(compile(name, "<string>", "exec"), main.__dict__)
    else:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _open_files() -> None:
    """What Python makes of the files 0, 1 and 2 when it starts."""
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))

    def text(number: int, like: TextIO) -> io.TextIOWrapper:
        mode, buffering = ("rb", -1) if number == 0 else ("wb", 0 if at_once else -1)
        by_line = not at_once and (number == 2 or os.isatty(number))
        file: Any = open(number, mode, buffering, closefd=False)  # noqa: SIM115
        return io.TextIOWrapper(file, like.encoding, like.errors, line_buffering=by_line, write_through=at_once)

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = text(number, getattr(sys, name))
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def entries(path: str) -> list[str]:
    return [entry for entry in path.split(os.pathsep) if entry]


def run(number: int) -> None:
    """Serves the socket of that number, and is what was ordered in each copy."""
    del sys.path[0]  # the folder of this file, whose packages are called as ours
    usual = sys.path[len(entries(os.environ["PYTHONPATH"])) :]
    for module in MODULES:
        __import__(module)
    gc.collect()
    gc.freeze()
    # Ctrl-C is for those who ordered the copies, and for the copies.
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = serve(socket.socket(fileno=number))
    if order is not None:
        signal.signal(signal.SIGINT, on_interrupt)
        become(order, usual)


if __name__ == "__main__":
    # A copy replaces the module: what it is made of has to live as long as that runs.
    this = sys.modules["__main__"]
    run(int(sys.argv[1]))
