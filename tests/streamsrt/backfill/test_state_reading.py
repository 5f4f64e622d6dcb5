"""What is exported of a running application is what it has committed, of every kind of store; files that lag are refused."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import orjson
import pyarrow.parquet as pq
import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill.column_types import TIME, time_of_ms
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import (
    COLUMNS,
    POSITION_KEY,
    StateFiles,
    StateLog,
    StateRow,
    StoreReading,
    StoreSource,
    export_parquet,
)
from streamsrt.cli.entry import run_command_line
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, NewTopic
from streamsrt.errors import ConfigError, StateDirectoryLockedError
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.records import encode_batch
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill import every_store
from tests.streamsrt.backfill.every_store import EVERYWHERE, GLOBAL, LAST, MINUTE_MS, TABLE, UNLOGGED, WORDS
from tests.system.processes import wait_until
from topology.graph.nodes import StoreSpec

PARTITIONS = 2
KEYS = [f"key-{number}" for number in range(9)]
ROUNDS_MS = (1_000, 1_500, 1_000 + MINUTE_MS)
SPECS = {spec.name: spec for each in every_store.topology.subtopologies for spec in each.stores}
TOPICS = (WORDS, TABLE, EVERYWHERE, "every-rows", "every-others")


class Scene:
    """Topics with three rounds of records, and an instance that has committed all of them and still runs."""

    def __init__(self, servers: str, folder: Path, network: NetworkThread, application: str, **config: str) -> None:
        self.servers, self.network = servers, network
        self.name, self.application_id = f"tests.streamsrt.backfill.every_store:{application}", f"every-{application}"
        self.state_dir = folder / "state"
        settings = {
            "application.id": self.application_id,
            "bootstrap.servers": servers,
            "state.dir": self.state_dir,
            "commit.interval.ms": 100,
            **config,
        }
        self.streams = KafkaStreams(getattr(every_store, application), settings)

    def load(self) -> None:
        collector = RecordCollector(self.network.producer.send, lambda _topic: PARTITIONS)
        keys = [key.encode() for key in KEYS]
        for at in ROUNDS_MS:
            for topic in TOPICS:
                # What the join's other side has comes too late for it, so all records wait for another one.
                times = [at + 10 * (topic == TABLE)] * len(keys)
                collector.add(topic, keys, [f"at {at}".encode()] * len(keys), times)
            # What is deleted is not in the export; in a versioned store it is history.
            collector.add("every-rows", keys[:1], [None], [at])
        collector.flush()
        self.network.producer.flush()

    def wait(self) -> None:
        sources = [(topic, partition) for topic in TOPICS if topic != EVERYWHERE for partition in range(PARTITIONS)]

        def is_done() -> bool:
            ends = self.network.admin.list_offsets(dict.fromkeys(sources, LATEST))
            committed = self.network.admin.committed(self.application_id)
            return (
                all(tp in committed and committed[tp].offset == ends[tp].offset for tp in sources)
                and self.streams.progress.lag_records == 0
            )

        wait_until(is_done, "everything is committed")

    def reading(self, store: str) -> StoreReading:
        return StoreReading(self.name, self.application_id, store)

    def log(self, store: str) -> list[StateRow]:
        return rows(StateLog(self.reading(store), self.network))

    def files(self, store: str) -> list[StateRow]:
        return rows(StateFiles(self.reading(store), self.state_dir))


def rows(source: StoreSource) -> list[StateRow]:
    found: list[StateRow] = []
    for partition in source.partitions():
        with source.snapshot(partition) as snapshot:
            found += snapshot.rows
    return sorted(found, key=repr)


@pytest.fixture(scope="module", params=["topology", "optimised"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("every-store")
    broker = BundledBroker(folder / "broker")
    broker.start()
    guarantee = {"topology": "at_least_once", "optimised": "exactly_once_v2"}[request.param]
    try:
        with connected(broker.bootstrap_servers) as network:
            network.admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS) for topic in TOPICS])
            made = Scene(
                broker.bootstrap_servers, folder, network, request.param, **{"processing.guarantee": guarantee}
            )
            made.load()
            with contextlib.closing(made.streams):
                made.streams.start()
                made.wait()
                yield made
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_application_has_every_kind_of_store_that_there_is() -> None:
    kinds = get_args(get_type_hints(StoreSpec)["kind"])
    assert {spec.kind for spec in SPECS.values()} == set(kinds)
    optimised = [spec for each in every_store.optimised.subtopologies for spec in each.stores]
    present = {
        name: {getattr(spec, name) not in (None, (), False) for spec in [*SPECS.values(), *optimised]}
        for name in (each.name for each in fields(StoreSpec))
    }
    # Whatever else a store may be must be there, and not be there, in some of these.
    always = {"name", "kind", "key_serde", "value_serde"}
    missing = {name for name, seen in present.items() if name not in always and True not in seen}
    assert missing <= {"changelog_configs", "default_persistence", "bare_values"}
    assert all(False in present[name] for name in ("timestamped", "persistent", "caching", "logging"))


def test_a_running_instance_s_stores_are_exported_as_committed(scene: Scene) -> None:
    counts = [(row.key, row.value, row.timestamp) for row in scene.log("counts")]
    assert sorted(counts) == [(key, "3", ROUNDS_MS[-1]) for key in KEYS]
    for same in ("in-memory", "own", "uncached", "short-lived"):
        assert scene.log(same) == scene.log("counts"), same
    assert [(row.key, row.value) for row in scene.log("plain")] == [(row.key, row.value) for row in scene.log("counts")]
    assert {row.timestamp for row in scene.log("plain")} == {None}
    assert len(scene.log(LAST)) == 2 * PARTITIONS
    assert {(row.value, row.timestamp) for row in scene.log("added")} == {(f"at {ROUNDS_MS[-1]}", None)}


def test_times_of_windows_sessions_and_versions_are_columns(scene: Scene) -> None:
    minutes = sorted((r.key, r.window_start, r.window_end, r.value) for r in scene.log("minutes"))
    assert minutes == sorted(
        each for key in KEYS for each in ((key, 0, MINUTE_MS, "2"), (key, MINUTE_MS, 2 * MINUTE_MS, "1"))
    )
    assert scene.log("minutes-in-memory") == scene.log("minutes")
    sessions = sorted((r.key, r.window_start, r.window_end, r.value) for r in scene.log("sessions"))
    last = ROUNDS_MS[2]
    assert sessions == sorted(each for key in KEYS for each in ((key, *ROUNDS_MS[:2], "2"), (key, last, last, "1")))
    assert scene.log("sessions-in-memory") == scene.log("sessions-headers") == scene.log("sessions")
    history = {(r.timestamp, r.valid_to, r.value) for r in scene.log("history")}
    ends = [*ROUNDS_MS[1:], None]
    assert (ROUNDS_MS[2], None, f"at {ROUNDS_MS[2]}") in history
    assert history <= {(at, end, f"at {at}") for at in ROUNDS_MS for end in ends}
    held = {(r.window_start, r.window_end, r.value) for r in scene.log("held-store")}
    assert held == {(0, MINUTE_MS, "2"), (MINUTE_MS, 2 * MINUTE_MS, "1")}
    assert {row.value for row in scene.log(GLOBAL)} == {f"at {ROUNDS_MS[-1]}"}
    assert sorted(row.key for row in scene.log(GLOBAL)) == KEYS
    duplicates = [(row.key, row.window_start) for row in scene.log("added-windows")]
    assert sorted(duplicates) == sorted((key, at) for key in KEYS for at in ROUNDS_MS)


def test_all_stores_can_be_read(scene: Scene) -> None:
    read = {name: scene.log(name) for name in SPECS if name != UNLOGGED}
    assert [name for name, found in read.items() if not found] == []
    assert sorted(row.key for row in read["rows"]) == KEYS[1:]


def test_files_of_a_running_instance_are_refused(scene: Scene) -> None:
    with pytest.raises(StateDirectoryLockedError, match=r"an instance runs with .* read it from its changelog"):
        scene.files("counts")
    with pytest.raises(StateDirectoryLockedError, match=r"an instance runs with .* stop it first"):
        scene.files(UNLOGGED)
    with pytest.raises(ConfigError, match=r"no changelog \(logging=False\)"):
        scene.log(UNLOGGED)
    with pytest.raises(ConfigError, match="is not in files: leave the state directory out"):
        scene.files("in-memory")
    with pytest.raises(ConfigError, match="has not run on this cluster yet"):
        StateLog(StoreReading(scene.name, "another", "counts"), scene.network)


def test_the_position_is_printed_and_in_the_files(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = ("--application", scene.name, "--application-id", scene.application_id)
    words = ("state", "export", "counts", *app, "--bootstrap-servers", scene.servers, "--parquet", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        run_command_line([*words, "--json"])
    assert ended.value.code == 0
    printed = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    topic = f"{scene.application_id}-counts-changelog"
    ends = scene.network.admin.list_offsets({(topic, partition): LATEST for partition in range(PARTITIONS)})
    expected = {partition: at.offset for (_, partition), at in ends.items()}
    assert {each["partition"]: each["position"] for each in printed} == {
        partition: f"{topic}-{partition}:{offset}" for partition, offset in expected.items()
    }
    assert sum(each["rows"] for each in printed) == len(KEYS)
    for partition, offset in expected.items():
        metadata = pq.read_schema(tmp_path / f"partition-{partition}.parquet").metadata
        assert orjson.loads(metadata[POSITION_KEY]) == {topic: {str(partition): offset}}


def test_typed_exports_have_times_and_numbers(scene: Scene, tmp_path: Path) -> None:
    def exported(store: str) -> list[dict[str, object]]:
        reading = StoreReading(scene.name, scene.application_id, store, typed=True)
        export_parquet(StateLog(reading, scene.network), tmp_path / store)
        found = pq.read_table(tmp_path / store)
        times = {found.schema.field(name).type for name in ("timestamp", "window_start", "window_end", "valid_to")}
        assert times == {TIME}
        rows: list[dict[str, object]] = found.to_pylist()
        plain = [(row.key, row.partition, *map(time_of_ms, row[2:6])) for row in scene.log(store)]
        typed = [tuple(row[name] for name in ("key", "partition", *COLUMNS[2:6])) for row in rows]
        assert sorted(typed, key=repr) == sorted(plain, key=repr)
        return rows

    def at(ms: int) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)

    assert {(row["value"], row["timestamp"]) for row in exported("counts")} == {(3, at(ROUNDS_MS[-1]))}
    windows = {(row["window_start"], row["window_end"], row["value"]) for row in exported("minutes")}
    assert windows == {(at(0), at(MINUTE_MS), 2), (at(MINUTE_MS), at(2 * MINUTE_MS), 1)}
    sessions = {(row["window_start"], row["window_end"], row["value"]) for row in exported("sessions")}
    last = at(ROUNDS_MS[2])
    assert sessions == {(at(ROUNDS_MS[0]), at(ROUNDS_MS[1]), 2), (last, last, 1)}
    history = exported("history")
    assert (f"at {ROUNDS_MS[2]}", last, None) in [(row["value"], row["timestamp"], row["valid_to"]) for row in history]
    assert {row["valid_to"] for row in history} > {None}
    # A window in the key, and every other kind of store.
    assert {row["window_start"] for row in exported("held-store")} == {at(0), at(MINUTE_MS)}
    assert all(exported(store) for store in SPECS if store != UNLOGGED)


def test_what_needs_pyarrow_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(
        BackfillError, match=r"need pyarrow, which is not installed: pip install 'streamsrt\[backfill\]'"
    ):
        StoreReading("tests.streamsrt.backfill.every_store:topology", "every", "counts", typed=True)


def test_what_an_open_transaction_has_written_is_not_exported(scene: Scene) -> None:
    expected = scene.log("rows")
    topic = StateLog(scene.reading("rows"), scene.network).positions
    with connected(scene.servers, transactional_id=f"open-{scene.application_id}") as writer:
        writer.transactions.initialize(10.0)
        for name, partition in topic:
            writer.producer.send(name, partition, encode_batch([b"open"], [b"1"], [0], transactional=True), 1)
        writer.producer.flush()
        assert scene.log("rows") == expected
        writer.transactions.abort(10.0)
    assert scene.log("rows") == expected


def test_a_later_position_does_not_change_an_earlier_one(scene: Scene) -> None:
    log = StateLog(scene.reading("counts"), scene.network)
    at_start = {tp: 0 for tp in log.positions}
    assert rows(StateLog(scene.reading("counts"), scene.network, at_start)) == []
    assert rows(StateLog(scene.reading("counts"), scene.network, log.positions)) == rows(log)


def test_the_files_of_a_stopped_instance_hold_the_same(tmp_path: Path) -> None:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        with connected(broker.bootstrap_servers) as network:
            network.admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS) for topic in TOPICS])
            scene = Scene(broker.bootstrap_servers, tmp_path, network, "topology")
            scene.load()
            with contextlib.closing(scene.streams):
                scene.streams.start()
                scene.wait()
                running = {name: scene.log(name) for name in (*SPECS, GLOBAL) if name != UNLOGGED}
            persistent = [GLOBAL, *(name for name, each in SPECS.items() if each.persistent and each.kind != "buffer")]
            for name in persistent:
                if name != UNLOGGED:
                    assert scene.files(name) == running[name], name
            assert {row.value for row in scene.files(UNLOGGED)} == {f"at {ROUNDS_MS[-1]}"}
            exported: Any = export_parquet(StateFiles(scene.reading("counts"), scene.state_dir), tmp_path / "out")
            topic = f"{scene.application_id}-counts-changelog"
            ends = network.admin.list_offsets({(topic, each.partition): LATEST for each in exported})
            assert {tp: at.offset for tp, at in ends.items()} == {
                tp: offset for each in exported for tp, offset in each.positions.items()
            }
    finally:
        broker.stop()
