"""How numbers, times, addresses and errors are worded in messages, and how text from elsewhere is shown on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal
from unicodedata import category

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEFT_AS_THEY_ARE = "\u200c\u200d"
"""Joiners of letters and of emojis: not printable by themselves, and harmless."""


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``1,000 records``: ``noun`` in the singular, with an s for other numbers than one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def address_text(host: str, port: int) -> str:
    """``HOST:PORT``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(text: str) -> tuple[str, int] | None:
    """Reads ``HOST:PORT``, brackets around the host or not; None for anything else."""
    host, _, port = text.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    return (plain, int(port)) if plain and port.isascii() and port.isdecimal() else None


def time_text(time_ms: int, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """A time as ISO 8601 in UTC; its milliseconds since 1970 where no calendar has it."""
    try:
        return f"{(_EPOCH + timedelta(milliseconds=time_ms)).replace(tzinfo=None).isoformat(timespec=timespec)}Z"
    except OverflowError:
        return f"{time_ms} ms"


def error_message(error: BaseException) -> str:
    """``str(error)``, which an exception of a program may refuse."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # a user's method may raise anything
        return "<exception str() failed>"


def error_text(error: BaseException) -> str:
    """``ValueError: bad``: the error's class and message."""
    return f"{type(error).__name__}: {error_message(error)}"


def printable(text: str, *, kept: str = "") -> str:
    """The text without characters that a terminal obeys: these become escapes, as Python writes them (``\\x1b``).

    Keys, values and error messages come from whoever writes records: they must not clear an operator's screen, nor turn
    the direction of writing around. ``kept``: characters that stay, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) or each in kept else _escaped(each) for each in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _LEFT_AS_THEY_ARE or category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
