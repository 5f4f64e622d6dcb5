"""Random programs and inputs for the property tests of operators and tasks, and one way to run them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from streamsrt.state.buffer import SuppressionBuffer
from streamsrt.state.cache import KeyValueCache, RowFormat
from streamsrt.state.kinds import Cache, lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.state.versioned_cache import VersionedCache
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import Headers, RecordColumns
from streamsrt.wire.records.texts import Texts, Times
from topology import (
    Buffer,
    EmitStrategy,
    GlobalKTable,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    UnlimitedWindows,
    serdes,
)
from topology.graph.nodes import StoreSpec
from topology.spec.codecs import ProgramSerde

APPLICATION = "app"
KEYS = ("a", "b", "c", "dd")


@dataclass
class Written:
    """A collector that keeps what it gets, by topic."""

    topics: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def add(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: Any = None,
        partition_keys: Sequence[bytes | None] | None = None,
    ) -> None:
        each = [()] * len(keys) if headers is None else list(headers)
        rows = self.topics.setdefault(topic, [])
        rows.extend(zip(keys, values, timestamps, each, strict=True))

    def add_texts(self, topic: str, texts: Texts, times: Times) -> None:
        raw = texts.tolist()
        self.add(topic, raw, raw, times.tolist())


def small(fn: Callable[[str], object]) -> Callable[[str, str | None], bool]:
    return lambda key, value: value is not None and bool(fn(value))


def _fan_out(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    stream.map_values(lambda v: "side").to("side", key=serdes.string, value=serdes.string)
    return stream


def _branches(stream: KStream[Any, Any]) -> KStream[Any, Any]:
    empty, rest = stream.branch(lambda k, v: v is None, default=True)
    empty.foreach(lambda k, v: None)
    return rest.merge(empty)


STREAM_STEPS: dict[str, Callable[[KStream[Any, Any]], KStream[Any, Any]]] = {
    "filter": lambda s: s.filter(lambda k, v: k is None or k < "c"),
    "filter_not": lambda s: s.filter_not(small(lambda v: v.startswith("x"))),
    "upper": lambda s: s.map_values(lambda v: None if v is None else v.upper()),
    "with_key": lambda s: s.map_values(lambda k, v: f"{k}:{v}"[:12], with_key=True),
    "twice": lambda s: s.flat_map_values(lambda v: [] if v is None else [v, v + "2"]),
    "peek": lambda s: s.peek(lambda k, v: None),
    "merge_self": lambda s: s.merge(s.filter(lambda k, v: v is not None)),
    "fan_out": _fan_out,
    "branches": _branches,
}

TABLE_STEPS: dict[str, Callable[[KTable[Any, Any]], KTable[Any, Any]]] = {
    "filter": lambda t: t.filter(lambda k, v: len(v) % 2 == 0),
    "filter_store": lambda t: t.filter(lambda k, v: v > "b", store=Store(key=serdes.string, value=serdes.string)),
    "map": lambda t: t.map_values(lambda v: v + "!"),
    "map_store": lambda t: t.map_values(
        lambda k, v: None if v == "x" else k + v, with_key=True, store=Store(key=serdes.string, value=serdes.string)
    ),
}

TABLE_JOINS = ("table_join", "table_left_join", "table_outer_join")
GRACE_JOINS = ("grace_join", "grace_left_join")
LOOK_UPS = ("versioned_join", "versioned_left_join", "global_join", "global_left_join", *GRACE_JOINS)
STREAM_JOINS = ("stream_join", "stream_left_join", "stream_outer_join")
ENDS = (
    "sink", "count", "reduce", "aggregate", "tumbling", "hopping", "unlimited", "sliding", "session", "session_reduce",
    "tumbling_close", "sliding_close", "session_close", "suppress_limit", "suppress_window", "table", "join", "left_join",
    "cogroup", "self_join", *TABLE_JOINS, *STREAM_JOINS, *LOOK_UPS,
)  # fmt: skip
SELF_JOIN = {"topology.optimization": "single.store.self.join"}
JOIN_WINDOWS = JoinWindows(6, 9, grace=5)


def _write(table: KTable[Any, Any], value: Any, key: Any = serdes.string) -> None:
    table.to_stream().to("out", key=key, value=value)


def build(steps: Sequence[str], end: str, table_steps: Sequence[str], caching: bool) -> Topology:
    """One of the programs: a chain of stream steps with an end, and table steps where the end is a table."""
    builder = StreamsBuilder()
    table: KTable[Any, Any]
    if end == "table":
        table = builder.table("t", key=serdes.string, value=serdes.string, store=Store("t", caching=caching))
        _write(_through(table, table_steps), serdes.string)
        return builder.build()
    if end in TABLE_JOINS:
        _join_tables(builder, end, table_steps, caching)
        return builder.build()
    stream: KStream[Any, Any] = builder.stream("in", key=serdes.string, value=serdes.string)
    if end in ("join", "left_join"):
        table = builder.table("t", key=serdes.string, value=serdes.string, store=Store("t", caching=caching))
        table = _through(table, [step for step in table_steps if "store" not in step])
    for step in steps:
        stream = STREAM_STEPS[step](stream)
    if end in ("join", "left_join"):
        join = stream.join if end == "join" else stream.left_join
        stream = join(table, lambda v, row: f"{v}+{row}")
    elif end in STREAM_JOINS:
        other: KStream[Any, Any] = builder.stream("t", key=serdes.string, value=serdes.string)
        stream = getattr(stream, end.removeprefix("stream_"))(other, _both, JOIN_WINDOWS)
    elif end in LOOK_UPS:
        stream = _look_up(builder, stream, end)
    elif end == "self_join":
        stream = stream.join(stream, _both, JOIN_WINDOWS)
    elif end == "cogroup":
        _cogroup(builder, stream, table_steps, caching)
    elif end != "sink":
        _aggregate(stream, end, table_steps, caching)
    stream.to("rest", key=serdes.string, value=serdes.string)
    return builder.build(SELF_JOIN if end == "self_join" else None)


def _look_up(builder: StreamsBuilder, stream: KStream[Any, Any], end: str) -> KStream[Any, Any]:
    """Joins with a versioned table, of whose changes some come too late, or with a global table."""
    join = stream.left_join if "left" in end else stream.join
    if end.startswith("global"):
        rows: GlobalKTable[Any, Any] = builder.global_table("g", key=serdes.string, value=serdes.string, store="g")
        return join(
            rows, lambda k, v, row: f"{k}:{v}+{row}", on=lambda k, v: None if v in (None, "7") else v[-1], with_key=True
        )
    store = Store("t", kind="versioned", retention=20, segment_interval=5)
    table: KTable[Any, Any] = builder.table("t", key=serdes.string, value=serdes.string, store=store)
    return join(table, _both, grace=4 if end in GRACE_JOINS else None)


class GlobalRows:
    """The global table of these programs: it has rows for some keys."""

    def __init__(self) -> None:
        form = RowFormat(serdes.string.serialize, serdes.string.deserialize)
        self._rows = KeyValueCache("g", MemoryStore("g"), form)
        for number, key in enumerate(("x", "b")):
            self._rows.put(key.encode(), f"row {key}", 1, (), number)

    def store(self, name: str) -> tuple[StoreSpec, Cache, ProgramSerde]:
        return StoreSpec(name=name), self._rows, serdes.string

    def read_only(self, name: str) -> None:
        return None


def _both(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def _join_tables(builder: StreamsBuilder, end: str, table_steps: Sequence[str], caching: bool) -> None:
    """Joins two tables; the result keeps a store where the program has an even number of steps."""
    left, right = (
        builder.table(topic, key=serdes.string, value=serdes.string, store=Store(topic, caching=caching))
        for topic in ("in", "t")
    )
    left = _through(left, [step for step in table_steps if "store" not in step])
    result = Store("joined", key=serdes.string, value=serdes.string, caching=caching)
    join = getattr(left, end.removeprefix("table_"))
    _write(join(right, _both, store=None if len(table_steps) % 2 else result), serdes.string)


def _aggregate(stream: KStream[Any, Any], end: str, table_steps: Sequence[str], caching: bool) -> None:
    grouped = stream.group_by_key(key=serdes.string, value=serdes.string)
    text = Store("agg", key=serdes.string, value=serdes.string, caching=caching)
    if end == "count":
        store = Store("agg", key=serdes.string, value=serdes.long, caching=caching)
        _write(grouped.count(store=store).filter(lambda k, v: v != 3), serdes.long)
    elif end == "reduce":
        _write(_through(grouped.reduce(max, store=text), table_steps), serdes.string)
    elif end == "aggregate":
        table = grouped.aggregate(lambda: "", lambda k, v, a: None if len(a) > 12 else a + v[:3], store=text)
        _write(_through(table, table_steps), serdes.string)
    elif "session" in end:
        _aggregate_sessions(grouped.windowed_by(SessionWindows(6, grace=5)), end, text)
    elif end == "suppress_limit":
        buffer = Buffer(max_records=3)
        table = grouped.reduce(max, store=text)
        _write(_through(table.suppress(Suppressed.until_time_limit(7, buffer)), table_steps), serdes.string)
    elif end == "suppress_window":
        store = Store("agg", key=serdes.string, value=serdes.long, caching=caching)
        counted = grouped.windowed_by(WINDOWS["tumbling"]).count(store=store)
        key = serdes.time_windowed(serdes.string, 10)
        _write(counted.suppress(Suppressed.until_window_closes(), name="sup"), serdes.long, key)
    else:
        _aggregate_windows(grouped, end, caching)


def _cogroup(builder: StreamsBuilder, stream: KStream[Any, Any], table_steps: Sequence[str], caching: bool) -> None:
    other: KStream[Any, Any] = builder.stream("t", key=serdes.string, value=serdes.string)
    groups = [each.group_by_key(key=serdes.string, value=serdes.string) for each in (stream, other)]
    store = Store("agg", key=serdes.string, value=serdes.string, caching=caching)
    together = groups[0].cogroup(lambda k, v, a: (a + v)[-9:]).cogroup(groups[1], lambda k, v, a: v)
    _write(_through(together.aggregate(lambda: "", store=store), table_steps), serdes.string)


def _aggregate_sessions(grouped: SessionWindowedKStream[Any, Any], end: str, store: Store) -> None:
    if end.endswith("close"):
        grouped = grouped.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    if end == "session_reduce":
        table = grouped.reduce(lambda one, other: max(one or "", other or ""), store=store)
    else:
        table = grouped.aggregate(lambda: "", lambda k, v, a: a + (v or "-")[:2], lambda k, a, b: a + b, store=store)
    _write(table, serdes.string, serdes.session_windowed(serdes.string))


WINDOWS: dict[str, TimeWindows | SlidingWindows | UnlimitedWindows] = {
    "tumbling": TimeWindows(10, grace=5),
    "hopping": TimeWindows(10, 4, grace=5),
    "sliding": SlidingWindows(10, grace=5),
    "unlimited": UnlimitedWindows(8),
}


def _aggregate_windows(grouped: KGroupedStream[Any, Any], end: str, caching: bool) -> None:
    windows = WINDOWS[end.partition("_")[0]]
    windowed = grouped.windowed_by(windows)
    if end.endswith("close"):
        windowed = windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    store = Store("agg", key=serdes.string, value=serdes.long, caching=caching)
    key = serdes.time_windowed(serdes.string, windows.size_ms)
    _write(windowed.count(store=store), serdes.long, key)


def _through(table: KTable[Any, Any], steps: Sequence[str]) -> KTable[Any, Any]:
    for step in steps:
        table = TABLE_STEPS[step](table)
    return table


@dataclass(frozen=True)
class Piped:
    topic: str
    key: str | None
    value: str | None
    timestamp: int
    headers: Headers


def piped(topics: Sequence[str] = ("in", "t")) -> st.SearchStrategy[Piped]:
    return st.builds(
        Piped,
        st.sampled_from(topics),
        st.none() | st.sampled_from(KEYS),
        st.none() | st.sampled_from(("x", "b", "bb", "xyz", "7")),
        st.integers(0, 60),
        st.just(()) | st.just((("h", b"1"),)),
    )


programs = st.tuples(
    st.lists(st.sampled_from(sorted(STREAM_STEPS)), max_size=4),
    st.sampled_from(ENDS),
    st.lists(st.sampled_from(sorted(TABLE_STEPS)), max_size=3),
)
inputs = st.lists(piped(), max_size=40)


def columns_of(rows: Sequence[Piped], offset: int) -> RecordColumns:
    headers = [row.headers for row in rows]
    return RecordColumns(
        [None if row.key is None else row.key.encode() for row in rows],
        [None if row.value is None else row.value.encode() for row in rows],
        [row.timestamp for row in rows],
        offset,
        offset + len(rows),
        None,
        headers if any(headers) else None,
    )


def new_store(spec: Any) -> Any:
    return lay_out(spec, MemoryStore(spec.name))


def new_task(topology: Topology, written: Written, stores: dict[str, Any] | None = None, **config: Any) -> Task:
    """The only subtopology of the program as a task."""
    (subtopology,) = topology.subtopologies
    if stores is None:
        stores = {spec.name: new_store(spec) for spec in subtopology.stores}
    return Task(
        subtopology,
        0,
        application_id=APPLICATION,
        stores=stores,
        collector=written,
        config=TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string, **config),
        partitions_of_topic=lambda topic: 1,
        global_stores=GlobalRows(),
    )


def feed(task: Task, rows: Sequence[Piped], sizes: Sequence[int]) -> None:
    """Processes rows in their order: cut into batches of ``sizes``, repeated, and where the topic changes."""
    position, turn, offsets = 0, 0, dict.fromkeys((topic for topic, _ in task.source_partitions), 0)
    while position < len(rows):
        topic = rows[position].topic
        size = sizes[turn % len(sizes)]
        turn += 1
        batch = [row for row in rows[position : position + size]]
        cut = next((i for i, row in enumerate(batch) if row.topic != topic), len(batch))
        batch = batch[:cut]
        position += cut
        if topic in offsets:
            task.add_batch(topic, 0, columns_of(batch, offsets[topic]))
            offsets[topic] += cut
            while task.process(1000, 0):
                continue


def commit(task: Task) -> None:
    task.prepare_commit()
    task.post_commit(None)


VERSIONED_KEYS = ("a", "b", "x")
"""Nobody asks a versioned store for all of its keys: these are the ones of programs that have one."""


def final_rows(task: Task) -> dict[str, list[Any]]:
    """What the stores hold, as rows of (key, start, value, timestamp)."""
    found: dict[str, list[Any]] = {}
    for name, cache in task.caches.items():
        if isinstance(cache, SuppressionBuffer):
            found[name] = [(held.key, held.time_ms, held.new, held.timestamp) for held in cache.rows()]
            continue
        if isinstance(cache, VersionedCache):
            found[name] = [(key, cache.versions(key.encode())) for key in VERSIONED_KEYS]
            continue
        entries = cache.rows() if not hasattr(cache, "unread") else cache.rows(None, None)
        found[name] = [(e.key, e.start, e.value, e.timestamp) for e in entries]
    return found
