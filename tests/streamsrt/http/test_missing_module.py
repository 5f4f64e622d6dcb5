"""HTTP says which module it does not find, and whether another one hides it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streamsrt.http.missing_module import missing_module


def test_a_package_that_is_not_installed_is_named_with_what_installs_it() -> None:
    error = missing_module(ModuleNotFoundError("gone", name="starlette.routing"), "127.0.0.1:0")
    assert str(error) == (
        "http.listen=127.0.0.1:0 needs packages that are not installed (starlette.routing): pip install 'streamsrt[http]'"
    )


def test_a_file_beside_the_program_that_hides_a_module_of_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "http.py").write_text("", encoding="utf-8")
    code = (
        "from streamsrt.http.missing_module import missing_module\n"
        "try:\n    import http.client\n"
        "except ModuleNotFoundError as error:\n    print(missing_module(error, 'localhost:8080'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("http.listen=localhost:8080 needs Python's own module 'http', which is hidden by")
    assert str(tmp_path / "http.py") in done.stdout
