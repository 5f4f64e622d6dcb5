"""Whether a group can go back to the version that ran before, and what keeps it from that.

1. ``upgrade abort`` and the status judge by the same function, so that the status advises no abort that is refused.
2. The former version is the one that members run before the newest: its epoch, repartition topics and versions of values
   are what these members report.
3. Values are looked for only while two versions meet: in the changelogs for which the newer members report a later version,
   or in all of them if these members are gone. If no instance runs, all versions above the first are taken for later ones.
   What can't be read, for lack of a right, counts as readable: ``upgrade abort`` needs that right, too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from streamsrt.assignment.in_flight import is_called_repartition
from streamsrt.assignment.value_versions import ValueVersion
from streamsrt.client.network import NetworkThread
from streamsrt.errors import BrokerError
from streamsrt.runtime.group_facts import (
    Committed,
    GroupFacts,
    MemberFacts,
    changelogs_there,
    describe,
    facts_of,
    unread_records,
    with_left,
)
from streamsrt.runtime.written_values import ENDS_RECORDS, LatestVersions

logger = logging.getLogger(__name__)

Obstacle: TypeAlias = Literal["values", "nobody", "records"]
"""``values``: a later version has written values that the former one can't read. ``nobody``: no instance of the former
version runs, or none says that it does. ``records``: only the later version reads records that are in flight."""

PATIENCE_S = 5.0
_PLAIN = ValueVersion(1)


def obstacle(
    leaving: Sequence[MemberFacts],
    staying: Sequence[MemberFacts],
    *,
    has_later_values: bool,
    has_unread: bool,
) -> Obstacle | None:
    """Returns what a rollback is refused for first; None if nothing is in its way."""
    if has_later_values:
        return "values"
    if leaving and not staying:
        return "nobody"
    return "records" if has_unread else None


class FormerVersion(NamedTuple):
    """The version that a group would go back to. ``members``: those that run it; ``leaving``: those with a later one."""

    epoch: int
    members: Sequence[MemberFacts]
    leaving: Sequence[MemberFacts]

    def reads(self, changelog: str) -> int:
        """Returns up to which version it reads the values of that changelog."""
        told = (each.value_versions.get(changelog, _PLAIN).version for each in self.members)
        return min(told, default=_PLAIN.version)

    @property
    def unwritten(self) -> dict[str, int]:
        """The later versions of values that leaving members report, by changelog: what they write sooner or later."""
        told = ((log, each.version) for member in self.leaving for log, each in member.value_versions.items())
        return {log: version for log, version in sorted(told) if version > self.reads(log)}


def former_version(facts: GroupFacts) -> FormerVersion | None:
    """Returns the version that ran before the newest; None if only one version is known, or not what members run."""
    epochs = facts.epochs
    if not facts.knows_versions or not epochs or facts.epoch is None or facts.rolled_back_to:
        return None
    if epochs[0] < facts.epoch:
        return FormerVersion(epochs[0], facts.with_epoch(epochs[0]), ())
    if len(epochs) == 1:
        return None
    newer = [each for each in facts.members if each.epoch is not None and each.epoch > epochs[1]]
    return FormerVersion(epochs[1], facts.with_epoch(epochs[1]), newer)


def way_back(facts: GroupFacts, former: FormerVersion) -> Obstacle | None:
    """Returns what ``upgrade abort`` to that version would be refused for, as far as ``facts`` tell; None if nothing is."""
    staying = [each for each in former.members if each.digest is not None]
    return obstacle(
        former.leaving if staying else [*former.leaving, *former.members],
        staying,
        has_later_values=bool(facts.later_values),
        has_unread=bool(facts.only_later_reads),
    )


def only_later_topics(facts: GroupFacts, former: FormerVersion) -> frozenset[str]:
    """Returns repartition topics of later versions that the former one does not have, as far as the group knows both."""
    if facts.kind == "classic":
        own = frozenset().union(*(each.reads for each in former.members))
        return topics_of_later(facts, former.epoch, own, former.leaving)
    own_topics = [each.repartition_topics for each in facts.versions if each.epoch == former.epoch]
    return topics_of_later(facts, former.epoch, own_topics[0], former.leaving) if own_topics else frozenset()


def topics_of_later(
    facts: GroupFacts, epoch: int, own: Collection[str], leaving: Sequence[MemberFacts]
) -> frozenset[str]:
    """Returns the repartition topics that a rollback to the version with that epoch leaves without a reader.

    ``own``: the topics that it reads itself. Of a streams group these are topics of its later versions, but for those that
    it was rolled back from already; of a classic group those that the members that leave read.
    """
    if facts.kind == "classic":
        known = [each.reads for each in leaving]
    else:
        later = [each for each in facts.versions if each.epoch > epoch and not each.is_sent_back]
        known = [facts.repartition_topics, *(each.repartition_topics for each in later)]
    known_topics = frozenset[str]().union(*known)
    return frozenset(topic for topic in known_topics.difference(own) if is_called_repartition(facts.name, topic))


class WayBack:
    """Looks at a group again and again, and adds to what is known of it what rules out a rollback.

    Each look at changelogs ends after ``patience_s`` seconds; the next one goes on.
    """

    def __init__(self, network: NetworkThread, *, patience_s: float = PATIENCE_S) -> None:
        self._network = network
        self._patience_s = patience_s
        self._values = LatestVersions(network, records=ENDS_RECORDS)

    def group(self, name: str) -> GroupFacts:
        """Returns the present state of the group, with all unread records. Raises ConfigError if it does not exist,
        RequestFailedError if it can't be described, BrokerError."""
        admin = self._network.admin
        described = describe(admin, name)
        committed = admin.committed(name)
        return self.look(with_left(admin, facts_of(admin, described, committed), committed), committed)

    def look(self, facts: GroupFacts, committed: Committed) -> GroupFacts:
        """Adds ``later_values`` and ``only_later_reads``. ``committed``: the group's committed offsets."""
        former = former_version(facts)
        if not facts.members and not all(each.has_taken_over for each in facts.versions):
            # What the version before reads is not known.
            return replace(facts, later_values=self._later_values(facts, FormerVersion(-1, (), ())))
        if former is None:
            self._values = LatestVersions(self._network, records=ENDS_RECORDS)
            return facts
        topics = only_later_topics(facts, former)
        unread = unread_records(self._network.admin, facts.name, topics, committed) if topics else {}
        return replace(facts, later_values=self._later_values(facts, former), only_later_reads=unread)

    def _later_values(self, facts: GroupFacts, former: FormerVersion) -> Mapping[str, int]:
        logs = former.unwritten.keys() if former.leaving else set(changelogs_there(self._network.admin, facts.name))
        try:
            found = self._values.of(logs, self._patience_s) if logs else {}
        except BrokerError as error:
            # Who follows an upgrade may lack the right to read the changelogs, which upgrade abort needs.
            logger.debug("it is not known whether a later version has written values of stores: %s", error)
            return {}
        return {log: version for log, version in sorted(found.items()) if version > former.reads(log)}
