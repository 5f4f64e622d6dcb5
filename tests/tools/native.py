"""``python -m tests.tools.native FOLDER``: compiles what setup.py compiles, into a folder, for tests and benchmarks.

With the folder on PYTHONPATH, this tree runs with it. Users build it into a wheel (docs/running.md).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

from streamsrt.wire import kernels
from topology.spec import model_reading

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    kernels.MODULE: ROOT / "streamsrt" / "wire" / "kernels.c",
    model_reading.MODULE: ROOT / "topology" / "spec" / "model_reading.c",
}
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers")


def missing_tools() -> str | None:
    """What is not there to compile it; None if all is."""
    if shutil.which("cc") is None:
        return "there is no C compiler (cc)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else f"{header} is missing, which comes with the development files of Python"


def compiled(folder: Path, name: str) -> Path:
    """The module of that name, compiled anew unless it is newer than its source."""
    module = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if module.exists() and module.stat().st_mtime > SOURCES[name].stat().st_mtime:
        return module
    folder.mkdir(parents=True, exist_ok=True)
    scratch = module.with_name(f"{module.name}.{os.getpid()}")
    include = f"-I{sysconfig.get_path('include')}"
    source = str(SOURCES[name])
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", *WARNINGS, include, source, "-o", str(scratch)], check=True)
    return scratch.rename(module)


def all_compiled(folder: Path) -> list[Path]:
    """All modules."""
    return [compiled(folder, name) for name in SOURCES]


def loaded(path: Path, name: str) -> ModuleType:
    """The module of that name, whether or not this process has it already."""
    spec = importlib.util.spec_from_loader(name, importlib.machinery.ExtensionFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    reason = missing_tools()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    print(*all_compiled(Path(sys.argv[1])), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
