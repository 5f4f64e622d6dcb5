"""The loops in C, for tests that compare them with the Python code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.native import ROOT, compiled, loaded, missing_tools

FOLDER = ROOT / ".cache" / "native"
"""Where ``make test-native`` looks for them, too: compiled once for all tests that run at once, and for the next ones."""


@pytest.fixture(scope="session")
def native_folder() -> Path:
    """The folder with all of them. Where there is no compiler, the test is skipped."""
    reason = missing_tools()
    if reason is not None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    compiled(FOLDER)
    return FOLDER


@pytest.fixture(scope="session")
def load_native(native_folder: Path) -> Callable[[str], object]:
    """Loads a module in C, whether or not the tests run with it."""
    return lambda name: loaded(name, native_folder)
