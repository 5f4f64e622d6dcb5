"""Runs user processors: as nodes of their own (the Processor API), and around operators (KIP-1112).

1. A processor is initialized when its task's stores are restored and the stream time is known, and closed with its
   task. An exception in ``init`` or ``close`` becomes a ProcessingError with the step and its line; all other
   processors are closed nevertheless.
2. Its context forwards, returns its stores and schedules punctuations; between records there is no current record.
3. A processor of this package may have a ``take_row``: it gets the arguments of a node, without a Record object, and
   works in its task's environment by the rules of :mod:`streamsrt.operators.kinds.batches`.

Source: ProcessorContextImpl of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from streamsrt.config import below
from streamsrt.errors import ProcessingError, RecordError, StateError, StreamsError, UserError
from streamsrt.operators.engine.environment import Environment, ProcessedRecord, is_interrupt
from streamsrt.operators.engine.forwarded_records import check_forwarded, forwarded_record
from streamsrt.operators.engine.processor_nodes import (
    NO_SINK,
    Forwards,
    PathBuilder,
    PathNode,
    Process,
    WrappedNode,
)
from streamsrt.operators.engine.punctuation_queue import PunctuationSchedule, anchored
from streamsrt.operators.engine.user_metrics import NodeMetrics
from streamsrt.state.cache import KeyValueCache
from streamsrt.state.columns import Headers
from streamsrt.state.direct_access import DirectAccess
from streamsrt.state.kinds import UserStore, store_access
from streamsrt.wording import error_text
from topology.graph import nodes, operations
from topology.spec.codecs import ProgramSerde
from topology.spec.errors import TopologyError, UnknownStoreError
from topology.spec.functions import check_schedule
from topology.spec.processor import Processor, PunctuationType, Record, RecordMetadata
from topology.spec.processor_wrapper import TableRecord
from topology.spec.windows import END_OF_TIME_MS, Duration, Time, to_epoch_ms

if TYPE_CHECKING:
    from pydantic import DirectoryPath


def make_process(builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, operations.Process)
    processor = op.supplier()
    if not (callable(getattr(processor, "init", None)) and callable(getattr(processor, "process", None))):
        raise TopologyError(f"the supplier of {node.name} returned {processor!r}, which is not a Processor", node.site)
    context = Context(builder, node, made, fixed_key=op.fixed_key)
    context.forward = context.forward_directly()  # type: ignore[method-assign]  # which is called for each record
    return _runs(builder, processor, context, made)


def wrap_operator(
    builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode, inner: WrappedNode, step: Process
) -> Process:
    """Runs what the application put around an operator; ``step`` is the operator's own."""
    assert node.wrapped_by is not None
    return _runs(builder, node.wrapped_by(), OperatorContext(builder, node, made, inner, step), made)


def _runs(builder: PathBuilder, processor: Processor[Any, Any, Any, Any], context: Context, made: PathNode) -> Process:
    begins_with_its_task(builder, "a processor", processor, lambda: processor.init(context), made)
    take_row: Process | None = getattr(processor, "take_row", None)
    if take_row is not None:
        builder.env.ends_with_runs = True
        return take_row

    step, new = processor.process, tuple.__new__

    def process(key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        before = context.current
        headers = headers if type(headers) is tuple else tuple(headers)
        # What a named tuple does, at a third of the time.
        record: Record[object, object] = new(Record, (key, value, timestamp, headers))
        context.current = record if old is None else TableRecord.of(record, old)
        try:
            step(context.current)
        finally:
            context.current = before

    def take(key: object, value: object, timestamp: int, headers: Headers, old: object = None) -> None:
        """As the node's own step around this one: a call less for each record."""
        if old is not None or type(headers) is not tuple:
            made.accept(key, value, timestamp, headers, old)
            return
        context.current = record = new(Record, (key, value, timestamp, headers))
        try:
            step(record)
        except (RecordError, StateError):
            raise
        except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
            made.fail(error, key, value, timestamp, headers)
        finally:
            context.current = None

    if type(made) is PathNode:
        made.takes = take
        made.takes_run = partial(_take_run, context, step, made)
    return process


def _take_run(
    context: Context,
    step: Callable[..., None],
    made: PathNode,
    rows: Iterator[tuple[bytes | None, bytes | None, int]],
    position: ProcessedRecord,
    from_key: Callable[..., object] | None,
    from_value: Callable[..., object] | None,
    undecodable: Callable[[BaseException], None],
) -> None:
    """A run of records for a processor right behind its source: nothing is between the loop and its ``process``."""
    env, new = context.environment, tuple.__new__
    schedules, stream_time_ms = env.schedules(PunctuationType.STREAM_TIME).waiting, env.stream_time_ms
    decodes = from_key is not None or from_value is not None
    key: object
    value: object
    try:
        for key, value, timestamp in rows:
            if decodes:
                try:
                    if from_key is not None and key is not None:
                        key = from_key(key)  # another name costs each record
                    if from_value is not None and value is not None:
                        value = from_value(value)
                except BaseException as error:  # noqa: BLE001  # a user's serde may raise anything
                    undecodable(error)
                    continue
            if timestamp > stream_time_ms:
                env.stream_time_ms = stream_time_ms = timestamp
            env.position = position
            context.current = record = new(Record, (key, value, timestamp, ()))
            try:
                step(record)
            except (RecordError, StateError):
                raise
            except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
                made.fail(error, key, value, timestamp, ())
            if schedules and schedules[0].next_ms <= stream_time_ms:
                context.current = None
                env.punctuate(PunctuationType.STREAM_TIME, stream_time_ms)
    finally:
        context.current = None


def begins_with_its_task(
    builder: PathBuilder, what: str, written: object, init: Callable[[], None], made: PathNode
) -> None:
    """Calls ``init`` when the task begins, and ``close`` of what the program has ``written``, if any, when it ends."""

    def begin() -> None:
        with _explained(f"init of {what}", builder, made, "its task can't start"):
            init()
        close: Callable[[], None] | None = getattr(written, "close", None)
        if close is not None:
            made.close = partial(end, close)

    def end(close: Callable[[], None]) -> None:
        with _explained(f"close of {what}", builder, made, "its task and all others are closed nevertheless"):
            close()

    builder.env.at_the_beginning(begin)


@contextmanager
def _explained(call: str, builder: PathBuilder, made: PathNode, outcome: str) -> Iterator[None]:
    try:
        yield
    except (StreamsError, TopologyError):
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        where = f"in node {builder.plan.location(made.name)}"
        raise ProcessingError(f"{call} raised {error_text(error)} ({where}): {outcome}. Correct it") from error


class Context:
    """The context of a user's processor (:class:`topology.spec.processor.ProcessorContext`)."""

    def __init__(self, builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode, *, fixed_key: bool) -> None:
        self._builder = builder
        self._env = builder.env
        self._node = node
        self._made = made
        self._to_all = made.forward
        self._fixed_key = fixed_key
        self.node_name = node.name
        self.current: Record[object, object] | None = None

    @property
    def environment(self) -> Environment:
        """The shared state of the task's nodes, for processors of this package."""
        return self._env

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
    def key_serde(self) -> ProgramSerde:
        return self._env.plan.serde_or_default(None, "key", self._node.name)

    @property
    def value_serde(self) -> ProgramSerde:
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

    def forward(self, record: Record[object, object], child: str | None = None) -> None:
        if self._fixed_key and self.current is not None and record.key != self.current.key:
            raise UserError(f"{self._node.name}: process_values must not change the key; use process")
        timestamp = record.timestamp
        if type(timestamp) is not int or not 0 <= timestamp <= END_OF_TIME_MS or record.headers:
            # The usual record is not worth a call.
            check_forwarded(self._node.name, record)
        env = self._env
        if env.punctuation_time_ms is None or env.source is not None:
            if child is None and type(record) is Record:
                self._to_all(record[0], record[1], timestamp, record[3])
            else:
                self._forward(record, child)
            return
        # No input record: if a later step fails, the failed record is the one forwarded by the punctuation.
        env.source = partial(forwarded_record, env.plan, self._node.name, record)
        try:
            self._forward(record, child)
        finally:
            env.source = None

    def forward_directly(self) -> Callable[..., None]:
        """:meth:`forward` without what only few records need."""
        to_all, usual, may_change_key = self._to_all, self.forward, not self._fixed_key
        raw_key_type, raw_type, serialize, keys, values, times, failed = self._made.only_sink or NO_SINK
        add_key, add_value, add_time = keys.append, values.append, times.append

        def forward(record: Record[object, object], child: str | None = None) -> None:
            current = self.current
            # Within a record of its own, no punctuation of this node is running.
            if current is not None and child is None and type(record) is Record:
                key, value, timestamp = record[0], record[1], record[2]
                if (
                    # That of the record was checked when it came.
                    (timestamp is current[2] or (type(timestamp) is int and 0 <= timestamp <= END_OF_TIME_MS))
                    and not record[3]
                    and (may_change_key or key is current[0])
                ):
                    if not keys or type(key) is not raw_key_type or value is None:
                        to_all(key, value, timestamp, ())
                        return
                    # What the sink does then, without a call.
                    try:
                        raw = value if raw_type is not None and type(value) is raw_type else serialize(value)
                    except (RecordError, StateError):
                        raise
                    except BaseException as error:  # noqa: BLE001  # a user's serde may raise anything
                        failed(error, key, value, timestamp, ())
                        return
                    add_key(key)
                    add_value(raw)
                    add_time(timestamp)
                    return
            usual(record, child)

        return forward

    def _forward(self, record: Record[object, object], child: str | None) -> None:
        old = record.old_value if isinstance(record, TableRecord) else None
        if child is None:
            self._to_all(*record, old)
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
        serde = self._env.plan.key_serde(spec)
        access: UserStore
        if type(cache) is KeyValueCache and (spec.bare_values or not spec.timestamped):
            access = DirectAccess(
                cache, serde, self._now, context=self, sequence=self._env.sequence, log=self._builder.row_log(name)
            )
        else:
            on_change = self._builder.log(name)
            access = store_access(spec, cache, serde, self._now, on_change, timestamped=not spec.bare_values)
        meter = self._env.store_meters.get(name)
        return access if meter is None else meter.before_access(access)

    def _now(self) -> tuple[int, Headers, int]:
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
    ) -> PunctuationSchedule:
        interval_ms = check_schedule(interval, punctuation_type, callback, self._node.name)
        env = self._env
        wall = punctuation_type is PunctuationType.WALL_CLOCK_TIME
        now_ms = self.current_system_time_ms() if wall else env.stream_time_ms
        start_ms = None if start_time is None else to_epoch_ms(start_time, "start_time")
        if start_ms is not None:
            first = anchored(start_ms, interval_ms, now_ms)
        else:
            first = now_ms + interval_ms if wall else 0
        ahead_ms = env.plan.clock.ahead_ms
        schedule = PunctuationSchedule(
            punctuation_type, first, interval_ms, callback, self._node.name, start_ms=start_ms, ahead_ms=ahead_ms
        )
        env.schedule(schedule)
        return schedule

    def commit(self) -> None:
        self._env.commit_requested = True

    def current_stream_time_ms(self) -> int:
        return self._env.stream_time_ms

    def current_system_time_ms(self) -> int:
        return self._env.program_time_ms


class OperatorContext(Context):
    """The context of a processor around an operator; it passes the operator's own step to the processor."""

    def __init__(
        self, builder: PathBuilder, node: nodes.ProcessorNode, made: PathNode, inner: WrappedNode, step: Process
    ) -> None:
        super().__init__(builder, node, made, fixed_key=False)
        self._inner = inner
        self._step = step

    def begin_operator(self, context: Forwards) -> tuple[Callable[[Record[object, object]], None], Callable[[], None]]:
        """The operator's step, and what ends it. ``context``: what its results are forwarded through."""
        inner, step = self._inner, self._step
        inner.context = context

        def process(record: Record[object, object]) -> None:
            step(*record, record.old_value if isinstance(record, TableRecord) else None)

        def close() -> None:
            # What there is to close is known when the operator has begun.
            inner.close()

        return process, close
