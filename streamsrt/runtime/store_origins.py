"""Compares what stores contain in this and in other members of the group, by their client tags.

1. A store with a generated name uses the changelog of that name, which the members of the group share. So a version in
   which the name stands for something else than in the running members would mix up two tables, and is refused. With a
   state directory of its own, it would not find that out from its files.
2. Each member has a tag for each of its stores with a generated name and a changelog, up to a maximum number: a mark of
   the store's origin. Marks are compared as :mod:`topology.graph.diff` compares origins. They are short, so two origins
   may have the same mark, and the version is accepted; equal origins never have different marks.
3. What a join keeps of one side must not be taken for what came from the other one, whoever named the store. A store of a
   join has a tag for that: a mark of each side.
4. Rows of tumbling windows have the same bytes as those of sliding ones. A store whose rows have windows has a tag for
   what they mean, and how long they are.
5. Values that a running member writes must have a version that this one reads, whichever epoch it has: it would fail at
   the first one. Who goes back to a former version stops the later instances first.
6. Stores without a mark are not compared: those of members in Java, or of versions that did not write marks.
7. Members with a later epoch are ignored: the coordinator refuses an earlier one.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from streamsrt.assignment.value_versions import ValueVersions, read_versions
from streamsrt.client.interface import Administering
from streamsrt.client.values import LATEST
from streamsrt.errors import BrokerError, TopologyMismatchError
from streamsrt.wire.client_tags import ROW_WINDOWS, STORE_ORIGIN, STORE_SIDES, VALUE_VERSIONS
from topology.graph.diff import KEEP_SIDES, name_both
from topology.graph.join_sides import sides_changed
from topology.graph.nodes import StoreSpec, internal_topic_name
from topology.graph.origins import Origin, Side, origins
from topology.graph.row_windows import misread_meaning
from topology.graph.topology import Topology
from topology.spec.names import is_generated

logger = logging.getLogger(__name__)

MOST_STORES = 64
"""The tags of all members of a classic group go into one record, and to its leader in one answer."""

_BYTES = 20
_BITS_OF_A_TOPIC = 3
_NAME_DIGITS = 12


class RunningMember(NamedTuple):
    """A member of the group; ``name`` is for people."""

    name: str
    topology_epoch: int
    client_tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OriginMark:
    """The origin of a store in 20 bytes. ``topics`` is a set of 64 bits, of which each topic sets three."""

    steps: bytes
    topics: int
    python: bytes
    functions: bytes

    @classmethod
    def of(cls, origin: Origin) -> OriginMark:
        python, _, functions = origin.functions.partition(":")
        return cls(
            steps=_hashed(repr(origin.structure[1:]))[:5],
            topics=_bits(origin.topics),
            python=_hashed(python)[:2],
            functions=_hashed(functions)[:5],
        )

    @classmethod
    def read(cls, text: str) -> OriginMark | None:
        """Parses what :meth:`text` wrote; None for anything else, such as a tag of the user."""
        data = _decoded(text, _BYTES)
        return None if data is None else cls(data[:5], int.from_bytes(data[5:13], "big"), data[13:15], data[15:])

    def text(self) -> str:
        """Encodes the mark in 27 characters."""
        data = self.steps + self.topics.to_bytes(8, "big") + self.python + self.functions
        return _encoded(data)

    def is_same_as(self, other: OriginMark) -> bool:
        """Whether both have the same inputs and steps, regardless of functions. One topic more or less makes no
        difference."""
        return self.steps == other.steps and _overlap(self.topics, other.topics)

    def has_other_functions(self, other: OriginMark) -> bool:
        """Whether the code differs, as far as it can be compared across Python versions."""
        return self.python == other.python and self.functions != other.functions


@dataclass(frozen=True, slots=True)
class SideMark:
    """A side of a join in 11 bytes, three of them for ``code``: its steps and functions."""

    topics: int
    code: bytes

    @classmethod
    def of(cls, side: Side) -> SideMark:
        return cls(_bits(side.topics), _hashed(repr((side.keyed_by, side.functions)))[:3])

    def is_wider(self, other: SideMark) -> bool:
        """Whether both are the same side, with possibly one topic more or less."""
        return _overlap(self.topics, other.topics)


@dataclass(frozen=True, slots=True)
class SidesMark:
    """Both sides of a join in 22 bytes, first the one whose records are in the store."""

    sides: tuple[SideMark, SideMark]

    @classmethod
    def of(cls, origin: Origin) -> SidesMark:
        kept, met = map(SideMark.of, origin.sides)
        return cls((kept, met))

    @classmethod
    def read(cls, text: str) -> SidesMark | None:
        """Parses what :meth:`text` wrote; None for anything else, such as a tag of the user."""
        data = _decoded(text, 22)
        if data is None:
            return None
        kept, met = (SideMark(int.from_bytes(each[:8], "big"), each[8:]) for each in (data[:11], data[11:]))
        return cls((kept, met))

    def text(self) -> str:
        """Encodes the marks in 30 characters."""
        return _encoded(b"".join(side.topics.to_bytes(8, "big") + side.code for side in self.sides))

    def has_changed(self, after: SidesMark) -> bool:
        """Whether stored records of one side would be read as records of the other one."""
        return sides_changed(self.sides, after.sides, _LIKENESSES)


@dataclass(frozen=True, slots=True)
class WindowsMark:
    """What the windows of a store's rows mean, and their size where it tells one window from another."""

    meaning: str
    size: str

    @classmethod
    def of(cls, spec: StoreSpec, origin: Origin) -> WindowsMark | None:
        """None for a store whose rows have no windows."""
        size = "" if spec.window_size_ms is None else str(spec.window_size_ms)
        return None if origin.windows is None else cls(origin.windows.meaning, size)

    @classmethod
    def read(cls, text: str) -> WindowsMark:
        """What :meth:`text` wrote. Anything else has a meaning that is compared with nothing."""
        meaning, _, size = text.partition(".")
        return cls(meaning, size)

    def text(self) -> str:
        return f"{self.meaning}.{self.size}"

    def misread_as(self, after: WindowsMark) -> str:
        """Why these rows would be misread; empty if they would not be."""
        if self.size and after.size and self.meaning == after.meaning and self.size != after.size:
            return f"window_size_ms {self.size} -> {after.size}: give the new store another name"
        return misread_meaning(self.meaning, after.meaning)


_LIKENESSES = (SideMark.__eq__, lambda one, other: one.topics == other.topics, SideMark.is_wider)


def origin_tags(topology: Topology) -> dict[str, str]:
    """Returns the client tags with the marks of all stores that could be misread."""
    stores = sorted(spec.name for spec in _logged(topology))
    known = origins(topology) if stores else {}
    tags = {_key(name): OriginMark.of(known[name]).text() for name in stores if is_generated(name)}
    tags.update((_key(name, STORE_SIDES), SidesMark.of(known[name]).text()) for name in stores if known[name].sides)
    tags.update((_key(name, ROW_WINDOWS), mark.text()) for name, mark in _windows(topology, known).items())
    return dict(list(tags.items())[:MOST_STORES])


def continues_generated(topology: Topology) -> bool:
    """Whether a store of the topology may continue one that has a generated name."""
    return any(is_generated(spec.kept_as) for spec in _logged(topology))


def may_be_misread(topology: Topology) -> bool:
    """Whether a store of the topology could have other contents in another member."""
    return bool(_logged(topology))


def check_origins(application_id: str, topology: Topology, members: Iterable[RunningMember]) -> None:
    """Raises TopologyMismatchError if a store has other contents in a running member."""
    if not may_be_misread(topology):
        return
    known = origins(topology)
    windows = _windows(topology, known)
    for member in members:
        if member.topology_epoch > topology.epoch:
            continue
        swapped = _swapped(topology, known, member.client_tags)
        swapped.update(_other_windows(topology, windows, member.client_tags))
        misread = _misread(topology, known, _marks(member.client_tags), besides=swapped)
        newer = list(newer_values(application_id, topology, read_versions(member.client_tags.get(VALUE_VERSIONS))))
        if newer:
            raise TopologyMismatchError(
                f"Application {application_id!r}: this version can't read what its running instances write: "
                f"{'; '.join(newer)}. Compared with {member.name}, which runs topology epoch {member.topology_epoch}. "
                "Continue with a later version. To go back to this one, stop all instances that write later values: "
                f"`streamsrt upgrade abort OLD --group {application_id}` says whether there are any"
            )
        listed = "; ".join([*swapped.values(), *misread])
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


def _swapped(topology: Topology, known: Mapping[str, Origin], tags: Mapping[str, str]) -> dict[str, str]:
    """Returns the stores of joins whose sides are swapped in a member with these client tags."""
    found = {}
    for spec in sorted(_logged(topology), key=lambda spec: spec.name):
        origin, before = known[spec.name], SidesMark.read(tags.get(_key(spec.kept_as, STORE_SIDES), ""))
        if before is not None and origin.sides and before.has_changed(SidesMark.of(origin)):
            kept, met = origin.sides
            found[spec.name] = (
                f"store {spec.name!r}: the sides of the join have changed places: it would get records of {kept} now, "
                f"joined with {met}. {KEEP_SIDES}"
            )
    return found


def _windows(topology: Topology, known: Mapping[str, Origin]) -> dict[str, WindowsMark]:
    marks = {spec.name: WindowsMark.of(spec, known[spec.name]) for spec in _logged(topology)}
    return {name: mark for name, mark in sorted(marks.items()) if mark is not None}


def _other_windows(topology: Topology, marks: Mapping[str, WindowsMark], tags: Mapping[str, str]) -> dict[str, str]:
    """The stores whose rows have windows of another meaning or size in a member with these client tags."""
    found = {}
    for spec in _logged(topology):
        before = WindowsMark.read(tags.get(_key(spec.kept_as, ROW_WINDOWS), ""))
        why = before.misread_as(marks[spec.name]) if spec.name in marks else ""
        if why:
            found[spec.name] = f"store {spec.name!r}: {why}"
    return found


def _misread(
    topology: Topology, known: Mapping[str, Origin], theirs: Mapping[str, OriginMark], besides: Container[str]
) -> Iterator[str]:
    marks = {name: OriginMark.of(origin) for name, origin in known.items()}
    for spec in sorted(_logged(topology), key=lambda spec: spec.name):
        first = spec.kept_as
        before, after = theirs.get(_key(first)), marks[spec.name]
        if before is None or not is_generated(first) or spec.name in besides:
            continue
        exchanged = before.has_other_functions(after) and after in theirs.values()
        if before.is_same_as(after) and not exchanged:
            continue
        now = next((name for name, mark in marks.items() if mark == before), None)
        was = "another table" if now is None else f"what is {now} now"
        if first != spec.name:
            yield f"store {spec.name!r}: renamed_from={first} was {was}, and {spec.name} is {known[spec.name]}"
        else:
            yield (
                f"store {first!r}: a generated name that means something else: it was {was}, and is {known[first]}. "
                f"{name_both(first, known[first])}"
            )


def _marks(client_tags: Mapping[str, str]) -> dict[str, OriginMark]:
    marks = ((key, OriginMark.read(value)) for key, value in client_tags.items() if key.startswith(STORE_ORIGIN))
    return {key: mark for key, mark in marks if mark is not None}


def _logged(topology: Topology) -> list[StoreSpec]:
    """Returns the stores with their own changelog, which the members of the group share."""
    found = {spec.name: spec for each in topology.subtopologies for spec in each.stores}
    return [spec for spec in found.values() if spec.has_own_changelog]


def _key(store: str, prefix: str = STORE_ORIGIN) -> str:
    return prefix + sha256(store.encode()).hexdigest()[:_NAME_DIGITS]


def _hashed(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _bits(topics: Iterable[str]) -> int:
    bits = 0
    for topic in topics:
        for byte in _hashed(topic)[:_BITS_OF_A_TOPIC]:
            bits |= 1 << byte % 64
    return bits


def _overlap(one: int, other: int) -> bool:
    return one & other in (one, other)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str, size: int) -> bytes | None:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if len(data) == size else None
