"""A backfill from its plan to its hand-over: what the command line and programs use.

Everything about one backfill is in one directory. Only one process at a time may run or commit it; any number may read
its status.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from streamsrt.backfill.attempts import DRIVER_FILE, leftovers, remove_leftovers, take_lock
from streamsrt.backfill.copying.planning import Takeover, plan_takeover
from streamsrt.backfill.engine_local import LocalEngine
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.full_disk import full_disk_said
from streamsrt.backfill.handover import (
    HandOver,
    HandOverState,
    OnStep,
    Step,
    load_state,
    transactional_id,
    writer_group,
)
from streamsrt.backfill.history_age import with_notes_on_age
from streamsrt.backfill.installation import check_is_directory
from streamsrt.backfill.log_writer import PlainLogWriter, TransactionalLogWriter
from streamsrt.backfill.manifest import (
    IDLE,
    SparkActivity,
    TaskManifest,
    load_manifest,
    manifest_path,
    read_activity,
    read_progress,
)
from streamsrt.backfill.plan import BackfillPlan, Changelogs, TaskPlan, load_plan, save_plan
from streamsrt.backfill.planned_topics import check_source_topics
from streamsrt.backfill.planning import SparkAccess, make_plan
from streamsrt.backfill.recompute import recompute as compute_again
from streamsrt.backfill.recompute import sample_of
from streamsrt.backfill.repair.handover import RepairHandOver
from streamsrt.backfill.report import BackfillReport, report_of
from streamsrt.backfill.slice_merging import drop_slices, merge_if_ready
from streamsrt.backfill.slices.share import parts_of
from streamsrt.backfill.sources import Source, connected
from streamsrt.backfill.spark.session import Shipment
from streamsrt.backfill.table_freezing import with_global_tables
from streamsrt.backfill.verify import CheckedFiles, discard_damaged, verify_results

EngineName = Literal["local", "spark"]
ResultsWay = Literal["auto", "directory", "spark"]
"""How results of a cluster's workers reach the directory: they write there, Spark brings them, or what they see decides."""
TaskState = Literal["waiting", "sorting", "running", "writing", "finished"]
OnTask = Callable[[TaskManifest], None]
OnDamage = Callable[[str], None]
OnNote = Callable[[str], None]


class Engine(Protocol):
    """An engine, which runs tasks."""

    def run(
        self, directory: Path, task_ids: Sequence[str], bootstrap_servers: str | None = None
    ) -> Iterator[TaskManifest]:
        """Runs tasks of one level, which don't depend on each other; the manifest of each as it is finished."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task. It is sorting while Spark puts its rows in order, running while they are processed, then writing: ``rows``
    of its state are written then."""

    task: str
    level: int
    state: TaskState
    records: int
    seconds: float
    rows: int = 0


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """A backfill as it is now. ``records_total`` counts offsets of the sources: the log may hold fewer records. ``spark``:
    what Spark does, of engine ``spark``; before tasks have their records, that is all there is to see."""

    plan: BackfillPlan
    tasks: tuple[TaskStatus, ...]
    step: Step
    records_total: int
    spark: SparkActivity = IDLE

    @property
    def records(self) -> int:
        return sum(task.records for task in self.tasks)

    @property
    def is_computed(self) -> bool:
        finished = {task.task for task in self.tasks if task.state == "finished"}
        return all(task.id in finished for task in self.plan.tasks)


class Backfill:
    """A backfill, whose plan and results are in ``directory``. Methods raise BackfillError or another StreamsError, and
    can be called again.
    """

    def __init__(self, directory: Path | str, *, bootstrap_servers: str | None = None) -> None:
        self.directory = Path(directory)
        self._servers = bootstrap_servers

    def plan(
        self,
        application: str,
        *,
        application_id: str,
        bootstrap_servers: str | None = None,
        sources: Mapping[str, Source] | None = None,
        config: Mapping[str, str] | None = None,
        changelogs: Changelogs = "live",
        is_bundled: bool = False,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        bundle: Path | str | None = None,
        py_files: Sequence[str] = (),
        after: Path | str | None = None,
        store: str | None = None,
        slices: int = 1,
    ) -> BackfillPlan:
        """Makes the plan and stores it. ``application``: ``MODULE:ATTRIBUTE``; ``sources``: the topics that have an
        archive or a lake. ``changelogs``: ``full`` if other programs read the changelogs and need windows beyond their
        retention. ``is_bundled``: the cluster is the bundled broker of this directory; its address may change, so the
        plan does not store it. ``master``, ``conf``, ``bundle``, ``py_files``: as for :meth:`run`, for lakes that Spark
        lists and counts; they are not stored in the plan. ``after``: the directory of a finished backfill of the same
        application. The plan continues from its results and reads only what came later. ``store``: the one store that is
        rebuilt of an application that has run and is stopped; :meth:`commit` writes its changelog and nothing else. While
        the application runs in a version without that store, the part up to now is computed, which a later plan continues.
        ``slices``: into how many slices of its keys each task is divided, if its subtopology allows that; with more
        processes than partitions, each computes one. The directory also gets the rows that global tables have now: all
        records of the history are joined with these.
        """
        servers = self._cluster_of_plan(bootstrap_servers)
        with connected(servers) as network:
            plan = make_plan(
                network,
                application,
                application_id=application_id,
                bootstrap_servers="" if is_bundled else servers,
                sources=sources or {},
                config=config or {},
                now_ms=time.time_ns() // 1_000_000,
                changelogs=changelogs,
                spark=SparkAccess(master, conf or {}, _shipment(bundle, py_files)),
                after=None if after is None else Path(after),
                store=store,
                slices=slices,
            )
            plan = with_notes_on_age(network, plan)
            plan = with_global_tables(network, plan, self.directory)
        save_plan(plan, self.directory)
        return load_plan(self.directory)

    def _cluster_of_plan(self, bootstrap_servers: str | None) -> str:
        self._servers = bootstrap_servers or self._servers
        if self._servers is None:
            raise BackfillError("a plan needs the cluster: give bootstrap_servers")
        return self._servers

    def plan_takeover(
        self,
        application: str,
        takeover: Takeover,
        *,
        application_id: str,
        bootstrap_servers: str | None = None,
        config: Mapping[str, str] | None = None,
        is_bundled: bool = False,
    ) -> BackfillPlan:
        """Makes a plan that takes the state of another application over, out of its changelogs, and stores it. Nothing is
        computed then: the run copies. Arguments as of :meth:`plan`."""
        servers = self._cluster_of_plan(bootstrap_servers)
        with connected(servers) as network:
            plan = plan_takeover(
                network,
                application,
                takeover,
                application_id=application_id,
                bootstrap_servers="" if is_bundled else servers,
                config=config or {},
                now_ms=time.time_ns() // 1_000_000,
            )
        save_plan(plan, self.directory)
        return load_plan(self.directory)

    def run(
        self,
        engine: EngineName | Engine = "local",
        *,
        workers: int = 2,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        bundle: Path | str | None = None,
        py_files: Sequence[str] = (),
        results: ResultsWay = "auto",
        on_task: OnTask | None = None,
        on_damage: OnDamage | None = None,
        on_note: OnNote | None = None,
    ) -> list[TaskManifest]:
        """Runs all tasks that are not finished, level by level, and returns all manifests. ``workers``: the number of
        processes of the local engine. ``master``, ``conf``: Spark's. ``bundle``: an archive made by ``streamsrt backfill
        bundle``, which Spark ships to the workers of a cluster; ``py_files``: modules that Spark ships. ``results``: on a
        cluster, ``directory`` if all nodes see the directory under the same path, ``spark`` if results come through Spark;
        ``auto`` asks the workers, and calls ``on_note`` with what they say. ``on_task`` is called for each task when it is
        finished. A finished task whose files are missing or damaged is computed again; ``on_damage`` is called with a
        sentence about each.
        """
        plan = load_plan(self.directory)
        access = SparkAccess(master, conf or {}, _shipment(bundle, py_files))
        with self._locked(), _engine(engine, workers, access, results, on_note) as chosen:
            self._check_sources(plan)
            checked = CheckedFiles()
            for text in discard_damaged(self.directory, plan, checked):
                if on_damage is not None:
                    on_damage(text)
            self._tidy(plan)
            for level in plan.levels():
                for manifest in self._run_level(plan, level, chosen):
                    if on_task is not None:
                        on_task(manifest)
                if plan.slices:
                    # Else there would be everything twice until the end.
                    self._tidy(plan)
            manifests = verify_results(self.directory, plan, checked)
            # Of workers that died, and of attempts that others were faster than.
            self._tidy(plan)
            return manifests

    def _tidy(self, plan: BackfillPlan) -> None:
        """Deletes what nobody needs any more, while nothing runs."""
        drop_slices(self.directory, plan)
        remove_leftovers(self.directory, plan)

    def _run_level(self, plan: BackfillPlan, level: Sequence[TaskPlan], engine: Engine) -> Iterator[TaskManifest]:
        """Runs the tasks of a level that are not finished, and yields the manifest of each. Slices are merged here as soon
        as a task has all of them: the driver sees the files of all workers."""
        is_open = {task.id: load_manifest(self.directory, plan, task.id) is None for task in level}
        tasks = [task for task in _largest_first(level) if is_open[task.id]]
        owners = {name: task for task in tasks for name in parts_of(plan, task)}
        left = [name for name in owners if load_manifest(self.directory, plan, name) is None]
        # Those whose slices were finished by a run that was killed before it merged them.
        for task in tasks:
            if not any(owners[name] is task for name in left):
                yield from filter(None, [merge_if_ready(self.directory, plan, task)])
        if not left:
            return
        for manifest in engine.run(self.directory, left, self._servers):
            task = owners[manifest.task]
            if manifest.task == task.id:
                yield manifest
            else:
                yield from filter(None, [merge_if_ready(self.directory, plan, task)])

    def _check_sources(self, plan: BackfillPlan) -> None:
        """Raises PlanError if topics are not those of the plan. A plan that reads archives only needs no cluster."""
        if any(source.log_start < source.end for source in plan.sources()):
            with connected(self._address(plan)) as network:
                check_source_topics(network, plan)

    def status(self) -> BackfillStatus:
        """The state and progress of all tasks; of those that are computed in slices, of each slice until all are merged."""
        plan = load_plan(self.directory)
        tasks = [self._status_of(plan, task, name) for task in plan.tasks for name in self._shown(plan, task)]
        total = sum(source.end - source.start for source in plan.sources())
        return BackfillStatus(
            plan, tuple(tasks), load_state(self.directory, plan).step, total, read_activity(self.directory)
        )

    def _shown(self, plan: BackfillPlan, task: TaskPlan) -> list[str]:
        """The slices of a task, until it is finished: then the task itself."""
        return [task.id] if manifest_path(self.directory, task.id).exists() else parts_of(plan, task)

    def _status_of(self, plan: BackfillPlan, task: TaskPlan, name: str) -> TaskStatus:
        manifest = load_manifest(self.directory, plan, name)
        progress = read_progress(self.directory, name)
        if manifest is not None:
            return TaskStatus(name, task.level, "finished", manifest.records, manifest.seconds)
        if progress is not None:
            return TaskStatus(name, task.level, progress.phase, progress.records, progress.seconds, progress.rows)
        return TaskStatus(name, task.level, "waiting", 0, 0.0)

    def report(self) -> BackfillReport:
        """What the finished tasks have read, computed and dropped. Raises PlanError."""
        return report_of(self.directory)

    def verify(self, *, recompute: int = 0, seed: int = 0) -> list[TaskManifest]:
        """Checks all results on disk. ``recompute``: the number of tasks, chosen by ``seed``, that are computed again,
        record by record, and compared; their sources must still exist. Raises VerificationError.
        """
        plan = load_plan(self.directory)
        manifests = verify_results(self.directory, plan)
        if recompute:
            with self._locked():
                compute_again(self.directory, plan, manifests, sample_of(plan, recompute, seed), self._servers)
        return manifests

    def commit(
        self, *, state_dir: Path | str | None = None, on_step: OnStep | None = None, transactions: bool = True
    ) -> HandOverState:
        """Hands the results over to the application. ``state_dir``: the state directory of an instance, which gets the
        stores as files.

        ``transactions`` False: for clusters without transactions; nobody else may write to the output topics meanwhile.
        If the hand-over is resumed, the first choice applies.
        """
        with self._hand_over(on_step, transactions) as hand_over:
            if state_dir is not None:
                check_is_directory(Path(state_dir))
            return hand_over.commit(None if state_dir is None else Path(state_dir))

    def check_commit(
        self, *, state_dir: Path | str | None = None, on_step: OnStep | None = None, transactions: bool = True
    ) -> HandOverState:
        """Raises what :meth:`commit` would raise before it changes anything; what is reached already. ``state_dir``,
        ``on_step``, ``transactions``: as there; ``on_step`` is called if there is nothing left to do."""
        with self._hand_over(on_step, transactions) as hand_over:
            if state_dir is not None:
                check_is_directory(Path(state_dir))
            hand_over.check()
            return hand_over.state

    def abort(self, *, execute: bool = True) -> list[str]:
        """Undoes the hand-over, as far as it got, and deletes what killed runs have left. The results of tasks are kept.
        Returns the actions. ``execute`` False: does nothing, and returns what it would do.
        """
        with self._hand_over(None, True) as hand_over:
            actions = hand_over.abort(execute=execute)
            plan = load_plan(self.directory)
            actions += [f"delete {path}, left by a run that was killed" for path in leftovers(self.directory, plan)]
            if execute:
                remove_leftovers(self.directory, plan)
            return actions

    @contextlib.contextmanager
    def _hand_over(self, on_step: OnStep | None, transactions: bool) -> Iterator[HandOver]:
        plan = load_plan(self.directory)
        with self._locked():
            state = load_state(self.directory, plan)
            transactions = transactions if state.step == "none" else state.transactions
            name = transactional_id(plan, state) if transactions else None
            with connected(self._address(plan), transactional_id=name) as network:
                writer = (
                    TransactionalLogWriter(network, writer_group(plan)) if transactions else PlainLogWriter(network)
                )
                kind = HandOver if plan.repair is None else RepairHandOver
                yield kind(self.directory, plan, network, writer, on_step)

    def _address(self, plan: BackfillPlan) -> str:
        """Returns the addresses of the cluster. Raises BackfillError if none are given."""
        address = self._servers or plan.bootstrap_servers
        if not address:
            raise BackfillError(
                f"the plan in {self.directory} is of a bundled broker, whose address is not kept: give bootstrap_servers"
            )
        return address

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self.directory / DRIVER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not take_lock(descriptor):
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").partition(" ")[0]
                raise BackfillError(
                    f"another process (pid {holder}) works on the backfill in {self.directory}: wait for it, or stop it"
                )
            with full_disk_said(self.directory):
                self._name_driver(descriptor)
                yield
        finally:
            os.close(descriptor)

    def _name_driver(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        # No other run has this name: by it, workers of an earlier one notice that they are not wanted any more.
        os.pwrite(descriptor, f"{os.getpid()} {uuid.uuid4().hex}\n".encode(), 0)
        # Workers on other machines read it, through a file server.
        os.fsync(descriptor)


def _largest_first(tasks: Sequence[TaskPlan]) -> list[TaskPlan]:
    """The tasks, largest first, so that a long task does not start last while other workers are idle."""
    return sorted(tasks, key=lambda task: -sum(source.end - source.start for source in task.sources))


def _shipment(bundle: Path | str | None, py_files: Sequence[str]) -> Shipment:
    return Shipment(None if bundle is None else Path(bundle), tuple(py_files))


@contextlib.contextmanager
def _engine(
    engine: EngineName | Engine, workers: int, access: SparkAccess, results: ResultsWay, on_note: OnNote | None
) -> Iterator[Engine]:
    if engine == "local":
        yield LocalEngine(workers)
    elif engine == "spark":
        # Not before it is wanted: Spark is an extra.
        from streamsrt.backfill.spark.engine import SparkEngine

        made = SparkEngine(access.master, access.conf, access.shipment, results=results, on_note=on_note)
        with contextlib.closing(made):
            yield made
    elif isinstance(engine, str):
        raise BackfillError(f"no such engine: {engine!r}; give local or spark")
    else:
        yield engine
