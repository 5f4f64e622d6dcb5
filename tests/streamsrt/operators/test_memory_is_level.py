"""Memory does not grow with history: after four times as many records, tasks hold as much as before.

Every program of :mod:`tests.streamsrt.operators.test_every_operator`, so every operation and every kind of store, with keys
that come again and again. Where stores drop by themselves what is old, also with keys that come once and never again.
A run has half of the programs, another half each time.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from streamsrt.state.kinds import LaidOut, lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns, decode_batches
from tests.streamsrt.operators.programs import APPLICATION
from tests.streamsrt.operators.test_every_operator import PROGRAMS, topology_of
from topology import serdes
from topology.graph.nodes import StoreSpec
from topology.graph.store_kinds import Limit, RowsOfKey, store_traits
from topology.graph.topology import Topology

BURST_RECORDS, BURSTS_EACH_COMMIT = 60, 4
SILENCE_MS = 30_000
"""Between bursts: a store keeps a few minutes at least."""
PART_RECORDS, PARTS = 2_400, 4
PER_RECORD = 1 / 20
"""So many blocks of memory more for each record are too many; what is forgotten once in a record costs two at least."""
CACHE_BYTES = 32 << 10
T0 = 1_700_000_000_000

Row = tuple[str, bytes, bytes, int]


class Running:
    """A topology's tasks for partition 0, whose output goes nowhere but to each other."""

    def __init__(self, topology: Topology) -> None:
        ready = topology.with_default_serdes(serdes.string, serdes.string)
        # Caches are soon as full as they may be: of entries that are deleted, too.
        config = TaskConfig(cache_max_bytes=CACHE_BYTES, write_buffer_max_bytes=CACHE_BYTES)
        self._arrived: deque[tuple[str, RecordColumns]] = deque()
        self._ends: dict[str, int] = {}
        self._collector = RecordCollector(self._written, lambda topic: 1)
        self.globals = GlobalState(
            ready.global_subtopologies,
            application_id=APPLICATION,
            stores={spec.name: in_memory(spec) for each in ready.global_subtopologies for spec in each.stores},
            config=config,
        )
        self.tasks = [
            Task(
                part,
                0,
                application_id=APPLICATION,
                stores={spec.name: in_memory(spec) for spec in part.stores},
                collector=self._collector,
                config=config,
                partitions_of_topic=lambda topic: 1,
                global_stores=self.globals,
            )
            for part in ready.subtopologies
        ]
        self._reader_of = {topic: task for task in self.tasks for topic, _ in task.source_partitions}

    def _written(self, topic: str, partition: int, batch: bytes, count: int) -> None:
        if topic in self._reader_of:
            self._arrived += [(topic, columns) for columns in decode_batches(batch)]

    def feed(self, rows: Sequence[Row]) -> None:
        """Processes them as one batch of each topic, and what follows from them; then commits."""
        for topic in dict.fromkeys(row[0] for row in rows):
            _, keys, values, times = zip(*(row for row in rows if row[0] == topic), strict=True)
            start = self._ends.get(topic, 0)
            end = self._ends[topic] = start + len(keys)
            columns = RecordColumns(list(keys), list(values), list(times), start, end)
            if topic in self.globals.topics:
                self.globals.apply(topic, 0, columns)
            elif topic in self._reader_of:
                self._reader_of[topic].add_batch(topic, 0, columns)
        self._commit()
        while self._arrived:
            while self._arrived:
                topic, columns = self._arrived.popleft()
                self._reader_of[topic].add_batch(topic, 0, columns)
            self._commit()

    def _commit(self) -> None:
        for task in self.tasks:
            # As long as it waits for another topic, it takes nothing: it has waited long enough.
            while task.process(1_000, T0):
                pass
            task.prepare_commit()
            self._collector.flush()
            task.post_commit(dict.fromkeys(task.caches, 1))
        for topic in self._collector.topics:
            self._collector.take_produced(topic)


def in_memory(spec: StoreSpec) -> LaidOut:
    return lay_out(spec, MemoryStore(spec.name))


def bursts(*, passing: bool) -> Iterator[list[Row]]:
    """Records in bursts with silence between. ``passing``: each burst has keys and values of its own."""
    number = 0
    while True:
        rows: list[Row] = []
        for _ in range(BURSTS_EACH_COMMIT):
            began_ms = T0 + number * SILENCE_MS
            for index in range(BURST_RECORDS):
                text = b"%09d-%d" % (number if passing else 0, index % 6)
                rows.append(("left" if index % 2 else "right", b"k" + text, b"v" + text, began_ms + index))
            number += 1
        yield rows


def held_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def growth(running: Running, *, passing: bool) -> float:
    """How many blocks of memory each record adds, in the part where it is least: what is made once is no growth."""
    coming = bursts(passing=passing)

    def feed() -> int:
        for _ in range(PART_RECORDS // BURST_RECORDS // BURSTS_EACH_COMMIT):
            running.feed(next(coming))
        return held_blocks()

    held = [feed() for _ in range(PARTS)]
    return min(later - before for before, later in pairwise(held)) / PART_RECORDS


def forgets(topology: Topology) -> bool:
    """Whether no store keeps a row, or the latest version of one, for as long as nobody deletes it."""
    parts = (*topology.subtopologies, *topology.global_subtopologies)
    kinds = [store_traits(spec) for part in parts for spec in part.stores]
    return all(kind.limit is not Limit.NOTHING and kind.rows is not RowsOfKey.VERSIONS for kind in kinds)


@pytest.mark.share(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_known_keys_take_no_more_memory_with_time(program: str) -> None:
    assert growth(Running(topology_of(program)), passing=False) < PER_RECORD


@pytest.mark.share(2)
@pytest.mark.parametrize("program", [each for each in PROGRAMS if forgets(topology_of(each))])
def test_keys_that_are_over_take_no_more_memory(program: str) -> None:
    assert growth(Running(topology_of(program)), passing=True) < PER_RECORD
