"""Java's properties files (``java.util.Properties.load``), as Kafka's tools write and read them.

A key ends at the first ``=``, ``:`` or white space that no backslash escapes; a line that ends with a backslash
continues on the next one; lines that begin with ``#`` or ``!`` are comments. A key that is given twice has its last
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SPACE = " \t\f"
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of a properties file."""
    rows: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None
        rows[_unescaped(match[1])] = _unescaped(match[2])
    return rows


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(_SPACE)
        if not begun and (not line or line[0] in "#!"):
            continue
        line = begun + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = line[:-1]
            continue
        begun = ""
        yield line
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[1] is not None:
            return chr(int(match[1], 16))
        return _NAMED.get(match[2], match[2])

    return _ESCAPE.sub(replacement, text)
