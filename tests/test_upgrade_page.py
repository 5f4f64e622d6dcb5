"""The session of docs/upgrades.md, run as it stands: by its commands alone an application is upgraded and sent back."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures_brokers import ROOT, BundledBroker
from tests.system.processes import IN_PYTHON, PATIENCE_S, wait_until
from tests.warm_processes import Started, run_python, start_python

PAGE = ROOT / "docs" / "upgrades.md"
REFUSED = 2


def steps() -> list[str]:
    """The commands of the step by step section, in order."""
    text = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    return re.findall(r"^    \$ (.*)$", text, re.MULTILINE)


class Terminal:
    """A terminal in a folder: commands to their end, and jobs."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._environment = {**os.environ, "STREAMSRT_BOOTSTRAP_SERVERS": address, "PYTHONPATH": f"{folder}:{ROOT}"}
        self._open = ExitStack()
        self.jobs: list[Started] = []
        self.said: dict[str, tuple[int, str]] = {}

    def do(self, line: str) -> None:
        if line.startswith("kill %"):
            job = self.jobs[int(line.removeprefix("kill %")) - 1]
            job.send_signal(signal.SIGTERM)
            assert job.wait(PATIENCE_S) == 0
            return
        words = [*IN_PYTHON, *shlex.split(line.removesuffix(" &"))[1:]]
        if line.endswith(" &"):
            log = self._open.enter_context((self._folder / f"job-{len(self.jobs) + 1}.log").open("w"))
            self.jobs.append(
                start_python(words, cwd=self._folder, environment=self._environment, stdout=log, stderr=log)
            )
            return
        done = run_python(words, cwd=self._folder, environment=self._environment, timeout_s=PATIENCE_S)
        self.said[line] = done.returncode, done.stdout + done.stderr

    def epochs(self) -> dict[int, int]:
        """How many members run which epoch, once the group is there."""
        self.do("streamsrt upgrade status --group shop --once --json")
        _, said = self.said["streamsrt upgrade status --group shop --once --json"]
        row = re.findall(r'"topology_epoch":(\d+),"digest":"\w+","members":(\d+)', said)
        return {int(epoch): int(count) for epoch, count in row}

    def close(self) -> None:
        for job in self.jobs:
            if job.poll() is None:
                job.terminate()
        for job in self.jobs:
            job.wait(PATIENCE_S)
        self._open.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    text = PAGE.read_text(encoding="utf-8")
    program = re.search(r"```python\n(# shop\.py.*?)```", text, re.DOTALL)
    assert program is not None
    (tmp_path / "shop.py").write_text(program[1], encoding="utf-8")
    opened = Terminal(tmp_path, broker.bootstrap_servers)
    yield opened
    opened.close()
    broker.stop()


@pytest.mark.timeout(1200)
@pytest.mark.system
@pytest.mark.slow
def test_a_stranger_follows_the_page(terminal: Terminal) -> None:
    lines = iter(steps())

    def until(beginning: str) -> str:
        for line in lines:
            terminal.do(line)
            if line.startswith(beginning) and (beginning != "streamsrt run" or len(terminal.jobs) in (2, 4)):
                return line
        raise AssertionError(f"the page has no {beginning}")

    until("streamsrt run")
    wait_until(lambda: terminal.epochs() == {0: 2}, "both instances run", pause_s=0.2)
    code, said = terminal.said[until("streamsrt upgrade plan")]
    assert code == 11, said
    assert "topology.epoch=1" in said
    until("streamsrt upgrade start")
    wait_until(lambda: terminal.epochs() == {0: 1, 1: 1}, "one instance of each version", pause_s=0.2)
    code, said = terminal.said[until("streamsrt upgrade status")]
    assert code == 10, said
    assert "1 of 2 instances run topology epoch 1" in " ".join(said.split())
    assert terminal.said[until("streamsrt upgrade abort")][0] == 0
    assert terminal.epochs() == {0: 1, 1: 1}, "without --execute nothing changes"
    code, said = terminal.said[until("streamsrt upgrade abort")]
    assert code == 0, said
    assert "streamsrt run shop:first -a shop --config topology.epoch=2" in said
    assert terminal.jobs[2].wait(PATIENCE_S) == REFUSED
    until("streamsrt run")
    wait_until(lambda: terminal.epochs() == {0: 1, 2: 1}, "the old version is back", pause_s=0.2)
    assert terminal.jobs[1].poll() is None, "it never stopped"
