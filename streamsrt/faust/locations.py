"""Source locations of an application's parts."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from traceback import walk_tb
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

from topology.spec.errors import CallSite

if TYPE_CHECKING:
    import faust


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
    return str(site_of(function))


def site_of(function: Callable[..., object]) -> CallSite:
    """The same, as steps of a topology have it."""
    code = written(function).__code__
    return CallSite(code.co_filename, code.co_firstlineno)


NOT_OF_PROGRAM = (
    *("faust.", "mode.", "streamsrt.", "topology."),
    *("contextlib.", "functools.", "collections.", "_collections_abc.", "asyncio."),
)
"""How the names of modules begin that the user has not written."""


def is_of_program(frame: FrameType) -> bool:
    """Whether the user has written the code that runs there."""
    return not f"{frame.f_globals.get('__name__', '')}.".startswith(NOT_OF_PROGRAM)


def caller() -> str:
    """The line of the program that is being executed: ``file:line``, without the code of Faust and this project.

    Empty in a task whose own frames are others': what runs the event loop has not called it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_of_program(frame):
        if frame.f_globals.get("__name__") == "asyncio.events":
            return ""
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def raised_at(error: BaseException) -> str:
    """The line of the program that has raised it, or has called what did: ``file:line``; empty if none has."""
    locations = [
        f"{frame.f_code.co_filename}:{line}" for frame, line in walk_tb(error.__traceback__) if is_of_program(frame)
    ]
    return locations[-1] if locations else ""


def said(location: str) -> str:
    """A location in the middle of a sentence: `` (file:line)``."""
    return f" ({location})" if location else ""


def declared_at(wanted: object) -> str:
    """Where a program assigns an object, as far as that can be found: `` (file:line)``."""
    site = assigned_at(wanted)
    return "" if site is None else f" ({site})"


def assigned_at(wanted: object) -> CallSite | None:
    """The same, as steps of a topology have it; None where it is not found."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is wanted and (line := _assignment(module, name)):
                return CallSite(str(module.__file__), line)
    return None


def made_at(app: faust.App, name: str, methods: Collection[str]) -> CallSite | None:
    """Where a program calls one of these methods with that name first; None where no call or several do so."""
    found = [
        CallSite(str(module.__file__), node.lineno)
        for module in _modules_of(app)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods
        if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == name
    ]
    return found[0] if len(found) == 1 else None


def _modules_of(app: faust.App) -> Iterator[ModuleType]:
    """Those that know the application by a name."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and any(value is app for value in list(vars(module).values())):
            yield module


def _tree(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _assignment(module: object, name: str) -> int:
    try:
        text = inspect.getsource(module)  # type: ignore[arg-type]  # whatever stands among the modules
    except (OSError, TypeError):
        return 0
    found = re.search(rf"^{re.escape(name)}\s*[:=]", text, re.MULTILINE)
    return 0 if found is None else text.count("\n", 0, found.start()) + 1
