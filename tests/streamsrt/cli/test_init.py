"""``streamsrt init``: what it writes is right Python, YAML and TOML, its tests pass, and its commands exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamsrt.application import load_application
from streamsrt.cli.entry import command_line
from streamsrt.cli.project_files import files_of
from streamsrt.config import StreamsConfig
from tests.streamsrt.cli.conftest import Command
from tests.system.processes import environment

NAME = "page-views"


@pytest.fixture
def project(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    done = command("init", NAME)
    assert (done.code, done.out) == (0, ""), done.err
    for each in [each for each in sys.modules if each.partition(".")[0] == "page_views"]:
        monkeypatch.delitem(sys.modules, each)
    return tmp_path / NAME


def is_a_command(words: list[str]) -> bool:
    """Whether ``streamsrt`` has the command, with these options."""
    found: Any = typer.main.get_command(command_line(words[0])).commands[words[0]]  # type: ignore[attr-defined]
    if hasattr(found, "commands"):
        found = found.commands[words[1]]
    options = {name for parameter in found.params for name in parameter.opts}
    return {each for each in words if re.fullmatch(r"--?[a-z][a-z-]*", each)} <= options


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    return [
        (word, rest)
        for word, _, rest in (line.partition(" ") for line in dockerfile.replace("\\\n", "").splitlines() if line)
    ]


@pytest.mark.system
def test_the_tests_of_a_new_project_pass(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"],
        cwd=project,
        # Options of the run that this test is in are none of the project's.
        env={**environment(project), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_its_files_are_in_order(project: Path) -> None:
    written = {path.relative_to(project).as_posix() for path in project.rglob("*") if path.is_file()}
    assert {path for path in written if "__pycache__" not in path} == {*files_of(NAME), "topology.lock"}
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == NAME
    lint = [sys.executable, "-m", "ruff", "--isolated"]
    for arguments in (["check", "--select", "E,F,W,UP,B", "--line-length", "120"], ["format", "--check"]):
        done = subprocess.run([lint[0], "-m", "ruff", arguments[0], "--isolated", *arguments[1:], str(project)])
        assert done.returncode == 0


def test_its_settings_are_known(project: Path) -> None:
    loaded = load_application(str(project / "page_views" / "app.py"))
    settings = StreamsConfig.of(dict(loaded.config), application_id=NAME)
    assert settings.processing_guarantee == "exactly_once_v2"


def test_only_this_machine_reaches_what_compose_publishes(project: Path) -> None:
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert published == ["127.0.0.1:29092:29092", "127.0.0.1:8080:8080"]
    advertised = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert "OUTSIDE://127.0.0.1:29092" in advertised
    assert "-b 127.0.0.1:29092" in (project / "README.md").read_text()


def test_its_commands_exist(project: Path) -> None:
    readme = (project / "README.md").read_text()
    shown = re.findall(r"^    (?:.*\| )?streamsrt (.*?)(?: &)?(?: +#.*)?$", readme, re.MULTILINE)
    assert len(shown) == 6
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    workflow = (project / ".github" / "workflows" / "test.yml").read_text()
    assert set(yaml.safe_load(workflow)["jobs"]) == {"test", "image"}
    of_dockerfile = dict(instructions((project / "Dockerfile").read_text()))
    commands = [
        *map(shlex.split, shown),
        *(shlex.split(line) for line in re.findall(r"run: streamsrt (.*)", workflow)),
        services["topics"]["command"],
        json.loads(of_dockerfile["CMD"]),
    ]
    assert [words for words in commands if not is_a_command(words)] == []


def test_the_image_is_not_root_and_keeps_its_state(project: Path) -> None:
    said = dict(instructions((project / "Dockerfile").read_text()))
    assert said["USER"] == "10001"
    assert said["VOLUME"] == "/state"
    assert json.loads(said["ENTRYPOINT"]) == ["streamsrt"]


NAMES = ["Shop", "1st", "a_b", "topology", "", "a/b", "class", "import", "json", "orjson", "pytest"]


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_name_is_refused(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("init", name)
    assert done.code == 2
    assert "can't be a project's name" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_files_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = command("init", "shop", "--dir", tmp_path)
    assert done.code == 2
    assert "not empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
