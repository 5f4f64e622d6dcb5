"""The design of each package, for contributors: what its docstring says about its modules and its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tools.reference.source import GENERATED, ROOT, docstring_of, page, plain, table, tree_of

ROOTS = ("topology", "streamsrt", "coordinator")
_RULE = re.compile(r"=+( +=+)+")


def packages() -> Iterator[str]:
    """The dotted names of all packages that have something to say."""
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("__init__.py")):
            name = ".".join(path.parent.relative_to(ROOT).parts)
            if docstring_of(tree_of(name)):
                yield name


def design_page() -> str:
    """The text of the page."""
    parts: list[str | list[str]] = [
        GENERATED,
        "# Design of the packages",
        "For contributors: each package says which modules it has, and which rules they follow. "
        "[Architecture](../architecture.md) has the packages in layers, [CONTRIBUTING](../../CONTRIBUTING.md) the "
        "graph of their imports.",
    ]
    for name in packages():
        parts += [f"## {name}", [*_text(docstring_of(tree_of(name))), ""]]
    return page(*parts)


def _text(docstring: str) -> Iterator[str]:
    """The lines of a docstring in Markdown."""
    lines = docstring.splitlines()
    while lines:
        if _RULE.fullmatch(lines[0]):
            length = next((number for number, line in enumerate(lines) if not line), len(lines))
            yield from _table(lines[:length])
            del lines[: length + 1]
        else:
            yield plain(lines.pop(0))


def _table(lines: list[str]) -> list[str]:
    """A table, of which a rule below the head may be missing together with the head."""
    columns = [found.start() for found in re.finditer("=+", lines[0])]
    bounds = list(zip(columns, [*columns[1:], None], strict=True))
    rows: list[list[str]] = []
    for line in lines:
        cells = [plain(line[start:end].strip()) for start, end in bounds]
        if _RULE.fullmatch(line):
            continue
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [" ".join(filter(None, both)) for both in zip(rows[-1], cells, strict=True)]
    has_head = sum(_RULE.fullmatch(line) is not None for line in lines) == 3
    return table(rows[0] if has_head else ["module", "what is in it"], rows[1:] if has_head else rows)
