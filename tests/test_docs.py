"""What README and docs/ show is what happens: programs are run, commands print what they say, links lead somewhere."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from streamsrt.app import KafkaStreams
from streamsrt.cli.entry import COMMANDS, command_line
from streamsrt.config import known_keys
from streamsrt.membership.statuses import ADVICE
from streamsrt.queries.errors import InvalidStateStoreError
from streamsrt.queries.values import Position, PositionBound, RangeQuery
from tests.tools.import_graph import drawn
from tests.tools.reference import FOLDER, WRITERS
from tests.tools.reference.commands import commands
from tests.tools.reference.errors import FAMILIES, errors, family
from tests.topology.test_typing import CLASSES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
REFERENCE = sorted(FOLDER.glob("*.md"))
PAGES = (
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *DOCS,
    *REFERENCE,
    ROOT / "examples" / "metrics.md",
    *sorted((ROOT / "examples" / "operators").glob("*.md")),
)
STREAMSRT = [sys.executable, "-c", "from streamsrt.cli import main; main()"]
README_LINES_MAX = 200
PATIENCE_S = 60.0


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def program(page: Path, comment: str) -> str:
    """The Python block that contains ``comment``."""
    return next(block for block in programs(page) if comment in block)


def session() -> list[tuple[str, list[str]]]:
    """The commands of the first terminal session and the lines that each prints."""
    text = README.read_text(encoding="utf-8")
    block = text[text.index("    $ streamsrt broker") :].split("\n\n", 1)[0]
    steps: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        shown = line.removeprefix("    ")
        if shown.startswith("$ "):
            steps.append((shown.removeprefix("$ ").split("   #")[0].strip(), []))
        else:
            steps[-1][1].append(shown)
    return steps


@cache
def command(name: str) -> Any:
    """The command by its name as typed: ``topics create``."""
    found: Any = typer.main.get_command(command_line(name.split()[0]))
    for part in name.split():
        assert part in found.commands, f"there is no command streamsrt {name}"
        found = found.commands[part]
    return found


def subcommands(name: str) -> set[str]:
    return set(getattr(command(name), "commands", ()))


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The arguments of each ``streamsrt`` command in an indented block of a page."""
    for line in re.sub(r"\\\n +", "", page.read_text(encoding="utf-8")).splitlines():
        shown = re.search(r"^    (?:\$ )?(?:.*\| )?streamsrt ([a-z].*)", line)
        if shown is None:
            continue
        command = shown[1].split("   #")[0]
        is_one = " | " not in command.removesuffix(" | sort") and "|" not in "".join(shown[1].split()[1:2])
        if is_one:
            yield shlex.split(command.split("  > ")[0].split(" | ")[0])


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "wordcount.py").write_text(program(README, "# wordcount.py"), encoding="utf-8")
    return tmp_path


@pytest.fixture
def broker(directory: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [*STREAMSRT, "broker", "--port", "0", "--data-dir", str(directory / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=directory,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5):
        pass
    yield address
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()


@pytest.mark.system
@pytest.mark.parametrize("line", ["TopologyTestDriver(topology) as driver", "simulate(topology, "])
def test_the_application_in_a_test(directory: Path, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program(ROOT / "docs" / "testing.md", line)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.system
def test_the_queries_of_a_running_application(directory: Path, broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "queries.md"
    for typed, _ in session()[1:3]:
        subprocess.run(["bash", "-c", shell(typed, broker)], cwd=directory, check=True, capture_output=True)
    names: dict[str, Any] = {"RangeQuery": RangeQuery, "PositionBound": PositionBound}
    exec(program(README, "# wordcount.py"), names)
    monkeypatch.chdir(directory)
    config = {"application.id": "wc", "bootstrap.servers": broker, "http.listen": "127.0.0.1:0"}
    with KafkaStreams(names["topology"], config) as streams:
        names |= {"streams": streams, "position": Position()}
        give_up = time.monotonic() + PATIENCE_S
        while counted(streams, "to") != 2 and time.monotonic() < give_up:
            threading.Event().wait(0.05)
        exec(program(page, "streams.store"), names)
        assert names["counts"].get("to") == 2
        curl, query = (
            line.removeprefix("    $ ").replace("127.0.0.1:8080", streams.config.application_server)
            for line in page.read_text(encoding="utf-8").splitlines()
            if line.startswith(("    $ curl", "    $ streamsrt query"))
        )
        row = subprocess.run(shlex.split(curl), capture_output=True, check=True, timeout=PATIENCE_S).stdout
        shown = next(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith('    {"key"'))
        assert without_progress(json.loads(row)) == without_progress(json.loads(shown))
        done = subprocess.run(
            ["bash", "-c", shell(query, broker)], capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        assert "be" in done.stdout


def without_progress(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its time, and without the offsets that were processed when it was read."""
    return {**row, "timestamp": 0, "position": set(row["position"])}


def counted(streams: KafkaStreams, key: str) -> Any:
    try:
        return streams.store("counts").get(key)
    except InvalidStateStoreError:
        return None


def shell(typed: str, broker: str) -> str:
    return typed.replace("127.0.0.1:9092", broker).replace("streamsrt ", shlex.join(STREAMSRT) + " ")


@pytest.mark.system
def test_the_terminal_session(directory: Path, broker: str) -> None:
    steps = session()
    assert steps[0][0].startswith("streamsrt broker")
    environment = {**os.environ, "LC_ALL": "C"}
    for typed, expected in steps[1:]:
        done = subprocess.run(
            ["bash", "-c", shell(typed, broker)],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, (typed, done.stderr)
        printed = [line for line in (done.stdout + done.stderr).splitlines() if "WARNING" not in line]
        assert printed == expected, typed


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < README_LINES_MAX


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_and_modules_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:topology|streamsrt|coordinator|tests|examples)/[\w./]*)`", text)
    modules = re.findall(r"python -m ((?:streamsrt|coordinator|tests|examples)[\w.]*\w)", text)
    benches = re.findall(r"`(bench_\w+)[ `]", text)
    wanted = [*paths, *(f"{name.replace('.', '/')}" for name in modules), *(f"tests/bench/{name}" for name in benches)]
    assert [name for name in wanted if not (ROOT / name).exists() and not (ROOT / f"{name}.py").exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_exist_with_their_options(page: Path) -> None:
    for arguments in shown_commands(page):
        name = " ".join(arguments[: 2 if subcommands(arguments[0]) else 1])
        options = {name for parameter in command(name).params for name in parameter.opts}
        given = {argument for argument in arguments if re.fullmatch(r"--?[a-z][a-z-]*", argument)}
        assert given <= options, f"streamsrt {name}"


def texts(module: Path) -> Iterator[str]:
    """The texts of a module, with "_" for what is put in; not its docstrings."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        yield text


def spoken_commands(module: Path) -> Iterator[list[str]]:
    """The words of each ``streamsrt`` command that a text of the module names, up to the end of its line or clause."""
    for text in texts(module):
        for found in re.finditer(r"\bstreamsrt ([a-z][^`'\"\n;:,)]*)", text):
            words = found[1].rstrip(".").split()
            if words[0] in COMMANDS:
                yield words


MODULES = [module for package in ("streamsrt", "topology", "coordinator") for module in (ROOT / package).rglob("*.py")]
PROSE = {"or", "and", "asks", "can"}
"""What follows a command's name in a sentence about it."""


def test_messages_name_commands_and_options_that_exist() -> None:
    spoken = [(module, words) for module in MODULES for words in spoken_commands(module)]
    assert len(spoken) > 100
    for module, words in spoken:
        below = subcommands(words[0])
        if below and (words[1:] == [] or words[1] in PROSE):
            continue
        assert not below or words[1].rstrip(".") in below, (module, words)
        name = " ".join(words[: 2 if below else 1]).rstrip(".")
        options = {option for parameter in command(name).params for option in parameter.opts}
        options |= {option for parameter in command(name).params for option in parameter.secondary_opts}
        typed = {word.split("=")[0].rstrip(".") for word in words if re.match("--?[a-z]", word)}
        assert typed <= options | {"--help"}, (module, words)


TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"


def test_every_status_of_a_group_is_explained() -> None:
    page = TROUBLESHOOTING.read_text(encoding="utf-8")
    assert [code.name for code in ADVICE if f"\n| {code.name} |" not in page] == []


def test_the_words_that_are_explained_are_those_of_messages() -> None:
    section = TROUBLESHOOTING.read_text(encoding="utf-8").partition("## Words of messages")[2]
    words = [
        each for row in re.findall(r"^\| (\"[^|]*)\|", section, re.MULTILINE) for each in re.findall('"([^"]*)"', row)
    ]
    assert len(words) >= 8
    spoken = "\n".join(text for module in MODULES for text in texts(module))
    missing = [each for each in words if any(part not in spoken for part in re.split(r" \.\.\. | N ", each))]
    assert missing == []


def test_shown_commands_are_found() -> None:
    assert ["topics", "create", "lines", "word-counts", "--partitions", "2", "-b", "127.0.0.1:9092"] in shown_commands(
        README
    )
    assert sum(len(list(shown_commands(page))) for page in PAGES) > len(COMMANDS)


def test_the_list_of_commands_is_the_command_line() -> None:
    text = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    block = text[text.index("## Commands") :].split("\n\n")[1]
    listed: dict[str, set[str]] = {}
    for line in block.splitlines():
        names = line.split("streamsrt ")[1]
        if " | " in names:
            listed |= {name: set() for name in names.split(" | ")}
        else:
            name, below = names.split()
            listed[name] = set(below.split("|"))
    assert listed == {name: subcommands(name) for name in COMMANDS}


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = {page.relative_to(ROOT / "docs").as_posix() for page in (*DOCS, *REFERENCE)}
    assert set(re.findall(r"\]\(((?:reference/)?[\w-]+\.md)\)", index)) == listed - {"README.md"}


def test_every_page_is_linked_from_the_readme_or_the_index() -> None:
    linked = README.read_text(encoding="utf-8") + (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES[1:] if page.name not in linked and page.parent.name != "operators"] == []


def test_the_site_has_every_page() -> None:
    navigation = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    listed = re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT).as_posix() for page in PAGES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_page_of_the_operators_has_a_program_with_each_method(kind: type) -> None:
    pages_of_operators = [
        page.read_text(encoding="utf-8") for page in sorted((ROOT / "examples/operators").glob("*.md"))
    ]
    programs = "\n".join(block for text in pages_of_operators for block in re.findall(r"```.*?```", text, re.DOTALL))
    methods = {name for name in dir(kind) if not name.startswith("_")}
    shown = {name for name in methods if re.search(rf"\.{name}\b", programs)}
    assert shown == methods, f"no program in examples/operators calls {sorted(methods - shown)} of {kind.__name__}"


def test_the_table_for_users_of_java_has_every_method() -> None:
    told = (ROOT / "examples/operators/README.md").read_text(encoding="utf-8")
    methods = {name for kind in CLASSES for name in dir(kind) if not name.startswith("_")}
    assert [name for name in sorted(methods) if not re.search(rf"\b{name}\b", told)] == []


def test_the_graph_of_imports_is_that_of_the_code() -> None:
    """``python -m tests.tools.import_graph --write`` draws it anew."""
    assert drawn() in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*WRITERS, *(page.name for page in REFERENCE if page.name not in WRITERS)])
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    """``python -m tests.tools.reference --write`` writes it anew."""
    same = name in WRITERS and (FOLDER / name).read_text(encoding="utf-8") == WRITERS[name]()
    assert same, f"docs/reference/{name} is not what the code says: run python -m tests.tools.reference --write"


def test_the_reference_has_every_command_setting_and_error() -> None:
    typed = {
        " ".join([name, *below]) for name in COMMANDS for below in ([[each] for each in subcommands(name)] or [[]])
    }
    assert {each.name for each in commands()} == typed
    settings = (FOLDER / "settings.md").read_text(encoding="utf-8")
    assert [key for key in known_keys() if f"| `{key}` |" not in settings] == []
    told = (FOLDER / "errors.md").read_text(encoding="utf-8")
    assert [name for name in errors() if f"`{name}`" not in told and f"## {name}" not in told] == []


def test_every_setting_has_a_meaning() -> None:
    text = (FOLDER / "settings.md").read_text(encoding="utf-8")
    rows = [re.split(r"(?<!\\) \| ", line.removesuffix(" |")) for line in text.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if not row[-1].strip()] == []


def test_every_error_says_what_happened_and_what_to_do() -> None:
    said = {name: error.docstring.split("\n\n")[0] for name, error in errors().items() if family(error) is not None}
    roots = {name for name in said if name in FAMILIES or name == "StreamsError"}
    assert {name for name, text in said.items() if not re.search(r"[.:;]\s+\S", text)} - roots == set()


IN_THE_REPOSITORY = re.compile(r"\btests[/.]|`make |\bbench_[a-z]+`|CONTRIBUTING|CHANGELOG")


@pytest.mark.parametrize("page", [README, *DOCS, *REFERENCE], ids=lambda page: page.name)
def test_what_a_wheel_does_not_have_is_said_to_be_in_the_repository(page: Path) -> None:
    if page.name == "architecture.md":
        return
    text = page.read_text(encoding="utf-8")
    named = IN_THE_REPOSITORY.search(text)
    assert named is None or "repository" in text, f"{page.name} names {named}, which only a clone has"


def test_the_extras_that_readme_names_are_those_of_the_package() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.index("pip install streamsrt ") < text.index("make demo") < text.index("pip install -e")
    (named,) = re.findall(r"streamsrt\[[a-z,]+\]'` \(([^)]+)\)", text.replace("\n", " "))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"`([a-z]+)`", named)) == set(extras)
