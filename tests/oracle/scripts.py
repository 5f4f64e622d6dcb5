"""Processors that the oracle's cases write as lists of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.oracle.expressions import Environment, ExpressionError, evaluate, text, truth
from topology import ProcessorContext, PunctuationType, Record, ValueAndTimestamp, VersionedRecord, Windowed, serdes

PUNCTUATIONS = {"stream_time": PunctuationType.STREAM_TIME, "wall_clock": PunctuationType.WALL_CLOCK_TIME}


class ScriptedProcessor:
    """Runs ``{"init": [actions], "process": [actions]}``; for ``process`` and for ``process_values``."""

    def __init__(self, script: dict[str, Any], *, fixed_key: bool) -> None:
        self.script = script
        self.fixed_key = fixed_key
        self.context: ProcessorContext[Any, Any]
        self.current: Record[Any, Any] | None = None
        self.memory: Environment = {}
        self.timers: dict[str, Any] = {}

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.context = context
        self.run(self.script.get("init", []), {})

    def process(self, record: Record[Any, Any]) -> None:
        self.current = record
        environment = {**self.memory, "k": record.key, "v": record.value, "ts": record.timestamp}
        self.run(self.script.get("process", []), environment)
        self.current = None

    def close(self) -> None:
        self.timers.clear()

    def run(self, actions: list[Any], environment: Environment) -> None:
        for name, *arguments in actions:
            getattr(self, f"do_{name}")(environment, *arguments)

    def value(self, expression: Any, environment: Environment) -> Any:
        return evaluate(expression, environment, self.extension)

    # ------------------------------------------------------------------------------------------------ actions

    def do_forward(self, environment: Environment, key: Any, value: Any, options: Any = None) -> None:
        options = options or {}
        timestamp = self.current.timestamp if self.current else environment["ts"]
        if "ts" in options:
            timestamp = self.value(options["ts"], environment)
        headers = self.current.headers if self.current and options.get("headers") != "clear" else ()
        new_key = self.current.key if self.fixed_key and self.current else self.value(key, environment)
        self.context.forward(Record(new_key, self.value(value, environment), timestamp, headers), options.get("child"))

    def do_put(self, environment: Environment, store: str, key: Any, value: Any) -> None:
        self.context.get_state_store(store).put(self.value(key, environment), self.value(value, environment))

    def do_put_ts(self, environment: Environment, store: str, key: Any, value: Any, timestamp: Any) -> None:
        pair = ValueAndTimestamp(self.value(value, environment), int(self.value(timestamp, environment)))
        self.context.get_state_store(store).put(self.value(key, environment), pair)

    def do_delete(self, environment: Environment, store: str, key: Any) -> None:
        self.context.get_state_store(store).delete(self.value(key, environment))

    def do_put_versioned(self, environment: Environment, store: str, key: Any, value: Any, timestamp: Any) -> None:
        at = int(self.value(timestamp, environment))
        self.context.get_state_store(store).put(self.value(key, environment), self.value(value, environment), at)

    def do_delete_versioned(self, environment: Environment, store: str, key: Any, timestamp: Any) -> None:
        at = int(self.value(timestamp, environment))
        self.context.get_state_store(store).delete(self.value(key, environment), at)

    def do_win_put(self, environment: Environment, store: str, key: Any, value: Any, start: Any) -> None:
        self.context.get_state_store(store).put(
            self.value(key, environment), self.value(value, environment), int(self.value(start, environment))
        )

    def do_win_put_ts(self, environment: Environment, store: str, key: Any, value: Any, start: Any) -> None:
        assert self.current is not None
        pair = ValueAndTimestamp(self.value(value, environment), self.current.timestamp)
        begin = int(self.value(start, environment))
        self.context.get_state_store(store).put(self.value(key, environment), pair, begin)

    def do_ses_put(
        self, environment: Environment, store: str, key: Any, start: Any, end: Any, value: Any = None
    ) -> None:
        bounds = (int(self.value(start, environment)), int(self.value(end, environment)))
        session = Windowed(self.value(key, environment), *bounds)
        self.context.get_state_store(store).put(session, self.value(value, environment))

    def do_ses_remove(self, environment: Environment, store: str, key: Any, start: Any, end: Any) -> None:
        self.do_ses_put(environment, store, key, start, end)

    def do_let(self, environment: Environment, name: str, value: Any) -> None:
        environment[name] = self.value(value, environment)

    def do_remember(self, environment: Environment, name: str, value: Any) -> None:
        environment[name] = self.memory[name] = self.value(value, environment)

    def do_if(self, environment: Environment, condition: Any, then: Any, otherwise: Any = ()) -> None:
        self.run(then if truth(condition, environment, self.extension) else list(otherwise), environment)

    def do_each(self, environment: Environment, store: str, actions: Any) -> None:
        for key, value in list(self.context.get_state_store(store).all()):
            environment |= {"k": key, "v": plain(value)}
            self.run(actions, environment)

    def do_commit(self, environment: Environment) -> None:
        self.context.commit()

    def do_add_header(self, environment: Environment, name: str, value: Any) -> None:
        assert self.current is not None
        added = (name, text(self.value(value, environment)).encode())
        self.current = self.current.with_headers((*self.current.headers, added))

    def do_remove_header(self, environment: Environment, name: str) -> None:
        assert self.current is not None
        kept = tuple(header for header in self.current.headers if header[0] != name)
        self.current = self.current.with_headers(kept)

    def do_schedule(self, environment: Environment, name: str, every_ms: int, kind: str, actions: Any) -> None:
        def punctuate(timestamp: int) -> None:
            self.current = None
            self.run(actions, {**self.memory, "ts": timestamp})

        self.timers[name] = self.context.schedule(every_ms, PUNCTUATIONS[kind], punctuate)

    def do_cancel(self, environment: Environment, name: str) -> None:
        self.timers[name].cancel()

    def do_throw(self, environment: Environment, message: Any) -> None:
        raise ExpressionError(text(self.value(message, environment)))

    # ---------------------------------------------------------------------------------------------- functions

    def extension(self, name: str, arguments: list[Any]) -> Any:
        if name in CONTEXT_FUNCTIONS:
            return CONTEXT_FUNCTIONS[name](self.context)
        if name == "header":
            return self.header(arguments[0])
        return STORE_FUNCTIONS[name](self.context.get_state_store(arguments[0]), *arguments[1:])

    def header(self, name: str) -> str | None:
        headers = self.current.headers if self.current else ()
        found = [value for other, value in headers if other == name]
        return found[-1].decode(errors="replace") if found and found[-1] is not None else None


class ScriptedTransformer(ScriptedProcessor):
    """Runs ``{"process": [actions], "value": expression}``; for ``transform_values`` of tables."""

    def __init__(self, script: dict[str, Any]) -> None:
        super().__init__(script, fixed_key=True)

    def transform(self, key: Any, value: Any) -> Any:
        environment = {**self.memory, "k": key, "v": value}
        self.run(self.script.get("process", []), environment)
        return self.value(self.script["value"], environment)


def plain(value: Any) -> Any:
    return value.value if isinstance(value, ValueAndTimestamp) else value


def listed(entries: Any) -> str:
    return ",".join(f"{text(key)}={text(value)}" for key, value in entries)


def version(found: VersionedRecord[Any] | None) -> str | None:
    """Kafka Streams' typed store drops up to when a version was valid: it always says that it is the newest."""
    return None if found is None else f"{text(found.value)}@{found.timestamp}-inf"


def metadata(context: ProcessorContext[Any, Any]) -> str:
    """Where the record came from. In a punctuation Kafka Streams makes up an origin, here there is none."""
    origin = context.record_metadata
    return "null/-1/-1" if origin is None else f"{origin.topic}/{origin.partition}/{origin.offset}"


CONTEXT_FUNCTIONS: dict[str, Callable[[ProcessorContext[Any, Any]], Any]] = {
    "stream_time": lambda context: context.current_stream_time_ms(),
    "wall_clock": lambda context: context.current_system_time_ms(),
    # Subtopologies have hashes for ids here; these cases have one.
    "task_id": lambda context: "0_" + context.task_id.rpartition("_")[2],
    "app_id": lambda context: context.application_id,
    "meta": metadata,
}

STORE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "get": lambda store, key: plain(store.get(key)),
    "get_ts": lambda store, key: getattr(store.get(key), "timestamp", None),
    "get_versioned": lambda store, key, *as_of: version(store.get(key, *map(int, as_of))),
    "put_if_absent": lambda store, key, value: store.put_if_absent(key, value),
    "count_entries": lambda store: store.approximate_num_entries(),
    "range": lambda store, start, end: listed(store.range(start, end)),
    "reverse_range": lambda store, start, end: listed(store.reverse_range(start, end)),
    "prefix": lambda store, prefix: listed(store.prefix_scan(prefix, serdes.string)),
    "ses_find": lambda store, key, end, start: listed(store.find_sessions(key, int(end), int(start))),
    "ses_fetch": lambda store, key: listed(store.fetch(key)),
    "win_get": lambda store, key, start: store.fetch(key, int(start)),
    "win_fetch": lambda store, key, start, end: listed(store.fetch_range(key, int(start), int(end))),
    "win_backward_fetch": lambda store, key, start, end: listed(store.backward_fetch_range(key, int(start), int(end))),
    "win_fetch_range": lambda store, low, high, start, end: listed(store.fetch_keys(low, high, int(start), int(end))),
}
