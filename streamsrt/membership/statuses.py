"""What the statuses of a heartbeat's answer mean for whoever runs the application: why nothing happens, and what to do.

Source: KIP-1071, ``StreamsGroupHeartbeatResponse.Status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from streamsrt.membership.values import Status, StatusCode

ADVICE: Mapping[StatusCode, str] = MappingProxyType(
    {
        StatusCode.STALE_TOPOLOGY: (
            "This member keeps the tasks that it has and gets no new ones. Start it anew with the version of the "
            "application that the group runs"
        ),
        StatusCode.MISSING_SOURCE_TOPICS: (
            "No task runs until they are there. Create them (streamsrt topics create NAME --partitions N), or correct the "
            "names in the topology"
        ),
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS: (
            "Topics that are joined, and internal topics that exist already, need the same number of partitions: create "
            "them anew, or repartition() a stream before it is joined"
        ),
        StatusCode.MISSING_INTERNAL_TOPICS: (
            "Tasks run when the group coordinator has created them. Where that takes long, what it says here, the broker's "
            "log and the space on its disk say why"
        ),
        StatusCode.SHUTDOWN_APPLICATION: (
            "This instance commits and ends. The log of that member says what failed; start the instances again when the "
            "cause is gone"
        ),
        StatusCode.ASSIGNMENT_DELAYED: (
            "Tasks come when the delay is over: nothing is to be done (group.streams.initial.rebalance.delay.ms and "
            "group.streams.assignment.interval.ms of the broker)"
        ),
        StatusCode.MISSING_CLIENT_TAGS: (
            "Until then standby tasks go anywhere. The group's streams.rack.aware.assignment.tags name the tags; set "
            "client.tag.NAME here, or change that"
        ),
    }
)

NO_TASKS_BY = (
    StatusCode.STALE_TOPOLOGY,
    StatusCode.MISSING_SOURCE_TOPICS,
    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
    StatusCode.MISSING_INTERNAL_TOPICS,
    StatusCode.ASSIGNMENT_DELAYED,
)
"""Statuses for which a member may have no tasks though there is work for it."""


def status_text(status: Status) -> str:
    """The status by its name, what the coordinator says of it, and what to do."""
    return f"{status.code.name}: {status.detail.rstrip('. ')}. {ADVICE[status.code]}"


def passes_by_itself(status: Status) -> bool:
    """Whether it is only the way that a group takes: internal topics that are about to be made, an assignment to come."""
    if status.code is StatusCode.MISSING_INTERNAL_TOPICS:
        return "failed" not in status.detail
    return status.code is StatusCode.ASSIGNMENT_DELAYED
