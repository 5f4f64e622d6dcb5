"""``streamsrt init``: a new project."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from streamsrt.cli.output import note
from streamsrt.cli.project_files import files_of, module_of
from streamsrt.cli.topology_versions import version_of
from streamsrt.errors import ConfigError
from streamsrt.runtime.topology_lock import LOCK_FILE, write_lock

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAMES_TAKEN = {"coordinator", "pytest", "streamsrt", "test", "tests", "topology"}


def _other_meaning(module: str) -> str:
    """What else has the name of a package; empty if nothing has."""
    if keyword.iskeyword(module):
        return "a keyword of Python"
    if module in sys.stdlib_module_names:
        return "a module of Python's standard library"
    loaded = sys.modules.get(module)
    found = importlib.util.find_spec(module) if loaded is None else loaded.__spec__
    folders = {sysconfig.get_path(each) for each in ("purelib", "platlib")}
    if found is not None and any(str(found.origin).startswith(f"{each}{os.sep}") for each in folders):
        return "a package that is installed here"
    return ""


def init(
    name: Annotated[str, typer.Argument(help="name of the project, its directory and its application")],
    directory: Annotated[
        Path | None, typer.Option("--dir", help="where to write it (default: a directory of that name)")
    ] = None,
) -> None:
    """Write a project: application, tests, Dockerfile, compose file with Apache Kafka, CI workflow.

    The directory must be new or empty.
    """
    if _NAME.fullmatch(name) is None or module_of(name) in _NAMES_TAKEN:
        raise ConfigError(
            f"{name!r} can't be a project's name: give lower-case letters, digits and hyphens, as in page-views, and none "
            "of " + ", ".join(sorted(_NAMES_TAKEN))
        )
    if what := _other_meaning(module_of(name)):
        raise ConfigError(
            f"{name!r} can't be a project's name: its package would be called {module_of(name)}, and that is {what}. Give "
            "another one, such as my-" + name
        )
    folder = Path(name) if directory is None else directory
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} already exists and is not empty: give another name, or --dir another directory")
    for path, text in files_of(name).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    write_lock(folder / LOCK_FILE, version_of(f"{folder / module_of(name) / 'app.py'}:topology", {}))
    note(f"project {name} is in {folder}: see its README.md for how to test and run it")
