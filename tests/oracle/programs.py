"""From a case of the oracle to a topology: what the case's program says, said with the public DSL.

A case is one JSON file of ``tests/golden/oracle/<family>/<case>.json``, captured from Kafka Streams.
:func:`unsupported` tells what of it is not there yet; all other cases must build.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.oracle.expressions import evaluate, truth
from tests.oracle.scripts import ScriptedProcessor, ScriptedTransformer
from topology import (
    Buffer,
    EmitStrategy,
    GlobalKTable,
    JoinWindows,
    KGroupedStream,
    KStream,
    KTable,
    Record,
    RecordContext,
    Serde,
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

GOLDEN = Path(__file__).parent.parent / "golden" / "oracle"

Case = dict[str, Any]
Step = dict[str, Any]

OPERATORS = {
    "": {"add_global_store", "add_state_store", "global_table", "stream", "table"},
    "KStream": {
        "filter", "filter_not", "flat_map", "flat_map_values", "foreach", "group_by", "group_by_key", "join", "left_join",
        "map", "map_values", "merge", "outer_join", "peek", "process", "process_values", "repartition", "select_key",
        "split", "to", "to_table",
    },
    "KTable": {
        "filter", "filter_not", "fk_join", "fk_left_join", "group_by", "join", "left_join", "map_values", "outer_join",
        "suppress", "to_stream", "transform_values",
    },
    "KGroupedTable": {"aggregate", "count", "reduce"},
    "KGroupedStream": {"aggregate", "cogroup", "count", "reduce", "windowed_by"},
    "CogroupedKStream": {"aggregate", "cogroup", "windowed_by"},
    "TimeWindowedCogroupedKStream": {"aggregate"},
    "SessionWindowedCogroupedKStream": {"aggregate"},
    "TimeWindowedKStream": {"aggregate", "count", "emit_strategy", "reduce"},
    "SessionWindowedKStream": {"aggregate", "count", "emit_strategy", "reduce"},
}  # fmt: skip
OFFSET_VECTOR = "__iq.consistency.offset.vector.enabled__"
EMIT_INTERVAL = "emit.interval.ms.kstreams.outer.join.spurious.results.fix"
CONFIG = {
    "__emit.interval.ms.kstreams.windowed.aggregation__",
    f"__{EMIT_INTERVAL}__",
    "default.key.serde",
    "default.timestamp.extractor",
    "default.value.serde",
    "deserialization.exception.handler",
    "dsl.store.format",
    "dsl.store.suppliers.class",
    "ensure.explicit.internal.resource.naming",
    "errors.dead.letter.queue.topic.name",
    "processing.exception.handler",
    "production.exception.handler",
    "replication.factor",
    "statestore.cache.max.bytes",
    "topology.optimization",
    "upgrade.from",
    "windowstore.changelog.additional.retention.ms",
}

SERDES: dict[str, Serde[Any]] = {
    "string": serdes.string,
    "long": serdes.long,
    "int": serdes.integer,
    "short": serdes.short,
    "double": serdes.double,
    "float": serdes.float,
    "bool": serdes.boolean,
    "bytes": serdes.bytes,
    "uuid": serdes.uuid,
    "void": serdes.void,
}


class UnsupportedCase(Exception):
    """The case needs something that is not there yet; the message says what."""


@dataclass
class Program:
    """A built case. ``topic_serdes``: key and value serde (as the case names them) of each topic that it says them for."""

    topology: Topology
    topic_serdes: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def cases(family: str | None = None) -> Iterator[Case]:
    """All cases, or those of one family, in order of their names."""
    for path in sorted(GOLDEN.glob(f"{family or '*'}/*.json")):
        yield json.loads(path.read_text())


def case_name(case: Case) -> str:
    return f"{case['family']}/{case['name']}"


def unsupported(case: Case) -> str | None:
    """What keeps the case from being built, e.g. ``unsupported operator: KTable.suppress``; None: it must build."""
    if "special" in case:
        return "unsupported program: no topology"
    for key in case.get("config", {}):
        if key.startswith("topic."):
            continue
        if key == OFFSET_VECTOR:
            return f"unsupported setting: {key}, internal to Java: positions of queries as headers in changelogs"
        if key not in CONFIG:
            return f"unsupported setting: {key}"
    try:
        _interpreter(case).run(case)
    except UnsupportedCase as error:
        return str(error)
    except Exception:
        if "build_error" in case:
            return None
        raise
    return None


def build(case: Case, epoch: int = 0) -> Program:
    """The case's topology. Raises TopologyError where the case is one of those that must not build."""
    interpreter = _interpreter(case)
    interpreter.run(case)
    topology = interpreter.builder.build(application_config(case), epoch)
    return Program(topology, interpreter.topic_serdes)


def application_config(case: Case) -> dict[str, Any]:
    """The case's settings, with serdes for their names."""
    settings = dict(case.get("config", {}))
    for key in ("default.key.serde", "default.value.serde"):
        if key in settings:
            settings[key] = serde(settings[key])
    return settings


def serde(name: Any) -> Any:
    """The serde that a case names; None for none."""
    if name is None:
        return None
    if isinstance(name, str):
        return SERDES[name]
    if "time_windowed" in name:
        return serdes.time_windowed(serde(name["time_windowed"]), name["size_ms"])
    if "session_windowed" in name:
        return serdes.session_windowed(serde(name["session_windowed"]))
    if "string_refusing" in name:
        return _string_refusing(name["string_refusing"])
    raise UnsupportedCase(f"unsupported serde: {next(iter(name))}")


def to_value(value: Any, serde_name: Any) -> Any:
    """A key or value as a case's JSON gives it, as the serde takes it."""
    if value is None:
        return None
    if serde_name == "bytes":
        return bytes.fromhex(value)
    if serde_name == "uuid":
        return UUID(value)
    if serde_name in ("double", "float"):
        return float(value)
    return value


def _string_refusing(refused: str) -> Serde[str]:
    def serialize(value: str) -> bytes:
        if value == refused:
            raise ValueError(f"refused {refused}")
        return value.encode()

    return serdes.CallableSerde(f"string refusing {refused}", serialize, bytes.decode)


def _interpreter(case: Case) -> Any:
    from tests.oracle.processor_programs import ProcessorInterpreter

    return _Interpreter() if "dsl" in case else ProcessorInterpreter()


class _Interpreter:
    def __init__(self) -> None:
        self.builder = StreamsBuilder()
        self.variables: dict[str, Any] = {}
        self.topic_serdes: dict[str, tuple[Any, Any]] = {}
        self.last: Any = None

    def run(self, case: Case) -> None:
        for step in case["dsl"]:
            result = self.step(step, self.variables[step["in"]] if "in" in step else self.last)
            if result is not None:
                self.last = result
            if "as" in step:
                self.variables[step["as"]] = result

    def step(self, step: Step, receiver: Any) -> Any:
        name = step["op"]
        if name in OPERATORS[""]:
            return getattr(self, f"do_{name}")(step)
        kind = type(receiver).__name__
        if name not in OPERATORS.get(kind, ()):
            raise UnsupportedCase(
                f"unsupported operator: {kind}.{name}" if receiver is not None else f"unsupported operator: {name}"
            )
        own = getattr(self, f"on_{kind.lower()}_{name}", None) or getattr(self, f"on_{name}")
        return own(receiver, step)

    def note(self, topics: Any, options: Step | None) -> None:
        for topic in [topics] if isinstance(topics, str) else topics:
            pair = ((options or {}).get("key"), (options or {}).get("value"))
            self.topic_serdes.setdefault(topic, pair)

    # --------------------------------------------------------------------------------------------- the builder's

    def do_add_state_store(self, step: Step) -> None:
        self.builder.add_state_store(store_builder(step["store"]))

    def do_global_table(self, step: Step) -> GlobalKTable[Any, Any]:
        self.note(step["topic"], step.get("consumed"))
        return self.builder.global_table(step["topic"], store=_materialized(step), **consumed(step.get("consumed")))

    def do_add_global_store(self, step: Step) -> None:
        self.note(step["topic"], step.get("consumed"))
        script = step["processor"]
        self.builder.add_global_store(
            store_builder(step["store"]),
            step["topic"],
            lambda: ScriptedProcessor(script, fixed_key=False),
            **consumed(step.get("consumed")),
        )

    def do_stream(self, step: Step) -> KStream[Any, Any]:
        if "pattern" in step:
            return self.builder.stream(re.compile(step["pattern"]), **consumed(step.get("consumed")))
        self.note(step["topic"], step.get("consumed"))
        return self.builder.stream(step["topic"], **consumed(step.get("consumed")))

    def do_table(self, step: Step) -> KTable[Any, Any]:
        self.note(step["topic"], step.get("consumed"))
        return self.builder.table(step["topic"], store=_materialized(step), **consumed(step.get("consumed")))

    # ------------------------------------------------------------------------------------------------- streams'

    def on_filter(self, on: Any, step: Step) -> Any:
        return on.filter(_predicate(step["fn"]), **_named(step), **_store(step))

    def on_filter_not(self, on: Any, step: Step) -> Any:
        return on.filter_not(_predicate(step["fn"]), **_named(step), **_store(step))

    def on_map_values(self, on: Any, step: Step) -> Any:
        return on.map_values(_function(step["fn"], "k", "v"), with_key=True, **_named(step), **_store(step))

    def on_map(self, on: KStream[Any, Any], step: Step) -> Any:
        pair = _function(step["fn"], "k", "v")
        return on.map(lambda key, value: tuple(pair(key, value)), **_named(step))

    def on_flat_map(self, on: KStream[Any, Any], step: Step) -> Any:
        pairs = _function(step["fn"], "k", "v")
        return on.flat_map(lambda key, value: [tuple(pair) for pair in pairs(key, value) or ()], **_named(step))

    def on_flat_map_values(self, on: KStream[Any, Any], step: Step) -> Any:
        return on.flat_map_values(_function(step["fn"], "k", "v"), with_key=True, **_named(step))

    def on_select_key(self, on: KStream[Any, Any], step: Step) -> Any:
        return on.select_key(_function(step["fn"], "k", "v"), **_named(step))

    def on_peek(self, on: KStream[Any, Any], step: Step) -> Any:
        return on.peek(lambda key, value: None, **_named(step))

    def on_foreach(self, on: KStream[Any, Any], step: Step) -> Any:
        return on.foreach(lambda key, value: None, **_named(step))

    def on_merge(self, on: KStream[Any, Any], step: Step) -> Any:
        return on.merge(self.variables[step["other"]], **_named(step))

    def on_repartition(self, on: KStream[Any, Any], step: Step) -> Any:
        given = step.get("repartitioned") or {}
        options = {**serdes_of(given), **_given(given, "name", "partitions")}
        if given.get("partitioner") is not None:
            options["partitioner"] = partitioner(given["partitioner"])
        return on.repartition(**options)

    def on_to(self, on: KStream[Any, Any], step: Step) -> None:
        produced = step.get("produced") or {}
        options = {**serdes_of(produced), **_given(produced, "name")}
        if produced.get("partitioner") is not None:
            options["partitioner"] = partitioner(produced["partitioner"])
        if "topic_fn" in step:
            on.to(topic_extractor(step["topic_fn"]), **options)
            return
        if "produced" in step:
            self.note(step["topic"], produced)
        on.to(step["topic"], **options)

    def on_to_table(self, on: KStream[Any, Any], step: Step) -> Any:
        return on.to_table(**_named(step), **_store(step))

    def on_group_by_key(self, on: KStream[Any, Any], step: Step) -> Any:
        grouped = step.get("grouped") or {}
        return on.group_by_key(**serdes_of(grouped), **_given(grouped, "name"))

    def on_group_by(self, on: KStream[Any, Any], step: Step) -> Any:
        grouped = step.get("grouped") or {}
        return on.group_by(_function(step["fn"], "k", "v"), **serdes_of(grouped), **_given(grouped, "name"))

    def on_split(self, on: KStream[Any, Any], step: Step) -> None:
        split = on.split(**_named(step))
        names = [branch["as"] for branch in step["branches"]]
        for branch in step["branches"]:
            split.branch(_predicate(branch["if"]), name=branch.get("name"))
        if step.get("default") is None:
            streams = split.no_default_branch()
        else:
            names.append(step["default"]["as"])
            streams = split.default_branch(name=step["default"].get("name"))
        self.variables.update(zip(names, streams.values(), strict=True))

    def on_join(self, on: KStream[Any, Any], step: Step) -> Any:
        other = self.variables[step["other"]]
        join = getattr(on, step["op"])
        joiner = _function(step["fn"], "k", "v1", "v2")
        if isinstance(other, KStream):
            return join(other, joiner, join_windows(step["windows"]), with_key=True, **_stream_joined(step))
        if isinstance(other, GlobalKTable):
            return join(other, joiner, on=_function(step["key_fn"], "k", "v"), with_key=True, **_named(step))
        joined = step.get("joined") or {}
        options = {**serdes_of(joined), **_given(joined, "name")}
        if joined.get("grace_ms") is not None:
            options["grace"] = joined["grace_ms"]
        return join(other, joiner, with_key=True, **options)

    on_left_join = on_outer_join = on_join

    def on_process(self, on: KStream[Any, Any], step: Step) -> Any:
        script, fixed_key = step["processor"], step["op"] == "process_values"
        stores = [*step.get("stores", ()), *map(store_builder, script.get("stores", ()))]
        process = on.process_values if fixed_key else on.process
        return process(lambda: ScriptedProcessor(script, fixed_key=fixed_key), stores=stores, **_named(step))

    on_process_values = on_process

    # -------------------------------------------------------------------------------------- tables' and groups'

    def on_ktable_join(self, on: KTable[Any, Any], step: Step) -> Any:
        join = getattr(on, step["op"])
        joiner = _function(step["fn"], "v1", "v2")
        return join(self.variables[step["other"]], joiner, **_named(step), **_store(step))

    on_ktable_left_join = on_ktable_outer_join = on_ktable_join

    def on_fk_join(self, on: KTable[Any, Any], step: Step) -> Any:
        join = on.join if step["op"] == "fk_join" else on.left_join
        joiner, foreign_key = _function(step["fn"], "v1", "v2"), _function(step["fk"], "v")
        name = _given(step.get("table_joined") or {}, "name")
        return join(self.variables[step["other"]], joiner, foreign_key=foreign_key, **name, **_store(step))

    on_fk_left_join = on_fk_join

    def on_to_stream(self, on: KTable[Any, Any], step: Step) -> Any:
        mapper = _function(step["fn"], "k", "v") if step.get("fn") is not None else None
        return on.to_stream(mapper, **_named(step))

    def on_windowed_by(self, on: KGroupedStream[Any, Any], step: Step) -> Any:
        return on.windowed_by(_windows(step["windows"]))

    def on_kgroupedstream_cogroup(self, on: Any, step: Step) -> Any:
        return on.cogroup(_function(step["fn"], "k", "v", "agg"))

    def on_cogroupedkstream_cogroup(self, on: Any, step: Step) -> Any:
        return on.cogroup(self.variables[step["other"]], _function(step["fn"], "k", "v", "agg"))

    def on_cogroupedkstream_aggregate(self, on: Any, step: Step) -> Any:
        return on.aggregate(lambda: evaluate(step["init"], {}), **_named(step), **_store(step))

    on_timewindowedcogroupedkstream_aggregate = on_cogroupedkstream_aggregate

    def on_sessionwindowedcogroupedkstream_aggregate(self, on: Any, step: Step) -> Any:
        merger = _function(step["merger"], "k", "agg1", "agg2")
        return on.aggregate(lambda: evaluate(step["init"], {}), merger, **_named(step), **_store(step))

    def on_suppress(self, on: KTable[Any, Any], step: Step) -> Any:
        given = step["suppressed"]
        limits = given.get("buffer") or {}
        closes = given["until"] == "window_closes"
        shuts_down = limits.get("full") == "shutdown" or (closes and not limits.get("full"))
        options = {**_given(limits, "max_records", "max_bytes"), **_logging(limits)}
        buffer = Buffer(when_full="shut_down" if shuts_down else "emit_early", **options)
        if closes:
            suppressed = Suppressed.until_window_closes(buffer)
        else:
            suppressed = Suppressed.until_time_limit(given["time_limit_ms"], buffer)
        return on.suppress(suppressed, **_given(given, "name"))

    def on_emit_strategy(self, on: Any, step: Step) -> Any:
        return on.emit_strategy(EmitStrategy(step["strategy"]))

    def on_sessionwindowedkstream_aggregate(self, on: Any, step: Step) -> Any:
        aggregator, merger = _function(step["fn"], "k", "v", "agg"), _function(step["merger"], "k", "agg1", "agg2")
        return on.aggregate(lambda: evaluate(step["init"], {}), aggregator, merger, **_named(step), **_store(step))

    def on_count(self, on: Any, step: Step) -> Any:
        return on.count(**_named(step), **_store(step))

    def on_ktable_group_by(self, on: KTable[Any, Any], step: Step) -> Any:
        grouped = step.get("grouped") or {}
        pair = _function(step["fn"], "k", "v")
        return on.group_by(lambda key, value: tuple(pair(key, value)), **serdes_of(grouped), **_given(grouped, "name"))

    def on_transform_values(self, on: KTable[Any, Any], step: Step) -> Any:
        script = step["processor"]
        stores = [*(step.get("stores") or ()), *map(store_builder, script.get("stores", ()))]
        return on.transform_values(lambda: ScriptedTransformer(script), stores=stores, **_named(step), **_store(step))

    def on_kgroupedtable_reduce(self, on: Any, step: Step) -> Any:
        subtractor = _function(step["subtractor"], "agg", "v")
        return on.reduce(_function(step["fn"], "agg", "v"), subtractor, **_named(step), **_store(step))

    def on_kgroupedtable_aggregate(self, on: Any, step: Step) -> Any:
        adder, subtractor = (_function(step[name], "k", "v", "agg") for name in ("fn", "subtractor"))
        return on.aggregate(lambda: evaluate(step["init"], {}), adder, subtractor, **_named(step), **_store(step))

    def on_reduce(self, on: Any, step: Step) -> Any:
        return on.reduce(_function(step["fn"], "agg", "v"), **_named(step), **_store(step))

    def on_aggregate(self, on: Any, step: Step) -> Any:
        aggregator = _function(step["fn"], "k", "v", "agg")
        return on.aggregate(lambda: evaluate(step["init"], {}), aggregator, **_named(step), **_store(step))


def _windows(given: Step) -> Any:
    grace_ms = given.get("grace_ms") or 0
    match given["kind"]:
        case "sliding":
            if not given["diff_ms"]:
                raise UnsupportedCase(
                    "unsupported windows: Java takes sliding ones without a difference, and fails at the first record"
                )
            return SlidingWindows(given["diff_ms"], grace_ms)
        case "session":
            return SessionWindows(given["gap_ms"], grace_ms)
        case "unlimited":
            return UnlimitedWindows(given.get("start_ms") or 0)
    return TimeWindows(given["size_ms"], given.get("advance_ms"), grace_ms)


def _function(expression: Any, *variables: str) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        return evaluate(expression, dict(zip(variables, values, strict=True)))

    return apply


def _predicate(expression: Any) -> Callable[[Any, Any], bool]:
    return lambda key, value: truth(expression, {"k": key, "v": value})


def partitioner(expression: Any) -> Callable[[str, Any, Any, int], Any]:
    return lambda topic, key, value, partitions: evaluate(expression, {"k": key, "v": value, "n": partitions})


def topic_extractor(expression: Any) -> Callable[[Any, Any, RecordContext], Any]:
    def topic(key: Any, value: Any, context: RecordContext) -> Any:
        return evaluate(expression, {"k": key, "v": value, "ts": context.timestamp, "topic": context.topic})

    return topic


def _given(options: Step, *names: str) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


def serdes_of(options: Step | None) -> dict[str, Any]:
    return {side: serde(options[side]) for side in ("key", "value") if options and options.get(side) is not None}


def join_windows(given: Step) -> JoinWindows:
    """The windows of a stream-stream join."""
    before_ms, after_ms = (given.get(f"{side}_ms", given.get("diff_ms")) for side in ("before", "after"))
    return JoinWindows(before_ms, after_ms, grace=given.get("grace_ms") or 0)


def _stream_joined(step: Step) -> dict[str, Any]:
    given = step.get("stream_joined") or {}
    options = {**serdes_of(given), **_given(given, "name")}
    if given.get("other") is not None:
        options["other_value"] = serde(given["other"])
    if given.get("this_supplier") is not None:
        options["store"] = tuple(
            store_builder({"builder": "window", "supplier": given[supplier], "caching": True})
            for supplier in ("this_supplier", "other_supplier")
        )
    elif any(given.get(name) is not None for name in ("store_name", "store_type", "logging")):
        in_memory = {"in_memory": True} if given.get("store_type") == "in_memory" else {}
        options["store"] = Store(given.get("store_name"), **_logging(given), **in_memory)
    return options


def _named(step: Step) -> dict[str, Any]:
    return {"name": step["named"]} if step.get("named") is not None else {}


def consumed(given: Step | None) -> dict[str, Any]:
    given = given or {}
    options = {**serdes_of(given), **_given(given, "name")}
    if given.get("ts_extractor") is not None:
        options["timestamp_extractor"] = _timestamp_extractor(given["ts_extractor"])
    if given.get("reset") is not None:
        options["offset_reset"] = timedelta(days=1) if given["reset"] == "P1D" else given["reset"]
    return options


def _timestamp_extractor(extractor: Any) -> Callable[[Record[Any, Any], int], int] | str:
    if isinstance(extractor, str):
        return extractor

    def extract(record: Record[Any, Any], partition_time_ms: int) -> int:
        environment = {"k": record.key, "v": record.value, "ts": record.timestamp, "partition_time": partition_time_ms}
        return int(evaluate(extractor, environment))

    return extract


def _store(step: Step) -> dict[str, Any]:
    store = _materialized(step)
    return {} if store is None else {"store": store}


def _materialized(step: Step) -> Store | None:
    given = step.get("materialized")
    if given is None:
        return None
    options: dict[str, Any] = {**serdes_of(given), **_logging(given)}
    if given.get("store_type") is not None:
        options["in_memory"] = given["store_type"] == "in_memory"
    if given.get("caching") is not None:
        options["caching"] = given["caching"]
    if given.get("retention_ms") is not None:
        options["retention"] = given["retention_ms"]
    if given.get("supplier") is None:
        return Store(given.get("store"), **options)
    supplied = _supplier(given["supplier"])
    return Store(given["supplier"]["name"], **{**options, **supplied})


def store_builder(given: Step) -> Store:
    """A store for processors. Where builder and supplier disagree, the bytes on disk do; the store is the builder's."""
    options: dict[str, Any] = {**serdes_of(given), **_logging(given), "caching": bool(given.get("caching"))}
    options |= _supplier(given["supplier"])
    timestamped = given["builder"].startswith("timestamped")
    if timestamped and not given["supplier"]["kind"].startswith("timestamped"):
        options["plain_rows"] = True
        options["keeps_headers"] = False
    options["timestamped"] = timestamped
    return Store(given["supplier"]["name"], **options)


def _supplier(supplier: Step) -> dict[str, Any]:
    """The options of a :class:`Store` that a store supplier of the case stands for."""
    kind = supplier["kind"].removeprefix("in_memory_")
    in_memory = kind != supplier["kind"]
    # Rows with headers are rows with timestamps here: the DSL's operators leave the headers empty.
    kind = kind.replace("headers_", "timestamped_").replace("timestamped_session", "session")
    options: dict[str, Any] = {"in_memory": in_memory, "timestamped": kind.startswith("timestamped")}
    options["keeps_headers"] = "headers" in supplier["kind"]
    if kind in ("window", "timestamped_window"):
        options |= {"kind": "window", "retention": supplier["retention_ms"], "window_size": supplier["window_ms"]}
        options["retain_duplicates"] = supplier.get("retain_duplicates", False)
    elif kind == "session":
        options |= {"kind": "session", "retention": supplier["retention_ms"]}
    elif kind == "versioned":
        options |= {"kind": "versioned", "retention": supplier["retention_ms"]}
        options["segment_interval"] = supplier.get("segment_ms")
    elif kind == "lru":
        options |= {"max_entries": supplier["max"], "in_memory": None, "timestamped": None}
    elif kind not in ("kv", "timestamped_kv"):
        raise UnsupportedCase(f"unsupported option: store supplier {supplier['kind']}")
    return options


def _logging(given: Step) -> dict[str, Any]:
    logging = given.get("logging")
    if logging is None or logging is True:
        return {}
    return {"logging": False} if logging is False else {"changelog_config": logging}
