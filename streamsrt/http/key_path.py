"""Keys in paths: everything behind the last fixed part, with slashes and newlines.

Starlette's own ``path`` ends at a newline, and then takes a key with a last newline for the key without it.
"""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class KeyInPath(Convertor[str]):
    """What ``{key:key}`` in a route takes."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def register() -> None:
    """Lets routes have ``{name:key}``. Called before they are made."""
    register_url_convertor("key", KeyInPath())
