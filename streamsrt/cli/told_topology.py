"""The subtopologies of a classic group, as its members tell them: as a streams group describes its own.

Members tell hashes of topic names, which are found among the topics of the cluster. If one is not found, for instance
because its topic was deleted, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamsrt.membership.state_marks import name_mark
from streamsrt.membership.told_parts import ToldPart, told_parts
from streamsrt.runtime.group_facts import MemberFacts
from streamsrt.wire.types import StreamsGroupDescribeResponse


def told_subtopologies(
    members: Iterable[MemberFacts], topics: Iterable[str]
) -> list[StreamsGroupDescribeResponse.Subtopology]:
    """What members of one version tell; empty if they don't. ``topics``: the names of the cluster's."""
    told = next((parts for member in members if (parts := told_parts(member.state_tags))), [])
    names = {name_mark(topic): topic for topic in topics} if told else {}
    if any(topic not in names for part in told for topic in part.topics):
        return []

    def named(hashes: Sequence[str]) -> list[str]:
        return [names[each] for each in hashes]

    def described(part: ToldPart) -> StreamsGroupDescribeResponse.Subtopology:
        topic = StreamsGroupDescribeResponse.TopicInfo
        return StreamsGroupDescribeResponse.Subtopology(
            subtopology_id=part.id,
            source_topics=named(part.sources),
            repartition_sink_topics=named(part.repartition_sinks),
            state_changelog_topics=[topic(name=name) for name in named(part.changelogs)],
            repartition_source_topics=[topic(name=name) for name in named(part.repartition_sources)],
        )

    return list(map(described, told))
