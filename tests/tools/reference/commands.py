"""The command line, out of typer's tree of commands, and the broker's own out of its parser."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo, ParameterInfo

from streamsrt.cli.entry import COMMANDS
from tests.tools.reference.source import GENERATED, page, plain, table, tree_of

_TYPES: dict[object, str] = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


class Command(NamedTuple):
    """A command as it is typed, and what it runs."""

    name: str
    call: Callable[..., object]
    help: str


def commands() -> Iterator[Command]:
    """Every command, in the order of ``streamsrt --help``."""
    for name, command in COMMANDS.items():
        found = getattr(importlib.import_module(f"streamsrt.cli.{command.module}"), command.attribute)
        if isinstance(found, typer.Typer):
            yield from _below(name, found)
        else:
            yield Command(name, found, inspect.getdoc(found) or command.help)


def _below(name: str, app: typer.Typer) -> Iterator[Command]:
    for each in app.registered_commands:
        assert each.callback is not None
        own = each.name or each.callback.__name__.replace("_", "-")
        yield Command(f"{name} {own}", each.callback, each.help or inspect.getdoc(each.callback) or "")
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from _below(f"{name} {group.name}", group.typer_instance)


def commands_page() -> str:
    """The page of all commands."""
    return page(
        "# Commands",
        GENERATED,
        "`streamsrt --help` and `streamsrt COMMAND --help` say the same. `streamsrt --version` shows the version. "
        "[Errors](errors.md#exit-codes) lists the exit codes; a command with exit codes of its own says so below.",
        table(["command", "what it does"], ([f"`{name}`", plain(each.help)] for name, each in COMMANDS.items())),
        *(part for command in commands() for part in _command(command)),
        "## python -m coordinator",
        "The bundled broker by itself, as a service runs it. `streamsrt broker` runs the same one.",
        table(["option", "default", "meaning"], _options_of_the_broker()),
    )


def _command(command: Command) -> Iterator[str | list[str]]:
    arguments, options = [], []
    for name, parameter in parameters(command.call):
        (options if isinstance(parameter.info, OptionInfo) else arguments).append((name, parameter))
    yield f"## {command.name}"
    yield from (plain(" ".join(paragraph.split())) for paragraph in command.help.split("\n\n"))
    words = [_placeholder(name, parameter) for name, parameter in arguments]
    yield f"    streamsrt {' '.join([command.name, *words, *(['[OPTIONS]'] if options else [])])}"
    if arguments:
        yield table(
            ["argument", "default", "meaning"],
            ([f"`{each[0].upper()}`", _default(each[1]), plain(each[1].info.help or "")] for each in arguments),
        )
    if options:
        yield table(["option", "default", "meaning"], (_option(*each) for each in options))


class Parameter(NamedTuple):
    """``default`` is ``inspect.Parameter.empty`` where the parameter must be given."""

    type: object
    info: ParameterInfo
    default: object


def parameters(call: Callable[..., object]) -> Iterator[tuple[str, Parameter]]:
    """The parameters of a command's function, by name."""
    hints = get_type_hints(call, include_extras=True)
    for name, parameter in inspect.signature(call).parameters.items():
        hint = hints[name]
        if hint is typer.Context:
            continue
        assert get_origin(hint) is Annotated, f"{call.__name__}: {name}"
        own, *extras = get_args(hint)
        info = next(each for each in extras if isinstance(each, ParameterInfo))
        yield name, Parameter(own, info, parameter.default)


def _placeholder(name: str, parameter: Parameter) -> str:
    text = name.upper() + ("..." if _is_many(parameter.type) else "")
    return text if parameter.default is inspect.Parameter.empty else f"[{text}]"


def _option(name: str, parameter: Parameter) -> list[str]:
    info = parameter.info
    assert isinstance(info, OptionInfo)
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    names = [*first, *(info.param_decls or ())]
    if _plain_type(parameter.type) is bool:
        names = names or [f"--{_dashed(name)}", f"--no-{_dashed(name)}"]
        shown = ", ".join(f"`{each}`" for each in names)
    else:
        names = names or [f"--{_dashed(name)}"]
        shown = ", ".join(f"`{each}`" for each in names) + f" {info.metavar or _type_text(parameter.type)}"
    notes = [plain(info.help or "")]
    if _is_many(parameter.type) and "repeatable" not in notes[0]:
        notes.append("Repeatable.")
    if info.envvar:
        notes.append(f"Environment: `{info.envvar}`.")
    bounds = _bounds(info)
    return [shown, _default(parameter), _joined([*notes, bounds])]


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _joined(notes: list[str]) -> str:
    texts = [note for note in notes if note]
    return " ".join(text if text.endswith(".") or text is texts[-1] else f"{text}." for text in texts)


def _bounds(info: ParameterInfo) -> str:
    if info.min is not None and info.max is not None:
        return f"From {info.min} to {info.max}."
    return f"At least {info.min}." if info.min is not None else ""


def _default(parameter: Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return "required"
    value = getattr(value, "value", value)
    return "" if value in (None, "", False, [], ()) or value is ... else f"`{_text(value)}`"


def _text(value: object) -> str:
    return (
        " ".join(map(str, value))
        if isinstance(value, list | tuple)
        else str(value).lower()
        if value is True
        else str(value)
    )


def _plain_type(hint: object) -> object:
    """Without None, and of a list what is in it."""
    inner = [each for each in get_args(hint) if each is not type(None)]
    if not inner or not (_is_many(hint) or type(None) in get_args(hint)):
        return hint
    return _plain_type(inner[0])


def _is_many(hint: object) -> bool:
    return get_origin(hint) in (list, tuple) or any(get_origin(each) in (list, tuple) for each in get_args(hint))


def _type_text(hint: object) -> str:
    inner = _plain_type(hint)
    members = getattr(inner, "__members__", None)
    if members is not None:
        return "\\|".join(str(each.value) for each in members.values())
    if get_origin(inner) is not None:
        return "\\|".join(map(str, get_args(inner)))
    return _TYPES.get(inner, "TEXT")


def _options_of_the_broker() -> Iterator[list[str]]:
    for node in ast.walk(tree_of("coordinator.server.main")):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        ):
            continue
        given = {each.arg: each.value for each in node.keywords}
        names = ", ".join(f"`{ast.literal_eval(each)}`" for each in node.args)
        if "metavar" in given:
            names += f" {ast.literal_eval(given['metavar'])}"
        default = ast.literal_eval(given["default"]) if "default" in given else None
        required = "required" if "required" in given else ""
        text = ast.literal_eval(given["help"]) if "help" in given else ""
        if "choices" in given:
            text += f" {', '.join(f'`{each}`' for each in ast.literal_eval(given['choices']))}"
        yield [names, f"`{default}`" if default else required, text.replace(" (default: %(default)s)", "").strip()]
