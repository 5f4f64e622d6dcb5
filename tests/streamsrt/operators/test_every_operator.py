"""Every operation that the DSL has: the same in every way that it can run, and interrupted after any record, restored from
its changelogs, as if nothing had happened.

The list of operations is the union that processor nodes may hold: a new one has no program here until somebody writes it,
and then a test fails.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import groupby
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamsrt.operators.kinds import batches, lookup_joins
from streamsrt.operators.kinds.batches import Batch
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from tests.streamsrt.operators.programs import Piped
from tests.streamsrt.operators.ways import assert_all_ways_agree
from tests.topology.graph.store_fields import STORE_FIELDS
from topology import (
    Buffer,
    CountWindows,
    EmitStrategy,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    Windowed,
    serdes,
)
from topology.graph import operations
from topology.graph.nodes import ProcessorNode, Subtopology
from topology.graph.operations.traits import ObservedTime, RunEnd, calls_async, traits_of
from topology.graph.store_kinds import StoreKind, kind_of

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
Row = tuple[str, str, str | None, int]
Stream = KStream[Any, Any]
Table = KTable[Any, Any]
Program = Callable[[StreamsBuilder], Stream | Table | None]

WINDOWS = TimeWindows(10, 4, grace=5)
JOIN = JoinWindows(6, 9, grace=5)


def both(one: object, other: object) -> str:
    return f"{one}+{other}"


def left(builder: StreamsBuilder) -> Stream:
    return builder.stream("left", **TEXT)


def right(builder: StreamsBuilder) -> Stream:
    return builder.stream("right", **TEXT)


def grouped(builder: StreamsBuilder) -> KGroupedStream[Any, Any]:
    return left(builder).group_by_key()


def tables(builder: StreamsBuilder) -> tuple[Table, Table]:
    return builder.table("left", store="left-rows", **TEXT), builder.table("right", store="right-rows", **TEXT)


def append(key: str, value: str | None, row: str) -> str:
    return (row + (value or "-"))[-12:]


def remove(key: str, value: str, row: str) -> str:
    return row.replace(value, "", 1)


def together(key: object, one: str, other: str) -> str:
    return (one + other)[-12:]


# ---------------------------------------------------------------------------------------------------------- processors


class Remember(Processor[str, str, str, str]):
    """Keeps what comes in a store of some kind, and tells what the store had of the key before."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.store = context.get_state_store("memory")

    def process(self, record: Record[str, str]) -> None:
        before = getattr(self, f"_{self._kind}")(record.key, record.value, record.timestamp)
        self.context.forward(record.with_value(f"{record.value} after {before}"))

    def _key_value(self, key: str, value: str, _at: int) -> object:
        before = self.store.get(key)
        self.store.put(key, value)
        return before

    def _window(self, key: str, value: str, at: int) -> object:
        before = list(self.store.fetch_range(key, at - 20, at + 20))
        self.store.put(key, value, at // 5 * 5)
        return before

    def _session(self, key: str, value: str, at: int) -> object:
        before = [(tuple(session), text) for session, text in self.store.find_sessions(key, at - 10, at + 10)]
        self.store.put(Windowed(key, at, at + 3), value)
        return before

    def _versioned(self, key: str, value: str, at: int) -> object:
        before = self.store.get(key, at)
        self.store.put(key, value, at)
        return before


def remembering(kind: str, **options: Any) -> Program:
    def program(builder: StreamsBuilder) -> Stream:
        store = Store("memory", kind=typing.cast(Any, kind), **TEXT, **options)
        return left(builder).process(lambda: Remember(kind), stores=[store])

    return program


class Shout:
    """A transformer of a table's values."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.seen = context.get_state_store("seen")

    def transform(self, key: str, value: str | None) -> str | None:
        if value is None:
            return None
        before = self.seen.get(key)
        if before != value:
            self.seen.put(key, value)
        return value.upper()

    def close(self) -> None:
        pass


async def later(value: str | None) -> str:
    return f"{value}!"


class Put(Processor[str, str, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.store = context.get_state_store("world")

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)


# ------------------------------------------------------------------------------------------------------------ programs


def stateless(builder: StreamsBuilder) -> Stream:
    stream = left(builder).filter(lambda k, v: v is not None).peek(lambda k, v: None)
    stream.foreach(lambda k, v: None)
    small, rest = stream.branch(lambda k, v: v == "x", default=True)
    stream = small.merge(rest).map(lambda k, v: (k, v + k)).flat_map(lambda k, v: [(k, v), (k, "2")])
    stream = stream.select_key(lambda k, v: v[:1]).map_values(str.upper).flat_map_values(lambda v: [v, v])
    return stream.repartition(name="again", **TEXT).map_batches(lambda frame: frame).map_async(later)


def sessions(strategy: EmitStrategy) -> Program:
    def program(builder: StreamsBuilder) -> Table:
        windowed = grouped(builder).windowed_by(SessionWindows(6, grace=5)).emit_strategy(strategy)
        return windowed.aggregate(lambda: "", append, together, store="rows", **TEXT)

    return program


def windows(windows: TimeWindows | SlidingWindows, strategy: EmitStrategy) -> Program:
    def program(builder: StreamsBuilder) -> Table:
        windowed = grouped(builder).windowed_by(windows).emit_strategy(strategy)
        return windowed.aggregate(lambda: "", append, store="rows", **TEXT)

    return program


def counted_windows(windows: CountWindows) -> Program:
    def program(builder: StreamsBuilder) -> Stream:
        windowed = grouped(builder).windowed_by(windows)
        windowed.reduce(lambda one, other: both(one, other)[-9:], store="reduced").to("reduced", **TEXT)
        return windowed.aggregate(lambda: "", append, close_when=lambda k, row: "x" in row, store="rows", **TEXT)

    return program


def cogrouped(windows: TimeWindows | SlidingWindows | SessionWindows | None) -> Program:
    def program(builder: StreamsBuilder) -> Table:
        found: Any = grouped(builder).cogroup(append).cogroup(right(builder).group_by_key(), append)
        mergers = (together,) if isinstance(windows, SessionWindows) else ()
        found = found if windows is None else found.windowed_by(windows)
        return typing.cast(Table, found.aggregate(lambda: "", *mergers, store="rows", **TEXT))

    return program


def regrouped(builder: StreamsBuilder) -> Table:
    group = tables(builder)[0].group_by(lambda k, v: (v, k), **TEXT)
    group.count(store="counts").to_stream().to("counts", key=serdes.string, value=serdes.long)
    group.reduce(lambda row, v: row + v, lambda row, v: row.replace(v, "", 1), store="reduced", **TEXT)
    return group.aggregate(lambda: "", append, remove, store="rows", **TEXT)


def derived(builder: StreamsBuilder) -> Table:
    table = tables(builder)[0].filter(lambda k, v: v != "y", store="filtered", **TEXT)
    table = table.map_values(lambda v: v + "!", store="mapped", **TEXT)
    seen = Store("seen", **TEXT)
    return table.transform_values(Shout, stores=[seen], store="shouted", **TEXT)


def suppressed(builder: StreamsBuilder) -> Table:
    counts = grouped(builder).windowed_by(TimeWindows(10, grace=5)).count(store="counts")
    return counts.suppress(Suppressed.until_window_closes())


def suppressed_for_a_time(builder: StreamsBuilder) -> Table:
    table = grouped(builder).reduce(lambda one, other: both(one, other)[-9:], store="rows")
    return table.suppress(Suppressed.until_time_limit(7, Buffer(max_records=2)))


def joined_tables(how: str, **options: Any) -> Program:
    def program(builder: StreamsBuilder) -> Table:
        one, other = tables(builder)
        return typing.cast(Table, getattr(one, how)(other, both, store="joined", **TEXT, **options))

    return program


def first_letter(value: str) -> str:
    return value[:1]


def joined_streams(how: str) -> Program:
    def program(builder: StreamsBuilder) -> Stream:
        return typing.cast(Stream, getattr(left(builder), how)(right(builder), both, JOIN))

    return program


def self_join(builder: StreamsBuilder) -> Stream:
    stream = left(builder)
    return stream.join(stream, both, JOIN)


def with_table(how: str, store: Store, **options: Any) -> Program:
    def program(builder: StreamsBuilder) -> Stream:
        table = builder.table("right", store=store, **TEXT)
        return typing.cast(Stream, getattr(left(builder), how)(table, both, **options))

    return program


async def names_of(letters: list[str]) -> dict[str, str]:
    return {letter: letter.upper() for letter in letters if letter != "y"}


def looked_up(builder: StreamsBuilder) -> Stream:
    return left(builder).join_lookup(names_of, both, on=lambda k, v: v, how="left", max_entries=1, batch=2)


def with_global_table(builder: StreamsBuilder) -> Stream:
    table = builder.global_table("right", store="world", **TEXT)
    return left(builder).left_join(table, both, on=lambda k, v: v)


def with_global_store(builder: StreamsBuilder) -> Stream:
    builder.add_global_store(Store("world", logging=False, **TEXT), "right", Put, **TEXT)
    return left(builder)


VERSIONED = {"kind": "versioned", "retention": 40}

PROGRAMS: dict[str, Program] = {
    "stateless": stateless,
    "count": lambda builder: grouped(builder).count(store="rows"),
    "reduce": lambda builder: grouped(builder).reduce(lambda one, other: both(one, other)[-9:], store="rows"),
    "aggregate": lambda builder: grouped(builder).aggregate(lambda: "", append, store="rows", **TEXT),
    "hopping windows": windows(WINDOWS, EmitStrategy.ON_WINDOW_UPDATE),
    "hopping windows, closed": windows(WINDOWS, EmitStrategy.ON_WINDOW_CLOSE),
    "sliding windows": windows(SlidingWindows(10, grace=5), EmitStrategy.ON_WINDOW_UPDATE),
    "sliding windows, closed": windows(SlidingWindows(10, grace=5), EmitStrategy.ON_WINDOW_CLOSE),
    "sessions": sessions(EmitStrategy.ON_WINDOW_UPDATE),
    "sessions, closed": sessions(EmitStrategy.ON_WINDOW_CLOSE),
    "cogroup": cogrouped(None),
    "cogroup in windows": cogrouped(TimeWindows(10, grace=5)),
    "cogroup in sliding windows": cogrouped(SlidingWindows(10, grace=5)),
    "cogroup in sessions": cogrouped(SessionWindows(6, grace=5)),
    "windows of records": counted_windows(CountWindows(3)),
    "windows of records that overlap": counted_windows(CountWindows(4, 2)),
    "table grouped anew": regrouped,
    "tables made of tables": derived,
    "suppress until windows close": suppressed,
    "suppress for a time": suppressed_for_a_time,
    "table join": joined_tables("join"),
    "table left join": joined_tables("left_join"),
    "table outer join": joined_tables("outer_join"),
    "foreign-key join": joined_tables("join", foreign_key=first_letter),
    "foreign-key left join": joined_tables("left_join", foreign_key=first_letter),
    "stream join": joined_streams("join"),
    "stream left join": joined_streams("left_join"),
    "stream outer join": joined_streams("outer_join"),
    "self-join": self_join,
    "as-of join": lambda builder: left(builder).join_asof(right(builder), both, 20),
    "as-of join with grace": lambda builder: left(builder).join_asof(right(builder), both, 20, how="left", grace=8),
    "stream-table join": with_table("join", Store("world")),
    "stream-table left join": with_table("left_join", Store("world", **typing.cast(Any, VERSIONED))),
    "stream-table join with grace": with_table("left_join", Store("world", **typing.cast(Any, VERSIONED)), grace=8),
    "lookup join": looked_up,
    "global table": with_global_table,
    "global store": with_global_store,
    "deduplicate": lambda builder: left(builder).deduplicate(lambda k, v: v, 15, serde=serdes.string),
    "key-value store": remembering("key_value"),
    "key-value store in memory": remembering("key_value", in_memory=True),
    "key-value store of the entries used last": remembering("key_value", max_entries=2),
    "key-value store with entries that expire": remembering("key_value", ttl=15),
    "window store": remembering("window", retention=40, window_size=5),
    "session store": remembering("session", retention=40),
    "versioned store": remembering("versioned", retention=40),
}


def topology_of(program: str, **config: Any) -> Topology:
    builder = StreamsBuilder()
    result = PROGRAMS[program](builder)
    if isinstance(result, KTable):
        result = result.to_stream()
    if result is not None:
        result.map(lambda k, v: (repr(k), repr(v))).to("out", **TEXT)
    return builder.build({"topology.optimization": "single.store.self.join", **config})


def members(union: Any) -> Iterator[type]:
    for each in typing.get_args(union):
        yield from members(each) if typing.get_args(each) else (each,)


def test_every_operation_has_a_program() -> None:
    known = set(members(operations.Operation))
    used = {
        type(node.operation)
        for program in PROGRAMS
        for part in (*topology_of(program).subtopologies, *topology_of(program).global_subtopologies)
        for node in part.nodes
        if hasattr(node, "operation")
    }
    missing = sorted(each.__name__ for each in known - used)
    assert not missing, f"no program in PROGRAMS of this module has {', '.join(missing)}: add one, or a step to one"


def test_every_kind_of_store_has_a_program() -> None:
    used = {
        kind_of(spec)
        for program in PROGRAMS
        for part in (*topology_of(program).subtopologies, *topology_of(program).global_subtopologies)
        for spec in part.stores
    }
    assert set(StoreKind) - used == set()


def test_every_field_that_names_a_store_of_the_step_is_known() -> None:
    """Where the rows of an operation are placed, and whether reading again counts twice, is asked of these fields."""
    named = {
        f"{type(node.operation).__name__}.{field.name}"
        for program in PROGRAMS
        for part in topology_of(program).subtopologies
        for node in part.nodes
        if isinstance(node, ProcessorNode)
        for field in fields(node.operation)
        if getattr(node.operation, field.name) in node.stores and field.name not in STORE_FIELDS
    }
    assert not named, f"add {sorted(named)} to STORE_FIELDS of tests/topology/graph/store_fields.py"


def observing(part: Subtopology) -> set[str]:
    """The names of the stream times that the rows of ``TRAITS`` promise for a task of this subtopology."""
    found = set()
    for node in part.nodes:
        if isinstance(node, ProcessorNode):
            observed, windows = traits_of(node.operation).stream_time, getattr(node.operation, "windows", None)
            if observed is ObservedTime.ALWAYS or (observed is ObservedTime.OF_WINDOWS and windows is not None):
                found.add(getattr(node.operation, "time", node.name))
    return found


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_operator_has_a_stream_time_if_its_row_says_so(program: str, generate: bool) -> None:
    topology = topology_of(program)
    with TopologyTestDriver(topology, generate=generate) as driver:
        for part in topology.subtopologies:
            for at_ms, topic in enumerate(sorted(part.source_topics)):
                driver.pipe_raw(topic, b"a", b"x", at_ms)
        found = {task.subtopology.id: set(task._runner.env.stream_times) for task in driver._tasks}
    assert found == {part.id: observing(part) for part in topology.subtopologies}


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_operator_gathers_records_if_its_row_says_so(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[Batch] = []

    class Watched(Batch):
        def gather(self, *record: Any) -> None:
            gathered.append(self)
            super().gather(*record)

    for module in (batches, lookup_joins):
        monkeypatch.setattr(module, "Batch", Watched)
    topology = topology_of(program)
    with TopologyTestDriver(topology) as driver:
        for part in topology.subtopologies:
            for at_ms, topic in enumerate(sorted(part.source_topics)):
                driver.pipe_raw(topic, b"a", b"x", at_ms)
        calling = sum(len(task._runner.env.windows) for task in driver._tasks)
    used = [node.operation for part in topology.subtopologies for node in part.nodes if isinstance(node, ProcessorNode)]
    assert len(set(map(id, gathered))) == sum(traits_of(each).run_end is not RunEnd.NOTHING for each in used)
    assert calling == sum(map(calls_async, used))


rows = st.lists(
    st.tuples(
        st.sampled_from(("left", "right")),
        st.sampled_from(("a", "b", "x")),
        st.none() | st.sampled_from(("a", "x", "y", "xy")),
        st.integers(0, 60),
    ),
    min_size=5,
    max_size=20,
)

STARTS_WITHOUT_STREAM_TIME = {"stream join", "stream left join", "stream outer join", "self-join"}
"""A join of streams does not know, at first, what time it was: it takes records that come too late. As in Kafka Streams."""

SHOWS_EARLIER = {"stream left join", "stream outer join"}
"""For the same reason it may show records without a match, and forget them, at another time; but they are the same."""


def in_any_order(records: list[Any]) -> list[Any]:
    """The records without their order, and those that delete without their time."""
    return sorted((each if each[3] is not None else each[:4] for each in records), key=repr)


def outcome(topology: Topology, piped: list[Row], cut: int | None, **options: Any) -> dict[str, Any]:
    """What was written, by topic, and what the stores hold."""
    cache = {"statestore.cache.max.bytes": options.pop("cache_max_bytes")}
    with TopologyTestDriver(topology, cache, **options) as driver:
        reads = {topic for part in topology.subtopologies for topic in part.source_topics}
        reads |= {topic for part in topology.global_subtopologies for topic in part.source_topics}
        for index, (topic, key, value, timestamp) in enumerate(piped):
            if index == cut:
                driver.restart()
            if topic in reads:
                driver.pipe_raw(topic, key.encode(), None if value is None else value.encode(), timestamp)
        driver.commit()
        history = sorted(driver.producer_history, key=lambda record: record.topic)
        written = {topic: [tuple(each) for each in records] for topic, records in groupby(history, lambda r: r.topic)}
        return {"written": written, "stores": {name: list(contents(driver, name)) for name in driver.store_names()}}


def contents(driver: TopologyTestDriver, name: str) -> Iterator[Any]:
    match driver.store_kind(name):
        case "key_value":
            yield from driver.get_key_value_store(name).all()
        case "window":
            yield from driver.get_window_store(name).all()
        case "session":
            yield from driver.get_session_store(name).all()
        case "versioned":
            store = driver.get_versioned_key_value_store(name)
            yield from ((key, store.versions(key)) for key in ("a", "b", "x"))
        case "buffer":
            pass  # what waits can't be read, but it shows in what is written
        case other:
            raise AssertionError(f"how is a {other} store read? Add it here")


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=10, deadline=None)
@given(rows, st.integers(1, 10), st.sampled_from([0, 1 << 20]), st.booleans())
@example([("left", "a", "a", 0), ("right", "a", "a", 8), ("left", "a", "a", 1)], 2, 0, False)
def test_an_interruption_does_not_show(
    program: str, piped: list[Row], cut: int, cache_max_bytes: int, generate: bool
) -> None:
    if program in STARTS_WITHOUT_STREAM_TIME:
        piped = sorted(piped, key=lambda row: row[3])
    if program in SHOWS_EARLIER:
        # The first one shows what was over for itself; what was seen and was still open then is shown by the second one.
        piped = [*piped, *(("left", "z", "-", 1_000 * n) for n in (1, 2))]
    topology = topology_of(program)
    options = {"cache_max_bytes": cache_max_bytes, "generate": generate}
    interrupted, whole = outcome(topology, piped, cut, **options), outcome(topology, piped, None, **options)
    if program in SHOWS_EARLIER:
        for each in (interrupted, whole):
            each["written"] = {topic: in_any_order(records) for topic, records in each["written"].items()}
    assert interrupted == whole


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=10, deadline=None)
@given(rows, st.sampled_from([0, 1 << 20]))
def test_generated_code_does_what_processor_nodes_do(program: str, piped: list[Row], cache_max_bytes: int) -> None:
    topology = topology_of(program)
    generated, nodes = (
        outcome(topology, piped, None, cache_max_bytes=cache_max_bytes, generate=generate) for generate in (True, False)
    )
    assert generated == nodes


def is_one_task(program: str) -> bool:
    topology = topology_of(program)
    return len(topology.subtopologies) == 1 and not topology.global_subtopologies


@pytest.mark.parametrize("program", [each for each in PROGRAMS if is_one_task(each)])
@settings(max_examples=10, deadline=None)
@given(rows, st.lists(st.integers(1, 8), min_size=1, max_size=3))
def test_batches_do_what_single_records_do(program: str, piped: list[Row], sizes: list[int]) -> None:
    topology = topology_of(program)
    (subtopology,) = topology.subtopologies
    assert_all_ways_agree(topology, [Piped(*row, ()) for row in piped if row[0] in subtopology.source_topics], sizes)


END_OF_TIME_MS = 2**63 - 1
WRITES_LATER_TIMES = {"session store"}
"""Its processor makes a session that ends after the last timestamp that there is, which no store takes."""


@pytest.mark.parametrize(("cache_max_bytes", "generate"), [(0, False), (1 << 20, True)])
@pytest.mark.parametrize("program", sorted(PROGRAMS.keys() - WRITES_LATER_TIMES))
def test_a_record_may_have_the_last_timestamp_that_there_is(program: str, cache_max_bytes: int, generate: bool) -> None:
    piped = [("left", "a", "a", 5), ("right", "a", "b", 5)]
    piped += [(topic, key, "x", END_OF_TIME_MS) for topic in ("left", "right") for key in "ab"]
    rows = [*piped, *[("left", "a", "y", END_OF_TIME_MS - back_ms) for back_ms in (1, 30, 0)]]
    found = outcome(topology_of(program), [*rows], 5, cache_max_bytes=cache_max_bytes, generate=generate)
    assert found["written"]
