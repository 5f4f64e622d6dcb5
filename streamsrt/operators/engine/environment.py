"""The shared state of one task's processor nodes: current record, time, caches of stores, counters, handlers, schedules."""

from __future__ import annotations

import linecache
import re
import reprlib
import signal
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias, TypeVar

from streamsrt.errors import OutageError, ProcessingError, ProductionError, RecordError, StateError, UserError
from streamsrt.operators.engine.gathered_output import GatheredOutput
from streamsrt.operators.engine.handlers import ErrorContext, ExceptionHandler, HandlerResponse
from streamsrt.operators.engine.node_meter import NodeMeter
from streamsrt.operators.engine.open_calls import OpenCalls, Window
from streamsrt.operators.engine.plan import Counters, ResolvedSubtopology, StreamTime
from streamsrt.operators.engine.punctuation_queue import PunctuationQueue, PunctuationSchedule
from streamsrt.operators.engine.user_metrics import UserMetrics
from streamsrt.state.buffer import HeldChange, HeldRecord, held_record
from streamsrt.state.columns import Headers
from streamsrt.state.kinds import Cache
from streamsrt.state.snapshots import SnapshotOwners
from streamsrt.state.timed import StoreMeter
from streamsrt.state.versioned_cache import VersionPut
from streamsrt.wire.records.texts import Texts, Times
from streamsrt.wording import error_message, error_text, time_text
from topology.graph.nodes import Node, SinkNode, StoreSpec
from topology.spec.codecs import ProgramSerde
from topology.spec.processor import PunctuationType, RecordMetadata
from topology.spec.row_versions import UpcastError

if TYPE_CHECKING:
    from pydantic import DirectoryPath


CHANGES_OF_A_RUN_MAX: Final = 1 << 32
PUNCTUATIONS: Final = "punctuations by stream time"
"""The name under which they are passed on."""
_CHECK_INTERVAL_S: Final = 0.5
Failure = TypeVar("Failure", bound=RecordError)


SourceRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers and timestamp of a record, as bytes the first two."""


class ProcessedRecord(Protocol):
    """A record that is processed."""

    @property
    def metadata(self) -> RecordMetadata | None:
        """Where it was read."""

    @property
    def source(self) -> SourceRecord:
        """The record as it was read."""


Place: TypeAlias = tuple[
    ProcessedRecord | None, RecordMetadata | None, SourceRecord | Callable[[], SourceRecord] | None
]


def no_origin() -> RecordMetadata:
    """Outside of a record."""
    return RecordMetadata("", -1, -1)


class RefusedRecordError(Exception):
    """The cluster does not take a record, for the ``reason``."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class GlobalStores(Protocol):
    """The global stores of this instance."""

    def store(self, name: str) -> tuple[StoreSpec, Cache, ProgramSerde]:
        """Returns a store with its cache, and the serde of its keys."""

    def read_only(self, name: str) -> Any:
        """A global store for a processor; None where there is none of that name."""


class ObservedTask:
    """What a processor may know of its task's input and commits.

    ``readable_ends``: returns the input partitions whose ends are known, each with the offset after its last readable
    record. ``commit_beginnings``: called when a commit begins. ``committing``: by input partition, the offsets of the last
    one that has begun.
    """

    def __init__(self) -> None:
        self.readable_ends: Callable[[], Iterable[tuple[str, int, int]]] = tuple
        self.commit_beginnings: list[Callable[[], None]] = []
        self.committing: Mapping[tuple[str, int], int] = {}


class Environment:
    """One per task. Times are milliseconds; -1 for a stream time that is not known yet."""

    is_timed = True
    """Whether the processors are to begin yet, or there was ever a punctuation by the wall clock."""
    ends_with_runs = False
    """Whether a processor takes a run of records of one source as a whole."""
    is_expiring = False
    """Whether the deletion of an expired row is being forwarded."""
    collect_texts: Callable[[str, Texts, Times], None] | None = None
    """Takes many short texts at once, each of them as key and value; None: ``collect`` takes everything."""

    def __init__(
        self,
        plan: ResolvedSubtopology,
        caches: Mapping[str, Cache],
        collect: Callable[..., None],
        counters: Counters,
        stream_times: dict[str, StreamTime],
        task_partition: int,
        partitions_of_topic: Callable[[str], int],
        global_stores: GlobalStores | None = None,
        *,
        task_dir: Callable[[], DirectoryPath],
    ) -> None:
        self.plan = plan
        self.task_dir = task_dir
        """Makes the task's directory for user's processors, if it is not there yet."""
        self.user_metrics = UserMetrics(lambda: self.system_time_ms)
        self.global_stores = global_stores
        self.caches = caches
        self.output = GatheredOutput(collect, partitions_of_topic)
        self.collect = self.output.collect
        self.counters = counters
        self.stream_times = stream_times
        self.task_partition, self.task_id = task_partition, f"{plan.subtopology.id}_{task_partition}"
        self.partitions_of_topic = partitions_of_topic
        self.sequence = count(step=CHANGES_OF_A_RUN_MAX)
        """Orders the changes of a cache. A run of records takes one number, and counts its changes on from it."""
        self.shared_states: dict[str, Any] = {}
        """State that several nodes of one operator share, by a name that the operator chooses."""
        self.position: ProcessedRecord | None = None
        """Tells :attr:`metadata` and :attr:`source` of the record that is processed; None where they were given."""
        self._metadata: RecordMetadata | None = None
        self._source: SourceRecord | Callable[[], SourceRecord] | None = None
        self.origin: Callable[[], RecordMetadata] = no_origin
        """Where the record comes from that a generated function works on."""
        self.came_unknown = False
        """Whether the position of the forwarded record is unknown; :attr:`metadata` is then that of the record that caused
        the forwarding."""
        self.evicted: tuple[HeldChange, Callable[[object], bytes | None]] | None = None
        """The evicted change that a generated function forwards, and the function that serializes its value."""
        self.stream_time_ms = -1
        self.system_time_ms = 0
        self.punctuation_time_ms: int | None = None
        """The timestamp of the running punctuation; None outside of one."""
        self.commit_requested = False
        self.is_latest = True
        """Whether the change that is being forwarded is its key's newest: False behind an older version only."""
        self.batches: list[Callable[[], None]] = []
        """Functions that process the records waiting at operators over batches."""
        self.open_calls: OpenCalls | None = None
        self.windows: list[Window] = []
        """Where asynchronous calls may be under way."""
        self.leave_queued_calls: Callable[[], None] | None = None
        """Leaves the calls that have not begun to the next start; None where that is not safe, or there are none
        (:mod:`streamsrt.operators.kinds.left_calls`)."""
        self.left_records = 0
        """How many records that were read are left to the next start."""
        self.letters: dict[tuple[str, int], int] = {}
        """By input partition, the largest offset of a record that has a dead letter."""
        self.letter_topics: set[str] = set()
        self.while_calling: Callable[[], None] = lambda: None
        """Called now and then while :meth:`finish_calls` waits."""
        self.is_finishing = False
        """Whether it does: what waits for more records gets none."""
        self.wait_max_ms: int | None = None
        """How long the loop may wait for input while something runs beside the records; None: as long as ever."""
        self.request_stop: Callable[[], None] = lambda: None
        """Asks the instance to end as it does after SIGTERM: what is processed is committed first."""
        self.held_back: list[Callable[[], Mapping[tuple[str, int], int]]] = []
        """Functions that return, by input partition, the first offset that must not be committed yet although it was
        processed."""
        self.observed = ObservedTask()
        self.committed: list[Callable[[], None]] = []
        """Called after each commit of the task, when its output is acknowledged."""
        self.endings: list[Callable[[], None]] = []
        """Called once, before the last commit of the task: what they send belongs to it."""
        self.node_meters: Mapping[str, NodeMeter] = {}
        self.store_meters: Mapping[str, StoreMeter] = {}
        """Where single nodes and stores are measured."""
        self.snapshots = SnapshotOwners()
        """The in-memory state of nodes, which a later process takes over."""
        self._schedules = {type_: PunctuationQueue() for type_ in PunctuationType}
        self._beginnings: list[Callable[[], None]] | None = []

    @property
    def metadata(self) -> RecordMetadata | None:
        """Where the record was read that is processed; None outside of one."""
        return self._metadata if self.position is None else self.position.metadata

    @metadata.setter
    def metadata(self, metadata: RecordMetadata | None) -> None:
        self._source, self.position, self._metadata = self.source, None, metadata

    @property
    def source(self) -> SourceRecord | Callable[[], SourceRecord] | None:
        """The record that is processed, as it was read; the change itself that was held back, or what makes its bytes.
        None outside of one."""
        return self._source if self.position is None else self.position.source

    @source.setter
    def source(self, source: SourceRecord | Callable[[], SourceRecord] | None) -> None:
        self._metadata, self.position, self._source = self.metadata, None, source

    @property
    def place(self) -> Place:
        """What :attr:`position`, :attr:`metadata` and :attr:`source` are made of, for a return to it."""
        return self.position, self._metadata, self._source

    @place.setter
    def place(self, place: Place) -> None:
        self.position, self._metadata, self._source = place

    def outside_of_records(self) -> None:
        """No record is being processed."""
        self.position = self._metadata = self._source = None

    def at_the_beginning(self, begin: Callable[[], None]) -> None:
        """Calls ``begin`` when the task begins to run, now if it does already."""
        if self._beginnings is None:
            begin()
        else:
            self._beginnings.append(begin)

    @property
    def program_time_ms(self) -> int:
        """What the clock that programs see shows at :attr:`system_time_ms`, which is a steady one."""
        return self.plan.clock.at(self.system_time_ms)

    def begin(self, system_time_ms: int) -> None:
        """Initializes the user's processors, once their stores are restored. Further calls have no effect."""
        if self._beginnings is not None:
            beginnings, self._beginnings = self._beginnings, None
            self.system_time_ms = system_time_ms
            for begin in beginnings:
                begin()
            by_stream_time = self._schedules[PunctuationType.STREAM_TIME]
            by_stream_time.begun()
            self.is_timed = bool(self._schedules[PunctuationType.WALL_CLOCK_TIME])
            self.snapshots.add(PUNCTUATIONS, by_stream_time)

    def failed(
        self, node: str, error: BaseException, key: object, value: object, timestamp: int, headers: Headers
    ) -> None:
        """Handles an exception of a user's function: skips the record if the handler decides so, else raises
        ProcessingError."""
        if not isinstance(error, SkippedAtSinkError):
            self.skip_or_fail(self._context(node, key, value, timestamp, headers), error)

    def skip_or_fail(self, context: ErrorContext, error: BaseException) -> None:
        """Calls the processing handler. Exceptions that are not an ``Exception`` (``sys.exit``) always fail, as an Error
        does in Java; so does a row that can't be upcast, because the record is not at fault."""
        if is_interrupt(error):
            raise error
        if isinstance(error, OutageError):
            raise_outage(ProcessingError, self.plan, context, error)
        calls_handler = isinstance(error, Exception)
        always_fails = isinstance(error, UpcastError)
        answer = (
            self.ask(self.plan.handlers.processing, context, error, always_fails=always_fails)
            if calls_handler
            else HandlerResponse.FAIL
        )
        if answer is HandlerResponse.CONTINUE and not always_fails:
            self.counters.failed_processing += 1
            self.counters.last_skipped["failed_processing"] = why_skipped(self.plan, context, error)
            return
        raise processing_error(self.plan, context, error) from error

    def ask(
        self, handler: ExceptionHandler, context: ErrorContext, error: BaseException, *, always_fails: bool = False
    ) -> HandlerResponse:
        """Asks one of the handlers, and sends the dead letters that it gives. ``always_fails``: no answer lets it pass."""
        result, letters = self.plan.handlers.ask(handler, context, error, always_fails=always_fails)
        for letter in letters:
            self.collect(letter.topic, [letter.key], [letter.value], [letter.timestamp], [letter.headers])
            self.letter_topics.add(letter.topic)
        if letters:
            partition = context.topic, context.partition
            self.letters[partition] = max(context.offset, self.letters.get(partition, -1))
        return result

    def failed_to_produce(
        self, node: str, error: BaseException, key: object, value: object, timestamp: int, headers: Headers
    ) -> None:
        """Handles a result that can't be serialized or has no partition: skips it if the handler decides so, else raises
        ProductionError."""
        self.skip_or_fail_production(self._context(node, key, value, timestamp, headers), error)

    def skip_or_fail_production(self, context: ErrorContext, error: BaseException) -> None:
        """Asks the production handler. A plain TypeError is a mistake in the program, not in the data: it always fails,
        as a ClassCastException does in Kafka Streams, unless a serde takes values of any type."""
        handlers = self.plan.handlers
        if isinstance(error, OutageError):
            raise_outage(ProductionError, self.plan, context, error)
        if not isinstance(error, Exception):
            self.skip_or_fail(context, error)
        if is_mistake(self.plan, context, error):
            self.ask(handlers.processing, context, error, always_fails=True)
            raise production_error(self.plan, context, error) from error
        if isinstance(error, RefusedRecordError):
            # When the cluster refuses a record, nobody remembers what it was made of.
            context = replace(context, source_key=None, source_value=None, source_headers=())
            error = error.reason
        if self.ask(handlers.production, context, error) is HandlerResponse.CONTINUE:
            self.counters.failed_production += 1
            self.counters.last_skipped["failed_production"] = why_skipped(self.plan, context, error)
            return
        raise production_error(self.plan, context, error) from error

    def _context(self, node: str, key: object, value: object, timestamp: int, headers: Headers) -> ErrorContext:
        topic, partition, offset = (None if self.came_unknown else self.metadata) or ("", -1, -1)
        source = self.source() if callable(self.source) else self.source
        source_key, source_value, source_headers, source_timestamp = source or (None, None, (), -1)
        return ErrorContext(
            topic=topic,
            partition=partition,
            offset=offset,
            node=node,
            timestamp=timestamp,
            key=key,
            value=value,
            headers=tuple(headers),
            source_key=source_key,
            source_value=source_value,
            source_headers=tuple(source_headers),
            source_timestamp=source_timestamp,
            is_held=isinstance(source, HeldRecord),
        )

    def of_earlier(
        self,
        node: str,
        key: object,
        value: object,
        timestamp: int,
        headers: Headers,
        source: Callable[[], SourceRecord],
        metadata: RecordMetadata | None = None,
    ) -> EarlierRecord:
        """The context of results of a record that was held back: failures are its own, not those of the record that released
        it.

        ``source``: makes its bytes. ``metadata``: where it was read; None: where the record that released it was, see
        :attr:`came_unknown`.
        """
        return EarlierRecord(self, (node, key, value, timestamp, headers), source, metadata)

    def context_of_evicted(self, node: str) -> ErrorContext | None:
        """Returns the context of the evicted change that a generated function forwarded last; None if it forwarded none."""
        if self.evicted is None:
            return None
        (held, raw), self.evicted = self.evicted, None
        before = self.metadata, self.source
        self.metadata, self.source = RecordMetadata(*held.origin), held_record(held, raw)
        key, value, headers, _ = self.source
        try:
            return self._context(node, key, value, held.timestamp, headers)
        finally:
            self.metadata, self.source = before

    def forward_version(self, put: VersionPut, forward: Callable[..., None], *change: object) -> None:
        """Forwards the change that a put into a versioned store made; nothing where the store did not take it."""
        if put.is_stored:
            self.is_latest = put.is_latest
            try:
                forward(*change)
            finally:
                self.is_latest = True

    def finish_batches(self) -> None:
        """Works off what waits for the end of a run, and what calls have brought so far; what that forwards may wait at
        other operators."""
        self._work_off()
        for window in self.windows:
            if window.advance():
                self._work_off()

    def _work_off(self) -> None:
        while self.batches:
            self.batches.pop(0)()

    @property
    def lets_go(self) -> bool:
        """Whether results that were held back, windows that close, or the deletion of an expired row were to be forwarded
        and are not: a step behind them has failed. Nothing holds them any more, so a commit would lose them."""
        return self.is_expiring or any(time.lets_go for time in self.stream_times.values())

    @property
    def is_calling(self) -> bool:
        """Whether asynchronous calls are under way."""
        return bool(self.windows) and any(window.is_calling for window in self.windows)

    @property
    def pending_calls(self) -> int:
        """Returns how many asynchronous calls are unfinished, those that wait for their turn included."""
        return sum(window.unfinished for window in self.windows)

    @property
    def queued_calls(self) -> int:
        """Returns how many asynchronous calls wait for their turn."""
        return sum(window.queued for window in self.windows)

    @property
    def room(self) -> int | None:
        """Returns how many more records operators with asynchronous calls accept; None if there are no such operators."""
        return min(window.room for window in self.windows) if self.windows else None

    def await_calls(self, wait_s: float | None) -> None:
        """Waits for an outcome, for so long at most (None: for as long as it takes), and works it off."""
        calling = next((window for window in self.windows if window.is_calling), None)
        if calling is not None and calling.advance(wait_s):
            self.finish_batches()

    def finish_calls(self) -> None:
        """Waits until all calls are complete, and processes their results."""
        if not self.windows:
            return
        self.is_finishing = True
        try:
            while self.is_calling:
                self.await_calls(_CHECK_INTERVAL_S)
                self.while_calling()
        finally:
            self.is_finishing = False

    def end(self) -> None:
        """Calls the endings, if there are any, when no call is under way. A commit follows."""
        endings, self.endings = self.endings, []
        if endings:
            self.finish_calls()
            self.commit_requested = True
        for end in endings:
            end()

    def first_held_back(self) -> dict[tuple[str, int], int]:
        """By input partition, the first offset that is not to be committed yet."""
        found: dict[tuple[str, int], int] = {}
        for tell in self.held_back:
            for partition, offset in tell().items():
                found[partition] = min(offset, found.get(partition, offset))
        return found

    def calls_under_way(self) -> list[str]:
        """Returns the pending calls, by operator."""
        return [window.under_way for window in self.windows if window.is_calling]

    def schedule(self, schedule: PunctuationSchedule) -> None:
        """Adds a punctuation."""
        self.is_timed = self.is_timed or schedule.type is PunctuationType.WALL_CLOCK_TIME
        self._schedules[schedule.type].add(schedule)

    def schedules(self, type_: PunctuationType) -> PunctuationQueue:
        """The punctuations of that kind, those that come later included."""
        return self._schedules[type_]

    def punctuate(self, type_: PunctuationType, now_ms: int) -> int:
        """Runs the punctuations of that kind that are due at ``now_ms``, each schedule once. Returns how many ran."""
        self.outside_of_records()
        if not self._schedules[type_]:
            return 0

        def run(schedule: PunctuationSchedule) -> None:
            self.punctuation_time_ms = now_ms
            try:
                schedule.callback(now_ms)
            except (RecordError, StateError):
                raise
            except BaseException as error:  # noqa: BLE001  # a user's function may raise anything
                self.failed(schedule.node, error, None, None, now_ms, ())
            finally:
                self.punctuation_time_ms = None

        return self._schedules[type_].run_due(now_ms, run)


class EarlierRecord:
    """The context that :meth:`Environment.of_earlier` gives, and the position of its record."""

    __slots__ = ("_before", "_env", "_make_source", "_metadata", "_record")

    def __init__(
        self,
        env: Environment,
        record: tuple[str, object, object, int, Headers],
        source: Callable[[], SourceRecord],
        metadata: RecordMetadata | None,
    ) -> None:
        self._env = env
        self._record = record
        self._make_source = source
        self._metadata = metadata
        self._before = env.place, env.came_unknown

    @property
    def metadata(self) -> RecordMetadata | None:
        position, metadata, _ = self._before[0]
        return self._metadata or (metadata if position is None else position.metadata)

    @property
    def source(self) -> SourceRecord:
        return self._make_source()

    def __enter__(self) -> None:
        self._env.position = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        env = self._env
        try:
            if error is not None and not isinstance(error, RecordError | StateError):
                # A user's function may raise anything.
                node, *record = self._record
                env.failed(node, error, *record)  # type: ignore[arg-type]  # mypy does not know what a rest has
                return True
        finally:
            env.place, env.came_unknown = self._before
        return False


def where(plan: ResolvedSubtopology, context: ErrorContext) -> str:
    """Which record, in which node, made by which line of the program."""
    node = plan.location(context.node)
    place = node if _node(plan, context.node) is None else f"node {node}"
    if not context.topic:
        return f"outside of a record (flush or punctuation), in {place}"
    if context.offset < 0:
        # Of a lake, whose records lie before the log. What tells where it is there is what it has.
        said = f"key {reprlib.repr(context.source_key)} and timestamp {time_text(context.source_timestamp, 'milliseconds')}"
        return f"at {context.topic}-{context.partition}, a record of a lake with {said}, in {place}"
    return f"at {context.topic}-{context.partition} offset {context.offset}, in {place}"


def _node(plan: ResolvedSubtopology, name: str) -> Node | None:
    """The node of that name; None where what failed is no node, but runs beside them."""
    try:
        return plan.node(name)
    except KeyError:
        return None


def why_skipped(plan: ResolvedSubtopology, context: ErrorContext, error: BaseException) -> str:
    """Returns, as text, why and where a record failed that a handler skipped."""
    return f"{error_text(error)} ({where(plan, context)})"


class SkippedAtSinkError(Exception):
    """A function that chooses a topic or a partition failed, and the handler skipped the record: the step that forwarded
    it ends there, as in Kafka Streams. Steps before it continue.
    """


def is_interrupt(error: BaseException) -> bool:
    """Whether the exception is Ctrl-C. If a signal handler takes SIGINT, a KeyboardInterrupt comes from a user's function,
    unless the signal handler itself raised it, as PySpark's does."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    code = getattr(handler, "__code__", None)
    return code is not None and any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


def processing_error(plan: ResolvedSubtopology, context: ErrorContext, error: BaseException) -> ProcessingError:
    advice = f"Correct it, or skip such records with {plan.handlers.processing_advice}"
    if not isinstance(error, Exception):
        advice = (
            "It is not an Exception, so processing.exception.handler is not called: unless "
            "uncaught_exception_handler decides otherwise, the instance stops with exit code "
            f"{ProcessingError.exit_code}. Raise an Exception instead"
        )
    message = f"a user's function raised {error_text(error)} ({where(plan, context)}). {advice}"
    if isinstance(error, UpcastError):
        message = f"{error.with_advice} ({where(plan, context)})"
    return _failure(ProcessingError, plan, context, error, message)


def raise_outage(
    kind: type[RecordError], plan: ResolvedSubtopology, context: ErrorContext, error: OutageError
) -> NoReturn:
    """Ends the processing for an outage, about which no handler is asked. ``kind``: of the error that is raised."""
    advice = "The record is not at fault: no handler was asked about it, and it is processed after the next start"
    message = f"{error} ({where(plan, context)}). {advice}"
    failure = _failure(kind, plan, context, error, message)
    failure.exit_code = error.exit_code
    raise failure from error


def _failure(
    kind: type[Failure], plan: ResolvedSubtopology, context: ErrorContext, error: BaseException, message: str
) -> Failure:
    failure = kind(message, context.topic, context.partition, context.offset)
    failure.is_of_program = isinstance(error, UserError)
    # A commit of what came before would contain what the record has changed.
    failure.is_in_order = _node(plan, context.node) is None or not plan.has_changed(context.node)
    return failure


def is_mistake(plan: ResolvedSubtopology, context: ErrorContext, error: BaseException) -> bool:
    """Whether a result can't be written because the program has the wrong serde for it."""
    if type(error) is not TypeError:
        return False
    sink = _node(plan, context.node)
    serdes = (plan.key_serde(sink), plan.value_serde(sink)) if isinstance(sink, SinkNode) else ()
    return not any(getattr(serde, "takes_any", False) for serde in serdes)


def production_error(plan: ResolvedSubtopology, context: ErrorContext, error: BaseException) -> ProductionError:
    advice = ", or skip such records with production.exception.handler=continue"
    if is_mistake(plan, context, error):
        advice = (
            ": a value of a type that the serde does not accept is an error in the program, and no handler can skip it"
        )
    message = (
        f"a result can't be written: {_why_unwritten(error)} ({where(plan, context)}"
        f"{_written(plan, context.node)}). Correct the serde{advice}"
    )
    return _failure(ProductionError, plan, context, error, message)


_TAKEN: Mapping[str, type] = {"required argument is not an integer": int, "required argument is not a float": float}
_OTHER_TYPE = re.compile(r"descriptor '\w+' for '(\w+)' objects doesn't apply to an? '(\w+)' object")
_SERDE_CALL = re.compile(r"serialize\w*\((\w+)\)")
"""Matches calls of serdes in generated code and in processor nodes."""


def _why_unwritten(error: BaseException) -> str:
    """The error; with the types in plain words where a value is of another type than its serde takes."""
    message, said = error_message(error), error_text(error)
    if found := _OTHER_TYPE.fullmatch(message):
        return f"the serde takes values of type {found[1]}, not {found[2]} ({said})"
    taken = _TAKEN.get(message)
    if taken is None or not isinstance(error, struct.error):
        return said
    given = _given_to_serde(error, taken)
    return f"the serde takes values of type {taken.__name__}{given and f', not {given}'} ({said})"


def _given_to_serde(error: BaseException, taken: type) -> str:
    """The type of the value that the failing line gives to a serde, if the line shows it."""
    frame, line = list(walk_tb(error.__traceback__))[-1]
    names: list[str] = _SERDE_CALL.findall(linecache.getline(frame.f_code.co_filename, line))
    given = (frame.f_locals.get(name) for name in names)
    return next((type(value).__name__ for value in given if value is not None and not isinstance(value, taken)), "")


def _written(plan: ResolvedSubtopology, node: str) -> str:
    """The serdes of a sink."""
    sink = _node(plan, node)
    if not isinstance(sink, SinkNode):
        return ""
    return f", which writes keys by {plan.key_serde(sink).name} and values by {plan.value_serde(sink).name}"
