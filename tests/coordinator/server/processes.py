"""The broker as a process of its own, and a client that is nothing but a socket."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from coordinator.broker.api_versions import SERVED
from coordinator.server.main import main
from streamsrt.wire import types
from streamsrt.wire.messages import decode_response, encode_request

ROOT = Path(__file__).resolve().parents[3]
START_TIMEOUT_S = 60


def command(data_dir: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "coordinator", "--data-dir", str(data_dir), "--port", "0", *options]


def refused(data_dir: Path, *options: str) -> tuple[int, str]:
    """Exit code and stderr of a start that is to fail."""
    done = subprocess.run(
        command(data_dir, *options), cwd=ROOT, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
    )
    assert done.stdout == "", "it said that it accepts connections"
    return done.returncode, done.stderr


def refused_here(capfd: pytest.CaptureFixture[str], data_dir: Path, *options: str) -> tuple[int | str | None, str]:
    """The same of a start in this process, for what is refused before a broker is made."""
    try:
        code: int | str | None = main(command(data_dir, *options)[3:])
    except SystemExit as end:
        code = end.code
    said = capfd.readouterr()
    assert said.out == "", "it said that it accepts connections"
    return code, said.err


class BrokerProcess:
    """``python -m coordinator`` on a free port. Leaving the context kills it."""

    def __init__(self, data_dir: Path, *options: str, prefix: tuple[str, ...] = ()) -> None:
        self.log_path = data_dir.with_name(data_dir.name + ".stderr")
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *command(data_dir, *options)], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            self.kill()
            raise AssertionError(f"the broker did not start:\n{self.log}")
        self.port = int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


class Wire:
    """One connection: a request, its answer, the next."""

    def __init__(self, port: int, timeout_s: float = 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._next_id = 0

    def send(self, message: types.Message, version: int | None = None) -> tuple[int, int]:
        """Sends a request; its API key and version, for ``receive``."""
        assert message.API_KEY is not None
        version = SERVED[message.API_KEY][1] if version is None else version
        self._next_id += 1
        self.socket.sendall(encode_request(message, version, self._next_id, "test"))
        return message.API_KEY, version

    def receive(self, sent: tuple[int, int]) -> Any:
        frame = self.read(int.from_bytes(self.read(4), "big"))
        return decode_response(frame, *sent)[1]

    def ask(self, message: types.Message, version: int | None = None) -> Any:
        return self.receive(self.send(message, version))

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            data += piece
        return data

    def is_closed(self) -> bool:
        """Whether the broker closes this connection without sending anything more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
