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


OPEN_FILES = """
import resource, tempfile
from pathlib import Path
from streamsrt.backfill.run_task import LogFiles
from streamsrt.runtime.tuning import FILES_MAX, tune_process
from streamsrt.wire.records import encode_batch
hard = min(FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
tune_process()
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
with tempfile.TemporaryDirectory() as folder, LogFiles(Path(folder)) as files:
    for partition in range(300):
        files.write("repartition", partition, encode_batch([b"key"], [b"value"], [1]), 1)
    print(len(files.results(Path(folder))))
"""


def test_a_process_may_have_a_file_open_for_each_of_many_partitions() -> None:
    done = subprocess.run([sys.executable, "-c", OPEN_FILES], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("300\n", "")
