"""Prints which requirement ids have a test that proves them, and which have none.

    python -m tests.requirement_report [--missing]

An id counts when it stands in a ``requirement`` marker of a test; the markers are read from the source, so the report
needs no collected tests. A requirement that speaks to several parties needs a proof for each: the report names the parties.
Why an id has no test stands in ``requirements_not_done.txt``; ``--missing`` prints the reason beside it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent


def known_requirements() -> dict[str, str]:
    """Id -> the parties that it speaks to, as in ``requirement_ids.txt``."""
    rows = (TESTS / "requirement_ids.txt").read_text(encoding="utf-8").splitlines()
    return dict(row.split(" ", 1) for row in rows if row)


@cache
def marked_requirements() -> Counter[str]:
    """Id -> in how many markers it stands; ``proves("case", "id", ...)`` is a case of a parametrised test."""
    found: Counter[str] = Counter()
    known = known_requirements()
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in {"requirement", "proves"}:
                constants = (c.value for c in ast.walk(node) if isinstance(c, ast.Constant))
                found.update(value for value in constants if value in known)
    return found


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def reasons() -> list[tuple[str, str]]:
    """Ids without a test, each with the reason, in the order of ``requirements_not_done.txt``."""
    found: list[tuple[str, str]] = []
    text = (TESTS / "requirements_not_done.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        reason = " ".join(line.strip() for line in lines if line.startswith(" "))
        found += [(each, reason) for line in lines if not line.startswith(" ") for each in line.split()]
    return found


def main(arguments: list[str]) -> int:
    known, marked, explained = known_requirements(), marked_requirements(), dict(reasons())
    for prefix in ("SG", "CG", "CR", "GA"):
        ids = [i for i in known if i.startswith(prefix)]
        tested, said = sum(i in marked for i in ids), sum(i in explained and i not in marked for i in ids)
        print(f"{prefix}: {tested} of {len(ids)} requirements have a test, {said} a reason why not")
    if "--missing" in arguments:
        for identifier, parties in known.items():
            if identifier not in marked:
                print(f"  {identifier}  {parties}: {explained.get(identifier, 'NO TEST AND NO REASON')}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
