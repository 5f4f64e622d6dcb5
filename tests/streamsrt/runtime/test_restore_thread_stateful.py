"""The restore thread, with a scheduler that makes its steps and the processing thread's calls come in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streamsrt.client.values import OffsetOutOfRangeError, TopicPartition
from streamsrt.errors import StateError
from streamsrt.runtime.restore_thread import RestoreThread
from streamsrt.tasks.restore.changelog_work import Applied, Failed, Followed
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.in_process_network import InProcessNetwork

PARTITIONS: list[TopicPartition] = [("log", partition) for partition in range(3)]
GLOBAL: TopicPartition = ("global", 0)
partitions = st.sampled_from(PARTITIONS)


class Scheduled(RestoreThread):
    """Makes a step when it is told to."""

    def start(self) -> None:
        """No thread."""

    def schedule(self) -> None:
        self._step()


@dataclass
class Life:
    """One changelog from follow to release."""

    end: int | None
    records: int = 0
    told: int = 0
    broken: bool = False
    failed: bool = False
    is_over: bool = False


@dataclass
class Disk:
    """A store: the offsets that it holds, and where it goes on."""

    offsets: list[int] = field(default_factory=list)
    position: int = 0


class RestoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.network = InProcessNetwork({"log": len(PARTITIONS), "global": 1})
        self.network.restorer.batches_at_once = 3
        restorer = self.network.restorer
        self.thread = Scheduled(restorer, restorer.arrived, self.network.wake, step_records=3)
        self.disks = {tp: Disk() for tp in PARTITIONS}
        self.lives: dict[TopicPartition, Life] = {}
        self.global_records = 0
        restorer.add_partitions({GLOBAL: 0})

    def _apply(self, tp: TopicPartition, life: Life, columns: RecordColumns) -> None:
        assert not life.is_over, "applied after it was released"
        assert self.lives[tp] is life, "applied to another life"
        if life.broken:
            life.failed = True
            raise StateError("disk full")
        assert not life.failed, "applied after it failed"
        disk = self.disks[tp]
        offsets = [columns.offset_at(index) for index in range(len(columns))]
        assert offsets == list(range(disk.position, disk.position + len(offsets)))
        disk.offsets += offsets
        disk.position = columns.next_offset
        life.records += len(offsets)
        assert life.end is None or disk.position <= life.end

    @rule(tp=partitions, count=st.integers(1, 4))
    def write(self, tp: TopicPartition, count: int) -> None:
        self.network.write(tp, [(b"k", b"v")] * count)

    @rule(count=st.integers(1, 4))
    def write_global(self, count: int) -> None:
        self.network.write(GLOBAL, [(b"k", b"v")] * count)

    @rule(tp=partitions, ends=st.booleans())
    def follow(self, tp: TopicPartition, ends: bool) -> None:
        end, position = self.network.logs[tp].end, self.disks[tp].position
        if tp in self.lives or (ends and position >= end):
            return
        life = self.lives[tp] = Life(end if ends else None)
        apply = lambda columns: self._apply(tp, life, columns)  # noqa: E731
        self.thread.follow([Followed(tp, position, life.end, apply)])

    @rule(tp=partitions, wipe=st.booleans())
    def release(self, tp: TopicPartition, wipe: bool) -> None:
        left = self.thread.release([tp])
        life = self.lives.pop(tp, None)
        if life is None:
            assert left == []
            return
        life.is_over = True
        assert life.told + sum(each.records for each in left) == life.records, "everything is told once"
        assert all(each.position == self.disks[tp].position for each in left)
        if wipe:
            self.disks[tp] = Disk()

    @rule(count=st.integers(1, 5))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.thread.schedule()

    @rule(tp=partitions)
    def breaks(self, tp: TopicPartition) -> None:
        if tp in self.lives:
            self.lives[tp].broken = True

    @rule(tp=partitions)
    def expires(self, tp: TopicPartition) -> None:
        if tp in self.network.restorer.positions:
            self.network.restorer.errors[tp] = OffsetOutOfRangeError("gone", 1)

    @rule()
    def take_reports(self) -> None:
        for report in self.thread.reports():
            match report:
                case Applied(tp, position, _, records, _):
                    life = self.lives[tp]
                    life.told += records
                    assert position == self.disks[tp].position or life.end is not None
                    if life.end is not None and position >= life.end:
                        self.release(tp, wipe=False)
                case Failed(tp, _, error):
                    assert self.lives[tp].failed or isinstance(error, OffsetOutOfRangeError)
                    self.release(tp, wipe=True)
                case _:
                    assert (report.topic, report.partition) == GLOBAL
                    assert report.offset == self.global_records, "in order, each once"
                    self.global_records = report.next_offset

    @invariant()
    def the_position_is_the_stores(self) -> None:
        with self.thread.standing_still:
            for tp, life in self.lives.items():
                position = self.thread.position(tp)
                assert position == self.disks[tp].position or (position is None and not life.records)

    def teardown(self) -> None:
        for tp in list(self.lives):
            if not self.lives[tp].failed:
                self.lives[tp].broken = False
        self.network.restorer.errors.clear()
        while self.network.restorer.positions.keys() - {GLOBAL} and self._moves():
            self.take_reports()
        self.take_reports()
        for tp, life in list(self.lives.items()):
            if not life.failed:
                assert self.disks[tp].position == (self.network.logs[tp].end if life.end is None else life.end)
            self.release(tp, wipe=False)
        self.thread.close()

    def _moves(self) -> bool:
        before = dict(self.network.restorer.positions), {tp: len(disk.offsets) for tp, disk in self.disks.items()}
        for _ in range(100):
            self.thread.schedule()
        after = dict(self.network.restorer.positions), {tp: len(disk.offsets) for tp, disk in self.disks.items()}
        return before != after


TestRestoreMachine = RestoreMachine.TestCase
TestRestoreMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
