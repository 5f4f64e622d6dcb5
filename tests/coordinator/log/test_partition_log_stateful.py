"""A log against a list of batches, over appends, restarts, crashes, torn tails, retention and deletion."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.log import Fsync, InvalidTxnStateError, LogConfig, Syncer
from coordinator.log.partition_log import PartitionLog
from streamsrt.wire.records import ControlType, iter_headers
from tests.coordinator.log.batches import batch, joined, marker, produced

CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=160, retention_ms=-1, segment_ms=1 << 40, fsync=Fsync.NEVER)
HINTS = ("*.index", "*.snapshot", "checkpoint")


@dataclass(frozen=True)
class Written:
    """A batch that the log must hold, with what the model has to know of it."""

    base_offset: int
    next_offset: int
    content: bytes
    producer_id: int = -1
    transactional: bool = False
    kind: ControlType | None = None


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-machine-"))
        self.syncer = Syncer(interval_ms=3_600_000)
        self.written: list[Written] = []
        self.start = 0
        self.sequences: dict[int, int] = {}
        self.log: PartitionLog

    @initialize()
    def begin(self) -> None:
        self.open(clean=True)

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog(self.directory / "t-0", CONFIG, self.syncer, clean=clean)

    def teardown(self) -> None:
        self.log.abandon()
        self.syncer.close()
        shutil.rmtree(self.directory)

    @property
    def end(self) -> int:
        return self.written[-1].next_offset if self.written else 0

    def note(self, content: bytes, count: int, **fields: object) -> None:
        self.written.append(Written(self.end, self.end + count, content[16:], **fields))  # type: ignore[arg-type]

    def open_transactions(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for one in self.written:
            if one.kind is not None:
                found.pop(one.producer_id, None)
            elif one.transactional:
                found.setdefault(one.producer_id, one.base_offset)
        return found

    # ---------------------------------------------------------------------------------------------------- appending

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=4), timestamp_ms=st.integers(0, 50))
    def append(self, sizes: list[int], timestamp_ms: int) -> None:
        data = [batch(b"v" * size, b"w", timestamp_ms=timestamp_ms) for size in sizes]
        info = self.log.append(b"".join(data), now_ms=0)
        assert (info.base_offset, info.last_offset) == (self.end, self.end + 2 * len(sizes) - 1)
        for one in data:
            self.note(one, 2)

    @rule(producer_id=st.integers(1, 3), count=st.integers(1, 3), transactional=st.booleans())
    def produce(self, producer_id: int, count: int, transactional: bool) -> None:
        sequence = self.sequences.get(producer_id, 0)
        data = produced(producer_id, sequence, count, transactional=transactional)
        if not transactional and producer_id in self.open_transactions():
            try:
                self.log.append(data, now_ms=0)
            except InvalidTxnStateError:
                return
            raise AssertionError("a plain batch was let into a transaction")
        info = self.log.append(data, now_ms=0)
        assert (info.base_offset, info.duplicate) == (self.end, False)
        again = self.log.append(data, now_ms=0)
        assert again == info._replace(duplicate=True)
        self.note(data, count, producer_id=producer_id, transactional=transactional)
        self.sequences[producer_id] = sequence + count

    @rule(producer_id=st.integers(1, 3), kind=st.sampled_from([ControlType.COMMIT, ControlType.ABORT]))
    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        data = marker(producer_id, kind)
        self.log.append(data, now_ms=0, from_coordinator=True)
        self.note(data, 1, producer_id=producer_id, kind=kind)

    # ----------------------------------------------------------------------------------------------------- restarts

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.open(clean=True)

    @rule(flushed=st.booleans(), missing=st.sets(st.sampled_from(HINTS)))
    def crash(self, flushed: bool, missing: set[str]) -> None:
        if flushed:
            self.log.flush()
        epoch = self.log.leader_epoch
        self.log.abandon()
        if self.start == 0:  # Deleted batches cannot be read again, so without hints their producers are forgotten.
            for pattern in missing:
                for path in (self.directory / "t-0").glob(pattern):
                    path.unlink()
        self.open(clean=False)
        if "checkpoint" not in missing:
            assert self.log.leader_epoch > epoch

    @precondition(lambda self: self.written and self.written[-1].base_offset >= self.start)
    @rule(cut=st.floats(0, 1, exclude_max=True), tail=st.binary(max_size=90))
    def crash_within_the_last_append(self, cut: float, tail: bytes) -> None:
        last = self.written[-1]
        path = max((self.directory / "t-0").glob("*.log"))
        size_bytes = path.stat().st_size
        length = len(last.content) + 16
        if size_bytes < length or self.log.synced_offset > last.base_offset:
            return
        self.log.abandon()
        with path.open("r+b") as file:
            file.truncate(size_bytes - length + int(cut * length))
            file.seek(0, 2)
            file.write(tail if cut == 0 else b"")
        self.open(clean=False)
        self.forget_from(len(self.written) - 1)

    def forget_from(self, index: int) -> None:
        for one in self.written[index:]:
            if one.producer_id > 0 and one.kind is None:
                self.sequences[one.producer_id] -= one.next_offset - one.base_offset
        del self.written[index:]

    # ----------------------------------------------------------------------------------------------------- removing

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.flush()
        offset = self.start + int(share * (self.end - self.start))
        assert self.log.delete_records_before(offset) == offset
        self.start = offset

    @rule(retention_bytes=st.integers(0, 2000))
    def retain(self, retention_bytes: int) -> None:
        self.log.flush()
        self.log.config = dataclasses.replace(CONFIG, retention_bytes=retention_bytes)
        self.log.apply_retention(0)
        self.log.config = CONFIG
        assert self.log.log_start_offset >= self.start
        assert self.log.log_start_offset == self.start or self.log.size_bytes >= retention_bytes
        self.start = self.log.log_start_offset
        self.log.flush()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # --------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def the_sync_thread_is_idle(self) -> None:
        """So that a run can be repeated: what is on disk after a step does not depend on that thread's speed."""
        idle = threading.Event()
        self.syncer.run(idle.set)
        assert idle.wait(10)

    @invariant()
    def offsets_are_the_models(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)

    @invariant()
    def every_batch_is_read_as_it_was_written(self) -> None:
        expected = [one for one in self.written if one.next_offset > self.start]
        for max_bytes in (1, 333, 1 << 20):
            position, found = self.start, []
            while position < self.end:
                result = self.log.read(position, max_bytes)
                data = joined(result)
                found += [
                    Written(header.base_offset, header.next_offset, data[at + 16 : at + header.size_bytes])
                    for at, header in iter_headers(data)
                ]
                position = result.next_offset
            assert [(one.base_offset, one.next_offset, one.content) for one in found] == [
                (one.base_offset, one.next_offset, one.content) for one in expected
            ]

    @invariant()
    def transactions_are_the_models(self) -> None:
        opened = self.open_transactions()
        assert dict(self.log.producers.open_transactions()) == opened
        assert self.log.last_stable_offset == max(self.start, min(opened.values(), default=self.end))
        running: dict[int, int] = {}
        aborted = []
        for one in self.written:
            if one.kind is not None:
                first = running.pop(one.producer_id, None)
                if first is not None and one.kind is ControlType.ABORT and one.base_offset >= self.start:
                    aborted.append((one.producer_id, first))
            elif one.transactional:
                running.setdefault(one.producer_id, one.base_offset)
        found = self.log.aborted_transactions(self.start, self.end)
        assert found == sorted(aborted, key=lambda pair: pair[1])

    @invariant()
    def leader_epochs_ascend(self) -> None:
        epoch, end = self.log.end_offset_for_epoch(self.log.leader_epoch)
        assert (epoch, end) == (self.log.leader_epoch, self.end)
        ends = [self.log.end_offset_for_epoch(e)[1] for e in range(self.log.leader_epoch + 1)]
        assert ends == sorted(ends)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
