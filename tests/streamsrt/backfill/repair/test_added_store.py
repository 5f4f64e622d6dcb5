"""A store that an upgrade adds is begun beside the running application, and ends where that was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsrt.app import KafkaStreams
from streamsrt.backfill import Backfill
from streamsrt.backfill.errors import HandOverError
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.backfill.processes import InProcess
from tests.streamsrt.backfill.repair import added
from tests.streamsrt.backfill.repair.added import GRACE_MS, WINDOW_MS
from tests.streamsrt.backfill.repartition.written import Record, Written, written
from topology.graph.topology import Topology

PROGRAM = "tests.streamsrt.backfill.repair.added:second"
START_MS = 1_700_000_000_000 // WINDOW_MS * WINDOW_MS
ADDED = ("per-minute", "items")


class Shop(Written):
    """The cluster, with the application under its names."""

    folder: Path

    def order(self, *minutes: float) -> None:
        records: list[Record] = [
            (b"customer-%d" % (number % 7), b"item-%d" % (number % 5), round(START_MS + minute * WINDOW_MS), ())
            for number, minute in enumerate(minutes)
        ]
        self.write_by_key("added-orders", 2, records)

    def instance(self, topology: Topology, application_id: str = "shop", **settings: Any) -> KafkaStreams:
        config = {"application.id": application_id, "bootstrap.servers": self.servers}
        return KafkaStreams(topology, {**config, "state.dir": self.folder / application_id, **settings})

    def process(self, topology: Topology, application_id: str = "shop", **settings: Any) -> None:
        self.instance(topology, application_id, **settings).run(until="quiet", timeout_s=120, signals=False)

    def begun(self, store: str, name: str, after: Path | None = None) -> Backfill:
        backfill = Backfill(self.folder / name, bootstrap_servers=self.servers)
        backfill.plan(PROGRAM, application_id="shop", store=store, after=after, config={"topic.retention.ms": "-1"})
        backfill.run(InProcess())
        return backfill


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    broker = BundledBroker(tmp_path / "broker")
    broker.start()
    try:
        with written(broker.bootstrap_servers, "added") as made:
            found = Shop(made.network, made.servers, "added", "shop")
            found.folder = tmp_path
            found.create({"added-orders": 2})
            yield found
    finally:
        broker.stop()


def test_a_new_version_goes_on_exactly_where_the_old_one_was_stopped(shop: Shop) -> None:
    shop.order(*range(40))
    shop.process(added.first)
    old = shop.instance(added.first)
    old.start()
    try:
        begun = {store: shop.begun(store, f"{store}-beside") for store in ADDED}
        for store, backfill in begun.items():
            with pytest.raises(
                HandOverError, match=rf"Stop all .*--store {store} --after .*{store}-beside --dir OTHER"
            ):
                backfill.check_commit()
        with pytest.raises(HandOverError, match="is running"):
            shop.begun("counts", "counts-beside")
        # What the old version reads while the backfill is under way.
        shop.order(*range(40, 60))
    finally:
        old.close()
    shop.process(added.first)
    for store, backfill in begun.items():
        rest = shop.begun(store, f"{store}-rest", after=backfill.directory)
        assert sum(each.records for each in rest.verify()) < 40 * 2
        rest.commit()
    # The last one is too late for its window, for the version that has always had the store as for this one.
    shop.order(*range(60, 70), 69 - (WINDOW_MS + GRACE_MS) / WINDOW_MS - 2)
    shop.process(added.second, **{"topology.epoch": 1, "topic.retention.ms": "-1"})
    shop.process(added.second, "always", **{"topic.retention.ms": "-1"})
    for store in ("counts", *ADDED):
        rows = shop.rows(f"shop-{store}-changelog")
        assert rows == shop.rows(f"always-{store}-changelog")
        assert sum(map(len, rows.values())) >= 5
