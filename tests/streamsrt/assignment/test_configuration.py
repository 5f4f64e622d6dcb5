"""A topology against the topics that there are: tasks, partition counts, problems."""

from __future__ import annotations

import pytest

from streamsrt.assignment.configuration import Configuration, configure, metadata_hash
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import check_topology, topology_of
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Request
from tests.streamsrt.assignment.notation import subtopology


def image(**counts: int) -> TopicsImage:
    return TopicsImage.of(*(TopicImage(name.encode().ljust(16), name, count) for name, count in counts.items()))


def configured(lines: list[str], **counts: int) -> Configuration:
    topology = topology_of(Request.Topology(subtopologies=[subtopology(line) for line in lines]))
    check_topology(topology)
    return configure(topology, image(**counts))


@pytest.mark.requirement("SG-132", "SG-134", "SG-135", "SG-136", "SG-137", "SG-145")
@pytest.mark.parametrize(
    ("lines", "counts", "derived"),
    [
        (["0: source=a,b changelog=c"], {"a": 2, "b": 5}, {"c": 5}),
        (["0: source=a sink=r", "1: repartition=r changelog=c"], {"a": 3}, {"r": 3, "c": 3}),
        (["0: source=a sink=r", "1: repartition=r:7 changelog=c"], {"a": 3}, {"r": 7, "c": 7}),
        (
            ["0: source=a sink=r", "1: repartition=r source=b sink=q", "2: repartition=q changelog=c"],
            {"a": 3, "b": 4},
            {"r": 3, "q": 4, "c": 4},
        ),
        (["0: source=a sink=r", "1: source=b sink=r", "2: repartition=r"], {"a": 3, "b": 6}, {"r": 6}),
        (["0: source=a sink=r", "1: source=b repartition=r together=b+r"], {"a": 3, "b": 6}, {"r": 6}),
        (
            ["0: source=a sink=r", "1: source=b sink=q", "2: repartition=r,q together=r+q changelog=c"],
            {"a": 2, "b": 5},
            {"r": 5, "q": 5, "c": 5},
        ),
        (
            ["0: source=a sink=r", "1: repartition=r,q sink=s", "2: repartition=s sink=q"],
            {"a": 4},
            {"r": 4, "q": 4, "s": 4},
        ),
        (
            ["0: source=a,b repartition=r,q sink=r,q together=a+b+q together=b+r changelog=c"],
            {"a": 4, "b": 4},
            {"r": 4, "q": 4, "c": 4},
        ),
        (["0: source=a,b changelog=a changelog=c"], {"a": 2, "b": 5}, {"c": 5}),
    ],
)
def test_partition_counts_of_internal_topics(lines: list[str], counts: dict[str, int], derived: dict[str, int]) -> None:
    found = configured(lines, **counts)
    assert {spec.name: spec.partitions for spec in found.to_create} == derived
    assert found.problem is not None
    assert found.problem.status_code == 3
    assert found.problem.detail == f"Internal topics are missing: {', '.join(sorted(derived))}"
    assert configured(lines, **counts, **derived).is_ready


@pytest.mark.requirement("SG-130", "SG-131", "SG-133", "SG-140", "SG-142", "SG-143")
@pytest.mark.parametrize(
    ("lines", "counts", "status", "detail"),
    [
        (["0: source=b,a,c changelog=x"], {"c": 1}, 1, "Source topics a, b are missing."),
        (
            ["0: source=a,b together=a+b changelog=c"],
            {"a": 2, "b": 3},
            2,
            "Following topics do not have the same number of partitions: [{a=2, b=3}]",
        ),
        (
            ["0: source=a sink=r", "1: source=b repartition=r:3 together=b+r"],
            {"a": 2, "b": 2},
            2,
            "Following topics do not have the same number of partitions: [{b=2, r=3}]",
        ),
        (
            ["0: source=a changelog=c"],
            {"a": 2, "c": 5},
            2,
            "Existing topic c has different number of partitions: expected 2, found 5",
        ),
        (
            ["0: source=a sink=r", "1: repartition=r"],
            {"a": 2, "r": 5},
            2,
            "Existing topic r has different number of partitions: expected 2, found 5",
        ),
    ],
)
def test_what_is_wrong_with_the_topics(lines: list[str], counts: dict[str, int], status: int, detail: str) -> None:
    found = configured(lines, **counts)
    assert found.problem is not None
    assert (found.problem.status_code, found.problem.detail) == (status, detail)
    assert found.to_create == ()


def test_a_repartition_topic_that_exists_keeps_its_count_and_those_joined_with_it_follow() -> None:
    lines = ["0: source=a sink=r,q", "1: repartition=r,q together=r+q"]
    found = configured(lines, a=2, r=4)
    assert {spec.name: spec.partitions for spec in found.to_create} == {"q": 4}
    assert configured(lines, a=2, r=4, q=4).task_counts == {"0": 2, "1": 4}


def test_a_copartition_group_of_nothing_asks_for_nothing() -> None:
    part = subtopology("0: source=a")
    part.copartition_groups.append(Request.CopartitionGroup())
    topology = topology_of(Request.Topology(subtopologies=[part]))
    check_topology(topology)
    assert configure(topology, image(a=2)).task_counts == {"0": 2}


@pytest.mark.requirement("SG-150", "SG-155")
def test_topics_that_are_there_are_taken_whatever_their_settings() -> None:
    found = configured(["0: source=a changelog=c"], a=2, c=2)
    assert found.is_ready
    assert found.task_counts == {"0": 2}


@pytest.mark.requirement("SG-169")
def test_the_hash_is_about_input_topics_only() -> None:
    topology = configured(["0: source=a sink=r changelog=c", "1: repartition=r"], a=1).topology
    one = metadata_hash(topology, image(a=1, r=1))
    assert metadata_hash(topology, image(a=1, r=1, c=1, other=3)) == one
    assert len({one, metadata_hash(topology, image(a=2, r=1)), metadata_hash(topology, image(a=1, r=2))}) == 3
    assert metadata_hash(topology, image()) == 0


@pytest.mark.requirement("SG-119", "SG-121")
@pytest.mark.parametrize(
    ("counts", "runnable"),
    [
        ({"a": 3, "c": 3, "b": 2, "d": 2}, {}),
        ({"a": 3, "c": 3, "b": 2}, {"0": 3}),
        ({"a": 3, "c": 3}, {"0": 3}),
        ({"a": 3, "c": 2, "b": 2, "d": 2}, {"1": 2}),
        ({"b": 2, "d": 2}, {"1": 2}),
    ],
)
def test_what_can_run_while_another_part_can_not(counts: dict[str, int], runnable: dict[str, int]) -> None:
    found = configured(["0: source=a changelog=c", "1: source=b changelog=d"], **counts)
    assert found.runnable == runnable
    assert found.is_ready == (not runnable)


def test_a_part_whose_topics_do_not_fit_together_can_not_run() -> None:
    assert configured(["0: source=a,b together=a+b", "1: source=x"], a=2, b=3, x=1).runnable == {"1": 1}


@pytest.mark.requirement("SG-130", "SG-138", "SG-139")
@pytest.mark.parametrize(
    ("lines", "counts", "expected"),
    [
        (["0: pattern=in-.*"], {"in-a": 2, "in-b": 3, "other": 9}, {"0": 3}),
        (["0: source=x pattern=in-[ab],y.*"], {"in-a": 2, "in-c": 7, "x": 1, "y": 4}, {"0": 4}),
        # Neither the group's own topics nor those of the broker.
        (
            ["0: pattern=.* sink=r", "1: repartition=r changelog=c"],
            {"in": 2, "r": 2, "c": 2, "__consumer_offsets": 50},
            2,
        ),
        (["0: source=b pattern=a.* together=a.*+b"], {"a1": 3, "a2": 3, "b": 3}, {"0": 3}),
        (["0: pattern=a.*,b.*"], {"b1": 3}, (1, "No source topics match the patterns a.*.")),
        (["0: source=x pattern=a.*"], {}, (1, "Source topics x are missing. No source topics match the patterns a.*.")),
        (
            ["0: pattern=a.*", "1: pattern=.*b"],
            {"a": 1, "b": 1, "ab": 1},
            (2, "Source topic ab belongs to subtopologies 0 and 1, by its name or by a pattern."),
        ),
        (
            ["0: pattern=a.*", "1: source=ab"],
            {"ab": 1},
            (2, "Source topic ab belongs to subtopologies 0 and 1, by its name or by a pattern."),
        ),
        (
            ["0: source=b pattern=a.* together=a.*+b"],
            {"a1": 3, "a2": 2, "b": 3},
            (2, "Following topics do not have the same number of partitions: [{a1=3, a2=2, b=3}]"),
        ),
    ],
)
def test_sources_by_pattern(lines: list[str], counts: dict[str, int], expected: object) -> None:
    found = configured(lines, **counts)
    if found.problem is not None:
        assert (found.problem.status_code, found.problem.detail) == expected
    elif isinstance(expected, dict):
        assert found.task_counts == expected
    else:
        assert set(found.task_counts.values()) == {expected}


def test_a_new_topic_that_matches_changes_what_the_topology_means() -> None:
    lines = ["0: pattern=a.*"]
    before, other, after = (configured(lines, **counts) for counts in ({"a": 1}, {"a": 1, "b": 1}, {"a": 1, "a2": 1}))
    assert before.metadata_hash == other.metadata_hash != after.metadata_hash
