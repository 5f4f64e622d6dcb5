"""When the coordinator creates the internal topics of a group, and extends their retention.

1. One attempt at a time, for all topics that are missing.
2. After a failure the next attempt waits: 100 ms, doubled each time, at most 30 s, with a small offset per group.
3. An attempt without a result after 30 s counts as lost.
4. An existing changelog keeps its records at least as long as an accepted topology requires. Its retention is never
   reduced: a value set by hand, or for an older version, stays until the next topology.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace

from coordinator.group.streams.state import Creation
from coordinator.group.values import CreateInternalTopics, RaiseRetention
from coordinator.group.waits import goes_on
from streamsrt.assignment.topics import TopicsImage, TopicSpec
from streamsrt.assignment.topology import Topology

FIRST_BACKOFF_MS = 100
MAX_BACKOFF_MS = 30_000
LOST_AFTER_MS = 30_000

NO_CREATION = Creation()

_KEPT_FOR = ("retention.ms", "min.compaction.lag.ms")
_FOR_EVER = -1
_LONG_DIGITS = 20
"""No number of 64 bits is longer, its sign included."""


def raised_retention(topology: Topology, image: TopicsImage, group_id: str) -> RaiseRetention | None:
    """Returns the retention that a topology requires of its existing changelogs; None if it requires none."""
    found: dict[str, dict[str, int]] = {}
    for part in topology.subtopologies:
        own = set(part.own_changelogs)
        for topic in part.changelogs:
            # A topic with another name may belong to anyone.
            if topic.name in own and topic.name in image and topic.name.startswith(f"{group_id}-"):
                requested = {key: int(text) for key, text in topic.configs if key in _KEPT_FOR and _is_number(text)}
                if requested:
                    found[topic.name] = requested
    return RaiseRetention(group_id, found) if found else None


def keeps_longer(requested_ms: int, has_ms: int) -> bool:
    """Whether a topic would have to keep its records longer than it does."""
    return has_ms != _FOR_EVER and (requested_ms == _FOR_EVER or requested_ms > has_ms)


def _is_number(text: str) -> bool:
    return text.isascii() and len(text) <= _LONG_DIGITS and text.removeprefix("-").isdigit()


def next_creation(
    creation: Creation, group_id: str, missing: tuple[TopicSpec, ...], now_ms: int
) -> tuple[Creation, CreateInternalTopics | None]:
    """Returns the next state for these missing topics, and the attempt to make now, if any."""
    if not missing:
        return (creation if creation == NO_CREATION else NO_CREATION), None
    if goes_on(creation.next_attempt_ms, now_ms, at_most_ms=LOST_AFTER_MS):
        return creation, None
    started = replace(creation, in_flight=True, attempts=creation.attempts + 1, next_attempt_ms=now_ms + LOST_AFTER_MS)
    return started, CreateInternalTopics(group_id, missing)


def failed_creation(creation: Creation, group_id: str, errors: Mapping[str, str], now_ms: int) -> Creation:
    attempts = max(creation.attempts, 1)
    backoff = min(FIRST_BACKOFF_MS * 2 ** min(attempts - 1, 16), MAX_BACKOFF_MS)
    spread = zlib.crc32(f"{group_id} {attempts}".encode()) % (backoff // 5 + 1)
    return Creation(False, attempts, now_ms + backoff - spread, dict(errors))


def creation_detail(creation: Creation) -> str:
    """Describes the last failed attempt for the status."""
    if not creation.errors:
        return ""
    listed = ", ".join(f"{name} ({reason})" for name, reason in sorted(creation.errors.items()))
    return f"; Creation failed: {listed}."
