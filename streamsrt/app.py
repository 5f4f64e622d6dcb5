"""``KafkaStreams``: one instance of an application, from its start to its end.

1. ``run()`` processes on the thread that calls it; ``start()`` on a thread of its own. Either way the network has a thread
   of its own, so that heartbeats don't depend on what the application's functions do.
2. Whatever was opened is closed, in the opposite order, whether the end is a request, a signal or a failure.
3. A failure is raised by ``run()`` and by ``close()``; the state is then ``ERROR``.
"""

from __future__ import annotations

import base64
import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal

from streamsrt.client.interface import GroupMember
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, FetchConfig, ProducerConfig, SecurityConfig
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError, MissingTopicError, UserError
from streamsrt.membership.member import Member
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.membership.values import Endpoint, GroupMembership, SetTaskOffsets
from streamsrt.queries.desk import QueryDesk
from streamsrt.queries.errors import (
    InvalidStateStoreError,
    StreamsNotStartedError,
    StreamsRebalancingError,
    StreamsStoppedError,
)
from streamsrt.queries.local import LocalQueries
from streamsrt.queries.queryable import Queryable
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import HostInfo
from streamsrt.runtime.commit import Committer, Committing
from streamsrt.runtime.exactly_once import ExactlyOnceCommitter, transactional_sink
from streamsrt.runtime.health import why_not_alive, why_not_ready
from streamsrt.runtime.metrics import (
    Metric,
    client_metrics,
    store_metrics,
    task_metrics,
    thread_metrics,
    updater_metrics,
)
from streamsrt.runtime.stream_thread import LoopSettings, StreamThread
from streamsrt.runtime.topology_version import LocalVersion, check_members, digest_tag
from streamsrt.runtime.tuning import tune_process
from streamsrt.runtime.values import STATE_TRANSITIONS, Progress, State
from streamsrt.state.directory import StateDirectory
from streamsrt.state.rocksdb import RocksDBOptions
from streamsrt.tasks.offset_metadata import refuse_running_backfill
from streamsrt.tasks.record_collector import RecordCollector
from streamsrt.tasks.task import TaskConfig
from streamsrt.tasks.task_manager import TaskManager, TaskSettings
from streamsrt.wire.compression import Compression
from topology.nodes import Topology

if TYPE_CHECKING:
    # It needs packages that an application without HTTP does not have.
    from streamsrt.http.server import HttpServer

logger = logging.getLogger(__name__)

StateListener = Callable[[State, State], None]
Until = Literal["stopped", "quiet"]


class KafkaStreams(Queryable):
    """Runs a topology as a member of its application's group.

    ``config``: a :class:`~streamsrt.config.StreamsConfig`, or a mapping with Kafka Streams' keys.
    ``state_listener(new, old)`` is called on the processing thread.
    Raises :class:`~streamsrt.errors.ConfigError` for a setting that is wrong.
    Source: ``org.apache.kafka.streams.KafkaStreams``.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any],
        *,
        state_listener: StateListener | None = None,
    ) -> None:
        self.config = StreamsConfig.of(config)
        configured = topology.configured(topology_settings(self.config))
        topology = configured.with_default_serdes(self.config.default_key_serde, self.config.default_value_serde)
        epoch = self.config.topology_epoch
        self.topology = topology if epoch is None else replace(topology, epoch=epoch)
        self._listener = state_listener
        self._state = State.CREATED
        self._state_lock = threading.Lock()
        self._loop: StreamThread | None = None
        self.store_directory = StoreDirectory(topology, self.config.application_id)
        self._queries: LocalQueries | None = None
        self._failed_threads = 0
        self._thread_number = 1
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._stop_requested = False
        self._claimed = False

    # ------------------------------------------------------------------------------------------------------------- state

    @property
    def state(self) -> State:
        return self._state

    @property
    def progress(self) -> Progress:
        """What this instance does now; a snapshot that may be read from any thread."""
        return Progress(state=self._state) if self._loop is None else self._loop.progress

    def _enter(self, state: State) -> None:
        with self._state_lock:
            old = self._state
            if state is old or state not in STATE_TRANSITIONS[old]:
                return
            self._state = state
        logger.info("application %s: %s -> %s", self.config.application_id, old.value, state.value)
        if self._listener is not None:
            self._listener(state, old)

    # ----------------------------------------------------------------------------------------------------------- queries

    # -------------------------------------------------------------------------------------------------- health, metrics

    @property
    def routing(self) -> Routing:
        """Which instance has what. Raises InvalidStateStoreError where nothing runs."""
        return self._local_queries().routing

    def why_not_ready(self) -> list[str]:
        """Why not all tasks of this instance process; empty where they do."""
        return why_not_ready(self._state, self.progress)

    def why_not_alive(self) -> list[str]:
        """Why this instance should be started anew; empty where it should not."""
        loop, state = self._loop, self._state
        if loop is None:
            return why_not_alive(state, 0.0, 1.0, "")
        silent_s = (time.monotonic_ns() - loop.meter.turned_ns) / 1e9
        return why_not_alive(state, silent_s, self.config.max_poll_interval_ms / 1000, loop.doing())

    def metrics(self) -> list[Metric]:
        """What this instance counts, under Kafka Streams' names. Source: ``KafkaStreams.metrics``."""
        config, loop = self.config, self._loop
        client = {"client-id": config.client_id or f"streamsrt-{config.application_id}"}
        found = list(
            client_metrics(
                {**client, "application-id": config.application_id},
                self._state,
                alive=int(self._state in (State.RUNNING, State.REBALANCING)),
                failed=self._failed_threads,
            )
        )
        if loop is None:
            return found
        thread = {**client, "thread-id": f"{client['client-id']}-StreamThread-{self._thread_number}"}
        progress = loop.progress
        found += thread_metrics(thread, progress, loop.meter)
        found += task_metrics(thread, progress.tasks)
        found += updater_metrics(thread, progress)
        if self._queries is not None:
            with suppress(InvalidStateStoreError):
                found += store_metrics(thread, self._queries.store_sizes(timeout_s=_SIZES_TIMEOUT_S))
        return found

    def _local_queries(self) -> LocalQueries:
        name, state = self.config.application_id, self._state
        if state is State.CREATED:
            raise StreamsNotStartedError(f"application {name!r} was not started: call start() first")
        if state in (State.NOT_RUNNING, State.ERROR):
            raise StreamsStoppedError(f"application {name!r} is {state.value} on this instance: ask another one")
        if self._queries is None:
            raise StreamsRebalancingError(f"application {name!r} has not joined its group yet: try again")
        return self._queries

    # ----------------------------------------------------------------------------------------------------------- running

    def start(self) -> None:
        """Runs on a thread of its own until :meth:`close`. What can be checked before is checked, and raised, here.

        Raises UserError where it was started before, and :class:`~streamsrt.errors.StreamsError` for what is wrong.
        """
        self._claim()
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

    def _claim(self) -> None:
        """An instance runs once: its state directory, membership and thread belong to that one run."""
        with self._state_lock:
            if self._claimed:
                raise UserError(
                    "an instance of KafkaStreams runs once: make another one to start the application again"
                )
            self._claimed = True

    def _run_in_thread(self, ready: threading.Event) -> None:
        try:
            self._run(None, ready)
        except BaseException as error:  # noqa: BLE001  # raised by close(), whatever it is
            self._failure = error
        finally:
            ready.set()

    def close(self, timeout_s: float | None = None) -> bool:
        """Commits, leaves the group and ends; False when that takes longer than ``timeout_s``. Raises what had failed."""
        self.stop()
        if not self._claimed:
            self._enter(State.PENDING_SHUTDOWN)
            self._enter(State.NOT_RUNNING)
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
            if thread.is_alive():
                return False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    def stop(self) -> None:
        """Asks :meth:`run` to commit, leave the group and return; it may be called from any thread."""
        self._stop(wake=True)

    def _stop(self, *, wake: bool) -> None:
        self._stop_requested = True
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
    ) -> Progress:
        """Runs on this thread, and returns what was done.

        ``until``: ``"stopped"`` (by :meth:`stop`, SIGTERM or SIGINT) or ``"quiet"`` (all input that is there now is
        processed and committed). ``records``, ``timeout_s``: stop after so many processed records, or so long.
        ``signals``: SIGTERM and SIGINT stop it gracefully, where this is the main thread; a second one acts as without it.
        Raises :class:`~streamsrt.errors.StreamsError` for whatever ends it early.
        """
        self._claim()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s

        def is_over(loop: StreamThread) -> bool:
            if deadline is not None and time.monotonic() >= deadline:
                return True
            if records is not None and loop.processed_records >= records:
                return True
            return until == "quiet" and loop.is_quiet()

        before: dict[signal.Signals, Any] = {}

        def on_signal(number: int, frame: FrameType | None) -> None:
            # It interrupts this very thread, anywhere: no lock may be taken here, and so nothing is logged.
            self._stop(wake=False)
            signal.signal(number, before[signal.Signals(number)])

        if signals and threading.current_thread() is threading.main_thread():
            before.update({number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS})
        for number in before:
            signal.signal(number, on_signal)
        try:
            self._run(is_over, None)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return self.progress

    def _run(self, until: Callable[[StreamThread], bool] | None, ready: threading.Event | None) -> None:
        config = self.config
        tune_process()
        try:
            with ExitStack() as stack:
                rocksdb = RocksDBOptions(memory_bytes=config.rocksdb_cache_bytes)
                directory = stack.enter_context(
                    StateDirectory(config.state_dir, config.application_id, rocksdb=rocksdb)
                )
                version = LocalVersion(directory.path, self.topology)
                version.check()
                stack.callback(self._stop_http, self._start_http())
                network = NetworkThread(client_config(config, str(directory.process_id)))
                network.start(config.default_api_timeout_ms / 1000)
                try:
                    self._check_topics(network)
                    # Before joining: a member in the group would keep the backfill from ending.
                    refuse_running_backfill(config.application_id, network.admin.committed(config.application_id))
                    (group,) = network.admin.describe_streams_groups([config.application_id])
                    check_members(config.application_id, self.topology, group)
                    self._run_member(network, directory, version, until, ready)
                finally:
                    network.stop()
        except BaseException:
            self._enter(State.PENDING_ERROR)
            self._enter(State.ERROR)
            raise
        self._enter(State.PENDING_SHUTDOWN)
        self._enter(State.NOT_RUNNING)

    def _start_http(self) -> HttpServer | None:
        """Where it is asked for, before the group is joined: the others are told where it is."""
        if not self.config.http_listen:
            return None
        try:
            from streamsrt.http.server import HttpServer, bound_socket
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"http.listen={self.config.http_listen} needs packages that are not installed ({error.name}): "
                "pip install 'streamsrt[http]'"
            ) from error
        listening = bound_socket(self.config.http_listen)
        if not self.config.application_server:
            host, port = self.config.http_listen.rpartition(":")[0], listening.getsockname()[1]
            self.config = self.config.model_copy(update={"application_server": f"{host}:{port}"})
        logger.info("HTTP at %s:%d", *listening.getsockname()[:2])
        return HttpServer(self, listening)

    def _stop_http(self, server: HttpServer | None) -> None:
        if server is not None:
            server.stop()

    def _check_topics(self, network: NetworkThread) -> None:
        outputs = {
            sink.topic
            for subtopology in self.topology.subtopologies
            for sink in subtopology.sinks
            if sink.topic is not None and not sink.repartition
        }
        missing = sorted(outputs - set(network.admin.topics(outputs))) if outputs else []
        if missing:
            raise MissingTopicError(
                f"the application writes to topics that don't exist: {', '.join(missing)}. Create them "
                f"(streamsrt topics create {' '.join(missing)} --partitions N) and start it again."
            )
        standbys = self.config.num_standby_replicas
        if "num_standby_replicas" in self.config.model_fields_set:
            network.admin.alter_group_configs(
                self.config.application_id, {"streams.num.standby.replicas": str(standbys)}
            )

    def _run_member(
        self,
        network: NetworkThread,
        directory: StateDirectory,
        version: LocalVersion,
        until: Callable[[StreamThread], bool] | None,
        ready: threading.Event | None,
    ) -> None:
        config = self.config

        def entered(state: State) -> None:
            if state is State.RUNNING:
                version.remember()
            self._enter(state)

        partitions = PartitionCounts(network)
        desk = QueryDesk()
        collector = RecordCollector(
            transactional_sink(network.producer) if config.is_exactly_once else network.producer.send,
            partitions,
            transactional=config.is_exactly_once,
            compression=Compression[config.compression_type.upper()],
            batch_bytes_max=min(config.max_request_size, 1 << 20) - _BATCH_SLACK_BYTES,
        )
        manager = TaskManager(
            TaskSettings(
                application_id=config.application_id,
                subtopologies={
                    each.id if config.subtopology_id == "hash" else str(each.number): each
                    for each in self.topology.subtopologies
                },
                task_config=TaskConfig.of(config),
                cache_max_bytes=config.statestore_cache_max_bytes,
                auto_offset_reset=config.auto_offset_reset,
                input_buffer_bytes=2 * config.max_partition_fetch_bytes,
                partitions_of_topic=partitions,
                task_timeout_ms=config.task_timeout_ms,
                state_cleanup_delay_ms=config.state_cleanup_delay_ms,
            ),
            network,
            directory,
            collector,
            between_batches=desk.serve,
        )
        routing = Routing(self.store_directory, partitions, own_host(config))
        on_disk = SetTaskOffsets(*manager.task_offsets())
        member = network.join_group(Member(self._membership(str(directory.process_id)), on_disk))
        self._loop = StreamThread(
            LoopSettings(
                commit_interval_ms=config.commit_interval_ms,
                poll_ms=config.poll_ms,
                linger_ms=config.linger_ms,
                purge_interval_ms=config.repartition_purge_interval_ms,
                turn_max_ms=_turn_max_ms(config),
            ),
            network,
            member,
            manager,
            self._committer(network, collector, member, desk.idle),
            flush_outputs=collector.flush,
            now_ms=wall_clock(),
            on_state=entered,
            desk=desk,
            routing=routing,
        )
        self._queries = LocalQueries(manager, desk, routing)
        self._enter(State.REBALANCING)
        if ready is not None:
            ready.set()
        if self._stop_requested:
            self._loop.stop()
        self._loop.run(until)

    def _committer(
        self,
        network: NetworkThread,
        collector: RecordCollector,
        member: GroupMember,
        idle: AbstractContextManager[None],
    ) -> Committing:
        config = self.config
        if not config.is_exactly_once:
            return Committer(config.application_id, network, collector, idle=idle)
        return ExactlyOnceCommitter(
            config.application_id,
            network.transactions,
            collector,
            member,
            timeout_s=config.max_block_ms / 1000,
            idle=idle,
        )

    def _membership(self, process_id: str) -> GroupMembership:
        config = self.config
        return GroupMembership(
            group_id=config.application_id,
            member_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="),
            process_id=process_id,
            topology=topology_metadata(self.topology, config.application_id, subtopology_id=config.subtopology_id),
            instance_id=config.group_instance_id,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            endpoint=_endpoint(config.application_server),
            client_tags={**digest_tag(self.topology), **config.client_tags},
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
        )


_BATCH_SLACK_BYTES = 16_384
"""What a request has around its batches; a batch of that much less than ``max.request.size`` fits into one."""

_TURN_MS = 100
_SIZES_TIMEOUT_S = 2.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def wall_clock() -> Callable[[], int]:
    """Epoch milliseconds that never go back: where the system's clock is set, this one goes on evenly."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + ahead_ns) // 1_000_000


class PartitionCounts:
    """How many partitions an output topic has; asked once per topic. Raises MissingTopicError."""

    def __init__(self, network: NetworkThread) -> None:
        self._network = network
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        count = self._known.get(topic)
        if count is None:
            count = self._network.admin.partitions_for([topic]).get(topic)
            if count is None:
                raise MissingTopicError(
                    f"topic {topic!r}, to which a record is to be written, does not exist: create it "
                    f"(streamsrt topics create {topic} --partitions N)"
                )
            self._known[topic] = count
        return count


def _endpoint(server: str) -> Endpoint | None:
    if not server:
        return None
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"application.server={server!r}: expected HOST:PORT")
    return Endpoint(host, int(port))


def own_host(config: StreamsConfig) -> HostInfo | None:
    """Where this instance says that it answers queries."""
    endpoint = _endpoint(config.application_server)
    return None if endpoint is None else HostInfo(endpoint.host, endpoint.port)


def topology_settings(config: StreamsConfig) -> dict[str, Any]:
    """The topology's part of the configuration: what its internal topics and stores are like."""
    return {
        **{f"topic.{key}": value for key, value in config.topic_configs.items()},
        "upgrade.from": config.upgrade_from or "",
        "dsl.store.suppliers.class": config.dsl_store_suppliers_class,
        "windowstore.changelog.additional.retention.ms": config.windowstore_changelog_additional_retention_ms,
    }


def _turn_max_ms(config: StreamsConfig) -> int:
    """Exactly once, a commit that is late is a transaction that times out."""
    if not config.is_exactly_once:
        return 0
    return max(1, min(max(config.commit_interval_ms, _TURN_MS), config.transaction_timeout_ms // 4))


def client_config(config: StreamsConfig, process_id: str = "") -> ClientConfig:
    """The network's part of the configuration. ``process_id``: of the state directory, which the transactions of an
    instance are known by, over its restarts."""
    return ClientConfig(
        bootstrap_servers=config.bootstrap_servers,
        client_id=config.client_id or f"streamsrt-{config.application_id}",
        security=SecurityConfig(
            protocol=config.security_protocol,
            sasl_mechanism=config.sasl_mechanism,
            sasl_username=config.sasl_username,
            sasl_password=config.sasl_password,
            sasl_oauth_token_provider=config.sasl_oauth_token_provider,
            sasl_kerberos_service_name=config.sasl_kerberos_service_name,
            sasl_kerberos_domain_name=config.sasl_kerberos_domain_name,
            ssl_ca_location=config.ssl_ca_location,
            ssl_certificate_location=config.ssl_certificate_location,
            ssl_key_location=config.ssl_key_location,
            ssl_key_password=config.ssl_key_password,
            ssl_check_hostname=config.ssl_check_hostname,
        ),
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        fetch=FetchConfig(
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            max_partition_bytes=config.max_partition_fetch_bytes,
            isolation_level=config.isolation_level,
            buffer_bytes=config.fetch_buffer_bytes,
        ),
        restore=FetchConfig(isolation_level="read_committed", buffer_bytes=config.fetch_buffer_bytes),
        producer=ProducerConfig(
            max_request_size=config.max_request_size,
            buffer_memory=config.buffer_memory,
            max_block_ms=config.max_block_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            transactional_id=f"{config.application_id}-{process_id}-1" if config.is_exactly_once else None,
            transaction_timeout_ms=config.transaction_timeout_ms,
        ),
    )
