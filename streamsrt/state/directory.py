"""The directory in which one process keeps its state.

::

    <state.dir>/<application.id>/
        .lock                         held by the one process that uses this directory; says its pid
        process.json                  format of this directory, and the process id of the streams rebalance protocol
        stores/<store>/<partition>/   one persistent store; of a global one, the partition is the number of the process
        stores/<store>/<partition>.json  what its files depend on (:mod:`streamsrt.state.store_format`)
        global/<store>-<number>.json  how far the topic of a global store was read
        .alone                        held by one of several processes that looks at files before all of them go on

1. One process at a time, or several that one has forked (``shared``). The process id identifies its state to the group
   coordinator (KIP-1071's ProcessId), so two live instances must never share one: an instance that does not get the lock
   gets an error, not another id.
2. State lives under store and partition, not under a task's id: it survives renumbering and regrouping of subtopologies.
3. A directory in a newer format is left alone.
4. Nothing is deleted but stores, and none that is open. One whose files were written in another format is deleted when it
   is opened.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from streamsrt.errors import ConfigError, StateDirectoryLockedError, StateError, StoreCorruptedError
from streamsrt.state.deletion import delete_left_behind, delete_store, delete_tree, lock_of_store
from streamsrt.state.failures import storage_error
from streamsrt.state.kinds import LaidOut, check_kind, lay_out, make_store
from streamsrt.state.private_files import make_private, write_private
from streamsrt.state.rocksdb import RocksDBOptions, RocksDBStore
from streamsrt.state.rocksdb_files import read_changelog_offset
from streamsrt.state.store import BytesStore
from streamsrt.state.store_format import differences, forget_format, read_format, store_format, write_format
from topology.graph.nodes import StoreSpec

logger = logging.getLogger(__name__)

FORMAT = 1

_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


class LocalStore(NamedTuple):
    """A persistent store that is on disk, by the name that its files have. ``changelog_offset`` is None where nothing on
    disk can be used."""

    store: str
    partition: int
    changelog_offset: int | None


class StateDirectory:
    """The state of one application in one process. Made to be used in a ``with`` statement, or closed.

    Stores lie under the names that their state was begun with (``StoreSpec.kept_as``), and are asked for by these.

    Raises :class:`ConfigError` for an application id that is no legal name, :class:`StateDirectoryLockedError` where another
    process uses the directory, and :class:`StateError` where it can't be written or has a newer format.

    ``shared``: this process is one of several that were forked by the one that holds the directory. Each store has a lock of
    its own then.
    """

    def __init__(
        self, root: Path | str, application_id: str, *, rocksdb: RocksDBOptions | None = None, shared: bool = False
    ) -> None:
        self.path = Path(root) / _legal(application_id, "application.id")
        self.rocksdb = rocksdb or RocksDBOptions()
        self._open: dict[tuple[str, int], LaidOut] = {}
        self._shared = shared
        self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CLOEXEC) if shared else _locked(self.path)
        try:
            self.process_id = _process_id(self.path / "process.json")
            if not shared:
                delete_left_behind(self.path / "stores")
        except BaseException:
            self._unlock()
            raise

    def __enter__(self) -> StateDirectory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def store_path(self, store: str, partition: int) -> Path:
        """Where a persistent store lies."""
        return self.path / "stores" / _legal(store, "the name of a state store") / str(partition)

    def task_directory(self, name: str) -> Path:
        """The directory that the processors of a task may use; it is made if it is not there. Raises StateError."""
        path = self.path / "tasks" / _legal(name, "the name of a task")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(str(error), f"the directory {path} of a task", "written") from error
        return path

    def open_store(self, spec: StoreSpec, partition: int) -> LaidOut:
        """Opens the store of a task: a byte store, or what its kind lays over it (:func:`lay_out`).

        Raises :class:`StoreCorruptedError` where its files are damaged: :meth:`wipe` it and open it again; and
        :class:`StateDirectoryLockedError` where another process has it open.
        """
        self._check_usable()
        key = (spec.kept_as, partition)
        if self.is_open(*key):
            raise StateError(f"state store {spec.name!r} of partition {partition} is already open in this process")
        check_kind(spec)
        store = self._open_files(spec, partition) if spec.persistent else make_store(spec)
        opened = self._open[key] = _laid_out(spec, store)
        return opened

    def _open_files(self, spec: StoreSpec, partition: int) -> RocksDBStore:
        note, path = self._note_path(spec.kept_as, partition), self.store_path(spec.kept_as, partition)
        noted, wanted = read_format(note), store_format(spec)
        changed = differences(noted, wanted)
        if changed:
            # They can't be in use: whoever has them open would have to have this directory, or their lock.
            RocksDBStore(path, spec.name, self.rocksdb).wipe()
            logger.warning(
                "store %s of partition %d: %s; its files are deleted, and %s",
                spec.name,
                partition,
                changed,
                "it is restored from its changelog" if wanted["changelog"] else "it starts empty",
            )
        store = RocksDBStore(path, spec.name, self.rocksdb)
        if noted != wanted:
            try:
                write_format(note, wanted, spec.name)
            except StateError:
                store.close()
                raise
        return store

    def _note_path(self, store: str, partition: int) -> Path:
        path = self.store_path(store, partition)
        return path.with_name(f"{path.name}.json")

    def read_positions(self, store: str, replica: int) -> dict[int, int]:
        """Returns the position of each partition of a global store's topic; empty if it is unknown."""
        return read_positions(self.path, store, replica)

    def write_positions(self, store: str, replica: int, positions: Mapping[int, int]) -> None:
        """Writes the position of each partition of a global store's topic."""
        path = _positions_path(self.path, store, replica)
        fresh = path.with_name(f"{path.name}.new")
        try:
            path.parent.mkdir(exist_ok=True)
            write_private(fresh, json.dumps({"positions": {str(key): at for key, at in positions.items()}}) + "\n")
            fresh.replace(path)
        except OSError as error:
            raise storage_error(str(error), f"the positions of global store {store!r}", "written") from error

    def is_open(self, store: str, partition: int) -> bool:
        """Whether this process has the store open."""
        opened = self._open.get((store, partition))
        return opened is not None and opened.is_open

    def list_stores(self) -> list[LocalStore]:
        """Every persistent store on disk with its changelog offset, by name and partition; opens the closed ones to look.

        A damaged store is listed without an offset; opening it says what is wrong. Stores that another process has open are
        left out.
        """
        self._check_usable()
        return [
            LocalStore(store, partition, self._changelog_offset(store, partition))
            for store, partition in self._on_disk()
            if not self._shared or self.is_open(store, partition) or self._is_free(store, partition)
        ]

    def _is_free(self, store: str, partition: int) -> bool:
        with lock_of_store(self.store_path(store, partition)) as is_free:
            return is_free

    def _on_disk(self) -> list[tuple[str, int]]:
        found = [
            (path.parent.name, int(path.name))
            for path in (self.path / "stores").glob("*/*")
            if path.name.isascii() and path.name.isdigit() and path.is_dir()
        ]
        return sorted(found)

    def _changelog_offset(self, store: str, partition: int) -> int | None:
        if self.is_open(store, partition):
            return self._open[store, partition].changelog_offset()
        try:
            return read_changelog_offset(self.store_path(store, partition), store)
        except StoreCorruptedError:
            return None

    def partitions_of(self, store: str) -> list[int]:
        """The partitions of a persistent store that are on disk."""
        return [partition for name, partition in self._on_disk() if name == store]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps the other processes of the instance out meanwhile: they wait at this point."""
        if not self._shared:
            yield
            return
        try:
            lock = os.open(self.path / ".alone", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise storage_error(str(error), f"state directory {self.path}", "written") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def wipe(self, store: str, partition: int) -> None:
        """Deletes a store, closing it if it is open; it need not exist.

        Raises :class:`StateDirectoryLockedError` where another process has it open.
        """
        self._check_usable()
        opened = self._open.pop((store, partition), None)
        if opened is not None:
            opened.wipe()
        path = self.store_path(store, partition)
        delete_store(path, store)
        forget_format(self._note_path(store, partition))
        with suppress(OSError):
            path.parent.rmdir()

    def clean_up(self) -> None:
        """Deletes all stores, and the directories of tasks (``KafkaStreams.cleanUp()``).

        Raises :class:`StateError` while a store is open.
        """
        opened = [f"{store}/{partition}" for store, partition in self._open if self.is_open(store, partition)]
        if opened:
            raise StateError(
                f"state in {self.path} is in use ({', '.join(sorted(opened))}): close the application first"
            )
        for store, partition in self._on_disk():
            self.wipe(store, partition)
        for path in (self.path / "tasks").glob("*"):
            delete_tree(path, path.name)

    def clean_obsolete(self, now_ms: int, cleanup_delay_ms: int) -> list[tuple[str, int]]:
        """Deletes the stores that are not open and that nobody changed for ``state.cleanup.delay.ms``; says which."""
        obsolete = [
            key
            for key in self._on_disk()
            if not self.is_open(*key) and _changed_at_ms(self.store_path(*key)) + cleanup_delay_ms < now_ms
        ]
        deleted = []
        for store, partition in obsolete:
            # One that another process of the instance has open is in use.
            with suppress(StateDirectoryLockedError):
                self.wipe(store, partition)
                deleted.append((store, partition))
        return deleted

    def close(self) -> None:
        """Closes every store, then lets other processes have the directory. The first error is raised when all is closed."""
        failed: StateError | None = None
        for store in self._open.values():
            try:
                store.close()
            except StateError as error:
                failed = failed or error
        self._open.clear()
        self._unlock()
        if failed is not None:
            raise failed

    def _unlock(self) -> None:
        # The number is forgotten first: another thread that closes, too, must not close who has the number next.
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _check_usable(self) -> None:
        if self._lock < 0:
            raise StateError(f"state directory {self.path} is closed: another process may be using it")


def _legal(name: str, what: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{what} is {name!r}: it names a directory and topics, so it must be 1 to 249 letters, digits, dots, "
            "underscores or hyphens, and not '.' or '..'"
        )
    return name


def _laid_out(spec: StoreSpec, store: BytesStore) -> LaidOut:
    try:
        return lay_out(spec, store)
    except StateError:
        store.close()
        raise


def _locked(path: Path) -> int:
    """A file descriptor that holds the lock of the directory, which is made if need be."""
    lock = path / ".lock"
    try:
        make_private(path)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(str(error), f"state directory {path}", "opened") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        whose = "this process" if holder == str(os.getpid()) else "another process"
        raise StateDirectoryLockedError(
            f"state directory {path} is in use by {whose} (pid {holder}). Every process of an "
            "application needs its own state.dir: stop that process, or give this one another "
            "state.dir."
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise storage_error(str(error), f"state directory {path}", "written") from error
    return descriptor


def _process_id(path: Path) -> uuid.UUID:
    """The process id that this directory had before, or a new one that it has from now on."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return _new_process_id(path)
    except OSError as error:
        raise storage_error(str(error), f"state directory {path.parent}", "opened") from error
    try:
        content = json.loads(text)
        directory_format, process_id = int(content["format"]), str(content.get("process_id", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if directory_format > FORMAT:
        raise StateError(
            f"state directory {path.parent} has format {directory_format}, and this version knows formats up to {FORMAT}: "
            "a newer version used it. Run that version again, or set state.dir to another directory, and all state will be "
            "restored from the changelogs."
        )
    try:
        return uuid.UUID(process_id)
    except ValueError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> StateError:
    return StateError(
        f"{path} is damaged ({error}). Delete it to continue as a new process with the state of this directory, or "
        f"delete {path.parent} to restore all state from the changelogs."
    )


def _new_process_id(path: Path) -> uuid.UUID:
    process_id = uuid.uuid4()
    text = json.dumps({"format": FORMAT, "process_id": str(process_id)}) + "\n"
    fresh = path.with_name("process.json.new")
    try:
        write_private(fresh, text, durably=True)
        fresh.replace(path)
    except OSError as error:
        raise storage_error(str(error), f"state directory {path.parent}", "written") from error
    return process_id


def _changed_at_ms(path: Path) -> float:
    """When something in a store's directory last changed, in milliseconds since the epoch. What goes while it is looked at
    changes now: another process of the instance has the store open, or deletes it."""
    try:
        return max(entry.stat().st_mtime_ns for entry in (path, *path.iterdir())) // 1_000_000
    except FileNotFoundError:
        return inf


def read_positions(directory: Path, store: str, replica: int) -> dict[int, int]:
    """Returns the position of each partition of a global store's topic, as the directory of an application has it; empty if
    it is unknown."""
    try:
        content = json.loads(_positions_path(directory, store, replica).read_bytes())
        return {int(partition): int(offset) for partition, offset in content["positions"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _positions_path(directory: Path, store: str, replica: int) -> Path:
    return directory / "global" / f"{_legal(store, 'the name of a state store')}-{replica}.json"
