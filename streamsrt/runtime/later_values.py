"""Continues with state that a later version has had, if that has left nothing that this one can't read: after a rollback.

1. The state directory says which version ran last, and so which version its values may have. Only the rows tell whether
   there are such values: a version that stopped before its first commit, or failed at an upcast, has written none.
2. Rows are in files and in changelogs. Files without values of later versions are used as they are: what they lack is read
   from the changelog, so that is looked at from where they end.
3. Files with such values are deleted if the whole changelog has none: the store is restored from it, and so has what the
   group has gone back to. If the changelog has some, restoring would bring them back: this version is refused. So it is if
   there is no changelog.
4. Nothing is deleted before all stores were looked at. A directory without files of a store is as a new one: only the end
   of its changelog is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from streamsrt.client.network import NetworkThread
from streamsrt.client.reading import columns_of, ends_of, read_range, starts_of
from streamsrt.client.values import CallAbandonedError, TopicPartition
from streamsrt.errors import StoreCorruptedError, TopologyMismatchError
from streamsrt.runtime.topology_version import LocalVersion
from streamsrt.runtime.written_values import ENDS_RECORDS, newer_values_written
from streamsrt.state.deletion import lock_of_store
from streamsrt.state.directory import StateDirectory
from streamsrt.state.rocksdb_files import RocksDBFiles
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.graph.topology import Topology
from topology.spec.row_versions import latest_version_in

logger = logging.getLogger(__name__)

_PATIENCE_S = 1.0
_ROWS_AT_ONCE = 10_000
_UNKNOWN = -1
"""The version of values in files that can't be read."""


@dataclass(frozen=True, slots=True)
class _Files:
    """A store on disk. ``found``: the latest version of its values, or _UNKNOWN. ``offset``: where its changelog goes on."""

    spec: StoreSpec
    partition: int
    path: Path
    found: int
    offset: int | None

    @property
    def are_readable(self) -> bool:
        return 1 <= self.found <= self.spec.version


def settle_later_values(
    network: NetworkThread,
    application_id: str,
    topology: Topology,
    version: LocalVersion,
    directory: StateDirectory,
    is_stopping: Callable[[], bool],
) -> None:
    """Deletes files with values that the topology can't read, if their changelogs have none. Raises TopologyMismatchError if
    there is no way back, CallAbandonedError when the application stops, BrokerError and StateError. Called before a store is
    open."""
    names = version.later_stores()
    specs = {spec.kept_as: spec for part in topology.subtopologies for spec in part.stores if spec.kept_as in names}
    if not specs:
        return
    with directory.alone():
        settling = _Settling(network, application_id, directory, is_stopping)
        on_disk = [files for _, spec in sorted(specs.items()) if spec.persistent for files in settling.files_of(spec)]
        unreadable = [why for each in on_disk if (why := settling.obstacle(each))]
        unreadable += settling.in_ends(specs.values())
        if unreadable:
            raise TopologyMismatchError(
                f"Application {application_id!r}: this version can't read what a later one has written: "
                f"{'; '.join(dict.fromkeys(unreadable))}"
            )
        settling.delete(on_disk)
        logger.info(
            "the version that ran last with this state directory writes later values of %s: none were found that this "
            "version would have to read",
            ", ".join(sorted(spec.name for spec in specs.values())),
        )


class _Settling:
    """Looks at the files and the changelogs of stores."""

    def __init__(
        self, network: NetworkThread, application_id: str, directory: StateDirectory, is_stopping: Callable[[], bool]
    ) -> None:
        self._network = network
        self._application_id = application_id
        self._directory = directory
        self._is_stopping = is_stopping

    def files_of(self, spec: StoreSpec) -> Iterator[_Files]:
        """The files of a store. Those that another process of the instance has open were looked at by that one."""
        for partition in self._directory.partitions_of(spec.kept_as):
            path = self._directory.store_path(spec.kept_as, partition)
            if self._directory.is_open(spec.kept_as, partition):
                continue
            with lock_of_store(path) as is_free:
                found = self._look(spec, partition, path) if is_free else None
            if found is not None:
                yield found

    def _look(self, spec: StoreSpec, partition: int, path: Path) -> _Files:
        try:
            with RocksDBFiles(path, spec.name) as files:
                return _Files(spec, partition, path, self._latest_in(files, spec), files.changelog_offset())
        except StoreCorruptedError:
            return _Files(spec, partition, path, _UNKNOWN, None)

    def _latest_in(self, files: RocksDBFiles, spec: StoreSpec) -> int:
        latest = 1
        for number, (_, value) in enumerate(files.range()):
            latest = max(latest, latest_version_in(value))
            if latest > spec.version:
                break
            if number % _ROWS_AT_ONCE == 0:
                self._check_goes_on()
        return latest

    def obstacle(self, files: _Files) -> str:
        """Why a store on disk can't be continued with, nor restored; empty if it can."""
        spec = files.spec
        if not spec.has_own_changelog:
            # What is damaged is found when it is opened.
            return "" if files.found <= spec.version else _only_in_files(files)
        topic = internal_topic_name(self._application_id, spec.changelog_name)
        latest = self._latest_restored((topic, files.partition), files)
        return "" if latest <= spec.version else _no_way_back(spec, topic, latest)

    def _latest_restored(self, tp: TopicPartition, files: _Files) -> int:
        """The latest version of the values that restoring would read, or a later one than the store's."""
        if files.partition >= self._network.admin.partitions_for([tp[0]]).get(tp[0], 0):
            return 1
        first, end = starts_of(self._network, [tp])[tp], ends_of(self._network, [tp], read_committed=True)[tp]
        at, latest = first, 1
        if files.are_readable and files.offset is not None and files.offset <= end:
            at = max(first, files.offset)
        while at < end and latest <= files.spec.version:
            self._check_goes_on()
            for fetched in read_range(self._network, {tp: at}, {tp: end}, apart=True, timeout_s=_PATIENCE_S):
                values = [value for columns in columns_of(fetched) for value in columns.values if value is not None]
                latest = max([latest, *map(latest_version_in, values)])
                at = fetched.next_offset
        return latest

    def in_ends(self, specs: Iterable[StoreSpec]) -> Iterator[str]:
        """Why stores of which nothing is on disk can't be restored, as far as the ends of their changelogs tell."""
        found = newer_values_written(self._network, self._application_id, specs, records=ENDS_RECORDS, at_start=True)
        return (_no_way_back(each.spec, each.topic, each.version) for each in found)

    def delete(self, found: list[_Files]) -> None:
        """Deletes the files that can't be read, of stores that can be restored."""
        for files in found:
            if files.are_readable or not files.spec.has_own_changelog:
                continue
            self._directory.wipe(files.spec.kept_as, files.partition)
            logger.warning(
                "store %s of partition %d: its files %s, and this version reads values up to version %d. Its changelog has "
                "no later ones: the files are deleted, and it is restored from its changelog",
                files.spec.name,
                files.partition,
                "are damaged" if files.found == _UNKNOWN else f"have values of version {files.found}",
                files.spec.version,
            )

    def _check_goes_on(self) -> None:
        if self._is_stopping():
            raise CallAbandonedError("no longer looking for values of later versions: the application is stopping")


def _only_in_files(files: _Files) -> str:
    return (
        f"store {files.spec.name!r}: its files in {files.path} have values of version {files.found}, it reads them up to "
        f"{files.spec.version}, and it has no changelog to be restored from. Continue with a later version, or delete these "
        "files: then the store starts empty"
    )


def _no_way_back(spec: StoreSpec, topic: str, version: int) -> str:
    return (
        f"store {spec.name!r}: its changelog {topic} has values of version {version}, and it reads them up to "
        f"{spec.version}. There is no way back: continue with the later version, or a corrected one"
    )
