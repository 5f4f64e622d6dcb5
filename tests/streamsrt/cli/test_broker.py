"""``streamsrt broker``: commands in the same directory find it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streamsrt.runtime.bundled_broker import find_broker
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import COMMAND_LINE, PATIENCE_S, environment


@pytest.mark.system
def test_the_address_stands_in_the_directory_while_the_broker_runs(tmp_path: Path) -> None:
    broker = subprocess.Popen(
        [*COMMAND_LINE, "broker", "--port", "0"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert broker.stdout is not None
    with broker.stdout:
        address = broker.stdout.readline().strip()
        assert find_broker(tmp_path / ".streamsrt") == address
        broker.terminate()
        assert broker.wait(PATIENCE_S) == 0
    assert list((tmp_path / ".streamsrt").iterdir()) == [tmp_path / ".streamsrt" / "broker"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--port", "99999", "65535"),
        ("--port", "x", "Invalid value for '--port'"),
        ("--metrics", "9100", "9100 is not an address: give HOST:PORT"),
        ("--metrics", "localhost:99999", "with a port of 0 to 65535"),
    ],
)
def test_the_usage_is_that_of_the_command(command: Command, option: str, value: str, said: str) -> None:
    done = command("broker", option, value)
    assert done.code == 2
    assert " broker [OPTIONS]" in done.err
    assert said in done.err
    assert "coordinator" not in done.err


@pytest.mark.parametrize(
    ("arguments", "otherwise"), [(["broker"], "give --data-dir"), (["topics", "list"], "name another cluster with -b")]
)
def test_a_directory_that_can_not_be_made_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], otherwise: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".streamsrt").touch()
    done = command(*arguments)
    assert done.code == 4
    assert f"{tmp_path / '.streamsrt'} can't be made: File exists" in done.err
    assert otherwise in done.err
