"""The graph of imports between packages, as mermaid: ``python -m tests.tools.import_graph``.

Read from the code by grimp, as the import contracts are. Arrows that follow from others are left out. With ``--write`` the
graph in CONTRIBUTING.md is replaced.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import grimp

ROOTS = ("topology", "streamsrt", "coordinator")
PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
_BLOCK = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)


def imports() -> dict[str, set[str]]:
    """What each package and each module directly below the roots imports, by name: ``topology.dsl``."""
    graph = grimp.build_graph(*ROOTS, cache_dir=None)
    found: dict[str, set[str]] = {child: set() for root in ROOTS for child in graph.find_children(root)}
    for module in graph.modules:
        package = _package(module)
        for other in graph.find_modules_directly_imported_by(module):
            if package in found and _package(other) in found:
                found[package].add(_package(other))
    return {package: others - {package} for package, others in found.items()}


def direct(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The edges of a graph without circles that do not follow from others."""

    def reached(start: str) -> set[str]:
        return edges[start].union(*map(reached, edges[start]))

    return {start: ends - set().union(*map(reached, ends)) for start, ends in edges.items()}


def drawn() -> str:
    """The graph as a block of a page."""
    edges = direct(imports())
    lines = ["```mermaid", "graph TD"]
    for root in ROOTS:
        members = sorted(package for package in edges if package.startswith(root))
        lines += [f"  subgraph {root}", *(f"    {_id(each)}[{each.split('.')[1]}]" for each in members), "  end"]
    lines += [f"  {_id(start)} --> {_id(end)}" for start in sorted(edges) for end in sorted(edges[start])]
    return "\n".join([*lines, "```", ""])


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _id(package: str) -> str:
    return package.replace(".", "_")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"replace the graph in {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(_BLOCK.sub(lambda _: drawn(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(drawn(), end="")
