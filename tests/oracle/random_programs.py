"""Random programs with random inputs, in the words of the oracle's cases: plain data, which Java and we both understand.

A seed gives one case. Every value is a string or a long, every function can take None, and all serdes are given, so that
a program rarely fails: what differs is then what the operators do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.oracle.programs import Case, Step

SHORTENED = 14
"""How long texts may become. Joins and aggregates would double them with every record."""
UNITS = (1, 1, 1, 1000, 60_000)
"""Milliseconds of one step of time. With large ones, windows expire by whole segments of Java's stores."""
KEYS = ("a", "b", "c", "dd")
VALUES = ("x", "b", "bb", "xyz", "7", "x2")


@dataclass(frozen=True)
class Handle:
    """A stream or table of the program. ``key``: its serde. ``sources``: the topics that it comes from."""

    name: str
    kind: str
    key: Any = "string"
    value: str = "string"
    sources: frozenset[str] = frozenset()
    no_old_values: bool = False
    """Whether old values differ from Java's on purpose: behind suppressions, and of new sliding windows."""
    versioned: bool = False
    windows: Step | None = None
    whole: bool = True
    """A table whose serdes Java knows: it has a store of its own, or comes from one that has, with the same type."""


@dataclass
class RandomProgram:
    """Builds a program step by step; each of them applies to a stream or table that is there."""

    random: Random
    steps: list[Step] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    globals_read: list[str] = field(default_factory=list)
    unit: int = 1
    count: int = 0

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def span(self, low: int, high: int) -> int:
        return self.random.randint(low, high) * self.unit

    def add(self, on: Handle | None, op: str, result: Handle | None = None, **given: Any) -> Handle | None:
        step: Step = {"op": op, **given}
        if on is not None:
            step["in"] = on.name
        if result is not None:
            step["as"] = result.name
            self.handles.append(result)
        self.steps.append(step)
        return result

    # ------------------------------------------------------------------------------------------------- functions

    def text(self, *parts: Any) -> Any:
        return ["sub", ["cat", *parts], 0, SHORTENED]

    def condition(self) -> Any:
        return self.random.choice(
            (
                ["==", ["%", ["len", ["str", ["v"]]], 2], 0],
                [">", ["len", ["str", ["v"]]], 2],
                ["not", ["null?", ["v"]]],
                ["!=", ["str", ["k"]], "b"],
                ["<", ["len", ["cat", ["k"], ["v"]]], 4],
                ["==", ["sub", ["str", ["v"]], 0, 1], "x"],
            )
        )

    def new_value(self) -> Any:
        return self.random.choice(
            (
                self.text(["v"], "!"),
                self.text(["k"], ":", ["v"]),
                ["if", self.condition(), self.text("t", ["v"]), None],
                ["if", ["null?", ["v"]], "none", ["str", ["v"]]],
                ["sub", ["str", ["v"]], 0, 1],
                "same",
            )
        )

    def new_key(self) -> Any:
        return self.random.choice(
            (
                ["sub", ["str", ["v"]], 0, 1],
                ["if", ["null?", ["v"]], None, ["sub", ["str", ["v"]], 0, 2]],
                ["str", ["len", ["str", ["v"]]]],
                ["if", self.condition(), "a", "b"],
                "one",
            )
        )

    # --------------------------------------------------------------------------------------------------- options

    def named(self, prefix: str = "n") -> Step:
        return {"named": self.fresh(prefix)} if self.chance(0.15) else {}

    def materialized(self, value: str, key: Any = "string", *, always: bool = False) -> Step:
        if not always and self.chance(0.4):
            return {}
        given: Step = {"key": key, "value": value}
        if self.chance(0.6):
            given["store"] = self.fresh("store")
        if self.chance(0.4):
            given["caching"] = self.chance(0.5)
        if self.chance(0.1):
            given["logging"] = False
        if self.chance(0.3):
            given["store_type"] = "in_memory"
        return {"materialized": given}

    def grouped(self, value: str) -> Step:
        given = {"key": "string", "value": value}
        return {"grouped": {**given, "name": self.fresh("group")} if self.chance(0.3) else given}

    def grace(self) -> Step:
        return {} if self.chance(0.3) else {"grace_ms": self.span(0, 15)}

    def pick(self, *kinds: str, fits: Callable[[Handle], bool] = lambda handle: True) -> Handle | None:
        # The newest ones are taken more often: programs become deep, not only wide.
        found = [handle for handle in self.handles if handle.kind in kinds and fits(handle)]
        if not found:
            return None
        return found[-1] if self.chance(0.5) else self.random.choice(found)


def case_of(seed: int, *, of_one_topic: bool = False) -> Case:
    """The case of a seed. ``of_one_topic``: the program reads a single topic, as a stream."""
    random = Random(seed)
    program = RandomProgram(random, unit=random.choice(UNITS))
    if of_one_topic:
        _stream(program)
    else:
        _read(program)
    operators = [*STREAM_OPERATORS, *TABLE_OPERATORS]
    for _ in range(random.randint(1, 7)):
        random.choice(operators)(program)
    _write_all(program)
    config: Step = {"default.key.serde": "string", "default.value.serde": "string"}
    if program.chance(0.5):
        config["statestore.cache.max.bytes"] = 10_000_000
    if program.chance(0.3):
        config["dsl.store.suppliers.class"] = "in_memory"
    if program.chance(0.3):
        config["topology.optimization"] = random.choice(
            ("all", "reuse.ktable.source.topics", "merge.repartition.topics")
        )
    manual = program.chance(0.3)
    return {
        "family": "random",
        "name": str(seed),
        "config": config,
        **({"commit": "manual"} if manual else {}),
        "dsl": program.steps,
        "input": _inputs(program, manual),
    }


# ------------------------------------------------------------------------------------------------------------ sources


def _read(program: RandomProgram) -> None:
    for kind in [
        "stream",
        *program.random.choices(("stream", "table", "global_table"), (4, 4, 1), k=program.random.randint(0, 3)),
    ]:
        SOURCES[kind](program)


def _consumed(program: RandomProgram) -> Step:
    given: Step = {"key": "string", "value": "string"}
    if program.chance(0.1):
        given["name"] = program.fresh("source")
    return {"consumed": given}


def _source(program: RandomProgram, kind: str) -> Handle:
    topic = program.fresh("in")
    program.inputs.append(topic)
    return Handle(program.fresh(kind), kind, sources=frozenset((topic,)))


def _stream(program: RandomProgram) -> None:
    handle = _source(program, "stream")
    (topic,) = handle.sources
    program.add(None, "stream", handle, topic=topic, **_consumed(program))


def _table(program: RandomProgram) -> None:
    handle = _source(program, "table")
    (topic,) = handle.sources
    versioned = program.chance(0.25)
    if versioned:
        supplier = {"kind": "versioned", "name": program.fresh("versions"), "retention_ms": program.span(5, 60)}
        if program.chance(0.5):
            supplier["segment_ms"] = program.span(2, 20)
        options: Step = {"materialized": {"supplier": supplier, "key": "string", "value": "string"}}
    else:
        options = program.materialized("string")
    handle = replace(handle, versioned=versioned)
    program.add(None, "table", handle, topic=topic, **_consumed(program), **options)


def _global_table(program: RandomProgram) -> None:
    handle = _source(program, "global_table")
    (topic,) = handle.sources
    program.add(
        None, "global_table", handle, topic=topic, **_consumed(program),
        materialized={"store": program.fresh("global"), "key": "string", "value": "string"},
    )  # fmt: skip


SOURCES: dict[str, Callable[[RandomProgram], None]] = {
    "stream": _stream,
    "table": _table,
    "global_table": _global_table,
}

# ------------------------------------------------------------------------------------------------------------ streams


def _plain(handle: Handle) -> bool:
    return handle.key == "string"


def _texts(handle: Handle) -> bool:
    return handle.key == "string" and handle.value == "string"


def _stateless(program: RandomProgram) -> None:
    on = program.pick("stream")
    if on is None:
        return
    op = program.random.choice(
        ("filter", "filter_not", "map_values", "flat_map_values", "peek", "map", "flat_map", "select_key")
    )
    result = replace(on, name=program.fresh("stream"))
    if op in ("filter", "filter_not"):
        given: Step = {"fn": program.condition()}
    elif op == "map_values":
        result, given = replace(result, value="string"), {"fn": program.new_value()}
    elif op == "flat_map_values":
        values = ["if", program.condition(), ["list", program.new_value(), program.text(["v"], "2")], ["list"]]
        result, given = replace(result, value="string"), {"fn": values}
    elif op == "peek":
        given = {}
    elif op == "select_key":
        result, given = replace(result, key="string"), {"fn": program.new_key()}
    elif op == "map":
        result, given = (
            replace(result, key="string", value="string"),
            {"fn": ["list", program.new_key(), program.new_value()]},
        )
    else:
        pairs = ["list", ["list", program.new_key(), program.new_value()], ["list", program.new_key(), ["str", ["v"]]]]
        result, given = (
            replace(result, key="string", value="string"),
            {"fn": ["if", program.condition(), pairs, ["list"]]},
        )
    program.add(on, op, result, **given, **program.named())


def _split(program: RandomProgram) -> None:
    on = program.pick("stream")
    if on is None:
        return
    parts = [replace(on, name=program.fresh("stream")) for _ in range(program.random.randint(2, 3))]
    branches: list[Step] = [{"if": program.condition(), "as": part.name} for part in parts[1:]]
    given: Step = {"default": {"as": parts[0].name}} if program.chance(0.6) else {}
    program.add(on, "split", None, branches=branches, **given, **program.named())
    program.handles += parts if given else parts[1:]


def _merge(program: RandomProgram) -> None:
    on = program.pick("stream")
    if on is None:
        return
    other = program.pick("stream", fits=lambda each: (each.key, each.value) == (on.key, on.value))
    if other is None or other is on:
        return
    result = replace(on, name=program.fresh("stream"), sources=on.sources | other.sources)
    program.add(on, "merge", result, other=other.name, **program.named())


def _repartition(program: RandomProgram) -> None:
    on = program.pick("stream", fits=_plain)
    if on is None:
        return
    given = {"key": "string", "value": on.value}
    if program.chance(0.4):
        given["name"] = program.fresh("again")
    program.add(on, "repartition", replace(on, name=program.fresh("stream")), repartitioned=given)


def _to_table(program: RandomProgram) -> None:
    on = program.pick("stream", fits=_plain)
    if on is None:
        return
    result = replace(on, name=program.fresh("table"), kind="table")
    program.add(on, "to_table", result, **program.materialized(on.value, always=True), **program.named())


def _group(program: RandomProgram) -> Handle | None:
    on = program.pick("stream", fits=_plain)
    if on is None:
        return None
    group = replace(on, name=program.fresh("group"), kind="group")
    if program.chance(0.5):
        program.add(on, "group_by_key", group, **program.grouped(on.value))
    else:
        program.add(on, "group_by", group, fn=program.new_key(), **program.grouped(on.value))
    return group


def _aggregation(program: RandomProgram, on: Handle, *, sessions: bool = False) -> tuple[str, str, Step]:
    """Which one, the type of its results, and its functions."""
    op = program.random.choice(("count", "reduce", "aggregate"))
    if op == "count":
        return op, "long", {}
    if op == "reduce" and on.value == "string":
        fn = program.random.choice(
            (program.text(["agg"], ["v"]), ["v"], ["if", ["==", ["v"], "x"], None, program.text(["v"], ["agg"])])
        )
        return op, "string", {"fn": fn}
    fn = program.random.choice(
        (
            program.text(["agg"], ["v"]),
            program.text(["v"], "/", ["agg"]),
            ["if", [">", ["len", ["str", ["agg"]]], 8], None, program.text(["str", ["agg"]], ["v"])],
            program.text(["k"], ["v"]),
        )
    )
    given: Step = {"init": program.random.choice(("", "i", "")), "fn": fn}
    if sessions:
        given["merger"] = program.text(["agg1"], "+", ["agg2"])
    return "aggregate", "string", given


def _aggregate(program: RandomProgram) -> None:
    group = _group(program)
    if group is None:
        return
    op, value, given = _aggregation(program, group)
    result = replace(group, name=program.fresh("table"), kind="table", value=value)
    program.add(group, op, result, **given, **program.materialized(value, always=True), **program.named())


def _cogroup(program: RandomProgram) -> None:
    first, second = _group(program), _group(program) if program.chance(0.7) else None
    if first is None:
        return
    together = Handle(program.fresh("together"), "cogroup")
    program.add(first, "cogroup", together, fn=program.text(["agg"], ["v"]))
    if second is not None and first.name != second.name:
        more = replace(together, name=program.fresh("together"))
        program.add(together, "cogroup", more, other=second.name, fn=program.text(["v"], "&", ["agg"]))
        together = more
    sources = first.sources | (second.sources if second else frozenset())
    table = Handle(program.fresh("table"), "table", sources=sources)
    given: Step = {"init": "c"}
    if program.chance(0.4):
        windows, key = _some_windows(program)
        windowed = replace(together, name=program.fresh("windowed"))
        program.add(together, "windowed_by", windowed, windows=windows)
        together, table = windowed, replace(table, key=key, windows=windows, no_old_values=windows["kind"] == "sliding")
        if windows["kind"] == "session":
            given["merger"] = program.text(["agg1"], "+", ["agg2"])
    program.add(together, "aggregate", table, **given, **program.materialized("string", always=True), **program.named())


def _some_windows(program: RandomProgram) -> tuple[Step, Any]:
    """Windows, and the serde of their keys."""
    kind = program.random.choice(("tumbling", "hopping", "sliding", "session", "session"))
    size = program.span(2, 15)
    if kind == "session":
        return {"kind": kind, "gap_ms": size, **program.grace()}, {"session_windowed": "string"}
    key = {"time_windowed": "string", "size_ms": size}
    if kind == "sliding":
        return {"kind": kind, "diff_ms": size, **program.grace()}, key
    windows = {"kind": kind, "size_ms": size, **program.grace()}
    if kind == "hopping":
        windows["advance_ms"] = max(1, size // program.random.randint(1, 4))
    return windows, key


def _aggregate_windows(program: RandomProgram) -> None:
    group = _group(program)
    if group is None:
        return
    windows, key = _some_windows(program)
    windowed = replace(group, name=program.fresh("windowed"), kind="windowed")
    program.add(group, "windowed_by", windowed, windows=windows)
    given = program.materialized("", always=True)
    if program.chance(0.25):
        on_close = replace(windowed, name=program.fresh("windowed"))
        program.add(windowed, "emit_strategy", on_close, strategy="on_window_close")
        windowed = on_close
        # Java loses windows that its store has expired.
        given["materialized"]["retention_ms"] = 1000 * program.unit
    op, value, functions = _aggregation(program, group, sessions=windows["kind"] == "session")
    given["materialized"]["value"] = value
    sliding = windows["kind"] == "sliding"
    result = replace(
        group, name=program.fresh("table"), kind="table", key=key, value=value, windows=windows, no_old_values=sliding
    )
    program.add(windowed, op, result, **functions, **given, **program.named())
    if program.chance(0.4) and not sliding:
        _suppress_one(program, result)


def _join_streams(program: RandomProgram) -> None:
    left, right = program.pick("stream", fits=_texts), program.pick("stream", fits=_texts)
    if left is None or right is None:
        return
    windows: Step = {"kind": "join", "diff_ms": program.span(0, 12), **program.grace()}
    if program.chance(0.3):
        windows |= {"before_ms": program.span(0, 12), "after_ms": program.span(0, 12)}
    joined: Step = {"key": "string", "value": "string", "other": "string"}
    if program.chance(0.3):
        joined["name"] = program.fresh("join")
    if program.chance(0.3):
        joined["store_name"] = program.fresh("sides")
    if program.chance(0.3):
        joined["store_type"] = "in_memory"
    result = replace(left, name=program.fresh("stream"), sources=left.sources | right.sources)
    op = program.random.choice(("join", "left_join", "outer_join"))
    fn = program.text(["k"], ":", ["v1"], "+", ["v2"])
    program.add(left, op, result, other=right.name, fn=fn, windows=windows, stream_joined=joined)


def _join_table(program: RandomProgram) -> None:
    left, right = (
        program.pick("stream", fits=_plain),
        program.pick("table", fits=lambda each: _plain(each) and not each.no_old_values),
    )
    if left is None or right is None:
        return
    joined: Step = {"key": "string", "value": left.value, "other": right.value}
    if program.chance(0.3):
        joined["name"] = program.fresh("join")
    if right.versioned and program.chance(0.5):
        joined["grace_ms"] = program.span(0, 5)
    result = replace(left, name=program.fresh("stream"), value="string", sources=left.sources | right.sources)
    op = program.random.choice(("join", "left_join"))
    fn = program.text(["k"], ":", ["v1"], "+", ["v2"])
    program.add(left, op, result, other=right.name, fn=fn, joined=joined)


def _join_global(program: RandomProgram) -> None:
    left, right = program.pick("stream"), program.pick("global_table")
    if left is None or right is None:
        return
    result = replace(left, name=program.fresh("stream"), value="string")
    op = program.random.choice(("join", "left_join"))
    fn = program.text(["str", ["k"]], ":", ["v1"], "+", ["v2"])
    program.add(left, op, result, other=right.name, fn=fn, key_fn=program.new_key(), **program.named())


# ------------------------------------------------------------------------------------------------------------- tables


def _of_table(program: RandomProgram) -> None:
    on = program.pick("table")
    if on is None:
        return
    result = replace(on, name=program.fresh("table"), versioned=False)
    store = {} if on.no_old_values else program.materialized(on.value, on.key)
    if program.chance(0.6):
        op = program.random.choice(("filter", "filter_not"))
        program.add(on, op, result, fn=program.condition(), **store, **program.named())
        return
    if store:
        store["materialized"]["value"] = "string"
    whole = bool(store) or (on.whole and on.value == "string")
    program.add(
        on,
        "map_values",
        replace(result, value="string", whole=whole),
        fn=program.new_value(),
        **store,
        **program.named(),
    )


def _to_stream(program: RandomProgram) -> None:
    on = program.pick("table")
    if on is None:
        return
    result = replace(on, name=program.fresh("stream"), kind="stream", windows=None)
    if program.chance(0.3):
        program.add(on, "to_stream", replace(result, key="string"), fn=program.new_key(), **program.named())
    else:
        program.add(on, "to_stream", result, **program.named())


def _suppress(program: RandomProgram) -> None:
    on = program.pick("table", fits=lambda each: not each.no_old_values and not each.versioned)
    if on is not None:
        _suppress_one(program, on)


def _suppress_one(program: RandomProgram, on: Handle) -> None:
    given: Step = {"until": "time_limit", "time_limit_ms": program.span(0, 15)}
    if on.windows is not None and program.chance(0.7):
        given = {"until": "window_closes"}
    elif program.chance(0.5):
        given["buffer"] = {"max_records": program.random.randint(1, 3), "full": "emit_early"}
    if program.chance(0.3):
        given["name"] = program.fresh("suppressed")
    # The old values behind a suppression differ from Java's, on purpose.
    result = replace(on, name=program.fresh("table"), no_old_values=True)
    program.add(on, "suppress", result, suppressed=given)


def _unsuppressed(handle: Handle) -> bool:
    return _plain(handle) and not handle.no_old_values


def _group_table(program: RandomProgram) -> None:
    on = program.pick("table", fits=lambda each: not each.no_old_values)
    if on is None:
        return
    group = replace(on, name=program.fresh("group"), kind="table group", key="string", value="string")
    pair = ["list", program.new_key(), ["str", ["v"]]]
    program.add(on, "group_by", group, fn=pair, **program.grouped("string"))
    op = program.random.choice(("count", "reduce", "aggregate"))
    table = replace(
        group, name=program.fresh("table"), kind="table", value="string", windows=None, versioned=False, whole=True
    )
    if op == "count":
        table, given = replace(table, value="long"), {}
    else:
        given = {"fn": program.text(["agg"], "+", ["v"]), "subtractor": program.text(["agg"], "-", ["v"])}
    if op == "aggregate":
        given["init"] = program.random.choice(("", "i"))
    store = program.materialized(table.value, always=True)
    program.add(group, op, table, **given, **store, **program.named())


def _join_tables(program: RandomProgram) -> None:
    left, right = program.pick("table", fits=_unsuppressed), program.pick("table", fits=_unsuppressed)
    # An inner join of what comes from one table differs from Java's, on purpose.
    if left is None or right is None or left.sources & right.sources:
        return
    op = program.random.choice(("join", "left_join", "outer_join"))
    result = replace(
        left,
        name=program.fresh("table"),
        value="string",
        sources=left.sources | right.sources,
        versioned=False,
        whole=False,
    )
    store = program.materialized("string")
    fn = program.text(["v1"], "+", ["v2"])
    program.add(left, op, replace(result, whole=bool(store)), other=right.name, fn=fn, **store, **program.named())


def _join_by_foreign_key(program: RandomProgram) -> None:
    def fits(each: Handle) -> bool:
        return _unsuppressed(each) and _texts(each)

    left, right = program.pick("table", fits=fits), program.pick("table", fits=fits)
    if left is None or right is None or left.sources & right.sources:
        return
    op = program.random.choice(("fk_join", "fk_left_join"))
    sources = left.sources | right.sources
    result = replace(left, name=program.fresh("table"), sources=sources, versioned=False, whole=False)
    store = program.materialized("string", always=program.chance(0.8))
    given: Step = {"table_joined": {"name": program.fresh("fk")}} if program.chance(0.3) else {}
    fn, fk = (
        program.text(["v1"], "+", ["v2"]),
        program.random.choice((["sub", ["str", ["v"]], 0, 1], program.new_key())),
    )
    fk = _without_key(fk)
    program.add(left, op, replace(result, whole=bool(store)), other=right.name, fn=fn, fk=fk, **store, **given)


def _without_key(expression: Any) -> Any:
    """Foreign keys come from values alone."""
    if expression == ["k"]:
        return ["v"]
    return [_without_key(each) for each in expression] if isinstance(expression, list) else expression


STREAM_OPERATORS = (
    _stateless, _stateless, _stateless, _split, _merge, _repartition, _to_table, _aggregate, _aggregate, _cogroup,
    _aggregate_windows, _aggregate_windows, _aggregate_windows, _join_streams, _join_streams, _join_table, _join_table,
    _join_global,
)  # fmt: skip
TABLE_OPERATORS = (
    _of_table, _of_table, _of_table, _to_stream, _to_stream, _suppress, _group_table, _group_table, _join_tables,
    _join_tables, _join_by_foreign_key, _join_by_foreign_key,
)  # fmt: skip


def _write_all(program: RandomProgram) -> None:
    """All that nobody reads is written."""
    used = {step.get(side) for step in program.steps for side in ("in", "other")}
    for handle in list(program.handles):
        if handle.name in used and not program.chance(0.2):
            continue
        if handle.kind == "table":
            stream = Handle(program.fresh("stream"), "stream", handle.key, handle.value)
            program.add(handle, "to_stream", stream)
            handle = stream
        if handle.kind == "stream":
            given: Step = {"key": handle.key, "value": handle.value}
            program.add(handle, "to", None, topic=program.fresh("out"), produced=given)


# ------------------------------------------------------------------------------------------------------------- inputs


def _inputs(program: RandomProgram, manual: bool) -> list[Step]:
    random, now, actions = program.random, program.span(0, 30), []
    keys = random.sample(KEYS, random.randint(1, len(KEYS)))
    for _ in range(random.randint(3, 30)):
        if manual and program.chance(0.2):
            actions.append({"commit": True})
            continue
        if program.chance(0.03):
            actions.append({"advance_wall_clock_ms": program.span(1, 50)})
            continue
        now += program.unit * random.choice((0, 0, 1, 1, 2, 5, 5, 9, 25, 60)) if program.chance(0.9) else 0
        late = program.span(0, 25) if program.chance(0.25) else 0
        # Not all times are multiples of the unit.
        time = max(0, now - late + (random.randint(0, program.unit - 1) if program.chance(0.2) else 0))
        action: Step = {
            "topic": random.choice(program.inputs),
            "key": None if program.chance(0.06) else random.choice(keys),
            "value": None if program.chance(0.15) else random.choice(VALUES),
            "ts": time,
        }
        if program.chance(0.2):
            action["headers"] = [[f"h{random.randint(1, 2)}", random.choice(("01", "", None))]]
        actions.append(action)
    return actions
