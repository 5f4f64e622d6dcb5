"""Reads the settings of groups: tables of Kafka's names, with defaults and bounds, and one message for each mistake."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple

INT32_MAX = 2147483647


class InvalidConfigError(ValueError):
    """A configuration error: a setting is unknown, or its value is not allowed; the message says which and why."""


class Setting(NamedTuple):
    """A broker setting: its attribute, its default and, if it is a number, its bounds."""

    attribute: str
    default: int | str | None
    low: int = 0
    high: int = INT32_MAX
    documentation: str = ""


Settings = Mapping[str, Setting]
Ranges = Mapping[str, tuple[str, str]]
"""Attribute -> attributes of its least and its greatest value."""


def numbers_of(table: Settings, settings: Mapping[str, str]) -> dict[str, int]:
    """Returns by attribute the value of every numeric setting of the table. Raises InvalidConfigError."""
    found: dict[str, int] = {}
    for name, setting in table.items():
        if isinstance(setting.default, int):
            number = integer(name, settings[name]) if name in settings else setting.default
            if not setting.low <= number <= setting.high:
                raise InvalidConfigError(
                    f"Invalid value {number} for configuration {name}: it must be in {setting.low} to {setting.high}."
                )
            found[setting.attribute] = number
    return found


def check_ranges(table: Settings, ranges: Ranges, numbers: Mapping[str, int]) -> None:
    """Raises InvalidConfigError for a value outside of the range given by two other settings, or if these contradict."""
    names = {setting.attribute: name for name, setting in table.items()}
    for attribute, (least, most) in ranges.items():
        if numbers[least] > numbers[most]:
            raise InvalidConfigError(
                f"{names[least]} ({numbers[least]}) must not be greater than {names[most]} ({numbers[most]})."
            )
        if not numbers[least] <= numbers[attribute] <= numbers[most]:
            raise InvalidConfigError(
                f"{names[attribute]} is {numbers[attribute]}, but must be in the range {numbers[least]} "
                f"({names[least]}) to {numbers[most]} ({names[most]})."
            )


def integer(name: str, value: str) -> int:
    try:
        return int(value.strip())
    except ValueError:
        raise InvalidConfigError(f"Invalid value {value} for configuration {name}: Not a number of type INT") from None


def nearest(name: str, known: Mapping[str, object]) -> str:
    """Returns a hint at the name that was probably meant, or nothing."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f" Did you mean {close[0]}?" if close else ""
