"""Streams, tables and groups: the classes that have the operators.

1. An operator adds one step to the plan and returns a new object. Nothing runs, and the receiver does not change.
2. These classes return each other, so their types are in one module. What a call adds to the plan is in the modules below.
3. ``name=`` names the step. Functions take ``(key, value)`` as in Kafka Streams; with ``with_key=True`` functions of values
   take the key too.

Source: org.apache.kafka.streams.kstream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar, overload

from topology.build.join_stores import JoinStores
from topology.build.plan import SplitStep
from topology.build.planned import NO_FUNCTION, PlannedGroup, PlannedStream, PlannedTable
from topology.dsl import (
    batches,
    cogrouping,
    count_windowing,
    grouping,
    late_records,
    lookup_joins,
    stream_joins,
    stream_steps,
    table_grouping,
    table_joins,
    table_steps,
)
from topology.dsl.asof_joins import How, StreamAsofJoin, join_asof
from topology.dsl.cogrouping import Member
from topology.dsl.deduplication import deduplicate
from topology.dsl.global_tables import GlobalKTable
from topology.dsl.grouping import Windowing
from topology.dsl.printing import Output
from topology.dsl.stream_joins import StreamJoin
from topology.dsl.table_grouping import PlannedTableGroup
from topology.graph.operations import Filter, FlatMap, FlatMapValues, ForEach, Function, Map, Peek, SelectKey
from topology.graph.operations.batches import Frame
from topology.spec.codecs import AnySerde, Serde
from topology.spec.count_windows import CountWindows
from topology.spec.errors import TopologyError, UnsupportedError, call_site
from topology.spec.functions import FailedValue, Partitioner, Predicate, TopicExtractor
from topology.spec.join_windows import JoinWindows
from topology.spec.processor import FixedKeyProcessor, Processor, ValueTransformer
from topology.spec.stores import Store
from topology.spec.suppressed import Suppressed
from topology.spec.windows import (
    AnyWindows,
    Duration,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    Windowed,
)

A = TypeVar("A")
GK = TypeVar("GK")
K = TypeVar("K")
K2 = TypeVar("K2")
K3 = TypeVar("K3")
KO = TypeVar("KO")
KR = TypeVar("KR")
R = TypeVar("R")
V = TypeVar("V")
V2 = TypeVar("V2")
V3 = TypeVar("V3")
VO = TypeVar("VO")
VT = TypeVar("VT")


class KStream(Generic[K, V]):
    """A stream of records with keys of type ``K`` and values of type ``V``."""

    __slots__ = ("_planned",)

    def __init__(self, planned: PlannedStream) -> None:
        self._planned = planned

    def filter(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Keeps the records for which ``predicate(key, value)`` is true."""
        return KStream(self._planned.then("filter", "KSTREAM-FILTER-", name, predicate, Filter(predicate=predicate)))

    def filter_not(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Keeps the records for which ``predicate(key, value)`` is false."""
        operation = Filter(predicate=predicate, negate=True)
        return KStream(self._planned.then("filter_not", "KSTREAM-FILTER-", name, predicate, operation))

    def peek(self, fn: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Calls ``fn(key, value)`` for each record and forwards the record."""
        return KStream(self._planned.then("peek", "KSTREAM-PEEK-", name, fn, Peek(fn=fn)))

    def foreach(self, fn: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Calls ``fn(key, value)`` for each record; the stream ends here."""
        self._planned.add("foreach", "KSTREAM-FOREACH-", name, fn, ForEach(fn=fn))

    def print(
        self,
        label: str | None = None,
        *,
        mapper: Callable[[K, V], object] | None = None,
        to: Output = None,
        every: int = 1,
        name: str | None = None,
    ) -> None:
        """Prints ``[label]: key, value`` for each record; the stream ends here.

        ``label`` None: the step's name. ``mapper(key, value)`` returns another text. ``to``: an open text file; None:
        standard output. ``every=n``: prints the first record and then every n-th one, counted per process. Raises
        TopologyError for an ``every`` below 1. Source: org.apache.kafka.streams.kstream.Printed.
        """
        stream_steps.print_records(self._planned, label, mapper, to, every, name)

    def map(self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """Replaces each record by the ``(key, value)`` that ``fn(key, value)`` returns."""
        return KStream(self._planned.then("map", "KSTREAM-MAP-", name, fn, Map(fn=fn), new_key=True, new_value=True))

    def flat_map(self, fn: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None) -> KStream[K2, V2]:
        """Replaces each record by the ``(key, value)`` pairs that ``fn(key, value)`` returns."""
        operation = FlatMap(fn=fn)
        return KStream(
            self._planned.then("flat_map", "KSTREAM-FLATMAP-", name, fn, operation, new_key=True, new_value=True)
        )

    def select_key(self, fn: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]:
        """Replaces the key of each record by ``fn(key, value)``."""
        return KStream(
            self._planned.then("select_key", "KSTREAM-KEY-SELECT-", name, fn, SelectKey(fn=fn), new_key=True)
        )

    @overload
    def map_values(
        self, fn: Callable[[V], V2], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, fn: Callable[[K, V], V2], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, V2]: ...
    def map_values(self, fn: Function, *, with_key: bool = False, name: str | None = None) -> KStream[K, Any]:
        """Replaces each value by ``fn(value)``, or by ``fn(key, value)`` with ``with_key``."""
        return KStream(stream_steps.map_values(self._planned, fn, name, with_key=with_key))

    @overload
    def flat_map_values(
        self, fn: Callable[[V], Iterable[V2]], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, fn: Callable[[K, V], Iterable[V2]], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self, fn: Callable[..., Iterable[Any]], *, with_key: bool = False, name: str | None = None
    ) -> KStream[K, Any]:
        """Replaces each value by the values of ``fn(value)``, or of ``fn(key, value)`` with ``with_key``."""
        operation = FlatMapValues(fn=fn, with_key=with_key)
        prefix = "KSTREAM-FLATMAPVALUES-"
        return KStream(self._planned.then("flat_map_values", prefix, name, fn, operation, new_value=True))

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no particular order. Serdes are kept if both streams have the same."""
        return KStream(stream_steps.merge(self._planned, _planned(other, KStream), name))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Starts a split as in Kafka Streams: ``split().branch(...).branch(...).default_branch()``. See :meth:`branch`."""
        return BranchedKStream(self._planned, stream_steps.split(self._planned, name))

    def branch(
        self,
        *predicates: Predicate[K, V],
        default: bool = False,
        names: Iterable[str | None] | None = None,
        name: str | None = None,
    ) -> tuple[KStream[K, V], ...]:
        """One stream for each predicate: a record goes to the first one whose ``predicate(key, value)`` is true.

        ``default``: adds a stream for the records that match no predicate; without it they are dropped. ``names``: a
        name for each stream, appended to the split's ``name``.

            small, large, rest = orders.branch(is_small, is_large, default=True)
        """
        given = [None] * (len(predicates) + default) if names is None else list(names)
        if len(given) != len(predicates) + default:
            raise TopologyError(
                f"branch() makes {len(predicates) + default} streams but has {len(given)} names", call_site()
            )
        split: BranchedKStream[K, V] = BranchedKStream(
            self._planned, stream_steps.split(self._planned, name, predicates)
        )
        streams = [
            split._branch(predicate, branch_name, index + 1)
            for index, (predicate, branch_name) in enumerate(zip(predicates, given, strict=False))
        ]
        if default:
            streams.append(split._branch(NO_FUNCTION, given[-1], 0))
        return tuple(streams)

    def to(
        self,
        topic: str | TopicExtractor[K, V],
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        partitioner: Partitioner[K, V] | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the records to ``topic``, or to the topic that ``topic(key, value, context)`` returns for each record.

        ``partitioner(topic, key, value, partitions)`` returns a partition or several (an empty list drops the record);
        None: by the hash of the key's bytes.
        """
        stream_steps.sink(self._planned, topic, key, value, partitioner, name)

    def repartition(
        self,
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner[K, V] | None = None,
    ) -> KStream[K, V]:
        """Sends the records through an internal topic, so that all records of a key are in one partition.

        ``name``: of the topic, ``<application.id>-<name>-repartition``. ``partitions`` None: as many as the source
        topics of the stream have. Records without a key are dropped; the log says how many. ``partitioner``: as in
        :meth:`to`.
        """
        return KStream(stream_steps.repartition(self._planned, name, key, value, partitions, partitioner))

    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """Groups the records by their key. ``name``: of the repartition topic, if one is needed."""
        return KGroupedStream(stream_steps.group_by_key(self._planned, key, value, name))

    def group_by(
        self,
        fn: Callable[[K, V], K2],
        *,
        key: Serde[K2] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Groups the records by the key that ``fn(key, value)`` returns, through a repartition topic.

        ``name``: of the topic and of the step that computes the key.
        """
        return KGroupedStream(stream_steps.group_by(self._planned, fn, key, value, name))

    def to_table(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """The stream as a table: the newest value of each key; None deletes the row."""
        return KTable(stream_steps.to_table(self._planned, name, store, key, value))

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Runs user code for each record: ``supplier()`` makes one :class:`topology.Processor` for each task.

        ``stores``: names of stores added before, or stores to add. The processor may forward any key, so a later
        grouping or join goes through a repartition topic.
        """
        return KStream(stream_steps.process(self._planned, supplier, stores, name, fixed_key=False))

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
    ) -> KStream[K, V2]:
        """As :meth:`process`, with a processor that cannot change the key."""
        return KStream(stream_steps.process(self._planned, supplier, stores, name, fixed_key=True))

    @overload
    def late(
        self,
        side: Literal["left", "right"],
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: None = None,
    ) -> KStream[K, Any]: ...
    @overload
    def late(
        self,
        side: Literal["left", "right"],
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2],
    ) -> KStream[K, V2]: ...
    def late(
        self,
        side: Literal["left", "right"],
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: AnySerde = None,
    ) -> KStream[K, Any]:
        """The late records of one side of a stream-stream join; this stream is the result of the join.

        A late record is still joined with the records in the other side's store. It is not kept in the store of its own
        side, so later records of the other side do not find it. ``value``: serde of that side's values. Raises
        TopologyError if this stream is not the result of such a join, or if its late records have been taken already.
        """
        return KStream(late_records.late_of_join(self._planned, side, name, key, value))

    def deduplicate(
        self,
        id: Callable[[K, V], Any],  # noqa: A002  # the word for it
        ttl: Duration,
        *,
        serde: Serde[Any],
        grace: Duration = 0,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Drops records whose ``id(key, value)`` occurred within ``ttl`` of event time before; exact across restarts.

        The first record of an id is forwarded, and then the first one that is ``ttl`` after the last forwarded one.
        Records with the id None are always forwarded. Ids are stored per partition: if records with the same id have
        different keys, use ``select_key`` and ``repartition`` first. ``serde``: of the id. ``grace``: how long after
        ``ttl`` an id is kept for late records. Raises TopologyError for a ``ttl`` below 1 ms.
        """
        return KStream(deduplicate(self._planned, id, ttl, serde=serde, grace=grace, store=store, name=name))

    def print_table(
        self,
        size: int = 10,
        *,
        title: str | None = None,
        by_key: bool = False,
        to: Output = None,
        name: str | None = None,
    ) -> None:
        """Shows the last ``size`` records as a live table while the program runs; the stream ends here.

        If values are mappings, their fields are columns. ``by_key``: one row for each key, with its last record. If
        ``to`` (as in :meth:`topology.KStream.print`) is not a terminal, each record is a line. ``title`` None: the
        step's name. All tasks of a process share one table, and the step's subtopology runs record by record. Raises
        TopologyError for a size below 1.
        """
        stream_steps.print_table(self._planned, size, title, by_key, to, name)

    @overload
    def try_map_values(
        self, fn: Callable[[V], V2], *, with_key: Literal[False] = False, name: str | None = None
    ) -> tuple[KStream[K, V2], KStream[K, FailedValue[V]]]: ...
    @overload
    def try_map_values(
        self, fn: Callable[[K, V], V2], *, with_key: Literal[True], name: str | None = None
    ) -> tuple[KStream[K, V2], KStream[K, FailedValue[V]]]: ...
    def try_map_values(
        self, fn: Function, *, with_key: bool = False, name: str | None = None
    ) -> tuple[KStream[K, Any], KStream[K, FailedValue[V]]]:
        """Two streams: values mapped as by ``map_values``, and the values for which ``fn`` raised, with the error.

        Errors do not reach the exception handler. ``name`` names the steps: ``<name>``, ``<name>-ok``,
        ``<name>-failed`` and so on.
        """
        mapped, failed = stream_steps.try_map_values(self._planned, fn, with_key, name)
        return KStream(mapped), KStream(failed)

    def map_batches(
        self,
        fn: Callable[[Any], Any],
        *,
        frame: Frame = "arrow",
        unpack: bool = False,
        keeps_keys: bool = False,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Calls ``fn`` with many records at once, as a ``pyarrow.Table`` or a pandas ``DataFrame`` (``frame``).

        Columns are ``key``, ``value`` and ``timestamp`` (epoch milliseconds). With ``unpack``, values are mappings and
        their fields are columns beside ``key`` and ``timestamp``. The result has the same columns and any number of
        rows, which are forwarded in their order; headers are dropped. If ``fn`` raises, it is called again with halves
        of the batch, so that the exception handler gets only the failing records. ``keeps_keys``: the function does not
        change keys, so later operators need no repartitioning.
        """
        return KStream(batches.map_batches(self._planned, fn, frame, name, unpack=unpack, keeps_keys=keeps_keys))

    @overload
    def map_async(
        self,
        fn: Callable[[V], Awaitable[V2]],
        *,
        concurrency: int = 32,
        ordered: bool = True,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[K, V], Awaitable[V2]],
        *,
        concurrency: int = 32,
        ordered: bool = True,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_async(
        self,
        fn: Callable[..., Awaitable[Any]],
        *,
        concurrency: int = 32,
        ordered: bool = True,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        with_key: bool = False,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Replaces each value by ``await fn(value)``, with up to ``concurrency`` calls at a time in each task.

        ``fn`` may be any function that returns an awaitable. ``ordered``: results are forwarded in the order of the records,
        otherwise as they arrive. A call that raises or takes longer than ``timeout`` is retried ``retries`` times with
        exponential ``backoff``; then the exception handler decides. A slow call does not block others: more records are read
        meanwhile, and results after it in order wait. A commit waits for pending calls; the end of the instance only for
        those that run, where that is safe (``docs/running.md``). The call is repeated for records that are read again.
        """
        return KStream(
            batches.map_async(
                self._planned,
                fn,
                concurrency=concurrency,
                ordered=ordered,
                timeout=timeout,
                retries=retries,
                backoff=backoff,
                with_key=with_key,
                name=name,
            )
        )

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[V, VT], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[K, V, VT], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[V, VT], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[K, V, VT], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def join(
        self,
        other: KStream[K, VO] | KTable[K, VT] | GlobalKTable[Any, VT],
        joiner: Function,
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: AnySerde = None,
        store: JoinStores = None,
        grace: Duration | None = None,
    ) -> KStream[K, Any]:
        """Joins with the records of another stream, or looks up each record's key in a table.

        ``joiner(value, other value)`` gets the key first with ``with_key``. ``name`` names the steps and the
        repartition topics; ``key``, ``value``, ``other_value`` are serdes for stores and repartition topics. The topics
        of both sides need equal partition counts.

        A **stream** needs ``windows``: all pairs of records with the same key whose timestamps are within the window
        are joined. A result has the later timestamp. ``store``: the common prefix of the stores' names; a
        :class:`Store` that also says whether they are in memory and logged; or two stores of kind ``window`` that
        retain duplicates.

        With a **global table**, ``on(key, value)`` returns the key to look up. Otherwise it works as with a table, but
        nothing is repartitioned and the stream keeps its key.

        With a **table**, a record without a match, without a key or without a value is dropped. A result has the
        timestamp of the stream's record. ``grace`` needs a versioned table: a record waits that long, in stream time,
        and is joined with the row that was valid at its timestamp.
        """
        join = StreamJoin(
            operator="join",
            kind="inner",
            joiner=joiner,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
            on=on,
            grace=grace,
        )
        return KStream(stream_joins.join(self._planned, _planned(other, KStream, KTable, GlobalKTable), windows, join))

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[V, VT | None], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[K, V, VT | None], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[V, VT | None], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[K, V, VT | None], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def left_join(
        self,
        other: KStream[K, VO] | KTable[K, VT] | GlobalKTable[Any, VT],
        joiner: Function,
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: AnySerde = None,
        store: JoinStores = None,
        grace: Duration | None = None,
    ) -> KStream[K, Any]:
        """As :meth:`join`, but a record of this stream without a match is joined with None.

        With a stream, such a result is forwarded when stream time has passed the record's window and the grace period.
        A record without a key is joined with None immediately.
        """
        join = StreamJoin(
            operator="left_join",
            kind="left",
            joiner=joiner,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
            on=on,
            grace=grace,
        )
        return KStream(stream_joins.join(self._planned, _planned(other, KStream, KTable, GlobalKTable), windows, join))

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Function,
        windows: JoinWindows,
        *,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, Any]:
        """As :meth:`left_join` with a stream, but for both sides: records of either stream without a match are results."""
        join = StreamJoin(
            operator="outer_join",
            kind="outer",
            joiner=joiner,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
        )
        return KStream(stream_joins.join(self._planned, _planned(other, KStream, KTable, GlobalKTable), windows, join))

    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        within: Duration,
        *,
        how: Literal["inner"] = "inner",
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        within: Duration,
        *,
        how: Literal["left"],
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        within: Duration,
        *,
        how: Literal["inner"] = "inner",
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        within: Duration,
        *,
        how: Literal["left"],
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Function,
        within: Duration,
        *,
        how: How = "inner",
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, Any]:
        """Joins each record with the latest record of ``other`` with the same key that is at most ``within`` older.

        ``joiner(value, other value)`` gets the key first with ``with_key``. ``how`` "inner": a record without a match
        is dropped; "left": it is joined with None. A result has the timestamp and headers of this stream's record. If
        several records of ``other`` have the same timestamp, the last one to arrive counts.

        ``grace``: a record waits until stream time (of both streams together) is that far ahead of it, so that late
        records of ``other`` are found; 0: it is joined when it arrives. Later records do not change a result. ``keep``:
        how long records of ``other`` are kept, in stream time; None: twice ``within``, plus ``grace``. An out-of-order
        record of this stream is joined with what was valid at its timestamp if it is at most ``keep - within`` behind
        stream time. Older ones, and records of ``other`` older than ``keep``, are dropped as late
        (:meth:`topology.KStream.late`).

        ``store``: the common prefix of the stores' names, or a :class:`Store` that also says whether they are in memory
        and logged. Durations are timedelta or int milliseconds. Raises WindowError, TopologyError. Source: pandas'
        merge_asof.
        """
        join = StreamAsofJoin(
            joiner=joiner,
            within=within,
            how=how,
            grace=grace,
            keep=keep,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
        )
        return KStream(join_asof(self._planned, _planned(other, KStream), join))

    @overload
    def join_lookup(
        self,
        lookup: Callable[[list[K3]], Mapping[K3, V3] | Awaitable[Mapping[K3, V3]]],
        joiner: Callable[[V, V3], V2],
        *,
        on: Callable[[K, V], K3 | None],
        how: Literal["inner"] = "inner",
        ttl: Duration = 60_000,
        max_entries: int = 10_000,
        batch: int = 500,
        concurrency: int = 4,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_lookup(
        self,
        lookup: Callable[[list[K3]], Mapping[K3, V3] | Awaitable[Mapping[K3, V3]]],
        joiner: Callable[[V, V3 | None], V2],
        *,
        on: Callable[[K, V], K3 | None],
        how: Literal["left"],
        ttl: Duration = 60_000,
        max_entries: int = 10_000,
        batch: int = 500,
        concurrency: int = 4,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def join_lookup(
        self,
        lookup: Function,
        joiner: Function,
        *,
        on: Callable[[K, V], Any],
        how: Literal["inner", "left"] = "inner",
        ttl: Duration = 60_000,
        max_entries: int = 10_000,
        batch: int = 500,
        concurrency: int = 4,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Joins each record with what ``lookup`` finds for the key that ``on(key, value)`` returns.

        ``lookup(keys)`` gets a list of at most ``batch`` distinct keys and returns a mapping with those that it found;
        it may be ``async``. The result is ``joiner(value, found)`` with the record's key, in the order of the records.
        If nothing is found or ``on`` returns None, the record is dropped, or with ``how="left"`` the result is
        ``joiner(value, None)``. Records without a value are always dropped.

        Each task caches up to ``max_entries`` answers, including those for missing keys, for ``ttl`` by the wall clock
        (0: no cache). For an async lookup: ``concurrency`` calls at a time, and ``timeout``, ``retries`` and
        ``backoff`` as in :meth:`map_async`. If a call fails, each record that waits for it fails, and the processing
        exception handler decides. Durations: timedelta or int milliseconds. Raises TopologyError for numbers out of
        range.
        """
        return KStream(
            lookup_joins.join_lookup(
                self._planned,
                lookup,
                joiner,
                on,
                how=how,
                ttl=ttl,
                max_entries=max_entries,
                batch=batch,
                concurrency=concurrency,
                timeout=timeout,
                retries=retries,
                backoff=backoff,
                name=name,
            )
        )


class BranchedKStream(Generic[K, V]):
    """A split under construction. Source: org.apache.kafka.streams.kstream.BranchedKStream."""

    __slots__ = ("_planned", "_step", "_streams")

    def __init__(self, planned: PlannedStream, step: SplitStep) -> None:
        self._planned = planned
        self._step = step
        self._streams: dict[str, KStream[K, V]] = {}

    def branch(self, predicate: Predicate[K, V], *, name: str | None = None) -> BranchedKStream[K, V]:
        """Adds a branch for records for which ``predicate(key, value)`` is true and that match no earlier branch."""
        self._branch(predicate, name, len(self._step.predicates) + 1)
        return self

    def default_branch(self, *, name: str | None = None) -> dict[str, KStream[K, V]]:
        """Ends the split with a branch for all other records. Returns the branches by full name, in order."""
        self._branch(NO_FUNCTION, name, 0)
        return dict(self._streams)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Ends the split and drops all other records. Returns the branches by full name, in order."""
        return dict(self._streams)

    def _branch(self, predicate: object, name: str | None, index: int) -> KStream[K, V]:
        taken = stream_steps.branch(self._planned, self._step, predicate, name, index)
        self._streams[taken.step.name] = KStream(taken)
        return self._streams[taken.step.name]


class KTable(Generic[K, V]):
    """A table with keys of type ``K`` and values of type ``V``."""

    __slots__ = ("_planned",)

    def __init__(self, planned: PlannedTable) -> None:
        self._planned = planned

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store for queries, or None if the table cannot be queried."""
        return self._planned.queryable_store_name

    def filter(
        self,
        predicate: Predicate[K, V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """Keeps the rows for which ``predicate(key, value)`` is true; the others are deleted downstream."""
        return KTable(table_steps.filter_rows(self._planned, predicate, (name, store, key, value), negate=False))

    def filter_not(
        self,
        predicate: Predicate[K, V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """Keeps the rows for which ``predicate(key, value)`` is false; the others are deleted downstream."""
        return KTable(table_steps.filter_rows(self._planned, predicate, (name, store, key, value), negate=True))

    @overload
    def map_values(
        self,
        fn: Callable[[V], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        fn: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        fn: Function,
        *,
        with_key: bool = False,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: AnySerde = None,
    ) -> KTable[K, Any]:
        """Replaces each value by ``fn(value)``, or by ``fn(key, value)`` with ``with_key``. Deletions stay deletions."""
        return KTable(table_steps.map_values(self._planned, fn, with_key, (name, store, key, value)))

    @overload
    def to_stream(self, mapper: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, mapper: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    def to_stream(
        self, mapper: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[K, V] | KStream[Any, V]:
        """The changes of the table as a stream of its new values; a deletion has the value None.

        The stream's values have the type of the table's, because most aggregates delete nothing and a type checker
        cannot see that a ``filter`` removed None. If rows can be deleted (topics as tables, ``filter``, joins), later
        functions get None too.

        ``mapper(key, value)`` returns the key of the stream's record, as ``to_stream().select_key(mapper)`` does.
        """
        stream: KStream[K, V] = KStream(table_steps.to_stream(self._planned, mapper, name))
        return stream if mapper is None else stream.select_key(mapper)

    def group_by(
        self,
        fn: Callable[[K, V], tuple[K2, V2]],
        *,
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Groups the rows by the key of ``fn(key, value) -> (key, value)``; ``name`` also names the repartition topic.

        A row whose new key or value is None is in no group. ``key``, ``value``: serdes of what ``fn`` returns.
        """
        return KGroupedTable(table_steps.group_by(self._planned, fn, name, key, value))

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """Forwards fewer changes of the table, as ``suppressed`` says.

        Raises TopologyError for final results of a table that has no windows which close.
        """
        return KTable(table_steps.suppress(self._planned, suppressed, name))

    @overload
    def late(self, *, name: str | None = None, key: None = None, value: None = None) -> KStream[Any, Any]: ...
    @overload
    def late(self, *, name: str | None = None, key: None = None, value: Serde[V2]) -> KStream[Any, V2]: ...
    @overload
    def late(self, *, name: str | None = None, key: Serde[K2], value: Serde[V2]) -> KStream[K2, V2]: ...
    def late(self, *, name: str | None = None, key: AnySerde = None, value: AnySerde = None) -> KStream[Any, Any]:
        """The records that the windowed aggregation of this table dropped as late, unchanged.

        A record is late if none of its windows took it. After ``suppress`` with ``idle_timeout``: changes of windows
        that were already closed. ``key``, ``value``: serdes of those records, if not known. Raises TopologyError if the
        table's operator drops no late records, or if they have been taken already.
        """
        return KStream(late_records.late_of_table(self._planned, name, key, value))

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """Replaces each value by ``transform(key, value)`` of a transformer; ``supplier()`` makes one for each task.

        Deletions are transformed too. ``stores``: stores that the transformer may use, by name or as a Store.
        """
        return KTable(table_steps.transform_values(self._planned, supplier, stores, (name, store, key, value)))

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], R],
        *,
        foreign_key: None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], R],
        *,
        foreign_key: Callable[[V], KO | None],
        other_partitioner: Partitioner[KO, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., R],
        *,
        foreign_key: Callable[[V], Any] | None = None,
        other_partitioner: Partitioner[Any, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]:
        """The table of ``joiner(value, other value)`` for the keys that both tables have.

        ``name`` names the steps; ``store`` stores the result, with the serdes ``key`` and ``value``. The topics of both
        sides need equal partition counts. A result has the later timestamp of the two rows.

        With ``foreign_key(value)`` each row is joined with the row of ``other`` that has this key. The tables may have
        different keys and partition counts. Both go through internal topics. A row without a foreign key is dropped.
        ``other_partitioner(topic, foreign key, None, partitions)``: the partition of a row of ``other``, if its topic
        was not written with the default partitioner. The answer is always sent to the partition of the left row.
        """
        right, options = _planned(other, KTable), (name, store, key, value)
        return KTable(
            table_joins.join(self._planned, "join", "inner", right, joiner, options, foreign_key, other_partitioner)
        )

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], R],
        *,
        foreign_key: None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], R],
        *,
        foreign_key: Callable[[V], KO | None],
        other_partitioner: Partitioner[KO, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., R],
        *,
        foreign_key: Callable[[V], Any] | None = None,
        other_partitioner: Partitioner[Any, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]:
        """As :meth:`join`, for every key of this table; the other value is None if the other table has no such row.

        This includes rows whose ``foreign_key(value)`` is None.
        """
        right, options = _planned(other, KTable), (name, store, key, value)
        return KTable(
            table_joins.join(self._planned, "left_join", "left", right, joiner, options, foreign_key, other_partitioner)
        )

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], R],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]:
        """As :meth:`join`, for every key that either table has; a missing value is None."""
        right, options = _planned(other, KTable), (name, store, key, value)
        return KTable(table_joins.join(self._planned, "outer_join", "outer", right, joiner, options))


class StreamAggregations(Generic[K, V, KR]):
    """The aggregations of grouped streams, with and without windows: tables with keys of type ``KR``."""

    __slots__ = ("_planned", "_windowing")

    def __init__(self, planned: PlannedGroup, windowing: Windowing | None = None) -> None:
        self._planned = planned
        self._windowing = windowing or Windowing()

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[KR, int]:
        """The number of records of each key and window. Without windows, records with a null value are not counted."""
        return KTable(grouping.count(self._planned, (name, store, key, value), self._windowing))

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[KR, V]:
        """``reducer(aggregate, value)`` over the values of each key, in each window or session.

        The first value is the first aggregate.
        """
        return KTable(grouping.reduce(self._planned, reducer, (name, store, key, value), self._windowing))


class WindowedAggregations(StreamAggregations[K, V, Windowed[K]]):
    """A grouped stream with windows or sessions. Unlike without windows, null values are aggregated too."""

    __slots__ = ()

    def emit_strategy(self, strategy: EmitStrategy, *, idle_timeout: Duration | None = None) -> Self:
        """The same windows, with the :class:`EmitStrategy` that decides when results are forwarded.

        ``idle_timeout``, with ``ON_WINDOW_CLOSE``: if the input partitions have had no records for that long, by the
        wall clock, all open windows are closed, as if stream time had advanced. Later records for them are late.
        Timedelta or int milliseconds.

        Raises UnsupportedError for windows that never close, TopologyError for an invalid strategy, and WindowError for
        an ``idle_timeout`` below 1 ms.
        """
        return type(self)(self._planned, self._windowing.emitting(strategy, idle_timeout))


class KGroupedStream(StreamAggregations[K, V, K]):
    """A stream whose records are grouped by key, ready to be aggregated."""

    __slots__ = ()

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows | UnlimitedWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: CountWindows) -> CountWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: AnyWindows | CountWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V] | CountWindowedKStream[K, V]:
        """Divides each group into windows of event time, sessions or count windows."""
        if isinstance(windows, CountWindows):
            return CountWindowedKStream(self._planned, windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._planned, Windowing(windows))
        if not isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            raise UnsupportedError(
                f"windowed_by() takes TimeWindows, SlidingWindows, UnlimitedWindows, SessionWindows or "
                f"CountWindows, not {windows!r}",
                call_site(),
            )
        return TimeWindowedKStream(self._planned, Windowing(windows))

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Starts an aggregation of several groups; ``aggregator(key, value, aggregate)`` is for the values of this one."""
        return CogroupedKStream[K, A](()).cogroup(self, aggregator)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[K, A]:
        """``aggregator(key, value, aggregate)`` over the values of each key, starting with ``initializer()``.

        A result of None deletes the row. ``value``: serde of the aggregate.
        """
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KTable(grouping.aggregate(self._planned, functions, options, self._windowing))


class TimeWindowedKStream(WindowedAggregations[K, V]):
    """A grouped stream with time windows. Unlike without windows, null values are aggregated too."""

    __slots__ = ()

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """``aggregator(key, value, aggregate)`` over the values of each key and window, starting with ``initializer()``."""
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KTable(grouping.aggregate(self._planned, functions, options, self._windowing))


class SessionWindowedKStream(WindowedAggregations[K, V]):
    """A grouped stream with session windows. Unlike without windows, null values are aggregated too."""

    __slots__ = ()

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """``aggregator(key, value, aggregate)`` over the values of each key and session, starting with ``initializer()``.

        ``merger(key, aggregate, aggregate)`` merges the aggregates of two sessions, starting with the initial one.
        """
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KTable(grouping.aggregate_sessions(self._planned, functions, merger, options, self._windowing))


class CountWindowedKStream(Generic[K, V]):
    """A grouped stream with count windows. Records without a key or a value are dropped."""

    __slots__ = ("_planned", "_windows")

    def __init__(self, planned: PlannedGroup, windows: CountWindows) -> None:
        self._planned = planned
        self._windows = windows

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        close_when: Predicate[K, V] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KStream[K, V]:
        """``reducer(aggregate, value)`` over each window's records; the first value is the first aggregate.

        The result is forwarded when the window closes, with the latest timestamp of its records. ``close_when(key,
        aggregate)`` is called after each record and closes the window early if it returns true.
        """
        options = (name, store, key, value)
        return KStream(count_windowing.reduce(self._planned, self._windows, reducer, close_when, options))

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        close_when: Predicate[K, A] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KStream[K, A]:
        """``aggregator(key, value, aggregate)`` over each window's records, starting with ``initializer()``.

        As :meth:`reduce`; ``value``: serde of the aggregate.
        """
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KStream(count_windowing.aggregate(self._planned, self._windows, functions, close_when, options))


class CogroupedKStream(Generic[K, A]):
    """Grouped streams of one key type that are aggregated together into values of type ``A``."""

    __slots__ = ("_members",)

    def __init__(self, members: tuple[Member, ...]) -> None:
        self._members = members

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Adds a group, with ``aggregator(key, value, aggregate)`` for its values."""
        if not isinstance(grouped, KGroupedStream):
            raise UnsupportedError(f"cogroup() takes a grouped stream, not {grouped!r}", call_site())
        return CogroupedKStream(cogrouping.add_member(self._members, grouped._planned, aggregator))

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedCogroupedKStream[K, A]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, A]: ...
    def windowed_by(
        self, windows: AnyWindows
    ) -> TimeWindowedCogroupedKStream[K, A] | SessionWindowedCogroupedKStream[K, A]:
        """Divides each group into windows of event time or sessions."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._members, Windowing(windows))
        if not isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            raise UnsupportedError(
                f"windowed_by() takes TimeWindows, SlidingWindows, UnlimitedWindows or SessionWindows, not {windows!r}",
                call_site(),
            )
        return TimeWindowedCogroupedKStream(self._members, Windowing(windows))

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[K, A]:
        """The aggregate of each key over all groups, starting with ``initializer()``. ``value``: serde of the aggregate."""
        return KTable(cogrouping.aggregate(self._members, initializer, (name, store, key, value), Windowing()))


class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams with time windows."""

    __slots__ = ("_members", "_windowing")

    def __init__(self, members: tuple[Member, ...], windowing: Windowing) -> None:
        self._members = members
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """The aggregate of each key and window over all groups, starting with ``initializer()``."""
        options = (name, store, key, value)
        return KTable(cogrouping.aggregate(self._members, initializer, options, self._windowing))


class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams with session windows."""

    __slots__ = ("_members", "_windowing")

    def __init__(self, members: tuple[Member, ...], windowing: Windowing) -> None:
        self._members = members
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """The aggregate of each key and session over all groups; ``merger(key, aggregate, aggregate)`` merges sessions."""
        options = (name, store, key, value)
        return KTable(cogrouping.aggregate_sessions(self._members, initializer, merger, options, self._windowing))


class KGroupedTable(Generic[K, V]):
    """A table whose rows are grouped under another key, ready to be aggregated."""

    __slots__ = ("_planned",)

    def __init__(self, planned: PlannedTableGroup) -> None:
        self._planned = planned

    def count(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[int] | None = None,
    ) -> KTable[K, int]:
        """The number of rows of each group."""
        return KTable(table_grouping.count(self._planned, (name, store, key, value)))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """``adder(aggregate, value)`` for each row added, ``subtractor(aggregate, value)`` for each row removed."""
        return KTable(table_grouping.reduce(self._planned, adder, subtractor, (name, store, key, value)))

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[K, A]:
        """``adder(key, value, aggregate)`` for each row added, ``subtractor(...)`` for each row removed.

        Starts with ``initializer()``. ``value``: serde of the aggregate.
        """
        functions, options = (initializer, adder, subtractor), (name, store, key, value)
        return KTable(table_grouping.aggregate(self._planned, functions, options))


def _planned(other: object, *kinds: type[KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any]]) -> object:
    """The planned value of the other side of an operator; an object of another kind is returned as it is, to be refused."""
    return other._planned if isinstance(other, kinds) else other
