"""What the packages export by name is there, is typed, and is loaded when it is used."""

from __future__ import annotations

import ast
from pathlib import Path

import coordinator
import streamsrt
import topology


def test_every_export_can_be_loaded() -> None:
    for package in (streamsrt, topology):
        for name in package.__all__:
            assert getattr(package, name) is not None


def test_lazy_exports_and_typed_exports_are_the_same() -> None:
    tree = ast.parse(Path(streamsrt.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(streamsrt.__all__) == set(streamsrt._EXPORTS)


def test_the_broker_exports_nothing() -> None:
    assert not hasattr(coordinator, "__all__")
