"""Streams, tables and groups: what a program calls operators of.

1. An operator adds one step to the plan and returns a new value; nothing runs, and what it is called on does not change.
2. These classes return each other, so their types are in one place. What a call adds to the plan is in the modules below.
3. ``name=`` names the step. Functions take ``(key, value)`` where Kafka Streams' do; ``with_key=True`` gives the operators
   of values the key too.

Source: org.apache.kafka.streams.kstream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar, overload

from topology.build.join_stores import JoinStores
from topology.build.plan import SplitStep
from topology.build.planned import PlannedGroup, PlannedStream, PlannedTable
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
        """The records for which ``predicate(key, value)`` is true."""
        return KStream(self._planned.then("filter", "KSTREAM-FILTER-", name, predicate, Filter(predicate=predicate)))

    def filter_not(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records for which ``predicate(key, value)`` is false."""
        operation = Filter(predicate=predicate, negate=True)
        return KStream(self._planned.then("filter_not", "KSTREAM-FILTER-", name, predicate, operation))

    def peek(self, fn: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Calls ``fn(key, value)`` for each record and passes the record on."""
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

        ``label`` None: the step's name. ``mapper(key, value)`` makes another text. ``to``: a text file that is open; None:
        standard output. ``every``: prints the first record and then each so many-th, of what this process sees. Raises
        TopologyError for an ``every`` below 1. Source: org.apache.kafka.streams.kstream.Printed.
        """
        stream_steps.print_records(self._planned, label, mapper, to, every, name)

    def map(self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """Each record becomes the ``(key, value)`` that ``fn(key, value)`` returns."""
        return KStream(self._planned.then("map", "KSTREAM-MAP-", name, fn, Map(fn=fn), new_key=True, new_value=True))

    def flat_map(self, fn: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None) -> KStream[K2, V2]:
        """Each record becomes the ``(key, value)`` pairs that ``fn(key, value)`` returns."""
        operation = FlatMap(fn=fn)
        return KStream(
            self._planned.then("flat_map", "KSTREAM-FLATMAP-", name, fn, operation, new_key=True, new_value=True)
        )

    def select_key(self, fn: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]:
        """Each record gets the key that ``fn(key, value)`` returns."""
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
        """Each value becomes ``fn(value)``, or ``fn(key, value)`` where ``with_key``."""
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
        """Each value becomes the values of ``fn(value)``, or ``fn(key, value)`` where ``with_key``."""
        operation = FlatMapValues(fn=fn, with_key=with_key)
        prefix = "KSTREAM-FLATMAPVALUES-"
        return KStream(self._planned.then("flat_map_values", prefix, name, fn, operation, new_value=True))

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no order between them. Serdes are kept where both streams have the same."""
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

        ``default``: one stream more, for the records that no predicate takes; without it they are dropped. ``names``: a
        name for each stream, put behind the split's ``name``.

            small, large, rest = orders.branch(is_small, is_large, default=True)
        """
        given = [None] * (len(predicates) + default) if names is None else list(names)
        if len(given) != len(predicates) + default:
            raise TopologyError(
                f"branch() makes {len(predicates) + default} streams but has {len(given)} names", call_site()
            )
        split = self.split(name=name)
        streams = [
            split._branch(predicate, branch_name, index + 1)
            for index, (predicate, branch_name) in enumerate(zip(predicates, given, strict=False))
        ]
        if default:
            streams.append(split._branch(None, given[-1], 0))
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
        """Writes the records to ``topic``, or to the topic that ``topic(key, value, context)`` names for each.

        ``partitioner(topic, key, value, partitions)`` returns a partition, or several (none of them: the record is dropped);
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
        """Sends the records through an internal topic, so that those of one key are in one partition.

        ``name``: of the topic, ``<application.id>-<name>-repartition``. ``partitions`` None: as many as the topics that the
        stream comes from. Records without a key are dropped. ``partitioner``: as of :meth:`to`.
        """
        return KStream(stream_steps.repartition(self._planned, name, key, value, partitions, partitioner))

    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """The stream grouped by its key. ``name``: of the repartition topic, where one is needed."""
        return KGroupedStream(stream_steps.group_by_key(self._planned, key, value, name))

    def group_by(
        self,
        fn: Callable[[K, V], K2],
        *,
        key: Serde[K2] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """The stream grouped by the key that ``fn(key, value)`` returns; goes through a repartition topic.

        ``name``: of the topic and of the step that makes the key.
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
        """The stream as a table: the newest value of each key; None deletes."""
        return KTable(stream_steps.to_table(self._planned, name, store, key, value))

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """User code for each record: ``supplier()`` makes one :class:`topology.Processor` for each task.

        ``stores``: names of stores added before, or stores to add. What it forwards may have any key, so that a grouping or
        join behind it goes through a repartition topic.
        """
        return KStream(stream_steps.process(self._planned, supplier, stores, name, fixed_key=False))

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
    ) -> KStream[K, V2]:
        """As :meth:`process`, with a processor that keeps each record's key."""
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
        """What the join of two streams that made this stream did not keep of one side, since it came too late.

        A record of a join within windows is joined with what the other side's store still has, and belongs here where its
        own store does not keep it: what comes after it does not meet it. ``value``: serde of that side's values. Raises
        TopologyError for a stream that is not the result of such a join, and where these records have been taken already.
        """
        return KStream(late_records.late_of_join(self._planned, side, name, key, value))

    def deduplicate(
        self,
        id: Callable[[K, V], Any],  # noqa: A002  # the word for it
        ttl: Duration,
        *,
        serde: Serde[Any],
        grace: Duration = 0,
        store: str | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Drops records whose ``id(key, value)`` came before within ``ttl`` of event time; exact under restarts.

        The first record of an id passes, then one again when ``ttl`` has gone by since the last that passed. An id of None
        always passes. Ids are remembered per partition: where records of one id have different keys, ``select_key`` and
        ``repartition`` come before. ``serde``: of the id. ``grace``: for how long after ``ttl`` an id is remembered for
        records that come late. Raises TopologyError for a ``ttl`` below 1 ms.
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
        """Shows the last ``size`` records as a table that is redrawn while the program runs; the stream ends here.

        Fields of values that are mappings are columns. ``by_key``: a row for each key, with its last record. Where ``to``
        (as of :meth:`topology.KStream.print`) is no terminal, each record is a line. ``title`` None: the step's name. One
        table has the records of all tasks of a process, and the step's subtopology runs record by record. Raises
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
        """Two streams: values mapped as by ``map_values``, and those for which ``fn`` raised, with the error.

        Nothing is raised and no exception handler is asked. ``name`` names the steps: ``<name>``, ``<name>-ok``,
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
        """``fn`` over many records at once, as a ``pyarrow.Table`` or a pandas ``DataFrame`` (``frame``).

        Columns are ``key``, ``value`` and ``timestamp`` (epoch milliseconds); with ``unpack`` values are mappings, and their
        fields are columns beside ``key`` and ``timestamp``. The result has the same form, with as many rows as it likes, in
        the order in which they go on; headers are dropped. Where ``fn`` raises, it is called again with halves of the batch,
        so that the exception handler is asked about the records that are to blame. ``keeps_keys``: the function promises to
        leave keys alone, so that no repartition is needed behind.
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
        """Each value becomes ``await fn(value)``; ``concurrency`` calls are under way at a time, within a task.

        ``ordered``: results go on in the order of the records, else as they come. A call that raises or takes longer than
        ``timeout`` is made again ``retries`` times, after ``backoff`` that doubles; then the exception handler is asked. A
        call that takes long holds up no other one: while it lasts more is read, and results that come after it in order
        wait. A commit, and so an end, waits for the calls that are under way, at most twice ``concurrency``; a record that
        is read again is asked again.
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
        """Joins with the records of another stream, or looks each record's key up in a table.

        ``joiner(value, other value)``, with the key first where ``with_key``. ``name`` names the steps and the repartition
        topics; ``key``, ``value``, ``other_value`` are the serdes of what is kept or repartitioned. The topics of both sides
        need equal partition counts.

        A **stream** needs ``windows``: all pairs of records of one key whose timestamps lie that near are joined, each with
        the later timestamp. ``store``: a name for the stores to begin with; a :class:`Store` that also says whether they are
        in memory and logged; or two stores of kind ``window`` that retain duplicates.

        With a **global table**, ``on(key, value)`` says under which key of the table the record's row is; the rest is as
        with a table, but that nothing is repartitioned and the stream keeps its key.

        With a **table**, a record without a match, without a key or without a value is dropped. A result has the timestamp
        of the stream's record. ``grace``: the table must keep versions; a record then waits that long, in stream time,
        and is joined with the row that the table had at its time.
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

        With a stream that is known, and the result flows, when the record's window and the grace period are over in stream
        time. A record without a key is joined with None at once.
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
        """As :meth:`left_join` with a stream, for both sides: a record of either stream without a match is a result."""
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
        """Joins each record with the latest one of ``other`` with its key, at or before its own time, ``within`` at most.

        ``joiner(value, other value)``, with the key first where ``with_key``. ``how`` "inner": a record without a match is
        dropped; "left": it is joined with None. A result has the timestamp and the headers of this stream's record; of
        several records of ``other`` with one time the last that came counts.

        ``grace``: a record waits until stream time (of both streams together) is that far beyond it, so that records of
        ``other`` which come late are found; 0: it is joined when it comes. What comes later than that does not change a
        result that is there. ``keep``: how long records of ``other`` are kept, of stream time; None: twice ``within``, plus
        ``grace``. A record of this stream that is out of order finds what was valid at its time, as long as it comes no
        later than ``keep - within`` behind stream time; a later one, and a record of ``other`` older than ``keep``, is
        dropped as late (:meth:`topology.KStream.late`).

        ``store``: a name for the stores to begin with, or a :class:`Store` that also says whether they are in memory and
        logged. Durations are timedelta or int milliseconds. Raises WindowError, TopologyError. Source: pandas' merge_asof.
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
        """Joins each record with what ``lookup`` knows of the key that ``on(key, value)`` returns.

        ``lookup(keys)`` is given a list of at most ``batch`` different keys and returns a mapping with those that it found;
        it may be ``async``. The result is ``joiner(value, found)``, under the record's key, in the order of the records.
        ``how="left"``: where nothing is found, or ``on`` returned None, ``joiner(value, None)``; else such records, and
        records without a value always, are dropped.

        Each task remembers ``max_entries`` answers, those of keys that are not there too, for ``ttl`` of the wall clock (0:
        none). For an async lookup: ``concurrency`` calls at a time, and ``timeout``, ``retries`` and ``backoff`` as of
        :meth:`map_async`. What a call raises is the failure of each record that waits for it: the processing exception
        handler decides. Durations: timedelta or int milliseconds. Raises TopologyError for numbers that make no sense.
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
        """Adds a branch for the records that no earlier branch takes and for which ``predicate(key, value)`` is true."""
        self._branch(predicate, name, len(self._step.predicates) + 1)
        return self

    def default_branch(self, *, name: str | None = None) -> dict[str, KStream[K, V]]:
        """Ends the split with a branch for the other records. The branches by full name, in order."""
        self._branch(None, name, 0)
        return dict(self._streams)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Ends the split; the other records are dropped. The branches by full name, in order."""
        return dict(self._streams)

    def _branch(self, predicate: Predicate[K, V] | None, name: str | None, index: int) -> KStream[K, V]:
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
        """The name of the store by which the table can be asked, or None."""
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
        """The rows for which ``predicate(key, value)`` is true; the others are deletions downstream."""
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
        """The rows for which ``predicate(key, value)`` is false; the others are deletions downstream."""
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
        """The table with each value ``fn(value)``, or ``fn(key, value)`` where ``with_key``. Deletions stay deletions."""
        return KTable(table_steps.map_values(self._planned, fn, with_key, (name, store, key, value)))

    @overload
    def to_stream(self, mapper: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, mapper: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    def to_stream(
        self, mapper: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[K, V] | KStream[Any, V]:
        """The changes of the table as a stream of its new values; a deletion is a None.

        Its values are typed as the table's: most aggregates delete nothing, and no type checker learns from a ``filter``
        that None is gone. Where rows may be deleted (topics as tables, ``filter``, joins), functions behind it get None too.

        ``mapper(key, value)``: the key of the stream's record, as with ``to_stream().select_key(mapper)``.
        """
        stream: KStream[K, V] = KStream(table_steps.to_stream(self._planned, name))
        return stream if mapper is None else stream.select_key(mapper)

    def group_by(
        self,
        fn: Callable[[K, V], tuple[K2, V2]],
        *,
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Groups the rows by the key of ``fn(key, value) -> (key, value)``; ``name`` names the repartition topic too.

        A row whose new key or value is None belongs to no group. ``key``, ``value``: serdes of what ``fn`` returns.
        """
        return KGroupedTable(table_steps.group_by(self._planned, fn, name, key, value))

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """The table with fewer changes: those that ``suppressed`` holds back are left out.

        Raises TopologyError where results are to be final and the table has no windows that close.
        """
        return KTable(table_steps.suppress(self._planned, suppressed, name))

    @overload
    def late(self, *, name: str | None = None, key: None = None, value: None = None) -> KStream[Any, Any]: ...
    @overload
    def late(self, *, name: str | None = None, key: None = None, value: Serde[V2]) -> KStream[Any, V2]: ...
    @overload
    def late(self, *, name: str | None = None, key: Serde[K2], value: Serde[V2]) -> KStream[K2, V2]: ...
    def late(self, *, name: str | None = None, key: AnySerde = None, value: AnySerde = None) -> KStream[Any, Any]:
        """The records that the windowed aggregation which made this table dropped as too late, as they came to it.

        A record belongs here where none of its windows took it. Behind ``suppress`` with ``idle_timeout``: the changes of
        windows that were closed already. ``key``, ``value``: serdes of those records, where they are not known. Raises
        TopologyError for a table whose operator drops nothing as late, and where the records have been taken already.
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
        """The table with each value ``transform(key, value)`` of a transformer; ``supplier()`` makes one per task.

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

        ``name`` names the steps; ``store`` keeps the result, with the serdes ``key`` and ``value``. The topics of both sides
        need equal partition counts. A result has the later timestamp of the two rows.

        With ``foreign_key(value)`` each row is joined with the row of ``other`` under that key: the tables need not have the
        same keys, nor partitions. Both go through internal topics. A row without a foreign key is dropped.
        ``other_partitioner(topic, foreign key, None, partitions)``: where the rows of ``other`` are, if its topic was not
        written by the default partitioner. An answer always finds back to the partition that its row is in.
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
        """As :meth:`join`, for every key of this table; the other value is None where the other table has none.

        With a foreign key that is so too for rows whose ``foreign_key(value)`` is None.
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
        """As :meth:`join`, for every key that one of the tables has; the value that is missing is None."""
        right, options = _planned(other, KTable), (name, store, key, value)
        return KTable(table_joins.join(self._planned, "outer_join", "outer", right, joiner, options))


class StreamAggregations(Generic[K, V, KR]):
    """What every grouped stream can be made into: a table whose keys are of type ``KR``, with windows or without."""

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
        """The number of records of each key, in each window or session.

        Records with a null value are counted within windows and sessions only.
        """
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
    """A grouped stream cut into windows or sessions. Unlike without, null values are aggregated too."""

    __slots__ = ()

    def emit_strategy(self, strategy: EmitStrategy, *, idle_timeout: Duration | None = None) -> Self:
        """The same windows; :class:`EmitStrategy` says when their results are forwarded.

        Raises UnsupportedError for windows that never close. Raises TopologyError for a value that is no strategy.

        ``idle_timeout``, with ``ON_WINDOW_CLOSE``: when the partitions behind the windows have brought no record for so
        long, by the wall clock, all that is open is closed, as if stream time had moved on. What would belong to it is late
        from then on. Timedelta or int milliseconds. Raises WindowError for one below 1 ms.
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
        """The group cut into windows of event time, into sessions, or into count windows."""
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
        """Begins an aggregation of several groups; ``aggregator(key, value, aggregate)`` is for the values of this one."""
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
        """``aggregator(key, value, aggregate)`` over the values of each key, beginning with ``initializer()``.

        A result of None deletes the row. ``value``: serde of the aggregate.
        """
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KTable(grouping.aggregate(self._planned, functions, options, self._windowing))


class TimeWindowedKStream(WindowedAggregations[K, V]):
    """A grouped stream cut into windows. Unlike without windows, null values are aggregated too."""

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
        """``aggregator(key, value, aggregate)`` over the values of each key and window, from ``initializer()`` on."""
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KTable(grouping.aggregate(self._planned, functions, options, self._windowing))


class SessionWindowedKStream(WindowedAggregations[K, V]):
    """A grouped stream cut into sessions. Unlike without windows, null values are aggregated too."""

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
        """``aggregator(key, value, aggregate)`` over the values of each key and session, from ``initializer()`` on.

        Where sessions meet, ``merger(key, aggregate, aggregate)`` makes one of the two, the initial one first.
        """
        functions, options = (initializer, aggregator), (name, store, key, value)
        return KTable(grouping.aggregate_sessions(self._planned, functions, merger, options, self._windowing))


class CountWindowedKStream(Generic[K, V]):
    """A grouped stream cut into count windows. Records without a key or a value are dropped."""

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
        """``reducer(aggregate, value)`` over each window's records, the first value being the first aggregate.

        Forwarded when the window closes, with the latest timestamp of its records. ``close_when(key, aggregate)``: whether
        a window closes before it is full; it is asked after each of its records.
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
        """``aggregator(key, value, aggregate)`` over each window's records, from ``initializer()`` on.

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
        """One more group, with ``aggregator(key, value, aggregate)`` for its values."""
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
        """The groups cut into windows of event time, or into sessions."""
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
        """The aggregate of each key over all groups, from ``initializer()`` on. ``value``: serde of the aggregate."""
        return KTable(cogrouping.aggregate(self._members, initializer, (name, store, key, value), Windowing()))


class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams cut into windows."""

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
        """The aggregate of each key and window over all groups, from ``initializer()`` on."""
        options = (name, store, key, value)
        return KTable(cogrouping.aggregate(self._members, initializer, options, self._windowing))


class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams cut into sessions."""

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
        """The aggregate of each key and session over all groups; ``merger(key, aggregate, aggregate)`` joins sessions."""
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
        """``adder(aggregate, value)`` for each row that comes, ``subtractor(aggregate, value)`` for each that goes."""
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
        """``adder(key, value, aggregate)`` for each row that comes, ``subtractor(...)`` for each that goes.

        It begins with ``initializer()``. ``value``: serde of the aggregate.
        """
        functions, options = (initializer, adder, subtractor), (name, store, key, value)
        return KTable(table_grouping.aggregate(self._planned, functions, options))


def _planned(other: object, *kinds: type[KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any]]) -> object:
    """What the plan has of the other side of an operator; what is of none of these kinds stays, to be refused."""
    return other._planned if isinstance(other, kinds) else other
