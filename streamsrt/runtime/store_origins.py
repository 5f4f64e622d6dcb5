"""Compares what this version keeps with what other members of the group keep, by their client tags.

1. A store uses the changelog of its name, which the members of the group share, and so does a repartition topic. A version
   that would misread what a running member writes there is refused: with a state directory of its own, it would not find
   that out from its files.
2. Each member reports what it keeps as marks (:mod:`streamsrt.membership.state_marks`). They are compared as two programs
   are (:mod:`topology.graph.misread`), so what ``streamsrt topology diff`` calls incompatible is refused here, too.
   Partitions are left to the coordinator, which knows the topics.
3. Values that a running member writes must have a version that this one reads: it would fail at the first one. To
   roll back, stop the instances of the later version first.
4. What a member does not report is not compared: members in Java report nothing, and a member has marks for a limited
   number of stores.
5. Members with a later epoch are ignored: the coordinator refuses an earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from streamsrt.assignment.value_versions import ValueVersions, read_versions
from streamsrt.client.interface import Administering
from streamsrt.client.values import LATEST
from streamsrt.errors import BrokerError, TopologyMismatchError
from streamsrt.membership.state_marks import Marks, OriginMark, marks_of, name_mark
from streamsrt.membership.state_settings import state_tags, told_state
from streamsrt.wire.client_tags import VALUE_VERSIONS
from topology.graph.diff import KEEP_SIDES, NAME_REPARTITION, SWAP_BACK, cure_of_records, name_both, values_not_read
from topology.graph.misread import VALUE_SERDE, Kept, Misread, kept_by, misread
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.graph.outline import StoreOutline, TopologyOutline, outline
from topology.graph.row_windows import misread_meaning
from topology.graph.topology import Topology
from topology.spec.names import is_generated

logger = logging.getLogger(__name__)


class RunningMember(NamedTuple):
    """A member of the group; ``name`` is for people."""

    name: str
    topology_epoch: int
    client_tags: Mapping[str, str]


def marks_tag(topology: Topology) -> dict[str, str]:
    """Returns the client tags with the marks and settings of what the topology keeps; none if it keeps nothing."""
    return state_tags(kept_by(outline(topology)))


def continues_generated(topology: Topology) -> bool:
    """Whether a store of the topology may continue one that has a generated name."""
    return any(is_generated(spec.kept_as) for spec in _logged(topology))


def may_be_misread(topology: Topology) -> bool:
    """Whether the topology keeps anything that could have other contents in another member."""
    return any(part.stores or part.repartition_source_topics for part in topology.subtopologies)


def check_origins(application_id: str, topology: Topology, members: Iterable[RunningMember]) -> None:
    """Raises TopologyMismatchError if a running member keeps something that this version would misread."""
    if not may_be_misread(topology):
        return
    mine = _Mine(outline(topology))
    for member in members:
        if member.topology_epoch > topology.epoch:
            continue
        newer = list(newer_values(application_id, topology, read_versions(member.client_tags.get(VALUE_VERSIONS))))
        if newer:
            raise TopologyMismatchError(
                f"Application {application_id!r}: this version can't read what its running instances write: "
                f"{'; '.join(newer)}. Compared with {member.name}, which runs topology epoch {member.topology_epoch}. "
                "Continue with a later version. To go back to this one, stop all instances that write later values: "
                f"`streamsrt upgrade abort OLD --group {application_id}` says whether there are any"
            )
        listed = "; ".join(mine.misread(told_state(member.client_tags)))
        if listed:
            raise TopologyMismatchError(
                f"Application {application_id!r}: the state of its running instances would be misread by this version: "
                f"{listed}. Compared with {member.name}, which runs topology epoch {member.topology_epoch}; `streamsrt "
                "topology diff OLD NEW` shows all changes."
            )


def newer_values(application_id: str, topology: Topology, written: ValueVersions) -> Iterator[str]:
    """The stores into which a member with these versions of values writes what this topology can't read."""
    for spec in _logged(topology):
        theirs = written.get(internal_topic_name(application_id, spec.changelog_name))
        if theirs is not None and theirs.version > spec.version:
            yield f"the values of store {spec.name!r} have version {theirs.version}, and it reads them up to {spec.version}"


def warn_of_unknown(application_id: str, topology: Topology, admin: Administering) -> None:
    """Warns if stores with generated names continue non-empty changelogs of an unknown table: no other instance runs, and
    there is no state on disk.
    """
    stores = {
        f"{application_id}-{spec.changelog_name}": spec.name for spec in _logged(topology) if is_generated(spec.kept_as)
    }
    try:
        counts = admin.partitions_for(sorted(stores))
        partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    except BrokerError as error:
        logger.debug("it is not known whether the changelogs of stores with generated names have records: %s", error)
        return
    filled = sorted({stores[topic] for (topic, _), end in ends.items() if end.offset > 0})
    if filled:
        logger.warning(
            "the stores %s have generated names, and their changelogs have records. No other instance runs, and the state "
            "directory is new, so it can't be checked that the names stand for the same tables as in the version that wrote "
            "them: `streamsrt topology diff OLD NEW` compares the two. Name the stores, or use `streamsrt topology lock`",
            ", ".join(filled),
        )


class _Mine:
    """What this version keeps, beside the marks of others."""

    def __init__(self, version: TopologyOutline) -> None:
        self._version = version
        self._kept = kept_by(version)
        self._marks = marks_of(self._kept)
        self._stores = {store.kept_as: store for store in version.stores}

    def misread(self, theirs: Marks) -> Iterator[str]:
        """A sentence for each store or repartition topic that this version would misread of another one."""
        for name in sorted(self._kept):
            key = name_mark(name)
            wrong = misread(key, theirs, self._marks) if key in theirs else None
            if wrong is None:
                continue
            store = self._stores.get(name)
            if store is None and wrong.why == "format":
                yield f"repartition topic {name!r}: {self._other_records(name, wrong)}"
            elif store is None:
                yield f"repartition topic {name!r}: {self._of_another(name, wrong, theirs)}"
            else:
                yield f"store {store.name!r}: {self._of_store(store, wrong, theirs)}"

    def _of_store(self, store: StoreOutline, wrong: Misread, theirs: Marks) -> str:
        before = theirs[name_mark(store.kept_as)]
        match wrong.why:
            case "version" | "upcast":
                return values_not_read(before.version, store.version)
            case "format":
                listed = ", ".join(_other_format(field, before, store) for field in wrong.fields)
                return f"{listed}: give the new store another name"
            case "windows":
                return misread_meaning(before.windows, self._kept[store.kept_as].windows)
            case _:
                return self._of_another(store.kept_as, wrong, theirs)

    def _other_records(self, topic: str, wrong: Misread) -> str:
        now = self._kept[topic].format
        listed = ", ".join(f"{each} is {now[each]} now, and was another one" for each in wrong.fields)
        return f"{listed}: {cure_of_records(wrong)}"

    def _of_another(self, first: str, wrong: Misread, theirs: Marks) -> str:
        """Why what is kept as ``first`` stands for something else now."""
        name = self._name(first)
        origin = self._version.origins[name]
        if wrong.why == "sides":
            kept, met = origin.sides
            return (
                f"the sides of the join have changed places: it would get records of {kept} now, joined with {met}. "
                f"{KEEP_SIDES}"
            )
        if wrong.why == "swapped":
            others = (each for each in self._kept if name_mark(each) == wrong.other)
            return f"it is {origin} now, and was what is {self._name(next(others))} now: {SWAP_BACK}"
        before = theirs[name_mark(first)].origin
        now = next((each for each in self._kept if self._marks[name_mark(each)].origin == before), None)
        was = "another table" if now is None else f"what is {self._name(now)} now"
        if first != name:
            return f"renamed_from={first} was {was}, and {name} is {origin}"
        meaning = f"a generated name that means something else: it was {was}, and is {origin}"
        return f"{meaning}. {name_both(first, origin)}" if first in self._stores else f"{meaning}: {NAME_REPARTITION}"

    def _name(self, kept_as: str) -> str:
        store = self._stores.get(kept_as)
        return kept_as if store is None else store.name


def _other_format(field: str, before: Kept[OriginMark], store: StoreOutline) -> str:
    after = getattr(store, field)
    if field == VALUE_SERDE:
        after = store.upcasts.get(str(before.version), after)
    was = before.format[field]
    return f"{field} is {after} now, and was another one" if isinstance(was, bytes) else f"{field} {was} -> {after}"


def _logged(topology: Topology) -> list[StoreSpec]:
    """Returns the stores with their own changelog, which the members of the group share."""
    found = {spec.name: spec for each in topology.subtopologies for spec in each.stores}
    return [spec for spec in found.values() if spec.has_own_changelog]
