"""An application that is moved to more partitions has the state and the results of one that had them from the start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.repartition.job import StateRepartition
from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import StateLog, StoreReading
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic
from streamsrt.runtime.values import State
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repartition import placed_app
from tests.streamsrt.backfill.repartition.placed_app import (
    REGIONS,
    WINDOW_MS,
    authors_of,
    books_of,
    by_region,
    by_size,
    finals,
    orders_of,
)
from topology.graph.topology import Topology

PATIENCE_S = 60.0
BEFORE, AFTER = 2, 5
MODULE = "tests.streamsrt.backfill.repartition.placed_app"
CUSTOMERS = [f"{region}/{number}" for region in REGIONS for number in range(6)]
START_MS = (int(time.time()) // 3600 - 1) * 3_600_000

Rows = dict[int, set[tuple[object, ...]]]


@dataclass
class Run:
    """One application with topics of its own."""

    name: str
    attribute: str
    network: NetworkThread
    servers: str
    folder: Path
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def topology(self) -> Topology:
        found: Topology = getattr(placed_app, self.attribute)
        return found

    def create(self) -> None:
        topics = [
            NewTopic(name=name, partitions=count, configs={"retention.ms": "-1"}) for name, count in self.counts.items()
        ]
        assert not any(self.network.admin.create_topics(topics).values())

    def say(self, topic: str, keys: Sequence[str], values: Sequence[str], minute: float) -> None:
        collector = RecordCollector(self.network.producer.send, self.counts.__getitem__)
        times = [START_MS + int(minute * WINDOW_MS)] * len(keys)
        collector.add(topic, [key.encode() for key in keys], [each.encode() for each in values], times)
        collector.flush()
        self.network.producer.flush()

    def order(self, minute: float, customers: Sequence[str] = CUSTOMERS) -> None:
        self.say(orders_of(self.name), customers, ["order"] * len(customers), minute)

    def streams(self, running: Event | None = None) -> KafkaStreams:
        def listen(new: State, _: State) -> None:
            if running is not None and new is State.RUNNING:
                running.set()

        settings = {
            "application.id": self.name,
            "bootstrap.servers": self.servers,
            "state.dir": self.folder / self.name,
            "processing.guarantee": "exactly_once_v2",
        }
        return KafkaStreams(self.topology, settings, state_listener=listen)

    def run(self) -> None:
        self.streams().run(until="quiet", timeout_s=PATIENCE_S, signals=False)

    def run_until_shown(self, total: int) -> None:
        """Runs until so many final results were shown, all in all."""
        with self.streams():
            finals[self.name].wait_for(total)

    def raise_counts(self, topics: Sequence[str]) -> None:
        assert not any(self.network.admin.create_partitions(dict.fromkeys(topics, AFTER)).values())
        self.counts.update(dict.fromkeys(topics, AFTER))

    def move(self, topics: Sequence[str]) -> None:
        self.raise_counts(topics)
        with StateRepartition(f"{MODULE}:{self.attribute}", self.name, bootstrap_servers=self.servers) as job:
            survey = job.survey()
            assert survey.blockers == []
            assert survey.moves > 0
            job.execute(survey)

    def rows(self, store: str, application_id: str = "") -> Rows:
        """What the changelog of a store has, by partition. ``application_id``: of another run of the same program."""
        log = StateLog(StoreReading(f"{MODULE}:{self.attribute}", application_id or self.name, store), self.network)
        found: Rows = {}
        for partition in log.partitions():
            with log.snapshot(partition) as snapshot:
                found[partition] = {(row.key, row.window_start, row.value) for row in snapshot.rows}
        return found


@pytest.fixture
def runs(bundled_broker: BundledBroker, tmp_path: Path) -> Iterator[dict[str, Run]]:
    """By the word that the name has behind ``region-`` or ``idle-``."""
    servers = bundled_broker.bootstrap_servers
    with connected(servers) as network:
        by_value = Run("value-moved", "moved_by_value", network, servers, tmp_path)
        yield {by_value.name: by_value} | {
            f"{kind}-{word}": Run(f"{kind}-{word}", f"{word}_{by}", network, servers, tmp_path)
            for kind, by in (("region", "by_region"), ("idle", "when_idle"))
            for word in ("moved", "fresh")
        }


@pytest.mark.slow
def test_rows_that_a_partitioner_of_the_programs_placed(runs: dict[str, Run]) -> None:
    found: dict[str, dict[str, Rows]] = {}
    stores = ("per-customer", "per-minute", "books", "shelf")
    for name, count in (("region-moved", BEFORE), ("region-fresh", AFTER)):
        run = runs[name]
        orders, books, authors = orders_of(name), books_of(name), authors_of(name)
        run.counts = {orders: count, books: count, authors: 3}
        run.create()
        for number in range(3):
            run.order(number, CUSTOMERS[number * 7 :])
        run.say(books, CUSTOMERS, [f"author-{number % 5}/{key}" for number, key in enumerate(CUSTOMERS)], 0)
        run.say(authors, [f"author-{number}" for number in range(4)], ["the author"] * 4, 0)
        run.run()
        if count == BEFORE:
            run.move([orders, books])
        run.order(4)
        # The answers go to the partitions that the left rows have now; those of others would be lost.
        run.say(authors, [f"author-{number}" for number in range(5)], ["once more"] * 5, 1)
        run.say(books, CUSTOMERS[:9], [f"author-4/{key}" for key in CUSTOMERS[:9]], 2)
        run.run()
        found[name] = {store: run.rows(store) for store in stores}
    assert found["region-moved"] == found["region-fresh"]
    for store in stores:
        rows = found["region-moved"][store]
        keys = {str(key): partition for partition, some in rows.items() for key, *_ in some}
        assert set(keys) == set(CUSTOMERS)
        assert all(by_region("", key, None, AFTER) == partition for key, partition in keys.items())
    assert {row[2] for rows in found["region-moved"]["shelf"].values() for row in rows} == {
        f"author-{4 if number < 9 else number % 5}/{key} by once more" for number, key in enumerate(CUSTOMERS)
    }


@pytest.mark.slow
def test_what_the_refusal_advises_works(runs: dict[str, Run], tmp_path: Path) -> None:
    """A partitioner needs the values of the records: a backfill reads them, and places them by the new count."""
    run = runs["value-moved"]
    orders = orders_of(run.name)
    run.counts = {orders: BEFORE}
    run.create()
    # Of unlike sizes, as the partitioner looks at them, and the same for each customer.
    sizes = {customer: "x" * number for number, customer in enumerate(CUSTOMERS)}
    for minute in range(3):
        run.say(orders, CUSTOMERS, list(sizes.values()), minute)
    run.run()
    run.raise_counts([orders])
    application = f"{MODULE}:{run.attribute}"
    with StateRepartition(application, run.name, bootstrap_servers=run.servers) as job:
        (refused,) = job.survey().blockers
    assert "store 'per-customer' can't be repartitioned: the partitioner by_size (" in refused
    assert f"of topic {run.name}-orders-repartition needs the values of the records" in refused
    assert "Run the application under another application id, with state from streamsrt backfill" in refused
    backfill = Backfill(tmp_path / "backfill", bootstrap_servers=run.servers)
    backfill.plan(application, application_id="value-anew")
    backfill.run(InProcess())
    backfill.commit()
    found = run.rows("per-customer", "value-anew")
    assert found == {
        partition: {(key, None, "3") for key, value in sizes.items() if by_size("", key, value, AFTER) == partition}
        for partition in range(AFTER)
    }


@pytest.mark.slow
def test_windows_that_the_wall_clock_closed(runs: dict[str, Run]) -> None:
    """Each window is shown once: what was closed before the move stays closed, in the partitions that are new, too."""
    for name, count in (("idle-moved", BEFORE), ("idle-fresh", AFTER)):
        run = runs[name]
        run.counts = {orders_of(name): count}
        run.create()
        for minute in (0, 0.1, 1):
            run.order(minute)
        kinds, windows = 3, 2
        total = kinds * windows * len(CUSTOMERS)
        run.run_until_shown(total)
        if count == BEFORE:
            run.move([orders_of(name)])
        # Late: in each partition, the wall clock has closed the window of minute 1.
        run.order(1.2)
        run.order(4)
        run.order(4.1)
        run.run_until_shown(total + kinds * len(CUSTOMERS))
    moved, fresh = (finals[name].shown for name in ("idle-moved", "idle-fresh"))
    assert moved == fresh
    assert set(moved.values()) == {1}
    assert Counter(of for of, *_ in moved) == dict.fromkeys(("tumbling", "sessions", "suppressed"), 3 * len(CUSTOMERS))
