"""The target assignment of a group whose members run several versions of its topology: warm, in steps, and reversible.

1. The newest version that has a member leads; it is called the lead. Its tasks are assigned as in a group that only runs
   this version. A member with an older version keeps the tasks that are the same in both, and gets no new ones. While
   topics of the lead are missing, members with versions older than the group's keep the tasks that don't need these
   topics, and no new tasks are assigned.
2. A bundle (:mod:`~streamsrt.assignment.versions`) stays with the members that run an older version until the lead is
   warm, that is, until for each of its tasks a member of the lead has the state, within the acceptable recovery lag.
   Stateless tasks, and tasks whose members report no offsets, are warm at once.
3. A bundle is handed over partition by partition, in proportion to the share of members that run the lead. A bundle that
   can only be handed over as a whole follows when at least half of the members run the lead.
4. The lead keeps the partitions that it runs while each task has its member. If a member dies, its partition goes to
   another warm member of the lead, within the share; otherwise back to members with an older version: the version that
   runs, or else the newest.
5. Members with an older version keep their tasks of a bundle. A task without a member goes to the member that has it as a
   standby task, or else to the one with most of its state, or else to the one with the fewest tasks.
6. If a bundle reads repartition topics that the lead does not have, these readers stay with the members that run the
   older version until they have read the topics to the end; then they are handed over one by one. The same holds for
   readers that the lead no longer has (:mod:`~streamsrt.assignment.in_flight`). Tasks of the lead that conflict with them
   wait, as standby or warm-up tasks.
7. While a member of the lead waits for a task, it has it as a standby task if it is warm, otherwise as a warm-up task.
   There are at most ``num_warmup_replicas`` warm-up tasks in the group. No process has tasks of two versions of the same
   partition of a bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from streamsrt.assignment.assignor import HIGHLY_AVAILABLE, TASK_ASSIGNORS, AssignorSettings, TaskAssignmentSpec
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.in_flight import NOTHING_UNREAD, Unread, draining, held_tasks, readers_of_gone
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.progress import StateProgress
from streamsrt.assignment.targets import AssignedTwiceError, assignor_name, only, twice_in_a_process
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.versions import Bundle, Versions, versions_of

Roles = dict[str, set[TaskId]]


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A unit that changes hands at one moment: a bundle with one of its partitions, or with all. ``number``: its index."""

    number: int
    bundle: Bundle
    partitions: range

    def tasks(self, epoch: int, counts: Mapping[str, int]) -> frozenset[TaskId]:
        names = self.bundle.ids.get(epoch, frozenset())
        return frozenset(TaskId(name, p) for name in names for p in self.partitions if p < counts.get(name, 0))


def handed_over(
    members: Sequence[AssignorMember],
    epochs: Mapping[str, int],
    configurations: Sequence[Configuration],
    settings: AssignorSettings,
    unread: Unread = NOTHING_UNREAD,
    *,
    held: frozenset[TaskId] = frozenset(),
    may_lose: bool = False,
    is_paused: bool = False,
) -> Mapping[str, Tasks]:
    """Computes the target of every member, by member id. Raises AssignedTwiceError.

    ``members``: of two in one process the later one is the one whose task offsets were heard last. ``epochs``: the version
    that each runs, by its topology epoch. ``configurations``: the group's topology and older ones, as far as they are known,
    the newest first, for the topics that there are; versions that nobody runs are looked at for what they have left unread.
    ``held``: tasks of the lead that nobody gets, besides those that wait for what these versions have left.
    ``may_lose``: whether that may be lost. ``is_paused``: whether the lead gets no more of what older versions run
    than it has (:mod:`~streamsrt.assignment.version_backoff`).
    """
    run = set(epochs.values())
    lead, *older = [one for one in configurations if one.topology.epoch in run] or configurations
    if not lead.is_ready:
        return _kept(members, epochs, configurations)
    left = [one.topology for one in configurations if one.topology.epoch < lead.topology.epoch and one not in older]
    if unread and not may_lose:
        held |= held_tasks(lead.topology, left, [one.topology for one in (lead, *older)], unread)
    return _HandOver(members, epochs, lead, older, settings, unread, held, is_paused=is_paused).targets()


def _kept(
    members: Sequence[AssignorMember], epochs: Mapping[str, int], configurations: Sequence[Configuration]
) -> dict[str, Tasks]:
    """Handles missing topics: members with older versions keep the tasks that need none of these."""
    newest = configurations[0]
    runnable = {one.topology.epoch: _runnable(one) for one in configurations}

    def kept(member: AssignorMember) -> Tasks:
        epoch = epochs[member.member_id]
        counts = runnable.get(epoch, runnable[newest.topology.epoch])
        if epoch == newest.topology.epoch:
            return NO_TASKS
        return only(member.previous, lambda task: task.partition < counts.get(task.subtopology_id, 0))

    return {member.member_id: kept(member) for member in members}


def _runnable(configuration: Configuration) -> Mapping[str, int]:
    return configuration.task_counts if configuration.is_ready else configuration.runnable


class _HandOver:
    """A target that is being computed."""

    def __init__(
        self,
        members: Sequence[AssignorMember],
        epochs: Mapping[str, int],
        lead: Configuration,
        older: Sequence[Configuration],
        settings: AssignorSettings,
        unread: Unread,
        held: frozenset[TaskId],
        *,
        is_paused: bool,
    ) -> None:
        self._is_paused = is_paused
        self._held = held
        self._epochs = epochs
        self._lead = lead
        self._epoch = lead.topology.epoch
        self._settings = settings
        self._counts = {one.topology.epoch: _runnable(one) for one in (lead, *older)}
        self._versions: Versions = versions_of(lead.topology, tuple(one.topology for one in older))
        self._members = {member.member_id: member for member in members}
        self._views = [self._view(member) for member in self._members.values()]
        self._progress = StateProgress(self._views, settings.acceptable_recovery_lag)
        self._stateful = frozenset(part.id for part in lead.topology.subtopologies if part.is_stateful)
        self._leading = [name for name in self._members if epochs[name] == self._epoch]
        self._assignor = assignor_name(settings, lead.topology)
        self._owned = {task for view in self._views for task in view.previous.active}
        self._running: dict[int, set[TaskId]] = {}
        for name, member in self._members.items():
            self._running.setdefault(epochs[name], set()).update(member.previous.active)
        self._draining = {
            one.topology.epoch: draining(one.topology, lead.topology, unread, self._writing(one.topology.epoch))
            for one in older
        }
        self._readers = {one.topology.epoch: readers_of_gone(one.topology, lead.topology) for one in older}
        self._pieces = list(self._cut())

    def targets(self) -> dict[str, Tasks]:
        behind = _Behind(self._members, self._epochs, self._views)
        left = {piece: epoch for piece in self._pieces if (epoch := self._fallback(piece)) is not None}
        for piece, epoch in left.items():
            behind.assign(piece.tasks(epoch, self._counts[epoch]), epoch)
        taken, warming = self._chosen(left, behind)
        drains = {}
        for piece in taken:
            epoch = left.pop(piece)
            drains[piece] = epoch
            behind.drop(piece.tasks(epoch, self._counts[epoch]) - self._drained(piece, epoch), epoch)
        excluded = frozenset(task for piece in left for task in self._lead_tasks(piece)) | self._held
        excluded |= {task for piece, epoch in drains.items() for task in self._waiting(piece, epoch)}
        stay = self._staying(excluded) if self._is_paused else {}
        made = dict(self._assigned(excluded.union(*(tasks.active for tasks in stay.values()))))
        for name, tasks in behind.made().items():
            kept = stay.get(name, NO_TASKS)
            active = made[name].active | tasks.active | kept.active
            made[name] = Tasks(active, made[name].standby | tasks.standby | kept.standby, made[name].warmup)
        wanted = [(task, piece) for piece in warming for task in self._lead_tasks(piece)]
        wanted += [(task, piece) for piece, epoch in drains.items() for task in self._waiting(piece, epoch)]
        self._warm_up(made, wanted, behind, {**left, **drains})
        twice = twice_in_a_process(self._members.values(), made)
        if twice is not None:
            raise AssignedTwiceError(twice)
        return made

    def _view(self, member: AssignorMember) -> AssignorMember:
        """Returns the member with only those tasks that are tasks of the lead."""
        epoch = self._epochs[member.member_id]

        def is_lead(task: TaskId) -> bool:
            return self._versions.is_of_lead(epoch, task.subtopology_id)

        return replace(
            member,
            is_stale=epoch < self._epoch,
            previous=only(member.previous, is_lead),
            running=frozenset(filter(is_lead, member.running)),
            offsets=None if member.offsets is None else {t: at for t, at in member.offsets.items() if is_lead(t)},
            end_offsets={t: at for t, at in member.end_offsets.items() if is_lead(t)},
        )

    def _cut(self) -> Iterator[_Piece]:
        number = 0
        for bundle in self._versions.bundles:
            counts = [self._counts[epoch].get(name, 0) for epoch, names in bundle.ids.items() for name in sorted(names)]
            count = max(counts, default=0)
            for partitions in [range(count)] if bundle.is_whole else [range(p, p + 1) for p in range(count)]:
                yield _Piece(number, bundle, partitions)
                number += 1

    def _lead_tasks(self, piece: _Piece) -> frozenset[TaskId]:
        return piece.tasks(self._epoch, self._counts[self._epoch])

    def _fallback(self, piece: _Piece) -> int | None:
        """Returns the older version that may run the piece: the one that runs it, else the newest that can; None if none
        can."""
        able = [
            epoch
            for epoch in sorted(piece.bundle.ids, reverse=True)
            if epoch < self._epoch and piece.bundle.ids[epoch] <= self._counts[epoch].keys()
        ]
        for epoch in able:
            tasks = piece.tasks(epoch, self._counts[epoch])
            if tasks & self._running.get(epoch, set()):
                return epoch
        return able[0] if able else None

    # What is read to its end first

    def _writing(self, epoch: int) -> set[str]:
        """Returns subtopologies of which members with this version may still run active tasks."""
        members = [member for name, member in self._members.items() if self._epochs[name] == epoch]
        return {task.subtopology_id for member in members for task in (*member.running, *member.closing)}

    def _drained(self, piece: _Piece, epoch: int) -> frozenset[TaskId]:
        """Returns tasks of the piece that members with this version keep when the lead takes the rest."""
        waits = self._draining[epoch]

        def drains(task: TaskId) -> bool:
            partitions = waits.get(task.subtopology_id, frozenset())
            return partitions is None or task.partition in partitions

        return frozenset(filter(drains, piece.tasks(epoch, self._counts[epoch]))) if waits else frozenset()

    def _waiting(self, piece: _Piece, epoch: int) -> frozenset[TaskId]:
        """Returns tasks of the lead that conflict with those."""
        return self._lead_tasks(piece) & self._met(self._drained(piece, epoch), epoch)

    def _first_tasks(self, piece: _Piece, epoch: int) -> frozenset[TaskId]:
        """Returns tasks of the lead that start as soon as it takes the piece: they do not wait for topics to be read."""
        readers = self._readers[epoch]
        tasks = {task for task in piece.tasks(epoch, self._counts[epoch]) if task.subtopology_id in readers}
        return self._lead_tasks(piece) - self._held - self._met(tasks, epoch)

    def _met(self, tasks: Iterable[TaskId], epoch: int) -> set[TaskId]:
        return {
            TaskId(part.id, task.partition)
            for task in tasks
            for part in self._versions.meeting(epoch, task.subtopology_id)
            if part.epoch == self._epoch
        }

    # What the lead takes

    def _chosen(self, left: Mapping[_Piece, int], behind: _Behind) -> tuple[list[_Piece], list[_Piece]]:
        """Splits the pieces that an older version may run: those that the lead runs from now on, and those that it warms
        up."""
        taken: list[_Piece] = []
        warming: list[_Piece] = []
        waiting = []
        for piece in left:
            tasks = self._lead_tasks(piece)
            is_leads = self._first_tasks(piece, left[piece]) <= self._owned or self._is_same(piece, left[piece])
            if tasks and is_leads and not self._runs_behind(piece, left[piece]):
                taken.append(piece)
            elif tasks:
                waiting.append(piece)
        held = {t for view in self._views if not view.is_stale for t in (*view.previous.passive, *view.previous.active)}
        waiting.sort(key=lambda piece: (not self._lead_tasks(piece) & held, piece.partitions.start, piece.number))
        free = self._share(left) - sum(not piece.bundle.is_whole for piece in taken)
        half = 2 * len(self._leading) >= len(self._members)
        for piece in () if self._is_paused else waiting:
            if not (half if piece.bundle.is_whole else free > 0):
                continue
            free -= not piece.bundle.is_whole
            (taken if self._is_warm(piece, left[piece], behind) else warming).append(piece)
        return taken, warming

    def _is_same(self, piece: _Piece, epoch: int) -> bool:
        """Whether the piece differs only between other versions."""
        tasks = piece.tasks(epoch, self._counts[epoch])
        same = all(self._versions.is_of_lead(epoch, task.subtopology_id) for task in tasks)
        return same and tasks == self._lead_tasks(piece)

    def _runs_behind(self, piece: _Piece, epoch: int) -> bool:
        """Whether members with this older version have tasks of the piece that are not tasks of the lead."""
        tasks = piece.tasks(epoch, self._counts[epoch]) - {
            task for task in self._lead_tasks(piece) if self._versions.is_of_lead(epoch, task.subtopology_id)
        }
        running = {task for task in self._running.get(epoch, set()) if task.subtopology_id not in self._readers[epoch]}
        return bool(tasks & running)

    def _staying(self, excluded: frozenset[TaskId]) -> dict[str, Tasks]:
        """Returns unchanged tasks of members with older versions, and standby tasks of these at any member: during a pause,
        all of them keep what they have."""
        active = {view.member_id: view.previous.active - excluded for view in self._views if view.is_stale}
        staying = frozenset[TaskId]().union(*active.values())
        return {
            view.member_id: Tasks(active.get(view.member_id, frozenset()), view.previous.standby & staying)
            for view in self._views
        }

    def _share(self, left: Iterable[_Piece]) -> int:
        pieces = sum(not piece.bundle.is_whole and bool(self._lead_tasks(piece)) for piece in left)
        return -(-pieces * len(self._leading) // len(self._members))

    def _is_warm(self, piece: _Piece, epoch: int, behind: _Behind) -> bool:
        tasks = [task for task in self._lead_tasks(piece) if task.subtopology_id in self._stateful]
        if not tasks or self._assignor != HIGHLY_AVAILABLE.name or not self._settings.num_warmup_replicas:
            return True
        if not self._able(piece, epoch, behind):
            return True
        processes = {self._members[name].process_id for name in self._leading}
        return all(any(self._progress.has(process, task) for process in processes) for task in tasks)

    def _able(self, piece: _Piece, epoch: int, behind: _Behind) -> list[str]:
        """Returns members of the lead that may warm up the piece."""
        taken = behind.processes(piece.tasks(epoch, self._counts[epoch]), epoch)
        return [
            name
            for name in self._leading
            if self._members[name].offsets is not None and self._members[name].process_id not in taken
        ]

    def _assigned(self, excluded: frozenset[TaskId]) -> Mapping[str, Tasks]:
        views = [replace(view, previous=only(view.previous, lambda task: task not in excluded)) for view in self._views]
        spec = TaskAssignmentSpec(views, self._lead.task_counts, self._stateful, self._settings, excluded)
        return TASK_ASSIGNORS[self._assignor].assign(spec)

    def _warm_up(
        self,
        made: dict[str, Tasks],
        wanted: Iterable[tuple[TaskId, _Piece]],
        behind: _Behind,
        left: Mapping[_Piece, int],
    ) -> None:
        """Adds standby and warm-up tasks to members of the lead for pieces that they do not run yet."""
        budget = self._settings.num_warmup_replicas - sum(len(tasks.warmup) for tasks in made.values())
        ordered = sorted(wanted, key=lambda entry: (entry[1].number, entry[0]))
        tasks = [entry for entry in ordered if entry[0].subtopology_id in self._stateful]
        going_on = {task for view in self._views if not view.is_stale for task in view.previous.warmup}
        for task, piece in sorted(tasks, key=lambda entry: entry[0] not in going_on):
            names = [name for name in self._able(piece, left[piece], behind) if not self._has_process(made, name, task)]
            warm = [name for name in names if self._progress.has(self._members[name].process_id, task)]
            if warm:
                name = self._best(warm, task, made)
                made[name] = replace(made[name], standby=made[name].standby | {task})
            elif names and budget > 0:
                budget -= 1
                name = self._best(names, task, made)
                made[name] = replace(made[name], warmup=made[name].warmup | {task})

    def _has_process(self, made: Mapping[str, Tasks], name: str, task: TaskId) -> bool:
        process = self._members[name].process_id
        return any(
            task in (*made[other].active, *made[other].passive)
            for other, member in self._members.items()
            if member.process_id == process
        )

    def _best(self, names: list[str], task: TaskId, made: Mapping[str, Tasks]) -> str:
        """Returns the member that already has the task, else the one with the fewest tasks."""

        def rank(name: str) -> tuple[bool, int, str]:
            has = task in self._members[name].previous.passive
            return not has, len(made[name].active) + len(made[name].passive), name

        return min(names, key=rank)


class _Behind:
    """Tasks of bundles that members with older versions have."""

    def __init__(
        self, members: Mapping[str, AssignorMember], epochs: Mapping[str, int], views: Iterable[AssignorMember]
    ) -> None:
        self._members = members
        by_epoch = sorted(members, key=lambda name: (epochs[name], name))
        self._names = {epoch: list(names) for epoch, names in groupby(by_epoch, key=lambda name: epochs[name])}
        self._active: Roles = {name: set() for name in members}
        self._standby: Roles = {name: set() for name in members}
        self._loads = {view.member_id: len(view.previous.active) for view in views}

    def assign(self, tasks: Iterable[TaskId], epoch: int) -> None:
        names = self._names[epoch]
        for task in sorted(tasks):
            holders = [name for name in names if task in self._members[name].previous.active]
            owner = holders[0] if holders else min(names, key=lambda name: self._rank(name, task))
            self._active[owner].add(task)
            self._loads[owner] += 1
            processes = {self._members[owner].process_id}
            for name in names:
                process = self._members[name].process_id
                if task in self._members[name].previous.standby and process not in processes:
                    self._standby[name].add(task)
                    processes.add(process)

    def _rank(self, name: str, task: TaskId) -> tuple[bool, int, int, str]:
        member = self._members[name]
        return task not in member.previous.passive, -(member.offsets or {}).get(task, -1), self._loads[name], name

    def drop(self, tasks: frozenset[TaskId], epoch: int) -> None:
        for name in self._names[epoch]:
            self._active[name] -= tasks
            self._standby[name] -= tasks

    def processes(self, tasks: frozenset[TaskId], epoch: int) -> set[str]:
        """Returns the processes that have any of these tasks."""
        return {
            self._members[name].process_id
            for name in self._names[epoch]
            if tasks & (self._active[name] | self._standby[name])
        }

    def made(self) -> dict[str, Tasks]:
        return {name: Tasks(frozenset(self._active[name]), frozenset(self._standby[name])) for name in self._members}
