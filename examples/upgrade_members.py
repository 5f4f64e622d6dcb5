"""The members of the upgrade drill: each is a process that runs one version of the application and reports its state."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from streamsrt.errors import StreamsError

COMMAND_LINE = (sys.executable, "-c", "from streamsrt.cli import main; main()")
_PATIENCE_S = 60.0


class MemberError(StreamsError):
    """A member ended, or does not do what it should in time."""


class TakenOver(NamedTuple):
    """What a member went on with when it came back as another version: ids of active tasks, and restored records."""

    kept: frozenset[str]
    gained: frozenset[str]
    restored_records: int


class MemberProcess:
    """``streamsrt run`` on a state directory of its own, which the next version goes on with."""

    def __init__(self, name: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self.directory = directory
        self.application = ""
        self.taken_over: TakenOver | None = None
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._progress: Mapping[str, Any] = {}
        self._changed = threading.Condition()

    def start(self, application: str, epoch: int = 0) -> None:
        """Starts a version of the application with a topology epoch; the former one has ended."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.application, self._progress = application, {}
        command = [*COMMAND_LINE, "run", application, "--json", "--progress-interval", "0.1"]
        settings = {**self._settings, "state.dir": str(self.directory), "topology.epoch": str(epoch)}
        for key, value in settings.items():
            command += ["--config", f"{key}={value}"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._changed:
                self._progress = json.loads(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------------------ looking

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def progress(self) -> Mapping[str, Any]:
        """What it said last; empty while it starts."""
        with self._changed:
            return self._progress

    @property
    def state(self) -> str:
        if not self.is_alive:
            return "stopped"
        return str(self.progress.get("state", "starting"))

    @property
    def tasks(self) -> frozenset[str]:
        """The ids of its active tasks."""
        found: Mapping[str, str] = self.progress.get("tasks", {})
        return frozenset(task for task, is_now in found.items() if is_now.startswith("active"))

    def wait(self, holds: Callable[[Mapping[str, Any]], bool], what: str) -> None:
        """Waits until its progress fulfils a condition. Raises MemberError where it ends, or takes a minute."""
        with self._changed:
            ended = self._changed.wait_for(
                lambda: (bool(self._progress) and holds(self._progress)) or not self.is_alive, _PATIENCE_S
            )
            if not ended or not (self._progress and holds(self._progress)):
                raise MemberError(
                    f"{self.name}: {what}: not in {_PATIENCE_S:g} s, or it ended; see {self.directory}/log"
                )

    # ------------------------------------------------------------------------------------------------------------- ending

    def replace_by(self, application: str, epoch: int, *, kill: bool) -> None:
        """Ends this version, starts another one on the same state, and waits until that one has tasks that all run."""
        before = self.tasks
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start(application, epoch)
        self.wait(_runs, "it runs the other version")
        restored = int(self.progress["restored_records"])
        self.taken_over = TakenOver(before & self.tasks, self.tasks - before, restored)

    def wait_end(self) -> int:
        """The exit code of a process that ends by itself. Raises MemberError where it does not."""
        process = self._process
        assert process is not None
        try:
            return process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise MemberError(f"{self.name} does not end; see {self.directory}/log") from None

    @property
    def last_words(self) -> str:
        """The last line that it has written to its log."""
        return (self.directory / "log").read_text(encoding="utf-8").rstrip().rpartition("\n")[2]

    def stop(self) -> None:
        """SIGTERM: it commits, leaves, and says what it did."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(_PATIENCE_S)
        if process.stdout is not None:
            process.stdout.close()


def _runs(line: Mapping[str, Any]) -> bool:
    phases = line["tasks"].values()
    return line["state"] == "RUNNING" and "active running" in phases and "active restoring" not in phases
