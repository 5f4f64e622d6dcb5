"""What a heartbeat may not look like: error code and text of each rule, and that nothing changes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group.config import GroupConfig
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Request
from streamsrt.wire.types import StreamsGroupHeartbeatResponse as Response
from tests.coordinator.group.memory_log import MemoryLog
from tests.streamsrt.assignment.notation import subtopology

INVALID, INVALID_TOPOLOGY, INVALID_TOPOLOGY_EPOCH = 42, 130, 131
TASKS = [Request.TaskIds(subtopology_id="0", partitions=[0])]


def shard_with(*settings: tuple[str, str]) -> tuple[Shard, MemoryLog]:
    log = MemoryLog()
    config = {"group.streams.initial.rebalance.delay.ms": "0", **dict(settings)}
    image = TopicsImage.of(TopicImage(b"1" * 16, "in", 2), TopicImage(b"2" * 16, "b", 2))
    return Shard(log, GroupConfig.parse(config), image), log


def ask(shard: Shard, request: Any, version: int = 1) -> Any:
    outcome = shard.execute(GroupRequest(RequestContext(1, "client", "/host", version), request), 1000)
    ((_, response),) = outcome.replies
    return response


def join(**changes: Any) -> Request:
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout_ms": 1000,
        "topology": Request.Topology(subtopologies=[subtopology("0: source=in")]),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "p",
    }
    return Request(**{**fields, **changes})


def beat(**changes: Any) -> Request:
    return Request(**{"group_id": "g", "member_id": "m", "member_epoch": 2, **changes})


def refused(shard: Shard, log: MemoryLog, request: Request) -> tuple[int, str | None]:
    state, end = shard.state, log.log_end_offset
    response = ask(shard, request)
    assert isinstance(response, Response)
    assert response.error_code != 0
    assert shard.state == state
    assert log.log_end_offset == end
    assert (response.member_id, response.member_epoch, response.active_tasks) == ("", 0, None)
    return response.error_code, response.error_message


@pytest.mark.requirement("SG-029", "SG-032", "SG-036", "SG-037", "SG-044", "SG-033")
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"active_tasks": TASKS}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": TASKS}, "WarmupTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        (
            {"client_tags": [Request.KeyValue(key="z", value="1"), Request.KeyValue(key="z", value="2")]},
            "ClientTags has the key z 2 times.",
        ),
    ],
)
def test_a_join_that_breaks_a_rule(changes: dict[str, Any], text: str) -> None:
    shard, log = shard_with()
    assert refused(shard, log, join(**changes)) == (INVALID, text)
    assert shard.state.groups == {}


@pytest.mark.requirement("SG-030", "SG-031", "SG-034", "SG-035", "SG-038", "SG-061", "SG-078", "SG-062")
@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"member_id": ""}, INVALID, "MemberId can't be empty."),
        ({"member_epoch": -3}, INVALID, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2}, INVALID, "InstanceId can't be null."),
        ({"topology": Request.Topology()}, INVALID, "Topology can only be provided when (re-)joining."),
        ({"active_tasks": []}, INVALID, "If one task-type is non-null, all must be non-null."),
        (
            {"active_tasks": TASKS, "standby_tasks": TASKS, "warmup_tasks": []},
            INVALID,
            "Task 0 of subtopology 0 is in the task lists more than once.",
        ),
        (
            {
                "active_tasks": [Request.TaskIds(subtopology_id="0", partitions=[2])],
                "standby_tasks": [],
                "warmup_tasks": [],
            },
            INVALID,
            "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2",
        ),
        (
            {
                "active_tasks": [],
                "standby_tasks": [Request.TaskIds(subtopology_id="7", partitions=[0])],
                "warmup_tasks": [],
            },
            INVALID,
            "Subtopology 7 does not exist in the topology.",
        ),
        ({"member_id": "x"}, 25, "Member x is not a member of group g."),
        ({"member_id": "x", "member_epoch": -1}, 25, "Member x is not a member of group g."),
        ({"group_id": "x"}, 69, "Streams group x not found."),
        ({"group_id": "x", "member_epoch": -1}, 69, "Group x not found."),
        ({"instance_id": "i"}, 25, "Instance id i is unknown."),
        (
            {"member_epoch": 3},
            110,
            "The streams group member has a greater member epoch (3) than the one known by the group coordinator (2). "
            "The member must abandon all its partitions and rejoin.",
        ),
    ],
)
def test_a_heartbeat_that_breaks_a_rule(changes: dict[str, Any], code: int, text: str) -> None:
    shard, log = shard_with()
    assert ask(shard, join()).member_epoch == 2
    assert refused(shard, log, beat(**changes)) == (code, text)


LOOP = "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that "


@pytest.mark.requirement("SG-039", "SG-040", "SG-041", "SG-042", "SG-043", "SG-044")
@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["0: sink=r"], "No source topics found for subtopology 0"),
        (
            ["0: source=in changelog=c:7"],
            "Changelog topic c must have an undefined partition count, but it is set to 7.",
        ),
        (["0: source=in/x"], "Topic names in/x are not valid topic names."),
        (["0: source=in", "0: source=b"], "Subtopology id 0 is used 2 times."),
        (
            ["0: source=in,r sink=r", "1: repartition=r"],
            "Repartition source topic r is also a source topic of the topology.",
        ),
        (
            ["0: source=in sink=r changelog=r", "1: repartition=r"],
            "Repartition source topic r is also a changelog topic of the topology.",
        ),
        (["0: source=in", "1: source=b changelog=in"], "Changelog topic in is also a source topic of the topology."),
        (
            ["0: source=in sink=c changelog=c"],
            "Changelog topic c is also a repartition sink topic of the topology.",
        ),
        (
            ["0: source=in", "1: repartition=r"],
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic. (r)",
        ),
        (["0: repartition=r sink=r"], LOOP + "cannot be resolved. (r)"),
        (["0: source=in", "1: repartition=r sink=r"], LOOP + "cannot be resolved. (r)"),
        (["0: repartition=a sink=b", "1: repartition=b sink=a"], LOOP + "cannot be resolved. (a, b)"),
        (
            ["0: source=in", "1: source=in"],
            "Topic in belongs to subtopologies 0 and 1: two tasks would share each of its partitions.",
        ),
        (
            ["0: source=in changelog=c", "1: source=b changelog=c"],
            "Topic c belongs to subtopologies 0 and 1: two tasks would share each of its partitions.",
        ),
    ],
)
def test_a_topology_that_breaks_a_rule(lines: list[str], text: str) -> None:
    shard, log = shard_with()
    topology = Request.Topology(subtopologies=[subtopology(line) for line in lines])
    assert refused(shard, log, join(topology=topology)) == (INVALID_TOPOLOGY, text)


@pytest.mark.requirement("SG-041", "SG-042")
@pytest.mark.parametrize(
    "lines",
    [
        # Tables that are joined by key and by a foreign key: the answers to the subscriptions come back to their senders.
        ["0: source=in,b repartition=r,q sink=r,q together=in+b+q together=b+r"],
        ["0: source=in sink=a", "1: repartition=a,b sink=b"],
        ["0: source=in repartition=b sink=a", "1: repartition=a sink=b"],
        ["0: repartition=r:2 sink=r"],
        # What Kafka Streams sends of a table that is restored from its own topic.
        ["0: source=in,b changelog=in changelog=c"],
    ],
)
def test_loops_and_source_topics_as_changelogs_are_right(lines: list[str]) -> None:
    shard, _ = shard_with()
    topology = Request.Topology(subtopologies=[subtopology(line) for line in lines])
    response = ask(shard, join(topology=topology))
    assert (response.error_code, response.error_message) == (0, None)


@pytest.mark.requirement("SG-043")
@pytest.mark.parametrize("index", [-1, 1])
def test_an_index_out_of_range_is_named(index: int) -> None:
    shard, log = shard_with()
    part = subtopology("0: source=in")
    part.copartition_groups.append(Request.CopartitionGroup(source_topics=[index]))
    assert refused(shard, log, join(topology=Request.Topology(subtopologies=[part]))) == (
        INVALID_TOPOLOGY,
        f"Index {index} in SourceTopics of a co-partition group of subtopology 0 is out of range: "
        "the subtopology has 1 SourceTopics.",
    )


def test_a_pattern_that_is_none_and_a_negative_topology_epoch() -> None:
    shard, log = shard_with()
    part = subtopology("0: source=in pattern=a(b")
    assert refused(shard, log, join(topology=Request.Topology(subtopologies=[part]))) == (
        INVALID_TOPOLOGY,
        "SourceTopicRegex 'a(b' of subtopology 0 is not a valid RE2 regular expression: missing ): a(b",
    )
    topology = Request.Topology(epoch=-1, subtopologies=[subtopology("0: source=in")])
    assert refused(shard, log, join(topology=topology))[0] == INVALID_TOPOLOGY


@pytest.mark.parametrize(
    "changes",
    [
        {"process_id": None},
        {"process_id": ""},
        {"client_tags": None},
        {"user_endpoint": Request.Endpoint(host="", port=0)},
        {"endpoint_information_epoch": 99},
        {"rebalance_timeout_ms": 0},
        {"topology": Request.Topology()},
        {"topology": Request.Topology(epoch=5, subtopologies=[subtopology("0: source=in")])},
        {"task_offsets": [Request.TaskOffset(subtopology_id="9", partition=9, offset=-1)]},
    ],
)
def test_what_is_taken_as_kafka_takes_it(changes: dict[str, Any]) -> None:
    shard, _ = shard_with()
    response = ask(shard, join(**changes))
    assert (response.error_code, response.member_epoch) == (0, 2)


@pytest.mark.requirement("SG-057")
def test_order_means_nothing_in_a_topology() -> None:
    shard, _ = shard_with()
    parts = [subtopology("0: source=in sink=r,q"), subtopology("1: source=b repartition=r,q together=r+b")]
    turned = [subtopology("1: source=b repartition=q,r together=b+r"), subtopology("0: source=in sink=q,r")]
    ask(shard, join(topology=Request.Topology(subtopologies=parts)))
    response = ask(shard, join(member_id="n", topology=Request.Topology(subtopologies=turned)))
    assert response.error_code == 0


def with_digest(member: str, digest: str | None, **changes: Any) -> Request:
    tags = [Request.KeyValue(key="zone", value="z")]
    tags += [] if digest is None else [Request.KeyValue(key=TOPOLOGY_DIGEST, value=digest)]
    return join(member_id=member, client_tags=tags, **changes)


def test_of_two_versions_with_equal_metadata_the_second_is_refused() -> None:
    shard, log = shard_with()
    assert ask(shard, with_digest("m", "aa")).error_code == 0
    assert refused(shard, log, with_digest("n", "bb")) == (
        INVALID_TOPOLOGY_EPOCH,
        "Member m on host runs another topology under the same topology epoch 0, with equal topics and stores but other "
        "steps between them. Set topology.epoch to 1 to update the group's topology.",
    )
    # The same version, one that tells no digest (Kafka Streams), and one that joins anew in its own place.
    for request in (with_digest("n", "aa"), with_digest("o", None), with_digest("n", "aa")):
        assert ask(shard, request).error_code == 0
    later = Request.Topology(epoch=1, subtopologies=[subtopology("0: source=in")])
    assert ask(shard, with_digest("p", "bb", topology=later)).error_code == 0
    assert refused(shard, log, with_digest("q", "cc", topology=later))[0] == INVALID_TOPOLOGY_EPOCH
    for member in "mnop":
        ask(shard, beat(member_id=member, member_epoch=-1))
    code, text = refused(shard, log, with_digest("q", "cc", topology=later))
    assert code == INVALID_TOPOLOGY_EPOCH
    assert "topics and stores are equal, and the steps between them are not" in text, "nobody runs it, and it is known"
    assert ask(shard, with_digest("q", "bb", topology=later)).error_code == 0


@pytest.mark.requirement("SG-067", "SG-261")
def test_a_full_group_takes_nobody_new() -> None:
    shard, log = shard_with(("group.streams.max.size", "1"))
    ask(shard, join())
    assert refused(shard, log, join(member_id="n")) == (
        81,
        "The streams group has reached its maximum capacity of 1 members.",
    )
    assert ask(shard, join()).error_code == 0


@pytest.mark.requirement("SG-009", "SG-254")
def test_streams_groups_can_be_off() -> None:
    shard, log = shard_with(("group.coordinator.rebalance.protocols", "classic,consumer"))
    assert refused(shard, log, join())[0] == 35


@pytest.mark.requirement("SG-016", "SG-017", "SG-066", "SG-079", "SG-080", "SG-082")
def test_null_means_unchanged() -> None:
    shard, log = shard_with()
    endpoint = Request.Endpoint(host="h", port=1)
    ask(shard, join(rack_id="r", user_endpoint=endpoint, instance_id="i"))
    member, end = shard.state.groups["g"].members["m"], log.log_end_offset
    response = ask(shard, beat())
    assert shard.state.groups["g"].members["m"] == member
    assert log.log_end_offset == end
    assert (response.member_id, response.heartbeat_interval_ms) == ("m", 5000)
    assert (response.task_offset_interval_ms, response.acceptable_recovery_lag) == (60000, 10000)
    assert response.active_tasks is None
    response = ask(shard, beat(active_tasks=[], standby_tasks=[], warmup_tasks=[]))
    assert (response.active_tasks[0].partitions, response.standby_tasks, response.warmup_tasks) == ([0, 1], [], [])


@pytest.mark.requirement("SG-065", "SG-172", "SG-176", "SG-299")
@pytest.mark.parametrize(
    "changes",
    [
        {"process_id": "q"},
        {"rack_id": "r", "process_id": "q"},
        {"client_tags": [Request.KeyValue(key="zone", value="z")]},
        {"user_endpoint": Request.Endpoint(host="h", port=1)},
    ],
)
def test_changed_data_of_a_member_bumps_the_group_epoch_once(changes: dict[str, Any]) -> None:
    shard, _ = shard_with(("group.streams.assignment.interval.ms", "0"))
    ask(shard, join())
    ask(shard, beat(**changes))
    assert shard.state.groups["g"].epoch == 3
    ask(shard, beat(member_epoch=3, **changes))
    assert shard.state.groups["g"].epoch == 3


@pytest.mark.requirement("SG-173", "SG-175")
def test_what_is_stored_without_a_new_assignment() -> None:
    shard, log = shard_with()
    ask(shard, join())
    end = log.log_end_offset
    offsets = [Request.TaskOffset(subtopology_id="0", partition=1, offset=7)]
    ask(shard, beat(task_offsets=offsets, task_end_offsets=offsets))
    assert log.log_end_offset == end
    ask(shard, beat(rebalance_timeout_ms=77))
    assert shard.state.groups["g"].members["m"].rebalance_timeout_ms == 77
    assert (log.log_end_offset, shard.state.groups["g"].epoch) == (end + 1, 2)


@pytest.mark.requirement("SG-073", "SG-075", "SG-095")
def test_a_shutdown_lasts_until_the_group_is_empty() -> None:
    shard, _ = shard_with()
    ask(shard, join())
    ask(shard, join(member_id="n"))
    ask(shard, beat(member_epoch=-1, shutdown_application=True))
    assert [status.status_code for status in ask(shard, beat(member_id="n", member_epoch=2)).status][-1] == 4
    ask(shard, beat(member_id="n", member_epoch=-1))
    assert ask(shard, join()).status == []
