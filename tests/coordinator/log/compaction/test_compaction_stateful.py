"""A compacted log against a list of everything that was ever written to it."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.log import PartitionLog, Syncer
from streamsrt.wire.records import ControlType
from tests.coordinator.log.batches import marker
from tests.coordinator.log.compaction.keyed import COMPACTED, Row, compact, keyed, rows_of

CONFIG = dataclasses.replace(COMPACTED, segment_bytes=400, delete_retention_ms=100)
KEYS = st.sampled_from(["a", "b", "c", "d"])
ROWS = st.lists(st.tuples(KEYS, st.sampled_from(["1", "2", None])), min_size=1, max_size=3)


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="compaction-machine-"))
        self.syncer = Syncer(interval_ms=3_600_000)
        self.now_ms = 1_000
        self.rows: list[Row] = []
        self.open_rows: dict[int, list[Row]] = {}
        self.aborted: set[int] = set()
        self.sequences: dict[int, int] = {}
        self.last: dict[int, bytes] = {}
        self.log: PartitionLog

    @initialize()
    def begin(self) -> None:
        self.log = PartitionLog(self.directory / "t-0", CONFIG, self.syncer, clean=True)

    def teardown(self) -> None:
        self.log.abandon()
        self.syncer.close()
        shutil.rmtree(self.directory)

    def note(self, base_offset: int, rows: list[tuple[str, str | None]]) -> list[Row]:
        noted = [
            Row(base_offset + i, key.encode(), None if value is None else value.encode(), self.now_ms + i)
            for i, (key, value) in enumerate(rows)
        ]
        self.rows += noted
        return noted

    @rule(rows=ROWS)
    def append(self, rows: list[tuple[str, str | None]]) -> None:
        info = self.log.append(keyed(*rows, timestamp_ms=self.now_ms), now_ms=self.now_ms)
        self.note(info.base_offset, rows)

    @rule(rows=ROWS, producer_id=st.integers(1, 2))
    def append_in_transaction(self, rows: list[tuple[str, str | None]], producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        data = keyed(
            *rows,
            timestamp_ms=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        info = self.log.append(data, now_ms=self.now_ms)
        assert not info.duplicate
        self.sequences[producer_id] = sequence + len(rows)
        self.last[producer_id] = data
        self.open_rows.setdefault(producer_id, []).extend(self.note(info.base_offset, rows))

    @rule(producer_id=st.integers(1, 2), kind=st.sampled_from([ControlType.COMMIT, ControlType.ABORT]))
    def end_transaction(self, producer_id: int, kind: ControlType) -> None:
        self.log.append(marker(producer_id, kind), now_ms=self.now_ms, from_coordinator=True)
        rows = self.open_rows.pop(producer_id, [])
        if kind is ControlType.ABORT:
            self.aborted |= {row.offset for row in rows}

    @rule(passed_ms=st.sampled_from([0, 50, 100]), map_bytes_max=st.sampled_from([200, 600, 1 << 20]))
    def compact(self, passed_ms: int, map_bytes_max: int) -> None:
        self.now_ms += passed_ms
        self.log.roll()
        compact(self.log, self.now_ms, map_bytes_max)

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = PartitionLog(self.directory / "t-0", CONFIG, self.syncer, clean=True)

    @rule(hints=st.sets(st.sampled_from(["*.index", "checkpoint"])))
    def crash(self, hints: set[str]) -> None:
        self.log.abandon()
        for pattern in hints:
            for path in (self.directory / "t-0").glob(pattern):
                path.unlink()
        self.log = PartitionLog(self.directory / "t-0", CONFIG, self.syncer, clean=False)

    @rule(producer_id=st.integers(1, 2))
    def send_again(self, producer_id: int) -> None:
        data = self.last.get(producer_id)
        if data is not None:
            assert self.log.append(data, now_ms=self.now_ms).duplicate

    @invariant()
    def readers_find_what_was_written(self) -> None:
        found = rows_of(self.log)
        assert set(found) <= set(self.rows)
        assert [row.offset for row in found] == sorted({row.offset for row in found})

    @invariant()
    def the_last_committed_record_of_each_key_is_there(self) -> None:
        stable = self.log.last_stable_offset
        expected: dict[bytes | None, bytes | None] = {}
        for row in self.rows:
            if row.offset < stable and row.offset not in self.aborted:
                expected[row.key] = row.value
        found = {row.key: row.value for row in rows_of(self.log, committed=True)}
        for key, value in expected.items():
            assert found.get(key) == value, (key, value)
        assert {key for key, value in found.items() if value is not None} == {
            key for key, value in expected.items() if value is not None
        }


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
