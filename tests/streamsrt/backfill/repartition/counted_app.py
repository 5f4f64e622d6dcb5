"""Applications of one store, whose changelogs tests write by hand. Each reads a topic of its own."""

from __future__ import annotations

from typing import Any

from topology import Store, StreamsBuilder, TimeWindows, serdes
from topology.dsl.streams_and_tables import KStream
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WINDOW_MS = 60_000


def topic_of(name: str) -> str:
    """The topic that the application of that name reads."""
    return f"repartitioned-{name}"


def _stream(builder: StreamsBuilder, *names: str) -> KStream[str, str]:
    return builder.stream(list(map(topic_of, names)), **TEXT)


def _counted(*names: str) -> Topology:
    builder = StreamsBuilder()
    _stream(builder, *names).group_by_key().count(store="counts")
    return builder.build()


def _regrouped(name: str) -> Topology:
    builder = StreamsBuilder()
    _stream(builder, name).group_by(lambda _, item: item, name="by-item", **TEXT).count(store="counts")
    return builder.build()


def _table(name: str, optimization: str = "none", **given: Any) -> Topology:
    builder = StreamsBuilder()
    builder.table(topic_of(name), **TEXT, store=Store("counts", **given))
    return builder.build({"topology.optimization": optimization})


def _final(name: str) -> Topology:
    builder = StreamsBuilder()
    windows = _stream(builder, name).group_by_key().windowed_by(TimeWindows(WINDOW_MS))
    windows.emit_strategy("on_window_close").count(store="counts").to_stream()
    return builder.build()


def _once(name: str) -> Topology:
    builder = StreamsBuilder()
    kept = _stream(builder, name).deduplicate(
        id=lambda _, value: value, ttl=WINDOW_MS, serde=serdes.string, store="counts"
    )
    kept.foreach(lambda _, __: None)
    return builder.build()


def _idle(name: str) -> Topology:
    builder = StreamsBuilder()
    windows = _stream(builder, name).group_by_key().windowed_by(TimeWindows(WINDOW_MS))
    windows.emit_strategy("on_window_close", idle_timeout=WINDOW_MS).count(store="counts").to_stream()
    return builder.build()


def by_last(_topic: str, key: str, _value: object, count: int) -> int:
    """By the last digit of the key."""
    return int(key[-1]) % count


def by_value(_topic: str, _key: str, value: str, count: int) -> int:
    return len(value) % count


def to_all(_topic: str, _key: str, _value: object, count: int) -> list[int]:
    return list(range(count))


def up_to_two(_topic: str, key: str, _value: object, count: int) -> int:
    return {1: 0, 2: int(key[-1]) % 2}[count]


def _placed(name: str, partitioner: Any) -> Topology:
    builder = StreamsBuilder()
    placed = _stream(builder, name).repartition(name="placed", partitioner=partitioner, **TEXT)
    placed.group_by_key().count(store="counts")
    return builder.build()


def _placed_table(name: str, partitioner: Any) -> Topology:
    builder = StreamsBuilder()
    placed = _stream(builder, name).repartition(name="placed", partitioner=partitioner, **TEXT)
    placed.to_table(store="counts", **TEXT)
    return builder.build()


def _placed_once(name: str) -> Topology:
    builder = StreamsBuilder()
    placed = _stream(builder, name).repartition(name="placed", partitioner=by_last, **TEXT)
    kept = placed.deduplicate(id=lambda _, value: value, ttl=WINDOW_MS, serde=serdes.string, store="counts")
    kept.foreach(lambda _, __: None)
    return builder.build()


def _placed_by_two(name: str) -> Topology:
    """A store behind two repartition topics whose partitioners agree for two partitions only."""
    builder = StreamsBuilder()
    last = _stream(builder, name).repartition(name="placed", partitioner=by_last, **TEXT)
    other = _stream(builder, "merged").repartition(
        name="other", partitioner=lambda _topic, key, _value, count: int(key[-1]) % 2 % count, **TEXT
    )
    last.merge(other).group_by_key().count(store="counts")
    return builder.build()


def _written_by_itself(name: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream("raw", **TEXT).to(topic_of(name), partitioner=by_last, **TEXT)
    _stream(builder, name).group_by_key().count(store="counts")
    return builder.build()


from_one, from_few, counted_from_one = _once("from_one"), _once("from_few"), _counted("counted_from_one")
seed_0, seed_1, seed_2, seed_3 = (_counted(f"seed_{number}") for number in range(4))
counted, unread, by_others, in_use = map(_counted, ("counted", "unread", "by_others", "in_use"))
from_two, regrouped, final = _counted("from_two", "other"), _regrouped("regrouped"), _final("final")
versioned, unlogged = _table("versioned", kind="versioned", retention=WINDOW_MS), _table("unlogged", logging=False)
typed = _counted("typed")
read_again, missing = _table("read_again", "all"), _counted("missing")
idle, idle_open = _idle("idle"), _idle("idle_open")
final_interrupted, idle_interrupted = _final("final_interrupted"), _idle("idle_interrupted")
placed, placed_astray, placed_interrupted = (
    _placed(name, by_last) for name in ("placed", "placed_astray", "placed_interrupted")
)
valued, several, failing = _placed("valued", by_value), _placed("several", to_all), _placed("failing", up_to_two)
placed_table, placed_twice = (_placed_table(name, by_value) for name in ("placed_table", "placed_twice"))
placed_once, placed_by_two = _placed_once("placed_once"), _placed_by_two("placed_by_two")
written_by_itself = _written_by_itself("written_by_itself")
