"""What the page shows of one application, from what its group and its instances tell."""

from __future__ import annotations

from typing import Any

from streamsrt.cli.console.group_view import GroupSnapshot, PartView, group_json, parts_of_description, parts_of_outline
from streamsrt.cli.console.instances import InstanceFacts
from streamsrt.runtime.group_facts import GroupFacts, MemberFacts, Task
from streamsrt.runtime.upgrade_status import UpgradeWatch
from streamsrt.wire.types import StreamsGroupDescribeResponse
from topology import StreamsBuilder, serdes
from topology.graph.outline import chosen_sinks, global_tables, outline


def member(name: str, *, active: set[Task] | None = None, warmup: set[Task] | None = None, **facts: Any) -> MemberFacts:
    tasks = {"active": frozenset(active or ()), "standby": frozenset(), "warmup": frozenset(warmup or ())}
    given = {
        "instance_id": name,
        "process_id": name,
        "client_id": "c",
        "host": "h",
        "epoch": 0,
        "digest": None,
        **facts,
    }
    return MemberFacts(member_id=name, tasks=tasks, **given)  # type: ignore[arg-type]


def shown(*members: MemberFacts, instances: dict[str, InstanceFacts] | None = None, **look: Any) -> dict[str, Any]:
    facts = GroupFacts(name="app", kind="streams", state="Stable", epoch=0, members=members)
    given = {"offsets": (), "rates": {}, "parts": (), "rebalances": None, **look}
    status = UpgradeWatch().status(facts, 0.0)
    return group_json(GroupSnapshot(facts=facts, status=status, instances=instances or {}, **given))


def reads(name: str, *sources: str) -> PartView:
    return PartView(id=name, sources=sources, patterns=(), sinks=(), stores=())


def offset(topic: str, partition: int, lag: int | str) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "current_offset": 1, "offset_lag": lag}


def test_the_lag_of_a_task_is_that_of_all_partitions_that_it_reads() -> None:
    page = shown(
        member("one", active={("a", 0), ("a", 1), ("b", 0)}),
        parts=[reads("a", "left", "right"), reads("b", "left")],
        offsets=[offset("left", 0, 5), offset("left", 1, 7), offset("right", 0, 10), offset("right", 1, "-")],
        rates={"left": 2.5},
    )
    assert {row["task"]: row["lag"] for row in page["tasks"]} == {"a_0": 15, "a_1": 7, "b_0": 5}
    assert page["topics"] == [
        {"topic": "left", "partitions": 2, "lag": 12, "records_per_second": 2.5},
        {"topic": "right", "partitions": 2, "lag": 10, "records_per_second": None},
    ]


def test_how_far_a_task_is_behind_is_known_by_the_largest_end_that_anybody_reports() -> None:
    warming = member("two", warmup={("a", 0)}, offsets={("a", 0): 30}, ends={("a", 0): 40})
    page = shown(member("one", active={("a", 0)}, offsets={("a", 0): 100}, ends={("a", 0): 100}), warming)
    assert [(row["role"], row["behind"]) for row in page["tasks"]] == [("active", None), ("warmup", 70)]
    assert page["warming_up"][0]["behind"] == 70


def test_what_only_an_instance_knows_comes_from_the_one_that_has_the_task() -> None:
    def instance(address: str, **task: Any) -> InstanceFacts:
        told = {"task_id": "a_0", "stream_time_ms": 5, "counters": {"dropped_late": 2}, "restoring": [], **task}
        stores = ({"name": "counts", "kind": "key_value"},)
        return InstanceFacts(address, {"state": "RUNNING", "tasks": [told]}, stores)

    page = shown(
        member("one", active={("a", 0)}, endpoint="one:1"),
        member("two", warmup={("a", 0)}, endpoint="two:2"),
        member("three"),
        instances={
            "one:1": instance("one:1", phase="running", why="task a_0 (active) is running: no input is waiting"),
            "two:2": instance("two:2", phase="restoring", why="task a_0 (warmup) is restoring: counts, 7 records left"),
            "three:3": InstanceFacts("three:3", unreachable="it does not answer"),
        },
    )
    assert [(row["phase"], row["why"]) for row in page["tasks"]] == [
        ("running", ""),
        ("restoring", "counts, 7 records left"),
    ]
    assert page["tasks"][0]["counters"] == {"dropped_late": 2}
    assert [each["name"] for each in page["stores"]] == ["counts"]
    assert [each["unreachable"] for each in page["instances"]] == ["", "", "it does not answer"]


def test_subtopologies_are_the_same_by_description_and_by_outline() -> None:
    builder = StreamsBuilder()
    words = builder.stream("lines", key=serdes.string, value=serdes.string).map(lambda key, value: (value, key))
    words.group_by_key().count(store="counts").to_stream().map_values(str).to("results")
    topology = builder.build()
    told = outline(topology).to_json()
    first, second = parts_of_outline("app", told)
    assert (first.sources, first.sinks) == (("lines",), ("app-counts-repartition",))
    assert (second.sources, second.sinks, second.stores) == (("app-counts-repartition",), ("results",), ("counts",))
    assert (second.knows_sinks, second.chosen_sinks) == (True, False)
    by_number = parts_of_outline("app", told, named={"0", "1"})
    assert [each.id for each in by_number] == ["0", "1"]
    assert parts_of_outline("app", told, named={first.id}) == [first, second]

    response = StreamsGroupDescribeResponse
    described = response.Subtopology(
        subtopology_id=second.id,
        repartition_source_topics=[response.TopicInfo(name="app-counts-repartition")],
        state_changelog_topics=[response.TopicInfo(name="app-counts-changelog")],
    )
    (part,) = parts_of_description([described])
    assert (part.id, part.sources, part.stores) == (second.id, second.sources, ("app-counts-changelog",))
    assert not part.knows_sinks


def test_a_subtopology_whose_records_choose_the_topic_says_so() -> None:
    builder = StreamsBuilder()
    for source in ("clicks", "orders"):
        lines = builder.stream(source, key=serdes.string, value=serdes.string)
        lines.to((lambda key, value, context: value) if source == "orders" else "seen")
    topology = builder.build()
    told = {**outline(topology).to_json(), "subtopologies_with_chosen_sinks": chosen_sinks(topology)}
    parts = {each.sources: each for each in parts_of_outline("app", told)}
    assert (parts["clicks",].sinks, parts["clicks",].chosen_sinks) == (("seen",), False)
    assert (parts["orders",].sinks, parts["orders",].chosen_sinks) == ((), True)


def test_global_tables_are_drawn_and_listed_though_no_group_knows_them() -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", key=serdes.string, value=serdes.long, store="known-rates")
    orders = builder.stream("orders", key=serdes.string, value=serdes.string)
    orders.join(rates, lambda order, rate: order, on=lambda key, value: key).to("priced")
    topology = builder.build()
    told = {**outline(topology).to_json(), "global_tables": global_tables(topology)}
    parts = parts_of_outline("app", told)
    assert [(each.is_global, each.sources, each.stores) for each in parts] == [
        (False, ("orders",), ()),
        (True, ("rates",), ("known-rates",)),
    ]
    page = shown(member("one"), parts=parts, offsets=[offset("orders", 0, 3)], global_partitions={"rates": 2})
    assert [(each["topic"], each["partitions"], each.get("read_by")) for each in page["topics"]] == [
        ("orders", 1, None),
        ("rates", 2, "every instance"),
    ]
