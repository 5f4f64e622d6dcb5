"""A sample of a backfill computed once more, another way.

1. A task is a function of its inputs: computed anew it has the same result, or the application's code is not deterministic
   (a clock, a random number, the order of a set), or an archive was changed since the plan was made.
2. The second computation goes record by record through processor nodes, without the generated code of the first: the two
   check each other. It writes into a folder of its own, which is deleted; the results that are there stay as they are.
3. What is compared: records read, stream times, counters, the entries of every store, the digests of changelogs, and the
   records of each key in outputs and repartition topics. The order of keys within one flush of a cache may differ and is
   left out, as are the cuts between batches, and the files of stores, which hold ids of RocksDB's own. Where caches were
   full before the end, which changes were seen depends on how much room a row takes: then each key's last record counts.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import repeat
from pathlib import Path

from streamsrt.backfill.manifest import TaskManifest, digest_text
from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.backfill.run_task import compute_task
from streamsrt.backfill.sources import read_batches
from streamsrt.backfill.verify import VerificationError


def sample_of(plan: BackfillPlan, count: int, seed: int = 0) -> list[TaskPlan]:
    """``count`` tasks by chance, in the order of the plan; all where there are fewer. Tasks that read a lake are left out:
    only Spark can put it in order."""
    able = [task for task in plan.tasks if not any(source.lake_records for source in task.sources)]
    chosen = random.Random(f"{plan.id} {seed}").sample(able, min(count, len(able)))
    return [task for task in able if task in chosen]


def recompute(
    directory: Path,
    plan: BackfillPlan,
    manifests: Sequence[TaskManifest],
    tasks: Sequence[TaskPlan],
    bootstrap_servers: str | None = None,
) -> int:
    """Computes tasks once more and compares; how many records that were. Raises VerificationError, and a task's errors."""
    finished = {manifest.task: manifest for manifest in manifests}
    records = 0
    for task in tasks:
        again = compute_task(directory, plan, task.id, bootstrap_servers=bootstrap_servers, generate=False)
        try:
            _compare(directory, finished[task.id], again)
        finally:
            shutil.rmtree(directory / again.attempt, ignore_errors=True)
        records += again.records
    return records


def _compare(directory: Path, first: TaskManifest, again: TaskManifest) -> None:
    last_only = bool(first.flushes or again.flushes)
    one, other = _content(directory, first, last_only=last_only), _content(directory, again, last_only=last_only)
    different = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    if different:
        raise VerificationError(
            f"task {first.task} gives another result when it is recomputed; differences: {', '.join(different)}. "
            "Either a function of the application is not deterministic (a clock, a random number, the order of a set), or "
            "the archive was changed: correct that, then plan again in another --dir"
        )


def _content(directory: Path, manifest: TaskManifest, *, last_only: bool) -> dict[str, object]:
    digest = _digest_of_last if last_only else _digest
    return {
        "records read": manifest.reads,
        "stream time": (manifest.stream_time_ms, manifest.operator_times_ms),
        "counters": manifest.counters,
        **{f"store {store.name}": (store.entries, store.changelog_digest) for store in manifest.stores},
        **{
            f"{log.topic}-{log.partition}": digest(directory / log.file.path)
            for log in (*manifest.outputs, *manifest.repartition)
        },
    }


def _digest(path: Path) -> str:
    """Of the records of each key in their order."""
    seen: Counter[bytes | None] = Counter()
    total = 0
    for columns in read_batches(path):
        headers = columns.headers or repeat(())
        for key, *rest in zip(columns.keys, columns.values, columns.timestamps, headers, strict=False):
            record = blake2b(repr((key, seen[key], rest)).encode(), digest_size=16).digest()
            total += int.from_bytes(record, "big")
            seen[key] += 1
    return digest_text(total)


def _digest_of_last(path: Path) -> str:
    """Of the last record of each key; of all records without a key. A deletion is as if there were none."""
    last: dict[bytes, int] = {}
    total = 0
    for columns in read_batches(path):
        headers = columns.headers or repeat(())
        for key, *rest in zip(columns.keys, columns.values, columns.timestamps, headers, strict=False):
            found = blake2b(repr((key, rest)).encode(), digest_size=16).digest()
            record = 0 if rest[0] is None else int.from_bytes(found, "big")
            if key is None:
                total += record
            else:
                last[key] = record
    return digest_text(total + sum(last.values()))
