"""What becomes of stores that the old version does not have, where their topics have been used before."""

from __future__ import annotations

import re

from topology import StreamsBuilder, serdes
from topology.graph.diff import ClusterTopics, SourceChange, StateChange, TopologyDiff, Verdict, diff
from topology.graph.new_state import FoundTopics
from topology.graph.outline import TopologyOutline, outline

TEXT = {"key": serdes.string, "value": serdes.string}
ROWS = {"new-changelog": 40}


def version(*topics: str, new: str = "", table: bool = False) -> TopologyOutline:
    """``new``: the topic that the store of that name counts, or keeps."""
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic, **TEXT).group_by_key().count(store=topic)
    if new and table:
        builder.table(new, store="new", **TEXT)
    elif new.startswith("pattern "):
        builder.stream(re.compile(new.removeprefix("pattern ")), **TEXT).group_by_key().count(store="new")
    elif new:
        builder.stream(new, **TEXT).group_by_key().count(store="new")
    return outline(builder.build())


def compared(old: TopologyOutline, new: TopologyOutline, found: FoundTopics) -> TopologyDiff:
    return diff(old, new, ClusterTopics(found=found))


def change(old: TopologyOutline, new: TopologyOutline, found: FoundTopics) -> StateChange:
    return next(each for each in compared(old, new, found).state if each.name == "new")


def test_a_store_that_comes_back_after_a_rollback_continues_with_what_its_changelog_has() -> None:
    found = FoundTopics(ROWS, frozenset({"a", "b"}))
    back = change(version("a"), version("a", new="b"), found)
    assert back.fate == "resumed"
    assert back.reason.startswith(
        "not empty: its changelog new-changelog has 40 records of an earlier run of a version"
    )
    assert back.reason.endswith("Of b it misses nothing and gets nothing twice, if no other version has read it since")
    assert back.cure == "don't reset the offsets: it would process records twice"
    assert compared(version("a"), version("a", new="b"), found).verdict is Verdict.REBUILT_OR_ORPHANED


def test_what_other_versions_have_read_in_the_meantime_is_missing() -> None:
    builder = StreamsBuilder()
    words = builder.stream("a", **TEXT)
    words.group_by_key().count(store="a")
    words.group_by_key().count(store="new")
    both = outline(builder.build())
    back = change(version("a"), both, FoundTopics(ROWS, frozenset({"a"})))
    assert back.reason.endswith("It does not include records of a that other versions have read since")
    assert back.cure == (
        "if what is missing of a matters, begin anew: delete the changelog (streamsrt topics delete APP-new-changelog "
        "--execute) and the local state of stopped instances that had the store (streamsrt state clean -a APP --execute), "
        "and make the plan again. Don't reset the offsets before that: the store would process records twice"
    )
    assert change(version("a"), both, FoundTopics({"new-changelog": 0}, frozenset({"a"}))).fate == "rebuilt"


def test_offsets_that_have_expired_would_be_counted_twice() -> None:
    back = change(version("a"), version("a", new="b"), FoundTopics(ROWS, frozenset({"a"})))
    assert back.cure.startswith(
        "the group has no offsets of b, so the topic is read from the start (auto.offset.reset) and"
    )
    assert "delete the changelog (streamsrt topics delete APP-new-changelog --execute)" in back.cure


def test_a_table_may_read_its_topic_again() -> None:
    back = change(version("a"), version("a", new="b", table=True), FoundTopics(ROWS, frozenset({"a", "b"})))
    assert (back.fate, back.cure) == ("resumed", "")


def test_a_topic_that_the_group_has_never_read_is_not_called_read() -> None:
    old, new = version("a"), version("a", new="b")
    never = change(old, new, FoundTopics({}, frozenset({"a"})))
    assert (never.fate, never.reason, never.cure) == ("rebuilt", "new: it starts empty", "")
    assert (never.topics, never.read_anew) == (("b",), ("b",))
    for found in (FoundTopics({}, frozenset({"b"})), FoundTopics()):
        read = change(old, new, found)
        assert "does not include records of b that were already read" in read.reason
        assert (read.topics, read.read_anew) == (("b",), ())
        assert "reset-offsets APP --topic b --to-earliest" in read.cure


def test_a_source_topic_that_a_pattern_matches_is_read() -> None:
    named, matched = version("orders", "other"), version(new="pattern ord.*")
    there = compared(named, matched, FoundTopics())
    assert there.sources == (SourceChange("orders", "same"), SourceChange("other", "gone"))
    back = compared(matched, named, FoundTopics())
    assert back.sources == (SourceChange("orders", "same"), SourceChange("other", "new"))
    assert (
        "orders that were already read"
        in change(named, version("x", new="orders"), FoundTopics({}, frozenset())).reason
    )
