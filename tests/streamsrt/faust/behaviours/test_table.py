"""The list of behaviours: each row names a test that exists, and the page shows the list."""

from __future__ import annotations

import ast
from collections import Counter

from tests.streamsrt.faust.behaviours.table import HERE, PAGE, VERDICTS, behaviours, section

FOLDER = HERE.parent


def tried_in(path: str) -> set[str]:
    tree = ast.parse((FOLDER / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_behaviour_has_a_test() -> None:
    rows = behaviours()
    known = {path: tried_in(path) for path in {row.test.partition("::")[0] for row in rows}}
    assert not [row for row in rows if row.test.partition("::")[2] not in known[row.test.partition("::")[0]]]


def test_every_test_of_this_folder_is_in_the_list() -> None:
    named = {row.test for row in behaviours()}
    here = {f"behaviours/{path.name}" for path in HERE.glob("test_*.py")} - {"behaviours/test_table.py"}
    assert {f"{path}::{name}" for path in here for name in tried_in(path)} <= named


def test_rows_are_whole() -> None:
    rows = behaviours()
    assert {row.verdict for row in rows} == set(VERDICTS)
    assert not [row for row in rows if bool(row.note) == (row.verdict == "runs") or not row.behaviour]
    assert not [id_ for id_, count in Counter(row.id for row in rows).items() if count > 1]


def test_the_page_shows_the_list() -> None:
    assert section() in PAGE.read_text(encoding="utf-8"), "python -m tests.streamsrt.faust.behaviours.table --write"
