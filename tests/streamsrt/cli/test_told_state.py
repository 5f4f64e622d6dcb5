"""What running instances tell is compared as two programs are: the same fates, and the same words where they know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from streamsrt.cli.told_state import ToldState
from streamsrt.membership.state_marks import MOST_STORES
from streamsrt.runtime.group_facts import MemberFacts
from streamsrt.runtime.store_origins import marks_tag
from streamsrt.wire.client_tags import STORE_MARKS
from topology import (
    Buffer,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Upcast,
    serdes,
)
from topology.graph.diff import StateChange, diff
from topology.graph.misread import FORMAT, KeptSettings, kept_by
from topology.graph.outline import StoreOutline, outline
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
MINUTE_MS = 60_000


def member(topology: Topology, *, earlier: bool = False) -> MemberFacts:
    """A member that runs this topology. ``earlier``: of a release that tells marks alone."""
    tags = marks_tag(topology)
    return telling({STORE_MARKS: tags[STORE_MARKS]} if earlier else tags)


def telling(tags: Mapping[str, str]) -> MemberFacts:
    """A member with these tags."""
    return MemberFacts(
        member_id="m",
        instance_id=None,
        process_id="p",
        client_id="c",
        host="h",
        epoch=0,
        digest=None,
        state_tags=tags,
    )


def changes(old: Topology, new: Topology, *, earlier: bool = False) -> list[StateChange]:
    """What is found if only the running instances tell what the old version keeps."""
    told, before, after = ToldState.of([member(old, earlier=earlier)]), outline(old), outline(new)
    # What changelogs keep is known from their topics.
    logs_ms = {store.name: store.changelog_retention_ms for store in before.stores}
    known = type(after)(
        digest="",
        epoch=before.epoch,
        subtopologies=after.subtopologies,
        stores=tuple(
            replace(told.store(store, kept_by(after)), changelog_retention_ms=logs_ms[store.kept_as])
            for store in after.stores
            if store.kept_as in logs_ms
        ),
        repartition_topics=before.repartition_topics,
    )
    return list(diff(known, after, kept=told.kept(after, kept_by(before))).state)


def kept(store: Store | str = "kept", value: Any = serdes.string) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).group_by_key().aggregate(
        str, lambda _key, value, _last: value, store=store, value=value
    )
    return builder.build()


def windowed(windows: Any, **given: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).group_by_key().windowed_by(windows).count(store=Store("kept", **given))
    return builder.build()


def held(**given: Any) -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in", **TEXT).group_by_key().windowed_by(TimeWindows(MINUTE_MS, grace=0)).count(store="w")
    windows.suppress(Suppressed.until_window_closes(Buffer(**given)), name="kept").to_stream().foreach(lambda *_: None)
    return builder.build()


def joined(*, swapped: bool) -> Topology:
    builder = StreamsBuilder()
    first, second = (builder.stream(topic, **TEXT) for topic in ("in", "other"))
    one, other = (second, first) if swapped else (first, second)
    one.outer_join(other, "{}{}".format, JoinWindows(1_000), store="st").foreach(lambda _k, _v: None)
    return builder.build()


def fed(topic: str, *, keyed: bool = False) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(topic, **TEXT)
    (stream.group_by(lambda _, value: value) if keyed else stream.group_by_key()).count(store="kept")
    return builder.build()


def repartitioned(value: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT).map_values(str.encode).repartition(name="by", value=value)
    stream.group_by_key().count(store="kept")
    return builder.build()


def hours(number: int) -> timedelta:
    return timedelta(hours=number)


def second(serde: Any, *versions: int) -> Store:
    upcast = {version: Upcast(str, serde=serde) for version in versions or (1,)}
    return Store("kept", version=max(upcast) + 1, upcast=upcast)


SAME_WORDS = {
    "ttl": (kept(Store("kept", ttl=hours(2))), kept(Store("kept", ttl=hours(1))), "ttl 7200000 -> 3600000 ms"),
    "a ttl that begins": (kept(), kept(Store("kept", ttl=hours(1))), "kind key-value -> key-value"),
    "retention": (
        windowed(TimeWindows(MINUTE_MS, grace=MINUTE_MS)),
        windowed(TimeWindows(MINUTE_MS, grace=hours(50))),
        "retention 120000 -> ",
    ),
    "another retention of the store": (
        windowed(TimeWindows(MINUTE_MS, grace=0), retention=hours(9)),
        windowed(TimeWindows(MINUTE_MS, grace=0), retention=hours(3)),
        "what is older expires",
    ),
    "a session's gap": (
        windowed(SessionWindows(MINUTE_MS, grace=0)),
        windowed(SessionWindows(2 * MINUTE_MS, grace=0)),
        "retention 60000 -> 120000 ms",
    ),
    "advance": (
        windowed(TimeWindows(MINUTE_MS, grace=0)),
        windowed(TimeWindows(MINUTE_MS, 25_000, grace=0)),
        "its windows begin every 25000 ms instead of every 60000 ms",
    ),
    "an upcast that is gone": (
        kept(second(serdes.long, 1, 2), serdes.json),
        kept(Store("kept", version=3, upcast={2: Upcast(str, serde=serdes.long)}), serdes.json),
        "values of version 1 can no longer be read",
    ),
    "another version": (kept(), kept(second(serdes.string), serdes.json), "values of version 1 become version 2"),
    "in memory": (kept(), kept(Store("kept", in_memory=True)), "since it moves between memory and disk"),
    "a buffer": (
        held(),
        held(version=2, upcast={1: Upcast(int, serde=serdes.long)}),
        "values of version 1 become version 2",
    ),
    "window size": (
        windowed(TimeWindows(MINUTE_MS, grace=0)),
        windowed(TimeWindows(2 * MINUTE_MS, grace=0)),
        "window_size_ms 60000 -> 120000",
    ),
    "kind of windows": (
        windowed(TimeWindows(MINUTE_MS, grace=0)),
        windowed(SlidingWindows(MINUTE_MS, grace=0)),
        "rows of tumbling or hopping windows would be taken for rows of sliding windows",
    ),
    "no upcast": (kept(), kept(Store("kept", version=3, upcast={2: str})), "there is no upcast={1: ...}"),
    "an earlier version": (kept(second(serdes.string), serdes.json), kept(), "which version 1 can't read"),
    "nothing": (kept(), kept(), ""),
}


@pytest.mark.parametrize("case", SAME_WORDS)
def test_it_is_said_as_if_the_old_program_were_given(case: str) -> None:
    old, new, said = SAME_WORDS[case]
    if case == "a ttl that begins":
        old, said = kept(Store("kept", ttl=hours(1))), ""
    known = diff(outline(old), outline(new)).state
    told = changes(old, new)
    assert [(each.name, each.fate) for each in told] == [(each.name, each.fate) for each in known]
    for mine, theirs in zip(told, known, strict=True):
        assert mine.reason == theirs.reason
    assert any(said in each.reason for each in told)


OTHER_WORDS = {
    "serde": (kept(), kept(value=serdes.long), "incompatible", "value_serde another one -> long"),
    "upcast to another serde": (
        kept(),
        kept(second(serdes.integer), serdes.json),
        "incompatible",
        "value_serde another one -> integer",
    ),
    "serde of earlier values": (
        kept(second(serdes.long), serdes.json),
        kept(second(serdes.integer), serdes.json),
        "carried over",
        "the serde that reads values of version 1 is integer, and was another one: if such values are left",
    ),
    "sides": (
        joined(swapped=False),
        joined(swapped=True),
        "incompatible",
        "the sides of the join have changed places: it would get records of",
    ),
    "serde of a repartition topic": (
        repartitioned(serdes.bytes),
        repartitioned(serdes.json),
        "incompatible",
        "value_serde is json now, and was another one: records in flight",
    ),
    "fed otherwise": (
        fed("in"),
        fed("other"),
        "carried over",
        "other topics or steps fill it: it is Aggregate of other now",
    ),
}


@pytest.mark.parametrize("case", OTHER_WORDS)
def test_what_only_hashes_tell_is_another_one(case: str) -> None:
    old, new, fate, said = OTHER_WORDS[case]
    told = changes(old, new)
    known = {each.name: each.fate for each in diff(outline(old), outline(new)).state}
    assert {each.name: each.fate for each in told} == known
    assert any(said in each.reason for each in told)
    assert fate in known.values()


def test_all_of_a_store_is_told_or_known_otherwise() -> None:
    """A new field of an outline is compared without the old program, too."""
    of_names_and_topics = {"name", "renamed_from", "changelog", "changelog_retention_ms"}
    told = {*FORMAT, *KeptSettings._fields, "version", "upcasts"} - {"advance_ms"}
    only_with_the_old_program = {"max_entries"}  # docs/upgrades.md says so
    assert {each.name for each in fields(StoreOutline)} == of_names_and_topics | told | only_with_the_old_program


def test_generated_names_that_mean_something_else() -> None:
    def reduced(*functions: Any) -> Topology:
        builder = StreamsBuilder()
        grouped = builder.stream("in", **TEXT).group_by_key()
        for function in functions:
            grouped.reduce(function).to_stream().foreach(lambda _k, _v: None)
        return builder.build()

    told = changes(reduced(max, min), reduced(min, max))
    assert {each.fate for each in told} == {"incompatible"}
    assert all("a generated name that means something else: it was another table" in each.reason for each in told)


def test_instances_of_an_earlier_release_tell_no_settings() -> None:
    old, new, _ = SAME_WORDS["ttl"]
    (told,) = changes(old, new, earlier=True)
    assert (told.fate, told.reason) == ("carried over", "")
    (told,) = changes(*SAME_WORDS["window size"][:2], earlier=True)
    assert told.fate == "incompatible"
    state = ToldState.of([member(old, earlier=True)])
    assert state.not_compared(["kept"], "--old") == (
        "ttl, retention, the advance of windows and earlier value versions were not compared: instances of an earlier "
        "release run (--old compares them)"
    )


def test_what_is_not_told_is_said() -> None:
    assert ToldState({}).not_compared(["kept"], "--old") == (
        "serdes, versions of values, windows, ttl, retention and generated names were not compared: no running instance "
        "tells them (--old compares them)"
    )
    assert ToldState({}).not_compared([], "--old") == ""
    builder = StreamsBuilder()
    words = builder.stream("in", **TEXT).group_by_key()
    names = [f"counts-{number:03}" for number in range(MOST_STORES + 7)]
    for name in names:
        words.count(store=name)
    state = ToldState.of([member(builder.build())])
    assert state.not_compared(names[:5], "--old") == ""
    assert (
        "retention and generated names of counts-064, counts-065, counts-066, counts-067, counts-068 and others were not"
        in (state.not_compared(names, "--old"))
    )
