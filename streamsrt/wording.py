"""How numbers are worded in messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``1,000 records``: ``noun`` in the singular, with an s for other numbers than one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
