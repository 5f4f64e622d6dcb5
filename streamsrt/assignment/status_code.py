"""The status codes of KIP-1071, which coordinators and leaders of classic groups send and members read."""

from __future__ import annotations

from enum import IntEnum


class StatusCode(IntEnum):
    """A status of the group in a heartbeat response that is not an error."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
