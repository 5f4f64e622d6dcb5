"""What only a store on disk can do: survive, be damaged, be locked, find the disk full."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options

from streamsrt.errors import ConfigError, StateDirectoryLockedError, StateError, StoreCorruptedError
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.rocksdb_files import read_changelog_offset
from tests.streamsrt.state.conftest import DEFAULTS, OpenStore
from tests.streamsrt.state.writer import OPTIONS, batch, run_writer_and_kill_it

pytestmark = pytest.mark.waits

MANY = [(b"%06d" % i, b"value-%06d" % i * 5) for i in range(20_000)]


def applied(batches: range) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for number in batches:
        for key, value in batch(number):
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
    return rows


# ------------------------------------------------------------------------------------------------------------- survival


def test_closed_store_opens_with_all_it_had(open_persistent: OpenStore) -> None:
    store = open_persistent()
    store.write(MANY, changelog_offset=20_000)
    store.write([(b"000007", None)], changelog_offset=20_001)
    store.close()
    store = open_persistent()
    assert list(store.range()) == [row for row in MANY if row[0] != b"000007"]
    assert store.changelog_offset() == 20_001
    store.close()


@pytest.mark.system
def test_killed_process_leaves_data_and_offset_of_one_moment(tmp_path: Path) -> None:
    offset = 0
    for last in (300, 777, 2000):
        run_writer_and_kill_it(tmp_path, offset, last)
        store = RocksDBStore(tmp_path, "counts", OPTIONS)
        before, offset = offset, store.changelog_offset() or 0
        assert before <= offset
        assert dict(store.range()) == applied(range(offset))
        store.close()
    assert offset > 0, "nothing was flushed by itself: the test shows nothing"


def test_flushed_data_survives_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal; from pathlib import Path; from tests.streamsrt.state.writer import *;"
        "store = RocksDBStore(Path(%r), 'counts', RocksDBOptions());"
        "store.write(batch(0), changelog_offset=1); store.flush();"
        "store.write(batch(1), changelog_offset=2); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script % str(tmp_path)]).returncode == -signal.SIGKILL
    store = RocksDBStore(tmp_path, "counts", DEFAULTS)
    assert store.changelog_offset() == 1
    assert dict(store.range()) == applied(range(1))
    store.close()


def test_restored_columns_are_there_after_reopening(open_persistent: OpenStore) -> None:
    store = open_persistent()
    for first in range(0, 250_000, 1000):
        # Every key three times: what is gathered is written twice on the way.
        keys = [b"%07d" % (i % 120_000) for i in range(first, first + 1000)]
        store.restore(keys, [b"%d" % i for i in range(first, first + 1000)], first + 1000)
    store.restore([b"0000001", b"0000003"], [None, b"last"], 250_002)
    store.close()
    store = open_persistent()
    assert store.changelog_offset() == 250_002
    assert [store.get(b"%07d" % i) for i in (0, 1, 2, 3, 10_000, 119_999)] == [
        b"240000",
        None,
        b"240002",
        b"last",
        b"130000",
        b"239999",
    ]
    assert sum(1 for _ in store.range()) == 119_999
    store.close()


def test_what_was_restored_is_under_what_is_written_later(open_persistent: OpenStore) -> None:
    store = open_persistent()
    store.restore([b"a", b"b"], [b"restored", b"restored"], 10)
    store.write([(b"a", b"written")], changelog_offset=11)
    assert [store.get(b"a"), store.get(b"b"), store.changelog_offset()] == [b"written", b"restored", 11]
    store.restore([b"a"], [None], 12)
    store.delete_range(b"b", b"c")
    store.restore([b"c"], [b"3"], 13)
    assert (list(store.range()), store.changelog_offset()) == ([(b"c", b"3")], 13)
    store.close()


def test_wipe_deletes_the_files_and_the_offset(open_persistent: OpenStore, tmp_path: Path) -> None:
    store = open_persistent()
    store.write(MANY, changelog_offset=5)
    store.wipe()
    assert not (tmp_path / "store").exists()
    store = open_persistent()
    assert (list(store.range()), store.changelog_offset()) == ([], None)
    store.close()


def test_offset_of_a_closed_store_is_read_without_opening_it(tmp_path: Path) -> None:
    assert read_changelog_offset(tmp_path / "store", "counts") is None
    store = RocksDBStore(tmp_path / "store", "counts", DEFAULTS)
    store.write([(b"a", b"1")], changelog_offset=123)
    store.close()
    assert read_changelog_offset(tmp_path / "store", "counts") == 123


def test_stores_share_one_memory_budget(tmp_path: Path) -> None:
    options = RocksDBOptions(memory_bytes=16 << 20, write_buffers_bytes=4 << 20, write_buffer_bytes=64 << 20)
    stores = [RocksDBStore(tmp_path / str(i), f"store-{i}", options) for i in range(4)]
    for _ in range(12):
        for store in stores:
            store.write(MANY)
    # More than 60 MB were written, and no write buffer of its own was ever full. Flushing takes a while.
    assert 0 < options.used_bytes() <= 40 << 20
    for store in stores:
        store.close()


def test_a_store_that_is_opened_again_has_the_options_and_the_cache_of_its_process(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path / "s", "s", RocksDBOptions(memory_bytes=8 << 20, write_buffer_bytes=1 << 20))
    store.write(MANY)
    store.close()
    options = RocksDBOptions(memory_bytes=32 << 20, write_buffer_bytes=2 << 20)
    store = RocksDBStore(tmp_path / "s", "s", options)
    before = options.used_bytes()
    assert len(list(store.range())) == len(MANY)
    assert options.used_bytes() > before + 500_000, "its blocks are in another cache"
    store.close()
    written = max((tmp_path / "s").glob("OPTIONS-*"), key=str)
    assert f"write_buffer_size={2 << 20}\n" in written.read_text()


def test_what_files_have_in_memory_is_of_the_budget_wherever_they_are(tmp_path: Path) -> None:
    """Files with ascending keys move to deeper levels as they are, and nobody opens them again."""
    options = RocksDBOptions(memory_bytes=1 << 20, write_buffer_bytes=128 << 10)
    store = RocksDBStore(tmp_path / "ascending", "ascending", options)
    for first in range(0, 200_000, 2_000):
        store.write([(b"%0300d" % number, b"") for number in range(first, first + 2_000)])
    assert options.used_bytes() <= 1 << 20
    store.close()


def test_many_small_stores_stay_within_the_budget(tmp_path: Path) -> None:
    options = RocksDBOptions(memory_bytes=8 << 20)
    stores = [RocksDBStore(tmp_path / str(i), f"store-{i}", options) for i in range(40)]
    for turn in range(10):
        for number, store in enumerate(stores):
            store.write([(b"%d-%d-%d" % (number, turn, row), b"x" * 1000) for row in range(50)])
    # 20 MB were written to 40 stores, each of which has a write buffer of up to 8 MB. Flushing takes a while.
    assert 0 < options.write_buffers_used_bytes() <= 8 << 20
    for store in stores:
        store.close()


def test_little_in_many_stores_is_not_flushed(tmp_path: Path) -> None:
    """As after a commit of many tasks: a file of a few rows for each store would be written, and compacted soon."""
    options = RocksDBOptions(memory_bytes=4 << 20, write_buffers_bytes=400 << 10)
    stores = [RocksDBStore(tmp_path / str(i), f"store-{i}", options) for i in range(10)]
    for store in stores:
        store.write([(b"%d" % row, b"x" * 100) for row in range(30)], changelog_offset=1)
    assert [store.property("num-entries-active-mem-table") for store in stores] == [31] * 10
    for store in stores:
        store.close()


def test_a_full_budget_while_stores_are_restored(tmp_path: Path) -> None:
    options = RocksDBOptions(memory_bytes=4 << 20, write_buffers_bytes=1 << 20)
    stores = [RocksDBStore(tmp_path / str(i), f"store-{i}", options) for i in range(3)]
    for offset in range(0, 3_000, 500):
        for store in stores:
            store.restore([b"%d" % (offset + row) for row in range(500)], [b"v" * 2_000] * 500, offset + 500)
    assert [store.approximate_count() > 0 for store in stores] == [True] * 3
    assert all(store.changelog_offset() == 3_000 and store.get(b"2999") == b"v" * 2_000 for store in stores)
    for store in stores:
        store.close()


def test_what_is_gathered_while_restoring_is_less_with_more_stores(tmp_path: Path) -> None:
    alone, beside = RocksDBOptions(), RocksDBOptions()
    written = {}
    for name, options, others in (("alone", alone, 0), ("beside", beside, 9)):
        neighbours = [RocksDBStore(tmp_path / f"{name}-{number}", "s", options) for number in range(others)]
        for each in neighbours:
            each.restore([b"k"], [b"v"], 1)
        store = RocksDBStore(tmp_path / name, "s", options)
        for offset in range(0, 20_000, 1_000):
            store.restore([b"%d" % (offset + row) for row in range(1_000)], [b"v"] * 1_000, offset + 1_000)
        written[name] = options.write_buffers_used_bytes()
        for each in [*neighbours, store]:
            each.close()
    assert written["alone"] < written["beside"]


@pytest.mark.parametrize("step", [1, 7919])
@pytest.mark.parametrize("distinct", [150_000, 60_000, 100])
def test_restoring_distinct_and_repeated_keys_ends_alike(tmp_path: Path, distinct: int, step: int) -> None:
    store = RocksDBStore(tmp_path / "store", "counts", DEFAULTS)
    for first in range(0, 150_000, 2000):
        numbers = range(first, first + 2000)
        store.restore([b"%07d" % (i * step % distinct) for i in numbers], [b"%d" % i for i in numbers], first + 2000)
    expected = [(b"%07d" % (i * step % distinct), b"%d" % i) for i in range(150_000 - distinct, 150_000)]
    assert list(store.range()) == sorted(expected)
    assert store.changelog_offset() == 150_000
    store.close()


def test_indexes_and_filters_in_parts_are_invisible(tmp_path: Path) -> None:
    options = RocksDBOptions(memory_bytes=4 << 20, write_buffer_bytes=64 << 10, saves_memory=True)
    store = RocksDBStore(tmp_path, "s", options)
    rows = [(b"%06d" % number, b"x" * 20) for number in range(20_000)]
    for start in range(0, len(rows), 1_000):
        store.write(rows[start : start + 1_000])
    store.flush()
    assert list(store.range()) == rows
    assert store.get(b"000777") == b"x" * 20
    assert store.get(b"000777a") is None
    store.close()


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd", "snappy"])
def test_compression_is_invisible(tmp_path: Path, compression: str) -> None:
    options = RocksDBOptions(compression=compression)  # type: ignore[arg-type]
    store = RocksDBStore(tmp_path / "store", "counts", options)
    store.write(MANY)
    store.flush()
    assert list(store.range()) == MANY
    store.close()


# ------------------------------------------------------------------------------------------------------------ iterators


@pytest.mark.parametrize("end", ["held", "dropped", "exhausted"])
def test_iterator_does_not_keep_a_closed_store_locked(open_persistent: OpenStore, end: str) -> None:
    store = open_persistent()
    store.write(MANY)
    rows = store.range()
    next(rows)
    if end == "exhausted":
        assert len(list(rows)) == len(MANY) - 1
    if end == "dropped":
        del rows
    store.close()
    store = open_persistent()
    assert store.get(MANY[0][0]) == MANY[0][1]
    store.close()


def test_bounds_outlive_the_call_that_set_them(open_persistent: OpenStore) -> None:
    store = open_persistent()
    store.write(MANY)
    scans = [(store.range(MANY[i][0], MANY[-i][0]), len(MANY) - 2 * i) for i in range(1, 3000, 100)]
    gc.collect()
    _overwritten = [b"\0\0\0\0\0\0\0" for _ in range(10_000)]
    assert [len(list(rows)) for rows, _ in scans] == [expected for _, expected in scans]
    store.close()


# --------------------------------------------------------------------------------------------------------------- damage


def only(path: Path, pattern: str) -> Path:
    return max(path.glob(pattern), key=lambda file: file.stat().st_size)


def flip_middle(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(byte ^ 0xFF for byte in content[middle : middle + 64])
    file.write_bytes(content)


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


DAMAGE_SEEN_AT_OPENING: dict[str, Callable[[Path], object]] = {
    "table cut off": lambda path: cut_in_half(only(path, "*.sst")),
    "table gone": lambda path: only(path, "*.sst").unlink(),
    "manifest flipped": lambda path: flip_middle(only(path, "MANIFEST-*")),
    "manifest gone": lambda path: only(path, "MANIFEST-*").unlink(),
    "CURRENT empty": lambda path: (path / "CURRENT").write_bytes(b""),
    "CURRENT wrong": lambda path: (path / "CURRENT").write_bytes(b"MANIFEST-999999\n"),
}


def closed_store_with_data(path: Path) -> None:
    store = RocksDBStore(path, "counts", DEFAULTS)
    store.write(MANY, changelog_offset=1)
    store.close()


@pytest.mark.parametrize("damage", DAMAGE_SEEN_AT_OPENING)
def test_damaged_files_are_told_apart_at_opening(tmp_path: Path, damage: str) -> None:
    closed_store_with_data(tmp_path / "store")
    DAMAGE_SEEN_AT_OPENING[damage](tmp_path / "store")
    with pytest.raises(StoreCorruptedError, match=r"'counts' in .*/store can't be opened.*wiped and restored"):
        RocksDBStore(tmp_path / "store", "counts", DEFAULTS)
    with pytest.raises(StoreCorruptedError):
        read_changelog_offset(tmp_path / "store", "counts")


@pytest.mark.parametrize(
    "read",
    [
        lambda store: [store.get(key) for key, _ in MANY],
        lambda store: list(store.range()),
        lambda store: list(store.range(reverse=True)),
        lambda store: list(store.prefix(b"0")),
    ],
)
def test_damaged_block_is_an_error_in_every_way_of_reading(
    tmp_path: Path, read: Callable[[RocksDBStore], object]
) -> None:
    closed_store_with_data(tmp_path / "store")
    flip_middle(only(tmp_path / "store", "*.sst"))
    store = RocksDBStore(tmp_path / "store", "counts", DEFAULTS)
    with pytest.raises(StoreCorruptedError, match="can't be read: its files are damaged"):
        read(store)
    store.wipe()
    closed_store_with_data(tmp_path / "store")


# --------------------------------------------------------------------------------------------------- locks and the disk


def test_second_opening_in_this_process_is_refused(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path, "counts", DEFAULTS)
    with pytest.raises(StateDirectoryLockedError, match="already open in this process"):
        RocksDBStore(tmp_path, "counts", DEFAULTS)
    store.write([(b"a", b"1")])
    store.close()


def test_lock_of_another_process_names_its_pid(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.streamsrt.state.writer", str(tmp_path), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(StateDirectoryLockedError, match=rf"another process \(pid {writer.pid}\)"):
            RocksDBStore(tmp_path, "counts", DEFAULTS)
        writer.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the size of a file differ")
def test_a_store_is_closed_on_a_full_disk_too_and_says_what_to_do(tmp_path: Path) -> None:
    script = """
import resource, signal
from pathlib import Path
from tests.streamsrt.state.writer import *
from streamsrt.errors import StateError
store, wiped = (RocksDBStore(Path(%r) / name, name, OPTIONS) for name in ("counts", "wiped"))
for each in (store, wiped):
    each.write(batch(0), changelog_offset=1)
    each.flush()
    each.write(batch(1), changelog_offset=2)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
wiped.wipe()
try:
    store.close()
except StateError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(store.is_open, RocksDBStore(Path(%r) / "counts", "counts", OPTIONS).changelog_offset())
"""
    done = subprocess.run(
        [sys.executable, "-c", script % (str(tmp_path), str(tmp_path))], capture_output=True, text=True
    )
    assert "the disk is full. Free space there" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "False 1"
    assert not (tmp_path / "wiped").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the size of a file differ")
def test_a_store_that_can_not_be_opened_on_a_full_disk_is_not_damaged(tmp_path: Path) -> None:
    script = """
import resource, signal
from pathlib import Path
from tests.streamsrt.state.writer import *
store = RocksDBStore(Path(%r), "counts", OPTIONS)
store.write(batch(0), changelog_offset=1)
store.close()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in (0, 40, 80, 120, 160, 200, 400, 800, 1600):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        RocksDBStore(Path(%r), "counts", OPTIONS).close()
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script % (str(tmp_path), str(tmp_path))], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert all(line.startswith("StateError state store 'counts' in") for line in lines), done.stdout
    assert all("the disk is full. Free space there" in line for line in lines), done.stdout
    assert any("MANIFEST" in line for line in lines), done.stdout
    store = RocksDBStore(tmp_path, "counts", DEFAULTS)
    assert store.changelog_offset() == 1
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the size of a file differ")
def test_full_disk_says_what_to_do_and_keeps_what_was_flushed(tmp_path: Path) -> None:
    script = """
import resource, signal
from pathlib import Path
from tests.streamsrt.state.writer import *
store = RocksDBStore(Path(%r), "counts", OPTIONS)
store.write(batch(0), changelog_offset=1)
store.flush()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for number in itertools.count(1):
        store.write(batch(number), changelog_offset=number + 1)
        store.flush()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script % str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.startswith("StateError state store 'counts' in"), done.stderr
    assert "the disk is full. Free space there" in done.stdout
    store = RocksDBStore(tmp_path, "counts", DEFAULTS)
    assert dict(store.range()) == applied(range(store.changelog_offset() or 0))
    assert store.changelog_offset()
    store.close()


def test_path_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        StateError, match=r"state store 'counts' in .*/file/store can't be opened.*Check that state.dir"
    ):
        RocksDBStore(tmp_path / "file" / "store", "counts", DEFAULTS)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_program_may_change_the_options_of_a_store(tmp_path: Path) -> None:
    def setter(name: str, options: Options) -> None:
        if name == "many-files":
            options.set_keep_log_file_num(7)

    options = RocksDBOptions(memory_bytes=8 << 20, config_setter=setter)
    for name, kept in (("many-files", "7"), ("other", "1")):
        store = RocksDBStore(tmp_path / name, name, options)
        store.write([(b"k", b"v")])
        store.close()
        (written,) = (tmp_path / name).glob("OPTIONS-*")
        assert f"keep_log_file_num={kept}\n" in written.read_text()


def test_a_setter_that_raises_is_named(tmp_path: Path) -> None:
    def setter(name: str, options: Options) -> None:
        raise ValueError("no such option")

    options = RocksDBOptions(memory_bytes=8 << 20, config_setter=setter)
    with pytest.raises(ConfigError, match=r"rocksdb\.config\.setter raised ValueError for store 's': no such option"):
        RocksDBStore(tmp_path / "s", "s", options)
