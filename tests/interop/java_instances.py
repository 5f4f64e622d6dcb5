"""Instances of applications of Java Kafka Streams (``java/StreamsMember.java``, ``java/StreamsJoin.java``), as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.kafka_server import STREAMS_VERSION, compiled, streams_classpath

PROGRAM = Path(__file__).resolve().parent / "java" / "StreamsMember.java"
JOINING = PROGRAM.with_name("StreamsJoin.java")
PATIENCE_S = 120.0
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaInstance:
    """It runs from the start. ``lines`` is what it told so far."""

    def __init__(
        self,
        folder: Path,
        name: str,
        servers: str,
        application: str,
        log_name: str,
        settings: Mapping[str, str],
        version: str = STREAMS_VERSION,
        program: Path = PROGRAM,
    ) -> None:
        self.lines: list[dict[str, str]] = []
        self._log = folder / f"{log_name}.log"
        command = [*JAVA, *compiled(program, streams_classpath(version)), servers, application]
        command += [f"{application}-in", f"{application}-out", f"state.dir={folder / name}"]
        command += [f"{key}={value}" for key, value in settings.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        # Java's logging writes errors to the same place.
        self.lines += (json.loads(line) for line in self._process.stdout if line.startswith("{"))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            if self._process.stdout is not None:
                self._process.stdout.close()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
