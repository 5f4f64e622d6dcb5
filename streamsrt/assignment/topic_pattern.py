"""Patterns of topic names, in RE2's syntax, to which groups of several types subscribe.

A pattern matches whole names, of all topics, including the broker's own (``__consumer_offsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache


class InvalidRegexError(ValueError):
    """A pattern is not a regular expression in RE2's syntax; the text says what is wrong."""


@lru_cache(maxsize=1024)
def compiled(regex: str) -> Callable[[str], object]:
    """Returns a function that matches whole topic names. Raises InvalidRegexError."""
    import re2  # 2 MB that only groups with patterns need

    options = re2.Options()
    options.log_errors = False
    try:
        match: Callable[[str], object] = re2.compile(regex, options).fullmatch
    except re2.error as error:
        text = error.args[0] if error.args else error
        raise InvalidRegexError(text.decode(errors="replace") if isinstance(text, bytes) else str(text)) from None
    return match


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Returns the topics that a pattern matches. Raises InvalidRegexError."""
    matches = compiled(regex)
    return frozenset(name for name in names if matches(name))
