"""Two processes that open one store: one gets it, the other is told that it is in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamsrt.errors import StateDirectoryLockedError
from streamsrt.state.failures import store_error
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore

TIMES = 400
OPENER = """
import sys
from pathlib import Path
from tests.streamsrt.state.test_opened_at_once import open_often
print("ready", flush=True)
print(open_often(Path(sys.argv[1])), flush=True)
"""


def open_often(path: Path) -> int:
    """How often it was opened; raises whatever says anything else than that it is in use."""
    opened = 0
    for _ in range(TIMES):
        try:
            store = RocksDBStore(path, "counts", RocksDBOptions())
        except StateDirectoryLockedError:
            continue
        store.write([(b"a", b"1")])
        store.close()
        opened += 1
    return opened


def test_whoever_opens_a_store_at_the_same_moment_is_told_that_it_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "counts" / "0"
    RocksDBStore(path, "counts", RocksDBOptions()).close()
    command = [sys.executable, "-c", OPENER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert open_often(path) > 0
        assert int(process.stdout.read()) > 0
    assert process.returncode == 0


@pytest.mark.parametrize(
    "cause",
    [
        "while unlink() file: {path}/LOG.old.1795492758750190: No such file or directory",
        "While renaming a file to {path}/LOG.old.1: {path}/LOG: No such file or directory",
    ],
)
def test_an_info_log_that_another_process_put_aside_is_no_damage(tmp_path: Path, cause: str) -> None:
    error = store_error(
        "IO error: No such file or directory: " + cause.format(path=tmp_path), "counts", tmp_path, "opened"
    )
    assert isinstance(error, StateDirectoryLockedError)
    assert "is being opened by another process" in str(error)
