"""What StreamsGroupDescribe and ListGroups say about a streams group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.group.streams.config import StreamsGroupConfig
from coordinator.group.streams.in_flight import encode_versions
from coordinator.group.streams.state import StreamsGroup, TaskOffsets
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.reconcile import NEVER_ASSIGNED, MemberState
from streamsrt.assignment.targets import assignor_name
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks, wire_tasks
from streamsrt.assignment.topics import TopicsImage
from streamsrt.assignment.topology import InternalTopic, Subtopology
from streamsrt.wire.private_tags import VERSIONS_TAG
from streamsrt.wire.types import StreamsGroupDescribeResponse as Response

DESCRIPTION_NOT_REQUESTED, DESCRIPTION_NOT_STORED = 0, 1


def configuration_of(group: StreamsGroup, image: TopicsImage) -> Configuration | None:
    """Returns the group's topology resolved against these topics, None without a topology."""
    if group.topology is None:
        return None
    known = group.soft.configuration
    if known is not None and known.topology == group.topology and group.soft.image is image:
        return known
    return configure(group.topology, image)


def state_name(group: StreamsGroup, image: TopicsImage) -> str:
    """Empty, NotReady, Assigning, Reconciling or Stable."""
    if group.is_empty:
        return "Empty"
    configuration = configuration_of(group, image)
    if configuration is None or not configuration.is_ready:
        return "NotReady"
    if group.epoch > group.assignment_epoch:
        return "Assigning"
    for name in group.members:
        current = group.current.get(name, NEVER_ASSIGNED)
        if current.epoch != group.assignment_epoch or current.state != MemberState.STABLE:
            return "Reconciling"
    return "Stable"


def described(
    group: StreamsGroup, image: TopicsImage, config: StreamsGroupConfig, *, include_description: bool
) -> Response.DescribedGroup:
    """Returns the group's entry in the response. Topology descriptions are never stored: the broker has no plug-in for
    it."""
    tells_versions = bool(group.older) or (group.topology is not None and bool(group.topology.program))
    return Response.DescribedGroup(
        group_id=group.group_id,
        group_state=state_name(group, image),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(configuration_of(group, image)),
        members=[_member(group, name) for name in sorted(group.members)],
        topology_description_status=DESCRIPTION_NOT_STORED if include_description else DESCRIPTION_NOT_REQUESTED,
        assignor_name=assignor_name(config.assignor_settings, group.topology),
        unknown_tags={VERSIONS_TAG: encode_versions(group)} if tells_versions else None,
    )


def _topology(configuration: Configuration | None) -> Response.Topology | None:
    """Returns the topology with the partition counts of internal topics, once all exist; until then with the requested
    counts, as Apache Kafka does: Java's admin client expects subtopologies whatever the group's state."""
    if configuration is None:
        return None
    counts = configuration.partition_counts if configuration.is_ready else {}
    return Response.Topology(
        epoch=configuration.topology.epoch,
        subtopologies=[_subtopology(part, counts) for part in configuration.resolved.subtopologies],
    )


def _subtopology(part: Subtopology, counts: Mapping[str, int]) -> Response.Subtopology:
    return Response.Subtopology(
        subtopology_id=part.id,
        source_topics=list(part.source_topics),
        repartition_sink_topics=list(part.repartition_sinks),
        state_changelog_topics=[_topic(topic, counts) for topic in part.changelogs],
        repartition_source_topics=[_topic(topic, counts) for topic in part.repartition_sources],
    )


def _topic(topic: InternalTopic, counts: Mapping[str, int]) -> Response.TopicInfo:
    return Response.TopicInfo(
        name=topic.name,
        partitions=counts.get(topic.name, topic.partitions),
        replication_factor=topic.replication_factor,
        topic_configs=[Response.KeyValue(key=key, value=value) for key, value in topic.configs],
    )


def _member(group: StreamsGroup, name: str) -> Response.Member:
    member, current = group.members[name], group.current.get(name, NEVER_ASSIGNED)
    endpoint = member.user_endpoint
    reported = group.soft.task_offsets.get(name, TaskOffsets({}, {}))
    return Response.Member(
        member_id=name,
        member_epoch=current.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Response.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[Response.KeyValue(key=key, value=value) for key, value in member.client_tags],
        task_offsets=_offsets(reported.offsets.items()),
        task_end_offsets=_offsets(reported.end_offsets.items()),
        assignment=_assignment(current.assigned),
        target_assignment=_assignment(group.targets.get(name, NO_TASKS)),
        is_classic=member.classic is not None,
    )


def _offsets(entries: Iterable[tuple[TaskId, int]]) -> list[Response.TaskOffset]:
    return [
        Response.TaskOffset(subtopology_id=task.subtopology_id, partition=task.partition, offset=offset)
        for task, offset in sorted(entries)
    ]


def _assignment(tasks: Tasks) -> Response.Assignment:
    return Response.Assignment(
        active_tasks=wire_tasks(Response.TaskIds, tasks.active),
        standby_tasks=wire_tasks(Response.TaskIds, tasks.standby),
        warmup_tasks=wire_tasks(Response.TaskIds, tasks.warmup),
    )
