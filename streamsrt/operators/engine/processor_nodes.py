"""Every operation as a processor node: one call per record and node, as in Kafka Streams.

The path of the Processor API, of whatever the compiler leaves over, and of applications that skip failing children. It
does what the generated code does, with objects instead of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from streamsrt.assignment.topology import is_legal_topic
from streamsrt.errors import MissingTopicError, RecordError, StateError, UserError
from streamsrt.operators.engine.environment import Environment, SkippedAtSinkError
from streamsrt.operators.engine.node_meter import NodeMeter
from streamsrt.operators.engine.placement import Choice, checked
from streamsrt.state.access import OnChange
from streamsrt.state.cache import Entry, KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.direct_access import RowLog
from streamsrt.state.kinds import cache_of, functions_of
from streamsrt.state.lru import LruCache
from streamsrt.state.versioned_cache import VersionedCache, VersionPut
from streamsrt.state.window_cache import WindowCache
from topology import serdes
from topology.graph import nodes
from topology.graph.store_kinds import Limit, store_traits
from topology.spec.codecs import ProgramSerde
from topology.spec.processor import Record, RecordContext
from topology.spec.processor_wrapper import TableRecord
from topology.spec.windows import Windowed

if TYPE_CHECKING:
    pass

Process = Callable[[Any, Any, int, Headers, Any], None]  # a node takes what the one before it forwards
Forward = Callable[..., None]
"""``forward(key, value, timestamp, headers[, old])``."""


TakeRun = Callable[..., None]
"""``take_run(rows, position, from_key, from_value, undecodable)``: processes records one after the other. ``rows``: the
raw key, the raw value and the timestamp of each. ``from_key``, ``from_value``: None where bytes stay as they are;
``undecodable`` handles what they raise."""


class PlainSink(NamedTuple):
    """A sink that writes to one topic by the keys of records. Where ``keys`` is not empty, whoever forwards a record without
    headers, whose key is of ``raw_key_type`` and whose value is not None, may as well append it to ``keys``, to ``values``
    and to ``timestamps`` itself: these are always the same lists. The value is written as it is where it is of
    ``raw_type``, else as ``serialize`` makes it; ``failed`` takes what that raises, with the record."""

    raw_key_type: type[bytes] | None
    raw_type: type[bytes] | None
    serialize: Callable[..., bytes]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    failed: Callable[[BaseException, object, object, int, Headers], None]


class PathNode:
    """A node that runs. ``process(key, value, timestamp, headers, old)`` is set by the operation."""

    __slots__ = ("children", "close", "env", "late", "name", "process", "sink", "takes", "takes_run")

    def __init__(self, name: str, env: Environment) -> None:
        self.name = name
        self.env = env
        self.children: list[PathNode] = []
        self.late: PathNode | None = None
        """The child that gets late records."""
        self.process: Process = self._to_all
        self.takes: Forward = self.accept
        """What the node before it calls: its step itself where that deals with every failure."""
        self.takes_run: TakeRun | None = None
        """Takes a run of records without headers as :attr:`takes` takes a record, where the node can."""
        self.sink: PlainSink | None = None
        self.close: Callable[[], None] = _nothing

    def accept(self, key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        try:
            self.process(key, value, timestamp, headers, old)
        except (RecordError, StateError):
            raise
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
            self.fail(error, key, value, timestamp, headers)

    def fail(self, error: BaseException, key: object, value: object, timestamp: int, headers: Headers) -> None:
        """Handles a failure in its step, while the exception is handled: skips the record, or raises."""
        if isinstance(error, SkippedAtSinkError) and not self.children:
            # This is the sink: what forwarded to it ends as well.
            raise error
        self.env.failed(self.name, error, key, value, timestamp, headers)

    @property
    def forward(self) -> Forward:
        """What takes a result: of a single child its own step, else all of them one after the other."""
        return self.children[0].takes if len(self.children) == 1 else self._to_all

    @property
    def only_sink(self) -> PlainSink | None:
        """What all that it forwards goes to, where that is a plain sink which nothing measures."""
        only = self.children[0] if type(self) is PathNode and len(self.children) == 1 else None
        return only.sink if only is not None and type(only) is PathNode else None

    @property
    def forwards_run(self) -> TakeRun | None:
        """As :attr:`forward`, for a run of records; None where that can't be done."""
        return self.children[0].takes_run if len(self.children) == 1 else None

    def _to_all(self, key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        for child in self.children:
            child.takes(key, value, timestamp, headers, old)

    def to(self, child: PathNode) -> Callable[..., None]:
        """Returns the function that forwards a record to one child only."""
        return child.takes

    def drop_late(self, key: object, value: object, timestamp: int, headers: Headers) -> None:
        """Forwards a record to the children that get late records."""
        if self.late is not None:
            self.late.accept(key, value, timestamp, headers)


class MeasuredNode(PathNode):
    """One that counts what comes and goes."""

    __slots__ = ("_meter",)

    def __init__(self, name: str, env: Environment, meter: NodeMeter) -> None:
        super().__init__(name, env)
        self._meter = meter

    def accept(self, key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        self._meter.came(1, timestamp, timestamp, timestamp, self.env.system_time_ms)
        super().accept(key, value, timestamp, headers, old)

    @property
    def forward(self) -> Forward:
        return self._to_all

    @property
    def forwards_run(self) -> TakeRun | None:
        return None

    def _to_all(self, key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        self._meter.forwarded += 1
        super()._to_all(key, value, timestamp, headers, old)


class Forwards(Protocol):
    """The interface through which a processor forwards."""

    def forward(self, record: Record[Any, Any], child: str | None = None, /) -> None: ...


class WrappedNode(PathNode):
    """An operator within what the application put around its node: it forwards through the context that it was given."""

    __slots__ = ("context",)

    context: Forwards
    """Given before anything is forwarded."""

    def __init__(self, outer: PathNode) -> None:
        super().__init__(outer.name, outer.env)
        self.children, self.late = outer.children, outer.late

    @property
    def forward(self) -> Forward:
        return self._to_all

    def _to_all(self, key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        self.context.forward(_record(key, value, timestamp, headers, old))

    def to(self, child: PathNode) -> Callable[..., None]:
        def forward(key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
            self.context.forward(_record(key, value, timestamp, headers, old), child.name)

        return forward


def _record(key: object, value: object, timestamp: int, headers: Headers, old: object) -> Record[object, object]:
    record = Record(key, value, timestamp, tuple(headers))
    return record if old is None else TableRecord.of(record, old)


def _nothing(*_: object) -> None:
    pass


NO_SINK: Final = PlainSink(None, None, bytes, [], [], [], _nothing)


Maker = Callable[["PathBuilder", nodes.ProcessorNode, PathNode], Process]
"""Makes what runs an operation, ``node.operation``, record by record; the last argument is where it forwards."""


Wrap = Callable[["PathBuilder", nodes.ProcessorNode, PathNode, WrappedNode, Process], Process]
"""Makes what runs the processor around an operator: the node, what forwards, the operator within and its own step."""


class PathBuilder:
    """Makes the nodes of a task, each once. ``makers``: what runs each operation; ``wrap``: what runs a processor that the
    application put around an operator."""

    def __init__(self, env: Environment, makers: Mapping[type, Maker], wrap: Wrap) -> None:
        self.env = env
        self._makers = makers
        self._wrap = wrap
        self.plan = env.plan
        self._made: dict[str, PathNode] = {}

    @property
    def made(self) -> tuple[PathNode, ...]:
        return tuple(self._made.values())

    def node(self, name: str) -> PathNode:
        """The node of that name with everything behind it."""
        made = self._made.get(name)
        if made is not None:
            return made
        node = self.plan.node(name)
        meter = self.env.node_meters.get(name)
        made = PathNode(name, self.env) if meter is None else MeasuredNode(name, self.env, meter)
        self._made[name] = made
        if isinstance(node, nodes.SinkNode):
            made.process = self._sink(node, made)
            if meter is None and made.sink is not None:
                made.takes = made.process
            return made
        made.children = [self.node(child) for child in node.result_children]
        if isinstance(node, nodes.ProcessorNode) and node.late is not None:
            made.late = self.node(node.late)
        if isinstance(node, nodes.ProcessorNode):
            made.process = self._process(node, made) if node.wrapped_by is None else self._wrapped(node, made)
        return made

    # ------------------------------------------------------------------------------------------------- operations

    def _process(self, node: nodes.ProcessorNode, made: PathNode) -> Process:
        maker = self._makers.get(type(node.operation))
        if maker is None:
            raise UserError(
                f"{made.name}: the runtime does not know the operation {type(node.operation).__name__}; install a newer "
                "streamsrt"
            )
        return maker(self, node, made)

    def _wrapped(self, node: nodes.ProcessorNode, made: PathNode) -> Process:
        """Returns the operator's step inside the wrappers that the application has put around it."""
        inner = WrappedNode(made)
        return self._wrap(self, node, made, inner, self._process(node, inner))

    def change(self, store: str) -> Callable[[bytes, object, int, Headers, int], Entry | VersionPut]:
        """Writes a row, and logs it unless the store is cached: ``change(raw, value, timestamp, headers, start)``."""
        cache = self.env.caches[store]
        assert isinstance(cache, KeyValueCache | WindowCache | VersionedCache)
        put: Callable[..., Entry | VersionPut] = cache.put
        log = self.log(store)
        sequence, serialize = self.env.sequence, self.plan.value_serde(self.plan.specs[store]).serialize

        def change(raw: bytes, value: object, timestamp: int, headers: Headers, start: int) -> Entry | VersionPut:
            row_key = (raw,) if start < 0 else (raw, start)
            if log is None:
                return put(*row_key, value, timestamp, headers, next(sequence))
            # A value that can't be written fails here, and the row stays what it was.
            written = None if value is None else serialize(value)
            entry = put(*row_key, value, timestamp, headers, next(sequence))
            log(entry, written)
            return entry

        return change

    def log(self, store: str) -> OnChange[Any] | None:  # of the changes that a cache of that kind makes
        row_log, spec = self.row_log(store), self.plan.specs[store]
        if row_log is None:
            return None
        log = functions_of(spec).log(row_log.log_row)
        if store_traits(spec).limit is Limit.COUNT:
            cache_of(LruCache, self.env.caches, store).on_drop = lambda dropped: log(dropped, None)
        return log

    def row_log(self, store: str) -> RowLog | None:
        """Logs rows as the changelog has them, unless the store is cached."""
        if self.plan.is_cached(store) or not self.plan.writes_changelog(store):
            return None
        serialize = self.plan.value_serde(self.plan.specs[store]).serialize
        topic = self.plan.changelog_topic(store)
        assert topic is not None
        output = self.env.output.to(topic, self.env.task_partition)
        append, keys = output.append, output.keys
        add_key, add_value, add_time = keys.append, output.values.append, output.timestamps.append
        marks_deletions = self.plan.marks_deletions(store)

        def log_row(key: bytes, raw: bytes | None, timestamp: int, headers: Headers) -> None:
            if raw is None:
                append(key, None, timestamp, headers if marks_deletions else ())
            elif keys:
                add_key(key)
                add_value(raw)
                add_time(timestamp)
            else:
                append(key, raw, timestamp, ())

        return RowLog(log_row, serialize, keys, output.values, output.timestamps)

    # ------------------------------------------------------------------------------------------------- sinks

    def _sink(self, node: nodes.SinkNode, made: PathNode) -> Process:
        if node.topic is not None and node.partitioner is None:
            return self._plain_sink(node, self.plan.topic(node.topic, node.repartition), made)
        env = self.env
        fixed = None if node.topic is None else self.plan.topic(node.topic, node.repartition)

        def destination(key: object, value: object, timestamp: int, headers: Headers) -> tuple[str, Choice]:
            topic = self._chosen_topic(node, key, value, timestamp, headers) if fixed is None else fixed
            if node.partitioner is None:
                return topic, None
            count = env.partitions_of_topic(topic)
            return topic, checked(topic, node.partitioner(topic, key, value, count), count)

        write = self._write(node)

        def process(key: object, value: object, timestamp: int, headers: Headers, old: object) -> None:
            try:
                topic, choice = destination(key, value, timestamp, headers)
            except MissingTopicError as error:
                env.failed_to_produce(node.name, error, key, value, timestamp, headers)
                return
            except (RecordError, StateError):
                raise
            except BaseException as error:
                # A function that chooses a topic or a partition fails to process, as any function does: it raises, or
                # returns what is none.
                env.failed(node.name, error, key, value, timestamp, headers)
                raise SkippedAtSinkError from error
            write(topic, choice, key, value, timestamp, headers)

        return process

    def _plain_sink(self, node: nodes.SinkNode, topic: str, made: PathNode) -> Process:
        """One that writes to a topic by the keys of records."""
        env = self.env
        key_serde, value_serde = self.plan.key_serde(node), self.plan.value_serde(node)
        serialize_key, serialize = key_serde.serialize, value_serde.serialize
        # Bytes are written as they are.
        raw_key_type, raw_type = (bytes if serde is serdes.bytes else None for serde in (key_serde, value_serde))
        output, write = env.output.to(topic), self._write(node)
        append, keys = output.append, output.keys
        add_key, add_value, add_time = keys.append, output.values.append, output.timestamps.append
        failed = partial(env.failed_to_produce, node.name)
        made.sink = PlainSink(raw_key_type, raw_type, serialize, keys, output.values, output.timestamps, failed)

        def process(key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
            try:
                if key is None or type(key) is raw_key_type:
                    raw_key = key
                elif isinstance(key, Windowed):
                    write(topic, None, key, value, timestamp, headers)
                    return
                else:
                    raw_key = serialize_key(key)
                raw = value if value is None or type(value) is raw_type else serialize(value)
                if keys and not headers:
                    add_key(raw_key)
                    add_value(raw)
                    add_time(timestamp)
                else:
                    append(raw_key, raw, timestamp, headers)
            except (RecordError, StateError):
                raise
            except BaseException as error:  # noqa: BLE001  # a user's serde may raise anything
                failed(error, key, value, timestamp, headers)

        return process

    def _write(self, node: nodes.SinkNode) -> Callable[[str, Choice, object, object, int, Headers], None]:
        """Writes a record to a topic, and to the partitions that were chosen for it."""
        env, key_serde, serialize = self.env, self.plan.key_serde(node), self.plan.value_serde(node).serialize
        output = self.env.output

        def write(topic: str, choice: Choice, key: object, value: object, timestamp: int, headers: Headers) -> None:
            try:
                raw_key = None if key is None else key_serde.serialize(key)
                raw_value = None if value is None else serialize(value)
                if isinstance(key, Windowed):
                    inner, chosen = [_inner_key(key_serde, key)], None if choice is None else [choice]
                    env.collect(
                        topic, [raw_key], [raw_value], [timestamp], [headers] if headers else None, chosen, inner
                    )
                else:
                    output.to(topic).append(raw_key, raw_value, timestamp, headers, choice)
            except (RecordError, StateError):
                raise
            except BaseException as error:  # noqa: BLE001  # a user's serde may raise anything
                env.failed_to_produce(node.name, error, key, value, timestamp, headers)

        return write

    def _chosen_topic(self, node: nodes.SinkNode, key: object, value: object, timestamp: int, headers: Headers) -> str:
        topic, partition, offset = self.env.metadata or ("", -1, -1)
        assert node.topic_extractor is not None
        chosen = node.topic_extractor(key, value, RecordContext(topic, partition, offset, timestamp, tuple(headers)))
        if not isinstance(chosen, str):
            raise TypeError(f"the topic extractor returned {chosen!r}: it must name a topic")
        if not is_legal_topic(chosen):
            raise ValueError(
                f"the topic extractor returned {chosen!r}, which is not a valid topic name: it has up to 249 ASCII letters, "
                "digits, '.', '_' and '-', and is neither '.' nor '..'"
            )
        return chosen


def _inner_key(serde: ProgramSerde, key: Windowed[object]) -> bytes:
    inner = getattr(serde, "inner", None)
    raw: bytes = serde.serialize(key) if inner is None else inner.serialize(key.key)
    return raw
