"""``python -m tests.tools.native FOLDER``: compiles streamsrt/wire/kernels.c into a folder, for tests and benchmarks.

With the folder on PYTHONPATH, this tree runs with them. Users build them into a wheel (docs/running.md).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from streamsrt.wire.kernels import MODULE

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "streamsrt" / "wire" / "kernels.c"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers")


def missing_tools() -> str | None:
    """What is not there to compile it; None if all is."""
    if shutil.which("cc") is None:
        return "there is no C compiler (cc)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else f"{header} is missing, which comes with the development files of Python"


def compiled(folder: Path) -> Path:
    """The module, compiled anew unless it is newer than its source."""
    module = folder / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if module.exists() and module.stat().st_mtime > SOURCE.stat().st_mtime:
        return module
    folder.mkdir(parents=True, exist_ok=True)
    scratch = module.with_name(f"{module.name}.{os.getpid()}")
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", *WARNINGS, include, str(SOURCE), "-o", str(scratch)], check=True)
    return scratch.rename(module)


def main() -> int:
    reason = missing_tools()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    print(compiled(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
