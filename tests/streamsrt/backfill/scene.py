"""A cluster with the flights application's history, archives of it, and what runs over it leave behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path

from examples import flights
from streamsrt.app import KafkaStreams
from streamsrt.backfill.archive import write_archive
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.sources import connected
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, NewTopic, TopicPartition
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.system.processes import wait_until
from topology import serdes

APPLICATION = "examples.flights:topology"
TOPICS = (flights.DEPARTURES, flights.AIRLINES, flights.DELAYS)

Compacted = dict[TopicPartition, dict[bytes | None, tuple[bytes | None, int]]]
Rows = dict[tuple[str, int], list[tuple[bytes, bytes]]]


EVERY = 20
LAST = 120_000


@cache
def _departures() -> list[flights.Row]:
    """Read once: the year has a third of a million of them, which takes seconds."""
    return list(islice(flights.read_departures(), 0, LAST, EVERY))


def departures(count: int, start: int = 0) -> list[flights.Row]:
    """Departures out of the year, every so many, so that a small cut goes over many days."""
    assert start % EVERY == 0
    assert start + count * EVERY <= LAST
    return _departures()[start // EVERY : start // EVERY + count]


@dataclass
class Scene:
    """One cluster. ``folder`` is for archives, plans and state."""

    servers: str
    folder: Path
    network: NetworkThread
    loaded: dict[TopicPartition, int] = field(default_factory=dict)

    def create_topics(self, *names: str) -> None:
        """Topics of these names, empty: others may have used them on a broker that is shared."""
        admin = self.network.admin
        present = list(admin.topics(names))
        for error in admin.delete_topics(present).values() if present else ():
            assert error is None, error
        wait_until(lambda: not admin.topics(names), f"{present} are deleted")
        forever = {"retention.ms": "-1"}
        left = {name: NewTopic(name=name, partitions=flights.PARTITIONS, configs=forever) for name in names}

        def made() -> bool:
            """Apache Kafka with ZooKeeper deletes a topic some time after it has said so."""
            for name, error in admin.create_topics(list(left.values())).items():
                if error is None:
                    del left[name]
            return not left

        wait_until(made, f"{names} are there")

    def load_airlines(self) -> None:
        rows = list(flights.read_airlines())
        keys = [serdes.string.serialize(code) for code, _ in rows]
        self._write(flights.AIRLINES, keys, [serdes.string.serialize(name) for _, name in rows], [0] * len(rows))

    def load(self, rows: Sequence[flights.Row]) -> None:
        self._write(
            flights.DEPARTURES,
            [serdes.string.serialize(row.key) for row in rows],
            [serdes.json.serialize(row.value) for row in rows],
            [row.timestamp_ms for row in rows],
        )

    def _write(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], times: Sequence[int]
    ) -> None:
        collector = RecordCollector(self.network.producer.send, lambda _topic: flights.PARTITIONS)
        collector.add(topic, keys, values, times)
        collector.flush()
        self.network.producer.flush()

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        partitions = {(topic, index): LATEST for index in range(flights.PARTITIONS)}
        return {tp: at.offset for tp, at in self.network.admin.list_offsets(partitions).items()}

    def archive_departures(self, *, file_records: int = 300) -> Path:
        """Writes all departures that are in the log as an archive, and deletes them from the log."""
        root = self.folder / "archive"
        ends = self.ends(flights.DEPARTURES)
        for tp, end in ends.items():
            write_archive(root, tp[1], read_log(self.network, tp, 0, end), file_records=file_records)
        self.network.admin.delete_records(ends)
        return root

    def write_json_departures(self, root: Path) -> None:
        """Writes what the log of departures holds as lines of JSON with typed columns, in a file for each day."""
        for tp, end in self.ends(flights.DEPARTURES).items():
            for columns in read_log(self.network, tp, 0, end):
                for index, (key, value) in enumerate(zip(columns.keys, columns.values, strict=True)):
                    assert key is not None
                    assert value is not None
                    at = datetime.fromtimestamp(columns.timestamps[index] / 1_000, UTC)
                    place = {"shard": tp[1], "number": columns.offset_at(index)}
                    row = {"airline": key.decode(), "at": at.isoformat(), **place, **json.loads(value)}
                    folder = root / f"day={at:%Y-%m-%d}"
                    folder.mkdir(parents=True, exist_ok=True)
                    with open(folder / "rows.json", "a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")

    def refill_departures(self, rows: Sequence[flights.Row]) -> None:
        """Makes the topic anew with all of these: what an application reads that was there all the time."""
        self.create_topics(flights.DEPARTURES)
        self.load(rows)

    def run_live(self, application_id: str, *, timeout_s: float = 60, **config: object) -> KafkaStreams:
        """Runs the application until everything that is there is processed."""
        streams = KafkaStreams(
            flights.topology,
            {
                "application.id": application_id,
                "bootstrap.servers": self.servers,
                "state.dir": self.state_dir(application_id),
                **config,
            },
        )
        streams.run(until="quiet", timeout_s=timeout_s, signals=False)
        return streams

    def state_dir(self, application_id: str) -> Path:
        return self.folder / f"state-{application_id}"

    def stores(self, application_id: str) -> Rows:
        """Every row of every store, by store and partition."""
        root = self.state_dir(application_id) / application_id / "stores"
        found: Rows = {}
        # Beside a store is a file that says what its files depend on.
        for path in sorted(path for path in root.glob("*/*") if path.is_dir()):
            store = RocksDBStore(path, path.parent.name, RocksDBOptions())
            found[path.parent.name, int(path.name)] = list(store.range())
            store.close()
        return found

    def compacted(self, topic: str, starts: dict[TopicPartition, int] | None = None) -> Compacted:
        """The last value and timestamp of each key, by partition, from ``starts`` on."""
        found: Compacted = {}
        for tp, end in self.ends(topic).items():
            latest = found[tp] = {}
            for columns in read_log(self.network, tp, (starts or {}).get(tp, 0), end):
                latest.update(zip(columns.keys, zip(columns.values, columns.timestamps, strict=True), strict=True))
        return found

    def count(self, topic: str) -> int:
        """How many committed records a topic holds."""
        ends = self.ends(topic).items()
        return sum(len(columns) for tp, end in ends for columns in read_log(self.network, tp, 0, end))

    def changelogs(self, application_id: str) -> dict[str, Compacted]:
        stores = ("airlines", "delays-per-hour")
        return {
            store: {(store, tp[1]): rows for tp, rows in self.compacted(f"{application_id}-{store}-changelog").items()}
            for store in stores
        }


def open_scene(servers: str, folder: Path) -> Iterator[Scene]:
    """A scene with its topics and the airlines."""
    with connected(servers) as network:
        scene = Scene(servers, folder, network)
        scene.create_topics(*TOPICS)
        scene.load_airlines()
        yield scene
