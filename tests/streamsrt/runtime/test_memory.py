from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.config import StreamsConfig
from streamsrt.membership.values import Tasks
from streamsrt.runtime.memory import ROUNDS_AT_REST, MemoryMeter, budget_text, memory_text
from streamsrt.runtime.metrics import memory_metrics
from streamsrt.runtime.values import MemoryUse, Progress, State, total_of
from tests.streamsrt.rig import Rig

BUDGET = MemoryUse(limit_bytes=8 << 20, record_cache_bytes=1 << 20, rocksdb_bytes=2 << 20, state_bytes=5 << 20)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {},
            "memory for state: 128 MiB (cache.max.bytes), of which 64 for record caches and uncommitted changes and 64 for",
        ),
        ({"cache.max.bytes": 16 << 20}, "and 8 for RocksDB's block caches"),
        ({"statestore.cache.max.bytes": 0}, "record caches are off"),
    ],
)
def test_the_budget_is_told(values: dict[str, object], said: str) -> None:
    assert said in budget_text(StreamsConfig.of({"application.id": "a", **values}))


def meter_of(rig: Rig) -> MemoryMeter:
    return MemoryMeter(StreamsConfig.of({"application.id": "a"}), rig.directory.rocksdb, rig.manager.rests)


def test_a_store_at_rest_is_measured_again_when_its_task_has_woken_and_now_and_then(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    meter = meter_of(rig)
    try:
        rig.give(Tasks(active=rig.tasks(0)))
        rig.network.write(("in", 0), [(b"a", b"")])
        rig.iterate(2)
        rig.commit()
        rig.iterate(1)
        (owned,) = rig.manager
        assert rig.manager.rests(owned)
        before = meter.measure(rig.manager).state_bytes
        owned.stores["counts"].flush()
        now = [meter.measure(rig.manager).state_bytes for _ in range(ROUNDS_AT_REST)]
        assert now[0] == before
        assert now[-1] != before
        rig.network.write(("in", 0), [(b"%05d" % number, b"") for number in range(3000)])
        rig.iterate(2)
        rig.commit()
        assert meter.measure(rig.manager).state_bytes > now[-1]
    finally:
        rig.close()


def test_what_is_used_is_counted_over_all_tasks(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    meter = meter_of(rig)
    try:
        empty = meter.measure(rig.manager)
        assert (empty.limit_bytes, empty.record_cache_bytes, empty.state_bytes) == (128 << 20, 0, 0)
        for partition in (0, 1):
            rig.network.write(("in", partition), [(b"a", b""), (b"b", b""), (b"c", b"")])
        rig.start(Tasks(active=rig.tasks(0, 1)))
        rig.move()
        rig.commit()
        used = meter.measure(rig.manager)
        assert used.record_cache_bytes >= 2 * 3 * 200
        assert used.state_bytes > 0
        assert used.rocksdb_bytes >= used.write_buffer_bytes > 0
    finally:
        rig.close()


def test_it_is_shown() -> None:
    assert memory_text(BUDGET) == "memory of state 3 of 8 MiB, 5 MiB stored"
    metrics = {each.name: each.value for each in memory_metrics({}, BUDGET)}
    assert metrics["memory-limit-bytes"] == 8 << 20
    assert metrics["memory-used-bytes"] == 3 << 20


def test_processes_add_up_and_those_that_ended_have_none() -> None:
    running = Progress(memory=BUDGET)
    assert total_of(State.RUNNING, [running, running]).memory.limit_bytes == 16 << 20
    assert total_of(State.RUNNING, [running, running.of_the_past()]).memory == BUDGET
