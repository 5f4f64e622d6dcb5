"""The bundled broker as a process of its own: found if it runs, else started.

1. The broker belongs to a directory. While it runs, its address is in a file there; the address is used only if the
   broker answers.
2. A broker that another process is starting at the moment has locked its data, but is not to be found yet: it is waited for.
3. Whoever starts it stops it. Its data remains, and the next start uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from streamsrt.errors import BrokerError, StateError

ADDRESS_FILE = "broker.address"
DATA_FOLDER = "broker"
_STOP_TIMEOUT_S = 15.0
_LOCK_FILE = ".lock"
_POLL_S = 0.1


def make_directory(directory: Path, otherwise: str) -> None:
    """Makes the bundled broker's directory. Raises StateError, with what else to do."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"{directory.absolute()} can't be made: {error.strerror}. The bundled broker keeps its data there: use a "
            f"directory in which you may write, {otherwise}"
        ) from error


class BundledBroker:
    """The broker of a directory. A context manager; ``address`` is valid inside. ``patience_s``: how long to wait for a
    broker that another process is starting."""

    def __init__(
        self, directory: Path, *, port: int = 0, configs: Sequence[str] = (), patience_s: float = 60.0
    ) -> None:
        self.directory = directory
        self.address = ""
        self._port = port
        self._configs = configs
        self._patience_s = patience_s
        self._process: subprocess.Popen[str] | None = None

    @property
    def was_started_here(self) -> bool:
        """Whether this object started the broker, and will stop it."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def __enter__(self) -> BundledBroker:
        try:
            self.find_or_start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def find_or_start(self) -> str:
        """The address of the broker of this directory. Raises :class:`~streamsrt.errors.BrokerError` if it won't start."""
        found = find_broker(self.directory)
        if found is not None:
            self.address = found
            return found
        make_directory(self.directory, "or name another cluster with -b")
        log_path = self.directory / "broker.log"
        command = [sys.executable, "-m", "coordinator", "--data-dir", str(self.directory / DATA_FOLDER)]
        command += ["--port", str(self._port)]
        for config in self._configs:
            command += ["--config", config]
        with log_path.open("ab") as log:
            # A session of its own: Ctrl-C must reach the application first, which then still has a broker to commit to.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=os.getcwd()
            )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            code = self._process.wait()
            self._process.stdout.close()
            self._process = None
            found = find_starting_broker(self.directory, self._patience_s)
            if found is not None:
                self.address = found
                return found
            raise BrokerError(f"the bundled broker did not start (exit code {code}): {_last_line(log_path)}")
        (self.directory / ADDRESS_FILE).write_text(self.address + "\n", encoding="utf-8")
        return self.address

    def stop(self) -> None:
        """Stops the broker if this object started it: it drains, syncs and closes its logs."""
        process, self._process = self._process, None
        if process is None:
            return
        (self.directory / ADDRESS_FILE).unlink(missing_ok=True)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def find_broker(directory: Path) -> str | None:
    """The address of the broker that runs in ``directory``, or None."""
    try:
        address = (directory / ADDRESS_FILE).read_text(encoding="utf-8").strip()
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=2.0):
            return address
    except (OSError, ValueError):
        return None


def find_starting_broker(directory: Path, patience_s: float) -> str | None:
    """The address of the broker that another process is starting in ``directory``, as soon as it answers; None if no process
    uses its data, or no longer does. Raises :class:`~streamsrt.errors.BrokerError` after ``patience_s``."""
    end = time.monotonic() + patience_s
    while _is_in_use(directory / DATA_FOLDER):
        found = find_broker(directory)
        if found is not None:
            return found
        if time.monotonic() >= end:
            data = directory / DATA_FOLDER
            raise BrokerError(
                f"another process ({_owner(data)}) uses the data of the bundled broker in {data.absolute()}, but no broker "
                f"answers at the address in {directory / ADDRESS_FILE}. "
                "If that broker is still starting, try again later. If it runs, give its address with -b HOST:PORT"
            )
        time.sleep(_POLL_S)
    return None


def _is_in_use(data: Path) -> bool:
    """Whether a process has locked the data, as a broker does from its start to its end."""
    try:
        with (data / _LOCK_FILE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _owner(data: Path) -> str:
    try:
        return f"id {int((data / _LOCK_FILE).read_bytes())}"
    except (OSError, ValueError):
        return "its id is not known"


def has_data(directory: Path) -> bool:
    """Whether a broker has run in ``directory``."""
    return (directory / DATA_FOLDER).is_dir()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"see {path}"
