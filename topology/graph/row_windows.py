"""What the window of a row means, and what becomes of rows if another version has other windows.

1. Every class of windows has a row in :data:`MEANINGS`. Rows of windows with another meaning have the same bytes, and are
   no results of the new version: it would go on counting in them.
2. The rows of a table that is made of a windowed one have its windows, until a step changes the key.
3. Windows of the same meaning and size may begin at other times. What the old version did not have is complete from the
   next window on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from topology.spec.windows import AnyWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

FIXED, SLIDING, SESSION = "fixed", "sliding", "session"

MEANINGS: Mapping[type, str] = MappingProxyType(
    {TimeWindows: FIXED, UnlimitedWindows: FIXED, SlidingWindows: SLIDING, SessionWindows: SESSION}
)

_IN_WORDS: Mapping[str, str] = MappingProxyType(
    {FIXED: "tumbling or hopping windows", SLIDING: "sliding windows", SESSION: "sessions"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindows:
    """``meaning``: one of :data:`MEANINGS`. ``advance_ms``: how far apart they begin, of fixed ones that end."""

    meaning: str
    advance_ms: int | None = None

    @classmethod
    def of(cls, windows: AnyWindows) -> RowWindows:
        advance_ms = windows.advance_ms if isinstance(windows, TimeWindows) else None
        return cls(meaning=MEANINGS[type(windows)], advance_ms=advance_ms)


def closes_after_ms(windows: TimeWindows | SlidingWindows) -> int:
    """How far behind the start of a window stream time is when the window is closed. The end of a sliding one is in it."""
    return windows.size_ms + windows.grace_ms + (1 if isinstance(windows, SlidingWindows) else 0)


def misread_windows(before: RowWindows | None, after: RowWindows | None) -> str:
    """Why the rows of one version would be misread by another one; empty if they would not be, or if nobody can tell."""
    return "" if before is None or after is None else misread_meaning(before.meaning, after.meaning)


def misread_meaning(before: str, after: str) -> str:
    """Why rows with windows of one meaning are none with another; empty if they are, or if one is not known here."""
    was, now = _IN_WORDS.get(before), _IN_WORDS.get(after)
    if was == now or was is None or now is None:
        return ""
    return f"rows of {was} would be taken for rows of {now}: give the new store another name"


def partial_windows(before: RowWindows | None, after: RowWindows | None) -> str:
    """What is to be said of windows that begin at other times than before; empty if all of them did before, too."""
    if before is None or after is None or before.advance_ms is None or after.advance_ms is None:
        return ""
    if after.advance_ms % before.advance_ms == 0:
        return ""
    return (
        f"its windows begin every {after.advance_ms} ms instead of every {before.advance_ms} ms: new ones that have begun "
        "before the new version starts lack the earlier records"
    )
