from __future__ import annotations

import pytest

from coordinator.server.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", {}),
        ("# a comment\n! another\n\n  \n", {}),
        ("a=1\nb = 2\r\nc:3\rd 4\n  e\t=  5  ", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5  "}),
        ("key", {"key": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\u00fc\\tx\\ny\\q", {"a": "ü\tx\nyq"}),
        ("log.dirs=C\\:\\\\data", {"log.dirs": "C:\\data"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
    ],
)
def test_as_java_reads_them(text: str, rows: dict[str, str]) -> None:
    assert parse_properties(text) == rows
