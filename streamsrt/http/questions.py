"""The parameters of a request: which of them each path has, and what they mean.

A parameter that a path does not have is refused: without it, the answer would be that of another question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import orjson

from streamsrt.errors import UserError
from streamsrt.queries.values import LATEST_MS, Position, PositionBound

Params: TypeAlias = Mapping[str, str]

LIMIT_ROWS = 1_000
SHOWN_MAX = 100
"""So much of a wrong value is shown."""

_ANSWERING = ("partition", "position", "stale")
_ROWS = ("limit", "reverse", *_ANSWERING)
_TIMES = ("from", "to", *_ROWS)
PARAMETERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "/": (),
        "/stores": (),
        "/stores/{store}/keys/{key:key}": ("as_of", *_ANSWERING),
        "/stores/{store}/versions/{key:key}": _TIMES,
        "/stores/{store}/windows/{key:key}": _TIMES,
        "/stores/{store}/sessions/{key:key}": _TIMES,
        "/stores/{store}/range": ("from", "to", "prefix", *_ROWS),
        "/stores/{store}/windows": _TIMES,
        "/stores/{store}/sessions": ("from", *_ROWS),
        "/metadata": (),
        "/tasks": (),
        "/topology": ("format",),
        "/upgrade": (),
    }
)
"""Without probes and metrics: their answers depend on no parameter, and a probe must not fail for one."""


def shown_path(path: str) -> str:
    """A path of a route as documents and messages have it."""
    return path.replace("{store}", "STORE").replace("{key:key}", "KEY")


def parameters(path: str, given: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The parameters of a request of that path. Raises UserError for one that is unknown there, or that comes twice."""
    known = PARAMETERS[path]
    times = Counter(name for name, _ in given)
    unknown = [name for name in times if name not in known]
    if unknown:
        names = ", ".join(map(repr, unknown))[:SHOWN_MAX]
        takes = f"the parameters {', '.join(known)}" if known else "no parameters"
        raise UserError(f"unknown parameters: {names}. {shown_path(path)} takes {takes}")
    twice = [name for name, number in times.items() if number > 1]
    if twice:
        raise UserError(f"{', '.join(twice)}: given several times, give it once")
    return dict(given)


@dataclass(frozen=True, slots=True)
class Question:
    """The parameters of a query. ``params`` are forwarded to other instances."""

    params: Params
    forwarded: bool
    stale: bool
    bound: PositionBound
    partitions: tuple[int, ...] | None
    limit: int
    reverse: bool

    @classmethod
    def of(cls, params: Params, *, forwarded: bool, max_rows: int) -> Question:
        """Parses the parameters. ``max_rows``: the maximum number of rows of a response, whatever the limit is. Raises
        UserError."""
        return cls(
            params,
            forwarded,
            _flag(params, "stale"),
            _bound(params),
            tuple(dict.fromkeys(_numbers(params, "partition"))) or None,
            min(number_of(params, "limit", LIMIT_ROWS), max_rows),
            _flag(params, "reverse"),
        )


def _flag(params: Params, name: str) -> bool:
    text = params.get(name, "false").lower()
    if text not in ("true", "false", "1", "0", ""):
        raise UserError(f"{name}={text}: give true or false")
    return text not in ("false", "0")


def number_of(params: Params, name: str, default: int) -> int:
    """A parameter that is a number. Raises UserError."""
    text = params.get(name, str(default))
    number = _whole(text)
    if number is None:
        raise UserError(f"{name}={text[:SHOWN_MAX]}: give a number from 0 to {LATEST_MS}")
    return number


def _numbers(params: Params, name: str) -> list[int]:
    numbers = [_whole(part) for part in params.get(name, "").split(",") if part]
    found = [number for number in numbers if number is not None]
    if len(found) < len(numbers):
        raise UserError(f"{name}={params[name][:SHOWN_MAX]}: give a number, or several with commas between them")
    return found


def _whole(text: str) -> int | None:
    """Parses a number; None if it is not a number of 64 bits."""
    if not text.isascii() or not text.isdigit() or len(text) > len(str(LATEST_MS)):
        return None
    number = int(text)
    return number if number <= LATEST_MS else None


def _bound(params: Params) -> PositionBound:
    text = params.get("position", "")
    try:
        return PositionBound.at(Position.from_json(orjson.loads(text))) if text else PositionBound.unbounded()
    except (ValueError, TypeError, AttributeError):
        raise UserError(
            f'position={text[:SHOWN_MAX]}: give the position of an earlier response, such as {{"topic":{{"0":17}}}}'
        ) from None
