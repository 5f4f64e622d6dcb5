"""Checks that all results of a backfill exist and are correct.

1. Results: every task has its manifest, every file its size and digest, every source partition was read to its end, and of
   an archive as many records as it holds.
2. Changelogs: what is in the cluster, read back, has the digest that the task's state has, or is what retention and
   compaction have left of it since it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.kept_history import LAG, keeps_versions
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.manifest import (
    DamagedManifestError,
    FileResult,
    StoreResult,
    TaskManifest,
    digest_sum,
    digest_text,
    finished_manifest,
    is_whole,
    load_manifest,
    manifest_path,
)
from streamsrt.backfill.plan import BackfillPlan, InternalTopicPlan, SourceRange
from streamsrt.backfill.slices.share import all_slices
from streamsrt.backfill.sources import read_batches
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, TopicPartition
from streamsrt.wire.records import RecordColumns


class VerificationError(BackfillError):
    """A result does not match its manifest or the recomputed result. The message names the task; do not hand the
    results over."""


class CheckedFiles:
    """Files that had their digest when they were read. They are not read again unless the file system says that they
    changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, ...]] = {}

    def is_whole(self, directory: Path, file: FileResult) -> bool:
        """Whether a file of a result exists as it was written."""
        path = directory / file.path
        now = _identity(path)
        if now is None:
            return False
        if self._seen.get(path) != now:
            if not is_whole(directory, file):
                return False
            # As it was before it was read: what changes meanwhile is read once more.
            self._seen[path] = now
        return True


def _identity(path: Path) -> tuple[int, ...] | None:
    """What differs once a file is written, replaced or moved; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def verify_results(directory: Path, plan: BackfillPlan, checked: CheckedFiles | None = None) -> list[TaskManifest]:
    """Checks the results of all tasks on disk; their manifests in the order of the plan. ``checked``: files that this
    process has read already. Raises PlanError, VerificationError."""
    checked = checked or CheckedFiles()
    manifests = [finished_manifest(directory, plan, task.id) for task in plan.tasks]
    for task, manifest in zip(plan.tasks, manifests, strict=True):
        records = {(read.topic, read.partition): read.records for read in manifest.reads}
        for source in task.sources:
            _check_count(task.id, source, records.get(source.topic_partition, 0))
        damage = _damage(directory, manifest, checked)
        if damage is not None:
            raise VerificationError(f"{damage}: streamsrt backfill resume computes task {task.id} again")
    return manifests


def _check_count(task_id: str, source: SourceRange, records: int) -> None:
    span = source.end - source.start
    logged = source.end - source.log_start
    if not source.archived_records <= records <= span or (records < span and not logged and not source.allow_gaps):
        raise VerificationError(
            f"task {task_id} read {records} records of {source.topic}-{source.partition}, where offsets "
            f"{source.start} to "
            f"{source.end} and an archive of {source.archived_records} records are: plan again in another --dir"
        )


def _damage(directory: Path, manifest: TaskManifest, checked: CheckedFiles) -> str | None:
    """What is wrong with the files of a result; None if they are as they were written."""
    for file in manifest.files:
        if not checked.is_whole(directory, file):
            return f"{directory / file.path} is missing or damaged"
    return None


def discard_damaged(directory: Path, plan: BackfillPlan, checked: CheckedFiles) -> Iterator[str]:
    """Makes tasks and slices unfinished whose results are missing or damaged, so that they are computed again; what was
    wrong with each. Only while no other driver has the backfill."""
    for name in [*(task.id for task in plan.tasks), *(each.id for each in all_slices(plan))]:
        try:
            manifest = load_manifest(directory, plan, name)
            damage = None if manifest is None else _damage(directory, manifest, checked)
        except DamagedManifestError:
            damage = f"{manifest_path(directory, name)} is damaged"
        if damage is not None:
            manifest_path(directory, name).unlink()
            yield f"{damage}: task {name} is computed again"


def verify_changelogs(
    network: Network,
    directory: Path,
    manifests: list[TaskManifest],
    topics: Mapping[str, InternalTopicPlan],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> int:
    """Reads every changelog back and compares it with the task's state; how many records. Raises VerificationError."""
    total = 0
    for manifest in manifests:
        for store in manifest.stores:
            if store.changelog is None:
                continue
            tp = (store.changelog.topic, store.changelog.partition)
            found, count = 0, 0
            for columns in read_log(network, tp, starts[tp], ends[tp]):
                found += digest_sum(zip(columns.keys, columns.values, columns.timestamps, strict=True))
                count += len(columns)
            if digest_text(found) != store.changelog_digest or count != store.changelog.file.records:
                left = read_log(network, tp, starts[tp], ends[tp])
                deleted = network.admin.list_offsets({tp: EARLIEST})[tp].offset > starts[tp]
                written = _records(read_batches(directory / store.changelog.file.path))
                if not is_left_of(_records(left), written, starts_later=deleted):
                    raise VerificationError(
                        f"changelog {tp[0]}-{tp[1]} holds {count} records with digest {digest_text(found)}, and task "
                        f"{manifest.task} made {store.changelog.file.records} with digest {store.changelog_digest}: "
                        "something else writes to it. streamsrt backfill abort --execute, then commit again"
                    )
                _check_versions(network, topics[tp[0]], store, count, now_ms)
            total += count
    return total


Record = tuple[bytes | None, bytes | None, int]


def _records(batches: Iterable[RecordColumns]) -> Iterator[Record]:
    for columns in batches:
        yield from zip(columns.keys, columns.values, columns.timestamps, strict=True)


def is_left_of(left: Iterator[Record], written: Iterable[Record], *, starts_later: bool) -> bool:
    """Whether these are records of those that were written, in their order, with the last one of each key that has a value:
    what retention and compaction leave. ``starts_later``: the log begins later than when it was written; retention deletes
    a window changelog from its beginning, by event time, and history may be beyond it at once."""
    latest: dict[int, int] = {}
    found: dict[int, int] = {}
    next_left = next(left, None)
    before_first = starts_later
    for record in written:
        key = hash(record[0])
        is_there = record == next_left
        before_first = before_first and not is_there
        if is_there:
            found[key] = hash(record)
            next_left = next(left, None)
        if record[1] is None or before_first:
            latest.pop(key, None)
        else:
            latest[key] = hash(record)
    return next_left is None and all(found.get(key) == record for key, record in latest.items())


def _check_versions(network: Network, topic: InternalTopicPlan, store: StoreResult, count: int, now_ms: int) -> None:
    """Raises VerificationError if compaction may have taken versions that the store still has."""
    there = network.admin.describe_topic_configs([topic.name])[topic.name]
    if store.changelog is None or keeps_versions(topic, store, there, now_ms):
        return
    raise VerificationError(
        f"the broker has compacted changelog {topic.name}-{store.changelog.partition}: {count} of "
        f"{store.changelog.file.records} records are left, and an instance that restores store {store.name!r} would lack "
        f"versions. The topic has {LAG}={there.get(LAG)}, which is less than the age of this history. streamsrt backfill "
        "abort --execute deletes it, and the next commit makes it with a larger value: leave that as it is"
    )
