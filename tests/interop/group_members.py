"""Members of a group as processes (``tests.interop.member``), watched by a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kafka_server import classpath, compiled

ROOT = Path(__file__).resolve().parents[2]
JAVA = Path(__file__).resolve().parent / "java" / "ConsumerMember.java"
PATIENCE_S = 300.0


class Member:
    """One process. ``assigned`` is what it was assigned last, ``history`` every assignment, ``values`` what it read."""

    def __init__(self, changed: threading.Condition, folder: Path, client: str, command: list[str]) -> None:
        self.assigned: list[int] = []
        self.history: list[list[int]] = []
        self.values: list[tuple[int, str]] = []
        self.errors: list[str] = []
        self._changed = changed
        self._log = folder / f"{client}-{os.urandom(4).hex()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not text.startswith("{"):
                continue  # Java's logging writes errors to the same place.
            line: dict[str, Any] = json.loads(text)
            with self._changed:
                if "assigned" in line:
                    self.assigned = line["assigned"]
                    self.history.append(self.assigned)
                elif "value" in line:
                    self.values.append((line["partition"], line["value"]))
                elif "error" in line:
                    self.errors.append(line["error"])
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def leave(self) -> None:
        """SIGTERM, and wait until it has gone."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
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


class Members:
    """Members of one group on one topic, and a way to wait for what they do."""

    def __init__(self, folder: Path, servers: str, group: str, topic: str) -> None:
        self._changed = threading.Condition()
        self._folder = folder
        self._arguments = (servers, group, topic)
        self.all: list[Member] = []

    def start(self, client: str, *strategies: str, instance: str | None = None) -> Member:
        command = java_command if client.startswith("java") else python_command
        member = Member(self._changed, self._folder, client, command(client, self._arguments, strategies, instance))
        self.all.append(member)
        return member

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until the members' output makes the condition true."""
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE_S):
                seen = "\n".join(
                    f"{each.history} {len(each.values)} values {each.errors} {each.log}" for each in self.all
                )
                raise AssertionError(f"not in {PATIENCE_S:g} s: {what}\n{seen}")

    def until_shared(self, *members: Member, partitions: int) -> None:
        """Waits until the members have all partitions, each one once, and nobody is without."""
        everything = list(range(partitions))
        self.until(
            lambda: (
                sorted(each for member in members for each in member.assigned) == everything
                and all(member.assigned for member in members)
            ),
            f"{len(members)} members share {partitions} partitions",
        )

    def until_read(self, values: set[str]) -> None:
        """Waits until each of these values was read by some member."""
        self.until(
            lambda: values <= {value for member in self.all for _, value in member.values}, f"{len(values)} values read"
        )


def python_command(
    client: str, arguments: tuple[str, str, str], strategies: Sequence[str], instance: str | None
) -> list[str]:
    options = [option for name in strategies for option in ("--strategy", name)]
    options += ["--instance", instance] if instance else []
    return [sys.executable, "-m", "tests.interop.member", client, *arguments, *options]


def java_command(
    client: str, arguments: tuple[str, str, str], strategies: Sequence[str], instance: str | None
) -> list[str]:
    """``java`` speaks the classic protocol with the assignors of these classes, ``java-new`` the consumer protocol."""
    settings = {"group.instance.id": instance} if instance else {}
    if client == "java-new":
        settings["group.protocol"] = "consumer"
        if strategies:
            settings["group.remote.assignor"] = strategies[0]
    else:
        settings |= {"session.timeout.ms": "20000", "heartbeat.interval.ms": "500"}
        names = [f"org.apache.kafka.clients.consumer.{name}Assignor" for name in strategies or ["Range"]]
        settings["partition.assignment.strategy"] = ",".join(names)
    small = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return ["java", *small, *compiled(JAVA, classpath()), *arguments, *(f"{k}={v}" for k, v in settings.items())]


@contextmanager
def members_of(folder: Path, servers: str, group: str, topic: str) -> Iterator[Members]:
    members = Members(folder, servers, group, topic)
    try:
        yield members
    finally:
        for member in members.all:
            member.kill()
