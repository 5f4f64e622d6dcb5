"""Kafka Streams itself, which answers cases: ``tests/interop/java/oracle``, one process for many cases."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kafka_server import compiled, test_driver_classpath
from tests.oracle.programs import Case

PROGRAM = Path(__file__).parent.parent / "interop" / "java" / "oracle"
JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaStreams:
    """It runs from the start until the end of its block."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        program = compiled(PROGRAM, test_driver_classpath())
        self._process = subprocess.Popen(
            [*JAVA, f"-Djava.io.tmpdir={self._scratch.name}", *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def answer(self, case: Case) -> Any:
        """The case with what Java builds of it, sends, stores and drops."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> JavaStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        self._scratch.cleanup()
