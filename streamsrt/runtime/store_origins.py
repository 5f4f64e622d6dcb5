"""What generated store names stand for in the other members of the group, according to their client tags.

1. A store with a generated name uses the changelog of that name, which the members of the group share. So a version in
   which the name stands for something else than in the running members would mix up two tables, and is refused. With a
   state directory of its own, it would not find that out from its files.
2. Each member has a tag for each of its stores with a generated name and a changelog, up to a maximum number: a mark of
   the store's origin. Marks are compared as :mod:`topology.graph.diff` compares origins. They are short, so two origins
   may have the same mark, and the version is accepted; equal origins never have different marks.
3. Stores without a mark are not compared: those of members in Java, or of versions that did not write marks.
4. Members with a later epoch are ignored: the coordinator refuses an earlier one.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from streamsrt.client.interface import Administering
from streamsrt.client.values import LATEST
from streamsrt.errors import BrokerError, TopologyMismatchError
from streamsrt.wire.client_tags import STORE_ORIGIN
from topology.graph.diff import name_both
from topology.graph.nodes import StoreSpec
from topology.graph.origins import Origin, origins
from topology.graph.topology import Topology
from topology.spec.names import is_generated

logger = logging.getLogger(__name__)

MOST_STORES = 64
"""The tags of all members of a classic group go into one record, and to its leader in one answer."""

_BYTES = 20
_BITS_OF_A_TOPIC = 3
_NAME_DIGITS = 12


class RunningMember(NamedTuple):
    """A member of the group: ``name`` for people."""

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
        bits = 0
        for topic in origin.topics:
            for byte in _hashed(topic)[:_BITS_OF_A_TOPIC]:
                bits |= 1 << byte % 64
        return cls(
            steps=_hashed(repr(origin.structure[1:]))[:5],
            topics=bits,
            python=_hashed(python)[:2],
            functions=_hashed(functions)[:5],
        )

    @classmethod
    def read(cls, text: str) -> OriginMark | None:
        """What :meth:`text` wrote; None for anything else, such as a tag of the user's own."""
        try:
            data = base64.urlsafe_b64decode(text + "=")
        except (binascii.Error, ValueError):
            return None
        if len(data) != _BYTES:
            return None
        return cls(data[:5], int.from_bytes(data[5:13], "big"), data[13:15], data[15:])

    def text(self) -> str:
        """27 characters."""
        data = self.steps + self.topics.to_bytes(8, "big") + self.python + self.functions
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    def is_same_as(self, other: OriginMark) -> bool:
        """Whether both are fed and filled in the same way, by whatever functions. A topic more or less is the same."""
        return self.steps == other.steps and self.topics & other.topics in (self.topics, other.topics)

    def has_other_functions(self, other: OriginMark) -> bool:
        """Whether the code differs, as far as the versions of Python let it be compared."""
        return self.python == other.python and self.functions != other.functions


def origin_tags(topology: Topology) -> dict[str, str]:
    """The client tags that tell the group what the topology's generated store names stand for."""
    stores = sorted(spec.name for spec in _logged(topology) if is_generated(spec.name))
    if not stores:
        return {}
    known = origins(topology)
    return {_key(name): OriginMark.of(known[name]).text() for name in stores[:MOST_STORES]}


def continues_generated(topology: Topology) -> bool:
    """Whether a store of the topology may continue one that has a generated name."""
    return any(is_generated(spec.kept_as) for spec in _logged(topology))


def check_origins(application_id: str, topology: Topology, members: Iterable[RunningMember]) -> None:
    """Raises TopologyMismatchError if a generated store name stands for something else in a running member."""
    if not continues_generated(topology):
        return
    known = origins(topology)
    for member in members:
        theirs = _marks(member.client_tags)
        if not theirs or member.topology_epoch > topology.epoch:
            continue
        listed = "; ".join(_misread(topology, known, theirs))
        if listed:
            raise TopologyMismatchError(
                f"Application {application_id!r}: the state of its running instances would be misread by this version: "
                f"{listed}. Compared with {member.name}, which runs topology epoch {member.topology_epoch}; `streamsrt "
                "topology diff OLD NEW` shows all changes."
            )


def warn_of_unknown(application_id: str, topology: Topology, admin: Administering) -> None:
    """Warns if stores with generated names continue changelogs that have records, and nobody can tell which table they
    belong to: no other instance runs, and there is no state on disk.
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


def _misread(topology: Topology, known: Mapping[str, Origin], theirs: Mapping[str, OriginMark]) -> Iterator[str]:
    marks = {name: OriginMark.of(origin) for name, origin in known.items()}
    for spec in sorted(_logged(topology), key=lambda spec: spec.name):
        first = spec.kept_as
        before, after = theirs.get(_key(first)), marks[spec.name]
        if before is None or not is_generated(first):
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
                f"{name_both(first)}"
            )


def _marks(client_tags: Mapping[str, str]) -> dict[str, OriginMark]:
    marks = ((key, OriginMark.read(value)) for key, value in client_tags.items() if key.startswith(STORE_ORIGIN))
    return {key: mark for key, mark in marks if mark is not None}


def _logged(topology: Topology) -> list[StoreSpec]:
    """Those whose rows are in a changelog of their own, which the members of the group share."""
    found = {spec.name: spec for each in topology.subtopologies for spec in each.stores}
    return [spec for spec in found.values() if spec.has_own_changelog]


def _key(store: str) -> str:
    return STORE_ORIGIN + sha256(store.encode()).hexdigest()[:_NAME_DIGITS]


def _hashed(text: str) -> bytes:
    return sha256(text.encode()).digest()
