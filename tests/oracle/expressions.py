"""The little language in which the oracle's cases write the user's functions.

JSON: a list is a call, all else is itself; ``["k"]`` is a variable where the environment has one of that name.
Arithmetic is Java's: 64-bit, wrapping, or double where one side is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topology import Windowed

Environment = dict[str, Any]
Extension = Callable[[str, list[Any]], Any]

I64 = 1 << 64


class ExpressionError(Exception):
    """What the expression ``throw`` raises."""


def text(value: Any) -> str:
    """What Java's String.valueOf gives; bytes in hex, windowed keys with their bounds."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Windowed):
        return f"[{text(value.key)}@{value.start_ms}/{value.end_ms}]"
    return str(value)


def wrap(value: int) -> int:
    return (value + I64 // 2) % I64 - I64 // 2


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if isinstance(left, float) or isinstance(right, float):
            return function(float(left), float(right))
        return wrap(function(int(left), int(right)))

    return apply


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def _substring(value: str, start: int, end: int) -> str:
    low, high = min(start, len(value)), min(end, len(value))
    return value[low : max(low, high)]


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else len(text(value).encode("utf-16-le")) // 2


def _throw(message: Any) -> Any:
    raise ExpressionError(text(message))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": _arithmetic(lambda left, right: left + right),
    "-": _arithmetic(lambda left, right: left - right),
    "*": _arithmetic(lambda left, right: left * right),
    "%": lambda left, right: int(left) % int(right),
    "min": lambda left, right: min(int(left), int(right)),
    "max": lambda left, right: max(int(left), int(right)),
    "cat": lambda *values: "".join(map(text, values)),
    "upper": str.upper,
    "lower": str.lower,
    "len": _length,
    "str": text,
    "long": int,
    "int": int,
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    ">": lambda left, right: int(left) > int(right),
    "<": lambda left, right: int(left) < int(right),
    "not": lambda value: value is not True,
    "null?": lambda value: value is None,
    "starts": str.startswith,
    "sub": _substring,
    "split": lambda value, separator: value.split(separator) if value else [],
    "replace": str.replace,
    "remove_first": lambda value, old: value.replace(old, "", 1),
    "nth": lambda values, index: values[index],
    "list": lambda *values: list(values),
    "hex": bytes.fromhex,
    "w_key": lambda windowed: windowed.key,
    "w_start": lambda windowed: windowed.start_ms,
    "w_end": lambda windowed: windowed.end_ms,
    "throw": _throw,
}


def evaluate(expression: Any, environment: Environment, extension: Extension | None = None) -> Any:
    """The value of an expression. ``extension`` knows the functions that only scripted processors have."""
    if not isinstance(expression, list):
        return expression
    name = expression[0]
    if len(expression) == 1 and name in environment:
        return environment[name]
    if name == "if":
        taken = expression[2] if evaluate(expression[1], environment, extension) is True else expression[3]
        return evaluate(taken, environment, extension)
    if name in ("and", "or"):
        truths = (evaluate(operand, environment, extension) is True for operand in expression[1:])
        return all(truths) if name == "and" else any(truths)
    arguments = [evaluate(operand, environment, extension) for operand in expression[1:]]
    if name in FUNCTIONS:
        return FUNCTIONS[name](*arguments)
    if extension is None:
        raise KeyError(f"no function {name!r} in expressions")
    return extension(name, arguments)


def truth(expression: Any, environment: Environment, extension: Extension | None = None) -> bool:
    return evaluate(expression, environment, extension) is True
