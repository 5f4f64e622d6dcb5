"""A sample of a backfill computed once more, another way.

1. A task is a function of its inputs: computed anew it has the same result, or the application's code is not deterministic
   (a clock, a random number, the order of a set), or an archive was changed since the plan was made.
2. The second computation goes record by record through processor nodes, without the generated code of the first: the two
   check each other. It writes into a folder of its own, which is deleted; the results that are there stay as they are.
3. Where the two differ in bytes, the first way is taken once more. If that is the first result again, the application is
   deterministic, and both ways are compared for records as their serdes write them (:mod:`streamsrt.backfill.canonical`).
   Slices may have gone another way than the task as a whole: what they send is compared as the serdes of sinks write it.
4. What is compared: records read, stream times, counters, the entries of every store, the digests of changelogs, and the
   records of each key in outputs and repartition topics. The order of keys within one flush of a cache may differ and is
   left out, as are the cuts between batches, and the files of stores, which hold ids of RocksDB's own. Where caches were
   full before the end, which changes were seen depends on how much room a row takes: then each key's last record counts.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import blake2b
from itertools import chain, repeat
from pathlib import Path
from typing import TypeAlias

from streamsrt.backfill.attempts import new_attempt
from streamsrt.backfill.canonical import CanonicalRecords
from streamsrt.backfill.manifest import LogResult, TaskManifest, digest_text
from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.backfill.planned_application import application_of, subtopology_of
from streamsrt.backfill.run_task import compute_task
from streamsrt.backfill.slices.share import slices_of
from streamsrt.backfill.sources import read_batches
from streamsrt.backfill.verify import VerificationError
from streamsrt.tasks.input.partition_group import TopicPartition
from streamsrt.tasks.task_config import TaskConfig

Record: TypeAlias = tuple[bytes | None, tuple[object, ...]]
"""A key, and the rest of the record."""


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
        compute = partial(_attempt, directory, plan, task.id, bootstrap_servers)
        with compute(generate=False) as again:
            records += again.records
            differs = _differences(directory, finished[task.id], again)
        if differs:
            _explain(directory, finished[task.id], compute, _sent(plan, task) if slices_of(plan, task) else None)
    return records


def _sent(plan: BackfillPlan, task: TaskPlan) -> CanonicalRecords:
    """The records that a task sends, as the serdes of its sinks write them."""
    topology, config = application_of(plan)
    resolved = TaskConfig.of(config).resolved(subtopology_of(topology, config, task), plan.application_id)
    sinks = resolved.subtopology.sinks
    by_topic = {resolved.topic(sink.topic, sink.repartition): sink for sink in sinks if sink.topic is not None}
    return CanonicalRecords(by_topic.__getitem__)


@contextmanager
def _attempt(
    directory: Path,
    plan: BackfillPlan,
    task_id: str,
    bootstrap_servers: str | None,
    *,
    generate: bool,
    canonical: bool = False,
) -> Iterator[TaskManifest]:
    """A task computed once more, whose results are deleted at the end."""
    with new_attempt(directory, task_id) as attempt:
        try:
            yield compute_task(
                directory,
                plan,
                task_id,
                attempt,
                bootstrap_servers=bootstrap_servers,
                generate=generate,
                canonical=canonical,
            )
        finally:
            shutil.rmtree(attempt, ignore_errors=True)


def _explain(
    directory: Path,
    first: TaskManifest,
    compute: Callable[..., AbstractContextManager[TaskManifest]],
    sent: CanonicalRecords | None,
) -> None:
    """Raises VerificationError, unless two results differ only in how the same values are written."""
    with compute(generate=True) as same:
        differs = _differences(directory, first, same, sent)
    if differs:
        raise VerificationError(
            f"task {first.task} gives another result when it is recomputed; differences: {', '.join(differs)}. "
            "Either a function of the application is not deterministic (a clock, a random number, the order of a set), or "
            "the archive was changed: correct that, then plan again in another --dir"
        )
    with compute(generate=True, canonical=True) as one, compute(generate=False, canonical=True) as other:
        differs = _differences(directory, one, other)
    if differs:
        raise VerificationError(
            f"task {first.task} gives another result when it is computed record by record; differences: "
            f"{', '.join(differs)}. Either a serde gives other bytes for the same value each time, or this is a fault of "
            "streamsrt: don't hand over, and report it with the program"
        )


def _differences(
    directory: Path, first: TaskManifest, again: TaskManifest, sent: CanonicalRecords | None = None
) -> list[str]:
    last_only = bool(first.flushes or again.flushes)
    one, other = (_content(directory, each, sent, last_only=last_only) for each in (first, again))
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _records(tp: TopicPartition, paths: Iterable[Path], sent: CanonicalRecords | None) -> Iterator[Record]:
    """Bytes are as they are, or as ``sent`` has them."""
    for columns in chain.from_iterable(map(read_batches, paths)):
        given = columns if sent is None else sent.of(tp, columns)
        headers = given.headers or repeat(())
        for key, *rest in zip(given.keys, given.values, given.timestamps, headers, strict=False):
            yield key, tuple(rest)


def _content(
    directory: Path, manifest: TaskManifest, sent: CanonicalRecords | None = None, *, last_only: bool
) -> dict[str, object]:
    digest = _digest_of_last if last_only else _digest
    return {
        "records read": manifest.reads,
        "stream time": (manifest.stream_time_ms, manifest.operator_times_ms),
        "counters": manifest.counters,
        **{f"store {store.name}": (store.entries, store.changelog_digest) for store in manifest.stores},
        **{
            "{}-{}".format(*tp): digest(_records(tp, paths, sent))
            for tp, paths in _paths(directory, (*manifest.outputs, *manifest.repartition)).items()
        },
    }


def _paths(directory: Path, logs: Iterable[LogResult]) -> dict[tuple[str, int], list[Path]]:
    """The files of each partition, in their order."""
    found: dict[tuple[str, int], list[Path]] = {}
    for log in logs:
        found.setdefault((log.topic, log.partition), []).append(directory / log.file.path)
    return found


def _digest(records: Iterable[Record]) -> str:
    """Of the records of each key in their order."""
    seen: Counter[bytes | None] = Counter()
    total = 0
    for key, rest in records:
        record = blake2b(repr((key, seen[key], rest)).encode(), digest_size=16).digest()
        total += int.from_bytes(record, "big")
        seen[key] += 1
    return digest_text(total)


def _digest_of_last(records: Iterable[Record]) -> str:
    """Of the last record of each key; of all records without a key. A deletion is as if there were none."""
    last: dict[bytes, int] = {}
    total = 0
    for key, rest in records:
        found = blake2b(repr((key, rest)).encode(), digest_size=16).digest()
        record = 0 if rest[0] is None else int.from_bytes(found, "big")
        if key is None:
            total += record
        else:
            last[key] = record
    return digest_text(total + sum(last.values()))
