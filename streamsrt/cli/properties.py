"""Java properties files, as ``java.util.Properties`` reads them: a file that Java's applications share means the same here.

1. A key ends at the first ``=``, ``:`` or blank that no backslash stands before.
2. A line that ends with a backslash goes on in the next one, whose leading blanks are left out.
3. ``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\uXXXX`` are characters; any other one behind a backslash is itself.

Blanks at the end of a value are left out, other than there: no setting means them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamsrt.errors import ConfigError

_BLANKS = " \t\f"
_LINE = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)(?P<separator>[ \t\f]*[=:]?[ \t\f]*)(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str, source: str) -> dict[str, str]:
    """The settings of a file, later ones over earlier ones. Raises ConfigError that names ``source`` and the line."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        matched = _LINE.fullmatch(line)
        if matched is None or not matched["key"] or not (matched["separator"].strip(_BLANKS) or matched["value"]):
            raise ConfigError(f"{source} {line}: expected KEY=VALUE")
        found[_unescaped(matched["key"])] = _unescaped(_without_end(matched["value"]))
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Without comments and empty lines; those that go on in the next one are one."""
    parts: list[str] = []
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _without_end(value: str) -> str:
    shorter = value.rstrip(_BLANKS)
    is_escaped = (len(shorter) - len(shorter.rstrip("\\"))) % 2 == 1
    return value[: len(shorter) + 1] if is_escaped else shorter


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) == 5 else _LETTERS.get(escape, escape)
