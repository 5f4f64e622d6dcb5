"""What would refuse a new version of an application, or stop it later: found before any instance is stopped.

1. The function that judges topics is that of the group coordinator and of the leader of a classic group.
2. The cluster itself is asked whether internal topics can be created, by a request that creates none.
3. The rights are those of the user who runs the plan: run it as the user of the application.
4. What a cluster does not report (its rights, for instance) is left out, never assumed to be fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from streamsrt.assignment.configuration import configure
from streamsrt.assignment.refused_update import creation_problem, topics_problem
from streamsrt.assignment.topics import TopicImage, TopicsImage, TopicSpec
from streamsrt.assignment.topology import InvalidTopologyError, check_topology, topology_of
from streamsrt.client.leading import new_topics
from streamsrt.client.network import NetworkThread
from streamsrt.errors import BrokerError
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.tasks.output.refused_records import sinks_of
from streamsrt.wire import types
from streamsrt.wire.features import WHOLE_STREAMS_PROTOCOL
from topology.graph.topology import Topology

_READ, _WRITE = 3, 4
_NAMES = {_READ: "READ", _WRITE: "WRITE"}
_NOT_REPORTED = -(2**31)


def refusals(network: NetworkThread, group: str, kind: str, new: Topology) -> list[str]:
    """Each reason why the new version could not run in this group; empty if it can."""
    return [*of_broker(network, group, kind), *_of_topics(network, group, new), *_of_rights(network, group, new)]


def of_broker(network: NetworkThread, group: str, kind: str) -> Iterator[str]:
    """Why the groups of this broker accept no other topology."""
    if kind == "streams" and WHOLE_STREAMS_PROTOCOL not in network.admin.cluster().features:
        yield (
            "this broker does not update the topology of a streams group: stop all instances, run streamsrt groups "
            f"forget-topology {group} --execute, and start the new version with the next topology.epoch. With "
            "group.protocol=classic, rolling upgrades work"
        )


def _of_topics(network: NetworkThread, group: str, new: Topology) -> Iterator[str]:
    topology = topology_of(topology_metadata(new, group))
    try:
        check_topology(topology)
    except InvalidTopologyError as error:
        yield str(error)
        return
    there = network.admin.topics().values()
    image = TopicsImage.of(
        *(TopicImage(each.topic_id, each.name, each.partitions) for each in there if not each.is_internal)
    )
    found = configure(topology, image)
    if found.problem is not None and found.problem.is_fatal:
        yield topics_problem(found.problem)
    elif found.to_create:
        yield from _of_creation(network, found.to_create)
    tables = sorted(name for part in new.global_subtopologies for name in part.source_topics if name not in image)
    if tables:
        yield f"topics {', '.join(tables)}, which global tables are read from, don't exist: create them"
    missing = sorted(name for name in _outputs(new) if name not in image)
    if missing:
        yield (
            f"topics {', '.join(missing)} are written to and don't exist: create them (streamsrt topics create "
            f"{' '.join(missing)} --partitions N)"
        )


def _of_creation(network: NetworkThread, specs: Iterable[TopicSpec]) -> Iterator[str]:
    answers = network.admin.create_topics(new_topics(specs), validate_only=True)
    reasons = {name: str(error) for name, error in answers.items() if error is not None}
    if reasons:
        yield creation_problem(reasons)


def _of_rights(network: NetworkThread, group: str, new: Topology) -> Iterator[str]:
    needed = _needed(group, new)
    request = types.MetadataRequest(
        topics=[types.MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(needed)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    for topic in network.request(request).result().topics:
        missing = _missing(topic.topic_authorized_operations, needed.get(topic.name or "", set()))
        if not topic.error_code and missing:
            yield f"the rights {missing} on topic {topic.name} are missing"
    described = types.DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    try:
        answer = network.request(described, coordinator_of=group).result()
    except BrokerError:
        return
    missing = _missing(answer.groups[0].authorized_operations, {_READ})
    if not answer.groups[0].error_code and missing:
        yield f"the right {missing} on group {group} is missing"


def _needed(group: str, new: Topology) -> Mapping[str, set[int]]:
    """Operations by topic."""
    needed: dict[str, set[int]] = {}
    for part in new.all_subtopologies:
        for name in part.source_topics:
            needed.setdefault(name, set()).add(_READ)
        for topic in (*part.changelog_topics, *part.repartition_source_topics):
            name = topic.name if topic.is_source else f"{group}-{topic.name}"
            needed.setdefault(name, set()).update({_READ} if topic.is_source else {_READ, _WRITE})
    for name in _outputs(new):
        needed.setdefault(name, set()).add(_WRITE)
    return needed


def _outputs(new: Topology) -> set[str]:
    return set(sinks_of(new)) - {name for part in new.subtopologies for name in part.repartition_sink_topics}


def _missing(operations: int, needed: set[int]) -> str:
    if operations == _NOT_REPORTED:
        return ""
    return ", ".join(_NAMES[each] for each in sorted(needed) if not operations & 1 << each)
