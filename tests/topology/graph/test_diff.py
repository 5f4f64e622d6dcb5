"""What a new version does to state that is there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.diff import ClusterTopics, TopologyDiff, Verdict, diff
from topology.graph.outline import TopologyOutline, outline

Program = Callable[[StreamsBuilder], object]


def compare(old: list[Program], new: list[Program], epoch: int = 0) -> TopologyDiff:
    return diff(*outlines([old, new], epoch))


def outlines(versions: list[list[Program]], epoch: int = 0) -> list[TopologyOutline]:
    found = []
    for programs in versions:
        builder = StreamsBuilder()
        for program in programs:
            program(builder)
        found.append(outline(builder.build(epoch=epoch)))
    return found


def fates(found: TopologyDiff) -> dict[str, str]:
    return {change.name: change.fate for change in found.state}


def reason(found: TopologyDiff, name: str) -> str:
    return next(change.reason for change in found.state if change.name == name)


def counting(
    topic: str, *, store: Store | str | None = None, filtered: bool = False, key: serdes.Serde[str] = serdes.string
) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream(topic, key=key, value=serdes.string)
        if filtered:
            stream = stream.filter(lambda _key, _value: True)
        stream.group_by_key().count(store=store or f"{topic}-counts")

    return program


def windowed(size_s: int, grace_s: int = 60) -> Program:
    def program(builder: StreamsBuilder) -> None:
        windows = TimeWindows(timedelta(seconds=size_s), grace=timedelta(seconds=grace_s))
        stream = builder.stream("clicks", key=serdes.string, value=serdes.string)
        stream.group_by_key().windowed_by(windows).count(store="clicks-per-window")

    return program


def regrouping(partitions: int | None = None) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("orders", key=serdes.string, value=serdes.string)
        stream.repartition(partitions=partitions, name="orders").group_by_key().count(store="orders-counts")

    return program


def test_the_same_program_needs_nothing() -> None:
    found = compare([counting("a")], [counting("a")], epoch=4)
    assert (found.verdict, found.epoch_before, found.epoch_needed) == (Verdict.SAME, 4, 4)
    assert [change.change for change in found.subtopologies] == ["same"]


@pytest.mark.requirement("SG-123")
def test_every_change_needs_the_next_epoch_also_the_way_back() -> None:
    forth = compare([counting("a")], [counting("a", filtered=True)], epoch=4)
    back = compare([counting("a", filtered=True)], [counting("a")], epoch=5)
    assert [(each.verdict, each.epoch_needed) for each in (forth, back)] == [
        (Verdict.CARRIED_OVER, 5),
        (Verdict.CARRIED_OVER, 6),
    ]
    assert fates(forth) == fates(back) == {"a-counts": "carried over"}


def test_a_subtopology_in_front_renumbers_and_carries_over() -> None:
    found = compare([counting("a")], [counting("new"), counting("a")])
    by_change = {change.change: change for change in found.subtopologies}
    assert set(by_change) == {"new", "same"}, "its tasks stay"
    assert (by_change["same"].number_before, by_change["same"].number_after) == (0, 1)
    assert by_change["same"].why == "number 0 -> 1, other steps or formats, the same tasks"
    assert fates(found) == {"new-counts": "rebuilt", "a-counts": "carried over"}
    assert found.verdict is Verdict.REBUILT_OR_ORPHANED


def limited(max_entries: int | None) -> Program:
    store = Store("last", key=serdes.string, value=serdes.string, in_memory=True, max_entries=max_entries)
    return lambda builder: builder.table("orders", key=serdes.string, value=serdes.string, store=store)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (9, 5, "it keeps 5 entries per partition, and had 9: what is too much is deleted"),
        (None, 5, "it keeps 5 entries per partition, and had no limit: what is too much is deleted"),
        (5, 9, "entries that were dropped do not come back"),
        (5, None, "the limit of 5 entries per partition ends: entries that were dropped do not come back"),
    ],
)
def test_entries_that_another_limit_drops_are_told(before: int | None, after: int | None, said: str) -> None:
    assert said in reason(compare([limited(before)], [limited(after)]), "last")


def test_a_limit_that_an_earlier_release_did_not_write_is_not_compared() -> None:
    old, new = outlines([[limited(9)], [limited(5)]])
    rows = orjson.loads(orjson.dumps(old.to_json()))
    del rows["stores"][0]["max_entries"]
    assert "entries" not in reason(diff(TopologyOutline.from_json(rows), new), "last")


def test_a_store_that_is_gone_is_left_behind_with_its_changelog() -> None:
    found = compare([counting("a"), counting("b")], [counting("a")])
    assert fates(found) == {"a-counts": "carried over", "b-counts": "orphaned"}
    assert "b-counts-changelog" in reason(found, "b-counts")
    assert [change.change for change in found.subtopologies] == ["same", "gone"]
    unlogged = compare([counting("a", store=Store("x", logging=False)), counting("b")], [counting("b")])
    assert reason(unlogged, "x") == "gone: it had no changelog"


def test_other_bytes_under_the_same_name_are_incompatible() -> None:
    for old, new, said in (
        (windowed(60), windowed(120), "window_size_ms 60000 -> 120000"),
        (counting("a"), counting("a", key=serdes.json), "key_serde string -> json"),
        (counting("clicks", store="clicks-per-window"), windowed(60), "kind key_value -> window"),
    ):
        found = compare([old], [new])
        assert found.verdict is Verdict.INCOMPATIBLE
        (change,) = found.state
        assert change.fate == "incompatible"
        assert said in change.reason
        assert "another name" in change.reason


def test_a_changelog_that_comes_or_goes_begins_anew() -> None:
    logged, unlogged = counting("a", store=Store("x")), counting("a", store=Store("x", logging=False))
    came = reason(compare([unlogged], [logged]), "x")
    assert came.startswith(
        "its changelog was none and is x-changelog: it starts empty and does not include records of a that were already "
        "read"
    )
    assert fates(compare([logged], [unlogged])) == {"x": "rebuilt"}


def test_where_a_store_lies_and_how_long_it_keeps_does_not_change_its_bytes() -> None:
    found = compare(
        [counting("a", store=Store("x", in_memory=False))], [counting("a", store=Store("x", in_memory=True))]
    )
    assert fates(found) == {"x": "carried over"}
    assert "restored from its changelog" in reason(found, "x")
    found = compare([windowed(60, 60)], [windowed(60, 600)])
    assert fates(found) == {"clicks-per-window": "carried over"}
    assert reason(found, "clicks-per-window").startswith("retention")
    assert "retention.ms of its changelog 86520000 -> 87060000" in reason(found, "clicks-per-window")
    shorter = compare([windowed(60, 600)], [windowed(60, 60)])
    assert "continues to keep records for 87060000 ms" in reason(shorter, "clicks-per-window")
    assert "the segments of its files differ" in reason(shorter, "clicks-per-window")
    assert found.verdict is Verdict.CARRIED_OVER


def test_repartition_topics() -> None:
    assert fates(compare([counting("a")], [counting("a"), regrouping()]))["orders-repartition"] == "rebuilt"
    assert fates(compare([counting("a"), regrouping()], [counting("a")]))["orders-repartition"] == "orphaned"
    assert fates(compare([regrouping(4)], [regrouping(4), counting("a")]))["orders-repartition"] == "carried over"
    found = compare([regrouping(4)], [regrouping()])
    assert found.verdict is Verdict.INCOMPATIBLE
    assert "partitions 4 -> derived" in reason(found, "orders-repartition")


TOPICS = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)


@given(TOPICS, TOPICS)
def test_each_store_and_each_subtopology_is_told_of_once(old: list[str], new: list[str]) -> None:
    found = compare([counting(topic) for topic in old], [counting(topic) for topic in new])
    told = [change.name for change in found.state]
    assert sorted(told) == sorted(f"{topic}-counts" for topic in {*old, *new})
    assert {name for name, fate in fates(found).items() if fate == "carried over"} == {
        f"{topic}-counts" for topic in {*old} & {*new}
    }
    ids = [change.id for change in found.subtopologies]
    assert len(ids) == len(set(ids)) == len({*old, *new})
    assert (found.verdict is Verdict.SAME) == (old == new)


# ------------------------------------------------------------------------------------------------------- generated names


def unnamed(*counted: tuple[str, Callable[[str, str], str] | None]) -> list[Program]:
    """Counts without names of sources, grouped by the key or by a function."""

    def program(topic: str, by: Callable[[str, str], str] | None) -> Program:
        def build(builder: StreamsBuilder) -> None:
            stream = builder.stream(topic, key=serdes.string, value=serdes.string)
            grouped = stream.group_by_key() if by is None else stream.group_by(by, key=serdes.string)
            grouped.count()

        return build

    return [program(topic, by) for topic, by in counted]


def test_generated_names_that_changed_places_are_incompatible() -> None:
    found = compare(unnamed(("a", None), ("b", None)), unnamed(("b", None), ("a", None)))
    assert found.verdict is Verdict.INCOMPATIBLE
    first, second = (change.name for change in found.state)
    assert set(fates(found).values()) == {"incompatible"}
    assert "it was Aggregate of a" in reason(found, first)
    assert "and is Aggregate of b" in reason(found, first)
    assert f"that is {second} now" in reason(found, first)
    assert f'store="{first}"' in reason(found, first)
    # Of the same source the keys tell them apart.
    one: Callable[[str, str], str] = lambda key, value: value[:1]  # noqa: E731
    other: Callable[[str, str], str] = lambda key, value: value[-1:]  # noqa: E731
    found = compare(unnamed(("a", one), ("a", other)), unnamed(("a", other), ("a", one)))
    assert found.verdict is Verdict.INCOMPATIBLE
    assert set(fates(found).values()) == {"incompatible"}
    assert {change.kind for change in found.state} == {"store", "repartition topic"}


def test_a_generated_name_of_another_source_or_key_is_incompatible() -> None:
    assert compare(unnamed(("a", None)), unnamed(("b", None))).verdict is Verdict.INCOMPATIBLE

    def keyed(select: bool) -> list[Program]:
        def build(builder: StreamsBuilder) -> None:
            stream = builder.stream("a", key=serdes.string, value=serdes.string)
            changed = stream.select_key(lambda _, v: v) if select else stream.map_values(lambda v: v)
            changed.group_by_key(key=serdes.string).count()

        return [build]

    found = compare(keyed(False), keyed(True))
    (store,) = [change for change in found.state if change.kind == "store"]
    assert store.fate == "incompatible"
    assert "keyed by SelectKey" in store.reason


def test_generated_names_that_mean_the_same_are_carried_over() -> None:
    def counted(keep: str) -> list[Program]:
        def build(builder: StreamsBuilder) -> None:
            stream = builder.stream("a", key=serdes.string, value=serdes.string)
            stream.filter(lambda _k, v: v != keep).group_by_key().count()

        return [build]

    def grouped(by: Callable[[str, str], str]) -> list[Program]:
        return unnamed(("a", by))

    assert set(fates(compare(counted("x"), counted("y"))).values()) == {"carried over"}
    # A function that is edited is no other one.
    edited = compare(grouped(lambda _, v: v[:1]), grouped(lambda _, v: v[:2]))
    assert set(fates(edited).values()) == {"carried over"}

    def widened(*topics: str) -> list[Program]:
        def build(builder: StreamsBuilder) -> None:
            builder.stream(topics, key=serdes.string, value=serdes.string).group_by_key().count()

        return [build]

    assert set(fates(compare(widened("a"), widened("a", "b"))).values()) == {"carried over"}


def test_a_name_that_was_generated_keeps_its_state_when_it_is_given() -> None:
    before = compare(unnamed(("a", None), ("b", None)), unnamed(("a", None), ("b", None)))
    first, second = (change.name for change in before.state)
    given: list[Program] = [counting("b", store=second), counting("a", store=first)]
    assert fates(compare(unnamed(("a", None), ("b", None)), given)) == {first: "carried over", second: "carried over"}


def test_rows_without_room_for_timestamps_are_incompatible() -> None:
    plain, timed = counting("a", store=Store("x", plain_rows=True)), counting("a", store="x")
    for old, new in ((plain, timed), (timed, plain)):
        found = compare([old], [new])
        assert found.verdict is Verdict.INCOMPATIBLE
        assert "plain_rows" in reason(found, "x")


def test_an_outline_of_a_version_that_said_less_compares_what_it_says() -> None:
    (old,) = outlines([unnamed(("a", None))])
    (new,) = outlines([unnamed(("b", None))])
    value = old.to_json()
    del value["origins"]
    for store in value["stores"]:
        for name in ("plain_rows", "segment_interval_ms", "changelog_retention_ms"):
            del store[name]
    for subtopology in value["subtopologies"]:
        del subtopology["copartition_groups"]
    assert set(fates(diff(TopologyOutline.from_json(value), new)).values()) == {"carried over"}
    assert TopologyOutline.from_json(orjson.loads(orjson.dumps(old.to_json()))) == old


# ------------------------------------------------------------------------------------------------------------ partitions


def test_a_changelog_that_has_another_number_of_partitions_is_incompatible() -> None:
    def reading(*topics: str) -> list[Program]:
        def build(builder: StreamsBuilder) -> None:
            builder.stream(topics, key=serdes.string, value=serdes.string).group_by_key().count(store="counts")

        return [build]

    old, new = outlines([reading("a"), reading("a", "b")])
    sources = {"a": 2, "b": 4}
    for topics in (ClusterTopics(sources), ClusterTopics(sources, {"counts-changelog": 2})):
        found = diff(old, new, topics)
        assert found.verdict is Verdict.INCOMPATIBLE
        assert "its changelog has 2, and its subtopology has 4 tasks" in reason(found, "counts")
    for topics in (ClusterTopics({"a": 2, "b": 2}), ClusterTopics({"a": 2}), ClusterTopics()):
        assert diff(old, new, topics).verdict is Verdict.CARRIED_OVER
    # Also where the program stays, and a source has got more partitions.
    found = diff(old, old, ClusterTopics({"a": 3}, {"counts-changelog": 2}))
    assert found.verdict is Verdict.INCOMPATIBLE
    assert "streamsrt state repartition MODULE:TOPOLOGY" in reason(found, "counts")
    # Partitions can't be taken away.
    found = diff(old, old, ClusterTopics({"a": 2}, {"counts-changelog": 3}))
    assert "state repartition" not in reason(found, "counts")


def test_a_repartition_that_does_not_fit_the_changelog_is_incompatible() -> None:
    old, new = outlines([[regrouping(4)], [regrouping(8)]])
    found = diff(old, new)
    assert fates(found) == {"orders-counts": "incompatible", "orders-repartition": "incompatible"}
    assert "its changelog has 4, and its subtopology has 8 tasks" in reason(found, "orders-counts")
    direct, repartitioned = outlines([[counting("orders")], [regrouping(8)]])
    found = diff(direct, repartitioned, ClusterTopics({"orders": 2}))
    assert fates(found)["orders-counts"] == "incompatible"
    derived = outlines([[regrouping()]])[0]
    assert fates(diff(direct, derived, ClusterTopics({"orders": 2})))["orders-counts"] == "carried over"
    found = diff(
        derived, derived, ClusterTopics({"orders": 3}, {"orders-repartition": 2, "orders-counts-changelog": 3})
    )
    assert "partitions 2 -> 3, with its sources" in reason(found, "orders-repartition")
    # A count that is named is another one only if the topic has another one.
    named = outlines([[regrouping(2)]])[0]
    for old, new in ((derived, named), (named, derived)):
        unknown = reason(diff(old, new), "orders-repartition")
        assert unknown.endswith(
            "If the topic has 2 already, nothing changes: streamsrt topology diff --group APP knows"
        )
        assert fates(diff(old, new, ClusterTopics({"orders": 2})))["orders-repartition"] == "carried over"
        other = reason(diff(old, new, ClusterTopics({"orders": 3})), "orders-repartition")
        assert other.endswith("give the repartition another name")
    assert "streamsrt state repartition MODULE:TOPOLOGY" in reason(found, "orders-repartition")


# ----------------------------------------------------------------------------------------------------------------- cures


def joined(*, foreign: bool, counted: bool = False) -> list[Program]:
    def build(builder: StreamsBuilder) -> None:
        orders = builder.table("orders", key=serdes.string, value=serdes.string, store="orders")
        customers = builder.table("customers", key=serdes.string, value=serdes.string, store="customers")
        if foreign:
            both = orders.join(customers, lambda o, c: f"{o}{c}", foreign_key=lambda order: order, name="both")
            both.to_stream().to("out", key=serdes.string, value=serdes.string)
        if counted:
            builder.stream("events", key=serdes.string, value=serdes.string).group_by_key().count(store="events")
            orders.to_stream().group_by_key().count(store="changes")

    return [build]


def test_what_a_new_store_does_not_hold_is_said_with_what_helps() -> None:
    found = compare(joined(foreign=False), joined(foreign=True))
    new = [change for change in found.state if change.kind == "store" and change.fate == "rebuilt"]
    assert new
    for change in new:
        assert set(change.topics) <= {"orders", "customers"}
        assert "that were already read" in change.reason
        assert change.cure.startswith("read the topics again before the new version starts: stop all instances")
        assert "streamsrt groups reset-offsets APP --topic" in change.cure
    # Counting the same topic, another store would count what is read anew once more.
    found = compare(joined(foreign=False, counted=True), joined(foreign=True, counted=True))
    cures = {change.cure for change in found.state if change.fate == "rebuilt" and "orders" in change.topics}
    assert cures == {
        "don't reset the offsets: changes would process the records twice. Instead, run the new version beside the old one "
        "under another application id"
    }
    found = compare([counting("a")], [counting("a"), counting("a", store="b", filtered=True)])
    (cure,) = (change.cure for change in found.state if change.name == "b")
    assert cure.endswith("under another application id; streamsrt backfill can fill its state")
    history = Store("history", kind="versioned", retention=1000)
    found = compare([counting("a")], [counting("a"), counting("a", store=history)])
    (cure,) = (change.cure for change in found.state if change.name == "history")
    assert cure.endswith("under another application id; streamsrt backfill can fill its state")


def test_what_is_left_behind_is_said_with_what_deletes_it() -> None:
    found = compare([counting("a"), regrouping()], [counting("a")])
    cures = {change.name: change.cure for change in found.state if change.fate == "orphaned"}
    assert cures["orders-counts"] == "streamsrt topics delete APP-orders-counts-changelog --execute"
    assert cures["orders-repartition"].startswith("old instances read it to the end first: leave one running until")


def _totals(builder: StreamsBuilder, first: str, second: str) -> None:
    """Two counts by customer: from one repartition topic, or from one for each."""
    orders = builder.stream("orders", key=serdes.string, value=serdes.string)
    ways = {name: orders.repartition(name=name) for name in dict.fromkeys((first, second))}
    ways[first].group_by_key().count(store="spent")
    ways[second].group_by_key().count(store="sold")


def by(first: str, second: str) -> Program:
    return lambda builder: _totals(builder, first, second)


@pytest.mark.parametrize(
    ("old", "new", "incompatible"),
    [
        (("a", "a"), ("a", "b"), {"sold"}),
        (("a", "b"), ("a", "a"), {"sold"}),
        (("a", "a"), ("x", "y"), set()),
        (("a", "b"), ("c", "c"), set()),
        (("a", "b"), ("b", "a"), {"spent", "sold"}),
    ],
    ids=["split", "merged", "split by new names", "merged by a new name", "exchanged"],
)
def test_a_store_that_another_repartition_feeds_while_one_of_them_stays_is_incompatible(
    old: tuple[str, str], new: tuple[str, str], incompatible: set[str]
) -> None:
    found = compare([by(*old)], [by(*new)])
    assert {name for name, fate in fates(found).items() if fate == "incompatible"} == incompatible
    assert (found.verdict == Verdict.INCOMPATIBLE) is bool(incompatible)
    for name in incompatible:
        assert "would not reach it, or reach it twice" in reason(found, name)


def repartitioned(
    key: serdes.Serde[Any] = serdes.string, value: serdes.Serde[Any] = serdes.string, name: str = "by"
) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("orders", key=serdes.string, value=serdes.string).select_key(lambda _key, value: value)
        stream.repartition(name=name, key=key, value=value).group_by_key().count(store="orders-counts")

    return program


def test_another_serde_of_a_repartition_topic_that_stays_is_incompatible() -> None:
    for serde, new in (
        ("key_serde", repartitioned(key=serdes.json)),
        ("value_serde", repartitioned(value=serdes.json)),
    ):
        found = compare([repartitioned()], [new])
        assert found.verdict == Verdict.INCOMPATIBLE
        told = reason(found, "by-repartition")
        assert told.startswith(f"{serde} string -> json: records in flight, and those that old and new instances ")
        assert "Give the step that writes it another name (name=)" in told
    renamed = compare([repartitioned()], [repartitioned(value=serdes.json, name="by-2")])
    assert fates(renamed)["by-2-repartition"] == "rebuilt"


def test_serdes_of_a_repartition_topic_that_are_not_known_are_not_compared() -> None:
    old, new = outlines([[repartitioned()], [repartitioned(value=serdes.json)]])
    saved = old.to_json()
    del saved["repartition_serdes"]
    earlier = TopologyOutline.from_json(orjson.loads(orjson.dumps(saved)))
    assert "by-repartition" in earlier.incomplete
    assert fates(diff(earlier, new))["by-repartition"] == "carried over"
    again = TopologyOutline.from_json(orjson.loads(orjson.dumps(old.to_json())))
    assert not again.incomplete
    assert fates(diff(again, new))["by-repartition"] == "incompatible"


def placed(partitioner: Any = None, *, has_rows: bool = True) -> Program:
    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("orders", key=serdes.string, value=serdes.string)
        moved = stream.repartition(name="by", partitioner=partitioner)
        if has_rows:
            moved.group_by_key().count(store="orders-counts")
        else:
            moved.foreach(lambda _key, _value: None)

    return program


def first_letter(_topic: str, key: str, _value: str, partitions: int) -> int:
    return ord(key[0]) % partitions


def last_letter(_topic: str, key: str, _value: str, partitions: int) -> int:
    return ord(key[-1]) % partitions


def test_a_partitioner_that_comes_or_goes_in_front_of_rows_is_incompatible() -> None:
    for old, new, now in ((None, first_letter, "one of the program"), (first_letter, None, "the default one")):
        found = compare([placed(old)], [placed(new)])
        assert found.verdict == Verdict.INCOMPATIBLE
        assert f", and is {now}: keys would go to other partitions than their rows" in reason(found, "by-repartition")
        assert compare([placed(old, has_rows=False)], [placed(new, has_rows=False)]).verdict < Verdict.INCOMPATIBLE


def test_the_edited_code_of_a_partitioner_is_said() -> None:
    found = compare([placed(first_letter)], [placed(last_letter)])
    assert found.verdict == Verdict.SAME, "digests don't cover functions"
    (said,) = found.kept_otherwise
    assert said.startswith("repartition topic by-repartition: the code of its partitioner differs: if it names other")
    assert compare([placed(first_letter)], [placed(first_letter)]).kept_otherwise == ()


def test_partitioners_that_are_not_known_are_not_compared() -> None:
    old, new = outlines([[placed()], [placed(first_letter)]])
    saved = old.to_json()
    del saved["partitioners"]
    earlier = TopologyOutline.from_json(orjson.loads(orjson.dumps(saved)))
    assert fates(diff(earlier, new))["by-repartition"] == "carried over"


def through_a_topic(partitioner: Any = None, *, steps: Any = lambda stream: stream) -> Program:
    def program(builder: StreamsBuilder) -> None:
        text = {"key": serdes.string, "value": serdes.string}
        builder.stream("orders", **text).to("placed", partitioner=partitioner, **text)
        steps(builder.stream("placed", **text)).group_by_key().count(store="counts")

    return program


def test_another_partitioner_of_a_topic_that_the_program_writes_and_reads_is_said() -> None:
    for old, new, said in (
        (None, first_letter, "partitioner: it was the default one, and is one of the program, in the to("),
        (first_letter, None, "partitioner: it was one of the program, and is the default one, in the to("),
        (
            first_letter,
            last_letter,
            "the code of the partitioner differs, in the to(partitioner=) that writes placed. A",
        ),
    ):
        found = compare([through_a_topic(old)], [through_a_topic(new)])
        assert found.verdict < Verdict.INCOMPATIBLE, "rows may be where the new one looks for them"
        (note,) = found.kept_otherwise
        assert note.startswith(f"store counts: {said}")
    assert compare([through_a_topic(first_letter)], [through_a_topic(first_letter)]).kept_otherwise == ()
    # Behind a repartition topic, its own partitioner counts.
    moved = [through_a_topic(each, steps=lambda stream: stream.repartition(name="by")) for each in (None, first_letter)]
    assert compare(moved[:1], moved[1:]).kept_otherwise == ()


def test_the_partitioner_of_a_topic_in_a_file_of_an_earlier_release_is_not_compared() -> None:
    old, new = outlines([[through_a_topic()], [through_a_topic(first_letter)]])
    saved = orjson.loads(orjson.dumps(old.to_json()))
    assert diff(TopologyOutline.from_json(saved), new).kept_otherwise
    del saved["sink_partitioners"]
    assert diff(TopologyOutline.from_json(saved), new).kept_otherwise == ()
