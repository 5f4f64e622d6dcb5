"""Creates one processing thread from the configuration: tasks, committer, membership, loop, queries."""

from __future__ import annotations

import base64
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from streamsrt.assignment.configuration import configure
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import Subtopology, topology_of
from streamsrt.client.interface import Administering, GroupMember, Network
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, DeliveryTimeoutError, FetchConfig, ProducerConfig, SecurityConfig
from streamsrt.config import StreamsConfig
from streamsrt.errors import (
    BrokerError,
    ConfigError,
    MissingTopicError,
    RequestFailedError,
    StreamsError,
    UserError,
)
from streamsrt.membership.member import Member
from streamsrt.membership.statuses import ADVICE
from streamsrt.membership.told_parts import parts_tag
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.membership.values import (
    DEFAULT_SESSION_TIMEOUT_MS,
    MISSING_SOURCE_TOPICS_TIMEOUT_MS,
    Endpoint,
    GroupMembership,
    SetTaskOffsets,
)
from streamsrt.queries.gate import QueryGate
from streamsrt.queries.local import LocalQueries
from streamsrt.queries.routing import Routing, StoreDirectory
from streamsrt.queries.values import HostInfo
from streamsrt.runtime.commit import Committer, Committing
from streamsrt.runtime.exactly_once import ExactlyOnceCommitter, transactional_sink
from streamsrt.runtime.lifecycle import OnFailure
from streamsrt.runtime.loop.thread import StreamThread
from streamsrt.runtime.loop.values import LoopSettings
from streamsrt.runtime.memory import MemoryMeter
from streamsrt.runtime.restore_thread import RestoreThread
from streamsrt.runtime.steady_clock import SteadyClock
from streamsrt.runtime.store_origins import marks_tag
from streamsrt.runtime.topology_version import check_joined, digest_tag, versions_tag
from streamsrt.runtime.tracing import spans_of
from streamsrt.runtime.values import State
from streamsrt.state.directory import StateDirectory
from streamsrt.tasks.global_state import GlobalConsumer
from streamsrt.tasks.manager.task_manager import TaskManager
from streamsrt.tasks.manager.task_settings import TaskSettings
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.tasks.output.refused_records import RefusedRecords, sinks_of
from streamsrt.tasks.restore.changelog_work import InlineRestoring, Restoring
from streamsrt.tasks.restore.listeners import NO_RESTORE_LISTENER, NO_STANDBY_LISTENER, RestoreListener, StandbyListener
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.client_tags import LOSE_IN_FLIGHT
from streamsrt.wire.compression import Compression
from streamsrt.wording import host_and_port
from topology.graph.nodes import internal_topic_name
from topology.graph.topology import Topology

if TYPE_CHECKING:
    from streamsrt.membership.classic.leader_assignments import LeaderSettings
    from streamsrt.membership.classic.member import ClassicMember

logger = logging.getLogger(__name__)


class Assembled(NamedTuple):
    """A processing thread that has started to join its group, the queries to its stores, and its tasks."""

    loop: StreamThread
    queries: LocalQueries
    manager: TaskManager


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What assembly takes from outside: a clock in epoch milliseconds that never goes back, member ids, and how far the
    machine's clock is ahead of that one."""

    now_ms: Callable[[], int]
    new_id: Callable[[], uuid.UUID]
    clock_ahead_ms: Callable[[], int] = int

    @classmethod
    def of_this_machine(cls) -> Surroundings:
        clock = SteadyClock()
        return cls(clock, uuid.uuid4, clock.ahead_ms)


def assemble(
    config: StreamsConfig,
    topology: Topology,
    stores: StoreDirectory,
    network: NetworkThread,
    directory: StateDirectory,
    *,
    on_state: Callable[[State], None],
    on_failure: OnFailure,
    listeners: tuple[RestoreListener, StandbyListener] = (NO_RESTORE_LISTENER, NO_STANDBY_LISTENER),
    replica: int = 0,
    surroundings: Surroundings | None = None,
) -> Assembled:
    """Creates the parts and starts to join the group. ``on_state``, ``on_failure``: see :class:`StreamThread`.

    ``replica``: the number of this process among those that share the directory; each has global stores of its own.
    """
    surroundings = surroundings or Surroundings.of_this_machine()
    partitions = PartitionCounts(network)
    gate = QueryGate()
    collector = RecordCollector(
        transactional_sink(network.producer) if config.is_exactly_once else network.producer.send,
        partitions,
        transactional=config.is_exactly_once,
        compression=Compression[config.compression_type.upper()],
        batch_bytes_max=min(config.max_request_size, 1 << 20) - _BATCH_SLACK_BYTES,
    )
    # What programs see of the clock is one for tasks and global stores.
    task_config = TaskConfig.of(config)
    refused = RefusedRecords(task_config.handlers, collector, sinks_of(topology))
    network.producer.on_refused = refused
    manager = TaskManager(
        _task_settings(config, topology, task_config, partitions),
        network,
        directory,
        collector,
        between_batches=gate.serve,
        restoring=_restoring(network),
        on_restore=listeners[0],
        on_standby=listeners[1],
        global_consumer=_global_consumer(
            config, topology, task_config, network, directory, replica, surroundings.now_ms()
        ),
    )
    routing = Routing(stores, partitions.look_up, own_host(config))
    on_disk = SetTaskOffsets(*manager.task_offsets())
    membership = membership_of(config, topology, str(directory.process_id), surroundings.new_id())
    member = joined(config, membership, on_disk, network, surroundings)
    loop = StreamThread(
        LoopSettings(
            commit_interval_ms=config.commit_interval_ms,
            poll_ms=config.poll_ms,
            linger_ms=config.linger_ms,
            purge_interval_ms=config.repartition_purge_interval_ms,
            iteration_max_ms=_iteration_max_ms(config),
            is_static=config.group_instance_id is not None,
        ),
        network,
        member,
        manager,
        _committer(config, network, collector, member, gate.idle),
        flush_outputs=collector.flush,
        now_ms=surroundings.now_ms,
        clock_ahead_ms=surroundings.clock_ahead_ms,
        on_state=on_state,
        on_failure=on_failure,
        gate=gate,
        routing=routing,
        memory=partial(MemoryMeter(config, directory.rocksdb, manager.rests).measure, manager),
        blocking=network.blocking,
        check_version=lambda: check_joined(config, topology, network.admin, membership),
    )
    loop.on_work = spans_of(config)
    loop.on_start_over = partial(_forget_topics, partitions, collector)
    if not config.is_exactly_once:
        loop.on_undone = partial(_bury, refused, network)
    queries = LocalQueries(manager, gate, routing, lambda: manager.global_consumer, manager.restoring)
    return Assembled(loop, queries, manager)


def _restoring(network: NetworkThread) -> Restoring:
    if network.restores_apart:
        return RestoreThread(network.restorer, network.restore_signal, network.wake)
    return InlineRestoring(network.restorer)


def _forget_topics(partitions: PartitionCounts, collector: RecordCollector) -> None:
    """Has the partitions of output topics looked up again: one may have been created anew with fewer of them, and nothing
    can be written to those that are gone."""
    partitions.forget()
    collector.forget_topics()


def _bury(refused: RefusedRecords, network: NetworkThread) -> None:
    """Writes the dead letters of refused records, if there are any."""
    refused.send_last_letters()
    try:
        network.producer.flush(_LAST_LETTERS_TIMEOUT_S)
    except StreamsError as error:
        logger.warning("the dead letter of the failed record could not be written: %s", error)


def _global_consumer(
    config: StreamsConfig,
    topology: Topology,
    task_config: TaskConfig,
    network: NetworkThread,
    directory: StateDirectory,
    replica: int,
    now_ms: int,
) -> GlobalConsumer | None:
    if not topology.global_subtopologies:
        return None
    return GlobalConsumer(
        topology.global_subtopologies,
        network,
        directory,
        application_id=config.application_id,
        config=task_config,
        cache_max_bytes=max(config.uncommitted_bytes // _GLOBAL_PART, _LEAST_GLOBAL_CACHE_BYTES),
        replica=replica,
        now_ms=now_ms,
        changelogs=changelogs_of(topology, config.application_id),
    )


def changelogs_of(topology: Topology, application_id: str) -> frozenset[str]:
    """The internal topics from which tasks restore stores."""
    return frozenset(
        internal_topic_name(application_id, spec.changelog_name)
        for part in topology.subtopologies
        for spec in part.stores
        if spec.logging and spec.source_topic is None
    )


def _task_settings(
    config: StreamsConfig, topology: Topology, task_config: TaskConfig, partitions: PartitionCounts
) -> TaskSettings:
    globals_too = bool(topology.global_subtopologies)
    return TaskSettings(
        application_id=config.application_id,
        subtopologies={
            each.id if config.subtopology_id == "hash" else str(each.number): each for each in topology.subtopologies
        },
        task_config=task_config,
        cache_max_bytes=config.record_cache_bytes - (config.record_cache_bytes // _GLOBAL_PART if globals_too else 0),
        uncommitted_max_bytes=config.uncommitted_bytes,
        auto_offset_reset=config.auto_offset_reset,
        input_buffer_bytes=2 * config.max_partition_fetch_bytes,
        all_input_bytes=config.fetch_buffer_bytes,
        partitions_of_topic=partitions,
        note_partitions=partitions.note,
        task_timeout_ms=config.task_timeout_ms,
        state_cleanup_delay_ms=config.state_cleanup_delay_ms,
        may_be_beside_java=config.subtopology_id == "number",
    )


def _committer(
    config: StreamsConfig,
    network: NetworkThread,
    collector: RecordCollector,
    member: GroupMember,
    idle: AbstractContextManager[None],
) -> Committing:
    if not config.is_exactly_once:
        return Committer(config.application_id, network, collector, idle=idle)
    return ExactlyOnceCommitter(
        config.application_id,
        network.transactions,
        collector,
        member,
        timeout_s=config.max_block_ms / 1000,
        idle=idle,
        blocking=network.blocking,
    )


def membership_of(config: StreamsConfig, topology: Topology, process_id: str, member_id: uuid.UUID) -> GroupMembership:
    """Returns what a member of the application's group sends when it joins."""
    metadata = topology_metadata(topology, config.application_id, subtopology_id=config.subtopology_id)
    return GroupMembership(
        group_id=config.application_id,
        member_id=base64.urlsafe_b64encode(member_id.bytes).decode().rstrip("="),
        process_id=process_id,
        topology=metadata,
        instance_id=config.group_instance_id,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        endpoint=endpoint(config.application_server),
        client_tags={
            **digest_tag(topology),
            **marks_tag(topology),
            **(parts_tag(metadata) if config.group_protocol == "classic" else {}),
            **versions_tag(topology, config.application_id),
            **({LOSE_IN_FLIGHT: "true"} if config.upgrade_lose_in_flight else {}),
            **config.client_tags,
        },
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        principal=client_config(config).security.principal,
    )


def joined(
    config: StreamsConfig,
    membership: GroupMembership,
    on_disk: SetTaskOffsets,
    network: NetworkThread,
    surroundings: Surroundings,
) -> GroupMember:
    """Returns a member that has started to join, with the configured protocol."""
    if config.group_instance_id is not None:
        timeout_ms = _session_timeout_ms(config.application_id, network)
        membership = replace(membership, streams_session_timeout_ms=timeout_ms)
    if config.group_protocol == "classic":
        return network.join_classic_group(_classic_member(config, membership, on_disk, surroundings))
    return network.join_group(Member(membership, on_disk))


def _classic_member(
    config: StreamsConfig, membership: GroupMembership, on_disk: SetTaskOffsets, surroundings: Surroundings
) -> ClassicMember:
    # A tenth of what a start imports, and members of streams groups don't need it.
    from streamsrt.membership.classic.member import WATCH_INTERVAL_MS, ClassicMember

    return ClassicMember(
        replace(membership, session_timeout_ms=config.session_timeout_ms),
        leader_settings(config),
        on_disk,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        unique=surroundings.new_id().int & 0x3FFF_FFFF,
        watch_interval_ms=min(WATCH_INTERVAL_MS, config.metadata_max_age_ms),
    )


def leader_settings(config: StreamsConfig) -> LeaderSettings:
    """The settings that this instance uses while it leads a classic group."""
    from streamsrt.membership.classic.leader_assignments import LeaderSettings

    return LeaderSettings(
        group_id=config.application_id,
        session_timeout_ms=config.session_timeout_ms,
        num_standby_replicas=config.num_standby_replicas,
        num_warmup_replicas=config.max_warmup_replicas,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        rack_tags=tuple(tag.strip() for tag in config.rack_aware_assignment_tags.split(",") if tag.strip()),
        probing_interval_ms=config.probing_rebalance_interval_ms,
    )


def _session_timeout_ms(group_id: str, network: NetworkThread) -> int:
    """Returns the group's session timeout, which no response to a member contains; Kafka's default if the broker does not
    report it."""
    try:
        timeout_ms = network.admin.describe_group_configs(group_id).get("streams.session.timeout.ms")
    except StreamsError as error:
        logger.debug("the session timeout of group %s is not known: %s", group_id, error)
        timeout_ms = None
    return DEFAULT_SESSION_TIMEOUT_MS if timeout_ms is None else int(timeout_ms)


_BATCH_SLACK_BYTES = 16_384
"""What a request has around its batches; a batch of that much less than ``max.request.size`` fits into one."""

_TOPICS_PAUSE_S = 0.25
_ITERATION_MAX_MS = 1_000
_TURN_MS = 100
_LAST_LETTERS_TIMEOUT_S = 10.0
_LEAST_GLOBAL_CACHE_BYTES = 1 << 20
_GLOBAL_PART = 4
"""Global stores get a quarter of the record caches, where there are any."""


def refuse_missing_topics(topology: Topology, config: StreamsConfig, admin: Administering) -> None:
    """Called before the group is joined. Raises MissingTopicError if an output topic does not exist, and what
    :func:`await_first_topics` raises."""
    _refuse_missing_outputs(topology, config, admin)
    await_first_topics(topology, config, admin)


def _refuse_missing_outputs(topology: Topology, config: StreamsConfig, admin: Administering) -> None:
    """The message names missing input topics, too."""
    outputs = {
        sink.topic
        for subtopology in topology.subtopologies
        for sink in subtopology.sinks
        if sink.topic is not None and not sink.repartition
    }
    if config.errors_dead_letter_queue_topic_name is not None:
        outputs.add(config.errors_dead_letter_queue_topic_name)
    missing = outputs - set(admin.topics(outputs)) if outputs else outputs
    if not missing:
        return
    inputs = {topic for subtopology in topology.subtopologies for topic in subtopology.source_topics}
    listed = sorted(missing | inputs - set(admin.topics(inputs)))
    raise MissingTopicError(
        f"the application needs topics that don't exist: {', '.join(listed)}. Create them "
        f"(streamsrt topics create {' '.join(listed)} --partitions N) and start it again."
    )


def await_first_topics(
    topology: Topology,
    config: StreamsConfig,
    admin: Administering,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Waits until the input topics of a streams group's first version exist and fit together.

    A group keeps the first topology that a member sends, even if it can't run, and the corrected one would need the next
    epoch, or on Apache Kafka another group. The first version therefore waits before it joins. Raises MissingTopicError if
    topics are still missing after the time that a member waits for them, UserError if they do not fit.
    """
    if config.group_protocol == "classic":
        return
    (group,) = admin.describe_streams_groups([config.application_id])
    if group.members or group.topology is not None:
        return
    known = topology_of(topology_metadata(topology, config.application_id, subtopology_id=config.subtopology_id))
    has_patterns = any(part.source_topic_patterns for part in topology.subtopologies)
    names = None if has_patterns else {name for part in known.subtopologies for name in _named_topics(part)}
    until_s = clock() + MISSING_SOURCE_TOPICS_TIMEOUT_MS / 1000
    while True:
        try:
            there = admin.topics(names).values()
        except RequestFailedError as error:
            logger.debug("the topics of the first version are not checked: %s", error)
            return
        image = TopicsImage.of(*(TopicImage(each.topic_id, each.name, each.partitions) for each in there))
        problem = configure(known, image).problem
        if problem is None or not problem.is_fatal:
            return
        detail = problem.detail.rstrip(". ")
        if problem.status_code is not StatusCode.MISSING_SOURCE_TOPICS:
            advice = ADVICE[problem.status_code]
            raise UserError(f"the topics of the application don't fit together: {detail}. {advice}.")
        if clock() >= until_s:
            raise MissingTopicError(
                f"the application can't run without its source topics: {detail}. Create them (streamsrt topics create NAME "
                "--partitions N) and start it again."
            )
        pause(_TOPICS_PAUSE_S)


def _named_topics(part: Subtopology) -> set[str]:
    return {*part.source_topics, *part.own_changelogs, *(topic.name for topic in part.repartition_sources)}


class PartitionCounts:
    """The partition count of output topics, each looked up once until :meth:`forget`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._known: dict[str, int] = {}

    def __call__(self, topic: str) -> int:
        """For a result: the cluster's silence is not the record's fault, so no handler is asked, and the tasks start over.
        Raises MissingTopicError, DeliveryTimeoutError."""
        try:
            return self.look_up(topic)
        except BrokerError as error:
            raise DeliveryTimeoutError(
                f"the partitions of topic {topic!r} can't be looked up: {error}", topic
            ) from error

    def look_up(self, topic: str) -> int:
        """Raises MissingTopicError, BrokerError."""
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

    def note(self, counts: Mapping[str, int]) -> None:
        """Takes over the counts of topics that are not known yet: those that tasks go by stay until these start over."""
        for topic, count in counts.items():
            self._known.setdefault(topic, count)

    def forget(self) -> None:
        self._known.clear()


def without_old_state(directory: StateDirectory, config: StreamsConfig) -> StateDirectory:
    """Returns the directory after deleting state that was not written to for ``state.cleanup.dir.max.age.ms``. Called
    before anything is open."""
    max_age_ms = config.state_cleanup_dir_max_age_ms
    if max_age_ms >= 0:
        for store, partition in directory.clean_obsolete(time.time_ns() // 1_000_000, max_age_ms):
            logger.info(
                "store %s of partition %d is deleted: nothing was written to it for state.cleanup.dir.max.age.ms",
                store,
                partition,
            )
    return directory


def endpoint(server: str) -> Endpoint | None:
    if not server:
        return None
    address = host_and_port(server)
    if address is None:
        raise ConfigError(f"application.server={server!r}: expected HOST:PORT")
    return Endpoint(*address)


def own_host(config: StreamsConfig) -> HostInfo | None:
    """The address at which this instance answers queries, if it is configured."""
    own = endpoint(config.application_server)
    return None if own is None else HostInfo(own.host, own.port)


def topology_settings(config: StreamsConfig) -> dict[str, Any]:
    """The topology's part of the configuration: settings of its internal topics and stores."""
    return {
        **{f"topic.{key}": value for key, value in config.topic_configs.items()},
        "upgrade.from": config.upgrade_from or "",
        "dsl.store.format": config.dsl_store_format,
        "dsl.store.suppliers.class": config.dsl_store_suppliers_class,
        "windowstore.changelog.additional.retention.ms": config.windowstore_changelog_additional_retention_ms,
    }


def ready_topology(topology: Topology, config: StreamsConfig) -> Topology:
    """Returns the topology as an instance with this configuration runs it. Raises MissingSerdeError."""
    configured = topology.configured(topology_settings(config))
    ready = configured.with_default_serdes(config.default_key_serde, config.default_value_serde)
    return ready if config.topology_epoch is None else replace(ready, epoch=config.topology_epoch)


def set_standbys_of_group(config: StreamsConfig, network: NetworkThread) -> None:
    """Writes the number of standbys into the settings of the group, where the program has one."""
    if "num_standby_replicas" in config.model_fields_set and config.group_protocol == "streams":
        standbys = str(config.num_standby_replicas)
        network.admin.alter_group_configs(config.application_id, {"streams.num.standby.replicas": standbys})


def refuse_other_build(topology: Topology, config: StreamsConfig) -> None:
    """Raises ConfigError where a setting that changes topologies was not given to the builder, too."""
    wanted, built = config.topology_optimization, dict(topology.settings).get("topology.optimization", "none")
    if wanted is not None and wanted != built:
        raise ConfigError(
            f"topology.optimization={wanted}, but the topology was built with {built}: give the setting to "
            "builder.build({...}) too"
        )
    if config.processor_wrapper_class is not None and not topology.is_wrapped:
        raise ConfigError(
            "processor.wrapper.class is set, but the topology was built without it: give the setting to "
            "builder.build({...}) too"
        )


def _iteration_max_ms(config: StreamsConfig) -> int:
    """Limits an iteration: with slow functions, too, an instance obeys a signal and gives up tasks within about a second.

    With exactly once, a late commit would let the transaction time out.
    """
    if not config.is_exactly_once:
        return _ITERATION_MAX_MS
    return max(1, min(max(config.commit_interval_ms, _TURN_MS), config.transaction_timeout_ms // 4))


def client_config(config: StreamsConfig, process_id: str = "", thread: int = 1) -> ClientConfig:
    """Returns the network's part of the configuration. ``process_id``: of the state directory; with the number of the
    stream thread it identifies the transactions of an instance across restarts."""
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
            transactional_id=f"{config.application_id}-{process_id}-{thread}" if config.is_exactly_once else None,
            transactional_id_prefix=f"{config.application_id}-",
            transaction_timeout_ms=config.transaction_timeout_ms,
        ),
    )
