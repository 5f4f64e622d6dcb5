"""Where the parts of an application stand in its program."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType


def written(function: Callable[..., object]) -> FunctionType:
    """The function as the program has it, without what is around it: decorators, ``partial``, an object that is called."""
    plain: object = inspect.unwrap(function)
    while isinstance(plain, partial):
        plain = inspect.unwrap(plain.func)
    if isinstance(plain, MethodType):
        plain = plain.__func__
    if not isinstance(plain, FunctionType):
        plain = inspect.unwrap(type(plain).__call__)
    assert isinstance(plain, FunctionType)
    return plain


def line_of(function: Callable[..., object]) -> str:
    """Where a function of the program stands: ``file:line``."""
    code = written(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def declared_at(wanted: object) -> str:
    """Where a program assigns an object, as far as that can be found."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is wanted and (line := _assignment(module, name)):
                return f" ({module.__file__}:{line})"
    return ""


def _assignment(module: object, name: str) -> int:
    try:
        text = inspect.getsource(module)  # type: ignore[arg-type]  # whatever stands among the modules
    except (OSError, TypeError):
        return 0
    found = re.search(rf"^{re.escape(name)}\s*[:=]", text, re.MULTILINE)
    return 0 if found is None else text.count("\n", 0, found.start()) + 1
