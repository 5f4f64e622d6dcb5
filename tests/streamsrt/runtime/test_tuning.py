from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from streamsrt.runtime.tuning import GC_THRESHOLDS, SWITCH_INTERVAL_S, tune_process
tune_process()
assert gc.get_threshold() == GC_THRESHOLDS and gc.get_freeze_count() > 1000
assert abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6
print("tuned")
"""


def test_a_process_is_tuned_once_and_for_all() -> None:
    """In a process of its own: this one's garbage collector is the other tests' too."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("tuned\n", "")
