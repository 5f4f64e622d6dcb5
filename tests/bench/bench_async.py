"""Asynchronous functions: records a second, against what the calls allow: ``python -m tests.bench.bench_async``.

Scope: batches of 50 records in memory -> a task with map_async or an async join_lookup, as a stream thread runs it -> a
collector that keeps nothing; no network. Each call takes 5 ms, 128 at a time: 25,600 records a second at best. In the second
half one in a hundred fails once, and is made again after 100 ms. Wall clock; results in order, and as they come. The calls
alone, in a plain event loop, say before each row what the machine has left.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns
from topology import KStream, StreamsBuilder, Topology, serdes

CALL_S, CONCURRENCY, BACKOFF_MS, BATCH_RECORDS = 0.005, 128, 100, 50
ONE_FAILS_OF = 100
COMMIT_S = 30.0

Step = Callable[[KStream[Any, Any]], KStream[Any, Any]]


class Service:
    """What is called. ``one_fails_of`` n: every n-th value fails once; 0: none."""

    def __init__(self, one_fails_of: int) -> None:
        self._one_fails_of = one_fails_of
        self._failed: set[bytes] = set()

    async def map(self, value: bytes) -> bytes:
        answer = asyncio.get_running_loop().create_future()
        answer.get_loop().call_later(CALL_S, answer.set_result, None)
        await answer
        if self._one_fails_of and int(value) % self._one_fails_of == 0 and value not in self._failed:
            self._failed.add(value)
            raise ConnectionError(value)
        return value

    async def find(self, values: list[bytes]) -> dict[bytes, bytes]:
        return {value: await self.map(value) for value in values}


class Discarded:
    """A collector that only counts."""

    def __init__(self) -> None:
        self.records = 0

    def add(self, topic: str, keys: Sequence[bytes | None], *columns: Any, **options: Any) -> None:
        self.records += len(keys)


def topology_of(step: Step) -> Topology:
    builder = StreamsBuilder()
    step(builder.stream("in", key=serdes.bytes, value=serdes.bytes)).to("out", key=serdes.bytes, value=serdes.bytes)
    return builder.build()


def records_per_second(step: Step, records: int) -> float:
    """How quickly all of them go through one task."""
    (subtopology,) = topology_of(step).subtopologies
    written = Discarded()
    task = Task(
        subtopology,
        0,
        application_id="bench",
        stores={},
        collector=written,
        config=TaskConfig(),
        partitions_of_topic=lambda topic: 1,
    )
    began = committed = time.perf_counter()
    for start in range(0, records, BATCH_RECORDS):
        values = [str(number).encode() for number in range(start, start + BATCH_RECORDS)]
        task.add_batch("in", 0, RecordColumns(values, values, [1] * len(values), start, start + len(values)))
    while task.buffered_records or task.is_calling:
        if not task.process(1_000, 1, finishes=False):
            task.await_calls(0.01)
        if time.perf_counter() - committed >= COMMIT_S:
            task.prepare_commit()
            task.post_commit(None)
            committed = time.perf_counter()
    took_s = time.perf_counter() - began
    assert written.records == records, (written.records, records)
    task.close()
    return records / took_s


def steps(one_fails_of: int) -> dict[str, Step]:
    service = Service(one_fails_of)
    retries: dict[str, Any] = {"concurrency": CONCURRENCY, "retries": 1, "backoff": BACKOFF_MS}
    return {
        "map_async, in order": lambda stream: stream.map_async(service.map, **retries),
        "map_async, as they come": lambda stream: stream.map_async(service.map, ordered=False, **retries),
        "join_lookup": lambda stream: stream.join_lookup(
            service.find, lambda value, found: found, on=lambda key, value: value, batch=1, ttl=0, **retries
        ),
    }


async def _calls_alone(service: Service, records: int) -> None:
    waiting = iter([str(number).encode() for number in range(records)])

    async def work() -> None:
        for value in waiting:
            await service.map(value)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


def calls_per_second(records: int) -> float:
    """How quickly nothing but the calls goes on this machine."""
    began = time.perf_counter()
    asyncio.run(_calls_alone(Service(0), records))
    return records / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    arguments = parser.parse_args()
    best = CONCURRENCY / CALL_S
    print(f"{arguments.records:,} records, {CALL_S * 1000:g} ms a call, {CONCURRENCY} at a time: {best:,.0f}/s at best")
    for one_fails_of in (0, ONE_FAILS_OF):
        for name in steps(one_fails_of):
            alone = calls_per_second(arguments.records)
            cpu = time.process_time()
            rate = records_per_second(steps(one_fails_of)[name], arguments.records)
            cpu_us = (time.process_time() - cpu) / arguments.records * 1e6
            what = f"one of {one_fails_of} fails once" if one_fails_of else "none fails"
            print(
                f"{name:26} {what:24} {rate:10,.0f}/s  {rate / alone:5.0%} of the calls alone  {cpu_us:5.1f} us CPU a record"
            )


if __name__ == "__main__":
    main()
