"""Stores that are restored from a changelog: how rows are put in order, what is set for the time of it, and kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import Options

from streamsrt.errors import StateError
from streamsrt.state.cache import RowFormat
from streamsrt.state.key_order import positions_in_order
from streamsrt.state.kinds import cache_over, lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.rocksdb_files import RocksDBFiles
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import RecordColumns, encode_batch, iter_columns
from tests.store_kinds import KINDS, pipe
from tests.streamsrt.state.writer import logged, run_writer_and_kill_it
from topology import serdes
from topology.graph.store_kinds import StoreKind

pytestmark = pytest.mark.waits


@given(
    prefix=st.binary(max_size=20),
    parts=st.lists(st.binary(max_size=16), max_size=300),
    many=st.sampled_from([0, 250]),
    ends=st.sampled_from([b"", b"end"]),
)
def test_keys_are_put_in_order(prefix: bytes, parts: list[bytes], many: int, ends: bytes) -> None:
    keys = list({prefix + part for part in parts} | {prefix + b"%d" % number for number in range(many)})
    random.Random(1).shuffle(keys)
    positions = positions_in_order([key + ends for key in keys])
    assert sorted(positions) == list(range(len(keys)))
    ordered = [keys[at][len(prefix) :][:16].ljust(16, b"\0") for at in positions_in_order(keys)]
    assert ordered == sorted(ordered)


def test_keys_that_differ_late_are_all_there() -> None:
    keys = [b"\0" * 40 + b"%d" % number for number in range(300)] + [b"", b"x" * 1_000]
    assert sorted(positions_in_order(keys)) == list(range(302))
    assert positions_in_order([b"same"] * 300) == list(range(300))


@pytest.mark.parametrize("kind", StoreKind)
def test_every_kind_is_restored_into_rocksdb_as_into_memory(tmp_path: Path, kind: StoreKind) -> None:
    topology = KINDS[kind].build("rows", {})
    spec = KINDS[kind].spec(topology, "rows")
    with TopologyTestDriver(topology) as driver:
        for number in range(400):
            row = ("in", f"user-{number * 37 % 301}", None if number % 9 == 8 else {"n": number}, 1_000 * number)
            pipe(driver, [row, ("other", *row[1:])], reads_other=KINDS[kind].reads_other)
        driver.commit()
        changelog = [each for each in driver.producer_history if each.topic.endswith(f"-{spec.changelog_name}")]
    assert len(changelog) > 250
    found = []
    on_disk = RocksDBStore(tmp_path / "rows", "rows", RocksDBOptions(memory_bytes=8 << 20, write_buffer_bytes=64 << 10))
    on_disk.begin_restoring(100_000)
    for store in (MemoryStore("rows"), on_disk):
        cache = cache_over(spec, lay_out(spec, store), RowFormat(serdes.json.serialize, serdes.json.deserialize))
        for at in range(0, len(changelog), 130):
            some = changelog[at : at + 130]
            columns = RecordColumns(
                [each.key for each in some],
                [each.value for each in some],
                [each.timestamp for each in some],
                at,
                at + len(some),
                None,
                [each.headers for each in some],
            )
            cache.restore(columns)
        found.append((list(store.range()), store.changelog_offset()))
    on_disk.end_restoring()
    assert found[0] == found[1]
    assert (list(on_disk.range()), on_disk.changelog_offset()) == found[0]
    on_disk.close()


def trigger(path: Path) -> str:
    """How many files at level 0 begin a compaction, as RocksDB has noted it last."""
    noted = max(path.glob("OPTIONS-*"), key=str).read_text()
    return noted.split("level0_file_num_compaction_trigger=")[1].split()[0]


def test_options_are_changed_while_many_records_are_restored(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path, "s", RocksDBOptions())
    store.begin_restoring(1_000_000)
    assert trigger(tmp_path) == "16"
    store.restore([b"k"], [b"v"], 1)
    assert (store.get(b"k"), trigger(tmp_path)) == (b"v", "16")
    store.end_restoring()
    store.end_restoring()
    assert trigger(tmp_path) == "4"
    store.begin_restoring(1_000_000)
    store.write([(b"k", b"w")])
    assert trigger(tmp_path) == "4", "its task writes to it"
    store.begin_restoring(1_000_000)
    store.close()
    with pytest.raises(StateError, match="is closed"):
        store.begin_restoring(1_000_000)
    store = RocksDBStore(tmp_path, "s", RocksDBOptions())
    assert (store.get(b"k"), trigger(tmp_path)) == (b"w", "4")
    store.close()


def test_short_restores_and_the_programs_own_options_are_left_alone(tmp_path: Path) -> None:
    def setter(name: str, options: Options) -> None:
        options.set_level_zero_file_num_compaction_trigger(3)

    for name, setting, records in (("short", None, 1_000), ("own", setter, 1_000_000)):
        path = tmp_path / name
        store = RocksDBStore(path, "s", RocksDBOptions(config_setter=setting))
        before = sorted(path.glob("OPTIONS-*"))
        store.begin_restoring(records)
        store.restore([b"k"], [b"v"], 1)
        store.end_restoring()
        assert sorted(path.glob("OPTIONS-*")) == before
        store.close()


SMALL = RocksDBOptions(memory_bytes=8 << 20, write_buffers_bytes=4 << 20, write_buffer_bytes=64 << 10)


@pytest.mark.parametrize("deletes", [False, True])
def test_what_is_durable_while_files_are_restored_is_of_one_offset(tmp_path: Path, deletes: bool) -> None:
    store = RocksDBStore(tmp_path, "s", SMALL)
    store.write([(b"key-%08d" % number, b"old") for number in range(0, 30_000, 100)], changelog_offset=0)
    store.flush()
    before = dict(store.range())
    store.begin_restoring(1_000_000)
    seen = set()
    for number in range(12):
        keys, values = logged(number)
        store.restore(
            keys, values if deletes else [value or b"%0800d" % number for value in values], 500 * (number + 1)
        )
        if number % 5 == 1:
            store.delete_range(b"key-%08d" % (1_000 * number), b"key-%08d" % (1_000 * number + 999))
        with RocksDBFiles(tmp_path, "s") as durable:
            offset, rows = durable.changelog_offset() or 0, dict(durable.range())
        if offset not in seen:
            seen.add(offset)
            model: dict[bytes, bytes | None] = dict(before)
            for each in range(offset // 500):
                keys, values = logged(each)
                model.update(zip(keys, values if deletes else [v or b"%0800d" % each for v in values], strict=True))
                if each % 5 == 1 and each < number:
                    low = b"key-%08d" % (1_000 * each)
                    model = {k: v for k, v in model.items() if not low <= k < low[:-3] + b"999"}
            assert rows == {key: value for key, value in model.items() if value is not None}
    assert len(seen) > 3
    store.close()


@pytest.mark.parametrize("is_read_as_tables", [True, False])
def test_files_are_taken_over_and_what_is_left_of_one_goes(tmp_path: Path, is_read_as_tables: bool) -> None:
    (tmp_path / "restored.rows").write_bytes(b"half a file")
    store = RocksDBStore(tmp_path, "s", RocksDBOptions())
    assert not (tmp_path / "restored.rows").exists()
    store.begin_restoring(1_000_000)
    for start in range(0, 80_000, 4_000):
        keys: list[bytes | None] = [b"%09d" % (number * 7919 % 100_003) for number in range(start, start + 4_000)]
        times = list(range(start, start + 4_000))
        batch = encode_batch(keys, [b"x" * 500] * 4_000, times, base_offset=start)
        for columns in iter_columns(batch, as_tables=is_read_as_tables):
            assert (columns.tables is not None) == is_read_as_tables
            store.restore_stamped(columns)
    assert store.property("cur-size-all-mem-tables") < 100_000, "no row went through a write buffer"
    store.end_restoring()
    assert store.property("cur-size-all-mem-tables") < 100_000
    assert not (tmp_path / "restored.rows").exists()
    for number in (0, 4_000, 79_999):
        assert store.get(b"%09d" % (number * 7919 % 100_003)) == number.to_bytes(8, "big") + b"x" * 500
    assert (store.changelog_offset(), sum(1 for _ in store.range())) == (80_000, 80_000)
    store.close()


def test_a_file_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    store = RocksDBStore(tmp_path, "s", SMALL)
    store.begin_restoring(1_000_000)
    (tmp_path / "restored.rows").mkdir()
    keys, values = logged(0)
    with pytest.raises(StateError, match=r"'s' in .* can't be written"):
        store.restore(keys, values, 500)
    (tmp_path / "restored.rows").rmdir()
    rows = dict(zip(keys, values, strict=True))
    assert dict(store.range()) == {key: value for key, value in rows.items() if value is not None}
    assert store.changelog_offset() == 500
    store.close()


@pytest.mark.system
def test_a_process_that_is_killed_while_it_restores_leaves_rows_and_offset_of_one_moment(tmp_path: Path) -> None:
    offset = 0
    for last in (40, 110):
        run_writer_and_kill_it(tmp_path, offset // 500, last, "restore")
        store = RocksDBStore(tmp_path, "counts", RocksDBOptions())
        before, offset = offset, store.changelog_offset() or 0
        rows: dict[bytes, bytes | None] = {}
        for number in range(offset // 500):
            rows.update(zip(*logged(number), strict=True))
        assert dict(store.range()) == {key: value for key, value in rows.items() if value is not None}
        store.close()
        assert before < offset, "nothing was flushed by itself: the test shows nothing"
