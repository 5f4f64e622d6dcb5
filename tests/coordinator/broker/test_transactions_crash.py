"""A broker killed between any two appends: transactions are whole or not there, and nobody waits for ever."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator.broker.purgatory import Purgatory
from coordinator.log import PartitionLog
from coordinator.txn.state import TransactionState
from tests.coordinator.broker.in_process import InProcessBroker
from tests.coordinator.broker.transactional import (
    TransactionalProducer,
    committed_values,
    fetched_offset,
    stable_offset,
)

pytestmark = pytest.mark.matrix

PARTITIONS = 2


class Camera(Purgatory):
    """Copies the data directory after each append: what a kill at this moment leaves."""

    def __init__(self, data: Path, album: Path) -> None:
        super().__init__()
        self.data = data
        self.album = album
        self.count = 0

    def wake(self, log: PartitionLog) -> None:
        super().wake(log)
        shutil.copytree(self.data, self.album / str(self.count))
        self.count += 1


@dataclass
class Outcome:
    """A transaction of the scenario: its end was asked for at one copy and confirmed at another."""

    number: int
    committed: bool
    asked_at: int
    confirmed_at: int


def scenario(broker: InProcessBroker, camera: Camera) -> list[Outcome]:
    """Transactions over two partitions and an offset each, of two producers, one of which is replaced and one late."""
    outcomes: list[Outcome] = []

    def write(producer: TransactionalProducer, number: int) -> None:
        for partition in range(PARTITIONS):
            assert producer.send("t", partition, b"%d" % number) == 0
        assert producer.add_offsets("g") == 0
        assert producer.commit_offset("g", "in", number, 1000 + number) == 0

    def end(producer: TransactionalProducer, number: int, *, committed: bool) -> None:
        asked_at = camera.count
        assert producer.end(committed=committed) == 0
        outcomes.append(Outcome(number, committed, asked_at, camera.count))

    first, second = TransactionalProducer(broker, "x"), TransactionalProducer(broker, "y", timeout_ms=1000)
    assert (first.init(), second.init()) == (0, 0)
    write(first, 0)
    write(second, 1)
    end(first, 0, committed=True)
    end(second, 1, committed=False)
    write(second, 2)
    write(first, 3)
    end(second, 2, committed=True)
    asked_at = camera.count
    newer = TransactionalProducer(broker, "x")
    assert newer.init() == 51
    assert newer.init() == 0
    outcomes.append(Outcome(3, False, asked_at, camera.count))
    write(second, 4)
    write(newer, 5)
    asked_at = camera.count
    broker.now_ms += 1000
    broker.broker.transactions.tick()
    outcomes.append(Outcome(4, False, asked_at, camera.count))
    end(newer, 5, committed=True)
    return outcomes


def seen(broker: InProcessBroker, number: int) -> set[bool]:
    """Where the transaction counts: one value if it is whole."""
    found = {b"%d" % number in committed_values(broker, "t", partition) for partition in range(PARTITIONS)}
    found.add(fetched_offset(broker, "g", "in", number, stable=False) == (0, 1000 + number))
    return found


def stuck(broker: InProcessBroker) -> list[str]:
    """Partitions that hold an open transaction."""
    return [
        f"{topic.name}-{number}"
        for topic in broker.broker.topics
        for number, log in enumerate(topic.partitions)
        if log.last_stable_offset != log.log_end_offset
    ]


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, list[Outcome]]:
    folder = tmp_path_factory.mktemp("transactions")
    broker = InProcessBroker(folder / "data", {"log.fsync": "never"})
    broker.create("t", PARTITIONS)
    broker.create("in", 6)
    camera = Camera(folder / "data", folder / "album")
    broker.broker.purgatory = camera
    outcomes = scenario(broker, camera)
    broker.close()
    return folder / "album", camera.count, outcomes


def test_transactions_are_whole_after_a_kill_at_any_append(album: tuple[Path, int, list[Outcome]]) -> None:
    folder, count, outcomes = album
    assert count > 60
    for moment in range(count):
        broker = InProcessBroker(folder / str(moment))
        for outcome in outcomes:
            got = seen(broker, outcome.number)
            assert len(got) == 1, (moment, outcome, got)
            if not outcome.committed or moment < outcome.asked_at:
                assert got == {False}, (moment, outcome)
            elif moment >= outcome.confirmed_at - 1:
                assert got == {True}, (moment, outcome)
        _check_end(broker)
        broker.close()


def _check_end(broker: InProcessBroker) -> None:
    """What is prepared was finished by the start; what is open is ended by the next producers of the same ids."""
    statuses = [t.status for state in broker.broker.transactions.states() for t in state.transactions.values()]
    assert not any(status.is_prepared for status in statuses)
    assert (stuck(broker) != []) <= (TransactionState.ONGOING in statuses)
    for name in ("x", "y"):
        successor = TransactionalProducer(broker, name)
        if successor.init():
            assert successor.init() == 0
        assert successor.send("t", 0, b"next") == 0
        assert successor.commit() == 0
    assert stuck(broker) == []
    assert committed_values(broker, "t")[-2:] == [b"next", b"next"]
    assert stable_offset(broker, "t") > 0
