"""Classes whose fields are settings: each value is converted to the type of its field, and checked.

pydantic does more than that, and an application that has no models of its own would load it only for this: 12 MB of memory
in each process, and 0.1 s of each start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from inspect import get_annotations
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

V = TypeVar("V")
Reader = Callable[[object], object]
"""Makes a value of what was given. ValueError says what it expected, after the name and a colon."""

_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0*)?")
_TRUE, _FALSE = ("true", "1", "yes", "on", "t", "y"), ("false", "0", "no", "off", "f", "n")


@dataclass(frozen=True, slots=True)
class CheckedField:
    """A field: what it takes, and what it is if nothing is given.

    ``is_shown``: whether its value may be printed. ``at_least`` and ``at_most`` are bounds of numbers, the others of texts.
    ``otherwise``: what a text is that does not match the pattern, after its name.
    """

    read: Reader
    default: object
    is_required: bool
    is_shown: bool
    at_least: int | None
    at_most: int | None
    min_length: int
    max_length: int | None
    pattern: str | None
    otherwise: str

    def value_of(self, key: str, given: object) -> object:
        """The value that was given, converted. ValueError that names the key for one of another type or out of bounds."""
        try:
            value = self.read(given)
            if isinstance(value, str):
                self._check_text(value)
            elif isinstance(value, int) and not isinstance(value, bool):
                self._check_number(value)
        except ValueError as error:
            raise ValueError(f"{key}={repr(given) if self.is_shown else '(not shown)'}{error}") from None
        return value

    def _check_number(self, value: int) -> None:
        if self.at_least is not None and value < self.at_least:
            raise ValueError(f": must be at least {self.at_least}")
        if self.at_most is not None and value > self.at_most:
            raise ValueError(f": must be at most {self.at_most}")

    def _check_text(self, value: str) -> None:
        if len(value) < self.min_length:
            raise ValueError(": must not be empty")
        if self.max_length is not None and len(value) > self.max_length:
            raise ValueError(f": must have at most {self.max_length} characters")
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise ValueError(f" {self.otherwise}")


@dataclass(frozen=True, slots=True)
class _Declared:
    """What :func:`bounded` was given, until the class exists."""

    default: object
    bounds: Mapping[str, object]
    is_required: bool = False


def bounded(
    *,
    default: object = ...,
    at_least: int | None = None,
    at_most: int | None = None,
    min_length: int = 0,
    max_length: int | None = None,
    pattern: str | None = None,
    otherwise: str = "",
    is_shown: bool = True,
) -> Any:
    """A field of :class:`CheckedFields` with bounds, or that must be given, without a default; see :class:`CheckedField`."""
    bounds = {
        "at_least": at_least,
        "at_most": at_most,
        "min_length": min_length,
        "max_length": max_length,
        "pattern": pattern,
        "otherwise": otherwise,
        "is_shown": is_shown,
    }
    return _Declared(None if default is ... else default, bounds, default is ...)


# ------------------------------------------------------------------------------------------------------------- readers


def whole_number(given: object) -> int:
    """A number, also as text, or as a float without a fraction."""
    if isinstance(given, str):
        digits = _WHOLE_NUMBER.fullmatch(given.strip())
        if digits is not None and len(given) <= 1_000:
            return int(digits[1])
    elif isinstance(given, int) or (isinstance(given, float) and given.is_integer()):
        return int(given)
    raise ValueError(": expected a whole number")


def milliseconds(given: object) -> int:
    """The same, or a duration."""
    if isinstance(given, timedelta):
        return round(given.total_seconds() * 1000)
    try:
        return whole_number(given)
    except ValueError:
        raise ValueError(": expected a whole number of milliseconds, or a timedelta") from None


def text_as_given(given: object) -> str:
    if isinstance(given, str):
        return given
    raise ValueError(f": expected a text, not an object of type {type(given).__name__}")


def text(given: object) -> str:
    return text_as_given(given).strip()


def yes_or_no(given: object) -> bool:
    word = given.strip().lower() if isinstance(given, str) else given
    if word in (True, *_TRUE):
        return True
    if word in (False, *_FALSE):
        return False
    raise ValueError(": expected true or false")


def path(given: object) -> Path:
    if isinstance(given, str):
        return Path(given)
    if isinstance(given, PathLike):
        return Path(given)
    raise ValueError(": expected a path")


def anything(given: object) -> object:
    return given


_OF_TYPES: Mapping[object, Reader] = {
    int: whole_number,
    str: text,
    bool: yes_or_no,
    Path: path,
    Any: anything,
    dict: anything,
}


def _one_of(choices: tuple[object, ...]) -> Reader:
    def read(given: object) -> object:
        if isinstance(given, str) and given in choices:
            return given
        raise ValueError(f": expected one of {', '.join(map(repr, choices))}")

    return read


def _reader_of(annotation: object) -> Reader:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        read: Reader = arguments[1]
        return read
    if origin is Literal:
        return _one_of(arguments)
    if origin is UnionType:  # with None
        inner = _reader_of(arguments[0])
        return lambda given: None if given is None else inner(given)
    return _OF_TYPES[annotation if origin is None else origin]


# ------------------------------------------------------------------------------------------------------------- classes


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(bounded,))
class CheckedFields:
    """Values of settings, which do not change. Subclasses declare fields with types, and defaults or :func:`bounded`.

    A field of type ``Annotated[..., reader]`` is read by that function.
    """

    fields: ClassVar[Mapping[str, CheckedField]] = {}
    """The settings by their names."""
    given: frozenset[str]
    """Names of those that were given."""

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls.fields = {
            name: _declared(hints[name], cls.__dict__.get(name, ...))
            for name in get_annotations(cls)
            if get_origin(hints[name]) is not ClassVar
        }

    def __init__(self, **values: object) -> None:
        checked = self._checked(values)
        for name, each in self.fields.items():
            self.__dict__[name] = checked.get(name, each.default)
        self.__dict__["given"] = frozenset(checked)
        self._check_together()

    def _checked(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """What was given, by the names of fields, each converted and checked. Raises what subclasses raise."""
        return values

    def _check_together(self) -> None:
        """Raises what subclasses raise for values that do not go together."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} does not change: {name} can't be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} does not change: {name} can't be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.fields)

    __hash__ = None  # type: ignore[assignment]  # some values are dicts

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name, each in self.fields.items() if each.is_shown)
        return f"{type(self).__name__}({', '.join(shown)})"


def _declared(annotation: object, written: object) -> CheckedField:
    declared = written if isinstance(written, _Declared) else bounded(default=written)
    return CheckedField(
        read=_reader_of(annotation), default=declared.default, is_required=declared.is_required, **declared.bounds
    )
