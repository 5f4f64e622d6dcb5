"""State that follows its keys to more partitions: killed and resumed, compared with a plain model; what is refused."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.repartition.job import StateRepartition
from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import StateLog, StoreReading
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, NewTopic
from streamsrt.errors import UserError
from streamsrt.tasks.input.offset_metadata import RepartitionRunningError
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.fixtures_brokers import BundledBroker
from tests.kafka_server import KafkaServer
from tests.streamsrt.backfill.repartition import shop_app
from tests.streamsrt.backfill.repartition.shop_app import (
    ASKS,
    AUTHORS,
    BIDS,
    BOOKS,
    ORDERS,
    PAIRS,
    PRICES,
    QUOTED,
    RAISED,
    TOPICS,
    WINDOW_MS,
    author_of,
)

APPLICATION = "tests.streamsrt.backfill.repartition.shop_app:topology"
CUSTOMERS = [f"customer-{number}" for number in range(40)]
TITLES = [f"title-{number}" for number in range(30)]
AUTHOR_NAMES = [f"author-{number}" for number in range(6)]
STORES = ("per-customer", "per-minute", "sessions", "per-item", "offers", "shelf")

Expected = dict[str, dict[tuple[object, ...], object]]


@dataclass
class Shop:
    """One cluster with the application's topics, and a plain model of what the application keeps."""

    servers: str
    network: NetworkThread
    application_id: str
    folder: Path
    counts: dict[str, int]
    orders: list[tuple[str, str, int]] = field(default_factory=list)
    start_ms: int = field(default_factory=lambda: (int(time.time()) // 3600 - 1) * 3_600_000)
    """Of the changelogs of windows the cluster deletes what is older than a day."""
    tables: dict[str, dict[str, str]] = field(default_factory=lambda: {BOOKS: {}, PRICES: {}, AUTHORS: {}})

    def create(self) -> None:
        admin = self.network.admin
        topics = [
            NewTopic(name=name, partitions=count, configs={"retention.ms": "-1"}) for name, count in self.counts.items()
        ]
        assert not any(admin.create_topics(topics).values())

    def raise_counts(self, to: int, topics: Sequence[str] = RAISED) -> None:
        assert not any(self.network.admin.create_partitions(dict.fromkeys(topics, to)).values())
        self.counts.update(dict.fromkeys(topics, to))

    def order(self, customers: Sequence[str], item: str, minute: int) -> None:
        at_ms = self.start_ms + minute * WINDOW_MS
        self._write(ORDERS, customers, [item] * len(customers), at_ms)
        self.orders += [(customer, item, at_ms) for customer in customers]

    def put(self, topic: str, rows: dict[str, str], minute: int) -> None:
        self._write(topic, list(rows), list(rows.values()), self.start_ms + minute * WINDOW_MS)
        self.tables[topic].update(rows)

    def say(self, topic: str, keys: Sequence[str], value: str, minute: int) -> None:
        self._write(topic, keys, [value] * len(keys), self.start_ms + minute * WINDOW_MS)

    def _write(self, topic: str, keys: Sequence[str], values: Sequence[str], at_ms: int) -> None:
        collector = RecordCollector(self.network.producer.send, self.counts.__getitem__)
        collector.add(topic, [key.encode() for key in keys], [each.encode() for each in values], [at_ms] * len(keys))
        collector.flush()
        self.network.producer.flush()

    def first_round(self) -> None:
        for number in range(4):
            self.order(CUSTOMERS[number * 5 :], f"item-{number}", number)
        self.put(BOOKS, {title: f"{AUTHOR_NAMES[i % 6]}/{title}" for i, title in enumerate(TITLES)}, 0)
        self.put(PRICES, {title: f"{i} EUR" for i, title in enumerate(TITLES[:20])}, 0)
        self.put(AUTHORS, {name: f"the {name}" for name in AUTHOR_NAMES[:4]}, 0)
        self.say(ASKS, CUSTOMERS[:30], "a0", 0)
        # All at one time: they wait for the as-of join in both partitions under the same numbers.
        self.say(BIDS, CUSTOMERS, "b1", 1)

    def second_round(self) -> None:
        for number in range(3):
            self.order(CUSTOMERS, f"item-{number + 2}", number + 4)
        # The answer to a change of the right table goes where the left row is now.
        self.put(AUTHORS, {name: f"once more {name}" for name in AUTHOR_NAMES}, 1)
        self.put(BOOKS, {title: f"{AUTHOR_NAMES[(i + 1) % 6]}/{title}" for i, title in enumerate(TITLES[:7])}, 2)
        self.put(PRICES, {title: "free" for title in TITLES[15:]}, 1)

        self.say(ASKS, CUSTOMERS, "a2", 2)
        self.say(BIDS, CUSTOMERS, "b10", 10)

    def run(self, state: str = "state", **config: object) -> None:
        streams = KafkaStreams(shop_app.topology, self._settings(state, config))
        streams.run(until="quiet", timeout_s=120, signals=False)

    def _settings(self, state: str, config: dict[str, object]) -> dict[str, object]:
        return {
            "application.id": self.application_id,
            "bootstrap.servers": self.servers,
            "state.dir": self.folder / state,
            "processing.guarantee": "exactly_once_v2",
            **config,
        }

    def repartition(self) -> StateRepartition:
        return StateRepartition(APPLICATION, self.application_id, bootstrap_servers=self.servers)

    def state(self) -> Expected:
        """What the changelogs have, each row once."""
        found: Expected = {}
        for name in STORES:
            log = StateLog(StoreReading(APPLICATION, self.application_id, name), self.network)
            rows = found[name] = {}
            for partition in log.partitions():
                with log.snapshot(partition) as snapshot:
                    for row in snapshot.rows:
                        key = (row.key, row.window_start, row.window_end)
                        assert key not in rows, f"{name}: {key} is in two partitions"
                        rows[key] = row.value
        return found

    def outputs(self, topic: str) -> Counter[tuple[str, str]]:
        """What was written to an output topic."""
        ends = self.network.admin.list_offsets({(topic, index): LATEST for index in range(self.counts[topic])})
        found: Counter[tuple[str, str]] = Counter()
        for tp, end in ends.items():
            for columns in read_log(self.network, tp, 0, end.offset):
                for key, value in zip(columns.keys, columns.values, strict=True):
                    found[(key or b"").decode(), (value or b"").decode()] += 1
        return found

    def check_outputs(self) -> None:
        """Of the joins of streams, after both rounds."""
        pairs = ("b1+a0", "b1+a2", "b10+a0", "b10+a2")
        # The bids of the last ten wait unmatched while they move.
        assert self.outputs(PAIRS) == Counter(
            (customer, pair)
            for index, customer in enumerate(CUSTOMERS)
            for pair in pairs
            if index < 30 or pair.endswith("a2")
        )
        assert self.outputs(QUOTED) == Counter((customer, "b1@a0") for customer in CUSTOMERS[:30])

    def expected(self) -> Expected:
        def plain(counts: Counter[str]) -> dict[tuple[object, ...], object]:
            return {(key, None, None): str(count) for key, count in counts.items()}

        windows = Counter((customer, at // WINDOW_MS * WINDOW_MS) for customer, _, at in self.orders)
        books, prices, authors = self.tables[BOOKS], self.tables[PRICES], self.tables[AUTHORS]
        minutes: dict[tuple[object, ...], object] = {
            (customer, start, start + WINDOW_MS): str(count) for (customer, start), count in windows.items()
        }
        # The records of a customer are a minute apart, so that each is a session of its own.
        sessions: dict[tuple[object, ...], object] = {
            (customer, at, at): str(count) for (customer, _, at), count in Counter(self.orders).items()
        }
        return {
            "per-customer": plain(Counter(customer for customer, _, _ in self.orders)),
            "per-minute": minutes,
            "sessions": sessions,
            "per-item": plain(Counter(item for _, item, _ in self.orders)),
            "offers": {(t, None, None): f"{b} for {prices[t]}" for t, b in books.items() if t in prices},
            "shelf": {
                (t, None, None): f"{b} by {authors[author_of(b)]}" for t, b in books.items() if author_of(b) in authors
            },
        }


def opened(servers: str, folder: Path) -> Iterator[Shop]:
    with connected(servers) as network:
        made = Shop(servers, network, "moved", folder, dict.fromkeys(TOPICS, 2))
        made.create()
        yield made


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        yield from opened(broker.bootstrap_servers, tmp_path)
    finally:
        broker.stop()


@pytest.fixture
def shop_on_kafka(apache_kafka: KafkaServer, tmp_path: Path) -> Iterator[Shop]:
    yield from opened(apache_kafka.bootstrap_servers, tmp_path)


def dies_after(servers: str, application_id: str, chunks: int) -> int | None:
    """Repartitions in a process of its own, which kills itself after so many transactions; its exit code."""
    process = multiprocessing.get_context("spawn").Process(target=_repartition, args=(servers, application_id, chunks))
    process.start()
    process.join()
    return process.exitcode


def _repartition(servers: str, application_id: str, chunks: int) -> None:
    committed = 0

    def on_step(said: str) -> None:
        nonlocal committed
        committed += said.endswith("under way")
        if committed == chunks:
            os.kill(os.getpid(), signal.SIGKILL)

    with StateRepartition(APPLICATION, application_id, bootstrap_servers=servers, chunk_rows=7) as job:
        job.execute(job.survey(), on_step)


@pytest.mark.slow
def test_state_follows_its_keys_though_the_move_is_killed_twice(shop: Shop) -> None:
    shop.first_round()
    shop.run()
    assert shop.state() == shop.expected()
    shop.raise_counts(5)
    with pytest.raises(UserError, match="streamsrt state repartition"):
        shop.run()
    for chunks in (3, 9):
        assert dies_after(shop.servers, shop.application_id, chunks) == -signal.SIGKILL
        with pytest.raises(RepartitionRunningError, match="state repartition MODULE:TOPOLOGY -a moved --execute"):
            shop.run()
    with shop.repartition() as job:
        survey = job.survey()
        assert survey.blockers == []
        assert survey.shape.is_begun
        job.execute(survey)
    with shop.repartition() as job:
        assert job.survey().shape.parts == []
    assert shop.state() == shop.expected()
    shop.second_round()
    shop.run()
    assert shop.state() == shop.expected()
    shop.check_outputs()
    shop.order(CUSTOMERS, "item-9", 7)
    shop.run("another")
    assert shop.state() == shop.expected()


@pytest.mark.kafka
def test_on_apache_kafka_in_a_classic_group(shop_on_kafka: Shop) -> None:
    shop = shop_on_kafka
    shop.first_round()
    shop.run()
    shop.raise_counts(5)
    with pytest.raises(UserError, match="streamsrt state repartition"):
        shop.run()
    with shop.repartition() as job:
        job.execute(job.survey())
    assert shop.state() == shop.expected()
    shop.second_round()
    shop.run()
    assert shop.state() == shop.expected()
    shop.check_outputs()
