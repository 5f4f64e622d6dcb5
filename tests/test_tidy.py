"""House rules that a linter does not know, each with what to do instead."""

from __future__ import annotations

import ast
import contextlib
import gc
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("topology", "streamsrt", "coordinator")
GENERATED = {"streamsrt/wire/schema_table.py"}
PURE = (
    "topology",
    "streamsrt/wire",
    "streamsrt/assignment",
    "streamsrt/membership",
    "streamsrt/operators",
    "coordinator/group",
)
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 700
DECLARATIONS = {"topology/dsl/streams_and_tables.py"}
"""Modules of signatures, which are as long as there are operators. A stream returns groups, a group tables, a table
streams: no order of modules has a class before those that return it, so their signatures are in one, and the work is in
others.

Mixins don't help: ``KStream[K, V2]``, where each call decides ``V2``, has no name below the class itself, as Python has no
types of types. What does type-check is ``join = of_streams(stream_joins.join)``, a wrapper with a ParamSpec that turns the
result into a KStream. But that a callable in a class binds ``self``, and that overloads pass through a ParamSpec, is what
mypy and pyright do and the typing specification does not say: ty reports errors in programs that are right."""
DECLARED_LINES_MAX = 20
ANY_LINES_MAX = {
    "coordinator": 15,
    "streamsrt": 34,
    "streamsrt/assignment": 1,
    "streamsrt/backfill": 3,
    "streamsrt/cli": 12,
    "streamsrt/client": 9,
    "streamsrt/http": 20,
    "streamsrt/membership": 2,
    "streamsrt/operators": 23,
    "streamsrt/queries": 17,
    "streamsrt/runtime": 17,
    "streamsrt/state": 39,
    "streamsrt/tasks": 4,
    "streamsrt/testing": 41,
    "streamsrt/wire": 35,
    "topology": 90,
}
"""On how many lines of a package ``Any`` stands. It belongs where a type is not ours to know: keys and values of a program,
settings, what a library returns. Lower a number when there are fewer; elsewhere a Protocol or a type variable does it."""
TWINS = {
    "what client and broker each have of one thing": {
        *("Broker", "ClassicMember", "Connection", "Echo", "Endpoint", "Joined", "Member", "MemberState", "Metric"),
        *("OffsetOutOfRangeError", "Producer", "Refused", "Request", "Surroundings", "TaskOffsets", "Tasks", "Version"),
    },
    "streams groups and consumer groups, by the same steps": {
        *("AssignorMember", "ClassicSide", "Current", "Member", "MemberState", "NeededConfig", "Soft"),
    },
    "members of the streams protocol and of the classic one, by the same steps": {
        *("Answered", "CoordinatorFound", "InFlight", "Session"),
    },
    "a topology in a program and in the protocol": {"InternalTopic", "Subtopology", "Topology"},
    "what a part needs to see of a class that is elsewhere": {"GroupView", "Instance", "Stored"},
    "a word of Kafka's, and one of faust's or of another part of Kafka's": {"Host", "Response", "Timer", "Worker"},
}
"""Names that several classes have, and why that is right. Another meaning gets another name."""
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
BANNED_ENDINGS = ("Impl", "Base", "Manager", "Helper", "Util", "Utils")
ALLOWED_CLASSES = {"TaskManager"}


def modules(*folders: str) -> Iterator[str]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT).as_posix()
            if relative not in GENERATED:
                yield relative


def sources(*folders: str, holding: str = "") -> Iterator[tuple[str, ast.Module, str]]:
    """``holding``: only modules with this text, where a rule is about nothing else; to parse the tests takes seconds."""
    for name in modules(*folders):
        if holding not in (ROOT / name).read_text(encoding="utf-8"):
            continue
        # The trees of the tests take as much memory again, and few rules ask for them.
        yield name, *(parsed(name) if name.startswith(PACKAGES) else parsed.__wrapped__(name))


@cache
def parsed(module: str) -> tuple[ast.Module, str]:
    text = (ROOT / module).read_text(encoding="utf-8")
    gc.disable()  # what is parsed is no garbage
    try:
        return ast.parse(text), text
    finally:
        gc.enable()


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def test_tools_leave_no_folder_out(pytestconfig: pytest.Config) -> None:
    """Name the folder differently, or take its name out of norecursedirs and of ruff's exclude in pyproject.toml."""
    folders = {part for name in modules(*PACKAGES, "tests") for part in Path(name).parts[:-1]}
    patterns = pytestconfig.getini("norecursedirs")
    assert not [folder for folder in folders for pattern in patterns if fnmatch(folder, pattern)]
    files = list(modules(*PACKAGES))
    ruff = [sys.executable, "-m", "ruff", "check", "--show-files", *PACKAGES]
    listed = subprocess.run(ruff, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    assert not set(files) - {Path(each).relative_to(ROOT).as_posix() for each in listed}


def test_no_module_stands_outside_of_the_import_contracts() -> None:
    """Put a new module of a package into one of its layers in pyproject.toml.

    Of the client, the broker may import wire, assignment, wording and checksum only.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layered = {name for each in contracts if each.get("exhaustive") for name in each.get("containers", ())}
    assert layered >= set(PACKAGES)
    forbidden = next(each["forbidden_modules"] for each in contracts if each.get("source_modules") == ["coordinator"])
    client = {f"streamsrt.{path.stem}" for path in (ROOT / "streamsrt").iterdir() if _is_module(path)}
    assert client - set(forbidden) == {
        "streamsrt.wire",
        "streamsrt.assignment",
        "streamsrt.wording",
        "streamsrt.checksum",
    }


def _is_module(path: Path) -> bool:
    return (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()


LISTED = re.compile(r"(?:- |\| )?``(\w+)``:?\s+(?:\| )?(\S.*)")
"""A line of a package's docstring that says what one of its modules is."""


def told_modules(docstring: str) -> dict[str, str]:
    return {found[1]: found[2] for line in docstring.splitlines() if (found := LISTED.fullmatch(line))}


def test_modules_are_found_in_lists_and_tables() -> None:
    assert told_modules("A.\n\n- ``one``  the first\n``two``   second\n| ``three`` | third |\n1. ``four`` is none") == {
        "one": "the first",
        "two": "second",
        "three": "third |",
    }


DOTTED = re.compile(r"(?<![\w./-])(?:streamsrt|topology|coordinator)(?:\.[A-Za-z_]\w*)+")
"""The name of a module, or of something in it, in a text."""


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module, or what follows its longest part that is one is found in there."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
        if file.is_file():
            # A package's own names are those that it exports, and some settings begin like one.
            return length == 1 or parts[length:] == [] or parts[length] in file.read_text(encoding="utf-8")
    return False


def test_modules_that_docstrings_name_exist() -> None:
    wrong = [
        f"{module} names {name}: there is nothing of that name"
        for module, tree, _ in sources(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for name in DOTTED.findall(ast.get_docstring(node) or "")
        if not _is_there(name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "package",
    sorted(
        path.parent.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("__init__.py")
    ),
)
def test_the_docstring_of_a_package_names_its_modules(package: str) -> None:
    """What is in a package, by a phrase for each module, is said at its head, and nothing that is not there."""
    folder = ROOT / package
    told = told_modules(ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "")
    there = {path.stem for path in folder.iterdir() if _is_module(path)}
    where = f"in the docstring of {package}/__init__.py"
    missing = [f"add the line `- ``{name}``  WHAT IT IS, IN A PHRASE` {where}" for name in sorted(there - set(told))]
    gone = [f"take the line of ``{name}`` out {where}: there is no such module" for name in sorted(set(told) - there)]
    assert not [*missing, *gone], "; ".join([*missing, *gone])


def test_functions_are_short() -> None:
    """Split a longer one: push the decisions up and the loops down."""
    long = []
    for name, tree, _ in sources(*PACKAGES, "examples"):
        for function in functions(tree):
            body = function.body[1:] if ast.get_docstring(function) else function.body
            if body and (function.end_lineno or 0) - body[0].lineno + 1 > FUNCTION_LINES_MAX:
                long.append(f"{name}:{function.lineno} {function.name}")
    assert not long


def test_modules_are_short() -> None:
    """Make a package of the same name out of a longer one. A module of signatures grows by what is declared."""
    lines = {name: text.count("\n") for name, _, text in sources(*PACKAGES, "examples") if name not in DECLARATIONS}
    assert not {name: count for name, count in lines.items() if count > MODULE_LINES_MAX}


def test_declarations_leave_the_work_to_others() -> None:
    """Move what a method does into a function of the module that its operator has."""
    long = []
    for name, tree, _ in sources(*PACKAGES):
        for function in functions(tree) if name in DECLARATIONS else ():
            body = function.body[1:] if ast.get_docstring(function) else function.body
            if body and (function.end_lineno or 0) - body[0].lineno + 1 > DECLARED_LINES_MAX:
                long.append(f"{name}:{function.lineno} {function.name}")
    assert not long


def imports_in_functions(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from (node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def test_the_topology_imports_nothing_in_functions() -> None:
    """Move what both modules need below them. A third-party library may be loaded late, with a comment that says why."""
    bad = []
    for name, tree, text in sources("topology"):
        lines = text.splitlines()
        for node in imports_in_functions(tree):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            ours = module.partition(".")[0] in PACKAGES or module.partition(".")[0] in sys.stdlib_module_names
            if ours or not module or "#" not in lines[node.lineno - 1]:
                bad.append(f"{name}:{node.lineno} {module}")
    assert not bad


def test_the_topology_imports_nothing_of_ours_for_types_only() -> None:
    """A circle that only a type checker sees is one too: find the direction."""
    bad = []
    for name, tree, _ in sources("topology"):
        for branch in ast.walk(tree):
            if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING"):
                bad += [
                    f"{name}:{node.lineno}"
                    for node in ast.walk(branch)
                    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("topology")
                ]
    assert not bad


def lines_with_any(tree: ast.Module) -> int:
    return len({node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"})


def test_any_becomes_rarer() -> None:
    """Say what the value is: its class, a union, a Protocol of what is called, or a type variable."""
    found: dict[str, int] = dict.fromkeys(ANY_LINES_MAX, 0)
    for name, tree, _ in sources(*PACKAGES):
        parts = Path(name).parts
        package = "/".join(parts[:2]) if parts[0] == "streamsrt" and len(parts) > 2 else parts[0]
        found[package] = found.get(package, 0) + lines_with_any(tree)
    more = {each: count for each, count in found.items() if count > ANY_LINES_MAX.get(each, 0)}
    assert not more, "; ".join(
        f"Any stands on {count} lines of {each}, more than {ANY_LINES_MAX.get(each, 0)}: say what the values are, by a "
        "class, a union, a Protocol or a type variable"
        for each, count in more.items()
    )


def test_every_module_says_what_it_is() -> None:
    modules = sources(*PACKAGES, "examples")
    assert not [name for name, tree, text in modules if text.strip() and not ast.get_docstring(tree)]


def test_names_say_what_is_in_them() -> None:
    """Name a module after the thing that it holds and a class after its role."""
    bad = [name for name in modules(*PACKAGES, "examples") if BANNED_NAMES & set(re.split(r"[/_.]", name))]
    for name, tree, _ in sources(*PACKAGES):
        bad += [
            f"{name}:{node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and node.name not in ALLOWED_CLASSES
            and (node.name.endswith(BANNED_ENDINGS) or node.name.startswith("Base"))
        ]
    assert not bad


def test_a_name_of_a_class_has_one_meaning() -> None:
    """Name a new class after what is special about it; two of one meaning become one, or go into TWINS with the reason."""
    homes: dict[str, list[str]] = {}
    for name, tree, _ in sources(*PACKAGES):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    shared = {name for name, found in homes.items() if len(found) > 1}
    known = set().union(*TWINS.values())
    assert {name: homes[name] for name in shared - known} == {}
    assert not known - shared, "no longer shared: take them out of TWINS"


def test_nothing_is_left_to_be_written() -> None:
    """Refuse what is out of scope with an error of the tree; keep plans out of the code."""
    bad = []
    for name, tree, text in sources(*PACKAGES, "examples"):
        bad += [
            f"{name}:{n.lineno}" for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "NotImplementedError"
        ]
        bad += [
            f"{name}:{i}"
            for i, line in enumerate(text.splitlines(), 1)
            if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line)
        ]
    assert not bad


def test_no_exception_is_swallowed() -> None:
    """Name the exception that is expected, or let it go up."""
    bad = []
    for name, tree, _ in sources(*PACKAGES, "examples", "tests", holding="except"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
            if broad and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body):
                bad.append(f"{name}:{node.lineno}")
    assert not bad


def test_the_cores_touch_nothing_outside() -> None:
    """Files, clocks, chance and hash order come in as arguments."""
    banned = {"open", "input", "print", "__import__", "hash"}
    bad = []
    for name, tree, _ in sources(*PURE):
        for call, line in calls(tree):
            if call in banned or call.endswith((".now", ".today", ".utcnow")):
                bad.append(f"{name}:{line} {call}")
    assert not bad


def programs_in(tree: ast.Module) -> Iterator[tuple[ast.Module, int]]:
    """Text in a module that is a program too, and where it begins; what is filled in later counts as a number."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or "sleep" not in node.value:
            continue
        text = re.sub(r"%[rsd]|\{\w+(?:![rs])?\}", "0", textwrap.dedent(node.value))
        with contextlib.suppress(SyntaxError):
            yield ast.parse(text), node.lineno


def sleeps(tree: ast.Module) -> Iterator[tuple[str, int]]:
    yield from (found for found in calls(tree) if found[0] in {"time.sleep", "sleep", "asyncio.sleep"})
    for program, line in programs_in(tree):
        yield from ((call, line + inner - 1) for call, inner in sleeps(program))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time\ntime.sleep(1)", [("time.sleep", 2)]),
        ('P = """\nimport time\nwhile not {flag!r}:\n    time.sleep({pause_s})\n"""', [("time.sleep", 4)]),
        ('run("-c", "from time import sleep; sleep(%d)" % n)', [("sleep", 1)]),
        ('"""Tests neither sleep nor mock."""', []),
    ],
)
def test_sleeps_are_found_in_programs_within_programs_too(text: str, found: list[tuple[str, int]]) -> None:
    assert list(sleeps(ast.parse(text))) == found


def test_tests_neither_sleep_nor_mock() -> None:
    """Wait for an event or give the clock as an argument; use the real thing. The same for programs that tests start."""
    bad = []
    for name, tree, _ in sources("tests", holding="sleep"):
        if name != "tests/test_tidy.py":
            bad += [f"{name}:{line} {call}" for call, line in sleeps(tree)]
    for name in modules("tests"):
        text = (ROOT / name).read_text(encoding="utf-8")
        if name != "tests/test_tidy.py" and re.search(r"unittest\.mock|MagicMock|\bmocker\b", text):
            bad.append(f"{name}: mock")
    assert not bad


def test_the_project_stands_alone() -> None:
    """Copy the data that is needed into the project; name no path of the machine and nothing outside of it."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=True)
    outside = re.compile("|".join([r"\.\./" + "shared", "/" + r"work/(main|shared|\.library)", r"\bKIP-1071 issue \d"]))
    bad = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if (
            path.suffix in {".py", ".md", ".toml", ".sh", ".txt", ""}
            and path.is_file()
            and path.stat().st_size < 1 << 20
        ):
            found = outside.search(path.read_text(encoding="utf-8", errors="replace"))
            if found:
                bad.append(f"{name}: {found[0]}")
    assert not bad


NOT_OF_EVERY_INSTANCE = (
    *(
        "aiokafka",
        "coordinator",
        "cramjam",
        "multiprocessing.connection",
        "numpy",
        "rich",
        "typer",
    ),
    *(
        f"streamsrt.{name}"
        for name in ("avro", "backfill", "cli", "dead_letters", "faust", "schema_registry", "testing")
    ),
    *(
        f"streamsrt.runtime.{name}"
        for name in ("processes", "process_queries", "supervisor", "upgrade_status", "worker")
    ),
    *("streamsrt.http.server", "streamsrt.membership.classic.member"),
)
"""What takes 20 MB more, and is needed by some instances only: with many records, several stream threads, SASL,
models, ..."""


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        (
            "coordinator.group",
            ("streamsrt.runtime", "streamsrt.state", "streamsrt.tasks", "streamsrt.client", "rocksdict"),
        ),
        ("streamsrt", ("streamsrt.runtime", "streamsrt.client", "aiokafka", "rocksdict", "pydantic")),
        ("topology", ("streamsrt", "coordinator", "pydantic")),
        ("streamsrt.assignment.targets", ("asyncio", "coordinator", "streamsrt.config", "topology", "pydantic")),
        ("streamsrt.wire.messages", ("asyncio", "rocksdict", "aiokafka", "pydantic")),
        ("streamsrt.app", NOT_OF_EVERY_INSTANCE),
    ],
)
def test_importing_a_leaf_loads_nothing_else(imported: str, absent: tuple[str, ...]) -> None:
    """Export lazily: an eager import in a package's __init__ joins what the contracts keep apart. An instance loads what it
    does not always need at the place of use: its memory and its start are measured (``tests.bench.bench_start``)."""
    script = f"import sys, {imported}; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
