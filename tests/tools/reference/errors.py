"""Every exception that the code defines, out of its classes."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from streamsrt.cli import INTERRUPTED
from streamsrt.cli.early_stop import TERMINATED
from tests.tools.reference.source import GENERATED, docstring_of, markdown, modules, page, table, tree_of

ROOTS = ("topology", "streamsrt")
FAMILIES = (
    "TopologyError",
    "UserError",
    "BrokerError",
    "StateError",
    "RecordError",
    "MembershipError",
    "ApplicationShutdownError",
    "InvalidStateStoreError",
)
"""The errors from which the sections take their names; :class:`StreamsError` has what belongs to none of them."""
_WHOSE_FAULT = {
    "TopologyError": "the program",
    "UserError": "the program, its settings or its environment",
    "BrokerError": "the cluster or the network",
    "StateError": "the state directory",
    "RecordError": "a record, or the function that handles it",
    "MembershipError": "the group: another member has taken over, or it refuses this one",
    "ApplicationShutdownError": "another instance",
    "InvalidStateStoreError": "a query that can't be answered, or not now",
}


class Error(NamedTuple):
    """An exception class. ``exit_code`` None: it has none of its own."""

    name: str
    module: str
    base: str
    docstring: str
    exit_code: int | None


@cache
def errors() -> Mapping[str, Error]:
    """The public exception classes of the client by name."""
    classes = {
        node.name: Error(node.name, module, ast.unparse(node.bases[0]), docstring_of(node), _exit_code(node))
        for module in modules(*ROOTS)
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef) and node.bases and not node.name.startswith("_")
    }
    return {name: error for name, error in classes.items() if _is_error(error, classes)}


def _is_error(error: Error, classes: Mapping[str, Error]) -> bool:
    if error.base in classes:
        return _is_error(classes[error.base], classes)
    base = getattr(builtins, error.base, None)
    return error.base == "GreenletExit" or (isinstance(base, type) and issubclass(base, BaseException))


def _exit_code(node: ast.ClassDef) -> int | None:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "exit_code":
            found = ast.literal_eval(statement.value)
            assert isinstance(found, int)
            return found
    return None


def exit_code(error: Error) -> int:
    """Its own, or that of what it is derived from."""
    if error.exit_code is not None:
        return error.exit_code
    return exit_code(errors()[error.base])


def lineage(error: Error) -> list[str]:
    """Its name and those of what it is derived from, up to the root."""
    above = errors().get(error.base)
    return [error.name, *(lineage(above) if above else ())]


def family(error: Error) -> str | None:
    """The section that it is in; None for what stays inside the runtime."""
    names = lineage(error)
    found = next((name for name in names if name in FAMILIES), None)
    return found or ("StreamsError" if "StreamsError" in names else None)


def errors_page() -> str:
    """The page of all errors."""
    sections = {
        name: [each for each in errors().values() if family(each) == name] for name in (*FAMILIES, "StreamsError")
    }
    inside = [each for each in errors().values() if family(each) is None]
    return page(
        "# Errors",
        GENERATED,
        "The message of an error says what happened, where, and what to do next. The command line prints it without a "
        "traceback and ends with the error's exit code. In Python, catch the class for which you have a remedy; all but "
        "`TopologyError` are `streamsrt.StreamsError`.",
        "## Exit codes",
        table(["code", "cause", "errors"], _codes()),
        "`streamsrt run` and `KafkaStreams` have these codes; a few commands have [codes of their own](commands.md).",
        *(part for name, found in sections.items() for part in _section(name, found)),
        "## Inside the runtime",
        "These are raised and handled inside. They appear in tracebacks of defects, and in programs that use the packages "
        "below the public ones.",
        table(
            ["error", "module", "meaning"], ([f"`{e.name}`", f"`{e.module}`", markdown(e.docstring)] for e in inside)
        ),
    )


def _codes() -> Iterator[list[str]]:
    families: dict[int, list[str]] = {}
    for name in FAMILIES:
        families.setdefault(exit_code(errors()[name]), []).append(name)
    yield ["0", "done", ""]
    for code, names in sorted(families.items()):
        own = [
            e.name
            for e in errors().values()
            if e.exit_code == code and e.name not in FAMILIES and e.name != "StreamsError"
        ]
        causes = "; ".join(_WHOSE_FAULT[name] for name in names)
        if code == 1:
            causes = f"unforeseen; {causes}"
        yield [str(code), causes, ", ".join(f"`{name}`" for name in [*names, *own])]
    yield [str(INTERRUPTED), "interrupted (Ctrl-C)", "`KeyboardInterrupt`"]
    yield [str(TERMINATED), "`--until quiet`, and SIGTERM before all available input was processed", ""]


def _section(name: str, found: Iterable[Error]) -> Iterator[str | list[str]]:
    root = errors()[name]
    title = "Other errors" if name == "StreamsError" else name
    yield f"## {title}"
    told = f" Exit code {exit_code(root)}." if name != "StreamsError" else ""
    yield f"`{name}`: {markdown(root.docstring)}{told}"
    rows = sorted((each for each in found if each.name != name), key=lambda each: lineage(each)[::-1])
    if rows:
        yield table(["error", "exit code", "what happened, and what to do"], map(_row, rows))


def _row(error: Error) -> list[str]:
    above = [name for name in lineage(error)[1:] if name not in (*FAMILIES, "StreamsError")]
    kind = f", a `{above[0]}`" if above else ""
    return [f"`{error.name}`{kind}<br>`{error.module}`", str(exit_code(error)), markdown(error.docstring)]
