"""What a plan says of its cluster, and what it advises where old and new instances can't run together."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsrt.cli.topology_versions import RunningGroup
from streamsrt.cli.upgrade.plan import AgreedPlan, in_flight_notes, in_one_step, notes
from streamsrt.errors import ConfigError
from topology import StreamsBuilder, serdes
from topology.graph.diff import diff
from topology.graph.outline import TopologyOutline, outline


def plan(servers: str | None, cluster_id: str | None) -> AgreedPlan:
    return AgreedPlan("shop", 0, 1, "digest", (), servers, cluster_id)


@pytest.mark.parametrize(
    ("made_with", "given"),
    [
        (("a:1", "one"), ("b:2", "one")),
        ((None, "one"), ("b:2", "one")),
        (("a:1", None), ("a:1", "one")),
        (("a:1, b:2", None), ("b:2,a:1", None)),
        ((None, None), (None, "one")),
    ],
)
def test_the_same_cluster(made_with: tuple[str | None, str | None], given: tuple[str | None, str | None]) -> None:
    plan(*made_with).check_cluster(Path("plan.json"), *given)


@pytest.mark.parametrize(
    ("made_with", "given"),
    [(("a:1", "one"), ("a:1", "two")), (("a:1", None), ("b:2", "two")), (("a:1", "one"), ("b:2", None))],
)
def test_another_cluster(made_with: tuple[str | None, str | None], given: tuple[str | None, str | None]) -> None:
    with pytest.raises(ConfigError, match=r"plan plan.json was made for another cluster \(a:1\) than [ab]:\d"):
        plan(*made_with).check_cluster(Path("plan.json"), *given)


def counting(name: str) -> TopologyOutline:
    builder = StreamsBuilder()
    words = builder.stream("words", key=serdes.string, value=serdes.string)
    words.repartition(name=name).group_by_key().count(store="counts")
    return outline(builder.build())


@pytest.mark.parametrize("members", [{}, {0: 1}])
def test_nobody_is_told_to_run_two_versions_where_the_topology_can_not_be_updated(members: dict[int, int]) -> None:
    found = diff(counting("one"), counting("two"))
    topics = {"shop-one-repartition": {"partitions": 1, "records": 9, "in_flight": 9}}
    running = RunningGroup("shop", "streams", 0, "Empty", members, frozenset(), (), topics)
    (together,) = in_flight_notes(found, running, is_in_one_step=False)
    assert ("Leave one running" if members else "run the old version and the new one together") in together
    (why,) = in_flight_notes(found, running, is_in_one_step=True)
    assert why.startswith(
        "repartition topic one-repartition is removed with 9 unread records, and on this broker old and new instances can't "
        f"run together: {'' if members else 'start the old version again, '}stop the producers, and let the old version read"
    )
    (gone,) = [each for each in in_one_step(found, "shop").state if each.fate == "orphaned"]
    cure = gone.cure
    assert "leave one running" not in cure
    assert cure.endswith("afterwards streamsrt topics delete shop-one-repartition --execute")
    said = " ".join(notes(found, running, is_in_one_step=True))
    assert "Start the new version in addition" not in said
