"""What members tell of the versions of their values, and which updates can't be made because of it."""

from __future__ import annotations

import pytest

from streamsrt.assignment.topology import topology_of
from streamsrt.assignment.value_versions import (
    NO_VERSIONS,
    ValueVersion,
    problem_of_values,
    read_versions,
    written_versions,
)
from streamsrt.runtime.topology_version import versions_tag
from streamsrt.wire.client_tags import VALUE_VERSIONS
from streamsrt.wire.types import StreamsGroupHeartbeatRequest
from tests.store_kinds import KINDS
from tests.streamsrt.assignment.notation import subtopology
from topology.graph.store_kinds import StoreKind

Topology = StreamsGroupHeartbeatRequest.Topology
OLD = topology_of(
    Topology(
        epoch=0, subtopologies=[subtopology("s: repartition=r changelog=c"), subtopology("u: source=t changelog=d")]
    )
)
NEW = topology_of(
    Topology(
        epoch=1, subtopologies=[subtopology("s: repartition=x changelog=c"), subtopology("u: source=t changelog=d")]
    )
)


def test_what_is_told_is_read() -> None:
    versions = {"app-c": ValueVersion(3, frozenset({1, 2})), "app-d": ValueVersion(2)}
    assert read_versions(written_versions(versions)) == versions
    assert written_versions({"app-c": ValueVersion(1)}) == ""
    assert read_versions(None) == read_versions("blue") == read_versions("c=x/1,d=2/z") == NO_VERSIONS


@pytest.mark.parametrize("kind", StoreKind)
def test_every_kind_of_store_that_has_a_version_is_told(kind: StoreKind) -> None:
    assert versions_tag(KINDS[kind].build("rows", {}), "app") == {}
    raised = KINDS[kind].build("rows", {"version": 2, "upcast": {1: lambda value: value}})
    told = read_versions(versions_tag(raised, "app")[VALUE_VERSIONS])
    assert told[f"app-{KINDS[kind].spec(raised, 'rows').changelog_name}"] == ValueVersion(2, frozenset({1}))


def test_only_what_reads_the_topic_that_is_gone_must_keep_its_values() -> None:
    second = ValueVersion(2, frozenset({1}))
    problem = problem_of_values(NEW, {"c": second}, [(OLD, NO_VERSIONS)])
    assert problem is not None
    assert "Repartition topic r is removed, and the values in c get a later version" in problem
    assert problem_of_values(NEW, {"d": second}, [(OLD, NO_VERSIONS)]) is None
    assert problem_of_values(NEW, {"c": second}, [(OLD, {"c": second})]) is None
    assert problem_of_values(NEW, {}, [(OLD, {"d": second})]) is None, "going back is looked at elsewhere"
