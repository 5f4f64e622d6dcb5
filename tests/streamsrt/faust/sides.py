"""Applications as Faust's users write them, what they are given, and how they are run by Faust and here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import ROOT
from tests.streamsrt.faust.committed import Row, committed_rows
from tests.warm_processes import Started, start_python

PROGRAMS = Path(__file__).resolve().parent / "programs"
PATIENCE_S = 300
COUNT = 120
LOOK_S = 0.5
EXACT = ("-c", "processing.guarantee=exactly_once_v2", "-c", "commit.interval.ms=50")
Given = tuple[str | None, object]
NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
)
"""What is said of a topic that is just made."""


class Case(NamedTuple):
    """A program. ``given``: the input with a number. ``per_key``: outputs whose records of a key have one order.

    ``read``: topics that it reads. ``outputs``: those that are compared, without regard to order.
    """

    given: Callable[[int], Given] | None
    per_key: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    results: int = COUNT


def _withdrawal(number: int) -> Given:
    each = {
        "account": f"a{number % 7}",
        "amount": f"{number % 23 * 100}.50",
        "at": f"2024-01-{number % 28 + 1:02d}T10:00:00",
    }
    return each["account"], each


def _fragile(number: int) -> Given:
    return f"k{number % 4}", "{" if number % 17 == 3 else {"number": str(number), "note": f"n{number}"}


SET_OPERATIONS = (
    "add",
    "update",
    "union",
    "discard",
    "difference",
    "symmetric_difference_update",
    "intersection",
    "difference_update",
    "intersection_update",
    "clear",
)


def _set_operation(number: int) -> Given:
    names = sorted({"abcdef"[number * step % 6] for step in (1, 2, 5)})
    return f"k{number % 3}", (SET_OPERATIONS[number * 7 % 10], names)


def _shape(number: int) -> Given:
    circle = {"radius": number / 4, "__faust": {"ns": "shapes.circle"}}
    boxes = {"width": number, "inside": [circle, circle], "__faust": {"ns": "shapes.boxes"}}
    return f"k{number % 5}", boxes if number % 3 else circle


CASES = {
    "words": Case(
        lambda n: (f"k{n}", f"tea for {n % 5}"), ("words-out",), read=("words-in", "words-each"), results=3 * COUNT
    ),
    "views": Case(
        lambda n: (f"u{n % 6}", {"page": f"p{n % 4}", "user": f"u{n % 6}"}),
        ("views-out",),
        read=("views-in", "views.count-views-in-{side}-View.page-repartition"),
    ),
    "withdrawals": Case(_withdrawal, (), ("withdrawals-out", "withdrawals-copies"), results=0),
    "clicks": Case(lambda n: (f"u{n % 5}", {"button": f"b{n % 5}", "at": n * 0.7}), ("clicks-out",)),
    "payments": Case(lambda n: (f"a{n % 5}", {"account": f"a{n % 5}", "amount": n % 14}), ("payments-out",)),
    "chain": Case(lambda n: (f"k{n}", n), (), ("chain-out",), read=("chain-in", "chain-squares")),
    "visitors": Case(lambda n: (f"p{n % 3}", f"user-{n % 11}"), ("visitors-out",)),
    "relay": Case(lambda n: (f"k{n % 5}", n), ("relay-out",), read=("relay-in", "relay-middle")),
    "batches": Case(lambda n: (f"k{n % 5}", n), (), ("batches-out",)),
    "lookups": Case(lambda n: (f"k{n % 5}", n), (), ("lookups-out",)),
    "fragile": Case(_fragile, ("fragile-out",), results=0),
    "pipes": Case(lambda n: (f"k{n % 5}", n), ("pipes-out",), results=COUNT // 2),
    "setops": Case(_set_operation, ("setops-out",)),
    "shapes": Case(_shape, (), ("shapes-out",), read=("shapes-in", "shapes-backwards")),
    "asks": Case(None, ("asks-out",), read=("asks-in",), results=21),
}


def seconds_of(number: int) -> float:
    """The time of that input, as an epoch."""
    return 1_700_000_000 + number * 1.5


class Side:
    """The broker, seen by one of the two: topics and applications end with its name."""

    def __init__(self, name: str, servers: str, folder: Path) -> None:
        self.name = name
        self.folder = folder / name
        self.folder.mkdir()
        self._servers = {"bootstrap.servers": servers}
        self._address = servers

    def read_by(self, name: str) -> list[str]:
        """The topics that a program reads."""
        places = CASES[name].read or (f"{name}-in",)
        return [each.format(side=self.name) if "{" in each else f"{each}-{self.name}" for each in places]

    def create(self, name: str) -> None:
        """Makes its topics, so that both sides have the same partitions."""
        case = CASES[name]
        names = {*self.read_by(name), *(f"{each}-{self.name}" for each in (*case.per_key, *case.outputs))}
        admin = AdminClient(self._servers)
        # The times of its records are long ago: the broker would delete them when it looks, after five minutes.
        topics = [NewTopic(topic, 2, 1, config={"retention.ms": "-1"}) for topic in names]
        for each in admin.create_topics(topics).values():
            each.result(PATIENCE_S)
        # A new partition of Apache Kafka may be known before it has a leader.
        deadline = time.monotonic() + PATIENCE_S
        while not self._has_leaders(name):
            assert time.monotonic() < deadline, names

    def _has_leaders(self, name: str) -> bool:
        try:
            self.written(name)
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].code() in NOT_YET:
                return False
            raise
        return True

    def produce(self, name: str, first: int, count: int) -> None:
        """Its input, each record with a time of its own."""
        given = CASES[name].given
        if given is None:
            return
        producer = Producer(self._servers)
        for number in range(first, first + count):
            key, value = given(number)
            raw = value if name == "words" or value == "{" else json.dumps(value)
            place = {"partition": sum((key or "").encode()) % 2, "timestamp": round(seconds_of(number) * 1000)}
            producer.produce(f"{name}-in-{self.name}", raw, key, **place)
        assert producer.flush(PATIENCE_S) == 0

    def start(self, name: str, *settings: str) -> Started:
        """The program, by Faust or here."""
        path = f"{ROOT}{os.pathsep}{PROGRAMS}"
        environment = {**os.environ, "BROKER": self._address, "SIDE": self.name, "PYTHONPATH": path}
        ours = ("-m", "streamsrt", "faust", "run", f"{name}:app", "--state-dir", f"state-{name}", *settings)
        theirs = ("-m", "faust", "-A", f"{name}:app", "worker", "-l", "info", "--without-web")
        with (self.folder / f"{name}.log").open("a", encoding="utf-8") as log:
            command = theirs if self.name == "faust" else ours
            return start_python(command, cwd=self.folder, environment=environment, stdout=log, stderr=log)

    def is_done(self, name: str) -> bool:
        """Whether all of its input is committed, and its results are there."""
        results = sum(len(rows) for topic in (*CASES[name].per_key, *CASES[name].outputs) for rows in self.rows(topic))
        return results >= CASES[name].results and self._lag(name) == 0

    def _lag(self, name: str) -> int:
        consumer = Consumer({**self._servers, "group.id": f"{name}-{self.name}"})
        try:
            partitions = [TopicPartition(topic, number) for topic in self.read_by(name) for number in range(2)]
            ends = [consumer.get_watermark_offsets(each)[1] for each in partitions]
            committed = consumer.committed(partitions)
            return sum(end > max(0, each.offset) for end, each in zip(ends, committed, strict=True))
        finally:
            consumer.close()

    def wait(self, name: str, process: Started) -> None:
        """Until the program has done everything; then it is told to stop."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                process.wait(LOOK_S)
                break
            except subprocess.TimeoutExpired:
                if self.is_done(name):
                    process.send_signal(signal.SIGTERM)
                    process.wait(PATIENCE_S)
                    return
        pytest.fail(f"{name} of {self.name}: {self.log(name)}")

    def log(self, name: str) -> str:
        """The end of what a program has logged."""
        return (self.folder / f"{name}.log").read_text()[-3000:]

    def written(self, name: str) -> int:
        """How far its outputs are written, committed or not."""
        consumer = Consumer({**self._servers, "group.id": "looker"})
        try:
            topics = (*CASES[name].per_key, *CASES[name].outputs)
            partitions = [TopicPartition(f"{topic}-{self.name}", number) for topic in topics for number in range(2)]
            return sum(consumer.get_watermark_offsets(each)[1] for each in partitions)
        finally:
            consumer.close()

    def rows(self, topic: str) -> Iterator[list[Row]]:
        """What is committed of each partition."""
        return committed_rows(self._address, f"{topic}-{self.name}")
