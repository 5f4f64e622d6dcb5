"""Runs one subtopology for one task: generated functions where there are any, processor nodes for the rest.

1. :meth:`Runner.run` processes a run of records of one source in order. When a record fails and the handler does not skip
   it, a RecordError with :attr:`FailedRun.index` says where: everything before that record is done, nothing after it is.
2. A function is compiled when its source's first run comes; a second variant carries headers and is used from the first
   run that has some on.
3. :meth:`Runner.flush` empties the caches in topological order. What a flush forwards may change stores further down, so
   it goes on until nothing is dirty.
4. :meth:`Runner.run_merged` does the same for records of several sources in the order in which they come, by one function
   that has all of them, or on processor nodes where a source has no function. Else records come in runs of one source
   only (:attr:`Runner.merges`).
5. Runs of records that are only counted are taken as a whole (:mod:`streamsrt.operators.kinds.counting`). Before anything
   else is run, what was counted so settles into entries.
6. Where the subtopology has user's processors, also around operators, or stores whose entries expire, all of it runs on
   processor nodes: punctuations and deletions come between records.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from operator import length_hint
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from streamsrt.errors import (
    DeserializationError,
    OutageError,
    ProcessingError,
    ProductionError,
    RecordError,
    StateError,
    StreamsError,
)
from streamsrt.operators.engine.compiler import Compiler, TooComplex
from streamsrt.operators.engine.contexts import (
    RunPosition,
    context_at,
    context_of,
    flushed_context,
    place_in,
    places_of,
)
from streamsrt.operators.engine.emitter import Generated
from streamsrt.operators.engine.environment import (
    Environment,
    GlobalStores,
    SkippedAtSinkError,
    processing_error,
    production_error,
    raise_outage,
    where,
    why_skipped,
)
from streamsrt.operators.engine.expiry import Expiry
from streamsrt.operators.engine.handlers import ErrorContext, HandlerResponse
from streamsrt.operators.engine.node_meter import NodeMeter
from streamsrt.operators.engine.open_calls import OpenCalls
from streamsrt.operators.engine.plan import Counters, FlushedStore, ResolvedSubtopology
from streamsrt.operators.engine.processor_nodes import PathBuilder, TakeRun
from streamsrt.operators.kinds import counting
from streamsrt.operators.kinds.counting import KeyCounting, WindowCounting, counting_of
from streamsrt.operators.kinds.idle import IdleClosing
from streamsrt.operators.kinds.user_processors import wrap_operator
from streamsrt.operators.table import EMITS, MAKERS, OF_VERSIONS, OPERATIONS
from streamsrt.state.buffer import SuppressionBuffer
from streamsrt.state.cache import Flushed, UnwritableValueError
from streamsrt.state.duplicates import DuplicatesCache
from streamsrt.state.kinds import Cache, cache_of
from streamsrt.state.timed import StoreMeter
from streamsrt.wire.records import RecordColumns
from streamsrt.wire.records.merged import MergedColumns
from streamsrt.wording import error_text
from topology import serdes
from topology.graph import nodes
from topology.graph.operations.traits import Code, RunEnd, own_store, traits_of, window_size_ms
from topology.spec.codecs import ProgramSerde
from topology.spec.processor import PunctuationType, RecordMetadata
from topology.spec.row_versions import UpcastError
from topology.spec.windows import Windowed

if TYPE_CHECKING:
    from pydantic import DirectoryPath

_EMPTY_HEADERS: tuple[()] = ()


class _Input(NamedTuple):
    """The data of a source for processor nodes. ``forward``: to the source's node. ``from_key``,
    ``from_value``: None where bytes stay as they are. ``take_run``: see :attr:`PathNode.takes_run`."""

    source: str
    from_key: Callable[[bytes], object] | None
    from_value: Callable[[bytes], object] | None
    forward: Callable[..., None]
    take_run: TakeRun | None


class Runner:
    """One per task. ``collect`` is :meth:`RecordCollector.add`. ``generate`` False: everything on processor nodes.
    ``gathers_output`` False: what these write is handed over at once."""

    def __init__(
        self,
        plan: ResolvedSubtopology,
        caches: Mapping[str, Cache],
        collect: Callable[..., None],
        task_partition: int,
        partitions_of_topic: Callable[[str], int],
        *,
        task_dir: Callable[[], DirectoryPath],
        system_time_ms: int = 0,
        generate: bool = True,
        gathers_output: bool = True,
        open_calls: OpenCalls | None = None,
        global_stores: GlobalStores | None = None,
        node_meters: Mapping[str, NodeMeter] = MappingProxyType({}),
        store_meters: Mapping[str, StoreMeter] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.caches = caches
        self.counters = Counters()
        self._task_partition = task_partition
        self.env = Environment(
            plan,
            caches,
            collect,
            self.counters,
            {},
            task_partition,
            partitions_of_topic,
            global_stores,
            task_dir=task_dir,
        )
        self._collect = self.env.collect
        self.env.system_time_ms = system_time_ms
        self.env.open_calls = open_calls
        self.env.node_meters, self.env.store_meters = node_meters, store_meters
        self._compiler = Compiler(self.env, EMITS, OF_VERSIONS)
        self._path = PathBuilder(self.env, MAKERS, wrap_operator)
        self._inputs: dict[str, _Input] = {}
        self.env.output.gathers = gathers_output
        used = [n.operation for n in plan.subtopology.nodes if isinstance(n, nodes.ProcessorNode)]
        self._has_processors = any(traits_of(op).code is Code.PROCESSOR for op in used) or any(
            isinstance(node, nodes.ProcessorNode) and node.wrapped_by is not None for node in plan.subtopology.nodes
        )
        ends = {traits_of(op).run_end for op in used}
        self._calls = RunEnd.CALLS in ends
        self._ends_with_runs = bool(ends - {RunEnd.NOTHING})
        self._expiry = Expiry(self._path)
        self._idle = IdleClosing(self._path)
        self._has_idle = bool(self._idle)
        self._generate = generate and not self._has_processors and not self._expiry.stores
        # What a suppression holds back may have headers from before a restart.
        self._headers = any(traits_of(op).holds_back for op in used)
        self._compiled: dict[tuple[str | None, bool, bool], Generated | None] = {}
        """By source (None: all of them), whether it is for a flush, and whether records have headers."""
        self._counting: dict[str, KeyCounting | WindowCounting] = {}
        self._has_counted = False
        """Whether a run was ever counted as a whole."""
        self._flushes: list[tuple[FlushedStore, Callable[[FlushedStore], None]]] = [
            (store, self._flush_store if meter is None else meter.flushing(self._flush_store))
            for store, meter in ((each, store_meters.get(each.name)) for each in plan.flushed_stores)
        ]
        self._passing: dict[str, Callable[[int], None]] = {}
        self._merging: bool | None = None
        self.unread: list[int] = []
        """The indexes of the run's records that can't be deserialized and were skipped."""
        self._at: tuple[Sequence[tuple[str, int]], RecordColumns | MergedColumns, Iterator[object]] = (
            [("", -1)],
            RecordColumns([], [], [], 0, 0),
            iter(()),
        )
        self.env.origin = lambda: place_in(*self._at)
        self._validate()

    def _validate(self) -> None:
        """Resolves serdes and stores, so that missing ones are reported before the first record."""
        for source in self.plan.subtopology.sources:
            self.plan.key_serde(source)
            self.plan.value_serde(source)
        for sink in self.plan.subtopology.sinks:
            self.plan.key_serde(sink)
            self.plan.value_serde(sink)
        if self._has_processors or self._calls:
            # How many records may be taken is known when the nodes are there.
            for source in self.plan.subtopology.sources:
                self._path.node(source.name)
        if self._generate:
            found = {source.name: counting_of(self.env, source.name) for source in self.plan.subtopology.sources}
            self._counting = {name: each for name, each in found.items() if each is not None}

    def begin(self, system_time_ms: int) -> None:
        """Lets the user's processors begin, once: when the stores are restored and the stream time is known."""
        self.env.begin(system_time_ms)

    # ------------------------------------------------------------------------------------------------- records

    def run(self, source: str, topic: str, partition: int, columns: RecordColumns) -> None:
        """Processes all records of ``columns``. RecordError: ``failed_index`` of the runner is the record's index.

        The stream time of :attr:`env` is the caller's to move, but where user's processors may ask for it. Those of
        :attr:`unread` don't move it.
        """
        self.failed_index = 0
        self.unread.clear()
        if columns.headers is not None:
            self._headers = True
        if self._has_idle:
            self._idle.arrived(source)
        if self._counting and self._is_counted(source, columns):
            return
        generated = self._function(source, flush=False)
        if generated is None:
            self._run_nodes([source], [(topic, partition)], columns)
            return
        self._run_generated(generated, [(topic, partition)], columns)

    @property
    def merges(self) -> bool:
        """Whether records of all sources can be taken together: by one function, or on processor nodes where a source has
        no function."""
        if self._merging is None:
            self._merging = not (self._ends_with_runs or self.env.ends_with_runs) and (
                self._needs_nodes
                or all(self._merged_function(headers=headers) is not None for headers in (False, True))
            )
        return self._merging

    @property
    def _needs_nodes(self) -> bool:
        """Whether there is no function for one of the sources."""
        if not self._generate:
            return True
        names = [source.name for source in self.plan.subtopology.sources]
        return any(self._function(name, flush=False) is None for name in names)

    def run_merged(self, sources: Sequence[str], partitions: Sequence[tuple[str, int]], merged: MergedColumns) -> None:
        """As :meth:`run`, where :attr:`merges`. ``sources``, ``partitions``: of each of its parts."""
        self.failed_index = 0
        self.unread.clear()
        if merged.headers is not None:
            self._headers = True
        if self._has_idle:
            for source in sources:
                self._idle.arrived(source)
        self._settle_counts()
        generated = None if self._needs_nodes else self._merged_function(headers=self._headers)
        if generated is None:
            self._run_nodes(sources, partitions, merged)
        else:
            self._run_generated(generated, partitions, merged, self._source_numbers(sources, merged.origins))

    def _source_numbers(self, sources: Sequence[str], origins: Sequence[int]) -> Sequence[int]:
        """For each record the number of its source, as the function for all of them has it."""
        known = [source.name for source in self.plan.subtopology.sources]
        numbers = [known.index(source) for source in sources]
        return origins if numbers == list(range(len(numbers))) else list(map(numbers.__getitem__, origins))

    def _merged_function(self, *, headers: bool) -> Generated | None:
        key = (None, False, headers)
        if key not in self._compiled:
            names = [source.name for source in self.plan.subtopology.sources]
            self._compiled[key] = self._generated(lambda: self._compiler.sources(names, headers=headers))
        return self._compiled[key]

    def _run_generated(
        self,
        generated: Generated,
        partitions: Sequence[tuple[str, int]],
        columns: RecordColumns | MergedColumns,
        *more: Sequence[int],
    ) -> None:
        """``partitions``: of the columns, or of each of their parts. ``more``: arguments behind the columns."""
        arguments: tuple[Sequence[object], ...] = (columns.keys, columns.values, columns.timestamps, *more)
        if self._headers:
            each = [_EMPTY_HEADERS] * len(columns.keys) if columns.headers is None else columns.headers
            arguments = (*arguments[:3], each, *more)
        if generated.takes_places:
            arguments = (*arguments, *places_of(partitions, columns))
        start = 0
        keys: Iterator[object] = iter(columns.keys)
        rest: Sequence[Iterable[object]] = arguments[1:]
        while start < len(columns.keys):
            self._at = (partitions, columns, keys)
            try:
                generated.run(keys, *rest)
                return
            except BaseException as error:  # a user's function may raise anything
                if isinstance(error, RecordError | StateError) or generated.is_done(error):
                    # Refused by the collector, or a store can't be used: nothing of the run may count as done.
                    self.failed_index = start
                    if isinstance(error, StreamsError):
                        error.is_in_order = False
                    raise
                index = self.failed_index = len(columns.keys) - length_hint(keys) - 1
                try:
                    self._skip_or_raise(generated, error, index)
                except RecordError as failure:
                    failure.is_in_order = failure.is_in_order and not self.env.lets_go
                    raise
                is_first, start = start == 0, index + 1
            if is_first:
                # All of them have come as far as each other: the records behind the next failures are not copied again.
                keys, *rest = [iter(column[start:]) for column in arguments]

    def only_counts(self, source: str) -> bool:
        """Whether runs of that source are taken as a whole to be counted (rule 5)."""
        return source in self._counting

    def _is_counted(self, source: str, columns: RecordColumns) -> bool:
        if not self._has_counted and len(columns) < counting.SHORT_RUN_RECORDS:
            return False
        counts = self._counting.get(source)
        if counts is not None and counts.take(columns):
            self._has_counted = True
            if counts.meter is not None:
                counts.meter.came_all(columns.timestamps, self.env.system_time_ms)
            return True
        self._settle_counts()
        return False

    def _settle_counts(self) -> None:
        if self._has_counted:
            for counts in self._counting.values():
                counts.cache.settle()

    def current(self) -> RecordMetadata | None:
        """The record that is being processed; None where that is not known. Any thread may ask, while a run is on."""
        # Read once: while another thread asks, the one that processes goes on.
        metadata, at = self.env.metadata, self._at
        if metadata is not None:
            topic, partition, offset, *_ = metadata
            return RecordMetadata(topic, partition, offset)
        return place_in(*at) if at[1].keys else None

    def _function(self, name: str, *, flush: bool) -> Generated | None:
        key = (name, flush, self._headers)
        if key not in self._compiled:
            self._compiled[key] = self._compile(name, flush)
        return self._compiled[key]

    def _compile(self, name: str, flush: bool) -> Generated | None:
        compiled = self._compiler.flush if flush else self._compiler.source
        return self._generated(lambda: compiled(name, headers=self._headers))

    def _generated(self, compiled: Callable[[], Generated]) -> Generated | None:
        if not self._generate:
            return None
        try:
            return compiled()
        except (TooComplex, RecursionError):
            # A chain of steps may be longer than Python's stack is deep, with what else is on it.
            return None

    def _skip_or_raise(self, generated: Generated, error: BaseException, index: int) -> None:
        """Handles the failure of the record with that index, at which a generated function stopped."""
        node, stage = generated.origin(error)
        context = self.env.context_of_evicted(node) or context_at(*self._at[:2], index, node)
        if stage == "deserialization":
            self._failed_to_deserialize(context, error)
            self.unread.append(index)
        elif stage == "processing":
            self.env.skip_or_fail(context, error)
        else:
            self.env.skip_or_fail_production(context, error)

    def failed_to_deserialize(
        self, source: str, topic: str, partition: int, columns: RecordColumns, index: int, error: BaseException
    ) -> None:
        """Handles a record that can't be deserialized: skips it if the handler says so, else raises DeserializationError."""
        self._failed_to_deserialize(context_of(topic, partition, columns, index, source), error)

    def _failed_to_deserialize(self, context: ErrorContext, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self.env.skip_or_fail(context, error)
        if isinstance(error, OutageError):
            raise_outage(DeserializationError, self.plan, context, error)
        if self.env.ask(self.plan.handlers.deserialization, context, error) is HandlerResponse.CONTINUE:
            self.counters.failed_deserialization += 1
            self.counters.last_skipped["failed_deserialization"] = why_skipped(self.plan, context, error)
            return
        raise DeserializationError(
            f"a record can't be deserialized: {error_text(error)} ({where(self.plan, context)}). Check the "
            "serdes of the topic, or skip such records with deserialization.exception.handler=continue",
            context.topic,
            context.partition,
            context.offset,
        ) from error

    def _run_nodes(
        self,
        sources: Sequence[str],
        partitions: Sequence[tuple[str, int]],
        columns: RecordColumns | MergedColumns,
    ) -> None:
        """On processor nodes. ``sources``, ``partitions``: of the columns, or of each of their parts."""
        inputs = [self._input(source) for source in sources]
        is_processed = False
        try:
            with self.env.output:
                self._run_records(inputs, partitions, columns)
                is_processed = True
        except StreamsError as failure:
            if is_processed:
                # Refused by the collector: nothing of the run may count as done.
                self.failed_index = 0
                failure.is_in_order = False
            raise

    def _run_records(
        self,
        inputs: Sequence[_Input],
        partitions: Sequence[tuple[str, int]],
        columns: RecordColumns | MergedColumns,
    ) -> None:
        position, (first, *others) = RunPosition(partitions, columns), inputs
        env = self.env
        try:
            if first.take_run is None or others or self._expiry.stores or columns.headers is not None:
                self._run_rows(inputs, position)
            else:
                rows = zip(position.keys, columns.values, columns.timestamps, strict=False)
                failed = partial(self._undecodable, position, first.source)
                first.take_run(rows, position, first.from_key, first.from_value, failed)
            env.outside_of_records()
            env.finish_batches()
        except StreamsError as failure:
            if env.batches or env.is_calling or env.lets_go or not isinstance(failure, RecordError):
                # Records before this one still wait at an operator over batches, or results of theirs are to be forwarded:
                # they are not done. And where no record is to blame, it is not known how far the run has come.
                failure.is_in_order = False
            raise
        finally:
            self.failed_index = position.index

    def _run_rows(self, inputs: Sequence[_Input], position: RunPosition) -> None:
        env, columns = self.env, position.columns
        expiry = self._expiry if self._expiry.stores else None
        headers = repeat(_EMPTY_HEADERS) if columns.headers is None else columns.headers
        origins = columns.origins if isinstance(columns, MergedColumns) else repeat(0)
        rows = zip(position.keys, columns.values, columns.timestamps, headers, origins, strict=False)
        schedules = env.schedules(PunctuationType.STREAM_TIME).waiting
        is_one, stream_time_ms = len(inputs) == 1, env.stream_time_ms
        source, from_key, from_value, forward, _ = inputs[0]
        for raw_key, raw_value, timestamp, header, origin in rows:
            if not is_one:
                source, from_key, from_value, forward, _ = inputs[origin]
            try:
                key = raw_key if from_key is None or raw_key is None else from_key(raw_key)
                value = raw_value if from_value is None or raw_value is None else from_value(raw_value)
            except BaseException as error:  # noqa: BLE001  # a user's serde may raise anything
                self._undecodable(position, source, error)
                continue
            if timestamp > stream_time_ms:
                env.stream_time_ms = stream_time_ms = timestamp
            env.position = position
            if expiry is not None:
                expiry.run(stream_time_ms)
            try:  # noqa: SIM105  # entering suppress() for each record costs as much as a step
                forward(key, value, timestamp, header)
            except SkippedAtSinkError:
                pass
            if expiry is not None:
                expiry.run(stream_time_ms)
            if schedules and schedules[0].next_ms <= stream_time_ms:
                env.punctuate(PunctuationType.STREAM_TIME, stream_time_ms)

    def _undecodable(self, position: RunPosition, source: str, error: BaseException) -> None:
        """Handles a record of a run on processor nodes that can't be deserialized."""
        context = context_at(position.partitions, position.columns, position.index, source)
        self._failed_to_deserialize(context, error)
        self.unread.append(position.index)

    def _input(self, source: str) -> _Input:
        found = self._inputs.get(source)
        if found is None:
            node = self.plan.node(source)
            assert isinstance(node, nodes.SourceNode)
            from_key, from_value = (
                None if serde is serdes.bytes else serde.deserialize
                for serde in (self.plan.key_serde(node), self.plan.value_serde(node))
            )
            first = self._path.node(source)
            found = _Input(source, from_key, from_value, first.forward, first.forwards_run)
            self._inputs[source] = found
        return found

    def pass_time(self, name: str, ms: int) -> None:
        """Moves the stream time of the operation of a node on, as a record of a key that another process has would do.
        Raises RecordError if what that lets go can't be processed."""
        node = self.plan.node(name)
        assert isinstance(node, nodes.ProcessorNode)
        pass_time = self._passing.get(name)
        if pass_time is None:
            make = OPERATIONS[type(node.operation)].slices.pass_time
            assert make is not None, "such an operation allows no slices"
            pass_time = self._passing[name] = make(self._path, node)
        if traits_of(node.operation).holds_back:
            self._settle_counts()
        pass_time(ms)

    # ------------------------------------------------------------------------------------------------- flush

    def flush(self) -> None:
        """Logs and forwards what the caches hold back. Raises RecordError (offset -1) where that fails."""
        self.env.finish_calls()
        if self.has_changes():
            with self.env.output:
                self._flush_all()

    def _flush_all(self) -> None:
        """There are changes."""
        env = self.env
        try:
            while True:
                for store, flush in self._flushes:
                    flush(store)
                if env.windows:
                    env.finish_calls()
                if not self.has_changes():
                    return
        except UpcastError as error:
            raise ProcessingError(error.with_advice) from error

    def has_changes(self) -> bool:
        """Whether a cache has changes that were not flushed."""
        for cache in self.caches.values():
            if cache.dirty:
                return True
        return self._has_counted and any(counts.cache.has_counted for counts in self._counting.values())

    def _flush_store(self, store: FlushedStore) -> None:
        cache = self.caches[store.name]
        if store.holds_back:
            self._log_held_back(store, cache_of(SuppressionBuffer, self.caches, store.name))
            return
        assert not isinstance(cache, SuppressionBuffer)
        try:
            flushed = cache.flush(forwards=store.is_cached)
        except UnwritableValueError as error:
            raise self._unwritable(store.name, error) from error
        if flushed is None or not store.is_cached:
            return
        if store.changelog is not None:
            self._collect(
                store.changelog,
                flushed.store_keys,
                flushed.raw_values,
                flushed.timestamps,
                flushed.deletions_headers if store.marks_deletions else None,
                self._task_partition,
            )
        if store.owner is not None:
            # The headers of such a session are those that its row has, and aggregations give their rows none.
            flushed.has_headers = not (store.marks_deletions and flushed.ends is not None)
            self._forward(store.owner, cache, flushed)

    def _unwritable(self, store: str, error: UnwritableValueError) -> ProductionError:
        spec = self.plan.specs[store]
        value, serde = error.value, self.plan.value_serde(spec).name
        whose = "" if error.key is None else f" of key {_shown_key(self.plan.key_serde(spec), error.key)}"
        return ProductionError(
            f"store {store!r} of {spec.site} can't take a value of type {type(value).__name__}: {error}. It is "
            f"{_shown(value)}{whose} in partition {self._task_partition}, and serdes.{serde} writes the store's values. "
            "Rows are written when changes are flushed, so the record that made it is not known, and no exception handler "
            "can skip it. Name a serde that takes all that is kept there (value=), or let the function raise an exception "
            "for such a value: processing.exception.handler decides about its record then, as it does for a store with a "
            "changelog and without a cache (Store(caching=False))"
        )

    def _log_held_back(self, store: FlushedStore, buffer: SuppressionBuffer) -> None:
        """Logs what a suppression held back or let go. These records have no time of their own."""
        keys, values, headers = buffer.take_changes()
        if keys and store.changelog is not None:
            times = [self.env.program_time_ms] * len(keys)
            self._collect(store.changelog, keys, values, times, headers, self._task_partition)

    def _forward(self, node: nodes.ProcessorNode, cache: Cache, flushed: Flushed) -> None:
        if node.sends_old_values:
            assert not isinstance(cache, DuplicatesCache | SuppressionBuffer), "nothing is forwarded from these"
            cache.read_olds(flushed)
        generated = self._function(node.name, flush=True)
        if generated is None:
            self._forward_path(node, flushed)
            return
        raw_keys, *columns = generated.columns_of(flushed)
        keys = iter(raw_keys)
        try:
            generated.run(keys, *columns)
        except (RecordError, StateError):
            raise
        except BaseException as error:  # a user's function may raise anything
            node_name, stage = generated.origin(error)
            at = len(flushed.keys) - length_hint(keys) - 1
            context = self.env.context_of_evicted(node_name) or flushed_context(flushed, at, node_name)
            handlers = self.plan.handlers
            if not isinstance(error, Exception):
                self.env.skip_or_fail(context, error)
            handler = handlers.production if stage == "production" else handlers.processing
            self.env.ask(handler, context, error, always_fails=True)
            if stage == "production":
                raise production_error(self.plan, context, error) from error
            raise processing_error(self.plan, context, error) from error

    def _forward_path(self, node: nodes.ProcessorNode, flushed: Flushed) -> None:
        store = own_store(node.operation)
        assert store is not None
        deserialize = self.plan.key_serde(self.plan.specs[store]).deserialize
        target = self._path.node(node.name)
        env, size_ms, headers = self.env, window_size_ms(node.operation), flushed.headers
        env.outside_of_records()
        for index, raw in enumerate(flushed.keys):
            key: object = deserialize(raw)
            timestamp = flushed.timestamps[index]
            if flushed.starts is not None and flushed.ends is not None:
                timestamp = flushed.ends[index]
                key = Windowed(key, flushed.starts[index], timestamp)
            elif flushed.starts is not None and size_ms is not None:
                start = flushed.starts[index]
                key = Windowed(key, start, start + size_ms)
            env.source = (
                flushed.store_keys[index],
                flushed.raw_values[index],
                headers[index],
                flushed.timestamps[index],
            )
            target.forward(
                key,
                flushed.values[index],
                timestamp,
                headers[index],
                flushed.olds[index] if node.sends_old_values else None,
            )
        env.source = None
        env.finish_batches()

    # ------------------------------------------------------------------------------------------------- the rest

    @property
    def is_timed(self) -> bool:
        """Whether :meth:`punctuate` may find anything to do, which most tasks never have."""
        env = self.env
        return bool(env.is_timed or self._idle or env.windows or env.batches)

    def punctuate(self, system_time_ms: int, *, is_behind: bool = False) -> int:
        """Runs the wall-clock punctuations that are due, and closes idle operators. Returns how many punctuations and
        operators.

        ``is_behind``: records wait to be processed, so nothing is idle.
        """
        try:
            with self.env.output:
                return self._punctuate(system_time_ms, is_behind=is_behind)
        except RecordError as failure:
            failure.is_in_order = failure.is_in_order and not self.env.lets_go
            raise

    def _punctuate(self, system_time_ms: int, *, is_behind: bool) -> int:
        self.env.system_time_ms = system_time_ms
        clock, wall = self.plan.clock, PunctuationType.WALL_CLOCK_TIME
        self.env.schedules(wall).follow(clock.ahead_ms, clock.at(system_time_ms))
        ran = self.env.punctuate(wall, clock.at(system_time_ms))
        self.env.finish_batches()
        if self._idle and not is_behind and not self.env.is_calling and self._idle.is_due():
            # What caches hold back came before.
            self.flush()
            ran += self._idle.close()
            self.env.finish_batches()
        return ran

    def close(self) -> None:
        """Ends asynchronous calls, and lets the user's processors end, each of them if another one raises."""
        for window in self.env.windows:
            window.cancel()
        with ExitStack() as stack:
            for node in reversed(self._path.made):
                stack.callback(node.close)


def _shown(value: object) -> str:
    """The beginning and the end of it as text."""
    try:
        return reprlib.repr(value)
    except Exception as error:  # noqa: BLE001  # a user's class may raise anything, and Python shows no endless numbers
        return f"something that can't be shown ({type(error).__name__})"


def _shown_key(serde: ProgramSerde, raw: bytes) -> str:
    """A row's key as the program knows it, else as bytes."""
    try:
        return _shown(serde.deserialize(raw))
    except Exception:  # noqa: BLE001  # a user's serde may raise anything
        return _shown(raw)
