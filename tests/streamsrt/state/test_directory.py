"""One directory, one process: its lock, its process id, its stores."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsrt.errors import ConfigError, StateDirectoryLockedError, StateError, StoreCorruptedError
from streamsrt.state.directory import StateDirectory
from streamsrt.state.failures import storage_error
from streamsrt.state.kinds import LaidOut
from streamsrt.state.sessions import session_key
from streamsrt.state.store import BytesStore
from streamsrt.state.versioned import VersionedBytesStore
from streamsrt.state.windowed import WindowBytesStore, window_key
from topology.graph.nodes import StoreSpec

COUNTS = StoreSpec(name="counts")
WINDOWS = StoreSpec(name="windows", kind="window", retention_ms=120_000)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    with StateDirectory(tmp_path, "my-app") as opened:
        yield opened


def key_value(store: LaidOut) -> BytesStore:
    assert not isinstance(store, WindowBytesStore)
    return store


def test_nobody_else_on_the_machine_may_look_into_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "my-app"
    with StateDirectory(tmp_path / "state", "my-app") as directory:
        directory.open_store(COUNTS, 0).close()
        directory.write_positions("counts", 0, {0: 1})
        ours = [path / ".lock", path / "process.json", path / "stores/counts/0.json", path / "global/counts-0.json"]
        assert [each.stat().st_mode & 0o777 for each in (path.parent, path)] == [0o700, 0o700]
        assert {each.stat().st_mode & 0o777 for each in ours} == {0o600}
    # One that another version left open to all.
    path.chmod(0o755)
    with StateDirectory(tmp_path / "state", "my-app"):
        assert path.stat().st_mode & 0o777 == 0o700


# --------------------------------------------------------------------------------------------------------------- stores


def test_store_lies_under_its_name_and_partition(directory: StateDirectory, tmp_path: Path) -> None:
    directory.open_store(COUNTS, 3)
    assert (tmp_path / "my-app" / "stores" / "counts" / "3" / "CURRENT").is_file()


def test_kind_of_store_follows_its_spec(directory: StateDirectory, tmp_path: Path) -> None:
    assert key_value(directory.open_store(COUNTS, 0)).persistent
    windows = directory.open_store(WINDOWS, 0)
    assert isinstance(windows, WindowBytesStore)
    assert (windows.retention_ms, windows.segment_interval_ms) == (120_000, 60_000)
    spec = StoreSpec(name="w2", kind="window", retention_ms=9000, segment_interval_ms=7000, persistent=False)
    in_memory = directory.open_store(spec, 0)
    assert isinstance(in_memory, WindowBytesStore)
    assert (in_memory.segment_interval_ms, in_memory.persistent) == (7000, False)
    assert not (tmp_path / "my-app" / "stores" / "w2").exists()


@pytest.mark.parametrize("kind", ["window", "session"])
@pytest.mark.parametrize(("before_ms", "after_ms"), [(120_000, 1_200_000), (1_200_000, 600_000)])
def test_files_with_other_segments_are_deleted_and_never_answer_with_less(
    tmp_path: Path, kind: Any, before_ms: int, after_ms: int
) -> None:
    def opened(retention_ms: int, state: StateDirectory) -> Any:
        return state.open_store(StoreSpec(name="w", kind=kind, retention_ms=retention_ms), 0)

    at_ms = 660_000
    times = (at_ms,) if kind == "window" else (at_ms, at_ms)
    key = window_key(b"k", at_ms) if kind == "window" else session_key(b"k", at_ms, at_ms)
    with StateDirectory(tmp_path, "my-app") as state:
        opened(before_ms, state).write_logged({key: b"v"}, changelog_offset=7)
    with StateDirectory(tmp_path, "my-app") as state:
        store = opened(before_ms, state)
        assert (store.get(b"k", *times), store.changelog_offset()) == (b"v", 7)
    with StateDirectory(tmp_path, "my-app") as state:
        store = opened(after_ms, state)
        # It is restored from the start of its changelog.
        assert (store.changelog_offset(), store.stream_time_ms) == (None, -1)
        store.write_logged({key: b"restored"}, changelog_offset=8)
    with StateDirectory(tmp_path, "my-app") as state:
        assert opened(after_ms, state).get(b"k", *times) == b"restored"


def test_an_offset_is_of_the_changelog_that_it_was_written_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    versions = (
        StoreSpec(name="t"),
        StoreSpec(name="t", source_topic="rows", logging=False),
        StoreSpec(name="t", logging=False),
        StoreSpec(name="t", plain_rows=True),
    )
    for spec in versions:
        with StateDirectory(tmp_path, "my-app") as state:
            store = key_value(state.open_store(spec, 0))
            assert (store.changelog_offset(), list(store.range())) == (None, [])
            store.write([(b"k", b"v" * 9)], changelog_offset=100)
    assert "changelog was t-changelog and is rows; its files are deleted" in caplog.text
    assert "it starts empty" in caplog.text


def test_files_of_an_instance_without_notes_are_taken_as_they_are(tmp_path: Path) -> None:
    with StateDirectory(tmp_path, "my-app") as state:
        key_value(state.open_store(COUNTS, 0)).write([(b"k", b"v")], changelog_offset=3)
    note = tmp_path / "my-app" / "stores" / "counts" / "0.json"
    for content in (None, b"no JSON"):
        note.unlink()
        if content is not None:
            note.write_bytes(content)
        with StateDirectory(tmp_path, "my-app") as state:
            assert key_value(state.open_store(COUNTS, 0)).changelog_offset() == 3
        assert json.loads(note.read_bytes())["changelog"] == "counts-changelog"
    with StateDirectory(tmp_path, "my-app") as state:
        state.wipe("counts", 0)
    assert not note.parent.exists()


def test_stores_are_listed_with_their_offsets(directory: StateDirectory) -> None:
    for partition in (10, 2):
        store = directory.open_store(COUNTS, partition)
        store.restore([b"a"], [b"1"], 100 + partition)
    directory.open_store(StoreSpec(name="memory", persistent=False), 0)
    directory.open_store(WINDOWS, 0)
    expected = [("counts", 2, 102), ("counts", 10, 110), ("windows", 0, None)]
    assert directory.list_stores() == expected
    assert not any(directory.open_store(COUNTS, p).changelog_offset() for p in (3,))
    directory.wipe("counts", 3)


def test_dormant_stores_are_listed_without_being_opened(tmp_path: Path) -> None:
    with StateDirectory(tmp_path, "my-app") as first:
        first.open_store(COUNTS, 1).restore([b"a"], [b"1"], 55)
        first.open_store(COUNTS, 2)
    with StateDirectory(tmp_path, "my-app") as second:
        assert second.list_stores() == [("counts", 1, 55), ("counts", 2, None)]
        assert not second.is_open("counts", 1)
        assert key_value(second.open_store(COUNTS, 1)).get(b"a") == b"1"
        assert second.list_stores()[0] == ("counts", 1, 55)


def test_store_is_opened_once(directory: StateDirectory) -> None:
    for spec in (COUNTS, StoreSpec(name="memory", persistent=False)):
        store = directory.open_store(spec, 0)
        with pytest.raises(StateError, match="already open in this process"):
            directory.open_store(spec, 0)
        store.close()
        assert not directory.is_open(spec.name, 0)
        directory.open_store(spec, 0)


@pytest.mark.parametrize("persistent", [True, False])
def test_wiped_store_opens_empty(directory: StateDirectory, persistent: bool) -> None:
    spec = StoreSpec(name="counts", persistent=persistent)
    store = directory.open_store(spec, 0)
    store.restore([b"a"], [b"1"], 9)
    directory.wipe("counts", 0)
    assert not store.is_open
    assert directory.list_stores() == []
    again = key_value(directory.open_store(spec, 0))
    assert (again.get(b"a"), again.changelog_offset()) == (None, None)
    directory.wipe("never-there", 5)


def test_damaged_store_is_wiped_and_opens_again(directory: StateDirectory) -> None:
    directory.open_store(WINDOWS, 0).close()
    (directory.store_path("windows", 0) / "CURRENT").write_bytes(b"")
    with pytest.raises(StoreCorruptedError, match="'windows'"):
        directory.open_store(WINDOWS, 0)
    assert directory.list_stores() == [("windows", 0, None)]
    directory.wipe("windows", 0)
    assert directory.open_store(WINDOWS, 0).changelog_offset() is None


def test_a_task_has_a_directory_until_all_is_cleaned_up(directory: StateDirectory) -> None:
    path = directory.task_directory("0_1")
    (path / "file").write_text("x", encoding="utf-8")
    assert directory.task_directory("0_1") == path
    assert (path / "file").read_text(encoding="utf-8") == "x"
    assert path.is_relative_to(directory.path)
    assert directory.list_stores() == []
    directory.clean_up()
    assert not path.exists()
    path.parent.rmdir()
    path.parent.write_text("in the way", encoding="utf-8")
    with pytest.raises(StateError, match=r"the directory .* of a task can't be written"):
        directory.task_directory("0_1")


def test_clean_up_deletes_every_store_but_not_the_process_id(directory: StateDirectory, tmp_path: Path) -> None:
    store = directory.open_store(COUNTS, 4)
    with pytest.raises(StateError, match=r"in use \(counts/4\): close the application first"):
        directory.clean_up()
    assert store.is_open
    store.close()
    process_id = directory.process_id
    directory.clean_up()
    assert directory.list_stores() == []
    directory.close()
    with StateDirectory(tmp_path, "my-app") as again:
        assert again.process_id == process_id


def test_obsolete_stores_are_those_nobody_opened_for_long(directory: StateDirectory) -> None:
    directory.open_store(COUNTS, 0)
    directory.open_store(COUNTS, 1).close()
    newest_ms = max(file.stat().st_mtime_ns for file in directory.store_path("counts", 1).iterdir()) // 1_000_000
    delay_ms = 600_000
    assert directory.clean_obsolete(newest_ms + delay_ms, delay_ms) == []
    assert directory.clean_obsolete(newest_ms + delay_ms + 60_000, delay_ms) == [("counts", 1)]
    assert [place[:2] for place in directory.list_stores()] == [("counts", 0)]


def test_a_store_that_another_process_changes_meanwhile_is_not_obsolete(directory: StateDirectory) -> None:
    for partition in range(2):
        directory.open_store(COUNTS, partition).close()
    # A file that is listed, and gone when it is looked at.
    path = directory.store_path("counts", 0)
    (path / "000042.sst").symlink_to(path / "deleted by a compaction")
    assert directory.clean_obsolete(2**62, 0) == [("counts", 1)]


def test_kinds_that_are_not_kept_are_refused(directory: StateDirectory) -> None:
    with pytest.raises(ConfigError, match="session store 's' has no retention"):
        directory.open_store(StoreSpec(name="s", kind="session"), 0)
    with pytest.raises(ConfigError, match="versioned store 's' has no retention"):
        directory.open_store(StoreSpec(name="s", kind="versioned"), 0)
    assert directory.list_stores() == []


def test_versions_are_kept(directory: StateDirectory) -> None:
    spec = StoreSpec(name="s", kind="versioned", retention_ms=1000, segment_interval_ms=2000)
    store = directory.open_store(spec, 0)
    assert isinstance(store, VersionedBytesStore)
    store.write([(b"a", 5, b"1")], changelog_offset=1)
    store.close()
    again = directory.open_store(spec, 0)
    assert isinstance(again, VersionedBytesStore)
    assert (again.latest(b"a"), again.changelog_offset()) == ((5, b"1"), 1)


def test_window_store_needs_a_retention(directory: StateDirectory) -> None:
    with pytest.raises(ConfigError, match="'w' has no retention"):
        directory.open_store(StoreSpec(name="w", kind="window"), 0)
    with pytest.raises(ConfigError, match="retains duplicates"):
        directory.open_store(StoreSpec(name="w", kind="window", retention_ms=1, retain_duplicates=True), 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 250, "ü", "a\n"])
def test_names_that_are_no_directories_are_refused(tmp_path: Path, directory: StateDirectory, name: str) -> None:
    with pytest.raises(ConfigError, match=r"application\.id is"):
        StateDirectory(tmp_path / "root", name)
    assert not (tmp_path / "root").exists()
    with pytest.raises(ConfigError, match="name of a state store"):
        directory.open_store(StoreSpec(name=name), 0)


def test_close_closes_every_store_and_is_final(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path, "my-app")
    stores = [directory.open_store(COUNTS, partition) for partition in range(3)]
    directory.close()
    directory.close()
    assert not any(store.is_open for store in stores)
    with pytest.raises(StateError, match="is closed"):
        directory.open_store(COUNTS, 0)
    with pytest.raises(StateError, match="is closed"):
        directory.list_stores()


# ------------------------------------------------------------------------------------------------- lock and process id


@pytest.mark.requirement("SG-019")
def test_process_id_is_kept_across_restarts(tmp_path: Path) -> None:
    with StateDirectory(tmp_path, "my-app") as first:
        process_id = first.process_id
    with StateDirectory(tmp_path, "my-app") as second, StateDirectory(tmp_path, "other-app") as other:
        assert second.process_id == process_id
        assert other.process_id != process_id


HOLD = """
import sys
import threading
from streamsrt.state.directory import StateDirectory
with StateDirectory(sys.argv[1], "my-app") as directory:
    print(directory.process_id, flush=True)
    sys.stdin.read()
"""


def test_directory_of_a_live_process_is_refused_and_of_a_dead_one_taken(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        process_id = uuid.UUID(holder.stdout.readline().strip())
        with pytest.raises(
            StateDirectoryLockedError, match=rf"another process \(pid {holder.pid}\).*another state.dir"
        ):
            StateDirectory(tmp_path, "my-app")
        holder.kill()
    with StateDirectory(tmp_path, "my-app") as taken:
        assert taken.process_id == process_id


KILLED_WHILE_IT_DELETES = """
import os, shutil, signal, sys
from streamsrt.state.directory import StateDirectory
from topology.graph.nodes import StoreSpec
directory = StateDirectory(sys.argv[1], "app")
directory.open_store(StoreSpec(name="counts"), 0).close()
def rmtree(path):
    if os.path.exists(path):
        os.kill(os.getpid(), signal.SIGKILL)
    raise FileNotFoundError
shutil.rmtree = rmtree
directory.wipe("counts", 0)
"""


def test_what_a_killed_process_left_of_a_store_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_DELETES, str(tmp_path)], check=False)
    assert killed.returncode == -9
    stores = tmp_path / "app" / "stores" / "counts"
    assert [each.name for each in stores.iterdir() if each.is_dir()] != []
    with StateDirectory(tmp_path, "app") as directory:
        assert [each.name for each in stores.iterdir() if each.is_dir()] == []
        assert directory.list_stores() == []


def test_directory_is_opened_once_in_a_process(directory: StateDirectory, tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryLockedError, match=rf"this process \(pid {os.getpid()}\)"):
        StateDirectory(tmp_path, "my-app")
    directory.open_store(COUNTS, 0)


def test_newer_format_is_left_alone(tmp_path: Path) -> None:
    with StateDirectory(tmp_path, "my-app") as directory:
        directory.open_store(COUNTS, 0).restore([b"a"], [b"1"], 1)
    file = tmp_path / "my-app" / "process.json"
    newer = json.loads(file.read_text()) | {"format": 2}
    file.write_text(json.dumps(newer))
    with pytest.raises(
        StateError, match=r"has format 2, and this version knows formats up to 1.*Run that version again"
    ):
        StateDirectory(tmp_path, "my-app")
    assert json.loads(file.read_text()) == newer
    file.write_text(json.dumps(newer | {"format": 1}))
    with StateDirectory(tmp_path, "my-app") as directory:
        assert directory.list_stores() == [("counts", 0, 1)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": "x"}',
        '{"format": 1}',
        '{"format": 1, "process_id": "7"}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_damaged_process_file_is_an_error_that_says_what_to_delete(tmp_path: Path, content: str) -> None:
    (tmp_path / "my-app").mkdir()
    (tmp_path / "my-app" / "process.json").write_text(content)
    for _ in range(2):
        with pytest.raises(StateError, match=r"process\.json is damaged .*Delete it"):
            StateDirectory(tmp_path, "my-app")


def test_a_disk_that_is_read_only_is_no_matter_of_rights() -> None:
    cause = str(OSError(errno.EROFS, os.strerror(errno.EROFS), "/var/lib/shop"))
    said = str(storage_error(cause, "state directory /var/lib/shop", "opened"))
    assert said.startswith(
        "state directory /var/lib/shop can't be opened: its file system is read-only. Mount it writable"
    )


def test_directory_that_this_user_may_not_write_is_named(tmp_path: Path) -> None:
    script = """
import os, sys
from streamsrt.state.directory import StateDirectory
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    StateDirectory(sys.argv[1], "my-app")
except Exception as error:
    print(type(error).__name__, error)
"""
    tmp_path.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    tmp_path.chmod(0o755)
    assert done.stdout.startswith(f"StateError state directory {tmp_path}/my-app can't be opened"), done.stderr
    assert "this user may not write there" in done.stdout


def test_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "my-app").write_text("mine")
    with pytest.raises(StateError, match=r"state directory .*/my-app can't be opened"):
        StateDirectory(tmp_path, "my-app")


# ------------------------------------------------------------------------------------------- several forked processes


def test_a_store_that_another_process_has_open_can_be_opened_when_that_has_closed_it(tmp_path: Path) -> None:
    with StateDirectory(tmp_path, "app") as holder, StateDirectory(tmp_path, "app", shared=True) as other:
        assert other.process_id == holder.process_id
        store = holder.open_store(StoreSpec(name="counts"), 0)
        with pytest.raises(StateDirectoryLockedError, match="counts"):
            other.open_store(StoreSpec(name="counts"), 0)
        store.close()
        other.open_store(StoreSpec(name="counts"), 0)
        assert other.is_open("counts", 0)


@pytest.mark.requirement("SG-206")
def test_what_another_process_uses_is_not_cleaned_up(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore\n"
        "store = RocksDBStore(Path(sys.argv[1]), 'used', RocksDBOptions())\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with StateDirectory(tmp_path, "app", shared=False) as directory:
        for name in ("used", "unused"):
            directory.open_store(StoreSpec(name=name), 0).close()
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(directory.store_path("used", 0))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with other:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            with StateDirectory(tmp_path, "app", shared=True) as beside:
                assert [local.store for local in beside.list_stores()] == ["unused"]
            assert directory.clean_obsolete(2**62, 0) == [("unused", 0)]
            assert directory.store_path("used", 0).exists()
            other.communicate("")
        assert directory.clean_obsolete(2**62, 0) == [("used", 0)]


def test_processes_of_an_instance_look_at_files_one_after_the_other(tmp_path: Path) -> None:
    looked: list[str] = []
    begun = threading.Event()
    with StateDirectory(tmp_path, "app") as parent, parent.alone():
        one, two = (StateDirectory(tmp_path, "app", shared=True) for _ in range(2))

        def second() -> None:
            begun.set()
            with two.alone():
                looked.append("second")

        with one.alone():
            thread = threading.Thread(target=second)
            thread.start()
            assert begun.wait(10)
            assert not looked, "it waits"
            looked.append("first")
        thread.join(10)
        one.close()
        two.close()
    assert looked == ["first", "second"]
