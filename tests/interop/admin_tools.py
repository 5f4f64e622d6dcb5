"""Kafka's command-line tools and its Java Admin client, in one JVM for many calls."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.kafka_server import compiled, tools_classpath

PROGRAM = Path(__file__).resolve().parent / "java" / "AdminTools.java"
TOOLS = "org.apache.kafka.tools."


class Done(NamedTuple):
    code: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        return self.output + self.errors


class AdminTools:
    """A JVM that runs one tool after another against one cluster."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", *compiled(PROGRAM, tools_classpath()), servers]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def tool(self, name: str, *arguments: str) -> Done:
        """``name``: the class below org.apache.kafka.tools; the address of the cluster is added."""
        return self._run(TOOLS + name, "--bootstrap-server", self.servers, *arguments)

    def admin(self, call: str, *arguments: str) -> Done:
        """A call of the Admin client."""
        return self._run("admin", call, *arguments)

    def _run(self, *words: str) -> Done:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("DONE "):
            assert line, f"the JVM ended at {words}"
        _, code, rest = line.split(" ")
        output, errors, _ = rest.split(".")
        return Done(int(code), base64.b64decode(output).decode(), base64.b64decode(errors).decode())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
