"""The loops in C, for tests that compare them with the Python code."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.tools.native import loaded, missing_tools


@pytest.fixture(scope="session")
def load_native(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], object]:
    """Loads a module in C, whether or not the tests run with it. Where there is no compiler, the test is skipped."""
    reason = missing_tools()
    if reason is not None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("native")
    return lambda name: loaded(name, folder)
