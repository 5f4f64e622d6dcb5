"""When the coordinator creates the internal topics of a group.

1. One attempt at a time, for all topics that are missing.
2. After a failure the next attempt waits: 100 ms, doubled each time, 30 s at most, spread a little by group.
3. An attempt of which nothing is heard for 30 s counts as lost.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace

from coordinator.group.streams.state import Creation
from coordinator.group.values import CreateInternalTopics, TopicSpec

FIRST_BACKOFF_MS = 100
MAX_BACKOFF_MS = 30_000
LOST_AFTER_MS = 30_000

NO_CREATION = Creation()


def next_creation(
    creation: Creation, group_id: str, missing: tuple[TopicSpec, ...], now_ms: int
) -> tuple[Creation, CreateInternalTopics | None]:
    """The state after this look at what is missing, and the attempt to make now, if any."""
    if not missing:
        return (creation if creation == NO_CREATION else NO_CREATION), None
    if now_ms < creation.next_attempt_ms:
        return creation, None
    started = replace(creation, in_flight=True, attempts=creation.attempts + 1, next_attempt_ms=now_ms + LOST_AFTER_MS)
    return started, CreateInternalTopics(group_id, missing)


def failed_creation(creation: Creation, group_id: str, errors: Mapping[str, str], now_ms: int) -> Creation:
    attempts = max(creation.attempts, 1)
    backoff = min(FIRST_BACKOFF_MS * 2 ** min(attempts - 1, 16), MAX_BACKOFF_MS)
    spread = zlib.crc32(f"{group_id} {attempts}".encode()) % (backoff // 5 + 1)
    return Creation(False, attempts, now_ms + backoff - spread, dict(errors))


def creation_detail(creation: Creation) -> str:
    """What the status adds about the last attempt that failed."""
    if not creation.errors:
        return ""
    listed = ", ".join(f"{name} ({reason})" for name, reason in sorted(creation.errors.items()))
    return f"; Creation failed: {listed}."
