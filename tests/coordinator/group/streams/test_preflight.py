"""A topology that can't run does not become the topology of a group that runs another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.group.config import GroupConfig
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import CreateInternalTopics, GroupRequest, RequestContext
from coordinator.shard.shard import EventOutcome, Shard
from streamsrt.assignment.configuration import configure
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.topics import TopicImage, TopicsImage, TopicSpec
from streamsrt.assignment.topology import InvalidTopologyError, check_topology, topology_of
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.coordinator.group.memory_log import MemoryLog
from tests.streamsrt.assignment.notation import subtopology

Heartbeat = types.StreamsGroupHeartbeatRequest
CONFIG = GroupConfig.parse(
    {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
)
OLD = ["0: source=in sink=r", "1: repartition=r changelog=c"]
TOPICS = {"in": 3, "r": 3, "c": 3, "two": 2, "six": 6}
CONTEXT = RequestContext(1, "client", "/host", 1)
NONE: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


class Visitor:
    """Somebody who may not create topics."""

    def may_describe(self, topic: str) -> bool:
        return True

    def may_create(self, topic: str) -> bool:
        return False


class Group:
    """A group with topology epoch 0 and its members, who answer every heartbeat with what they were given."""

    def __init__(
        self, *members: str, topics: dict[str, int] = TOPICS, config: GroupConfig = CONFIG, **fields: Any
    ) -> None:
        self.topics = dict(topics)
        self.now_ms = 1000
        self.log = MemoryLog()
        self.shard = Shard(self.log, config, self.image())
        self.given: dict[str, Any] = {}
        for name in members:
            self.join(name, OLD, 0, **fields)
        for _ in range(3):
            for name in members:
                self.beat(name)

    def image(self) -> TopicsImage:
        return TopicsImage.of(*(TopicImage(name.encode().ljust(16), name, n) for name, n in self.topics.items()))

    def set_topics(self, **topics: int | None) -> None:
        self.topics = {name: count for name, count in {**self.topics, **topics}.items() if count is not None}
        self.shard.set_topics(self.image(), 1000)

    def ask(self, name: str, context: RequestContext = CONTEXT, **fields: Any) -> tuple[Any, EventOutcome]:
        request = Heartbeat(group_id="app", member_id=name, **fields)
        outcome = self.shard.execute(GroupRequest(context, request), self.now_ms)
        ((_, response),) = outcome.replies
        if response.active_tasks is not None:
            kinds = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
            self.given[name] = response.member_epoch, *kinds
        elif not response.error_code:
            self.given[name] = response.member_epoch, *self.given[name][1:]
        return response, outcome

    def join(
        self, name: str, lines: list[str], epoch: int, context: RequestContext = CONTEXT, **fields: Any
    ) -> tuple[Any, EventOutcome]:
        topology = Heartbeat.Topology(epoch=epoch, subtopologies=[subtopology(line) for line in lines])
        return self.ask(
            name, context, topology=topology, process_id=name, rebalance_timeout_ms=60_000, **NONE, **fields
        )

    def beat(self, name: str) -> Any:
        epoch, active, standby, warmup = self.given[name]
        ids = Heartbeat.TaskIds
        owned = [
            [ids(subtopology_id=task.subtopology_id, partitions=task.partitions) for task in tasks]
            for tasks in (active, standby, warmup)
        ]
        fields = dict(zip(("active_tasks", "standby_tasks", "warmup_tasks"), owned, strict=True))
        return self.ask(name, member_epoch=epoch, **fields)[0]

    @property
    def state(self) -> StreamsGroup:
        group = self.shard.state.groups["app"]
        assert isinstance(group, StreamsGroup)
        return group

    @property
    def topology_epoch(self) -> int:
        assert self.state.topology is not None
        return self.state.topology.epoch

    def all_there_is(self) -> tuple[object, ...]:
        """All that a heartbeat can change, what is not in the log included."""
        return self.log.log_end_offset, self.shard.state, self.state.soft, self.shard.timers.as_dict(), dict(self.given)

    def old_ones_go_on(self, *members: str) -> None:
        """Their heartbeats are answered as if nothing had been, and change nothing."""
        tasks = {name: self.given[name] for name in members}
        for name in members:
            response = self.beat(name)
            assert (response.error_code, response.status, response.active_tasks) == (0, [], None)
        assert {name: self.given[name] for name in members} == tasks


def statuses(response: Any) -> list[int]:
    return [status.status_code for status in response.status]


BAD = {
    "a source topic is missing": (
        [*OLD, "2: source=nowhere"],
        "Source topics nowhere are missing. Create them, or correct the names",
    ),
    "a pattern means no topic": ([*OLD, "2: pattern=tenant-.*"], "No source topics match the patterns tenant-.*."),
    "a changelog has another count": (
        [OLD[0], "1: repartition=r source=six changelog=c"],
        "Existing topic c has different number of partitions: expected 6, found 3. ",
    ),
    "a repartition topic has another count": (
        ["0: source=in sink=r", "1: repartition=r:4"],
        "Existing topic r has different number of partitions: expected 4, found 3. ",
    ),
    "joined topics have different counts": (
        [*OLD, "2: source=two,six together=two+six changelog=d"],
        "do not have the same number of partitions: [{six=6, two=2}]. ",
    ),
    "a topic has two owners": ([*OLD, "2: pattern=in|six"], "Source topic in belongs to subtopologies 0 and 2"),
}


@pytest.mark.requirement("SG-092", "SG-093", "SG-143")
@pytest.mark.parametrize(("lines", "words"), BAD.values(), ids=BAD.keys())
def test_a_topology_that_cannot_run_is_refused_and_the_group_stays_as_it_is(lines: list[str], words: str) -> None:
    group = Group("A", "B")
    before = group.all_there_is()
    response, outcome = group.join("C", lines, 1)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert response.error_message.startswith(
        "Topology epoch 1 can't replace topology epoch 0 of group app, which continues"
    )
    assert words in response.error_message
    assert "start this version again" in response.error_message
    assert outcome.effects == []
    assert group.all_there_is() == before
    group.old_ones_go_on("A", "B")


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (replace(CONTEXT, rights=Visitor()), "continues unchanged. Unauthorized to CREATE on topics d."),
        (
            replace(CONTEXT, refusal_of_topic=lambda spec: f"no room for {spec.partitions} partitions."),
            "Internal topics can't be created: d: no room for 2 partitions. Correct the",
        ),
    ],
    ids=["no right", "the broker says no"],
)
def test_internal_topics_that_cannot_be_made_are_a_reason(context: RequestContext, words: str) -> None:
    group = Group("A", "B")
    before = group.all_there_is()
    response, outcome = group.join("C", [*OLD, "2: source=two changelog=d"], 1, context)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert words in response.error_message
    assert (outcome.effects, group.all_there_is()) == ([], before)
    group.old_ones_go_on("A", "B")


@pytest.mark.requirement("SG-056", "SG-118", "SG-144")
@pytest.mark.parametrize(
    ("lines", "made"),
    [
        (OLD, []),
        ([*OLD, "2: source=two,six"], []),
        ([*OLD, "2: pattern=t.o|tenant"], []),
        ([*OLD, "2: source=six changelog=d"], ["d"]),
        (["a: source=two sink=q", "b: repartition=q"], ["q"]),
    ],
)
def test_a_topology_that_can_run_is_taken(lines: list[str], made: list[str]) -> None:
    def refusal(spec: TopicSpec) -> None:
        assert spec.name in made

    group = Group("A", "B")
    response, outcome = group.join("C", lines, 1, replace(CONTEXT, refusal_of_topic=refusal))
    assert (response.error_code, group.topology_epoch) == (0, 1)
    asked = [
        spec.name for effect in outcome.effects if isinstance(effect, CreateInternalTopics) for spec in effect.topics
    ]
    assert asked == made


@pytest.mark.requirement("SG-141")
def test_after_the_topic_is_made_the_same_version_is_taken() -> None:
    group = Group("A", "B")
    lines = [*OLD, "2: source=nowhere"]
    assert group.join("C", lines, 1)[0].error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    group.set_topics(nowhere=1)
    response, _ = group.join("C", lines, 1)
    assert (response.error_code, statuses(response), group.topology_epoch) == (0, [], 1)


@pytest.mark.requirement("SG-124")
@pytest.mark.parametrize(
    "wrong", ["2: source=nowhere", "2: source=six,two together=six+two", "2: source=two changelog=six"]
)
@pytest.mark.parametrize("before", ["empty", "alone", "away"])
def test_without_other_members_a_version_that_cannot_run_leaves_the_group_to_the_one_before(
    wrong: str, before: str
) -> None:
    fields = {"instance_id": "i"} if before == "away" else {}
    group = Group("A", **fields)
    if before != "alone":
        group.ask("A", member_epoch=-2 if fields else -1, **fields)
    name = "A" if before == "alone" else "B"
    there = group.all_there_is()
    response, _ = group.join(name, [*OLD, wrong], 1, **fields)
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "which continues unchanged" in response.error_message
    assert group.all_there_is() == there
    # Neither the epoch nor anything else of it is left: the version before is started again, and gets its tasks.
    assert group.join("C" if before == "empty" else name, OLD, 0, **fields)[0].error_code == 0
    for _ in range(3):
        response = group.beat("C" if before == "empty" else name)
    assert (response.error_code, group.topology_epoch) == (0, 0)
    assert sum(len(task.partitions) for task in group.given["C" if before == "empty" else name][1]) == 6


@pytest.mark.requirement("SG-141")
def test_the_first_topology_of_a_group_waits_for_its_topics() -> None:
    group = Group()
    response, _ = group.join("A", [*OLD, "2: source=nowhere"], 0)
    assert (response.error_code, statuses(response), group.topology_epoch) == (0, [1], 0)


def test_a_static_member_that_comes_back_with_a_bad_version_keeps_its_place() -> None:
    group = Group("A", "B")
    group.join("S", OLD, 0, instance_id="i")
    for _ in range(3):
        for name in ("A", "B", "S"):
            group.beat(name)
    group.ask("S", member_epoch=-2, instance_id="i")
    before = group.all_there_is()
    response, _ = group.join("T", [*OLD, "2: source=nowhere"], 1, instance_id="i")
    assert response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert group.all_there_is() == before
    group.old_ones_go_on("A", "B")
    assert group.join("T", OLD, 0, instance_id="i")[0].error_code == 0


@pytest.mark.requirement("SG-064", "SG-119", "SG-121")
@pytest.mark.parametrize(("topic", "count", "status"), [("two", None, 1), ("d", 5, 2)])
def test_what_becomes_wrong_with_a_new_topology_is_not_told_to_old_members(
    topic: str, count: int | None, status: int
) -> None:
    group = Group("A", "B")
    group.set_topics(d=2)
    assert group.join("C", [*OLD, "2: source=two changelog=d"], 1)[0].error_code == 0
    for _ in range(3):
        for name in ("C", "A", "B"):
            group.beat(name)
    kept = {name: group.given[name][1] for name in ("A", "B")}
    assert any(kept.values())
    group.set_topics(**{topic: count})
    for _ in range(3):
        assert statuses(group.beat("C")) == [status]
        for name in ("A", "B"):
            assert statuses(group.beat(name)) == [0]
    assert {name: group.given[name][1] for name in ("A", "B")} == kept


@pytest.mark.requirement("SG-154")
def test_a_topic_that_goes_from_under_the_running_topology_is_told_to_all() -> None:
    group = Group("A", "B")
    group.set_topics(**{"in": None})
    assert [statuses(group.beat(name)) for name in ("A", "B")] == [[1], [1]]


NAMES = st.sampled_from(["in", "two", "six", "nowhere"])
WORDS = st.one_of(
    st.builds("source={}".format, NAMES),
    st.builds("pattern={}".format, st.sampled_from(["t.*", "x.*", "in|six"])),
    st.builds("changelog={}".format, st.sampled_from(["c", "d", "e"])),
    st.builds("sink={}".format, st.sampled_from(["r", "q"])),
    st.builds("repartition={}".format, st.sampled_from(["r", "r:3", "r:4", "q", "q:2"])),
    st.sampled_from(["source=in,six together=in+six", "source=two repartition=r together=two+r"]),
)
PARTS = st.lists(st.lists(WORDS, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=150, deadline=None)
@given(
    parts=PARTS,
    extended=st.booleans(),
    ahead=st.sampled_from([1, 1, 1, 0, 2]),
    topics=st.dictionaries(st.sampled_from(["two", "d", "q", "x1"]), st.sampled_from([None, 1, 2, 3])),
)
@pytest.mark.requirement("SG-118", "SG-119", "SG-123")
def test_whatever_topology_somebody_brings_old_members_go_on_unless_it_can_run(
    parts: list[list[str]], extended: bool, ahead: int, topics: dict[str, int | None]
) -> None:
    group = Group("A", "B")
    group.set_topics(**topics)
    for name in ("A", "B"):
        group.beat(name)
    lines = [f"n{number}: {' '.join(words)}" for number, words in enumerate(parts)]
    lines = [*OLD, *lines] if extended else lines
    before = group.all_there_is()
    response, outcome = group.join("C", lines, ahead)
    if response.error_code:
        assert (outcome.effects, group.all_there_is()) == ([], before)
        group.old_ones_go_on("A", "B")
        if response.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY and "can't replace" in response.error_message:
            assert ahead == 1
            assert not can_run(lines, group.image())
        return
    assert group.topology_epoch == ahead
    assert can_run(lines, group.image())
    for name in ("A", "B"):
        assert not {1, 2} & set(statuses(group.beat(name)))


def can_run(lines: list[str], image: TopicsImage) -> bool:
    topology = topology_of(Heartbeat.Topology(subtopologies=[subtopology(line) for line in lines]))
    try:
        check_topology(topology)
    except InvalidTopologyError:
        return False
    problem = configure(topology, image).problem
    return problem is None or problem.status_code == StatusCode.MISSING_INTERNAL_TOPICS
