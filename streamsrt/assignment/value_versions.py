"""Versions of the values in stores, as members report them, and updates that they rule out.

1. A member reports them in a client tag, for stores whose values have a version above 1: the changelog, the version,
   and the earlier versions for which there are upcasts. A member that reports nothing has version 1.
2. While old members read a repartition topic that the new version does not have, the values of their stores must not
   get a later version: they could not continue after the first value that a new member writes. This takes two upgrades,
   as a plan says, too.
3. Values that get a later version need the upcast from the version that old members write.
4. An earlier version than that of old members is no reason to refuse: the member that goes back checks this itself. Members
   that don't, Java's and those of releases without these versions, read version 1 only: they are refused beside later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamsrt.assignment.in_flight import gone_topics
from streamsrt.assignment.topology import Topology

_PLAIN = 1


class ValueVersion(NamedTuple):
    """The version of values that a program writes into a store; ``upcasts``: other versions that it can read."""

    version: int
    upcasts: frozenset[int] = frozenset()


ValueVersions = Mapping[str, ValueVersion]
"""By the name of the changelog."""

NO_VERSIONS: ValueVersions = {}


def written_versions(versions: ValueVersions) -> str:
    """Returns the value of the tag; empty if there is nothing to report."""
    found = ((name, each) for name, each in sorted(versions.items()) if each.version > _PLAIN)
    return ",".join(f"{name}={each.version}/{'.'.join(map(str, sorted(each.upcasts)))}" for name, each in found)


def read_versions(tag: str | None) -> ValueVersions:
    """Parses a member's tag. Unreadable parts are ignored: a member of another program may have such a tag."""
    found: dict[str, ValueVersion] = {}
    for part in (tag or "").split(","):
        name, _, numbers = part.partition("=")
        version, _, upcasts = numbers.partition("/")
        read = [each for each in upcasts.split(".") if each]
        if name and all(each.isascii() and each.isdigit() for each in (version, *read)):
            found[name] = ValueVersion(int(version), frozenset(map(int, read)))
    return found


def later_values(topology: Topology, told: ValueVersions) -> str | None:
    """Returns which values, that a member with these versions writes, are later than the first version; None if no store
    of ``topology`` has any."""
    logs = {log for part in topology.subtopologies for log in part.own_changelogs}
    found = [
        f"{log} (version {each.version})" for log, each in sorted(told.items()) if log in logs and each.version > _PLAIN
    ]
    return ", ".join(found) or None


def problem_of_values(
    newest: Topology, versions: ValueVersions, older: Iterable[tuple[Topology, ValueVersions]]
) -> str | None:
    """Returns why ``newest`` must not follow the versions that members run; each of them comes with its reported
    versions."""
    for old, told in older:
        gone = gone_topics(newest, [old])
        for part in old.subtopologies:
            topics = sorted({topic.name for topic in part.repartition_sources} & gone)
            for log in part.own_changelogs:
                had = told.get(log, ValueVersion(_PLAIN)).version
                now = versions.get(log, ValueVersion(_PLAIN))
                if now.version > had and had not in now.upcasts:
                    return (
                        f"The values in {log} have version {had}, and version {now.version} of the store has no "
                        f"upcast={{{had}: ...}}. Add it, and start this version again."
                    )
                if now.version > had and topics:
                    return (
                        f"Repartition topic {topics[0]} is removed, and the values in {log} get a later version: "
                        "only old members read the records in flight in that topic, and they can't read the store "
                        "once this version has written to it. Do it in two upgrades: first drop or rename the "
                        "repartition topic, then raise the version of the values. streamsrt upgrade plan shows both."
                    )
    return None
