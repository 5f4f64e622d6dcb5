"""The pages on operators: their examples run and print what they say, and their diagrams are those of their topologies.

With ``UPDATE_DIAGRAMS`` in the environment the diagrams are written anew.
"""

from __future__ import annotations

import doctest
import os
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "operators"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"```(python|mermaid)\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_and_diagrams(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": page.stem}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    drawn = text
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            line = text[: text.index(block)].count("\n")
            example = doctest.DocTestParser().get_doctest(block, names, page.stem, str(page), line)
            assert example.examples or not block.strip()
            said: list[str] = []
            runner.run(example, out=said.append, clear_globs=False)
            assert not runner.failures, "".join(said)
            names.update(example.globs)
        else:
            drawn = drawn.replace(block, names["topology"].mermaid().rstrip("\n") + "\n", 1)
    if "UPDATE_DIAGRAMS" in os.environ:
        page.write_text(drawn, encoding="utf-8")
    assert drawn == text
