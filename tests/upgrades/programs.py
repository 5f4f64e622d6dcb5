"""A program as a value: tables over topics, each with its store, and what must be in them.

1. Every table (:class:`Part`) writes which records it counts to ``audit-LABEL``, and its rows to ``out-LABEL``. Its label
   is who it is, whatever its store is called and wherever in the program it stands.
2. Records are numbered, topic by topic. What a store has follows from the numbers that it counted, in any order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from topology import KStream, KTable, Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.nodes import SinkNode, SourceNode, Subtopology
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
TOPICS: Mapping[str, int] = {"a": 2, "b": 2, "c": 2, "d": 3}
"""What there is to read, with the numbers of partitions."""
LEFT, RIGHT = "left", "right"
KEYS = 5
GROUPS = 3
STEP_MS = 10
SPAN_MS = 300
START_MS = 1_000

Kind = Literal["count", "sum", "windows"]
Rows = dict[str, int]
Ways: TypeAlias = dict[tuple[tuple[str, ...], str] | None, KStream[str, str]]


class Via(NamedTuple):
    """A repartition topic. ``name`` None: generated; ``partitions`` None: as many as the sources have. Parts with the same
    topics and the same name share the step."""

    name: str | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A table over the records of ``topics``: by key, or by another one through a repartition topic.

    ``store`` None: a generated name. ``is_text``: the numbers in the store are texts. ``has_step``: a stateless step more.
    """

    label: str
    topics: tuple[str, ...]
    store: str | None = None
    kind: Kind = "count"
    via: Via | None = None
    window_ms: int = 100
    grace_ms: int = 3_600_000
    is_text: bool = False
    in_memory: bool = False
    is_plain: bool = False
    has_step: bool = False

    @property
    def is_in_place(self) -> bool:
        """Whether all records of a key come to one task."""
        return self.via is not None or len({TOPICS.get(topic, 2) for topic in self.topics}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """``circle``: the name of a foreign-key join, whose two subtopologies write to each other; None: it has none."""

    parts: tuple[Part, ...]
    circle: str | None = None

    @property
    def can_be_built(self) -> bool:
        """Whether parts that name one repartition topic mean the same step."""
        named = [part for part in self.parts if part.via is not None and part.via.name is not None]
        steps = {(part.topics, part.via, part.has_step) for part in named}
        return len(steps) == len({part.via.name for part in named if part.via is not None})

    @property
    def topics(self) -> set[str]:
        return {topic for part in self.parts for topic in part.topics} | ({LEFT, RIGHT} if self.circle else set())


class Built(NamedTuple):
    """``stores``, ``vias``: by label, what the store and the repartition topic are called."""

    topology: Topology
    stores: dict[str, str]
    vias: dict[str, str]


def key_of(number: int) -> str:
    return f"k{number % KEYS}"


def group_of(text: str) -> str:
    return f"g{number_of(text) % GROUPS}"


def number_of(text: str) -> int:
    return int(text[1:])


def timestamp_of(number: int) -> int:
    """Windows come again and again, so that the last records meet each row that there is."""
    return START_MS + number * STEP_MS % SPAN_MS


def build(program: Program, version: str, on_record: Callable[[], None] = lambda: None, *, epoch: int = 0) -> Built:
    """``version`` stands in the audit; ``on_record`` is called for each record that a part reads."""
    builder = StreamsBuilder()
    ways: Ways = {}
    stores = {part.label: _build(builder, part, version, on_record, ways) for part in program.parts}
    if program.circle is not None:
        _join(builder, program.circle)
    topology = builder.build(epoch=epoch)
    return Built(topology, stores, {part.label: _via(topology, part) for part in program.parts if part.via is not None})


def _via(topology: Topology, part: Part) -> str:
    """The repartition topic that a part reads."""
    for found in topology.subtopologies:
        for sink in found.sinks:
            node: Any = sink
            while sink.topic == f"audit-{part.label}" and not isinstance(node, SourceNode):
                node = found.node(node.parents[0] if node.parents else _parent(found, node.name))
            if isinstance(node, SourceNode):
                return node.topics[0]
    raise AssertionError(f"{part} is not in the topology")


def _parent(found: Subtopology, name: str) -> str:
    return next(node.name for node in found.nodes if not isinstance(node, SinkNode) and name in node.children)


def _build(builder: StreamsBuilder, part: Part, version: str, on_record: Callable[[], None], ways: Ways) -> str:
    def seen(text: str) -> str:
        on_record()
        return f"{version} {text}"

    rows = _rows(builder, part, ways)
    rows.map_values(seen).to(f"audit-{part.label}", **TEXT)
    table = _table(rows, part)
    result = table.to_stream()
    if part.kind == "windows":
        result = result.map(lambda window, count: (f"{window.key}@{window.start_ms}", count))
    result.map_values(str).to(f"out-{part.label}", **TEXT)
    assert table.queryable_store_name is not None
    return table.queryable_store_name


def _rows(builder: StreamsBuilder, part: Part, ways: Ways) -> KStream[str, str]:
    """What the part reads. ``ways``: the repartition steps that there are already."""
    way = None if part.via is None or part.via.name is None else (part.topics, part.via.name)
    if way in ways:
        return ways[way]
    rows = builder.stream(part.topics[0], **TEXT)
    for topic in part.topics[1:]:
        rows = rows.merge(builder.stream(topic, **TEXT))
    if part.has_step:
        rows = rows.filter(lambda _, text: text != "")
    if part.via is not None:
        rows = rows.select_key(lambda _, text: group_of(text))
        rows = rows.repartition(name=part.via.name, partitions=part.via.partitions, **TEXT)
    if way is not None:
        ways[way] = rows
    return rows


def _table(rows: KStream[str, str], part: Part) -> KTable[Any, Any]:
    grouped = rows.group_by_key(**TEXT)
    serde = serdes.string if part.is_text else serdes.long
    store = Store(part.store, value=serde, in_memory=part.in_memory, plain_rows=part.is_plain)
    cast: Callable[[int], Any] = str if part.is_text else int
    if part.kind == "windows":
        windows = TimeWindows(part.window_ms, grace=part.grace_ms)
        return grouped.windowed_by(windows).aggregate(
            lambda: cast(0),
            lambda _key, _text, total: cast(int(total) + 1),
            store=store,
            key=serdes.string,
            value=serde,
        )
    adds: Callable[[str], int] = number_of if part.kind == "sum" else lambda _: 1
    return grouped.aggregate(
        lambda: cast(0),
        lambda _key, text, total: cast(int(total) + adds(text)),
        store=store,
        key=serdes.string,
        value=serde,
    )


def _join(builder: StreamsBuilder, name: str) -> None:
    """Rows of one table with those of another that they name."""
    left = builder.table(LEFT, store="left-rows", **TEXT)
    right = builder.table(RIGHT, store="right-rows", **TEXT)
    joined = left.join(
        right,
        lambda one, other: f"{one}+{other}",
        foreign_key=foreign_key,
        name=name,
        store="joined",
        **TEXT,
    )
    joined.to_stream().to("out-joined", **TEXT)


def foreign_key(text: str) -> str:
    return key_of(number_of(text) // KEYS)


def rows_of(part: Part, counted: Iterable[str]) -> Rows:
    """What the store of a part has when it has counted these records."""
    found: defaultdict[str, int] = defaultdict(int)
    for text in counted:
        number = number_of(text)
        key = key_of(number) if part.via is None else group_of(text)
        if part.kind == "windows":
            at = timestamp_of(number)
            key = f"{key}@{at - at % part.window_ms}"
        found[key] += number if part.kind == "sum" else 1
    return dict(found)


def joined_rows(left: Mapping[str, str], right: Mapping[str, str]) -> dict[str, str]:
    """The join of the last rows of both sides."""
    return {key: f"{text}+{right[foreign_key(text)]}" for key, text in left.items() if foreign_key(text) in right}
