"""SIGTERM while a command still loads the application, and later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamsrt.cli import early_stop as early_stop_module
from streamsrt.cli import leave_at_once
from streamsrt.cli.early_stop import (
    StoppedEarlyError,
    early_stop,
    interruptible,
    runs_an_application,
    stop_until,
)
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import ROOT

CODES = [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
SAID = "streamsrt: stopped before the application had started\n"


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_while_the_application_is_loaded(
    command: Command, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    program = tmp_path / f"told_to_stop_{number.name}.py"
    program.write_text(f"import os\n\nos.kill(os.getpid(), {number:d})\n", encoding="utf-8")
    before = [signal.getsignal(each) for each, _ in CODES]
    assert command("run", f"{program}:topology", "-a", "stopped", "-b", "127.0.0.1:1").code == code
    assert [signal.getsignal(each) for each, _ in CODES] == before


@pytest.mark.parametrize(("number", "code"), CODES)
def test_it_says_so(capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int) -> None:
    with pytest.raises(StoppedEarlyError) as stopped, early_stop(["run", "m:t"]):
        os.kill(os.getpid(), number)
    assert stopped.value.exit_code(["run", "m:t"]) == code
    assert capfd.readouterr().err == SAID


@pytest.mark.parametrize("until", [["--until", "quiet"], ["--until=quiet"]])
def test_a_run_until_quiet_that_is_stopped_has_not_done_what_it_was_to_do(until: list[str]) -> None:
    stopped = StoppedEarlyError(signal.SIGTERM)
    assert stopped.exit_code(["run", "m:t", *until, "-a", "app"]) == 143
    assert stopped.exit_code(["run", "m:t", "--until", "stopped"]) == 0
    assert StoppedEarlyError(signal.SIGINT).exit_code(["run", "m:t", *until]) == 130


class _Finalized:
    """Gets a signal in its finalizer, where Python drops the exceptions of handlers."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_whose_exception_is_dropped_comes_again(
    capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    def wait() -> None:
        _Finalized(number)
        threading.Event().wait(60)
        pytest.fail("the signal was lost")

    with pytest.raises(StoppedEarlyError) as stopped, early_stop(["run", "m:t"]):
        wait()
    assert stopped.value.exit_code(["run", "m:t"]) == code
    assert capfd.readouterr().err == SAID


@pytest.mark.parametrize("again_s", [early_stop_module._AGAIN_S, 1e-9])
def test_what_fails_because_of_a_dropped_exception_is_not_reported(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, again_s: float
) -> None:
    monkeypatch.setattr(early_stop_module, "_AGAIN_S", again_s)

    def fail() -> None:
        _Finalized(signal.SIGTERM)
        raise ValueError("String should match pattern")

    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the signal came again after the end"))
    try:
        with pytest.raises(StoppedEarlyError), early_stop(["run", "m:t"]):
            fail()
        assert not [
            each for each in threading.enumerate() if isinstance(each, threading.Timer) and not each.finished.is_set()
        ]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capfd.readouterr().err == SAID


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_that_a_module_catches_ends_the_command_before_the_application_starts(
    capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    started = False

    def run() -> None:
        nonlocal started
        try:
            os.kill(os.getpid(), number)
        except:  # noqa: E722  # as around optional imports
            caught.append(number)
        stop_until(lambda: started)
        started = True

    caught: list[signal.Signals] = []
    with pytest.raises(StoppedEarlyError) as stopped, early_stop(["run", "m:t"]):
        run()
    assert (stopped.value.exit_code(["run", "m:t"]), caught, started) == (code, [number], False)
    assert capfd.readouterr().err == SAID
    with early_stop(["run", "m:t"]):
        stop_until(lambda: False)


def test_a_signal_that_python_makes_another_exception_of_ends_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    class Named:
        def __set_name__(self, owner: type, name: str) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedEarlyError), early_stop(["run", "m:t"]):
        type("Model", (), {"field": Named()})
    assert capfd.readouterr().err == SAID


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_while_the_command_line_is_imported(tmp_path: Path, number: signal.Signals, code: int) -> None:
    # In the place of a module that the entry point imports first.
    (tmp_path / "typer.py").write_text(f"import os\n\nos.kill(os.getpid(), {number:d})\n", encoding="utf-8")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from streamsrt.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), "run", "m:t"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, SAID)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_once_it_has_started_a_signal_has_its_usual_effect(number: signal.Signals, code: int) -> None:
    program = f"""
import os, signal
from streamsrt.cli.early_stop import stop_until
stop_until(lambda: True)
os.kill(os.getpid(), {number:d})
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, number == signal.SIGINT)
    assert ("streamsrt: ended at once by another SIGTERM (exit code 143)" in done.stderr) == (number == signal.SIGTERM)


AT_AN_IMPORT = """
import os, signal, sys
count = int(sys.argv.pop(1))
seen = 0

def look(event, arguments):
    global seen
    if event == "import":
        seen += 1
    if event == "import" and seen == count:
        os.kill(os.getpid(), signal.SIGINT)

import {first}
sys.addaudithook(look)
{call}
"""
OF_THE_COMMAND = AT_AN_IMPORT.format(first="streamsrt.cli", call="streamsrt.cli.main()")
OF_THE_BROKER = AT_AN_IMPORT.format(
    first="runpy, coordinator", call="runpy.run_module('coordinator', run_name='__main__')"
)


@pytest.mark.parametrize("count", [2, 30, 150, 300])
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (OF_THE_COMMAND, ["topics", "list", "-b", "127.0.0.1:1"]),
        (OF_THE_COMMAND, ["run", "m:t"]),
        (OF_THE_BROKER, ["--data-dir", "data", "--port", "0"]),
    ],
    ids=["a command", "run", "the broker"],
)
def test_ctrl_c_at_any_import_shows_no_traceback(
    tmp_path: Path, program: str, arguments: list[str], count: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, str(count), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.replace(SAID, "")) == (130, "")


@pytest.mark.parametrize("module", ["dataclasses", "datetime", "enum", "json", "uuid", "zoneinfo"])
def test_ctrl_c_while_orjson_imports_what_it_needs_is_no_crash(module: str) -> None:
    """Its initialization in C takes for granted that imports succeed."""
    program = f"""
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.modules.pop({module!r}, None)
sys.meta_path.insert(0, Finder())
import streamsrt.cli
streamsrt.cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "m:t"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # 2: nothing imports it, and the application is not there.
    assert done.returncode in {130, 2}


def test_ctrl_c_at_the_very_end_shows_no_traceback() -> None:
    program = "import atexit, os; atexit.register(os.kill, os.getpid(), 2); from streamsrt.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_ctrl_c_whose_exception_is_dropped_ends_other_commands_too(capfd: pytest.CaptureFixture[str]) -> None:
    def wait() -> None:
        _Finalized(signal.SIGINT)
        threading.Event().wait(60)
        pytest.fail("the signal was lost")

    before = signal.signal(signal.SIGINT, leave_at_once)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            wait()
        assert signal.getsignal(signal.SIGINT) is leave_at_once
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == ""


def test_what_runs_in_the_background_of_a_shell_goes_on_ignoring_ctrl_c() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with early_stop(["run", "m:t"]):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_which_commands_run_applications() -> None:
    assert all(map(runs_an_application, (["run", "m:t"], ["upgrade", "start", "m:t"], ["faust", "run", "m:app"])))
    assert not any(map(runs_an_application, ([], ["upgrade", "plan", "m:t"], ["topics", "list"], ["--version"])))
