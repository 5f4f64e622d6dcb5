"""``python -m streamsrt.testing.simulator``: seeds from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamsrt.testing.simulator.__main__ import main
from tests.fixtures_brokers import ROOT

PROGRAM = """
from streamsrt.testing.simulator import Input
from topology import StreamsBuilder, serdes

builder = StreamsBuilder()
builder.stream("in", value=serdes.string).map_values(lambda text: "TEXT"[: 4 // len(text)]).to("out", value=serdes.string)
topology = builder.build()
config = {"bootstrap.servers": "elsewhere:9092", "processing.guarantee": "exactly_once_v2"}
inputs = {"in": [Input(b"%d" % number, "text", number) for number in range(20)]}
no_inputs = {}
poison = {"in": [Input(b"1", "", 1)]}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "simulated_program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    return "simulated_program:topology"


def test_seeds_pass(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program, "--seeds", "3", "--fault", "crashes=3", "--instances", "2"]) == 0
    assert capsys.readouterr().out.startswith("3 seeds passed, ")


def test_instances_join_by_the_protocol_that_is_asked_for(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program, "--seeds", "1", "--protocol", "classic", "--config", "group.instance.id=static"]) == 0
    told = capsys.readouterr().out
    assert "joins by classic" in told
    assert "joins by streams" not in told


def test_a_seed_that_fails_is_described(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program, "--seeds", "1", "--inputs", "simulated_program:poison"]) == 1
    told = capsys.readouterr().err
    assert "ended with ProcessingError: a user's function raised ZeroDivisionError" in told
    assert "to repeat it: " in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--inputs", "simulated_program:no_inputs"], "simulated_program:no_inputs is not an input for a simulation"),
        (["--fault", "earthquakes=1"], "--fault earthquakes=1: expected NUMBER for one of crashes, restarts, "),
        (["--fault", "crashes=many"], "--fault crashes=many: expected NUMBER"),
        (["--config", "nothing"], "--config nothing: expected KEY=VALUE"),
        (["--inputs", "nowhere:inputs"], "there is no module 'nowhere' (from 'nowhere:inputs')"),
        (["--inputs", "simulated_program:input"], "there is no 'input' in simulated_program"),
    ],
)
def test_wrong_arguments_are_explained(
    program: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([program, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--seeds", "--instances", "--partitions"])
def test_numbers_begin_at_one(program: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([program, option, "0"])
    assert ended.value.code == 2
    assert f"argument {option}: 0: give at least 1" in capsys.readouterr().err


def test_without_greenlet_the_extra_is_named() -> None:
    program = "import sys; sys.modules['greenlet'] = None; import streamsrt.testing.simulator"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("the simulator needs greenlet: pip install 'streamsrt[simulator]'")


def test_without_greenlet_the_command_says_so_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "greenlet.py").write_text("raise ImportError('it is not installed')\n", encoding="utf-8")
    command = [sys.executable, "-m", "streamsrt.testing.simulator", "shop:topology"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (
        2,
        "simulator: the simulator needs greenlet: pip install 'streamsrt[simulator]'\n",
    )
