from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.group.consumer.assignor import AssignmentSpec, AssignorMember, AssignorTopic, PartitionAssignor
from coordinator.group.consumer.config import ASSIGNORS
from coordinator.group.consumer.partitions import Target, TopicIdPartition
from coordinator.group.consumer.range_assignor import RangeAssignor
from coordinator.group.consumer.uniform import UniformAssignor

ROOT = Path(__file__).resolve().parents[4]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def spec(topics: dict[str, int], members: dict[str, str], before: dict[str, str] | None = None) -> AssignmentSpec:
    """Topic -> partitions, member -> "topic topic", member -> "topic:0,1 topic:2" that it had."""
    return AssignmentSpec(
        {
            name: AssignorMember(frozenset(map(topic_id, names.split())), target((before or {}).get(name, "")))
            for name, names in members.items()
        },
        {topic_id(name): AssignorTopic(name, count) for name, count in topics.items()},
    )


def target(text: str) -> Target:
    found = []
    for word in text.split():
        name, numbers = word.split(":")
        found += [TopicIdPartition(topic_id(name), int(number)) for number in numbers.split(",")]
    return tuple(found)


def text(assignment: Target) -> str:
    words: dict[str, list[str]] = {}
    for partition in assignment:
        words.setdefault(partition.topic_id.rstrip(b"-").decode(), []).append(str(partition.partition))
    return " ".join(f"{name}:{','.join(numbers)}" for name, numbers in sorted(words.items()))


def assigned(assignor: PartitionAssignor, given_spec: AssignmentSpec) -> dict[str, str]:
    found = assignor.assign(given_spec)
    return {name: text(found.get(name, ())) for name in sorted(given_spec.members)}


@pytest.mark.requirement("CG-069", "CG-074")
def test_range_puts_equal_numbers_together() -> None:
    found = assigned(RangeAssignor(), spec({"a": 4, "b": 4, "c": 3}, {"m1": "a b c", "m2": "a b c", "m3": "a b c"}))
    assert found == {"m1": "a:0,1 b:0,1 c:0", "m2": "a:2 b:2 c:1", "m3": "a:3 b:3 c:2"}


@pytest.mark.requirement("CG-069", "CG-077")
def test_range_goes_by_who_subscribes() -> None:
    found = assigned(RangeAssignor(), spec({"a": 3, "b": 2}, {"m1": "a", "m2": "a b", "m3": "b nosuch"}))
    assert found == {"m1": "a:0,1", "m2": "a:2 b:0", "m3": "b:1"}


def test_range_takes_members_by_instance_first() -> None:
    members = {
        "z": AssignorMember(frozenset([topic_id("a")]), instance_id="1"),
        "y": AssignorMember(frozenset([topic_id("a")]), instance_id="2"),
        "b": AssignorMember(frozenset([topic_id("a")])),
    }
    found = RangeAssignor().assign(AssignmentSpec(members, {topic_id("a"): AssignorTopic("a", 3)}))
    assert {name: text(found[name]) for name in members} == {"z": "a:0", "y": "a:1", "b": "a:2"}


@pytest.mark.requirement("CG-070", "CG-073")
def test_uniform_keeps_what_members_have() -> None:
    before = {"m1": "a:0,1,2", "m2": "a:3,4,5"}
    found = assigned(UniformAssignor(), spec({"a": 6}, {"m1": "a", "m2": "a", "m3": "a"}, before))
    assert found == {"m1": "a:0,1", "m2": "a:3,4", "m3": "a:2,5"}


@pytest.mark.requirement("CG-070")
def test_uniform_gives_away_first_what_came_last() -> None:
    before = {"m1": "a:0,1,3", "m2": "a:2,5,4"}
    found = assigned(UniformAssignor(), spec({"a": 6}, {"m1": "a", "m2": "a", "m3": "a"}, before))
    assert found == {"m1": "a:0,1", "m2": "a:2,5", "m3": "a:3,4"}


@pytest.mark.requirement("CG-070", "CG-077")
def test_uniform_with_different_subscriptions() -> None:
    loads = loads_of(UniformAssignor().assign(spec({"a": 4, "b": 2}, {"m1": "a", "m2": "a b", "m3": "b"})))
    assert sorted(loads.values()) == [2, 2, 2]


def test_uniform_takes_no_partition_twice_and_none_that_is_gone() -> None:
    before = {"m1": "a:0,1,7 old:0", "m2": "a:0,1 b:0"}
    found = assigned(UniformAssignor(), spec({"a": 2, "b": 1}, {"m1": "a", "m2": "a"}, before))
    assert found == {"m1": "a:0", "m2": "a:1"}


@pytest.mark.requirement("CG-071")
def test_each_is_found_by_its_name() -> None:
    assert {"uniform", "range"} <= set(ASSIGNORS)
    assert all(name == assignor.name for name, assignor in ASSIGNORS.items())
    assert all(assignor.assign(AssignmentSpec({}, {})) == {} for assignor in ASSIGNORS.values())


def loads_of(found: object) -> dict[str, int]:
    assert isinstance(found, dict)
    return {name: len(partitions) for name, partitions in found.items()}


SPECS = st.builds(
    lambda topics, members: (topics, members),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 7), max_size=4),
    st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), st.sets(st.sampled_from("abcd")), max_size=5),
)


@given(first=SPECS, second=SPECS)
@pytest.mark.requirement("CG-070", "CG-077", "CG-082")
def test_assignments_are_whole_fair_and_sticky(
    first: tuple[dict[str, int], dict[str, set[str]]], second: tuple[dict[str, int], dict[str, set[str]]]
) -> None:
    before: dict[str, str] = {}
    for topics, members in (first, second):
        wanted = {name: " ".join(sorted(names)) for name, names in members.items()}
        asked = spec(topics, wanted, before)
        for assignor in ASSIGNORS.values():
            found = assignor.assign(asked)
            given_out = Counter(partition for partitions in found.values() for partition in partitions)
            read = {name for names in members.values() for name in names}
            assert given_out == Counter(
                TopicIdPartition(topic_id(name), number)
                for name, count in topics.items()
                if name in read
                for number in range(count)
            )
            for name, partitions in found.items():
                assert {partition.topic_id for partition in partitions} <= asked.members[name].topics
        found = UniformAssignor().assign(asked)
        check_no_better_move(found, asked)
        again = UniformAssignor().assign(spec(topics, wanted, {name: text(each) for name, each in found.items()}))
        assert again == found
        before = {name: text(each) for name, each in found.items()}


def check_no_better_move(found: object, asked: AssignmentSpec) -> None:
    assert isinstance(found, dict)
    loads = loads_of(found)
    for giver, partitions in found.items():
        for partition in partitions:
            for taker, member in asked.members.items():
                if partition.topic_id in member.topics:
                    assert loads[giver] - loads[taker] < 2


PROGRAM = """
from tests.coordinator.group.consumer.test_assignors import *
topics = {f"t{n}": n % 7 + 1 for n in range(40)}
members = {f"m{n}": " ".join(f"t{k}" for k in range(40) if (n + k) % 3 or n % 2) for n in range(25)}
for assignor in (UniformAssignor(), RangeAssignor()):
    found = assigned(assignor, spec(topics, members))
    print(found)
    del members["m7"]
    print(assigned(assignor, spec(topics, members, found)))
    members["m7"] = "t1"
"""


@pytest.mark.system
def test_hash_seeds_make_no_difference() -> None:
    outputs = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000
