"""Versions that members still run, beside the group's: how the log keeps them, and whose tasks they hold back."""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.streams.holders import holders
from coordinator.group.streams.records import current_record, member_record, target_record, topology_record
from coordinator.group.streams.state import Member, StreamsGroup, applied
from coordinator.machine.values import CoordinatorRecord
from streamsrt.assignment.reconcile import Current, MemberState
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topology import topology_of
from streamsrt.wire import types
from streamsrt.wire.messages import decode_record_value, encode_record_value
from tests.streamsrt.assignment.notation import subtopology

VERSIONS = [
    types.StreamsGroupHeartbeatRequest.Topology(epoch=epoch, subtopologies=[subtopology(line) for line in lines])
    for epoch, lines in enumerate(
        [
            [
                "a: source=s,t,u changelog=c,d sink=r together=s+t,t+u",
                "b: pattern=x.*|y repartition=r:2 together=x.*|y+r",
            ],
            ["a: source=s,t changelog=c"],
            ["b: source=s", "c: source=t changelog=c"],
        ]
    )
]
TOPOLOGIES = [topology_of(each) for each in VERSIONS]
MEMBER = Member("m", None, None, "c", "/h", 1000, 0, "p", None, ())


def test_the_record_of_a_topology_keeps_those_before_it() -> None:
    record = topology_record("app", VERSIONS[2], [TOPOLOGIES[1], TOPOLOGIES[0]])
    assert record.value is not None
    read = decode_record_value(types.StreamsGroupTopologyValue, encode_record_value(record.value))
    group = applied(StreamsGroup("app"), [CoordinatorRecord(record.key, read)])
    assert group.topologies() == (TOPOLOGIES[2], TOPOLOGIES[1], TOPOLOGIES[0])
    assert not group.topologies_run()
    group = applied(group, [topology_record("app", VERSIONS[2])])
    assert group.topologies() == (TOPOLOGIES[2],)


def test_a_topology_without_others_is_written_as_kafka_writes_it() -> None:
    record = topology_record("app", VERSIONS[0])
    assert isinstance(record.value, types.StreamsGroupTopologyValue)
    assert not record.value.unknown_tags


def scene(epoch_known: int) -> StreamsGroup:
    """A member with version 1 has a_0, which it has to give back, and one with version 2 waits. The log has one of them."""
    old, new = replace(MEMBER, member_id="old", topology_epoch=1), replace(MEMBER, member_id="new", topology_epoch=2)
    has = Current(3, 2, MemberState.STABLE, Tasks(frozenset({TaskId("a", 0)})))
    records = [topology_record("app", VERSIONS[2], [TOPOLOGIES[epoch_known]])]
    records += [member_record("app", member) for member in (old, replace(new, process_id="q"))]
    records += [current_record("app", "old", has), target_record("app", "old", NO_TASKS)]
    return applied(StreamsGroup("app"), records)


def test_a_task_is_held_by_one_of_another_version_with_a_topic_in_common() -> None:
    group = scene(1)
    held = holders(group, group.members["new"])
    assert held.active(TaskId("b", 0))
    assert held.active(TaskId("c", 0))
    assert not held.active(TaskId("b", 1))
    assert not held.in_process(TaskId("c", 0))
    neighbour = replace(group.members["new"], process_id="p")
    assert holders(group, neighbour).in_process(TaskId("c", 0))


def test_a_version_that_is_not_known_holds_all_tasks_of_a_partition_that_it_gives_back() -> None:
    group = scene(0)
    held = holders(group, group.members["new"])
    assert held.active(TaskId("b", 0))
    assert not held.active(TaskId("b", 1))
