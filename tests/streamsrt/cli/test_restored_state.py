"""A state directory that is restored from the changelogs has the rows of the one that was lost: of every kind of store."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import StoreReading
from streamsrt.backfill.stopped_state import StoppedState
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, NewTopic
from streamsrt.wire.records import encode_batch
from tests.fixtures_brokers import QUICK_GROUPS, BundledBroker
from tests.streamsrt.cli import stores_app
from tests.streamsrt.cli.conftest import Command
from tests.streamsrt.cli.stores_app import HOUR_MS, TOPIC, topology
from tests.system.processes import wait_until
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import StoreKind, kind_of

APPLICATION = f"{stores_app.__name__}:topology"
STORES: dict[str, StoreSpec] = {spec.name: spec for part in topology.subtopologies for spec in part.stores}
IN_FILES = [name for name, spec in STORES.items() if spec.persistent]
PARTITIONS = 2
JANUARY_2013_MS = 1_357_000_000_000


class Restored(NamedTuple):
    """The state directory that was lost, and what the next start has made of the changelogs."""

    lost: Path
    restored: Path


def run(servers: str, directory: Path) -> None:
    config = {
        "application.id": "kept",
        "bootstrap.servers": servers,
        "state.dir": directory,
        "commit.interval.ms": "50",
    }
    KafkaStreams(topology, config).run(until="quiet")


def write(network: NetworkThread, from_ms: int, seed: int) -> int:
    """Writes records of which some are late by seconds up to hours; the time behind them."""
    rng, now_ms = random.Random(seed), from_ms
    for _ in range(6):
        rows: dict[int, list[tuple[bytes, bytes | None, int]]] = {each: [] for each in range(PARTITIONS)}
        for _ in range(60):
            now_ms += rng.choice([0, 1_000, 5_000, 20_000, 60_000, 150_000])
            late_ms = rng.choice([0, 0, 0, 1_000, 30_000, 120_000, 600_000, 3_700_000])
            key = rng.choice("abcdefgh").encode()
            value = None if rng.random() < 0.1 else json.dumps(rng.randrange(100)).encode()
            rows[key[0] % PARTITIONS].append((key, value, now_ms - late_ms))
        for partition, batch in rows.items():
            if batch:
                keys, values, timestamps = map(list, zip(*batch, strict=True))
                network.producer.send(TOPIC, partition, encode_batch(keys, values, timestamps), len(batch))
    network.producer.flush()
    return now_ms


def create_topics(network: NetworkThread) -> None:
    topics = [
        NewTopic(name=name, partitions=PARTITIONS, configs={"retention.ms": "-1"}) for name in (TOPIC, "kept-out")
    ]
    assert not any(network.admin.create_topics(topics).values())


def rows_of(directory: Path, store: str, *, as_bytes: bool = False) -> Counter[str]:
    stopped = StoppedState(directory)
    reading = None if as_bytes else StoreReading(APPLICATION, stopped.application_id, store)
    return Counter(map(repr, stopped.rows(store, reading)))


@pytest.fixture(scope="module")
def of_today(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    """Records of the last hours, in two runs."""
    folder = tmp_path_factory.mktemp("today")
    broker = BundledBroker(folder / "broker")
    broker.start()
    try:
        with connected(broker.bootstrap_servers) as network:
            create_topics(network)
            until_ms = write(network, int(time.time() * 1000) - 20 * HOUR_MS, seed=1)
            run(broker.bootstrap_servers, folder / "lost")
            write(network, until_ms, seed=2)
        run(broker.bootstrap_servers, folder / "lost")
        run(broker.bootstrap_servers, folder / "restored")
        yield Restored(folder / "lost", folder / "restored")
    finally:
        broker.stop()


def test_the_application_has_every_kind_of_store_that_is_in_files() -> None:
    assert {kind_of(STORES[name]) for name in IN_FILES} == set(StoreKind) - {StoreKind.LRU, StoreKind.BUFFER}


@pytest.mark.parametrize("store", IN_FILES)
def test_a_restored_store_has_the_same_rows(of_today: Restored, store: str) -> None:
    rows = rows_of(of_today.lost, store)
    assert rows
    assert rows_of(of_today.restored, store) == rows
    if kind_of(STORES[store]) is not StoreKind.DUPLICATES:
        # Of these, rows that expire before they are written are in the changelog only.
        assert rows_of(of_today.restored, store, as_bytes=True) == rows_of(of_today.lost, store, as_bytes=True)


@pytest.mark.parametrize("store", IN_FILES)
def test_directories_are_compared_without_the_application(command: Command, of_today: Restored, store: str) -> None:
    as_bytes = sum(rows_of(of_today.lost, store, as_bytes=True).values())
    done = command("state", "diff", of_today.lost, of_today.restored, "--store", store, "--limit", "0", "--json")
    (counts,) = done.rows
    assert counts["first_rows"] == as_bytes
    assert (counts["only_first"], counts["different"]) == (0, 0)


@pytest.mark.parametrize("store", IN_FILES)
def test_bytes_of_a_store_are_its_rows_without_what_it_keeps_for_itself(
    command: Command, of_today: Restored, store: str
) -> None:
    as_bytes = command("state", "inspect", of_today.lost, "--store", store, "--limit", 100_000, "--json").rows
    assert as_bytes
    assert all(row["key"] for row in as_bytes)
    read = sum(rows_of(of_today.lost, store).values())
    # Rows that are beyond retention are there until their whole segment is.
    assert len(as_bytes) >= read
    if STORES[store].retention_ms is None:
        assert len(as_bytes) == read
    listed = [row for row in command("state", "inspect", of_today.lost, "--json").rows if row["store"] == store]
    assert len(listed) == PARTITIONS


def test_a_changelog_keeps_old_windows_as_long_as_the_broker_clock_allows(tmp_path: Path) -> None:
    """Kafka deletes the records of a windowed changelog by their timestamps and its own clock, a day after the store's
    retention; the store itself goes by stream time. So windows of records of former days are only on disk then."""
    broker = BundledBroker(tmp_path / "broker", {**QUICK_GROUPS, "log.retention.check.interval.ms": "100"})
    broker.start()
    lost, restored = tmp_path / "lost", tmp_path / "restored"
    try:
        with connected(broker.bootstrap_servers) as network:
            create_topics(network)
            write(network, JANUARY_2013_MS, seed=1)
            run(broker.bootstrap_servers, lost)
            changelog = [("kept-sessions-late-changelog", each) for each in range(PARTITIONS)]

            def is_deleted() -> bool:
                first = network.admin.list_offsets(dict.fromkeys(changelog, EARLIEST))
                last = network.admin.list_offsets(dict.fromkeys(changelog, LATEST))
                return all(0 < last[each].offset == first[each].offset for each in changelog)

            wait_until(is_deleted, "the broker deletes what is expired by its clock")
        run(broker.bootstrap_servers, restored)
    finally:
        broker.stop()
    assert rows_of(lost, "sessions-late")
    assert not rows_of(restored, "sessions-late")
    for kept in ("sessions-logged-forever", "versioned-long", "counts"):
        assert rows_of(lost, kept)
        assert rows_of(restored, kept) == rows_of(lost, kept)
