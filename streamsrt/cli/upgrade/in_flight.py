"""What an upgrade that is sent back would leave unread: records in repartition topics that only the later version has.

1. Of a streams group these are the topics of its later topologies, of a classic group those that members with the later
   version read. If a streams group has already taken the former topology, or a classic group has no members, these
   topics are found by name.
2. The counts are those of one moment.
3. No member is removed while there are such records, unless the user has said that they may be lost. They are counted
   again when the group has the next epoch: a classic group may need a while for that, and members write meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from streamsrt.client.network import NetworkThread
from streamsrt.runtime.group_facts import GroupFacts, MemberFacts, repartition_topics_there, unread_records
from streamsrt.runtime.way_back import topics_of_later
from streamsrt.wording import counted
from topology.graph.topology import Topology

InFlight = Mapping[str, int]
"""Records that are not read yet, by topic."""


def topics_left(
    network: NetworkThread,
    facts: GroupFacts,
    former: Topology,
    leaving: Sequence[MemberFacts],
    staying: Sequence[MemberFacts],
    *,
    is_raised: bool,
) -> frozenset[str]:
    """The topics that no member reads once the leaving members are gone and the group runs ``former``."""
    own = {f"{facts.name}-{topic.name}" for part in former.subtopologies for topic in part.repartition_source_topics}
    if is_raised and facts.kind == "streams" and not leaving:
        return frozenset()
    if (is_raised and facts.kind == "streams") or (facts.kind == "classic" and not facts.members):
        return frozenset(repartition_topics_there(network.admin, facts.name)) - own
    lowest = min((each.epoch for each in staying if each.epoch is not None), default=facts.epoch or 0)
    return topics_of_later(facts, lowest, own, leaving)


def unread_of(network: NetworkThread, group: str, topics: Collection[str]) -> InFlight:
    """The number of unread records of a group by topic, for those of these topics that have any."""
    return unread_records(network.admin, group, topics)


def in_flight_lines(old: str, in_flight: InFlight) -> list[str]:
    """A line for each topic."""
    return [
        f"repartition topic {topic}, which {old} does not have, holds {counted(records, 'record')} not read yet"
        for topic, records in in_flight.items()
    ]


def refusal(old: str, facts: GroupFacts, epoch: int, leaving: Sequence[MemberFacts]) -> str:
    """Why no member is removed, and what to do."""
    if facts.kind == "classic" and not facts.members:
        return (
            f"no instance runs, and {old} does not start without them: start the version that has these topics, and {old} "
            "beside it if that has unread records in its own, each with the topology.epoch that it had. The earlier one "
            "reads its own first. Or start it with --lose-in-flight: the records stay unread in their topics, where a "
            "version that has those reads them later"
        )
    readers = [each for each in leaving if not each.is_away]
    later = max((each.epoch for each in readers if each.epoch is not None), default=facts.epoch)
    begin = (
        "let the instances of the later version run"
        if readers
        else f"start the later version again, with topology epoch {later}"
    )
    return (
        "only the later version reads these records. Without it they stay unread, and tasks that share state with "
        f"their readers wait. {how_to_read(old, facts.name, epoch, begin)}"
    )


def how_to_read(old: str, group: str, epoch: int, begin: str) -> str:
    """How to have the records read by the later version while going back from it. ``begin``: what to do first."""
    return (
        f"To have them read: {begin}; restart the instances of {old} one by one with the next "
        f"epoch (streamsrt run {old} -a {group} --config topology.epoch={epoch}), and start more if these are "
        "fewer than half of all instances. They take over the tasks that write to the topics, and the later version "
        "reads the topics to the end. Stop its instances when they have no active task left (streamsrt upgrade "
        f"status --group {group}). To leave the records unread: --lose-in-flight"
    )
