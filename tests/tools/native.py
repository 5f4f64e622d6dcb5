"""``python -m tests.tools.native FOLDER``: compiles the loops in C into a folder, for tests and benchmarks.

With the folder on PYTHONPATH, this tree runs with them. Users build them into a wheel (docs/running.md).
"""

from __future__ import annotations

import fcntl
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from streamsrt.avro.kernels import MODULE as AVRO
from streamsrt.wire.kernels import MODULE as RECORDS
from topology.spec.model_reading import MODULE as MODELS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    RECORDS: ROOT / "streamsrt" / "wire" / "kernels.c",
    AVRO: ROOT / "streamsrt" / "avro" / "kernels.c",
    MODELS: ROOT / "topology" / "spec" / "model_reading.c",
}
"""The source of each module, as in setup.py."""
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers")


def missing_tools() -> str | None:
    """What is not there to compile them; None if all is."""
    if shutil.which("cc") is None:
        return "there is no C compiler (cc)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else f"{header} is missing, which comes with the development files of Python"


def compiled(folder: Path) -> dict[str, Path]:
    """The modules by name, each compiled anew unless it is newer than its source. Who comes meanwhile waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {name: compiled_module(name, folder) for name in SOURCES}


def compiled_module(name: str, folder: Path) -> Path:
    source = SOURCES[name]
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    changed = max(part.stat().st_mtime for part in source.parent.glob("*.[ch]"))
    if module.exists() and module.stat().st_mtime > changed:
        return module
    scratch = module.with_name(f"{module.name}.{os.getpid()}")
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", *WARNINGS, include, str(source), "-o", str(scratch)], check=True)
    return scratch.rename(module)


def loaded(name: str, folder: Path) -> object:
    """One of the modules, whether or not this process uses it."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(compiled_module(name, folder)))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def main() -> int:
    reason = missing_tools()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    print(*compiled(Path(sys.argv[1])).values(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
