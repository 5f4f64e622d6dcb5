"""What follows the stream time of a task or of a store, in another version of the application: versioned stores, stores
whose entries expire, and punctuation by stream time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from streamsrt.testing.topology_test_driver import TopologyTestDriver
from topology import Store, StreamsBuilder, serdes
from topology.graph.diff import diff
from topology.graph.outline import TopologyOutline, outline
from topology.graph.topology import Topology
from topology.spec.processor import FixedKeyProcessor, Processor, PunctuationType, Record

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
TTL_MS, RETENTION_MS = 50, 100
Kept = Callable[..., Store]
"""The store of a name with these properties: in the other version it may have another name."""
Program = Callable[[Any, Kept], Any]


class Appending(FixedKeyProcessor[str, str, str]):
    """Keeps all values of a key that are not expired, and forwards them with the stream time."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: Any) -> None:
        self._context, self._rows = context, context.get_state_store(self._store)

    def process(self, record: Record[str, str]) -> None:
        so_far = (self._rows.get(record.key) or "") + record.value
        self._rows.put(record.key, so_far)
        self._context.forward(record.with_value(f"{so_far} {self._context.current_stream_time_ms()}"))


class Versions(FixedKeyProcessor[str, str, str]):
    """Forwards what it finds: the newest version of the key, and an earlier one."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: Any) -> None:
        self._context, self._rows = context, context.get_state_store(self._store)

    def process(self, record: Record[str, str]) -> None:
        until = self._rows.put(record.key, record.value, record.timestamp)
        found = self._rows.get(record.key), self._rows.get(record.key, as_of=max(0, record.timestamp - 60))
        self._context.forward(record.with_value(f"{until} {found}"))


class Ticking(Processor[str, str, str, str]):
    """Forwards the times of a punctuation."""

    def __init__(self, **start: int) -> None:
        self._start = start

    def init(self, context: Any) -> None:
        self._context = context
        context.schedule(40, PunctuationType.STREAM_TIME, self._tick, **self._start)

    def _tick(self, now_ms: int) -> None:
        self._context.forward(Record("tick", f"{self._context.current_stream_time_ms()}", now_ms))

    def process(self, record: Record[str, str]) -> None:
        pass


def appending(stream: Any, kept: Kept) -> Any:
    store = kept("t", ttl=TTL_MS, **TEXT)
    return stream.process_values(lambda: Appending(store.name), stores=[store])


def versions(stream: Any, kept: Kept) -> Any:
    store = kept("t", kind="versioned", retention=RETENTION_MS, **TEXT)
    return stream.process_values(lambda: Versions(store.name), stores=[store])


def versioned_texts(stream: Any, kept: Kept) -> Any:
    store = kept("t", kind="versioned", retention=RETENTION_MS, value=serdes.string)
    return stream.group_by_key().aggregate(str, lambda _key, value, so_far: so_far + value, store=store).to_stream()


EXPIRING: dict[str, Program] = {
    "processor with ttl": appending,
    "count with ttl": lambda stream, kept: stream.group_by_key().count(store=kept("t", ttl=TTL_MS)).to_stream(),
    "table with ttl": lambda stream, kept: stream.to_table(store=kept("t", ttl=TTL_MS)).to_stream(),
}
VERSIONED: dict[str, Program] = {
    "processor with versions": versions,
    "versioned aggregate": versioned_texts,
    "versioned table": lambda stream, kept: stream.to_table(
        store=kept("t", kind="versioned", retention=RETENTION_MS)
    ).to_stream(),
}
PROGRAMS: dict[str, Program] = {
    **EXPIRING,
    **VERSIONED,
    "punctuation from a time on": lambda stream, _: stream.process(lambda: Ticking(start_time=15)),
}


def version(program: Program, *, longer: bool = False, renamed: bool = False, repartitioned: bool = False) -> Topology:
    """``longer``: with an unnamed step in front; ``renamed``: with another name of its store; ``repartitioned``: with a
    repartition topic in front."""
    builder = StreamsBuilder()
    stream: Any = builder.stream("a", **TEXT)
    if longer:
        stream = stream.map_values(lambda value: value)
    if repartitioned:
        stream = stream.repartition(name="again", **TEXT)

    def kept(name: str, **properties: Any) -> Store:
        return Store("other", renamed_from=name, **properties) if renamed else Store(name, **properties)

    program(stream, kept).map(lambda key, value: (f"{key}", f"{value}")).to("out", **TEXT)
    return builder.build()


def results(before: Topology, after: Topology | None, seed: int) -> list[Any]:
    """Of random records, many of them late, with restarts as the one version and the other, or without a restart."""
    random, time_ms = Random(seed), 0
    with TopologyTestDriver(before, {"statestore.cache.max.bytes": 0}) as driver:
        for index in range(90):
            if after is not None and index in (30, 60):
                driver.restart(topology=after if index == 30 else before)
            time_ms += random.choice((0, 3, 9, 30))
            at_ms = max(0, time_ms - random.choice((0, 0, 20, 90, 200)))
            driver.pipe_raw("a", f"k{random.randrange(3)}".encode(), f"{index};".encode(), at_ms)
        return [(each.key, each.value, each.timestamp) for each in driver.output_queue("out")]


@pytest.mark.parametrize("changes", [{}, {"longer": True}, {"longer": True, "renamed": True}])
@pytest.mark.parametrize("name", PROGRAMS)
def test_another_version_gives_what_one_uninterrupted_run_gives(name: str, changes: dict[str, bool]) -> None:
    for seed in range(4):
        wanted = results(version(PROGRAMS[name]), None, seed)
        assert wanted
        assert results(version(PROGRAMS[name]), version(PROGRAMS[name], **changes), seed) == wanted


def test_a_punctuation_without_a_start_runs_at_the_first_record_after_each_start() -> None:
    """As in Kafka Streams; in another version no more often than in the same one."""

    def ticking(stream: Any, _: Kept) -> Any:
        return stream.process(Ticking)

    for seed in range(4):
        once, same = results(version(ticking), None, seed), results(version(ticking), version(ticking), seed)
        assert results(version(ticking), version(ticking, longer=True), seed) == same
        assert len(once) < len(same) <= len(once) + 2
        assert set(once) <= set(same) or len(set(once) - set(same)) <= 2


@pytest.mark.parametrize("name", VERSIONED)
def test_versions_have_their_stream_time_behind_a_repartition_topic_too(name: str) -> None:
    before, after = version(VERSIONED[name]), version(VERSIONED[name], repartitioned=True)
    for seed in range(4):
        assert results(before, after, seed) == results(before, None, seed)
    assert not any("stream time" in each.reason for each in diff(outline(before), outline(after)).state)


def of_late_records(before: Topology, after: Topology) -> list[bytes | None]:
    """Of two records of a key that are beyond the ttl when they come, after a restart."""
    with TopologyTestDriver(before, {"statestore.cache.max.bytes": 0}) as driver:
        driver.pipe_raw("a", b"now", b"x", 1_000)
        driver.restart(topology=after)
        for at_ms in (900, 905):
            driver.pipe_raw("a", b"late", b"x", at_ms)
        return [each.value for each in driver.output_queue("out") if each.key == b"late"]


@pytest.mark.parametrize("name", EXPIRING)
def test_a_store_that_expires_entries_is_named_where_it_loses_the_stream_time(name: str) -> None:
    before, after = version(EXPIRING[name]), version(EXPIRING[name], repartitioned=True)
    # It is as the note says.
    assert of_late_records(before, before) != of_late_records(before, after)
    (kept,) = (each for each in diff(outline(before), outline(after)).state if each.name == "t")
    assert kept.fate == "carried over"
    assert "with the offsets of a, and it now reads again-repartition: it starts without one" in kept.reason
    assert "beyond their ttl" in kept.reason
    assert "windows" not in kept.reason
    again = diff(outline(before), outline(version(EXPIRING[name], longer=True)))
    assert not any("stream time" in each.reason for each in again.state)


def test_another_ttl_is_said() -> None:
    def of(ttl_ms: int | None) -> Topology:
        given = {} if ttl_ms is None else {"ttl": ttl_ms}
        return version(lambda stream, kept: stream.group_by_key().count(store=kept("t", **given)).to_stream())

    def reasons(before: Topology, after: Topology) -> str:
        return " ".join(each.reason for each in diff(outline(before), outline(after)).state)

    assert "ttl 50 -> 70 ms" in reasons(of(50), of(70))
    assert "it gets a ttl of 70 ms, from the last update" in reasons(of(None), of(70))
    assert "the ttl of 50 ms ends" in reasons(of(50), of(None))


def test_what_a_file_of_an_earlier_release_does_not_say_of_ttls_is_not_guessed() -> None:
    def of(name: str) -> TopologyOutline:
        return outline(version(lambda stream, kept: stream.group_by_key().count(store=kept(name, ttl=70)).to_stream()))

    file = of("t").to_json()
    earlier = {
        **file,
        "stores": [{key: value for key, value in row.items() if key != "ttl_ms"} for row in file["stores"]],
    }
    assert not any("ttl" in each.reason for each in diff(TopologyOutline.from_json(earlier), of("t")).state)
