"""Files of stores are deleted only while nobody has them open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamsrt.errors import StateDirectoryLockedError
from streamsrt.state import deletion
from streamsrt.state.deletion import delete_store
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore

HOLDER = """
import sys
from pathlib import Path
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
store = RocksDBStore(Path(sys.argv[1]), "counts", RocksDBOptions())
print("open", flush=True)
sys.stdin.read()
print(store.get(b"a"), flush=True)
store.close()
"""


@contextmanager
def opened_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process


def test_a_store_that_another_process_has_open_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "counts" / "0"
    store = RocksDBStore(path, "counts", RocksDBOptions())
    store.write([(b"a", b"1")])
    store.close()
    with opened_by_another_process(path) as process:
        with pytest.raises(StateDirectoryLockedError, match=f"pid {process.pid}"):
            delete_store(path, "counts")
        assert process.communicate()[0] == "b'1'\n"
    delete_store(path, "counts")
    assert list(path.parent.iterdir()) == []
    delete_store(path, "counts")


def test_what_a_crash_left_of_a_deletion_is_deleted_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "counts" / "0"
    RocksDBStore(path, "counts", RocksDBOptions()).close()
    with monkeypatch.context() as crashed:
        crashed.setattr(deletion, "delete_tree", lambda path, name: None)
        delete_store(path, "counts")
    assert [each.name for each in path.parent.iterdir()] == [f"0.deleted.{os.getpid()}"]
    RocksDBStore(path, "counts", RocksDBOptions()).close()
    delete_store(path, "counts")
    assert list(path.parent.iterdir()) == []
