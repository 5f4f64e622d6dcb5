"""The leader compares what a new version keeps with what the members keep: nobody needs to describe the group for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.topology import topology_of
from streamsrt.membership.classic.values import ClassicAssignment
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.runtime.store_origins import marks_tag
from streamsrt.runtime.topology_version import versions_tag
from streamsrt.wire.error_codes import ErrorCode
from tests.streamsrt.membership.classic.group_model import Version
from tests.streamsrt.membership.classic.test_leading import Group, Member
from tests.streamsrt.runtime.test_store_origins import (
    MAXIMA,
    SECOND,
    SUMS,
    called,
    counted_and_summed,
    joined,
    reduced,
    repartitioned,
    windowed,
)
from topology import SlidingWindows, Store, StreamsBuilder, TimeWindows, Upcast, serdes
from topology.graph.topology import Topology


@dataclass
class Marked(Member):
    """A member that always tells what it keeps."""

    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.extra["client_tags"] = self.tags

    def hears(self, told: ClassicAssignment) -> None:
        super().hears(told)
        self.extra["client_tags"] = self.tags


def member(name: str, topology: Topology, **tags: str) -> Marked:
    wire = topology_metadata(topology, "app")
    version = Version(wire, topology_digest(wire, {}), topology_of(wire))
    return Marked(name, version, tags={**marks_tag(topology), **versions_tag(topology, "app"), **tags})


def after_joining(
    old: Topology, new: Topology, new_tags: Mapping[str, str] = MappingProxyType({}), **tags: str
) -> tuple[dict[str, ClassicAssignment], Group]:
    """A member of a new version joins one of an old version, which leads. ``tags``: of the old one."""
    group = Group(member("m1", old, **tags))
    group.cluster.topics |= {"in": 2, "in-sums": 2, "in-maxima": 2}
    for _ in range(3):
        group.round()
    group.members["m2"] = member("m2", new, **new_tags)
    group.round()
    return group.round(), group


def kept(store: Store, epoch: int, value: Any = serdes.long) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.long).group_by_key()
    grouped.aggregate(int, lambda _key, _value, last: last, store=store, value=value)
    return builder.build(epoch=epoch).with_default_serdes()


def through(*topics: str, epoch: int = 0) -> Topology:
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic, key=serdes.string, value=serdes.string).repartition().foreach(lambda _k, _v: None)
    return builder.build(epoch=epoch).with_default_serdes()


def twice(epoch: int, *upcasts: int) -> Topology:
    return kept(Store("A", version=max(upcasts, default=0) + 1, upcast=dict.fromkeys(upcasts, abs)), epoch)


REFUSED = [
    (reduced(SUMS, MAXIMA), reduced(MAXIMA, SUMS, epoch=1), "it stands for another table now: name it"),
    (
        counted_and_summed("A", "B"),
        counted_and_summed("B", "A", epoch=1),
        "store 'A': it was exchanged with store 'B': exchange the names again, or give the new ones other names",
    ),
    (joined(), joined(swapped=True, epoch=1), "the sides of the join have changed places"),
    (
        windowed(TimeWindows(1_000)),
        windowed(SlidingWindows(1_000), epoch=1),
        "store 'w': rows of tumbling or hopping windows would be taken for rows of sliding windows",
    ),
    (
        counted_and_summed("A", "B"),
        counted_and_summed("A", "B", epoch=1, kind=serdes.integer),
        "store 'A': another value_serde: give the new store another name; store 'B': another value_serde",
    ),
    (
        kept(Store("A"), 0),
        kept(Store("A", version=2, upcast={1: Upcast(str, serde=serdes.integer)}), 1, serdes.json),
        "store 'A': another value_serde: give the new store another name",
    ),
    (twice(0, 1, 2), twice(1, 1), "store 'A': its values get version 3, which version 2 can't read"),
    (through("in", "in-sums"), through("in-sums", "in", epoch=1), "repartition topic 'KSTREAM-REPARTITION-"),
    (
        repartitioned(),
        repartitioned(serdes.bytes, epoch=1),
        "repartition topic 'by-repartition': another value_serde: records in flight, and those that old and new",
    ),
]


@pytest.mark.parametrize(("old", "new", "said"), REFUSED)
def test_a_version_that_would_misread_state_is_refused_and_the_group_goes_on(
    old: Topology, new: Topology, said: str
) -> None:
    told, group = after_joining(old, new)
    assert told["m2"].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    text = told["m2"].error_text or ""
    assert "epoch 1 can't replace topology epoch 0 of group app, which continues unchanged. The state of its " in text
    assert said in text
    assert "Compared with member m1, which runs topology epoch 0; `streamsrt topology diff OLD NEW` shows" in text
    assert told["m1"].error_code == 0
    assert told["m1"].tasks == group.members["m1"].held
    assert told["m1"].tasks.active


ACCEPTED = [
    (reduced(SUMS, MAXIMA), reduced(SUMS, called(MAXIMA, SECOND), epoch=1)),
    (counted_and_summed("A", "B"), counted_and_summed("C", "D", epoch=1)),
    (joined(), joined(epoch=1)),
    (repartitioned(), repartitioned(epoch=1)),
    (repartitioned(), repartitioned(serdes.bytes, name="by-2", epoch=1)),
    (joined(), joined(swapped=True, store="other", epoch=1)),
    (twice(0), twice(1, 1)),
    (
        kept(Store("A"), 0),
        kept(Store("A", version=2, upcast={1: Upcast(str, serde=serdes.long)}), 1, serdes.json),
    ),
]


@pytest.mark.parametrize(("old", "new"), ACCEPTED)
def test_a_version_that_reads_the_state_is_accepted(old: Topology, new: Topology) -> None:
    told, _ = after_joining(old, new)
    assert {name: each.error_text for name, each in told.items()} == {"m1": None, "m2": None}
    assert {each.group_epoch for each in told.values()} == {1}


def test_members_that_tell_nothing_are_not_compared() -> None:
    told, _ = after_joining(counted_and_summed("A", "B"), counted_and_summed("B", "A", epoch=1), **{"store.marks": "?"})
    assert {each.group_epoch for each in told.values()} == {1}


def test_the_serde_of_an_upcast_that_is_not_told_counts_as_the_right_one() -> None:
    """A member that joins with an earlier release tells no upcasts."""
    wrong = kept(Store("A", version=2, upcast={1: Upcast(str, serde=serdes.integer)}), 1, serdes.json)
    told, _ = after_joining(kept(Store("A"), 0), wrong, new_tags={"store.settings": "?"})
    assert {each.group_epoch for each in told.values()} == {1}
