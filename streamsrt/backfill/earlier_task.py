"""What a task takes over from an earlier backfill that its plan continues.

1. It takes over everything that the earlier task has published: the rows of its stores, its changelogs, its stream times and
   its in-memory state. So it continues as the earlier task would have continued after a commit.
2. Outputs of the earlier task come before those of this one, as files of this attempt: the result is complete without the
   earlier directory. Files are linked, or copied if the two directories are on different file systems.
3. The earlier directory must have the path that is in the plan, on every machine that runs tasks, unless they get copies of
   what they read (:mod:`streamsrt.backfill.local_copies`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.local_copies import found_at
from streamsrt.backfill.manifest import FileResult, LogResult, StoreResult, TaskManifest, finished_manifest, is_whole
from streamsrt.backfill.order import Overtaken
from streamsrt.backfill.plan import BackfillPlan, RepartitionRange, load_plan
from streamsrt.backfill.sources import read_batches
from streamsrt.state.rocksdb import RocksDBStore
from streamsrt.state.snapshots import Values
from streamsrt.state.store import BytesStore
from streamsrt.wire.records import RecordColumns


@dataclass(frozen=True, slots=True)
class EarlierTask:
    """The result of a task in the earlier backfill, whose plan is in ``directory``."""

    directory: Path
    plan: BackfillPlan
    manifest: TaskManifest

    def past_of(self, source: RepartitionRange) -> Overtaken:
        """Counts records of a repartition partition that a single backfill over everything would have processed
        earlier."""
        name = f"{source.topic}-{source.partition}"
        directory = found_at(self.directory)
        written = [finished_manifest(directory, self.plan, task_id).reached for task_id in source.upstream]
        return Overtaken({(source.topic, index): reached.get(name, -1) for index, reached in enumerate(written)})

    @property
    def snapshot(self) -> Mapping[str, Values]:
        """The task's state outside its stores."""
        return self.manifest.carried or {}

    def fill(self, store: BytesStore) -> None:
        """Puts the rows of the store of that name into ``store``. Raises PlanError."""
        assert isinstance(store, RocksDBStore), "tasks that go on have their stores on disk"
        result = self._store(store.name)
        file = result.bundle or result.rows
        if file is not None:
            store.ingest(self._whole(file), changelog_offset=None)

    def logged(self, store: str) -> Iterator[RecordColumns]:
        """The changelog of that store, as it was at the end. Raises PlanError."""
        changelog = self._store(store).changelog
        if changelog is not None:
            yield from read_batches(self._whole(changelog.file))

    def outputs(self, directory: Path, attempt: Path) -> Iterator[LogResult]:
        """Yields the outputs of the earlier task, as files of an attempt in another ``directory``."""
        for number, log in enumerate(self.manifest.outputs):
            path = attempt / f"{number}.earlier"
            written = self._whole(log.file)
            try:
                os.link(written, path)
            except OSError:
                # Another file system, or one without links.
                shutil.copyfile(written, path)
            file = log.file.model_copy(update={"path": str(path.relative_to(directory))})
            yield log.model_copy(update={"file": file})

    def _store(self, name: str) -> StoreResult:
        return next(store for store in self.manifest.stores if store.name == name)

    def _whole(self, file: FileResult) -> Path:
        directory = found_at(self.directory)
        if not is_whole(directory, file):
            raise PlanError(
                f"{self.directory / file.path} of the earlier backfill is missing or damaged: run streamsrt backfill resume "
                f"--dir {self.directory}, which computes it again, then streamsrt backfill resume here"
            )
        return directory / file.path


def earlier_task(plan: BackfillPlan, task_id: str) -> EarlierTask | None:
    """Returns what a task of a plan takes over; None if the plan begins with the history. Raises PlanError."""
    if plan.after is None:
        return None
    directory = Path(plan.after.directory)
    try:
        earlier = load_plan(found_at(directory))
    except PlanError as error:
        raise PlanError(
            f"plan {plan.id} continues the backfill in {directory}, which is missing: {error}. Bring the directory "
            "back; on a cluster that writes into the plan's directory all nodes need it under the same path"
        ) from None
    if earlier.fingerprint != plan.after.fingerprint:
        raise PlanError(
            f"plan {plan.id} continues another backfill than the one that is in {directory} now ({earlier.id}): bring "
            "back the original directory, or plan again in another --dir"
        )
    return EarlierTask(directory, earlier, finished_manifest(found_at(directory), earlier, task_id))
