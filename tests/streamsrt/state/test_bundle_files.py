from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamsrt.errors import StateError, StoreCorruptedError
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore, write_sst
from streamsrt.state.rocksdb_files import RocksDBFiles

ROWS = [(b"", b"empty key"), (b"a", b""), (b"b\xff", b"2"), (b"\xff", b"3")]


def store(path: Path) -> RocksDBStore:
    return RocksDBStore(path, "s", RocksDBOptions())


def test_a_bundle_is_the_store_that_was_written_row_by_row(tmp_path: Path) -> None:
    write_sst(tmp_path / "s.sst", ROWS)
    ingested, written = store(tmp_path / "a"), store(tmp_path / "b")
    ingested.ingest(tmp_path / "s.sst", changelog_offset=7)
    written.write(ROWS, changelog_offset=7)
    assert list(ingested.range()) == list(written.range()) == ROWS
    ingested.close()
    again = store(tmp_path / "a")
    assert again.changelog_offset() == 7
    assert again.get(b"b\xff") == b"2"
    again.write([(b"a", b"newer"), (b"\xff", None)], changelog_offset=9)
    assert list(again.range()) == [ROWS[0], (b"a", b"newer"), ROWS[2]]
    again.close()
    written.close()
    assert (tmp_path / "s.sst").exists()


def test_a_bundle_does_not_go_over_rows_that_are_there(tmp_path: Path) -> None:
    write_sst(tmp_path / "s.sst", ROWS)
    target = store(tmp_path / "a")
    target.write([(b"a", b"live")])
    with pytest.raises(StateError, match="is not empty"):
        target.ingest(tmp_path / "s.sst", changelog_offset=7)
    assert list(target.range()) == [(b"a", b"live")]
    target.close()


def test_a_store_without_an_offset_stays_without(tmp_path: Path) -> None:
    write_sst(tmp_path / "s.sst", ROWS)
    target = store(tmp_path / "a")
    target.ingest(tmp_path / "s.sst", changelog_offset=None)
    assert target.changelog_offset() is None
    target.close()


def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.sst").write_bytes(b"something else" * 100)
    target = store(tmp_path / "a")
    with pytest.raises(StateError):
        target.ingest(tmp_path / "s.sst", changelog_offset=1)
    target.close()
    with pytest.raises(StateError):
        write_sst(tmp_path / "nowhere" / "s.sst", ROWS)
    with pytest.raises(StateError, match="ascending"):
        write_sst(tmp_path / "t.sst", reversed(ROWS))


def test_files_are_read_beside_an_open_store_as_of_its_last_flush(tmp_path: Path) -> None:
    with RocksDBFiles(tmp_path / "a", "s") as files:
        assert (list(files.range()), files.get(b"a"), files.changelog_offset()) == ([], None, None)
    target = store(tmp_path / "a")
    target.write(ROWS, changelog_offset=3)
    target.flush()
    target.write([(b"later", b"x")], changelog_offset=4)
    with RocksDBFiles(tmp_path / "a", "s") as files:
        target.flush()
        assert (list(files.range()), files.changelog_offset()) == (ROWS, 3)
        assert list(files.range(b"a", b"c")) == ROWS[1:3]
        assert (files.get(b"a"), files.get(b"later")) == (b"", None)
    target.close()
    with RocksDBFiles(tmp_path / "a", "s") as files:
        assert (len(list(files.range())), files.changelog_offset()) == (len(ROWS) + 1, 4)


def test_damage_is_found_when_files_are_read(tmp_path: Path) -> None:
    target = store(tmp_path / "a")
    target.write([(b"k%06d" % number, b"v" * 50) for number in range(20_000)])
    target.close()
    (table,) = (tmp_path / "a").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = b"\0" * 200
    table.write_bytes(content)
    with RocksDBFiles(tmp_path / "a", "s") as files, pytest.raises(StoreCorruptedError):
        list(files.range())


def half_of(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    "damage", [lambda path: (path / "CURRENT").unlink(), lambda path: half_of(only_manifest(path))]
)
def test_rows_whose_list_of_files_is_lost_are_damage_and_not_an_empty_store(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    target = store(tmp_path / "a")
    target.write(ROWS, changelog_offset=3)
    target.close()
    damage(tmp_path / "a")
    with pytest.raises(
        StoreCorruptedError, match=r"'s' in .*/a can't be opened: its files are damaged\. Nothing is changed"
    ):
        RocksDBFiles(tmp_path / "a", "s")


def only_manifest(path: Path) -> Path:
    (manifest,) = path.glob("MANIFEST-*")
    return manifest


def test_a_store_without_rows_is_empty_and_not_damaged(tmp_path: Path) -> None:
    store(tmp_path / "a").close()
    with RocksDBFiles(tmp_path / "a", "s") as files:
        assert list(files.range()) == []
    (tmp_path / "a" / "CURRENT").unlink()
    with RocksDBFiles(tmp_path / "a", "s") as files:
        assert list(files.range()) == []
