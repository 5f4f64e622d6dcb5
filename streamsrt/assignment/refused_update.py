"""Why a member, or its topology, can't be part of a group: code and text, the same whoever leads the group.

Each text says what is wrong, the group's current value, and what to do about it. What a rollback leaves is said here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamsrt.assignment.configuration import TopicProblem
from streamsrt.assignment.status_code import StatusCode
from streamsrt.wire.error_codes import ErrorCode

_ROLLED_BACK = re.compile(r"rolled back to the topology of epoch (\d+)")
_CREATE_SOURCES = "Create them, or correct the names in the topology, and start this version again."
_FIT_PARTITIONS = (
    "Topics that are joined, and internal topics that exist already, need the same number of partitions. Correct the "
    "numbers of partitions, also those that the program itself fixes with repartition(partitions=), or give the store or "
    "repartition step another name, so that it gets its own topic, and start this version again. After a raise of partition "
    "counts, stop all instances and run streamsrt state repartition, which moves the state."
)


class Refusal(NamedTuple):
    """The reason why a member can't be part of the group: the protocol's error code, and the message for the member.
    ``is_same_topology``: the member has the group's topology, so another version is no remedy."""

    code: ErrorCode
    text: str
    is_same_topology: bool = False


def same_epoch(group_id: str, epoch: int, *, has_same_topics: bool = False) -> Refusal:
    """Refuses a topology that differs from the group's under the group's epoch. ``has_same_topics``: only the steps
    between topics and stores differ."""
    how = ": topics and stores are equal, and the steps between them are not" if has_same_topics else ""
    return Refusal(
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
        f"The topology differs from the one of group {group_id}, though both have topology epoch {epoch}{how}. Set "
        f"topology.epoch to {epoch + 1} to update the group's topology.",
    )


def epoch_behind(group_id: str, epoch: int, known: int, *, is_same: bool = False) -> Refusal:
    """Refuses an older version. ``is_same``: it is the group's topology, under an older epoch."""
    reason = (
        f"it is the same topology. Set topology.epoch to {known}."
        if is_same
        else "the group already runs a newer topology."
    )
    return Refusal(
        ErrorCode.STREAMS_TOPOLOGY_FENCED,
        f"Topology epoch {epoch} is behind the topology epoch {known} of group {group_id}: {reason}",
        is_same,
    )


def epoch_too_far_ahead(group_id: str, epoch: int, known: int) -> Refusal:
    return Refusal(
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
        f"Topology epoch {epoch} is too far ahead of the topology epoch {known} of group {group_id}: the next one is "
        f"{known + 1}.",
    )


def could_not_run(group_id: str, epoch: int, known: int, problem: str) -> Refusal:
    """Refuses an update whose members would have no tasks."""
    return Refusal(
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        f"Topology epoch {epoch} can't replace topology epoch {known} of group {group_id}, which continues unchanged. "
        f"{problem}",
    )


def topics_problem(problem: TopicProblem) -> str:
    """Describes topic errors that the coordinator can't fix, and how to fix them."""
    remedy = _CREATE_SOURCES if problem.status_code == StatusCode.MISSING_SOURCE_TOPICS else _FIT_PARTITIONS
    return f"{problem.detail.rstrip('.')}. {remedy}"


def creation_problem(reasons: Mapping[str, str]) -> str:
    """Describes why internal topics can't be created, by their names."""
    listed = "; ".join(f"{name}: {reason.rstrip('. ')}" for name, reason in reasons.items())
    return f"Internal topics can't be created: {listed}. Correct the topology and start this version again."


def unauthorized(names: Iterable[str]) -> str:
    return f"Unauthorized to CREATE on topics {', '.join(names)}."


def beside_java(group_id: str, epoch: int, known: int) -> Refusal:
    """Refuses another version than the one that the group runs together with Java's members."""
    return Refusal(
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        f"Group {group_id} has members of Java's Kafka Streams and runs topology epoch {known}. Java has no topology "
        f"epochs, so topology epoch {epoch}, whose topology differs, can't join the group. Stop the last Java "
        "member, then start this version.",
    )


def unlike_java(group_id: str, difference: str) -> Refusal:
    """Refuses a Java member: it only gets an error code, the leader's log has the text."""
    return Refusal(
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        f"An incompatible member of Java's Kafka Streams joined group {group_id}. It gets no tasks: {difference}. "
        "Start it with the topology that the group runs, and with Kafka Streams 2.8 or later.",
    )


def rolled_back(epoch: int) -> str:
    """Returns the reason of an assignment of a group that has the topology of this earlier epoch again."""
    return f"The group was rolled back to the topology of epoch {epoch}"


def named_rollback(why: str) -> int | None:
    """Parses the epoch of :func:`rolled_back` from the reason of an assignment; None: the group was not rolled back."""
    found = _ROLLED_BACK.search(why)
    return None if found is None else int(found[1])
