"""What the comparison of two versions says of a store is what becomes of its rows: on disk, restored, by their meaning."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamsrt.state.cache import RowFormat
from streamsrt.state.directory import StateDirectory
from streamsrt.state.kinds import cache_over
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import RecordColumns
from topology import SessionWindows, Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.diff import StateChange, diff
from topology.graph.nodes import StoreSpec
from topology.graph.outline import outline
from topology.graph.topology import Topology
from topology.spec.names import is_generated

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
MINUTE_MS = 60_000
TOPICS = ("a", "b", "c")
APPLICATION = "app"


class Part(NamedTuple):
    """A table of a program. ``name`` None: generated."""

    topic: str
    is_regrouped: bool
    kind: str
    name: str | None
    grace_minutes: int = 1
    is_plain: bool = False
    logging: bool = True


PARTS = st.builds(
    Part,
    st.sampled_from(TOPICS),
    st.booleans(),
    st.sampled_from(["count", "windows", "sessions", "reduce"]),
    st.sampled_from([None, None, "x", "y"]),
    st.sampled_from([1, 30]),
    st.booleans(),
    st.booleans(),
)


def named_once(parts: list[Part]) -> bool:
    names = [part.name for part in parts if part.name is not None]
    return len(names) == len(set(names))


A, B = Part("a", False, "count", None), Part("b", False, "count", None)
VERSIONS = st.lists(PARTS, min_size=1, max_size=4).filter(named_once)


def build(parts: list[Part]) -> Topology:
    builder = StreamsBuilder()
    for part in parts:
        stream = builder.stream(part.topic, **TEXT)
        grouped = stream.group_by(lambda _, value: value[:2], **TEXT) if part.is_regrouped else stream.group_by_key()
        store = Store(part.name, plain_rows=part.is_plain and part.kind == "count", logging=part.logging)
        if part.kind == "windows":
            grouped.windowed_by(TimeWindows(MINUTE_MS, grace=part.grace_minutes * MINUTE_MS)).count(store=store)
        elif part.kind == "sessions":
            grouped.windowed_by(SessionWindows(10_000, grace=part.grace_minutes * MINUTE_MS)).count(store=store)
        elif part.kind == "reduce":
            grouped.reduce(max, store=store)
        else:
            grouped.count(store=store)
    return builder.build()


Rows = list[Any]


class Ran(NamedTuple):
    """The rows that stores have after the same input, and their changelogs."""

    rows: dict[str, Rows]
    logs: dict[str, RecordColumns]


def run(topology: Topology) -> Ran:
    with TopologyTestDriver(topology, {"application.id": APPLICATION}) as driver:
        for topic in {topic for each in topology.subtopologies for topic in each.source_topics}:
            chance = random.Random(topic)
            source = driver.create_input_topic(topic, serdes.string, serdes.string)
            for n in range(40):
                source.pipe_input(f"{topic}{chance.randrange(5)}", f"{topic}{chance.randrange(9)}", n * 9_000)
        driver.commit()
        found: dict[str, Rows] = {}
        for name in driver.store_names():
            get = {"window": driver.get_window_store, "session": driver.get_session_store}
            access: Any = get.get(driver.store_kind(name), driver.get_key_value_store)(name)
            found[name] = list(access.all())
        logs: dict[str, list[Any]] = {}
        for record in driver.producer_history:
            logs.setdefault(record.topic.removeprefix(f"{APPLICATION}-"), []).append(record)
    return Ran(found, {topic: _columns(records) for topic, records in logs.items()})


def _columns(records: list[Any]) -> RecordColumns:
    return RecordColumns(
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        0,
        len(records),
        None,
        None,
    )


def specs(topology: Topology) -> dict[str, StoreSpec]:
    return {spec.name: spec for each in topology.subtopologies for spec in each.stores}


def opened(directory: StateDirectory, spec: StoreSpec, log: RecordColumns | None) -> Rows:
    """The rows of a store that is opened, and restored from where it is."""
    store: Any = directory.open_store(spec, 0)
    row_format = RowFormat(bytes, bytes, timestamped=spec.timestamped and not spec.plain_rows)
    offset = store.changelog_offset()
    if log is not None and offset is None:
        cache_over(spec, store, row_format).restore(log)
    elif log is not None:
        # There is nothing behind it.
        assert offset == log.next_offset
    if spec.kind == "window":
        return list(store.fetch_all())
    return list(store.all_sessions() if spec.kind == "session" else store.range())


def check_carried_over(change: StateChange, old: StoreSpec, new: StoreSpec, before: Ran, after: Ran) -> None:
    log = before.logs.get(old.changelog_name) if new.logging else None
    with tempfile.TemporaryDirectory() as root:
        with StateDirectory(Path(root) / "fresh", APPLICATION) as fresh:
            restored = opened(fresh, new, log)
        with StateDirectory(Path(root) / "kept", APPLICATION) as first:
            of_old = opened(first, old, before.logs.get(old.changelog_name))
        with StateDirectory(Path(root) / "kept", APPLICATION) as second:
            kept = opened(second, new, log)
    if change.fate == "rebuilt":
        assert kept == restored == [] or new.logging != old.logging
        assert new.logging or kept == []
        return
    if new.logging:
        assert kept == restored
    if (old.retention_ms, old.kind) == (new.retention_ms, new.kind):
        assert kept == of_old
    else:
        # What is beyond a shorter retention is gone, and what a longer one keeps comes back; the rest is there.
        less, more = sorted((kept, of_old), key=len)
        assert set(map(repr, less)) <= set(map(repr, more))
        assert ("come back" in change.reason) == ((old.retention_ms or 0) < (new.retention_ms or 0))
        assert len(kept) >= len(of_old) or "what is older expires" in change.reason
        assert not of_old or kept
    if is_generated(new.name):
        # Its rows are those that the new version would have itself.
        one, other = (set(map(repr, ran.rows[new.name])) for ran in (before, after))
        assert one == other or (old.retention_ms != new.retention_ms and (one <= other or other <= one))


@given(VERSIONS, VERSIONS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    [Part("a", False, "count", None), Part("b", False, "count", None)],
    [Part("b", False, "count", None), Part("a", False, "count", None)],
)
@example([Part("a", False, "windows", "x")], [Part("a", False, "windows", "x", 30)])
@example([Part("a", False, "sessions", "x", 30)], [Part("a", False, "sessions", "x")])
@example([Part("a", False, "count", "x")], [Part("a", False, "count", "x", is_plain=True)])
@example([Part("a", False, "count", "x")], [Part("a", False, "count", "x", logging=False)])
@example([Part("a", True, "count", None)], [Part("a", False, "count", None)])
def test_what_diff_says_of_a_store_is_what_becomes_of_it(old_parts: list[Part], new_parts: list[Part]) -> None:
    old, new = build(old_parts), build(new_parts)
    before, after = run(old), run(new)
    old_specs, new_specs = specs(old), specs(new)
    for change in diff(outline(old), outline(new)).state:
        if change.kind != "store":
            continue
        if change.fate == "orphaned":
            assert change.name not in new_specs
        elif change.name not in old_specs:
            assert change.fate == "rebuilt"
        elif change.fate != "incompatible":
            check_carried_over(change, old_specs[change.name], new_specs[change.name], before, after)
        elif "a generated name" in change.reason:
            assert before.rows[change.name] != after.rows[change.name]


def tables(*names: str, optimization: str = "none") -> Topology:
    builder = StreamsBuilder()
    for name in names:
        builder.table(name, store=f"{name}-rows", **TEXT)
    return builder.build({"topology.optimization": optimization})


def test_a_table_is_not_empty_where_its_source_topic_becomes_its_changelog() -> None:
    before, after = tables("a"), tables("a", optimization="all")
    with TopologyTestDriver(before) as driver:
        driver.create_input_topic("a", serdes.string, serdes.string).pipe_input("k", "v")
        driver.restart(topology=after)
        assert driver.get_key_value_store("a-rows").get("k") == "v"
    found = diff(outline(before), outline(after))
    (change,) = found.state
    assert (change.fate, change.cure) == ("carried over", "")
    assert "its changelog was a-rows-changelog, and is its source topic a" in change.reason
    back = diff(outline(after), outline(before)).state[0]
    assert (back.fate, "it starts empty" in back.reason) == ("rebuilt", True)


def test_a_new_table_has_what_others_have_read_of_the_topic_that_is_its_changelog() -> None:
    counted = StreamsBuilder()
    counted.stream("a", **TEXT).group_by_key().count(store="counts")
    (new,) = (
        each
        for each in diff(outline(counted.build()), outline(tables("a", optimization="all"))).state
        if each.name == "a-rows"
    )
    assert (new.fate, new.cure) == ("rebuilt", "")
    assert "starts empty" not in new.reason
    assert new.read_anew == ("a",)
