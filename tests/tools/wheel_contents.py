"""``python -m tests.tools.wheel_contents [--native] dist/*.whl``: what a wheel must have. ``make dist`` runs it.

Its licence, with the text of the repository; where the project is at home; the Pythons that it is tested with; the types;
the command; the data of ``streamsrt demo``. Everything that is missing is named.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

from tests.tools.native import SOURCES

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = ("streamsrt", "topology", "coordinator")
COMMAND = "streamsrt = streamsrt.cli:main"
DEMO = "streamsrt/cli/demo"
DATA = tuple(f"{DEMO}/data/{file.name}" for file in sorted((ROOT / DEMO / "data").iterdir()))


def missing(wheel: Path, *, native: bool = False) -> Iterator[str]:
    """One text for each thing that the wheel lacks. ``native``: it has the loops in C, which others don't have."""
    for module in SOURCES:
        if native != any(name.startswith(module) for name in ZipFile(wheel).namelist()):
            yield f"{module} in C" if native else f"nothing, but has {module} in C"
    if native == wheel.name.endswith("-py3-none-any.whl"):
        yield f"a name that tells whether it is pure Python: {wheel.name}"
    with ZipFile(wheel) as files:
        names = set(files.namelist())
        folder = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        metadata = BytesParser().parsebytes(files.read(f"{folder}/METADATA"))
        licence = f"{folder}/licenses/LICENSE"
        if licence not in names or files.read(licence) != (ROOT / "LICENSE").read_bytes():
            yield "the text of LICENSE"
        commands = files.read(f"{folder}/entry_points.txt").decode() if f"{folder}/entry_points.txt" in names else ""
        if COMMAND not in commands.splitlines():
            yield f"the command {COMMAND}"
    yield from _missing_metadata(metadata)
    yield from (f"{name}/py.typed" for name in PACKAGES if f"{name}/py.typed" not in names)
    yield from (name for name in DATA if name not in names)


def _missing_metadata(metadata: Message) -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    expected = {
        "Version": [project["version"]],
        "License-Expression": ["Apache-2.0"],
        "Requires-Python": [f">={PYTHONS[0]}"],
        "Project-URL": [f"{name}, {url}" for name, url in project["urls"].items()],
        "Classifier": [f"Programming Language :: Python :: {version}" for version in PYTHONS],
    }
    for field, values in expected.items():
        found = metadata.get_all(field, [])
        yield from (f"{field}: {value}" for value in values if value not in found)


def main(wheels: list[str]) -> int:
    """Tells what each of them lacks; 1 where that is anything."""
    native = "--native" in wheels
    wheels = [name for name in wheels if name != "--native"]
    lacks = [f"{name} lacks {text}" for name in wheels for text in missing(Path(name), native=native)]
    print("\n".join(lacks) or f"{len(wheels)} wheels have all that is needed")
    return 1 if lacks or not wheels else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
