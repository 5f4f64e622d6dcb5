"""SIGTERM while a command still loads the application, and later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamsrt.cli.early_stop import StoppedEarlyError, early_stop, runs_an_application
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import ROOT


def test_sigterm_while_the_application_is_loaded(command: Command, tmp_path: Path) -> None:
    program = tmp_path / "told_to_stop.py"
    program.write_text("import os, signal\n\nos.kill(os.getpid(), signal.SIGTERM)\n", encoding="utf-8")
    before = signal.getsignal(signal.SIGTERM)
    assert command("run", f"{program}:topology", "-a", "stopped", "-b", "127.0.0.1:1").code == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StoppedEarlyError), early_stop(["run", "m:t"]):
        os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == "streamsrt: stopped before it had started\n"


def test_once_it_has_started_a_signal_has_its_usual_effect() -> None:
    program = """
import os, signal
from streamsrt.cli.early_stop import stop_until
stop_until(lambda: True)
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"")


def test_which_commands_run_applications() -> None:
    assert all(map(runs_an_application, (["run", "m:t"], ["upgrade", "start", "m:t"], ["faust", "run", "m:app"])))
    assert not any(map(runs_an_application, ([], ["upgrade", "plan", "m:t"], ["topics", "list"], ["--version"])))
