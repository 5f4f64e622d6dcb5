"""Applications as processes of their own, and what is known of them.

1. An application is ``streamsrt run`` with its progress as JSON lines, read by a thread. Waiting is waiting for a line that
   fulfils a condition, with a deadline: nothing sleeps.
2. A condition that is not fulfilled in time fails the test with what the process said last.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.warm_processes import Started, run_python, start_python

ROOT = Path(__file__).resolve().parent.parent.parent
IN_PYTHON = ("-c", "from streamsrt.cli import main; main()")
COMMAND_LINE = (sys.executable, *IN_PYTHON)
PATIENCE_S = 300.0
CLASSIC_SETTINGS: Mapping[str, object] = {
    "group.protocol": "classic",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
}
"""Of a member of a classic group, which finds out within seconds what has become of the others."""

Progress = Mapping[str, Any]


class Joining:
    """By which applications join their groups where a test says nothing: ``pytest --group-protocol`` sets it."""

    protocol = "streams"


def with_protocol(configs: Mapping[str, object]) -> dict[str, object]:
    """These settings, with those that the protocol asks for."""
    if configs.get("group.protocol", Joining.protocol) == "classic":
        return {**CLASSIC_SETTINGS, **configs}
    return {"group.protocol": "streams", **configs}


def wait_until(holds: Callable[[], bool], what: str, *, timeout_s: float = PATIENCE_S, pause_s: float = 0.05) -> None:
    """Wait until a condition that nobody announces holds."""
    pause = threading.Event()
    for _ in range(max(1, round(timeout_s / pause_s))):
        if holds():
            return
        pause.wait(pause_s)
    raise AssertionError(f"not within {timeout_s:g} s: {what}")


def run_command(
    *arguments: str | Path, stdin: str = "", timeout_s: float = PATIENCE_S, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """One command of the command line, to its end."""
    command = [*IN_PYTHON, *map(str, arguments)]
    if arguments[0] == "run" and Joining.protocol == "classic" and "group.protocol" not in " ".join(command):
        command += [f"--config={key}={value}" for key, value in CLASSIC_SETTINGS.items()]
    return run_python(command, cwd=cwd, environment=environment(cwd), stdin=stdin, timeout_s=timeout_s)


def environment(cwd: Path) -> dict[str, str]:
    """This process's, without what would change the outcome."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("STREAMSRT_")},
        "PYTHONPATH": os.pathsep.join(map(str, {ROOT, cwd})),
    }


def children(pid: int) -> list[int]:
    """The processes that a process has started; none if it is gone."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(part) for part in text.split()]


def family(pid: int) -> Iterator[int]:
    """A process, and those below it; each before those that it has started."""
    yield pid
    for child in children(pid):
        yield from family(child)


class Sight(NamedTuple):
    """What the kernel says of a process. ``waits``: where its threads wait, of those that do."""

    pid: int
    state: str
    cpu_s: float
    age_s: float
    waits: tuple[str, ...]

    def __str__(self) -> str:
        where = ", ".join(self.waits) or "nothing"
        return f"process {self.pid}: {self.state}, {self.cpu_s:.1f} CPU s in {self.age_s:.0f} s, waits for {where}"


def seen(pid: int) -> Iterator[Sight]:
    """A process and those below it, as far as they are still there."""
    for each in family(pid):
        place = Path(f"/proc/{each}")
        with suppress(OSError):
            state, *fields = (place / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks_per_s = os.sysconf("SC_CLK_TCK")
            uptime_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
            waits = {(task / "wchan").read_text(encoding="ascii") for task in (place / "task").iterdir()}
            cpu_s = (int(fields[10]) + int(fields[11])) / ticks_per_s
            yield Sight(each, state, cpu_s, uptime_s - int(fields[18]) / ticks_per_s, tuple(sorted(waits - {"", "0"})))


class AppProcess:
    """``streamsrt run`` on a state directory of its own, which a later start of the same object uses again."""

    def __init__(
        self,
        folder: Path,
        application: str,
        application_id: str,
        bootstrap_servers: str,
        configs: Mapping[str, object] | None = None,
        *,
        until: str = "stopped",
        cwd: Path = ROOT,
        options: Sequence[str] = (),
        surroundings: Mapping[str, str] | None = None,
    ) -> None:
        """Without ``group.protocol`` in ``configs`` it is ``streams``, on Apache Kafka as on the bundled broker: the default
        would be ``classic`` there. ``surroundings``: more environment variables."""
        self.folder = folder
        self.state_dir = folder / "state"
        self._cwd = cwd
        self._surroundings = surroundings or {}
        self._arguments = [
            *("run", application, "-a", application_id, "-b", bootstrap_servers, "--state-dir", str(self.state_dir)),
            *("--json", "--progress-interval", "0.05", "--until", until),
            *options,
        ]
        for key, value in with_protocol(configs or {}).items():
            self._arguments += ["--config", f"{key}={value}"]
        self._process: Started | None = None
        self._readers: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._lines: list[Progress] = []
        self._ended = False

    def __enter__(self) -> AppProcess:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def start(self) -> AppProcess:
        self.kill()
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "stderr.log").touch()
        self._lines, self._ended = [], False
        self._process = start_python(
            [*IN_PYTHON, *self._arguments],
            cwd=self._cwd,
            environment={**environment(self._cwd), **self._surroundings},
        )
        self._readers = [
            threading.Thread(target=read, args=(self._process,), daemon=True) for read in (self._read, self._keep_log)
        ]
        for reader in self._readers:
            reader.start()
        return self

    def _keep_log(self, process: Started) -> None:
        """Through a pipe: the process may have no room for files of its own."""
        assert process.stderr is not None
        with (self.folder / "stderr.log").open("a", encoding="utf-8") as log:
            for line in process.stderr:
                log.write(line)
                log.flush()

    def _read(self, process: Started) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._changed:
                self._lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # ------------------------------------------------------------------------------------------------------ looking

    @property
    def progress(self) -> Progress:
        """The latest line; empty before the first."""
        with self._changed:
            return self._lines[-1] if self._lines else {}

    @property
    def history(self) -> Sequence[Progress]:
        with self._changed:
            return list(self._lines)

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr.log").read_text(encoding="utf-8", errors="replace")

    @property
    def last_words(self) -> str:
        """The last line on stderr: the error, if it is one."""
        return self.stderr.rstrip("\n").rpartition("\n")[2]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def tasks(self, role: str, phase: str | None = None) -> set[str]:
        """The ids of the tasks that it has now in that role."""
        found: Mapping[str, str] = self.progress.get("tasks", {})
        wanted = {f"{role} {phase}"} if phase else None
        return {
            task for task, is_now in found.items() if (is_now in wanted if wanted else is_now.startswith(f"{role} "))
        }

    def wait_for(self, holds: Callable[[Progress], bool], what: str, *, timeout_s: float = PATIENCE_S) -> Progress:
        """The first line from now on that fulfils the condition; the latest one counts."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (bool(self._lines) and holds(self._lines[-1])), timeout_s)
            if self._lines and holds(self._lines[-1]):
                return self._lines[-1]
            state = "it has ended" if self._ended else f"not within {timeout_s:g} s"
            last = self._lines[-1] if self._lines else None
        raise AssertionError(f"{self.folder.name}: {what}: {state}; last progress: {last}\n{self.stderr[-4000:]}")

    def wait_running(self, *, tasks: int = 1) -> Progress:
        """Wait until it has at least so many active tasks, and all of its active tasks run."""
        return self.wait_for(
            lambda line: (
                line["state"] == "RUNNING"
                and sum(is_now == "active running" for is_now in line["tasks"].values()) >= tasks
                and "active restoring" not in line["tasks"].values()
            ),
            f"{tasks} active tasks run",
        )

    @property
    def workers(self) -> list[int]:
        """The processes of its stream threads, if it has more than one: children of its one child, the supervisor."""
        return [worker for supervisor in children(self.pid) for worker in children(supervisor)]

    # ------------------------------------------------------------------------------------------------------- ending

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait_end(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code, when everything that it said is read."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.folder.name} does not end:\n{self.stderr[-4000:]}") from None
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.wait_end()

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
