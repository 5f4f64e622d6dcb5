"""Whether a topology that a member brings may become the topology of a group that runs another one.

1. A topology update that would leave its members without tasks is refused before it changes anything: source topics are
   missing, partition counts do not fit, internal topics can't be made. The members that are there never hear of it.
2. Internal topics that only are missing are no reason to refuse: they are made as soon as the topology is taken.
3. A group without other members has nothing to protect: its topology is taken and waits for its topics, as at a first start.
"""

from __future__ import annotations

from coordinator.group.refusal import Refused
from coordinator.group.values import RequestContext
from streamsrt.assignment.configuration import MISSING_SOURCE_TOPICS, Configuration
from streamsrt.assignment.topics import TopicSpec
from streamsrt.assignment.topology import Topology
from streamsrt.wire.error_codes import ErrorCode

_CREATE_SOURCES = "Create them, or correct the names in the topology, and start this version again."
_FIT_PARTITIONS = (
    "Topics that are joined, and internal topics that exist already, need the same number of partitions. Give the topics "
    "the counts that they need, or give the store or repartition step another name, so that it gets its own topic, and "
    "start this version again."
)


def check_update(group_id: str, known: Topology, configuration: Configuration, context: RequestContext) -> None:
    """Raises Refused for a topology, as ``configuration`` resolves it, that could not run in the place of ``known``."""
    problem = _problem(configuration, context)
    if problem is not None:
        raise Refused(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topology epoch {configuration.topology.epoch} can't replace topology epoch {known.epoch} of group {group_id}, "
            f"which continues unchanged. {problem}",
        )


def forbidden_topics(missing: tuple[TopicSpec, ...], context: RequestContext) -> list[str]:
    """Which of the missing internal topics the member may not create."""
    rights = context.rights
    return [] if rights is None else [spec.name for spec in missing if not rights.may_create(spec.name)]


def unauthorized_detail(names: list[str]) -> str:
    return f"Unauthorized to CREATE on topics {', '.join(names)}."


def _problem(configuration: Configuration, context: RequestContext) -> str | None:
    missing, problem = configuration.to_create, configuration.problem
    if problem is not None and problem.is_fatal:
        remedy = _CREATE_SOURCES if problem.status_code == MISSING_SOURCE_TOPICS else _FIT_PARTITIONS
        return f"{problem.detail.rstrip('.')}. {remedy}"
    refusals = [] if context.refusal_of_topic is None else [(spec, context.refusal_of_topic(spec)) for spec in missing]
    refused = "; ".join(f"{spec.name}: {reason.rstrip('. ')}" for spec, reason in refusals if reason is not None)
    if refused:
        return f"Internal topics can't be made: {refused}. Correct what the topology asks for and start this version again."
    forbidden = forbidden_topics(missing, context)
    return unauthorized_detail(forbidden) if forbidden else None
