"""Explains the statuses of a heartbeat response to the operator: why nothing is processed, and what to do.

Source: KIP-1071, ``StreamsGroupHeartbeatResponse.Status``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from streamsrt.assignment.in_flight import NOBODY_READS
from streamsrt.assignment.status_code import StatusCode
from streamsrt.membership.values import Status

ADVICE: Mapping[StatusCode, str] = MappingProxyType(
    {
        StatusCode.STALE_TOPOLOGY: (
            "This member continues with its tasks until members with the newer version take them "
            "over. Restart it with the "
            "version of the application that the group runs"
        ),
        StatusCode.MISSING_SOURCE_TOPICS: (
            "No task runs until they exist. Create them (streamsrt topics create NAME --partitions N), or correct the names "
            "in the topology"
        ),
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS: (
            "Topics that are joined, and internal topics that exist already, need the same number of partitions: recreate "
            "them, or repartition() a stream before it is joined. After a raise of partition counts, stop all instances and "
            "run streamsrt state repartition MODULE:TOPOLOGY, which moves the state"
        ),
        StatusCode.MISSING_INTERNAL_TOPICS: (
            "Tasks start when the group coordinator has created them. If that takes long, look for the reason in this "
            "status, in the broker's log, and in the free space on its disk"
        ),
        StatusCode.SHUTDOWN_APPLICATION: (
            "This instance commits and stops. The log of that member says what failed; restart the instances when the "
            "cause is fixed"
        ),
        StatusCode.ASSIGNMENT_DELAYED: (
            "Tasks are assigned after the delay; no action is needed unless the status names one (see the broker's "
            "group.streams.initial.rebalance.delay.ms and group.streams.assignment.interval.ms)"
        ),
        StatusCode.MISSING_CLIENT_TAGS: (
            "Until they are set, standby tasks are assigned without them. Set client.tag.NAME here for each tag in "
            "the group's streams.rack.aware.assignment.tags, or change that setting"
        ),
    }
)

CLASSIC_ADVICE: Mapping[StatusCode, str] = MappingProxyType(
    {
        **ADVICE,
        StatusCode.MISSING_INTERNAL_TOPICS: (
            "Tasks start when the instance that leads the group has created them. If that takes long, look for the reason "
            "in this status: the rights of that instance, the limits of the brokers, and the free space on their disks"
        ),
        StatusCode.ASSIGNMENT_DELAYED: (
            "The instance that leads the group assigns the tasks; it retries automatically. If this "
            "takes long, check the log of that instance"
        ),
        StatusCode.MISSING_CLIENT_TAGS: (
            "Until they are set, standby tasks are assigned without them. Set client.tag.NAME here for each tag in "
            "rack.aware.assignment.tags of the instance that leads the group, or change that setting everywhere"
        ),
    }
)
"""In a classic group, where an instance does what the group coordinator does in a streams group."""

NO_TASKS_BY = (
    StatusCode.STALE_TOPOLOGY,
    StatusCode.MISSING_SOURCE_TOPICS,
    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
    StatusCode.MISSING_INTERNAL_TOPICS,
    StatusCode.ASSIGNMENT_DELAYED,
)
"""Statuses for which a member may have no tasks though there is work for it."""

INITIAL_DELAY = "Assignment delayed due to the configured initial rebalance delay"
"""How Kafka's brokers and the bundled one say that the group waits for more members before it assigns any task."""
INTERVAL_DELAY = "Assignment delayed due to the configured assignment interval"
"""The same for a group that has made an assignment a moment ago."""


_CREATED_MEANWHILE = re.compile(r"Creation failed:(?:,? [^\s,()]+ \([^()]*already exists\.?\))+\.?$")
"""Of Apache Kafka, if members that start together make it create the same topics. It knows them a moment later."""


def status_text(status: Status, *, is_classic: bool = False) -> str:
    """Returns the status by name, the message of the coordinator or a classic group's leader, and what to do."""
    advice = CLASSIC_ADVICE if is_classic else ADVICE
    return f"{status.code.name}: {status.detail.rstrip('. ')}. {advice[status.code]}"


def instance_id_taken_text(wait_ms: int) -> str:
    """Returns why a static member waits, and for how long at most."""
    return (
        "another member has this group.instance.id and has not left. If it is the previous process of this instance and was "
        f"killed, its session expires by itself, and this one joins in {wait_ms / 1000:.0f} s at the latest "
        "(streams.session.timeout.ms of the group). If it is still running, this one fails then"
    )


NOT_READABLE = "has sent this repeatedly: this instance gets no tasks"
"""In the status of a member that can't read the assignments of its leader."""


def passes_by_itself(status: Status) -> bool:
    """Whether the status is temporary: internal topics that are being created, a pending assignment."""
    if status.code is StatusCode.MISSING_INTERNAL_TOPICS:
        problems = _CREATED_MEANWHILE.sub("", status.detail)
        return not any(word in problems for word in ("failed", "Unauthorized"))
    lasts = NOBODY_READS in status.detail or NOT_READABLE in status.detail
    return status.code is StatusCode.ASSIGNMENT_DELAYED and not lasts


def is_short_delay(status: Status) -> bool:
    """Whether an assignment is a matter of seconds: the group's delays, and topics that are being created."""
    if status.code is StatusCode.ASSIGNMENT_DELAYED:
        return status.detail.startswith((INITIAL_DELAY, INTERVAL_DELAY))
    return status.code is StatusCode.MISSING_INTERNAL_TOPICS and passes_by_itself(status)
