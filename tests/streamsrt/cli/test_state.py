"""``streamsrt state inspect`` and ``state diff``, over the directories of an instance that has stopped."""

from __future__ import annotations

import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill.sources import connected
from streamsrt.cli.entry import run_command_line
from streamsrt.state.directory import StateDirectory
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.wire.records import encode_batch, iter_columns
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.cli import stopped_app
from tests.streamsrt.cli.conftest import Command
from topology import serdes

APPLICATION = "tests.streamsrt.cli.stopped_app:topology"
MINUTE_MS = 60_000


@dataclass
class Stopped:
    """State directories of one application at two times, and what was exported of the earlier one."""

    before: Path
    after: Path
    export: Path


def typed(*words: object, stdin: str = "") -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            run_command_line([str(word) for word in words])
    assert not ended.value.code


@pytest.fixture(scope="module")
def stopped(bundled_broker: BundledBroker, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("stopped")
    address = bundled_broker.bootstrap_servers
    typed("topics", "create", "stopped-events", "stopped-known", "-b", address)

    def process(*keys: int, timestamp: int) -> None:
        lines = "".join(f"{key}=event\n" for key in keys)
        words = ("--key", "integer", "--key-separator", "=", "--timestamp", timestamp, "-b", address)
        for topic in ("stopped-known", "stopped-events"):
            typed("produce", topic, *words, stdin=lines)
        config = {"application.id": "stopped", "bootstrap.servers": address, "state.dir": folder / "after"}
        KafkaStreams(stopped_app.topology, config).run(until="quiet")

    process(1, 2, 2, 10, timestamp=MINUTE_MS)
    shutil.copytree(folder / "after", folder / "before")
    export = ("--application", APPLICATION, "-a", "stopped", "--state-dir", folder / "before")
    typed("state", "export", "counts", *export, "--parquet", folder / "export")
    process(2, 30, timestamp=2 * MINUTE_MS)
    return Stopped(folder / "before", folder / "after", folder / "export")


def inspected(command: Command, *words: object) -> list[dict[str, Any]]:
    done = command("state", "inspect", *words, "--json")
    assert done.code == 0, done.err
    return done.rows


def test_stores_are_listed_with_kind_rows_and_position(command: Command, stopped: Stopped) -> None:
    rows = inspected(command, stopped.before)
    assert [(row["store"], row["partition"], row["kind"]) for row in rows] == [
        ("counts", 0, "key_value"),
        ("first-totals", 0, "key_value"),
        ("known", 0, "key_value"),
        ("per-minute", 0, "window"),
        ("sessions", 0, "session"),
    ]
    assert rows[0]["rows"] >= 3
    assert all(row["size_bytes"] > 0 and row["position"] > 0 for row in rows)
    assert rows[0]["changelog"] == "counts-changelog"
    assert inspected(command, stopped.before / "stopped") == rows, (
        "looking changes nothing, not even the time of the change"
    )


def test_rows_are_read_by_the_serdes_of_the_application(command: Command, stopped: Stopped) -> None:
    of_counts = ("--store", "counts", "--application", APPLICATION)
    rows = inspected(command, stopped.before, *of_counts)
    assert {row["key"]: row["value"] for row in rows} == {"1": "1", "2": "2", "10": "1"}
    between = inspected(command, stopped.before, *of_counts, "--from", "2", "--to", "10")
    assert {row["key"] for row in between} == {"2", "10"}, "by number, not by text"
    assert len(inspected(command, stopped.before, *of_counts, "--limit", "1")) == 1
    (session,) = inspected(
        command, stopped.before, "--store", "sessions", "--application", APPLICATION, "--from", "2", "--to", "2"
    )
    assert (session["value"], session["window_start"], session["window_end"]) == ("2", MINUTE_MS, MINUTE_MS)


def test_rows_that_were_restored_in_files_are_inspected_and_compared(
    command: Command, stopped: Stopped, tmp_path: Path
) -> None:
    restored, of_counts = tmp_path / "restored", ("--store", "counts", "--application", APPLICATION)
    shutil.copytree(stopped.before, restored)
    store = RocksDBStore(restored / "stopped/stores/counts/0", "counts", RocksDBOptions(write_buffer_bytes=64 << 10))
    store.begin_restoring(1_000_000)
    keys: list[bytes | None] = [serdes.integer.serialize(number) for number in range(1000)]
    values: list[bytes | None] = [serdes.long.serialize(number) for number in range(1000)]
    for columns in iter_columns(encode_batch(keys, values, [MINUTE_MS] * 1000), as_tables=True):
        store.restore_stamped(columns)
    store.end_restoring()
    files = list(store.path.glob("*.sst"))
    store.close()
    assert len(files) == 2, "what was there, and a file of what was restored"
    rows = inspected(command, restored, *of_counts, "--limit", 2000)
    assert {row["key"]: row["value"] for row in rows} == {str(number): str(number) for number in range(1000)}
    (found,) = [row for row in inspected(command, restored) if row["store"] == "counts"]
    assert found["position"] == 1000
    assert 1000 <= found["rows"] < 1010, "an estimate, in which rows count that are overwritten"
    done = command("state", "diff", stopped.before, restored, *of_counts, "--json")
    assert (done.code, done.rows[0]["second_rows"]) == (10, 1000)


@pytest.mark.parametrize("store", ["totals", "first-totals"])
def test_a_renamed_store_is_read_by_either_name(command: Command, stopped: Stopped, store: str) -> None:
    rows = inspected(command, stopped.before, "--store", store, "--application", APPLICATION)
    assert {row["key"]: row["value"] for row in rows} == {"1": "1", "2": "2", "10": "1"}


def test_a_global_store_is_read_and_exported_as_others_are(command: Command, stopped: Stopped, tmp_path: Path) -> None:
    of_known = ("--store", "known", "--application", APPLICATION)
    rows = inspected(command, stopped.after, *of_known)
    assert {row["key"]: row["value"] for row in rows} == dict.fromkeys(("1", "2", "10", "30"), "event")
    export = ("--application", APPLICATION, "-a", "stopped", "--state-dir", stopped.before, "--parquet", tmp_path)
    done = command("state", "export", "known", *export, "--json")
    assert done.rows == [{"partition": 0, "rows": 3, "position": "stopped-known-0:4"}]
    assert command("state", "diff", tmp_path, stopped.before, *of_known).code == 0
    assert command("state", "diff", tmp_path, stopped.after, *of_known).code == 10


@pytest.mark.parametrize("words", [(), ("--application", APPLICATION)])
def test_each_process_of_an_instance_has_the_same_global_store(
    command: Command, stopped: Stopped, tmp_path: Path, words: tuple[str, ...]
) -> None:
    of_two = tmp_path / "two"
    shutil.copytree(stopped.before, of_two)
    shutil.copytree(of_two / "stopped/stores/known/0", of_two / "stopped/stores/known/1")
    for name in ("stopped/stores/known", "stopped/global"):
        (note,) = (of_two / name).glob("*0.json")
        shutil.copy(note, note.with_name(note.name.replace("0.json", "1.json")))
    done = command("state", "diff", stopped.before, of_two, "--store", "known", *words, "--json")
    assert (done.code, done.rows[0]["second_rows"]) == (0, 3)
    assert len(inspected(command, of_two, "--store", "known", *words)) == 3


def test_rows_without_the_application_are_bytes(command: Command, stopped: Stopped) -> None:
    rows = inspected(command, stopped.before, "--store", "counts")
    assert {row["key"] for row in rows} == {"0x00000001", "0x00000002", "0x0000000a"}


def test_two_directories_are_compared_store_by_store(command: Command, stopped: Stopped) -> None:
    words = ("state", "diff", stopped.before, stopped.after, "--application", APPLICATION, "--json")
    done = command(*words)
    assert done.code == 10, done.err
    counts = {row["store"]: row for row in done.rows if "first_rows" in row}
    assert counts["counts"] | {"store": ""} == {
        "store": "",
        "first_rows": 3,
        "second_rows": 4,
        "only_first": 0,
        "only_second": 1,
        "different": 1,
    }
    assert (counts["sessions"]["only_second"], counts["sessions"]["different"]) == (2, 0)
    assert list(counts) == ["counts", "first-totals", "known", "per-minute", "sessions"], (
        "all, whatever they are called"
    )
    assert [counts[each]["only_second"] for each in ("first-totals", "known")] == [1, 1]
    changed = [row for row in done.rows if row["store"] == "counts" and "key" in row]
    assert [(row["key"], row["first"], row["second"]) for row in changed if row["first"]] == [("2", "2", "3")]
    assert len([row for row in command(*words, "--limit", "0").rows if "key" in row]) == 0


def test_a_store_that_the_application_does_not_have_is_compared_as_bytes(
    command: Command, stopped: Stopped, tmp_path: Path
) -> None:
    shutil.copytree(stopped.before, tmp_path / "state")
    (tmp_path / "state/stopped/stores/counts").rename(tmp_path / "state/stopped/stores/left-over")
    done = command("state", "diff", tmp_path / "state", tmp_path / "state", "--application", APPLICATION, "--json")
    assert (done.code, len(done.rows)) == (0, 5)
    assert f"store left-over: {APPLICATION} has no such store; its rows are compared as bytes" in done.err


def test_the_stream_time_of_files_that_were_installed_is_no_row(
    command: Command, stopped: Stopped, tmp_path: Path
) -> None:
    """Only instances note beside the files which kind of store it is: those of a backfill have no note yet."""
    installed = tmp_path / "installed"
    shutil.copytree(stopped.before, installed)
    notes = [path for path in installed.glob("**/stores/*/*.json") if path.stem.isdigit()]
    assert notes
    for path in notes:
        path.unlink()
    for sides in ((stopped.before, installed), (installed, stopped.before)):
        done = command("state", "diff", *sides)
        assert done.code == 0, done.out


def test_equal_states_are_equal(command: Command, stopped: Stopped) -> None:
    assert command("state", "diff", stopped.before, stopped.before).code == 0
    done = command("state", "diff", stopped.before, stopped.after, "--store", "counts")
    assert done.code == 10, "as bytes, too"


def test_an_export_is_compared_with_a_directory(command: Command, stopped: Stopped) -> None:
    of_counts = ("--store", "counts", "--application", APPLICATION)
    assert command("state", "diff", stopped.export, stopped.before, *of_counts).code == 0
    assert command("state", "diff", stopped.after, stopped.export, *of_counts).code == 10
    assert command("state", "diff", stopped.export, stopped.export).code == 0
    refused = command("state", "diff", stopped.export, stopped.before)
    assert refused.code == 2
    assert "give --application and --store" in refused.err


@pytest.mark.parametrize("store", ["counts", "per-minute", "sessions"])
def test_typed_exports_are_compared_with_their_own_kind_and_with_directories(
    command: Command, stopped: Stopped, tmp_path: Path, store: str
) -> None:
    for name, directory in (("before", stopped.before), ("after", stopped.after)):
        export = ("--application", APPLICATION, "-a", "stopped", "--state-dir", directory, "--typed")
        typed("state", "export", store, *export, "--parquet", tmp_path / name)
    of_store = ("--store", store, "--application", APPLICATION)
    assert command("state", "diff", tmp_path / "before", stopped.before, *of_store).code == 0
    assert command("state", "diff", stopped.after, tmp_path / "before", *of_store).code == 10
    assert command("state", "diff", tmp_path / "after", tmp_path / "after").code == 0
    done = command("state", "diff", tmp_path / "before", tmp_path / "after", "--json")
    assert done.code == 10
    shown = [row for row in done.rows if row.get("second") is not None]
    assert all(type(row["key"]) is int and type(row["second"]) is int for row in shown)
    assert {row["window_start"] for row in shown} <= {None, MINUTE_MS, 2 * MINUTE_MS}
    refused = command("state", "diff", stopped.export, tmp_path / "before")
    assert refused.code == 2
    assert "one export was written with --typed and the other without" in refused.err


def test_the_directory_of_a_running_instance_is_refused(command: Command, stopped: Stopped) -> None:
    with StateDirectory(stopped.before, "stopped"):
        done = command("state", "inspect", stopped.before)
    assert done.code == 4
    assert "an instance runs with" in done.err
    assert "stop it first" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "1"], "name it with --store"),
        (["--store", "nothing"], "has no store 'nothing'; it has counts, first-totals, known, per-minute"),
    ],
)
def test_mistakes_are_told(command: Command, stopped: Stopped, words: list[str], said: str) -> None:
    done = command("state", "inspect", stopped.before, *words)
    assert done.code == 2
    assert said in done.err


def test_a_directory_without_state_is_refused(command: Command, tmp_path: Path) -> None:
    done = command("state", "inspect", tmp_path)
    assert done.code == 2
    assert "has no state" in done.err
    for name in ("one", "other"):
        (tmp_path / name / "stores").mkdir(parents=True)
    assert "several applications" in command("state", "inspect", tmp_path).err


def test_what_is_not_known_of_a_store_is_a_dash_and_null_in_json(
    command: Command, stopped: Stopped, tmp_path: Path
) -> None:
    shutil.copytree(stopped.before, tmp_path / "state")
    for note in (tmp_path / "state").glob("*/stores/counts/*.json"):
        note.unlink()
    assert inspected(command, tmp_path / "state")[0]["changelog"] is None
    shown = command("state", "inspect", tmp_path / "state").out
    assert (shown.splitlines()[1].split()[:3], "None" in shown) == (["counts", "0", "-"], False)


@pytest.fixture
def damaged(stopped: Stopped, tmp_path: Path) -> Path:
    """The directory with rows that are none of the store: keys of two bytes, a value without a timestamp."""
    shutil.copytree(stopped.before, tmp_path / "damaged")
    path = tmp_path / "damaged" / "stopped" / "stores" / "counts" / "0"
    files = RocksDBStore(path, "counts", RocksDBOptions())
    files.write([(b"\xff" + bytes([number]), bytes(16)) for number in range(6)] + [(b"\x00\x00\x00\x04", b"?")])
    files.close()
    return tmp_path / "damaged"


def test_a_row_that_cannot_be_read_is_refused_or_skipped(command: Command, damaged: Path, tmp_path: Path) -> None:
    of_counts = ("--store", "counts", "--application", APPLICATION)
    refused = command("state", "inspect", damaged, *of_counts)
    assert refused.code == 5
    assert "key 0x00000004, is not what its serde reads" in refused.err
    assert "leave such rows out with --skip-unreadable" in refused.err
    done = command("state", "inspect", damaged, *of_counts, "--skip-unreadable", "--json")
    assert done.code == 10
    assert {row["key"] for row in done.rows} == {"1", "2", "10"}
    assert "skipped 7 rows that the serdes can't read: key 0x00000004 of partition 0, 0xff00 of" in done.err
    assert "0xff03 of partition 0, ..." in done.err
    export = ("state", "export", "counts", "--application", APPLICATION, "-a", "stopped", "--state-dir", damaged)
    for form in ((), ("--typed",)):
        refused = command(*export, "--parquet", tmp_path / "refused", *form)
        assert (refused.code, "--skip-unreadable" in refused.err) == (5, True)
        assert not list((tmp_path / "refused").iterdir()), "a part of the rows would read as if it were all"
        done = command(*export, "--parquet", tmp_path / "export", *form, "--skip-unreadable", "--json")
        assert (done.code, done.rows[0]["rows"]) == (10, 3)
        (exported,) = (tmp_path / "export").iterdir()
        written = exported.read_bytes()
        assert command(*export, "--parquet", tmp_path / "export", *form).code == 5
        assert exported.read_bytes() == written, "an export that failed leaves the earlier one"
        assert "wrote 3 rows" in done.err
        assert "skipped 7 rows" in done.err


def put(state: Path, store: str, *rows: tuple[bytes, bytes]) -> None:
    files = RocksDBStore(state / "stopped" / "stores" / store / "0", store, RocksDBOptions())
    files.write(rows)
    files.close()


@pytest.mark.parametrize("store", ["per-minute", "sessions"])
def test_a_row_that_the_layout_of_a_store_cannot_take_apart_is_refused_or_skipped(
    command: Command, stopped: Stopped, tmp_path: Path, store: str
) -> None:
    state = tmp_path / "damaged"
    shutil.copytree(stopped.before, state)
    put(state, store, (bytes(9), b"?"), (bytes(19), bytes(16)))
    of_store = ("--store", store, "--application", APPLICATION)
    refused = command("state", "inspect", state, *of_store)
    assert (refused.code, "key 0x000000000000000000, is not what its serde reads" in refused.err) == (5, True)
    done = command("state", "inspect", state, *of_store, "--skip-unreadable", "--json")
    assert done.code == 10
    assert {row["key"] for row in done.rows} == {"1", "2", "10"}
    assert "skipped 2 rows that the serdes can't read: key 0x000000000000000000 of partition 0, 0x0" in done.err


def test_states_are_compared_without_the_rows_that_cannot_be_read(
    command: Command, stopped: Stopped, damaged: Path
) -> None:
    put(damaged, "per-minute", (bytes(9), b"?"))
    refused = command("state", "diff", stopped.before, damaged, "--application", APPLICATION)
    assert (refused.code, "state diff leave such rows out with --skip-unreadable" in refused.err) == (5, True)
    words = ("--application", APPLICATION, "--skip-unreadable", "--json")
    done = command("state", "diff", stopped.before, damaged, *words)
    assert done.code == 10
    assert all(row["only_first"] == row["only_second"] == row["different"] == 0 for row in done.rows)
    assert f"store counts of {damaged}: skipped 7 rows that the serdes can't read: key 0x00000004" in done.err
    assert f"store per-minute of {damaged}: skipped 1 row" in done.err
    assert f"of {stopped.before}" not in done.err
    assert command("state", "diff", stopped.before, stopped.before, *words).code == 0
    for without in (("--skip-unreadable",), (*words, "--store", "counts")):
        done = command("state", "diff", stopped.export, stopped.export, *without)
        assert (done.code, "compare state directories, and give --application" in done.err) == (2, True)


def test_nothing_skipped_is_a_success(command: Command, stopped: Stopped) -> None:
    of_counts = ("--store", "counts", "--application", APPLICATION)
    done = command("state", "inspect", stopped.before, *of_counts, "--skip-unreadable", "--json")
    assert (done.code, len(done.rows)) == (0, 3)
    assert "skipped" not in done.err
    refused = command("state", "inspect", stopped.before, "--store", "counts", "--skip-unreadable")
    assert refused.code == 2
    assert "--skip-unreadable is for rows that are read by serdes" in refused.err


def test_a_row_of_a_changelog_that_cannot_be_read_is_skipped(
    command: Command, stopped: Stopped, bundled_broker: BundledBroker, tmp_path: Path
) -> None:
    address = bundled_broker.bootstrap_servers
    assert stopped.before.is_dir(), "the application has run"
    with connected(address) as network:
        network.producer.send("stopped-counts-changelog", 0, encode_batch([b"\xff\x01"], [bytes(8)], [MINUTE_MS]), 1)
        short = encode_batch([b"short", b"gone", b"gone"], [bytes(8), bytes(8), None], [MINUTE_MS] * 3)
        network.producer.send("stopped-per-minute-changelog", 0, short, 3)
        network.producer.flush()
    windows = ("state", "export", "per-minute", "--application", APPLICATION, "-a", "stopped", "-b", address)
    refused = command(*windows, "--parquet", tmp_path / "refused")
    assert (refused.code, f"key 0x{b'short'.hex()}" in refused.err) == (5, True)
    done = command(*windows, "--parquet", tmp_path / "windows", "--skip-unreadable")
    assert (done.code, f"skipped 1 row that the serdes can't read: key 0x{b'short'.hex()} of" in done.err) == (10, True)
    export = ("state", "export", "counts", "--application", APPLICATION, "-a", "stopped", "-b", address)
    refused = command(*export, "--parquet", tmp_path / "refused")
    assert (refused.code, "key 0xff01" in refused.err) == (5, True)
    done = command(*export, "--parquet", tmp_path / "export", "--skip-unreadable")
    assert done.code == 10
    assert "skipped 1 row that the serdes can't read: key 0xff01 of partition 0\n" in done.err


def test_a_store_whose_list_of_files_is_lost_is_no_empty_store(
    command: Command, stopped: Stopped, tmp_path: Path
) -> None:
    lost = tmp_path / "lost"
    shutil.copytree(stopped.before, lost)
    (lost / "stopped" / "stores" / "counts" / "0" / "CURRENT").unlink()
    of_app = ("--application", APPLICATION)
    for words in (
        ("inspect", lost),
        ("export", "counts", *of_app, "-a", "stopped", "--state-dir", lost, "--parquet", tmp_path / "export"),
        ("diff", stopped.before, lost, "--store", "counts", *of_app),
    ):
        done = command("state", *words)
        assert (done.code, "its files are damaged. Nothing is changed" in done.err) == (4, True)


def test_files_of_an_earlier_export_are_named(command: Command, stopped: Stopped, tmp_path: Path) -> None:
    export = ("state", "export", "counts", "--application", APPLICATION, "-a", "stopped", "--state-dir", stopped.before)
    done = command(*export, "--parquet", tmp_path)
    assert (done.code, "earlier export" in done.err) == (0, False)
    shutil.copy(tmp_path / "partition-0.parquet", tmp_path / "partition-7.parquet")
    done = command(*export, "--parquet", tmp_path)
    assert (done.code, "also has partition-7.parquet of an earlier export" in done.err) == (0, True)
    assert (tmp_path / "partition-7.parquet").exists()


def test_nothing_to_clean_is_said(command: Command, stopped: Stopped, tmp_path: Path) -> None:
    done = command("state", "clean", "-a", "typo", "--state-dir", stopped.before, "--execute")
    assert (done.code, done.err) == (0, f"{stopped.before} has no state of typo\n")
    assert not (stopped.before / "typo").exists()
    shutil.copytree(stopped.before, tmp_path / "copy")
    clean = ("state", "clean", "-a", "stopped", "--state-dir", tmp_path / "copy", "--execute")
    assert "deletes store counts of partition 0" in command(*clean).err
    assert "has no stores of stopped" in command(*clean).err


def test_a_damaged_export_is_refused(command: Command, stopped: Stopped, tmp_path: Path) -> None:
    shutil.copytree(stopped.export, tmp_path / "export")
    path = max((tmp_path / "export").iterdir(), key=lambda each: each.stat().st_size)
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 2] ^= 1
    path.write_bytes(content)
    done = command("state", "diff", stopped.export, tmp_path / "export")
    assert done.code, done.out
    assert f"{path.name} can't be read (it is damaged: " in " ".join(done.err.split())
    assert "Export the state again" in done.err
    assert "Traceback" not in done.err
