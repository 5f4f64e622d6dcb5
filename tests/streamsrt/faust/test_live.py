"""A global table and pages of a process that runs, exactly once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import ROOT, BundledBroker
from tests.kafka_server import free_ports
from tests.streamsrt.faust.needed import require_faust

require_faust()

pytestmark = [pytest.mark.system, pytest.mark.slow]

PROGRAM = """
import os

import faust

app = faust.App(
    "rates-live", broker="kafka://" + os.environ["BROKER"], topic_partitions=2, topic_replication_factor=1,
    web_port=int(os.environ["PORT"]), web_bind="127.0.0.1", processing_guarantee="exactly_once",
)
options = {"key_type": str, "key_serializer": "raw", "value_type": int}
rates = app.GlobalTable("rates", default=int, key_type=str)
prices = app.topic("prices-live", **options)


@app.agent(app.topic("rates-live-in", **options))
async def learn(stream):
    async for name, rate in stream.items():
        rates[name] = rate


@app.agent(app.topic("orders-live", **options))
async def price(stream):
    async for item, amount in stream.items():
        await prices.send(key=item, value=amount * rates["x"] + rates["y"])


@app.task
async def declare():
    await app.topic("rates-declared", partitions=3, compacting=True).declare()


@app.page("/rate/{name}/")
async def show(self, request, name):
    return self.json({name: rates[name], "all": len(rates)})
"""
PATIENCE_S = 90
LOOKS = 300


def test_every_partition_sees_all_rates_and_a_page_shows_them(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    servers = {"bootstrap.servers": bundled_broker.bootstrap_servers}
    admin, producer = AdminClient(servers), Producer(servers)
    topics = [NewTopic(name, 2, 1) for name in ("rates-live-in", "orders-live", "prices-live")]
    for each in admin.create_topics(topics).values():
        each.result(PATIENCE_S)
    for number, (name, rate) in enumerate((("x", "10"), ("y", "7"))):
        producer.produce("rates-live-in", rate, name, partition=number)
    assert producer.flush(PATIENCE_S) == 0
    (tmp_path / "rated.py").write_text(PROGRAM, encoding="utf-8")
    (port,) = free_ports(1)
    with instance(bundled_broker, tmp_path, port) as process:
        log = tmp_path / f"log-{port}"
        wait_for_page(process, f"http://127.0.0.1:{port}/rate/x/", b'{"x":10,"all":2}', log)
        # The page shows what no other partition sees yet: each sees the others' rates when they are committed and read.
        assert any(all_rates_are_seen(servers, producer, look) for look in range(LOOKS))
        assert len(admin.list_topics("rates-declared", timeout=PATIENCE_S).topics["rates-declared"].partitions) == 3
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, log.read_text()[-3000:]


def test_an_instance_sees_the_rates_that_another_one_gets_later(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    servers = {"bootstrap.servers": bundled_broker.bootstrap_servers}
    admin, producer = AdminClient(servers), Producer(servers)
    names = ("rates-later-in", "orders-later", "prices-later")
    for each in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        each.result(PATIENCE_S)
    (tmp_path / "rated.py").write_text(PROGRAM.replace("-live", "-later"), encoding="utf-8")
    ports = free_ports(2)
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(instance(bundled_broker, tmp_path, port)) for port in ports]
        for process, port in zip(running, ports, strict=True):
            wait_for_page(process, f"http://127.0.0.1:{port}/rate/x/", b'{"x":0,"all":0}', tmp_path / f"log-{port}")
        for number, (name, rate) in enumerate((("x", "10"), ("y", "7"))):
            producer.produce("rates-later-in", rate, name, partition=number)
        assert producer.flush(PATIENCE_S) == 0
        for process, port in zip(running, ports, strict=True):
            wait_for_page(process, f"http://127.0.0.1:{port}/rate/x/", b'{"x":10,"all":2}', tmp_path / f"log-{port}")
        for process in running:
            process.terminate()
        assert [process.wait(PATIENCE_S) for process in running] == [0, 0]


@contextlib.contextmanager
def instance(broker: BundledBroker, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "BROKER": broker.bootstrap_servers, "PORT": str(port), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "streamsrt", "faust", "run", "rated:app", "--state-dir", f"state-{port}"]
    with (folder / f"log-{port}").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def all_rates_are_seen(servers: dict[str, str], producer: Producer, look: int) -> bool:
    """Whether orders of both partitions get both rates."""
    for number in range(4):
        producer.produce("orders-live", str(number), f"item-{look}-{number}", partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    found = priced(servers, 4 * (look + 1))
    return [found[b"item-%d-%d" % (look, number)] for number in range(4)] == [b"7", b"17", b"27", b"37"]


def wait_for_page(process: subprocess.Popen[bytes], url: str, wanted: bytes, log: Path) -> None:
    """Until it shows that."""
    found = b""
    for _ in range(LOOKS):
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                found = answer.read()
        except OSError:
            found = b""
        if found == wanted:
            return
        try:
            process.wait(0.3)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.fail(f"{found!r}: {log.read_text()[-3000:]}")


def priced(servers: dict[str, str], count: int) -> dict[bytes | None, bytes | None]:
    """What is committed, when there is as much as that."""
    consumer = Consumer({**servers, "group.id": "prices-reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("prices-live", number, 0) for number in range(2)])
    found: dict[bytes | None, bytes | None] = {}
    try:
        while len(found) < count and (message := consumer.poll(PATIENCE_S)) is not None:
            assert message.error() is None
            found[message.key()] = message.value()
    finally:
        consumer.close()
    return found
