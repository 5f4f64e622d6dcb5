"""One partition by the local engine with two workers: as a whole, which one of them computes, and in two slices.

    python -m tests.bench.bench_slices [--records 600000] [--keys 20000] [--rounds 3]

Windows per key over JSON, in an archive, a fifth of the records up to a minute late. Both results are compared. The ratio of
one run on an idle machine means something; the CPU seconds also elsewhere.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from streamsrt.application import module_digest
from streamsrt.backfill import Backfill
from streamsrt.backfill.archive import scan_archive, write_archive
from streamsrt.backfill.plan import BackfillPlan, InternalTopicPlan, SourceRange, StorePlan, TaskPlan, save_plan
from streamsrt.wire.records import RecordColumns
from tests.bench.bench_backfill import clocks, since
from topology import StreamsBuilder, TimeWindows, serdes

APPLICATION = "tests.bench.bench_slices:topology"
FILE_RECORDS = 50_000

builder = StreamsBuilder()
(
    builder.stream("orders", key=serdes.string, value=serdes.json)
    .filter(lambda key, order: order["lines"] > 0)
    .group_by_key()
    .windowed_by(TimeWindows(60_000, grace=120_000))
    .aggregate(lambda: 0, lambda key, order, total: total + order["lines"], store="lines", value=serdes.long)
)
topology = builder.build()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_slices")
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-slices-") as folder:
        root = Path(folder)
        write_archive(root / "archive", 0, history(options.records, options.keys), file_records=FILE_RECORDS)
        taken: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for number in range(options.rounds):
            digests = set()
            for slices, each in taken.items():
                backfill = planned(root, options.records, slices, root / f"{slices}-{number}")
                began = clocks()
                (manifest,) = backfill.run("local", workers=2)
                found = since(began, 0)
                each.append((found.wall_s, found.cpu_s))
                digests.add((manifest.stores[0].changelog_digest, str(manifest.counters)))
            assert len(digests) == 1, digests
        show(taken, options.records)


def history(records: int, keys: int) -> Iterator[RecordColumns]:
    chance = random.Random(1)
    for start in range(0, records, 10_000):
        end = min(records, start + 10_000)
        names: list[bytes | None] = [b"customer-%06d" % chance.randrange(keys) for _ in range(start, end)]
        values: list[bytes | None] = [
            b'{"id": %d, "lines": %d, "note": "%s"}' % (number, chance.randrange(9), b"x" * 40)
            for number in range(start, end)
        ]
        times = [
            1_700_000_000_000 + number * 5 - (chance.randrange(60_000) if number % 5 == 0 else 0)
            for number in range(start, end)
        ]
        yield RecordColumns(names, values, times, start, end)


def planned(root: Path, records: int, slices: int, directory: Path) -> Backfill:
    """A plan over the archive, made without a cluster."""
    (part,) = topology.subtopologies
    files = scan_archive(root / "archive")[0]
    source = SourceRange(topic="orders", partition=0, start=0, end=records, log_start=records, archive=files)
    changelog = "bench-lines-changelog"
    store = StorePlan(name="lines", changelog=changelog, own_changelog=True, persistent=True)
    task = TaskPlan(id=f"{part.id}_0", subtopology=part.id, partition=0, level=0, sources=(source,), stores=(store,))
    plan = BackfillPlan(
        application=APPLICATION,
        application_id="bench",
        code_digest=module_digest(APPLICATION),
        version="",
        topology_digest=topology.digest,
        topics={"orders": 1, changelog: 1},
        internal_topics=(InternalTopicPlan(name=changelog, kind="changelog", partitions=1),),
        tasks=(task,),
        slices={part.id: slices} if slices > 1 else {},
        created_ms=time.time_ns() // 1_000_000,
    ).sealed()
    save_plan(plan, directory)
    return Backfill(directory)


def show(taken: dict[int, list[tuple[float, float]]], records: int) -> None:
    load = os.getloadavg()[0]
    print(f"{records:,} records of one partition, 2 workers, median of {len(taken[1])} rounds, load average {load:.1f}")
    print(f"{'':12}{'wall s':>8}{'CPU s':>8}{'records/s':>12}{'x whole':>9}")
    medians = {slices: tuple(map(statistics.median, zip(*each, strict=True))) for slices, each in taken.items()}
    for slices, (wall_s, used_s) in medians.items():
        name = "whole" if slices == 1 else f"{slices} slices"
        print(f"{name:12}{wall_s:8.2f}{used_s:8.2f}{records / wall_s:12,.0f}{medians[1][0] / wall_s:9.2f}")


if __name__ == "__main__":
    main()
