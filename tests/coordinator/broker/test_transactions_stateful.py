"""Random lives of transactional producers: what readers see is what was acknowledged, whatever happens in between."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.coordinator.broker.in_process import InProcessBroker
from tests.coordinator.broker.transactional import (
    TransactionalProducer,
    committed_values,
    fetched_offset,
    stable_offset,
)

PARTITIONS = 2
INPUTS = 4
NAMES = ["x", "y", "z"]
TIMEOUT_MS = 5000
FENCED = {47, 90}

names = st.sampled_from(NAMES)
partitions = st.integers(0, PARTITIONS - 1)


@dataclass
class Life:
    """What a transactional id's current producer has in its open transaction."""

    producer: TransactionalProducer
    zombies: list[TransactionalProducer] = field(default_factory=list)
    values: dict[int, list[bytes]] = field(default_factory=lambda: {number: [] for number in range(PARTITIONS)})
    offsets: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    started_ms: int | None = None
    fenced: bool = False

    def clear(self) -> None:
        self.values = {number: [] for number in range(PARTITIONS)}
        self.offsets, self.first, self.started_ms = {}, {}, None


class Transactions(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.number = 0
        self.copies = 0
        self.broker = InProcessBroker(self.folder / "0", {"log.fsync": "never"})
        self.broker.create("t", PARTITIONS)
        self.broker.create("in", INPUTS)
        self.lives: dict[str, Life] = {}
        self.committed: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.offsets: dict[int, int] = {}
        self.written: dict[bytes, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()
            shutil.rmtree(self.folder)

    def ended(self, life: Life, *, committed: bool) -> None:
        if committed:
            for number, values in life.values.items():
                self.committed[number] += values
            self.offsets.update(life.offsets)
        life.clear()

    # ------------------------------------------------------------------------------------------------------------ rules

    @rule(name=names)
    def init(self, name: str) -> None:
        newer = TransactionalProducer(self.broker, name, timeout_ms=TIMEOUT_MS)
        life = self.lives.get(name)
        if life is None:
            assert newer.init() == 0
            self.lives[name] = Life(newer)
            return
        code = newer.init()
        assert code == (51 if life.started_ms is not None else 0)
        if code:
            assert newer.init() == 0
        life.zombies.append(life.producer)
        self.ended(life, committed=False)
        life.producer, life.fenced = newer, False

    @precondition(lambda self: self.lives)
    @rule(name=names)
    def init_again_by_itself(self, name: str) -> None:
        life = self.lives.get(name)
        if life is None or life.started_ms is not None or life.fenced:
            return
        before = life.producer.producer
        assert life.producer.init(expected=before) == 0
        assert life.producer.producer == (before.id, before.epoch + 1)

    @precondition(lambda self: self.lives)
    @rule(name=names, partition=partitions, count=st.integers(1, 3))
    def send(self, name: str, partition: int, count: int) -> None:
        life = self.lives.get(name)
        if life is None:
            return
        values = [b"%d" % (self.number + i) for i in range(count)]
        self.number += count
        at = self.end_offset(partition)
        code = life.producer.send("t", partition, *values)
        if life.fenced:
            assert code in FENCED
            return
        assert code == 0
        life.values[partition] += values
        life.first.setdefault(partition, at)
        if life.started_ms is None:
            life.started_ms = self.broker.now_ms

    @precondition(lambda self: self.lives)
    @rule(name=names, partition=st.integers(0, INPUTS - 1))
    def commit_offset(self, name: str, partition: int) -> None:
        life = self.lives.get(name)
        if life is None or any(partition in other.offsets for other in self.lives.values() if other is not life):
            return
        self.number += 1
        code = life.producer.add_offsets("g") or life.producer.commit_offset("g", "in", partition, self.number)
        if life.fenced:
            assert code in FENCED
            return
        assert code == 0
        life.offsets[partition] = self.number
        if life.started_ms is None:
            life.started_ms = self.broker.now_ms

    @precondition(lambda self: self.lives)
    @rule(name=names, committed=st.booleans(), again=st.booleans())
    def end(self, name: str, committed: bool, again: bool) -> None:
        life = self.lives.get(name)
        if life is None:
            return
        code = life.producer.end(committed=committed)
        if life.fenced:
            assert code in FENCED
        elif life.started_ms is None:
            assert code in {0, 48}, "a repetition or a mistake"
        else:
            assert code == 0
            self.ended(life, committed=committed)
            if again:
                assert life.producer.end(committed=committed) == 0
                assert life.producer.end(committed=not committed) == 48

    @precondition(lambda self: any(life.zombies for life in self.lives.values()))
    @rule(name=names, pick=st.integers(0, 100), partition=partitions, committed=st.booleans())
    def zombie(self, name: str, pick: int, partition: int, committed: bool) -> None:
        life = self.lives.get(name)
        if life is None or not life.zombies:
            return
        zombie = life.zombies[pick % len(life.zombies)]
        ends = [log.log_end_offset for topic in self.broker.broker.topics for log in topic.partitions]
        assert zombie.add("t", partition) in FENCED
        assert zombie.write("t", partition, b"zombie") in FENCED
        assert zombie.add_offsets("g") in FENCED
        assert zombie.commit_offset("g", "in", 0, 999_999) in FENCED
        assert zombie.end(committed=committed) in FENCED
        assert zombie.init(expected=zombie.producer) in FENCED
        assert ends == [log.log_end_offset for topic in self.broker.broker.topics for log in topic.partitions]

    @rule(passed_ms=st.sampled_from([1, 1000, 3000, 6000]))
    def pass_time(self, passed_ms: int) -> None:
        self.broker.now_ms += passed_ms
        self.broker.broker.transactions.tick()
        for life in self.lives.values():
            if life.started_ms is not None and self.broker.now_ms >= life.started_ms + TIMEOUT_MS:
                self.ended(life, committed=False)
                life.fenced = True

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        """The state after a load is the state before, but for what is known not to be in the log."""
        before = self.broker.broker.transactions.states()
        if killed:
            self.copies += 1
            target = self.folder / str(self.copies)
            shutil.copytree(self.broker.path, target)
            self.broker.close()
            self.broker.path = target
            self.broker._open()
        else:
            self.broker.restart()
        after = self.broker.broker.transactions.states()
        assert [state.transactions for state in after] == [state.transactions for state in before]

    # ------------------------------------------------------------------------------------------------------- invariants

    def end_offset(self, partition: int) -> int:
        topic = self.broker.broker.topics.get("t")
        assert topic is not None
        return topic.partitions[partition].log_end_offset

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        if not hasattr(self, "broker"):
            return
        for partition in range(PARTITIONS):
            open_since = [life.first[partition] for life in self.lives.values() if partition in life.first]
            stable = stable_offset(self.broker, "t", partition)
            assert stable == min([*open_since, self.end_offset(partition)])
            seen = committed_values(self.broker, "t", partition)
            assert len(seen) == len(set(seen)), "a record counts twice"
            if open_since:
                assert set(seen) <= set(self.committed[partition])
            else:
                assert set(seen) == set(self.committed[partition])

    @invariant()
    def offsets_are_those_of_committed_transactions(self) -> None:
        if not hasattr(self, "broker"):
            return
        for partition in range(INPUTS):
            assert fetched_offset(self.broker, "g", "in", partition, stable=False) == (
                0,
                self.offsets.get(partition, -1),
            )
            pending = any(partition in life.offsets for life in self.lives.values())
            assert (fetched_offset(self.broker, "g", "in", partition)[0] == 88) is pending


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestTransactions = pytest.mark.timeout(1200)(TestTransactions)
