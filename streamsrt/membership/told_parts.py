"""The subtopologies of a member of a classic group, short enough that each member can tell them all.

1. A broker knows the topology of a streams group, and describes it. Of a classic group, only the members know it: a client
   tag has the ids of the subtopologies, and a hash in place of each topic's name. Who reads it knows the names in the
   cluster.
2. All or nothing is told: nothing of a topology with many topics, or with source topics by pattern.
3. A tag in another format says nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamsrt.membership.state_marks import MarkReader, name_mark
from streamsrt.wire.client_tags import TOPOLOGY_PARTS
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

MOST_TOPICS = 128
"""How many topics the told subtopologies have, all in all."""

_FORMAT = "1"
_HASH_BYTES = 5
_LONGEST = 255


class ToldPart(NamedTuple):
    """A subtopology: its id, and the hashes of the topics that it reads, writes to or keeps its stores in."""

    id: str
    sources: tuple[str, ...]
    repartition_sources: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    changelogs: tuple[str, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.sources, *self.repartition_sources, *self.repartition_sinks, *self.changelogs)


def parts_tag(topology: StreamsGroupHeartbeatRequest.Topology) -> dict[str, str]:
    """The client tag of a member with this topology; none if it tells nothing."""
    parts = [
        ToldPart(
            part.subtopology_id,
            _hashes(part.source_topics),
            _hashes([topic.name for topic in part.repartition_source_topics]),
            _hashes(part.repartition_sink_topics),
            _hashes([topic.name for topic in part.state_changelog_topics]),
        )
        for part in topology.subtopologies
    ]
    is_long = sum(len(part.topics) for part in parts) > MOST_TOPICS or any(len(part.id) > _LONGEST for part in parts)
    if not parts or is_long or any(part.source_topic_regex for part in topology.subtopologies):
        return {}
    data = b"".join(map(_packed, parts))
    return {TOPOLOGY_PARTS: _FORMAT + base64.urlsafe_b64encode(data).decode().rstrip("=")}


def told_parts(client_tags: Mapping[str, str]) -> list[ToldPart]:
    """The subtopologies that a member with these tags tells; empty if it tells none."""
    text = client_tags.get(TOPOLOGY_PARTS, "")
    if not text.startswith(_FORMAT):
        return []
    encoded = text.removeprefix(_FORMAT)
    found = []
    try:
        data = MarkReader(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        while data.is_left:
            (size,) = data.take(1)
            name = data.take(size).decode()
            topics = [
                tuple(data.take(_HASH_BYTES).hex() for _ in range(count))
                for count in data.take(len(ToldPart._fields) - 1)
            ]
            found.append(ToldPart(name, *topics))
    except (binascii.Error, ValueError):
        return []
    return found


def _hashes(topics: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(name_mark, sorted(topics)))


def _packed(part: ToldPart) -> bytes:
    name, *topics = part
    encoded = name.encode()
    counts = bytes(map(len, topics))
    return bytes([len(encoded)]) + encoded + counts + bytes.fromhex("".join(each for some in topics for each in some))
