"""Installs state files of a backfill in the state directory of an instance, which then restores nothing from changelogs.

1. A bundle goes into a store that is new. If an earlier attempt of this hand-over left files there, they are replaced;
   any other store is refused. No instance can have run in between: it would have found the marks.
2. The store then stands at the end of its changelog as this backfill wrote it, or at the end of the source that serves as
   one.
3. With the stores of a whole application, the directory gets the version of the topology that can read them, as if that had
   run: another one that would misread them is refused. Of one store that is rebuilt, the directory may have others, of the
   version that it names: that stays. A store that an upgrade adds comes before the version that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from streamsrt.backfill.errors import HandOverError
from streamsrt.backfill.manifest import StoreResult, TaskManifest
from streamsrt.backfill.plan import BackfillPlan, StorePlan
from streamsrt.client.values import TopicPartition
from streamsrt.runtime.topology_version import FILE as TOPOLOGY_FILE
from streamsrt.runtime.topology_version import remember_version
from streamsrt.state.directory import StateDirectory
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore


def install_bundles(
    directory: Path,
    plan: BackfillPlan,
    manifests: Sequence[TaskManifest],
    changelog_ends: Mapping[TopicPartition, int],
    state_dir: Path,
) -> int:
    """Installs every bundle of the plan under ``state_dir`` and returns their number. Existing files of these stores are
    deleted.

    Raises StateDirectoryLockedError while an instance runs there.
    """
    options = RocksDBOptions()
    count = 0
    with StateDirectory(state_dir, plan.application_id) as state:
        for partition, store, result, offset in _stores(plan, manifests, changelog_ends):
            path = state.store_path(store.kept_as, partition)
            if result.bundle is None:
                if store.persistent and path.exists():
                    # An empty store has no file, and must not keep rows of an earlier one.
                    state.wipe(store.kept_as, partition)
                continue
            state.wipe(store.kept_as, partition)
            opened = RocksDBStore(path, store.name, options)
            try:
                opened.ingest(directory / result.bundle.path, changelog_offset=offset)
            finally:
                opened.close()
            count += 1
        if plan.outline and _is_of_this_version(plan, state.path):
            remember_version(state.path, plan.outline)
    return count


def _is_of_this_version(plan: BackfillPlan, path: Path) -> bool:
    """Whether all state in the directory of the application is of the version of the plan."""
    return plan.repair is None or not (plan.repair.beside or (path / TOPOLOGY_FILE).exists())


def check_is_directory(state_dir: Path) -> None:
    """Raises HandOverError where files can't be installed: something else than a directory is there, or above it."""
    there = next((path for path in (state_dir.absolute(), *state_dir.absolute().parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise HandOverError(
            f"--state-dir {state_dir}: {there} is not a directory. Give the state directory of an instance"
        )


def check_no_stores(plan: BackfillPlan, manifests: Sequence[TaskManifest], state_dir: Path) -> None:
    """Raises HandOverError if a store to be installed already exists from an earlier deployment of the application."""
    with StateDirectory(state_dir, plan.application_id) as state:
        for partition, store, result, _ in _stores(plan, manifests, None):
            path = state.store_path(store.kept_as, partition)
            if result.bundle is not None and (path / "CURRENT").exists():
                raise HandOverError(
                    f"{path} holds a store that this backfill did not make: it belongs to an earlier "
                    "deployment of the application. Give another --state-dir, or delete that folder"
                )


def _stores(
    plan: BackfillPlan, manifests: Sequence[TaskManifest], changelog_ends: Mapping[TopicPartition, int] | None
) -> Iterator[tuple[int, StorePlan, StoreResult, int | None]]:
    for task, manifest in zip(plan.tasks, manifests, strict=True):
        results = {result.name: result for result in manifest.stores}
        sources = {source.topic_partition: source.end for source in task.sources}
        for store in task.stores:
            offset = None
            if store.changelog is not None and changelog_ends is not None:
                tp = (store.changelog, task.partition)
                offset = changelog_ends[tp] if store.own_changelog else sources[tp]
            yield task.partition, store, results[store.name], offset
