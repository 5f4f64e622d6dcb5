"""Resolves what a group subscribes to: names, regular expressions, and the topics that they match now.

1. Regular expressions have RE2's syntax and match whole names, those of the broker's own topics too, as on Apache Kafka.
2. The topics of an expression are a record: after a failover members subscribe to what they subscribed to before, and new
   topics are seen with the first heartbeat.
3. An expression means only topics that the member whose request it is resolved for may describe.
4. Names and expressions are looked at again when a subscription or the topics have changed, and only then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from coordinator.group.consumer.records import regex_record, regex_tombstone
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.values import GroupRecord
from streamsrt.assignment.topic_pattern import matching
from streamsrt.assignment.topics import TopicsImage


def matching_topics(regex: str, image: TopicsImage) -> frozenset[str]:
    """Returns the topics that a regular expression matches."""
    return matching(regex, image)


def regex_records(
    group: ConsumerGroup, image: TopicsImage, now_ms: int, *, all_of_them: bool, is_visible: Callable[[str], bool]
) -> list[GroupRecord]:
    """Returns records of regular expressions that are new, match other topics than before, or are no longer used.

    ``all_of_them``: those that are known are looked at too, because the topics have changed. ``is_visible``: whether a
    topic may be described.
    """
    records = []
    for regex in sorted(group.patterns):
        known = group.regexes.get(regex)
        if known is not None and not all_of_them:
            continue
        topics = frozenset(filter(is_visible, matching_topics(regex, image)))
        if known is None or known.topics != topics:
            version = known.version + 1 if known is not None else 1
            records.append(regex_record(group.group_id, regex, topics, version=version, timestamp_ms=now_ms))
    unused = sorted(regex for regex in group.regexes if regex not in group.patterns)
    return records + [regex_tombstone(group.group_id, regex) for regex in unused]


def metadata_hash(names: Iterable[str], image: TopicsImage) -> int:
    """Returns a number that changes when a topic is created, extended, deleted, or recreated; 0 if there is none."""
    digest = hashlib.sha256()
    found = False
    for name in sorted(names):
        topic = image.get(name)
        if topic is not None:
            found = True
            digest.update(f"{name}\0{topic.partitions}\0".encode() + topic.id)
    return int.from_bytes(digest.digest()[:8], "big", signed=True) if found else 0
