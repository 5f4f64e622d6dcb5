"""A consumer in a group, as a process of its own, with a client that others wrote.

    python -m tests.interop.member CLIENT SERVERS GROUP TOPIC [--strategy NAME]... [--instance ID]

Writes a line of JSON for each change of what it is assigned (``{"assigned": [partitions]}``) and for each record
(``{"partition": 0, "value": "text"}``). SIGTERM makes it leave; a static member goes without leaving.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping

SESSION_TIMEOUT_MS = 6000
STATIC_SESSION_TIMEOUT_MS = 60_000  # a static member has to be back within it, also on a slow machine
HEARTBEAT_INTERVAL_MS = 500
POLL_S = 0.1
LONG_POLL_MS = 60_000
stopping = threading.Event()
assigned: list[int] | None = None


def session_timeout_ms(options: argparse.Namespace) -> int:
    return STATIC_SESSION_TIMEOUT_MS if options.instance else SESSION_TIMEOUT_MS


def tell(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def tell_assigned(partitions: Iterable[int]) -> None:
    global assigned
    now = sorted(partitions)
    if now != assigned:
        assigned = now
        tell(assigned=now)


def run_librdkafka(options: argparse.Namespace) -> None:
    settings = {
        "session.timeout.ms": session_timeout_ms(options),
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "partition.assignment.strategy": ",".join(options.strategy or ["range"]),
    }
    consume_with_librdkafka(options, settings)


def run_librdkafka_new(options: argparse.Namespace) -> None:
    """With the consumer protocol; the strategy is the broker's assignor."""
    settings = {"group.protocol": "consumer"}
    if options.strategy:
        settings["group.remote.assignor"] = options.strategy[0]
    consume_with_librdkafka(options, settings)


def consume_with_librdkafka(options: argparse.Namespace, own: Mapping[str, object]) -> None:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": options.servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        **own,
    }
    if options.instance:
        settings["group.instance.id"] = options.instance
    consumer = Consumer(settings)
    consumer.subscribe([options.topic])
    while not stopping.is_set():
        record = consumer.poll(POLL_S)
        tell_assigned(each.partition for each in consumer.assignment())
        if record is not None:
            if record.error():
                tell(error=str(record.error()))
                continue
            tell(partition=record.partition(), value=(record.value() or b"").decode())
    consumer.close()


def run_kafka_python(options: argparse.Namespace) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
            tell_assigned([])

        def on_partitions_assigned(self, given: Iterable[TopicPartition]) -> None:
            tell_assigned(each.partition for each in given)

    known = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=options.servers,
        group_id=options.group,
        auto_offset_reset="earliest",
        session_timeout_ms=session_timeout_ms(options),
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy=[known[name] for name in options.strategy or ["range"]],
        group_instance_id=options.instance,
    )
    consumer.subscribe([options.topic], listener=Listener())
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop_polling)
    with contextlib.suppress(StoppedError):
        while True:
            # A poll that ends while the client joins may leave it without its partitions for good: no short ones.
            for records in consumer.poll(timeout_ms=LONG_POLL_MS).values():
                for record in records:
                    tell(partition=record.partition, value=record.value.decode())
    signal.setitimer(signal.ITIMER_REAL, 0)
    consumer.close()


class StoppedError(BaseException):
    """Somebody wants this process to end."""


def stop_polling(*_: object) -> None:
    # The client may be where it takes any exception for its own: it is told again until it has let go.
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    raise StoppedError


async def aiokafka_consumer(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    known = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        options.topic,
        bootstrap_servers=options.servers,
        group_id=options.group,
        auto_offset_reset="earliest",
        session_timeout_ms=session_timeout_ms(options),
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        partition_assignment_strategy=[known[name] for name in options.strategy or ["range"]],
        group_instance_id=options.instance,
    )
    await consumer.start()
    while not stopping.is_set():
        polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        tell_assigned(each.partition for each in consumer.assignment())
        for records in polled.values():
            for record in records:
                tell(partition=record.partition, value=record.value.decode())
    await consumer.stop()


CLIENTS = {
    "librdkafka": run_librdkafka,
    "librdkafka-new": run_librdkafka_new,
    "kafka-python": run_kafka_python,
    "aiokafka": lambda options: asyncio.run(aiokafka_consumer(options)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("servers")
    parser.add_argument("group")
    parser.add_argument("topic")
    parser.add_argument("--strategy", action="append")
    parser.add_argument("--instance")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    CLIENTS[options.client](options)
    tell(closed=True)


if __name__ == "__main__":
    main()
