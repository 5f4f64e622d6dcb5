"""What an application is named by, and what is said of modules that can't be imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from streamsrt.application import (
    changed_modules,
    imported_digests,
    is_same_application,
    load_application,
    module_digest,
)
from streamsrt.errors import ConfigError
from topology import TopologyError

PROGRAM = """
from topology import StreamsBuilder
import {neighbour}
builder = StreamsBuilder()
builder.stream("in").to("{neighbour}")
topology = builder.build()
"""

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of that name in the current directory; what was imported is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(path: str, text: str) -> str:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return path

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_application_is_named_by_module_or_file(write: Write, tmp_path: Path) -> None:
    write("named_neighbour.py", "")
    write("named_app.py", PROGRAM.format(neighbour="named_neighbour"))
    names = [
        "named_app:topology",
        "named_app",
        "./named_app.py:topology",
        "named_app.py",
        "./named_app",
        "../x/named_app.py",
    ]
    (tmp_path.parent / "x").symlink_to(tmp_path)
    for name in names:
        assert "topic: named_neighbour" in load_application(name).topology.describe(), name
        assert module_digest(name) == module_digest("named_app")


def test_names_of_one_application_are_the_same_one(write: Write) -> None:
    write("one_app.py", "")
    for name in ("one_app", "one_app:topology", "./one_app.py", "one_app.py:topology"):
        assert is_same_application(name, "one_app:topology"), name
    for name in ("one_app:other", "other_app", "other_app:topology"):
        assert not is_same_application(name, "one_app:topology"), name


def test_a_digest_is_of_the_file_and_imports_nothing(write: Write) -> None:
    text = "raise SystemExit('it was run')"
    write("digest_package/__init__.py", text)
    write("digest_package/app.py", text)
    write("digest_app.py", text)
    expected = sha256(text.encode()).hexdigest()[:32]
    for name in ("digest_app:topology", "./digest_app.py:topology", "digest_package.app", "./digest_package/app.py"):
        assert module_digest(name) == expected, name
    assert module_digest("digest_app_that_is_not_there") == ""


def test_a_file_of_a_package_is_a_module_of_it(write: Write) -> None:
    write("named_package/__init__.py", "")
    write("named_package/inside/__init__.py", "")
    write("named_package/inside/name.py", "topic = 'out'")
    text = "from topology import *\nfrom .name import topic\nb = StreamsBuilder()\nb.stream('in').to(topic)\nmade = b.build"
    write("named_package/inside/app.py", text)
    assert "topic: out" in load_application("./named_package/inside/app.py:made").topology.describe()
    assert "named_package.inside.app" in sys.modules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "bad_app.py:1: SyntaxError: invalid syntax"),
        ("if True:\nx = 1", "bad_app.py:2: IndentationError: expected an indented block"),
        ("\0", "null byte"),
        ("import named_nowhere", "'bad_app' can't be imported: No module named 'named_nowhere' ("),
        ("\n1 / 0", "can't be imported: ZeroDivisionError: division by zero ("),
        ("import sys\nsys.exit(3)", "can't be imported: SystemExit: 3 ("),
        ("import sys\ntopology = lambda: sys.exit('no')", "bad_app:topology() raised SystemExit: no ("),
        ("from . import x", "can't be imported: ImportError: "),
        ("topology = 5", "bad_app:topology is not a topology; build one"),
        ("x = 5", "bad_app has no 'topology' (from 'bad_app'); build one"),
        ("topologies = topolog = _topology = 5", "has no 'topology' (from 'bad_app'): did you mean 'topolog' or"),
        ("def topology():\n    return {}['a']", "bad_app:topology() raised KeyError: 'a' ("),
        ("from examples.wordcount import topology\nconfig = 5", "bad_app:config is 5: it must be a dict of settings"),
    ],
)
def test_a_module_that_is_wrong_is_told_in_one_line(write: Write, text: str, said: str) -> None:
    write("bad_app.py", text)
    with pytest.raises(ConfigError) as raised:
        load_application("bad_app")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_the_line_of_the_program_is_told(write: Write, tmp_path: Path) -> None:
    write("bad_app.py", "\n\n1 / 0")
    with pytest.raises(ConfigError, match=rf"\({tmp_path}/bad_app.py:3\)$"):
        load_application("bad_app")


def test_the_line_is_the_programs_own_and_not_one_of_a_package(write: Write, tmp_path: Path) -> None:
    write("bad_app.py", "import json\n\n\ndef read():\n    return json.loads('{')\n\n\nread()")
    with pytest.raises(ConfigError, match=rf"JSONDecodeError: .* \({tmp_path}/bad_app.py:5\)$"):
        load_application("bad_app")


def test_a_topology_that_is_wrong_stays_a_topology_error(write: Write) -> None:
    write("bad_app.py", "from topology import StreamsBuilder\ntopology = StreamsBuilder().build()")
    with pytest.raises(TopologyError, match="reads no topic"):
        load_application("bad_app")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere.py:topology", "there is no file "),
        ("nowhere:topology", "or the path of its file, as in ./app.py:topology"),
        ("", "does not name a module"),
        (":topology", "does not name a module"),
    ],
)
def test_a_name_of_nothing_is_told(write: Write, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_application(name)


def test_a_file_that_python_cannot_import_is_told(write: Write) -> None:
    write("my-app.py", "")
    with pytest.raises(ConfigError, match=r"my-app.py can't be imported by Python: rename it"):
        load_application("my-app.py")


def test_imported_modules_are_found_in_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {
        "shopping/__init__.py": "",
        "shopping/app.py": "import json, numpy\nfrom . import rules\nfrom shopping.deep.most import three\nimport discounts",
        "shopping/rules.py": "def late():\n    from .later import rate\nraise SystemExit('it was run')",
        "shopping/later.py": "from rules_of_nobody import x\nfrom streamsrt import StreamsConfig",
        "shopping/deep/__init__.py": "",
        "shopping/deep/most.py": "three = 3\nfrom ..unused_name import *",
        "shopping/unused.py": "",
        "discounts.py": "from discounts import unrelated",
        "unrelated.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = imported_digests("shopping.app:topology")
    names = ["discounts", "shopping", "shopping.deep", "shopping.deep.most", "shopping.later", "shopping.rules"]
    assert list(found) == names
    assert changed_modules(found) == []
    (tmp_path / "shopping" / "later.py").write_text("rate = 2", encoding="utf-8")
    (tmp_path / "discounts.py").unlink()
    importlib.invalidate_caches()
    assert changed_modules(found) == ["discounts", "shopping.later"]
