"""Kills the bundled broker again and again under transactional and idempotent load, and counts what is left.

    python -m tests.bench.soak_transactions --rounds 200

Each worker writes numbered transactions, a value to every partition of a topic and an offset to a group, and ends one in
five with an abort. After the last round every transaction that was acknowledged must be there once, whole and in order;
aborted ones must not, and those whose end nobody knows must be whole or absent. A plain idempotent producer writes beside
them: what it was told is written must be there once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.coordinator.server.processes import BrokerProcess

PARTITIONS = 3
WORKERS = 3
TIMEOUT_S = 60.0
GROUP = "soak"
_CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 5000,
    # Its other strategy drops broker handles for which requests wait: with librdkafka 2.16 they wait for ever.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}


@dataclass
class Progress:
    """What all workers have reached; who waits is woken by each step."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    steps: Counter[int] = field(default_factory=Counter)
    stopping: bool = False
    failed: list[BaseException] = field(default_factory=list)

    def step(self, worker: int) -> None:
        with self.changed:
            self.steps[worker] += 1
            self.changed.notify_all()

    def wait_for(self, steps: int, each: int = 0) -> None:
        """Returns when ``steps`` have been made since the call, ``each`` by every worker. Raises what a worker raised."""
        with self.changed:
            before = self.steps.copy()

            def reached() -> bool:
                since = self.steps - before
                return since.total() >= steps and all(since[number] >= each for number in range(WORKERS))

            if not self.changed.wait_for(lambda: self.failed or reached(), TIMEOUT_S):
                raise TimeoutError(f"no progress: {before} before, now {self.steps}")
            if self.failed:
                raise self.failed[0]


class Worker(threading.Thread):
    """A transactional producer that begins anew after a fatal error. ``outcomes``: True, False, None for not known."""

    def __init__(self, bootstrap_servers: str, number: int, progress: Progress, seed: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap_servers = bootstrap_servers
        self.number = number
        self.progress = progress
        self.random = random.Random(seed)
        self.outcomes: dict[int, bool | None] = {}

    def run(self) -> None:
        try:
            consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": GROUP, **_CLIENT})
            metadata = consumer.consumer_group_metadata()
            producer = self._producer()
            for transaction in range(1_000_000):
                if self.progress.stopping:
                    break
                if not self._transact(producer, transaction, metadata):
                    producer = self._producer()
                self.progress.step(self.number)
            consumer.close()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            with self.progress.changed:
                self.progress.failed.append(error)
                self.progress.changed.notify_all()

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": f"worker-{self.number}",
                "transaction.timeout.ms": 20_000,
                **_CLIENT,
            }
        )
        self._until_done(lambda: producer.init_transactions(TIMEOUT_S))
        return producer

    def _transact(self, producer: Producer, transaction: int, metadata: object) -> bool:
        """Writes one transaction; False if the producer can do no more."""
        commits = self.random.random() > 0.2
        self.outcomes[transaction] = None
        try:
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("out", f"{self.number}:{transaction}".encode(), partition=partition)
            offset = TopicPartition("in", self.number, transaction + 1)
            self._until_done(lambda: producer.send_offsets_to_transaction([offset], metadata, TIMEOUT_S))
            if commits:
                self._until_done(lambda: producer.commit_transaction(TIMEOUT_S))
                self.outcomes[transaction] = True
                return True
        except KafkaException as raised:
            if not raised.args[0].txn_requires_abort():
                return False
        try:
            self._until_done(lambda: producer.abort_transaction(TIMEOUT_S))
        except KafkaException:
            return False
        self.outcomes[transaction] = False
        return True

    @staticmethod
    def _until_done(call) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                call()
            except KafkaException as raised:
                if raised.args[0].retriable() and time.monotonic() < deadline:
                    continue
                raise
            return


class PlainWorker(threading.Thread):
    """An idempotent producer without transactions."""

    def __init__(self, bootstrap_servers: str, progress: Progress) -> None:
        super().__init__(daemon=True)
        self.progress = progress
        self.acknowledged: list[bytes] = []
        self.failed: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                **_CLIENT,
            }
        )

    def run(self) -> None:
        number = 0
        while not self.progress.stopping:
            self.producer.produce("plain", b"%d" % number, partition=0, on_delivery=self._delivered)
            number += 1
            if number % 20 == 0:
                self.producer.flush(TIMEOUT_S)
        self.producer.flush(TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message) -> None:  # type: ignore[no-untyped-def]
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(str(error))


def read_all(bootstrap_servers: str, topic: str, partition: int) -> list[str]:
    """What a read_committed consumer finds in a partition up to its end. An open transaction would be a failure."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **_CLIENT,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            if message.offset() >= end:
                consumer.close()
                return values
        elif not message.error().retriable():
            raise KafkaException(message.error())
    raise AssertionError(f"{topic}-{partition} can't be read to its end {end}: a transaction is open for ever")


def soak(data_dir: Path, rounds: int, seed: int, *options: str, steps_max: int = 60) -> dict[str, int]:
    """Runs the rounds and checks what is left; some numbers. Raises AssertionError for what is lost or there twice."""
    chance = random.Random(seed)
    progress = Progress()
    broker = BrokerProcess(data_dir, *options)
    port = str(broker.port)
    address = broker.address
    try:
        admin = AdminClient({"bootstrap.servers": address, **_CLIENT})
        topics = [NewTopic("out", PARTITIONS, 1), NewTopic("in", WORKERS, 1), NewTopic("plain", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result()
        workers = [Worker(address, number, progress, seed + number) for number in range(WORKERS)]
        plain = PlainWorker(address, progress)
        for worker in (*workers, plain):
            worker.start()
        for _ in range(rounds):
            progress.wait_for(chance.randint(1, steps_max))
            broker.kill()
            broker = BrokerProcess(data_dir, *options, "--port", port)
        progress.wait_for(1, each=3)
        progress.stopping = True
        for worker in (*workers, plain):
            worker.join(2 * TIMEOUT_S)
            assert not worker.is_alive(), "a worker hangs"
        return _check(address, workers, plain)
    finally:
        progress.stopping = True
        broker.kill()


def _check(address: str, workers: list[Worker], plain: PlainWorker) -> dict[str, int]:
    for worker in workers:
        worker._producer()  # ends what a producer left open
    columns = [read_all(address, "out", partition) for partition in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP, **_CLIENT})
    asked = [TopicPartition("in", worker.number) for worker in workers]
    committed = {each.partition: each.offset for each in consumer.committed(asked, TIMEOUT_S)}
    consumer.close()
    for worker in workers:
        mine = [[int(v.split(":")[1]) for v in column if v.startswith(f"{worker.number}:")] for column in columns]
        assert all(seen == mine[0] for seen in mine), f"worker {worker.number}: transactions are not whole"
        assert mine[0] == sorted(set(mine[0])), f"worker {worker.number}: twice, or out of order"
        there = set(mine[0])
        lost = [n for n, outcome in worker.outcomes.items() if outcome is True and n not in there]
        risen = [n for n, outcome in worker.outcomes.items() if outcome is False and n in there]
        assert not lost, f"worker {worker.number}: acknowledged and lost: {lost}"
        assert not risen, f"worker {worker.number}: aborted and there: {risen}"
        assert committed.get(worker.number) == max(there) + 1, f"worker {worker.number}: offset {committed}"
    assert not plain.failed, f"the idempotent producer gave up: {plain.failed[0]}"
    found = Counter(read_all(address, "plain", 0))
    assert max(found.values()) == 1, "a plain record is there twice"
    assert not {value.decode() for value in plain.acknowledged} - found.keys(), "a plain record is lost"
    outcomes = Counter(outcome for worker in workers for outcome in worker.outcomes.values())
    return {
        "committed": outcomes[True],
        "aborted": outcomes[False],
        "unknown": outcomes[None],
        "plain": len(plain.acknowledged),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fsync", choices=["never", "interval", "group"], default="interval")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        numbers = soak(Path(folder) / "data", options.rounds, options.seed, "--config", f"log.fsync={options.fsync}")
    sys.stdout.write(f"{options.rounds} rounds in {time.monotonic() - started:.0f} s, seed {options.seed}: {numbers}\n")


if __name__ == "__main__":
    main()
