"""All tests, two at once; what fails then runs once more, alone: ``python -m tests.second_look [options of pytest]``.

1. A few tests that fail beside others and pass alone do not fail the run. They are listed as its last words, with what they
   said above: each is a fault of the product or of the test, to be found and mended.
2. More than :data:`MOST` failures, or one that fails again, fail the run, as does whatever else pytest ends with.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3
FAILED = 1
"""Pytest's exit code where tests have failed, and nothing else is wrong."""


def failed_tests(folder: Path) -> list[str]:
    """What failed in the last run, by pytest's own notes."""
    notes = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(notes.read_text())) if notes.exists() else []


def run(folder: Path, options: Sequence[str], beside: Sequence[str] = ("-n", "2", "--dist", "worksteal")) -> int:
    """The exit code, after one run or two in the ``folder`` of the tests."""
    pytest = [sys.executable, "-m", "pytest"]
    code = subprocess.run([*pytest, *beside, "--cache-clear", *options], cwd=folder, check=False).returncode
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
