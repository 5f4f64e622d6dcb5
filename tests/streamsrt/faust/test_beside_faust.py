"""The same program on faust itself and on this runtime: a change of a running application, and results side by side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import ROOT, BundledBroker
from tests.streamsrt.faust.committed import Row, by_key, committed_rows
from tests.streamsrt.faust.needed import require_faust

require_faust()

pytestmark = [pytest.mark.system, pytest.mark.slow]

PROGRAM = """
import os

import faust

app = faust.App(
    "shop", broker="kafka://" + os.environ["BROKER"], web_enabled=False, topic_partitions=2, topic_replication_factor=1,
    topic_disable_leader=True, broker_commit_interval=0.2, stream_wait_empty=False,
    processing_guarantee=os.environ.get("GUARANTEE", "at_least_once"),
)


class Order(faust.Record):
    item: str
    amount: int
    label: str


class Total(faust.Record):
    item: str
    amount: int


orders = app.topic("orders", key_type=str, value_type=Order)
totals_topic = app.topic("totals", key_type=str, value_type=Total)
large = app.topic("large", key_type=str, value_type=int)
totals = app.Table("totals", default=int)
by_label = app.Table("by_label", default=int)
windows = app.Table("windows", default=int).tumbling(10.0, expires=1e9)
amounts = app.SetTable("amounts", key_type=str)


@app.agent(orders, sink=[large])
async def count(stream):
    async for event in stream.events():
        order = event.value
        totals[order.item] += order.amount
        windows[order.item] += order.amount
        await totals_topic.send(key=order.item, value=Total(item=order.item, amount=totals[order.item]))
        seen = amounts[order.item]
        if order.amount == 3:
            seen.discard(2)
        elif order.amount == 7:
            seen.symmetric_difference_update({1, 7})
        else:
            seen.add(order.amount)
        await app.send("sets", key=order.item, value=sorted(seen))
        if order.amount > 8:
            yield windows[order.item].current()


@app.agent(orders)
async def relay(stream):
    async for key, order in stream.filter(lambda order: order.amount == 5).items():
        await app.send("fives", key=key, value=order, headers={"seen": b"yes"})


@app.agent(orders, name="shop.regroup")
async def regroup(stream):
    async for key, order in stream.group_by(Order.label).items():
        by_label[key.decode() if isinstance(key, bytes) else key] += 1


if __name__ == "__main__":
    app.main()
"""
PATIENCE_S = 90
INPUT, RESULTS = "orders", ("totals", "large", "fives", "sets")
REPARTITIONED = "shop.regroup-orders-Order.label-repartition"
TABLES = ("shop-totals-changelog", "shop-windows-changelog", "shop-by_label-changelog")


class Cluster:
    """A bundled broker with the program and its topics."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "shop.py").write_text(PROGRAM, encoding="utf-8")
        self._broker = BundledBroker(folder / "broker")

    def __enter__(self) -> Cluster:
        self._broker.start()
        self._servers = {"bootstrap.servers": self._broker.bootstrap_servers}
        admin = AdminClient(self._servers)
        for each in admin.create_topics([NewTopic(name, 2, 1) for name in (INPUT, *RESULTS)]).values():
            each.result(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.stop()

    def produce(self, first: int, count: int) -> None:
        """Orders, each with a time of its own, in both partitions."""
        producer = Producer(self._servers)
        for number in range(first, first + count):
            order = json.dumps({"item": f"item-{number % 7}", "amount": number % 10, "label": f"label-{number % 3}"})
            place = {"partition": number % 7 % 2, "timestamp": 1_700_000_000_000 + number * 500}
            producer.produce(INPUT, order, f"item-{number % 7}", **place)
        assert producer.flush(PATIENCE_S) == 0

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "BROKER": self._broker.bootstrap_servers, "PYTHONPATH": str(ROOT)}
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *command], cwd=self.folder, env=environment, stdout=log, stderr=log
            )

    def run_faust(self) -> None:
        """Until all that is there is committed; then it is told to stop."""
        worker = self._run("shop.py", "worker", "-l", "info", "--without-web")
        for _ in range(PATIENCE_S):
            try:
                worker.wait(1)
            except subprocess.TimeoutExpired:
                if self._lag() == 0:
                    worker.send_signal(signal.SIGTERM)
                    worker.wait(PATIENCE_S)
                    return
        worker.kill()
        worker.wait()
        pytest.fail((self.folder / "run.log").read_text()[-3000:])

    def run_ours(self, *settings: str) -> None:
        """Until all that is there is processed."""
        command = (
            "-m",
            "streamsrt",
            "faust",
            "run",
            "shop:app",
            "--until",
            "quiet",
            "-c",
            "state.dir=state",
            *settings,
        )
        code = self._run(*command).wait(PATIENCE_S)
        assert code == 0, (self.folder / "run.log").read_text()[-3000:]

    def run_ours_and_kill_it(self, results: int, *settings: str) -> None:
        """Until so many results are written, committed or not."""
        command = ("-m", "streamsrt", "faust", "run", "shop:app", "-c", "state.dir=state", *settings)
        process = self._run(*command)
        consumer = Consumer({**self._servers, "group.id": "looker", "isolation.level": "read_uncommitted"})
        try:
            for _ in range(PATIENCE_S * 20):
                ends = [consumer.get_watermark_offsets(TopicPartition("totals", number))[1] for number in range(2)]
                if sum(ends) >= results:
                    break
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(0.05)
                    pytest.fail(f"it ended with {code}: {(self.folder / 'run.log').read_text()[-2000:]}")
        finally:
            process.kill()
            process.wait()
            consumer.close()

    def _lag(self) -> int:
        consumer = Consumer({**self._servers, "group.id": "shop"})
        try:
            there = consumer.list_topics(timeout=PATIENCE_S).topics
            read = [topic for topic in (INPUT, REPARTITIONED) if topic in there]
            partitions = [TopicPartition(topic, number) for topic in read for number in range(2)]
            ends = [consumer.get_watermark_offsets(each)[1] for each in partitions]
            return sum(ends) - sum(max(0, each.offset) for each in consumer.committed(partitions))
        finally:
            consumer.close()

    def rows(self, topic: str) -> Iterator[list[Row]]:
        """What is committed of each partition."""
        return committed_rows(self._broker.bootstrap_servers, topic)

    def table(self, topic: str) -> dict[bytes | None, bytes | None]:
        """The last value of each key."""
        return {key: value for rows in self.rows(topic) for key, value, _ in rows}


@pytest.fixture(scope="module")
def faust_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What faust makes of all records."""
    with Cluster(tmp_path_factory.mktemp("beside") / "faust") as cluster:
        cluster.produce(0, 300)
        cluster.run_faust()
        yield cluster


def assert_same(ours: Cluster, theirs: Cluster) -> None:
    for topic in ("totals", "fives", "sets"):
        assert by_key(ours.rows(topic)) == by_key(theirs.rows(topic)), topic
    # Records without a key go to any partition.
    assert Counter(row for rows in ours.rows("large") for row in rows) == Counter(
        row for rows in theirs.rows("large") for row in rows
    )
    # Two partitions are read at once, so records of one key come in any order.
    for mine, other in zip(by_key(ours.rows(REPARTITIONED)), by_key(theirs.rows(REPARTITIONED)), strict=True):
        assert {key: Counter(rows) for key, rows in mine.items()} == {key: Counter(rows) for key, rows in other.items()}
    for topic in TABLES:
        assert ours.table(topic) == theirs.table(topic), topic


def test_the_same_records_come_out(tmp_path: Path, faust_alone: Cluster) -> None:
    with Cluster(tmp_path / "ours") as ours:
        ours.produce(0, 300)
        ours.run_ours()
        assert_same(ours, faust_alone)


def test_killed_again_and_again_it_counts_exactly_once(tmp_path: Path, faust_alone: Cluster) -> None:
    exact = ("-c", "processing.guarantee=exactly_once_v2", "-c", "commit.interval.ms=50")
    with Cluster(tmp_path / "killed") as killed:
        for first in range(0, 300, 100):
            killed.produce(first, 100)
            killed.run_ours_and_kill_it(first + 50, *exact)
        killed.run_ours(*exact)
        assert_same(killed, faust_alone)


def test_an_application_of_faust_goes_on_here(tmp_path: Path, faust_alone: Cluster) -> None:
    """Faust is stopped in the middle, and the same program continues: with its offsets, its tables, exactly once."""
    with Cluster(tmp_path / "moved") as moved:
        moved.produce(0, 120)
        moved.run_faust()
        moved.produce(120, 180)
        moved.run_ours("-c", "processing.guarantee=exactly_once_v2")
        assert_same(moved, faust_alone)
