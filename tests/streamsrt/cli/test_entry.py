"""The command line as a whole: help, mistakes in arguments, and what is refused before anything starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamsrt.cli.entry import COMMANDS as LISTED
from tests.kafka_server import free_ports
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import COMMAND_LINE, ROOT, environment

COMMANDS = ("run", "broker", "topology", "topics", "produce", "consume", "groups")


def test_help_names_every_command(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert name in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.code == 0
    assert "Usage" in done.out


@pytest.mark.parametrize("name", LISTED)
def test_the_list_of_commands_says_what_their_own_help_says(command: Command, name: str) -> None:
    own = command(name, "--help").out.split("Options:")[0].split("Arguments:")[0]
    assert " ".join(LISTED[name].help.split()) in " ".join(own.split())


def test_the_version_is_told(command: Command) -> None:
    done = command("--version")
    assert done.code == 0
    assert re.fullmatch(r"streamsrt \d+\.\d+\.\d+ \(Python 3\.\d+\.\d+\)\n", done.out)


HEAVY = {"aiokafka", "asyncio", "numpy", "orjson", "pyarrow", "pydantic", "rocksdict", "streamsrt.app", "topology"}
"""What takes long to import, and is needed by what runs only."""


@pytest.mark.parametrize(
    "program",
    [
        "import streamsrt",
        "from streamsrt.cli.entry import run_command_line as run\ntry: run(['--help'])\nexcept SystemExit: pass",
        "from streamsrt.cli.entry import run_command_line as run\ntry: run(['--version'])\nexcept SystemExit: pass",
    ],
    ids=["import", "help", "version"],
)
def test_nothing_heavy_is_imported_for_help(program: str, tmp_path: Path) -> None:
    loaded = modules_after(program, tmp_path)
    assert not HEAVY & loaded
    assert "streamsrt" in loaded


def modules_after(program: str, folder: Path) -> set[str]:
    told = f"{program}\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, cwd=folder, env=environment(ROOT), check=True
    )
    return set(done.stderr.split())


SELDOM = {"argparse", "html", "http.client", "re2", "streamsrt.membership.classic", "urllib.request", "xml"}
"""What only members of classic groups, notebooks, and patterns of topics need."""


def test_an_instance_begins_without_what_few_need(tmp_path: Path) -> None:
    assert not SELDOM & modules_after("import streamsrt.app", tmp_path)


def test_an_unknown_command_is_the_users_mistake(command: Command) -> None:
    done = command("frobnicate")
    assert done.code == 2
    assert "frobnicate" in done.err


@pytest.mark.system
def test_the_exit_code_is_right_where_the_message_finds_no_room() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND_LINE, "topology", "describe", "no_such_module"], stderr=full, cwd=ROOT, env=environment(ROOT)
        )
    assert done.returncode == 2


@pytest.mark.system
def test_output_that_finds_no_room_is_said_in_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND_LINE, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(ROOT)
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "can't be written: No space left on device" in done.stderr


@pytest.mark.system
def test_nobody_answers(command: Command) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = command("topics", "list", "-b", address)
    assert done.code == 3
    assert address in done.err
    assert done.err.startswith("streamsrt: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--until", "tomorrow"], "--until tomorrow: give stopped or quiet"),
        (["--log-level", "loud"], "--log-level loud: give debug, info, warning or error"),
        (["--config", "linger.ms"], "--config linger.ms: expected KEY=VALUE"),
        (["--config", "linger.ms=soon"], "linger.ms='soon'"),
        (
            ["--config", "default.key.serde=strings"],
            "default.key.serde='strings' does not name a serde: did you mean 'string'? Give one of boolean, ",
        ),
        (["--config-file", "/no/such/file"], "--config-file /no/such/file: No such file"),
    ],
)
def test_run_refuses_wrong_arguments(command: Command, arguments: list[str], said: str) -> None:
    done = command("run", "examples.wordcount", "-a", "app", "-b", "127.0.0.1:1", *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_config_file_that_is_no_text(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_bytes(b"\xff\xfe")
    done = command("run", "examples.wordcount", "-a", "app", "-b", "127.0.0.1:1", "--config-file", path)
    assert done.code == 2
    assert done.err.endswith("app.properties is not UTF-8: invalid start byte at byte 0\n")


@pytest.mark.parametrize("name", ["string", "org.apache.kafka.common.serialization.Serdes$StringSerde"])
def test_default_serdes_are_named_in_a_file_and_on_the_command_line(
    command: Command, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "app.properties"
    path.write_text(f"default.key.serde={name}\ndefault.value.serde=bytes\n", encoding="utf-8")
    given = ["--config-file", path, "--config", f"default.value.serde={name}", "--config", "default.api.timeout.ms=1"]
    done = command("run", "examples.wordcount", "-a", "app", "-b", f"127.0.0.1:{free_ports(1)[0]}", *given)
    assert done.code == 3
    assert "serde" not in done.err
    path.write_text("default.value.serde = 7\n", encoding="utf-8")
    done = command("run", "examples.wordcount", "-a", "app", "-b", "127.0.0.1:1", "--config-file", path)
    assert done.code == 2
    assert done.err.startswith("streamsrt: default.value.serde='7' does not name a serde: give one of boolean, bytes,")


def test_run_needs_an_application_id(command: Command) -> None:
    done = command("run", "examples.wordcount", "-b", "127.0.0.1:1")
    assert done.code == 2
    assert "application.id is missing" in done.err


def test_a_properties_file_is_read_and_checked(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("# settings\n! more\n\napplication.id = app\ncomit.interval.ms=5\n", encoding="utf-8")
    done = command("run", "examples.wordcount", "-b", "127.0.0.1:1", "--config-file", path)
    assert done.code == 2
    assert done.err == "streamsrt: unknown setting 'comit.interval.ms': did you mean 'commit.interval.ms'?\n"
