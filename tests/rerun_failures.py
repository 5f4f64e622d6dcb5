"""Runs all tests, three at once, and repeats failed ones alone: ``python -m tests.rerun_failures [options of pytest]``.

1. A few tests that fail beside others and pass alone do not fail the run. The last line lists them; their output is above.
   Each is a bug of the product or of the test that has to be fixed.
2. More than :data:`MOST` failures, or one that fails again, fail the run, as does any other exit code of pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3
FAILED = 1
"""Pytest's exit code if tests have failed and nothing else is wrong."""


def failed_tests(folder: Path) -> list[str]:
    """Returns the tests that failed in the last run, from pytest's cache."""
    notes = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(notes.read_text())) if notes.exists() else []


def run(folder: Path, options: Sequence[str], beside: Sequence[str] = ("-n", "3", "--dist", "worksteal")) -> int:
    """Runs pytest once or twice in ``folder`` and returns the exit code."""
    pytest = [sys.executable, "-m", "pytest"]
    told = ("--durations=40", "--durations-min=5")
    code = subprocess.run([*pytest, *beside, *told, "--cache-clear", *options], cwd=folder, check=False).returncode
    failed = failed_tests(folder)
    if code != FAILED or not 0 < len(failed) <= MOST:
        return code
    print(f"Once more, alone: {', '.join(failed)}", flush=True)
    code = subprocess.run([*pytest, *options, *failed], cwd=folder, check=False).returncode
    if code == 0:
        print(f"Failed beside other tests, passed alone; to be mended: {', '.join(failed)}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(run(Path(), sys.argv[1:]))
