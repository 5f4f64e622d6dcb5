"""Every operation as a processor node: one call per record and node, as in Kafka Streams.

The path of the Processor API, of whatever the compiler leaves over, and of applications that skip failing children. It
does what the generated code does, with objects instead of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from streamsrt.config import below
from streamsrt.errors import RecordError, StateError, UserError
from streamsrt.operators.aggregate import pack_start
from streamsrt.operators.environment import Environment
from streamsrt.operators.node_meter import NodeMeter
from streamsrt.operators.plan import own_store
from streamsrt.operators.punctuation_queue import Schedule, anchored
from streamsrt.operators.store_access import store_access
from streamsrt.operators.table_views import derived, table_view, table_view_as_of
from streamsrt.operators.user_metrics import NodeMetrics
from streamsrt.state.cache import Entry
from streamsrt.state.lru import LruCache
from streamsrt.state.sessions import session_key
from streamsrt.state.versioned_cache import VersionPut
from topology.graph import nodes, operations
from topology.spec.errors import TopologyError, UnknownStoreError
from topology.spec.functions import check_schedule
from topology.spec.processor import PunctuationType, Record, RecordContext, RecordMetadata
from topology.spec.processor_wrapper import TableRecord
from topology.spec.serdes import Serde
from topology.spec.windows import Duration, Time, Windowed, to_epoch_ms

if TYPE_CHECKING:
    from pydantic import DirectoryPath

Process = Callable[[Any, Any, int, Any, Any], None]


class PathNode:
    """A node that runs. ``process(key, value, timestamp, headers, old)`` is set by the operation."""

    __slots__ = ("children", "close", "env", "late", "name", "process")

    def __init__(self, name: str, env: Environment) -> None:
        self.name = name
        self.env = env
        self.children: list[PathNode] = []
        self.late: PathNode | None = None
        """The child that gets what is dropped as too late."""
        self.process: Process = self.forward
        self.close: Callable[[], None] = _nothing

    def accept(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any = None) -> None:
        try:
            self.process(key, value, timestamp, headers, old)
        except (RecordError, StateError):
            raise
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything
            self.env.failed(self.name, error, key, value, timestamp, headers)

    def forward(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any = None) -> None:
        for child in self.children:
            child.accept(key, value, timestamp, headers, old)

    def to(self, child: PathNode) -> Callable[..., None]:
        """What forwards a record to one of the children only."""
        return child.accept

    def drop_late(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        """Hands a record to those who want what is dropped as too late."""
        if self.late is not None:
            self.late.accept(key, value, timestamp, headers)


class MeasuredNode(PathNode):
    """One that counts what comes and goes."""

    __slots__ = ("_meter",)

    def __init__(self, name: str, env: Environment, meter: NodeMeter) -> None:
        super().__init__(name, env)
        self._meter = meter

    def accept(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any = None) -> None:
        self._meter.came(1, timestamp, timestamp, timestamp, self.env.system_time_ms)
        super().accept(key, value, timestamp, headers, old)

    def forward(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any = None) -> None:
        self._meter.forwarded += 1
        super().forward(key, value, timestamp, headers, old)


class WrappedNode(PathNode):
    """An operator within what the application put around its node: it forwards through the context that it was given."""

    __slots__ = ("context",)

    def __init__(self, outer: PathNode) -> None:
        super().__init__(outer.name, outer.env)
        self.children, self.late = outer.children, outer.late
        self.context: Any = None

    def forward(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any = None) -> None:
        self.context.forward(_record(key, value, timestamp, headers, old))

    def to(self, child: PathNode) -> Callable[..., None]:
        def forward(key: Any, value: Any, timestamp: int, headers: Any, old: Any = None) -> None:
            self.context.forward(_record(key, value, timestamp, headers, old), child.name)

        return forward


def _record(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> Record[Any, Any]:
    record = Record(key, value, timestamp, tuple(headers))
    return record if old is None else TableRecord.of(record, old)


def _nothing() -> None:
    pass


Maker = Callable[["PathBuilder", nodes.ProcessorNode, PathNode], Process]
_MAKERS: dict[type, Maker] = {}


def makes(*operations: type) -> Callable[[Maker], Maker]:
    """Registers what runs operations of these types; ``node.operation`` is one of them."""

    def register(maker: Maker) -> Maker:
        for operation in operations:
            _MAKERS[operation] = maker
        return maker

    return register


class PathBuilder:
    """Makes the nodes of a task, each once."""

    def __init__(self, env: Environment) -> None:
        self.env = env
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
            made.process = self._sink(node)
            return made
        made.children = [self.node(child) for child in node.result_children]
        if isinstance(node, nodes.ProcessorNode) and node.late is not None:
            made.late = self.node(node.late)
        if isinstance(node, nodes.ProcessorNode):
            made.process = self._process(node, made) if node.wrapped_by is None else self._wrapped(node, made)
        return made

    # ------------------------------------------------------------------------------------------------- operations

    def _process(self, node: nodes.ProcessorNode, made: PathNode) -> Process:
        op = node.operation
        maker = _MAKERS.get(type(op))
        if maker is not None:
            return maker(self, node, made)
        match op:
            case operations.TableSource() | operations.TableFilter() | operations.TableMapValues():
                return self._table(node, op, made)
            case operations.StreamTableJoin():
                return self._join(op, made)
            case operations.Process():
                return self._user(node, op, made)
            case operations.Branch():
                return self._branch(op, made)
        return stateless(op, made)

    def _branch(self, op: operations.Branch, made: PathNode) -> Process:
        targets = [
            (predicate, made.to(self.node(child))) for predicate, child in zip(op.predicates, op.children, strict=True)
        ]

        def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
            for predicate, to_child in targets:
                if predicate is None or predicate(key, value):
                    to_child(key, value, timestamp, headers)
                    return

        return process

    def change(self, store: str) -> Callable[[bytes, Any, int, Any, int], Entry | VersionPut]:
        """Writes a row, and logs it unless the store is cached: ``change(raw, value, timestamp, headers, start)``."""
        cache: Any = self.env.caches[store]
        log = self.log(store)
        sequence = self.env.sequence
        if isinstance(cache, LruCache):
            cache.on_drop = log

        def change(raw: bytes, value: Any, timestamp: int, headers: Any, start: int) -> Entry | VersionPut:
            place = (raw,) if start < 0 else (raw, start)
            entry: Entry | VersionPut = cache.put(*place, value, timestamp, headers, next(sequence))
            if log is not None:
                log(entry)
            return entry

        return change

    def log(self, store: str) -> Callable[[Any], None] | None:
        if self.plan.is_cached(store) or not self.plan.writes_changelog(store):
            return None
        kind, numbered = self.plan.specs[store].kind, self.plan.specs[store].retain_duplicates
        log_row = self.log_row(store)
        assert log_row is not None

        def log(entry: Any) -> None:
            log_row(entry.key, entry.value, entry.timestamp)

        def log_window(entry: Any) -> None:
            number = entry.sequence.to_bytes(4, "big") if numbered else b"\0\0\0\0"
            log_row(entry.key + pack_start(entry.start) + number, entry.value, entry.timestamp)

        def log_session(entry: Any) -> None:
            log_row(session_key(entry.key, entry.start, entry.end), entry.value, entry.timestamp)

        if kind == "window":
            return log_window
        return log_session if kind == "session" else log

    def log_row(self, store: str) -> Callable[..., None] | None:
        """Logs a row as the changelog has it, unless the store is cached: ``(key, value, timestamp, headers=())``."""
        if self.plan.is_cached(store) or not self.plan.writes_changelog(store):
            return None
        serialize = self.plan.value_serde(self.plan.specs[store]).serialize
        topic, collect, partition = self.plan.changelog_topic(store), self.env.collect, self.env.task_partition

        def log_row(key: bytes, value: Any, timestamp: int, headers: Any = ()) -> None:
            raw = None if value is None else serialize(value)
            collect(topic, [key], [raw], [timestamp], [headers] if headers else None, partition)

        return log_row

    def _table(
        self,
        node: nodes.ProcessorNode,
        op: operations.TableSource | operations.TableFilter | operations.TableMapValues,
        made: PathNode,
    ) -> Process:
        env, store = self.env, own_store(op)
        sends_old = node.sends_old_values
        computed = derived(op)
        cache = None if store is None else env.caches[store]
        serialize = None if store is None else self.plan.key_serde(self.plan.specs[store]).serialize
        change = None if store is None else self.change(store)
        cached = store is not None and self.plan.is_cached(store)
        is_source = isinstance(op, operations.TableSource)
        versions = not is_source and self.plan.is_versioned(node.parents[0])
        suppresses = isinstance(op, operations.TableFilter) and sends_old and not versions

        def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
            if is_source and key is None:
                env.counters.dropped_null += 1
                return
            new = computed(key, value)
            before = None
            if sends_old:
                if cache is not None and serialize is not None:
                    before = cache[serialize(key)].value
                else:
                    before = computed(key, old)
            if suppresses and new is None and before is None:
                return
            put = None
            if change is not None and serialize is not None:
                put = change(serialize(key), new, timestamp, headers, -1)
            if isinstance(put, VersionPut):
                env.forward_version(put, made.forward, key, new, timestamp, headers, before)
            elif not cached:
                made.forward(key, new, timestamp, headers, before)

        return process

    def _join(self, op: operations.StreamTableJoin, made: PathNode) -> Process:
        env = self.env
        row_of = table_view(self.plan, env.caches, op.table)
        row_as_of = table_view_as_of(self.plan, env.caches, op.table)

        def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
            if value is None or (key is None and not op.left):
                env.counters.dropped_null += 1
                return
            row = None
            if key is not None:
                row = row_of(key)[0] if row_as_of is None else row_as_of(key, timestamp)
            if row is not None or op.left:
                joined = op.joiner(key, value, row) if op.with_key else op.joiner(value, row)
                made.forward(key, joined, timestamp, headers)

        return process

    def _user(self, node: nodes.ProcessorNode, op: operations.Process, made: PathNode) -> Process:
        processor = op.supplier()
        if not (callable(getattr(processor, "init", None)) and callable(getattr(processor, "process", None))):
            raise TopologyError(f"the supplier of {node.name} made {processor!r}, which is no Processor", node.site)
        return self._runs(processor, Context(self, node, made, fixed_key=op.fixed_key), made)

    def _wrapped(self, node: nodes.ProcessorNode, made: PathNode) -> Process:
        """What the application put around an operator; the operator's own step is behind it."""
        assert node.wrapped_by is not None
        inner = WrappedNode(made)
        step = self._process(node, inner)
        return self._runs(node.wrapped_by(), OperatorContext(self, node, made, inner, step), made)

    def _runs(self, processor: Any, context: Context, made: PathNode) -> Process:
        def begin() -> None:
            processor.init(context)
            made.close = getattr(processor, "close", _nothing)

        self.env.at_the_beginning(begin)

        def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
            before = context.current
            record: Record[Any, Any] = Record(key, value, timestamp, tuple(headers))
            context.current = record if old is None else TableRecord.of(record, old)
            try:
                processor.process(context.current)
            finally:
                context.current = before

        return process

    # ------------------------------------------------------------------------------------------------- sinks

    def _sink(self, node: nodes.SinkNode) -> Process:
        env, plan = self.env, self.plan
        key_serde, value_serde = plan.key_serde(node), plan.value_serde(node)
        fixed = None if node.topic is None else plan.topic(node.topic, node.repartition)

        def write(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            topic = fixed
            if topic is None:
                topic = self._chosen_topic(node, key, value, timestamp, headers)
            raw_key = None if key is None else key_serde.serialize(key)
            raw_value = None if value is None else value_serde.serialize(value)
            partition = None
            if node.partitioner is not None:
                chosen = node.partitioner(topic, key, value, env.partitions_of_topic(topic))
                partition = None if chosen is None else [chosen]
            inner = [_inner_key(key_serde, key)] if isinstance(key, Windowed) else None
            env.collect(topic, [raw_key], [raw_value], [timestamp], [headers] if headers else None, partition, inner)

        def process(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
            try:
                write(key, value, timestamp, headers)
            except (RecordError, StateError):
                raise
            except Exception as error:  # noqa: BLE001  # a user's serde or partitioner may raise anything
                env.failed_to_produce(node.name, error, key, value, timestamp, headers)

        return process

    def _chosen_topic(self, node: nodes.SinkNode, key: Any, value: Any, timestamp: int, headers: Any) -> str:
        topic, partition, offset = self.env.metadata or ("", -1, -1)
        assert node.topic_extractor is not None
        chosen = node.topic_extractor(key, value, RecordContext(topic, partition, offset, timestamp, tuple(headers)))
        if not isinstance(chosen, str):
            raise TypeError(f"the topic extractor returned {chosen!r}: it must name a topic")
        return chosen


def _inner_key(serde: Serde[Any], key: Any) -> bytes:
    inner = getattr(serde, "inner", None)
    raw: bytes = serde.serialize(key) if inner is None else inner.serialize(key.key)
    return raw


def stateless(op: operations.Operation, made: PathNode) -> Process:
    """The operations that look at one record only."""
    forward = made.forward
    match op:
        case operations.Filter(predicate=predicate, negate=negate):
            return lambda k, v, t, h, o: None if bool(predicate(k, v)) is negate else forward(k, v, t, h)
        case operations.KeyNotNull():
            return lambda k, v, t, h, o: None if k is None else forward(k, v, t, h)
        case operations.SelectKey(fn=fn):
            return lambda k, v, t, h, o: forward(fn(k, v), v, t, h)
        case operations.MapValues(fn=fn, with_key=with_key):
            return lambda k, v, t, h, o: forward(k, fn(k, v) if with_key else fn(v), t, h)
        case operations.TableToStream():
            return lambda k, v, t, h, o: forward(k, v, t, h)
    if isinstance(op, operations.Peek | operations.ForEach):
        return _peek(op, made)
    return forward if isinstance(op, operations.PassThrough) else _several(op, made)


def _peek(op: operations.Peek | operations.ForEach, made: PathNode) -> Process:
    def peek(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        op.fn(key, value)
        made.forward(key, value, timestamp, headers)

    return peek


def _several(op: operations.Operation, made: PathNode) -> Process:
    forward = made.forward
    match op:
        case operations.Map(fn=fn):

            def map_pair(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
                new_key, new_value = fn(key, value)
                forward(new_key, new_value, timestamp, headers)

            return map_pair
        case operations.FlatMap(fn=fn):

            def flat_map(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
                for new_key, new_value in fn(key, value):
                    forward(new_key, new_value, timestamp, headers)

            return flat_map
        case operations.FlatMapValues(fn=fn, with_key=with_key):

            def flat_map_values(key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
                for new_value in fn(key, value) if with_key else fn(value):
                    forward(key, new_value, timestamp, headers)

            return flat_map_values
    raise UserError(
        f"{made.name}: the runtime does not know the operation {type(op).__name__}; install a newer streamsrt"
    )


class Context:
    """What a user's processor gets (:class:`topology.spec.processor.ProcessorContext`)."""

    def __init__(self, builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode, *, fixed_key: bool) -> None:
        self._builder = builder
        self._env = builder.env
        self._node = node
        self._made = made
        self._fixed_key = fixed_key
        self.node_name = node.name
        self.current: Record[Any, Any] | None = None

    @property
    def application_id(self) -> str:
        return self._env.plan.application_id

    @property
    def task_id(self) -> str:
        return self._env.task_id

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._env.metadata

    @property
    def key_serde(self) -> Serde[Any]:
        return self._env.plan.serde_or_default(None, "key", self._node.name)

    @property
    def value_serde(self) -> Serde[Any]:
        return self._env.plan.serde_or_default(None, "value", self._node.name)

    @property
    def state_dir(self) -> DirectoryPath:
        return self._env.task_dir()

    @property
    def metrics(self) -> NodeMetrics:
        return self._env.user_metrics.of_node(self._node.name)

    def app_configs(self) -> Mapping[str, Any]:
        return self._env.plan.settings

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        return below(prefix, self._env.plan.given_settings)

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        if self._fixed_key and self.current is not None and record.key != self.current.key:
            raise UserError(f"{self._node.name}: process_values must not change the key; use process")
        old = record.old_value if isinstance(record, TableRecord) else None
        if child is None:
            self._made.forward(*record, old)
            return
        for known in self._made.children:
            if known.name == child:
                known.accept(*record, old)
                return
        names = ", ".join(self._node.children) or "none"
        raise UserError(f"{self._node.name} has no child {child!r}; its children: {names}")

    def get_state_store(self, name: str) -> Any:
        shared = None if self._env.global_stores is None else self._env.global_stores.read_only(name)
        if shared is not None:
            return shared
        if name not in self._node.stores:
            raise UnknownStoreError(
                f"{self._node.name} is not connected to a store {name!r}: name it here, in stores=", self._node.site
            )
        spec = self._env.plan.specs[name]
        cache = self._env.caches[name]
        on_change = self._builder.log(name)
        if isinstance(cache, LruCache):
            cache.on_drop = on_change
        serde = self._env.plan.key_serde(spec)
        access = store_access(spec, cache, serde, self._now, on_change, timestamped=not spec.bare_values)
        meter = self._env.store_meters.get(name)
        return access if meter is None else meter.before_access(access)

    def _now(self) -> tuple[int, Any, int]:
        if self.current is None:
            time = self._env.punctuation_time_ms
            return max(self._env.stream_time_ms, 0) if time is None else time, (), next(self._env.sequence)
        return self.current.timestamp, self.current.headers, next(self._env.sequence)

    def schedule(
        self,
        interval: Duration,
        punctuation_type: PunctuationType,
        callback: Callable[[int], None],
        *,
        start_time: Time | None = None,
    ) -> Schedule:
        interval_ms = check_schedule(interval, punctuation_type, callback, self._node.name)
        env = self._env
        wall = punctuation_type is PunctuationType.WALL_CLOCK_TIME
        if start_time is not None:
            now_ms = env.system_time_ms if wall else env.stream_time_ms
            first = anchored(to_epoch_ms(start_time, "start_time"), interval_ms, now_ms)
        else:
            first = env.system_time_ms + interval_ms if wall else 0
        schedule = Schedule(punctuation_type, first, interval_ms, callback, self._node.name)
        env.schedule(schedule)
        return schedule

    def commit(self) -> None:
        self._env.commit_requested = True

    def current_stream_time_ms(self) -> int:
        return self._env.stream_time_ms

    def current_system_time_ms(self) -> int:
        return self._env.system_time_ms


class OperatorContext(Context):
    """What the processor around an operator gets; it gives the operator's own step to what stands for it."""

    def __init__(
        self, builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode, inner: WrappedNode, step: Process
    ) -> None:
        super().__init__(builder, node, made, fixed_key=False)
        self._inner = inner
        self._step = step

    def begin_operator(self, context: Any) -> tuple[Callable[[Record[Any, Any]], None], Callable[[], None]]:
        """The operator's step, and what ends it. ``context``: what its results are forwarded through."""
        inner, step = self._inner, self._step
        inner.context = context

        def process(record: Record[Any, Any]) -> None:
            step(*record, record.old_value if isinstance(record, TableRecord) else None)

        def close() -> None:
            # What there is to close is known when the operator has begun.
            inner.close()

        return process, close
