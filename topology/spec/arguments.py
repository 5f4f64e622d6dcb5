"""Refuses arguments of a wrong type, with the line of the program and the expected type.

1. The annotations of a method decide which types are valid, so a new operator is checked without further code.
2. Only the type of an argument is checked. The operators check the rest themselves (:data:`JUDGED`: the parameters of
   functions, durations, windows).
3. Unknown, superfluous and missing arguments are refused, too.
4. Only calls that build a topology are checked. Nothing is checked while records are processed.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import FunctionType
from typing import Any, NoReturn

from topology.spec.codecs import is_serde, serde_meant
from topology.spec.errors import IllegalNameError, TopologyError, call_site

JUDGED = frozenset(
    {
        "AnyWindows",
        "Awaitable",
        "Callable",
        "Duration",
        "Function",
        "ProcessorSupplier",
        "EmitStrategy",
        "JoinWindows",
        "KGroupedStream",
        "KStream",
        "KTable",
        "Of",
        "OffsetReset",
        "Output",
        "Partitioner",
        "Predicate",
        "TimeWindows",
        "TimestampExtractor",
        "TopicExtractor",
    }
)
"""The types that the operators themselves test, by their names in annotations."""

ALIASES = {
    "AnySerde": "Serde | None",
    "Frame": "Literal['arrow', 'pandas']",
    "How": "Literal['inner', 'left']",
    "JoinStores": "str | Store | tuple | None",
    "Names": "str | Iterable",
    "Topics": "str | Iterable | re.Pattern",
    "WhenFull": "Literal['emit_early', 'shut_down']",
}

_BUILT_IN: dict[str, tuple[str, Callable[[object], bool]]] = {
    "Iterable": ("a list", lambda value: isinstance(value, Iterable) and not isinstance(value, str)),
    "Mapping": ("a dict", lambda value: isinstance(value, Mapping)),
    "None": ("", lambda value: value is None),
    "Serde": ("a serde such as serdes.string", is_serde),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int": ("an int", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "re.Pattern": ("a compiled pattern", lambda value: isinstance(value, re.Pattern)),
    "str": ("a str", lambda value: isinstance(value, str)),
    "tuple": ("a tuple", lambda value: isinstance(value, tuple)),
}
_NAMES = {"name"}
_ENDS = {"[": 1, "(": 1, "]": -1, ")": -1}


def alternatives(annotation: str) -> tuple[str, ...]:
    """The types that an annotation names, each without its parameters; Literals whole."""
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(annotation):
        depth += _ENDS.get(letter, 0)
        if letter == "|" and not depth:
            parts.append(annotation[begin:index])
            begin = index + 1
    heads: list[str] = []
    for part in (*parts, annotation[begin:]):
        head = part.strip() if part.strip().startswith("Literal[") else part.partition("[")[0].strip()
        heads += alternatives(ALIASES[head]) if head in ALIASES else [head]
    return tuple(heads)


Savepoint = Callable[[object], Callable[[], None]]
"""Of the object whose method is called: what to call if that raises."""


def check_arguments_of(*kinds: type, savepoint: Savepoint) -> None:
    """Lets the public methods of classes, and the constructors of those that a program makes, refuse wrong arguments."""
    for kind in kinds:
        for own in kind.__mro__:
            if own.__module__.partition(".")[0] == "topology":
                for name, method in list(vars(own).items()):
                    if name == "__init__" and own is kind and not _is_internal(method):
                        setattr(own, name, _checked(method, kind.__name__, savepoint))
                    elif not name.startswith("_"):
                        _check_method(own, name, method, savepoint)
        if not hasattr(kind, "__getattr__"):
            setattr(kind, "__getattr__", _refuse_attribute)  # noqa: B010  # mypy would believe that it has every attribute


def _refuse_attribute(self: object, name: str) -> NoReturn:
    """``__getattr__`` of these classes: names the attribute that may be meant."""
    known = [] if name.startswith("_") else [each for each in dir(type(self)) if not each.startswith("_")]
    meant = [] if name in known else difflib.get_close_matches(name, known, n=1)
    question = f": did you mean {meant[0]!r}?" if meant else ""
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{question}")


def _check_method(kind: type, name: str, method: object, savepoint: Savepoint) -> None:
    if isinstance(method, FunctionType):
        setattr(kind, name, _checked(method, name, savepoint))
    elif isinstance(method, classmethod) and isinstance(method.__func__, FunctionType):
        setattr(kind, name, classmethod(_checked(method.__func__, name, savepoint)))


def _is_internal(constructor: Any) -> bool:
    """Whether what the constructor takes is made by this package alone."""
    parameters = list(inspect.signature(constructor).parameters)
    return bool({"members", "plan", "planned", "wait_ms"} & set(parameters))


def _checked(function: Callable[..., Any], called: str, savepoint: Savepoint) -> Callable[..., Any]:
    """The function, which refuses arguments that its annotations exclude, and takes back what it did if it raises."""
    if hasattr(function, "__wrapped__"):
        return function
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    expected = {each.name: alternatives(str(each.annotation)) for each in parameters if _is_told(each)}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in chain(zip(positional, args, strict=False), kwargs.items()):
            types = expected.get(name)
            if types is not None and not any(_fits(value, each) for each in types):
                error = IllegalNameError if name in _NAMES else TopologyError
                raise error(_refusal(called, name, value, types), call_site())
        take_back = savepoint(args[0] if args else None)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            take_back()
            reason = _mismatch(signature, args, kwargs) if isinstance(error, TypeError) else ""
            if not reason:
                raise
        raise TopologyError(f"{called}() {reason}", call_site())

    return call


def _mismatch(signature: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """Why a call can't be one of a function with that signature; empty where it can."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [name for name in kwargs if name not in signature.parameters]
        meant = difflib.get_close_matches(unknown[0], list(signature.parameters), n=1) if unknown else []
        if meant:
            return f"{error}: did you mean {meant[0]!r}?"
        return f"{error}{_instead(signature, args)}"
    return ""


def _instead(signature: inspect.Signature, args: tuple[object, ...]) -> str:
    """How to give what came after the last positional argument."""
    by_place = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    by_name = [name for name, each in signature.parameters.items() if each.kind is each.KEYWORD_ONLY]
    more = args[len(by_place) :]
    if not more:
        return ""
    if by_place and by_place[-1] == "topics" and all(isinstance(each, str) for each in more):
        return f": give several topics as a list, {[args[len(by_place) - 1], *more]!r}"
    return f": these are given by name: {', '.join(f'{name}=' for name in by_name)}" if by_name else ""


def _is_told(parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_POSITIONAL:
        return False
    return not JUDGED & set(alternatives(str(parameter.annotation))) and parameter.annotation != "Any"


def _fits(value: object, kind: str) -> bool:
    if kind in _BUILT_IN:
        return _BUILT_IN[kind][1](value)
    if kind.startswith("Literal["):
        return isinstance(value, str)
    return any(each.__name__ == kind for each in type(value).__mro__)


def _choices(literal: str) -> tuple[str, ...]:
    """``Literal['a', 'b']``: the values."""
    found: Any = ast.literal_eval(f"({literal.removeprefix('Literal[').removesuffix(']')},)")
    return tuple(found)


def _words(kind: str) -> str:
    if kind in _BUILT_IN:
        return _BUILT_IN[kind][0]
    if kind.startswith("Literal["):
        return " or ".join(map(repr, _choices(kind)))
    return f"a {kind}"


def _refusal(called: str, argument: str, value: object, types: tuple[str, ...]) -> str:
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:77]}..."
    wanted = " or ".join(filter(None, map(_words, types)))
    hint = serde_meant(value) if "Serde" in types else ""
    if "Iterable" in types and isinstance(value, str):
        hint = f": write {argument}=[{value!r}]"
    return f"{called}() takes {wanted} as {argument}, not {shown}{hint}"
