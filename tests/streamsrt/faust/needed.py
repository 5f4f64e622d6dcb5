"""faust-streaming is an extra: without it these tests are skipped, but in CI they fail."""

from __future__ import annotations

import importlib
import os

import pytest


def require_faust() -> None:
    """Skips the module, or fails it in CI, where faust-streaming is not installed."""
    try:
        importlib.import_module("faust")
    except ImportError:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip("faust-streaming is not installed: pip install faust-streaming==0.15.3", allow_module_level=True)
