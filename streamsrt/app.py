"""``KafkaStreams``: one instance of an application, from its start to its end.

1. ``run()`` processes on the thread that calls it; ``start()`` on a thread of its own. Either way the network has its
   own thread, so heartbeats do not depend on the application's functions.
2. Everything that was opened is closed in reverse order, whether the application ends by a request, a signal or a
   failure.
3. A failure is raised by ``run()`` and by ``close()``; the state is then ``ERROR``.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import CallAbandonedError
from streamsrt.config import STREAM_THREADS_MAX, StreamsConfig
from streamsrt.errors import StreamsError, UserError
from streamsrt.http.starting import start_http
from streamsrt.queries.errors import (
    InvalidStateStoreError,
    StreamsNotStartedError,
    StreamsRebalancingError,
    StreamsStoppedError,
)
from streamsrt.queries.local import LocalQueries
from streamsrt.queries.queryable import Queryable
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.store_queries import StoreQueries
from streamsrt.runtime.assembly import (
    assemble,
    client_config,
    ready_topology,
    refuse_missing_topics,
    refuse_other_build,
    set_standbys_of_group,
    without_old_state,
)
from streamsrt.runtime.group_protocol import GroupProtocol
from streamsrt.runtime.health import Readiness, why_not_alive, with_silence
from streamsrt.runtime.instance_metrics import InstanceMetrics
from streamsrt.runtime.later_values import settle_later_values
from streamsrt.runtime.lifecycle import GroupMembershipOperation, Response, application_shutdown
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.runtime.memory import budget_text
from streamsrt.runtime.metrics import CLIENT, About, Metric, client_metrics
from streamsrt.runtime.results import ResultRecord, Results
from streamsrt.runtime.stop_signals import stop_signals
from streamsrt.runtime.task_table import task_table
from streamsrt.runtime.topic_settings import refuse_topic_settings
from streamsrt.runtime.topology_lock import locked
from streamsrt.runtime.topology_version import LocalVersion, check_start
from streamsrt.runtime.tuning import tune_process
from streamsrt.runtime.values import ENDED, STATE_TRANSITIONS, Progress, State, total_of
from streamsrt.runtime.watchdog import Watchdog
from streamsrt.state.directory import StateDirectory
from streamsrt.state.rocksdb import RocksDBOptions
from streamsrt.tasks.input.offset_metadata import refuse_half_written_state
from streamsrt.tasks.restore.listeners import NO_RESTORE_LISTENER, NO_STANDBY_LISTENER, RestoreListener, StandbyListener
from topology.graph.topology import Topology

if TYPE_CHECKING:
    # Most instances have one stream thread, and need none of these.
    from multiprocessing.connection import Connection

    from streamsrt.runtime.process_queries import ProcessQueries, QueryChannel, QueryServer
    from streamsrt.runtime.processes import StreamProcesses
    from streamsrt.runtime.supervisor import StreamThreadFailedError

logger = logging.getLogger(__name__)

StateListener = Callable[[State, State], None]
Until = Literal["stopped", "quiet"]


class KafkaStreams(Queryable):
    """Runs a topology as a member of its application's group.

    ``config``: a :class:`~streamsrt.config.StreamsConfig`, or a mapping with Kafka Streams' keys. ``state_listener(new,
    old)`` is called on the processing thread, and so is ``uncaught_exception_handler(error)``, which decides how
    failures are handled (default: ``Response.SHUTDOWN_CLIENT``). ``restore_listener`` and ``standby_listener`` are
    called there too, with the progress of restoring and of standby tasks. Raises :class:`~streamsrt.errors.ConfigError`
    for an invalid setting. Source: ``org.apache.kafka.streams.KafkaStreams``.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any],
        *,
        state_listener: StateListener | None = None,
        uncaught_exception_handler: Callable[[StreamsError], Response] | None = None,
        restore_listener: RestoreListener | None = None,
        standby_listener: StandbyListener | None = None,
    ) -> None:
        self._restore_listener = restore_listener or NO_RESTORE_LISTENER
        self._standby_listener = standby_listener or NO_STANDBY_LISTENER
        self.config = StreamsConfig.of(config)
        self._given_topology = topology
        topology = ready_topology(topology, self.config)
        if self.config.topology_lock is not None:
            topology = locked(topology, self.config.topology_lock, self.config.topology_epoch)
        self.topology = topology
        self._listener = state_listener
        self._state = State.CREATED
        self._state_lock = threading.Lock()
        self._loop: StreamThread | None = None
        self.store_directory = StoreDirectory(topology, self.config.application_id)
        self._queries: LocalQueries | None = None
        self._process_queries: ProcessQueries | None = None
        self._failed_threads = 0
        self._metrics = InstanceMetrics()
        self._process_id = ""
        self._readiness = Readiness()
        self._past = Progress()
        """What threads did that failed and were replaced."""
        self._is_paused = False
        self._leaving = GroupMembershipOperation.DEFAULT
        self._group_protocol = GroupProtocol()
        self._worker: int | None = None
        """Which of several stream threads this is, where they are processes."""
        self._processes: StreamProcesses | None = None
        self._channel: QueryChannel | None = None
        self._metrics_server: QueryServer | None = None
        self._exception_handler = uncaught_exception_handler
        self._replaced = threading.Event()
        self.on_stuck: Callable[[str], None] | None = None
        """Called with what is known of it when the processing thread does not come around (``max.poll.interval.ms``)."""
        self._thread_number = 1
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.was_interrupted = self.was_terminated = self.was_quiet = False
        """What has ended :meth:`run`: SIGINT (Ctrl-C); SIGTERM; with ``until="quiet"``, that all input was processed."""
        self._poll_limit_s = self.config.max_poll_interval_ms / 1000
        self._stop_requested = self._claimed = self._has_begun = False
        refuse_other_build(topology, self.config)

    # ------------------------------------------------------------------------------------------------------------- state

    @property
    def state(self) -> State:
        return self._state

    @property
    def progress(self) -> Progress:
        """What this instance does now; a snapshot that may be read from any thread."""
        now, state = self._progress(), self._state
        # What a processing thread told last was while it was at work.
        return replace(now, state=state) if state in ENDED else now

    def _progress(self) -> Progress:
        if self._processes is not None:
            return self._processes.summary.progress
        if self._loop is None:
            return Progress(state=self._state)
        now = self._loop.progress
        if not self._failed_threads:
            return now
        total = total_of(now.state, [self._past, now])
        return replace(total, member_id=now.member_id, member_epoch=now.member_epoch)

    def _enter(self, state: State) -> None:
        with self._state_lock:
            old = self._state
            if state is old or state not in STATE_TRANSITIONS[old]:
                return
            self._state = state
            self._has_begun |= state not in (State.PENDING_ERROR, State.ERROR)
        # What fails before it has begun is said by the error that is raised.
        level = logging.INFO if self._has_begun else logging.DEBUG
        logger.log(level, "application %s: %s -> %s", self.config.application_id, old.value, state.value)
        if self._listener is not None:
            self._listener(state, old)

    # ----------------------------------------------------------------------------------------------------------- queries

    # -------------------------------------------------------------------------------------------------- health, metrics

    @property
    def routing(self) -> Routing:
        """Which instance has which stores. Raises InvalidStateStoreError if the application is not running."""
        return self.local_queries().routing

    def why_not_ready(self) -> list[str]:
        """Why some tasks of this instance are not processing; empty if all are."""
        has_none_to_run = not any(part.sources for part in self.topology.subtopologies)
        known = has_none_to_run or self._others_have_tasks()
        reasons = self._readiness.why_not(self._state, self.progress, others_have_tasks=known)
        loop = self._loop
        if loop is None:
            return reasons
        return with_silence(reasons, loop.silent_s(), self._poll_limit_s, loop.doing())

    def _others_have_tasks(self) -> bool:
        try:
            return any(active for active, _ in self.routing.hosts.values())
        except InvalidStateStoreError:
            return False

    def why_not_alive(self) -> list[str]:
        """Why this instance should be restarted; empty if it should not."""
        loop, state = self._loop, self._state
        if loop is None:
            return why_not_alive(state, 0.0, 1.0, "")
        return why_not_alive(state, loop.silent_s(), self._poll_limit_s, loop.doing())

    def metrics(self) -> list[Metric]:
        """The metrics of this instance, under Kafka Streams' names. Source: ``KafkaStreams.metrics``."""
        config, loop = self.config, self._loop
        processes = None if self._processes is None else self._processes.summary
        own_name = config.client_id or f"streamsrt-{config.application_id}"
        # Of the instance, also where this is one of its stream threads, with a name of its own.
        client = {"client-id": own_name.removesuffix(f"-StreamThread-{self._worker}")}
        of_workers = [] if self._process_queries is None else self._process_queries.metrics()
        # Of stream threads that are processes it is they who have opened the state directory.
        process_id = self._process_id or next((m.tags["process-id"] for m in of_workers if "process-id" in m.tags), "")
        found = list(
            client_metrics(
                {**client, "application-id": config.application_id},
                self._state,
                About(config.application_id, self.topology.describe(), config.metrics_recording_level, process_id),
                alive=int(self._state in (State.RUNNING, State.REBALANCING)) if processes is None else processes.alive,
                failed=self._failed_threads if processes is None else processes.failed,
            )
        )
        # A stream thread's own client metrics are redundant: the instance reports them as a whole.
        found += [metric for metric in of_workers if metric.group != CLIENT]
        if loop is not None:
            name = own_name if self._worker else f"{own_name}-StreamThread-{self._thread_number}"
            thread = {**client, "thread-id": name}
            found += self._metrics.of_thread(thread, loop, self._queries, state=self._state, process_id=process_id)
        return found

    def reported_metrics(self) -> list[Metric]:
        """What ``/metrics`` shows: where stream threads are processes, the first shows all, the others themselves."""
        whole = self._channel.metrics_of_all() if self._worker == 1 and self._channel is not None else None
        return self.metrics() if whole is None else whole

    def local_queries(self) -> StoreQueries:
        name, state = self.config.application_id, self._state
        if state is State.CREATED:
            raise StreamsNotStartedError(f"application {name!r} was not started: call start() first")
        if state in ENDED:
            raise StreamsStoppedError(f"application {name!r} is {state.value} on this instance: ask another one")
        if self._process_queries is not None:
            return self._process_queries
        if self._queries is None:
            raise StreamsRebalancingError(f"application {name!r} has not joined its group yet: try again")
        return self._queries

    # ----------------------------------------------------------------------------------------------------------- running

    def start(self) -> None:
        """Runs on its own thread until :meth:`close`. Errors that can be found before that are raised here.

        Raises UserError if it was started before, and other :class:`~streamsrt.errors.StreamsError`.
        """
        self._claim()
        if self.config.num_stream_threads > 1:
            self._start_processes(stop_when_quiet=False)
            return
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run_in_thread, args=(ready,), name="streamsrt-processing", daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            self._thread.join()
            failure, self._failure = self._failure, None
            raise failure

    def clean_up(self) -> None:
        """Deletes all state of this instance on disk; the next start restores it from the changelogs. The process
        id is kept. Source: ``KafkaStreams.cleanUp``.

        Raises UserError while the application runs, StateError if the state can't be deleted.
        """
        if self._state not in {State.CREATED, *ENDED}:
            raise UserError(
                f"the state of application {self.config.application_id!r} can be deleted before it starts and after it has "
                f"ended: it is {self._state.value}. Call close() first"
            )
        with StateDirectory(self.config.state_dir, self.config.application_id) as directory:
            directory.clean_up()

    def _claim(self) -> None:
        """An instance runs once: its state directory, membership and thread belong to that one run."""
        with self._state_lock:
            if self._claimed:
                raise UserError(
                    "an instance of KafkaStreams runs only once: create another one to start the application again"
                )
            self._claimed = True

    def _run_in_thread(self, ready: threading.Event) -> None:
        try:
            self._run(None, ready)
        except BaseException as error:  # noqa: BLE001  # raised by close(), whatever it is
            self._failure = error
        finally:
            ready.set()

    def close(
        self,
        timeout_s: float | None = None,
        *,
        membership: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> bool:
        """Commits, leaves the group (see ``membership``) and ends; False if that takes longer than ``timeout_s``. Raises the
        failure that ended the run, if any. Source: ``KafkaStreams.close(CloseOptions)``."""
        self.stop(membership)
        if not self._claimed:
            self._enter(State.PENDING_SHUTDOWN)
            self._enter(State.NOT_RUNNING)
        if self._processes is not None:
            return self._join_processes(self._processes, timeout_s)
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
            if thread.is_alive():
                return False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    def pause(self) -> None:
        """Stops processing until :meth:`resume`; heartbeats, restoring and commits continue."""
        self._set_paused(True)

    def resume(self) -> None:
        """Continues after :meth:`pause`."""
        self._set_paused(False)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def _set_paused(self, paused: bool) -> None:
        self._is_paused = paused
        if self._loop is not None:
            self._loop.is_paused = paused
        if self._processes is not None:
            self._processes.set_paused(paused)

    def stop(self, membership: GroupMembershipOperation | None = None) -> None:
        """Asks :meth:`run` to commit, leave the group and return; may be called from any thread. ``membership`` None: as
        given to :meth:`run`."""
        if membership is not None:
            self._leaving = membership
        if self._loop is not None:
            self._loop.leaving = self._leaving
        self._stop(wake=True)
        if self._processes is not None:
            self._processes.stop(self._leaving)

    def _stop(self, *, wake: bool) -> None:
        self._stop_requested = True
        if wake:
            self._replaced.set()
        if self._loop is not None:
            self._loop.stop(wake=wake)

    def __enter__(self) -> KafkaStreams:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(
        self,
        *,
        until: Until = "stopped",
        timeout_s: float | None = None,
        records: int | None = None,
        signals: bool = True,
        membership: GroupMembershipOperation = GroupMembershipOperation.DEFAULT,
    ) -> Progress:
        """Runs on this thread and returns the progress.

        ``until``: ``"stopped"`` (by :meth:`stop`, SIGTERM or SIGINT) or ``"quiet"`` (all input present now is processed
        and committed). ``records``, ``timeout_s``: stop after that many processed records, or that long. A record counts
        when a task takes it in; the stop waits for its asynchronous calls and commits their results (but see
        :meth:`~topology.KStream.map_async`). ``signals``: SIGTERM and SIGINT stop it gracefully, if this is the main
        thread; a second one has its usual effect. ``membership``: what happens to the membership at the end, whatever the
        reason. Raises the :class:`~streamsrt.errors.StreamsError` that ends it early.
        """
        self._claim()
        self._leaving = membership
        deadline = None if timeout_s is None else time.monotonic() + timeout_s

        def is_over(loop: StreamThread) -> bool:
            is_late = deadline is not None and time.monotonic() >= deadline
            if is_late or (records is not None and self._past.processed_records + loop.processed_records >= records):
                return True
            self.was_quiet = until == "quiet" and loop.commit_if_drained()
            return self.was_quiet

        def on_signal(number: signal.Signals) -> None:
            self.was_interrupted, self.was_terminated = number is signal.SIGINT, number is signal.SIGTERM
            self._stop(wake=False)

        with stop_signals(on_signal) if signals else nullcontext():
            if self.config.num_stream_threads > 1:
                self._run_processes(until, deadline, records)
            else:
                self._run(is_over, None)
        return self.progress

    def collect(
        self, *topics: str, until: Until = "quiet", timeout_s: float | None = None, records: int | None = None
    ) -> dict[str, list[ResultRecord]]:
        """Runs as :meth:`run` does, and returns the committed records written to these topics meanwhile, by topic.

        ``topics``: default: all output topics that the topology names. Keys and values are read with the serdes that
        write them. Raises UserError for a topic that the topology does not write to, and what :meth:`run` raises.
        """
        config = self.config
        results = Results(self.topology, client_config(config), topics, config.default_api_timeout_ms / 1000)
        results.begin()
        self.run(until=until, timeout_s=timeout_s, records=records)
        return results.read()

    def _ipython_display_(self) -> None:
        """What a notebook shows: the tasks, while the application runs."""
        # Only where there is a notebook, there is IPython.
        from streamsrt.runtime.notebook import show_live

        show_live(lambda: task_table(self.state, self.progress), lambda: self.state in ENDED)

    # ---------------------------------------------------------------------------------------- stream threads as processes

    def add_stream_thread(self) -> int:
        """Adds a process and returns their number. Source: ``KafkaStreams.addStreamThread``.

        Raises UserError if the application was not started with ``num.stream.threads`` above 1, is not running, or has 256.
        """
        return self._set_threads(1)

    def remove_stream_thread(self) -> int:
        """Removes a process, whose tasks go to the others, and returns their number. Source: ``removeStreamThread``.
        Raises UserError as :meth:`add_stream_thread` does, and for the last one."""
        return self._set_threads(-1)

    def _set_threads(self, by: int) -> int:
        processes = self._processes
        if processes is None or self._state not in (State.RUNNING, State.REBALANCING):
            raise UserError(
                "stream threads can be added and removed only while the application is running, and only if it was "
                "started with num.stream.threads=2 or more"
            )
        if processes.threads + by < 1:
            raise UserError("the last stream thread can't be removed: close() ends the application")
        if processes.threads + by > STREAM_THREADS_MAX:
            raise UserError(f"an instance has at most {STREAM_THREADS_MAX} stream threads: start another instance")
        processes.set_threads(processes.threads + by)
        return processes.threads

    def _start_processes(self, *, stop_when_quiet: bool) -> None:
        # Most instances have one stream thread, and need no processes.
        from streamsrt.runtime.process_queries import WHOLE_INSTANCE, ProcessQueries, QueryChannel, QueryServer
        from streamsrt.runtime.processes import StreamProcesses
        from streamsrt.runtime.worker import run_worker, worker_config

        config, channel, leaving = self.config, QueryChannel.new(), self._leaving

        def work(index: int, control: Connection) -> None:
            streams = KafkaStreams(
                self._given_topology,
                worker_config(config, index),
                uncaught_exception_handler=self._exception_handler,
                restore_listener=self._restore_listener,
                standby_listener=self._standby_listener,
            )
            streams._worker, streams._leaving, streams._channel = index, leaving, channel
            QueryServer(channel, index, streams)
            run_worker(streams, control, stop_when_quiet=stop_when_quiet)

        self._processes = StreamProcesses(
            work,
            config.num_stream_threads,
            prepare=lambda: without_old_state(StateDirectory(config.state_dir, config.application_id), config),
            on_state=self._enter,
            leaving=leaving,
        )
        processes = self._processes
        self._process_queries = ProcessQueries(channel, self.store_directory, lambda: processes.threads)
        try:
            processes.start(lambda: self._stop_requested)
            self._metrics_server = QueryServer(channel, WHOLE_INSTANCE, self)
        except BaseException:
            self._enter(State.PENDING_ERROR)
            self._enter(State.ERROR)
            raise

    def _run_processes(self, until: Until, deadline: float | None, records: int | None) -> None:
        self._start_processes(stop_when_quiet=until == "quiet")
        processes = self._processes
        assert processes is not None
        stopping, quiet_times = False, 0
        crashed: StreamThreadFailedError | None = None
        while not processes.join(_CHECK_INTERVAL_S):
            quiet_times = quiet_times + 1 if processes.summary.quiet else 0
            if until == "quiet" and processes.summary.failed and not stopping:
                # Its tasks stay with its member until the session ends: the others are quiet without them.
                crashed = processes.crashed_before_quiet()
            self.was_quiet = self.was_quiet or (until == "quiet" and not stopping and quiet_times >= _QUIET_TIMES)
            is_over = (
                crashed is not None
                or self._stop_requested
                or (deadline is not None and time.monotonic() >= deadline)
                or (records is not None and processes.summary.progress.processed_records >= records)
                or self.was_quiet
            )
            if is_over and not stopping:
                stopping = True
                processes.stop(self._leaving)
        self._join_processes(processes, None, crashed)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """The last thing that an instance does: its state says how that ended."""
        try:
            yield
        except BaseException:
            self._enter(State.PENDING_ERROR)
            self._enter(State.ERROR)
            raise
        self._enter(State.PENDING_SHUTDOWN)
        self._enter(State.NOT_RUNNING)

    def _join_processes(
        self, processes: StreamProcesses, timeout_s: float | None, crashed: StreamThreadFailedError | None = None
    ) -> bool:
        if not processes.join(timeout_s):
            return False
        if self._metrics_server is not None:
            self._metrics_server.close()
        with self._ending():
            processes.raise_failure()
            if crashed is not None:
                raise crashed
        return True

    def run_thread(self, is_over: Callable[[StreamThread], bool]) -> None:
        """One stream thread of several, until :meth:`stop`. Called by :mod:`streamsrt.runtime.worker`."""
        self._claim()
        self._run(is_over, None)

    @property
    def was_shut_down(self) -> bool:
        """Whether another instance asked the whole application to end."""
        return self._loop is not None and self._loop.was_shut_down

    def _run(self, until: Callable[[StreamThread], bool] | None, ready: threading.Event | None) -> None:
        config = self.config
        tune_process()
        with self._ending(), ExitStack() as stack:
            rocksdb = RocksDBOptions(
                memory_bytes=config.rocksdb_bytes,
                statistics=config.metrics_recording_level != "INFO",
                config_setter=config.rocksdb_config_setter,
            )
            directory = stack.enter_context(
                StateDirectory(
                    config.state_dir, config.application_id, rocksdb=rocksdb, shared=self._worker is not None
                )
            )
            self._process_id = str(directory.process_id)
            if self._worker is None:
                without_old_state(directory, config)
            logger.info("%s", budget_text(config))
            version = LocalVersion(directory.path, self.topology)
            version.check()
            if config.http_listen:
                stack.callback(start_http(self))
            while self._run_thread(directory, version, until, ready):
                if self._loop is not None:
                    ended = self._loop.progress.of_the_past()
                    self._past = total_of(ended.state, [self._past, ended])
                self._failed_threads += 1
                self._thread_number += 1

    def _run_thread(
        self,
        directory: StateDirectory,
        version: LocalVersion,
        until: Callable[[StreamThread], bool] | None,
        ready: threading.Event | None,
    ) -> bool:
        """One processing thread, from its first connection to its end; whether another one is to take its place."""
        config = self.config

        def entered(state: State) -> None:
            if state is State.RUNNING and loop is not None and loop.has_had_tasks:
                version.remember()
            self._enter(state)

        loop: StreamThread | None = None
        network = NetworkThread(
            client_config(config, str(directory.process_id), self._worker or 1),
            restores_apart=True,
            is_abandoned=lambda: self._stop_requested and loop is None,
        )
        try:
            network.start(config.default_api_timeout_ms / 1000)
            config = self._group_protocol.settle(config, network.admin)
            refuse_topic_settings(config, network.admin)
            refuse_missing_topics(self.topology, config, network.admin)
            set_standbys_of_group(config, network)
            # Before joining: a member in the group would keep the backfill from ending.
            committed = network.admin.committed(config.application_id)
            refuse_half_written_state(config.application_id, committed)
            check_start(config, self.topology, network, version, committed)
            settle_later_values(
                network, config.application_id, self.topology, version, directory, lambda: self._stop_requested
            )
            loop, self._queries, _ = assemble(
                config,
                self.topology,
                self.store_directory,
                network,
                directory,
                on_state=entered,
                on_failure=self._decide,
                listeners=(self._restore_listener, self._standby_listener),
                replica=self._worker or 0,
            )
            self._loop = loop
            loop.leaving = self._leaving
            loop.is_paused = self._is_paused
            self._enter(State.REBALANCING)
            if ready is not None:
                ready.set()
            if self._stop_requested:
                loop.stop()
            with Watchdog(loop, self._poll_limit_s, self.on_stuck):
                loop.run(until)
            if loop.was_shut_down and self._worker is None:
                raise application_shutdown()
        except CallAbandonedError:
            logger.info("stopped before the cluster answered")
        except StreamsError as error:
            is_replaced = loop is not None and loop.response is Response.REPLACE_THREAD
            is_stopping = self._stop_requested or (loop is not None and loop.is_stopped_by_program)
            if is_stopping or not (is_replaced or self._group_protocol.decides_again(error)):
                raise
            logger.error("a new stream thread replaces one that failed: %s", error)
            self._replaced.wait(_REPLACE_PAUSE_S)
            return True
        finally:
            network.stop()
        return False

    def _decide(self, error: StreamsError) -> Response:
        """How the application wants a failure to be handled."""
        handler = self._exception_handler
        response = Response.SHUTDOWN_CLIENT if handler is None else Response(handler(error))
        if response is not Response.SHUTDOWN_APPLICATION:
            from streamsrt.runtime.failing_version import put_upgrade_first  # only failing instances need it

            put_upgrade_first(error, self.config, self.topology.epoch)
        return response


_REPLACE_PAUSE_S = 0.5
_CHECK_INTERVAL_S = 0.1
_QUIET_TIMES = 5
