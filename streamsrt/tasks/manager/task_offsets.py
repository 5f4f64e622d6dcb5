"""How far the state of each task is, as reported to the group coordinator: one sum over the changelogs of a task.

1. A running task: the end of the acknowledged changelog records at its last commit, which is also its end offset.
2. A task that restores or follows its changelogs: its positions; its end is the sum of the ends in the latest fetch
   responses.
3. State on disk without an open task: its last position. It has no end, and is looked up once, at the start.
4. A store whose changelog is a source topic does not count: only its active task reads that. A task without state has
   no entry; a task has no end while the end of one of its changelogs is unknown.
5. The offsets of a task that rests stay what they are until it wakes: an idle instance may have a thousand tasks.

Source: KIP-1071, "Cumulative task changelog offsets" and "Cumulative task changelog end offsets".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import NamedTuple

from streamsrt.membership.values import Task as TaskKey
from streamsrt.state.directory import StateDirectory
from streamsrt.tasks.manager.owned_task import OwnedTask, Phase
from topology.graph.nodes import Subtopology


class TaskOffsets(NamedTuple):
    """Sums by task; ``end_offsets`` lacks tasks with an unknown end offset."""

    offsets: dict[TaskKey, int]
    end_offsets: dict[TaskKey, int]


class DormantState:
    """Offsets of stores on disk whose tasks are closed, by file name."""

    def __init__(self, subtopologies: Mapping[str, Subtopology], directory: StateDirectory) -> None:
        self._stores = {
            key: {spec.kept_as: spec.name for spec in each.stores if spec.logging and spec.persistent}
            for key, each in subtopologies.items()
        }
        self._directory = directory
        self._known: dict[tuple[str, int], int] | None = None
        self.changes = 0
        """How often it may have changed."""

    @property
    def _offsets(self) -> dict[tuple[str, int], int]:
        if self._known is None:
            logged = {name for names in self._stores.values() for name in names}
            self._known = {
                (local.store, local.partition): local.changelog_offset
                for local in self._directory.list_stores()
                if local.store in logged and local.changelog_offset is not None
            }
        return self._known

    def left(self, owned: OwnedTask) -> None:
        """Keeps the offsets of a task that is about to be closed."""
        self.changes += 1
        for kept_as, name in self._stores.get(owned.key[0], {}).items():
            offset = owned.stores[name].changelog_offset() if owned.stores[name].is_open else None
            if offset is not None:
                self._offsets[kept_as, owned.key[1]] = offset

    def deleted(self, store: str, partition: int) -> None:
        """Forgets a store whose files were deleted."""
        self.changes += 1
        self._offsets.pop((store, partition), None)

    def offsets(self, unless: Iterable[TaskKey]) -> dict[TaskKey, int]:
        """Returns the sum for every task with state on disk, except open ones."""
        found: dict[TaskKey, int] = {}
        names = {name: key for key, listed in self._stores.items() for name in listed}
        for (name, partition), offset in self._offsets.items():
            task = (names[name], partition)
            found[task] = found.get(task, 0) + offset
        for task in unless:
            found.pop(task, None)
        return found


class _Seen(NamedTuple):
    """The offsets of a task: None without state, the end also where it is unknown. True until the task has woken again."""

    owned: OwnedTask
    wakes: int
    offset: int | None
    end: int | None


class OffsetReader:
    """Looks up the offsets to report; ``rests(task)`` says whether nothing about a task changes before it wakes."""

    def __init__(self, dormant: DormantState, rests: Callable[[OwnedTask], bool]) -> None:
        self._dormant = dormant
        self._rests = rests
        self._seen: dict[TaskKey, _Seen] = {}
        self._found = TaskOffsets({}, {})
        self._dormant_changes = -1

    def read(self, tasks: Iterable[OwnedTask]) -> TaskOffsets:
        """Returns the offsets of all open tasks, and of those on disk; the same object while none has changed."""
        before = self._seen
        seen = self._seen = {owned.key: self._look_at(owned) for owned in tasks}
        is_known = self._dormant_changes == self._dormant.changes and len(seen) == len(before)
        if is_known and all(map(is_, seen.values(), map(before.get, seen))):
            return self._found
        self._dormant_changes = self._dormant.changes
        offsets = {key: each.offset for key, each in seen.items() if each.offset is not None}
        ends = {key: each.end for key, each in seen.items() if each.end is not None}
        self._found = TaskOffsets({**self._dormant.offsets(seen), **offsets}, ends)
        return self._found

    def _look_at(self, owned: OwnedTask) -> _Seen:
        last, rests = self._seen.get(owned.key), self._rests(owned)
        if rests and last is not None and last.owned is owned and last.wakes == owned.wakes:
            return last
        # What is seen of a task that is awake may change without another wake.
        wakes = owned.wakes if rests else -1
        changelogs = [spec.name for spec in owned.subtopology.stores if owned.task.writes_changelog(spec.name)]
        if not changelogs:
            return _Seen(owned, wakes, None, None)
        return _Seen(owned, wakes, sum(_position(owned, name) for name in changelogs), _end(owned, changelogs))


def _position(owned: OwnedTask, store: str) -> int:
    progress = owned.changelogs.get(store)
    if progress is not None:
        return progress.position
    return max(owned.stores[store].changelog_offset() or 0, owned.restored_to.get(store, 0))


def _end(owned: OwnedTask, changelogs: list[str]) -> int | None:
    if owned.phase is Phase.RUNNING:
        return sum(_position(owned, name) for name in changelogs)
    known = [owned.changelogs[name].high_watermark for name in changelogs if name in owned.changelogs]
    if len(known) < len(changelogs) or any(end < 0 for end in known):
        return None
    return sum(known)
