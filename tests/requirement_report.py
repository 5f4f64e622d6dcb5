"""Prints which requirement ids have a test that proves them, and which have none.

    python -m tests.requirement_report [--missing]

An id counts when it stands in a ``requirement`` marker of a test; the markers are read from the source, so the report
needs no collected tests. A requirement that speaks to several parties needs a proof for each: the report names the parties.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent


def known_requirements() -> dict[str, str]:
    """Id -> the parties that it speaks to, as in ``requirement_ids.txt``."""
    rows = (TESTS / "requirement_ids.txt").read_text(encoding="utf-8").splitlines()
    return dict(row.split(" ", 1) for row in rows if row)


def marked_requirements() -> Counter[str]:
    """Id -> in how many markers it stands."""
    found: Counter[str] = Counter()
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement":
                found.update(str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))
    return found


def main(arguments: list[str]) -> int:
    known, marked = known_requirements(), marked_requirements()
    for prefix in ("SG", "CG", "CR", "GA"):
        ids = [i for i in known if i.startswith(prefix)]
        print(f"{prefix}: {sum(i in marked for i in ids)} of {len(ids)} requirements have a test")
    if "--missing" in arguments:
        for identifier, parties in known.items():
            if identifier not in marked:
                print(f"  {identifier}  {parties}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
