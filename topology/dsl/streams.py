"""KStream: a stream of records, and what can be said of it.

1. An operator adds one step to the plan and returns a new value; nothing runs, and the stream itself does not change.
2. An operator that may change the key marks what follows: the next one that needs records of a key in one place
   (grouping, join, table) puts a repartition topic in between.
3. The key's serde is kept while the key is, the value's while the value is. Behind an operator that may change the type, the
   serde is the one that the program names, else the application's default, else the one from before: it refuses values that
   are of another type after all.
4. ``name=`` names the step. Functions take ``(key, value)`` where Kafka Streams' do; ``with_key=True`` gives the operators
   of values the key too.

Source: org.apache.kafka.streams.kstream.KStream and KStreamImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from topology.build.materialize import added_store, as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import (
    Carried,
    LateSource,
    OperatorStep,
    Plan,
    PlannedStore,
    RepartitionStep,
    SinkStep,
    SplitStep,
    Step,
    TableState,
    TableStep,
)
from topology.dsl.printing import Output, Printer
from topology.dsl.stream_extras import StreamExtras
from topology.dsl.stream_joins import StreamJoins
from topology.graph.operations import (
    Filter,
    FlatMap,
    FlatMapValues,
    ForEach,
    Map,
    MapValues,
    Operation,
    PassThrough,
    Peek,
    Process,
    SelectKey,
    TableSource,
)
from topology.graph.operations.batches import MapBatches
from topology.spec.codecs import Serde
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import (
    NOTHING,
    OF_PARTITIONER,
    OF_RECORD,
    OF_TOPIC,
    Partitioner,
    Predicate,
    TopicExtractor,
    check_function,
    of_values,
)
from topology.spec.names import REPARTITION_SUFFIX, check_name, is_generated_prefix
from topology.spec.processor import FixedKeyProcessor, Processor
from topology.spec.stores import Store

if TYPE_CHECKING:
    from topology.dsl.grouped import KGroupedStream
    from topology.dsl.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


def add_repartition(
    plan: Plan,
    parent: Step,
    prefix: str,
    key: Carried,
    value: Carried,
    *,
    partitioner: Callable[..., Any] | None = None,
    partitions: int | None = None,
) -> RepartitionStep:
    """A repartition behind ``parent`` whose topic is named by ``prefix``; not yet added to the plan."""
    topic = prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX
    sink, null_keys, source = (plan.number(f"KSTREAM-{kind}-") for kind in ("SINK", "FILTER", "SOURCE"))
    if not is_generated_prefix(prefix):
        sink, null_keys, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return RepartitionStep(
        name=source,
        site=call_site(),
        parents=(parent,),
        topic=topic,
        sink_name=sink,
        filter_name=null_keys,
        key=key,
        value=value,
        partitioner=partitioner,
        partitions=partitions,
        is_mergeable=True,
    )


class KStream(StreamExtras[K, V], StreamJoins[K, V]):
    """A stream of records with keys of type ``K`` and values of type ``V``."""

    __slots__ = ("_joined_through", "_key", "_late", "_plan", "_repartition_required", "_sources", "_step", "_value")

    def __init__(
        self, plan: Plan, step: Step, key: Carried, value: Carried, sources: frozenset[str], repartition_required: bool
    ) -> None:
        self._plan = plan
        self._step = step
        self._key = key
        self._value = value
        self._sources = sources
        self._repartition_required = repartition_required
        self._joined_through: RepartitionStep | None = None
        self._late: Mapping[str, LateSource] = {}

    # ------------------------------------------------------------------------------------------------- stateless

    def filter(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records for which ``predicate(key, value)`` is true."""
        return self._same_types("filter", "KSTREAM-FILTER-", name, predicate, Filter(predicate=predicate))

    def filter_not(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records for which ``predicate(key, value)`` is false."""
        operation = Filter(predicate=predicate, negate=True)
        return self._same_types("filter_not", "KSTREAM-FILTER-", name, predicate, operation)

    def peek(self, fn: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Calls ``fn(key, value)`` for each record and passes the record on."""
        return self._same_types("peek", "KSTREAM-PEEK-", name, fn, Peek(fn=fn))

    def foreach(self, fn: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Calls ``fn(key, value)`` for each record; the stream ends here."""
        self._operator("foreach", "KSTREAM-FOREACH-", name, fn, ForEach(fn=fn))

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
        if mapper is not None:
            check_function(mapper, "print", OF_RECORD)
        own = self._plan.named(_checked(name), "KSTREAM-PRINTER-")
        printer = Printer(own if label is None else label, mapper, to, every)
        self._plan.add(OperatorStep(name=own, site=call_site(), parents=(self._step,), operation=ForEach(fn=printer)))

    def map(self, fn: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """Each record becomes the ``(key, value)`` that ``fn(key, value)`` returns."""
        step = self._operator("map", "KSTREAM-MAP-", name, fn, Map(fn=fn))
        return self._next(
            step, self._key.changed("map", step.site), self._value.changed("map", step.site), rekeyed=True
        )

    def flat_map(self, fn: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None) -> KStream[K2, V2]:
        """Each record becomes the ``(key, value)`` pairs that ``fn(key, value)`` returns."""
        step = self._operator("flat_map", "KSTREAM-FLATMAP-", name, fn, FlatMap(fn=fn))
        return self._next(
            step, self._key.changed("flat_map", step.site), self._value.changed("flat_map", step.site), rekeyed=True
        )

    def select_key(self, fn: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]:
        """Each record gets the key that ``fn(key, value)`` returns."""
        step = self._operator("select_key", "KSTREAM-KEY-SELECT-", name, fn, SelectKey(fn=fn))
        return self._next(step, self._key.changed("select_key", step.site), self._value, rekeyed=True)

    @overload
    def map_values(
        self, fn: Callable[[V], V2], *, with_key: Literal[False] = False, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, fn: Callable[[K, V], V2], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, V2]: ...
    def map_values(self, fn: Callable[..., Any], *, with_key: bool = False, name: str | None = None) -> KStream[K, Any]:
        """Each value becomes ``fn(value)``, or ``fn(key, value)`` where ``with_key``."""
        operation = MapValues(fn=fn, with_key=with_key)
        step = self._operator("map_values", "KSTREAM-MAPVALUES-", name, fn, operation)
        return self._next(step, self._key, self._value.changed("map_values", step.site))

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
        step = self._operator("flat_map_values", "KSTREAM-FLATMAPVALUES-", name, fn, operation)
        return self._next(step, self._key, self._value.changed("flat_map_values", step.site))

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no order between them. Serdes are kept where both streams have the same."""
        self._same_builder(other, "merge")
        step = self._operator("merge", "KSTREAM-MERGE-", name, None, PassThrough(), parents=(self._step, other._step))
        return KStream(
            self._plan,
            step,
            self._key if self._key == other._key else self._key.changed("merge", step.site, keep=False),
            self._value if self._value == other._value else self._value.changed("merge", step.site, keep=False),
            self._sources | other._sources,
            self._repartition_required or other._repartition_required,
        )

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Starts a split as in Kafka Streams: ``split().branch(...).branch(...).default_branch()``. See :meth:`branch`."""
        step = SplitStep(
            name=self._plan.named(_checked(name), "KSTREAM-BRANCH-"), site=call_site(), parents=(self._step,)
        )
        self._plan.add(step)
        return BranchedKStream(self, step)

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

    # --------------------------------------------------------------------------------------------- ends and turns

    def to(
        self,
        topic: str | TopicExtractor[K, V],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        partitioner: Partitioner[K, V] | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the records to ``topic``, or to the topic that ``topic(key, value, context)`` names for each.

        ``partitioner(topic, key, value, partitions)`` returns a partition, or several (none of them: the record is dropped);
        None: by the hash of the key's bytes.
        """
        fixed = check_name(topic, "topic") if isinstance(topic, str) else None
        if fixed is None:
            check_function(topic, "to", OF_TOPIC)
        if partitioner is not None:
            check_function(partitioner, "to", OF_PARTITIONER)
        step = SinkStep(
            name=self._plan.named(_checked(name), "KSTREAM-SINK-"),
            site=call_site(),
            parents=(self._step,),
            topic=fixed,
            topic_extractor=None if isinstance(topic, str) else topic,
            key=self._key.or_given(key),
            value=self._value.or_given(value),
            partitioner=partitioner,
        )
        self._plan.add(step)

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
        if partitions is not None and partitions < 1:
            raise TopologyError(f"a repartition topic needs 1 partition at least, not {partitions}", call_site())
        if partitioner is not None:
            check_function(partitioner, "repartition", OF_PARTITIONER)
        prefix = self._plan.number("KSTREAM-REPARTITION-") if name is None else check_name(name, "repartition topic")
        own_key, own_value = self._key.or_given(key), self._value.or_given(value)
        step = add_repartition(
            self._plan, self._step, prefix, own_key, own_value, partitioner=partitioner, partitions=partitions
        )
        step.is_mergeable = False
        self._plan.add(step)
        return KStream(self._plan, step, own_key, own_value, frozenset((step.name,)), False)

    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """The stream grouped by its key. ``name``: of the repartition topic, where one is needed."""
        from topology.dsl.grouped import KGroupedStream

        return KGroupedStream(
            self._plan,
            self._step,
            self._key.or_given(key),
            self._value.or_given(value),
            self._sources,
            self._repartition_required,
            _checked(name),
        )

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
        from topology.dsl.grouped import KGroupedStream

        step = self._operator("group_by", "KSTREAM-KEY-SELECT-", name, fn, SelectKey(fn=fn))
        rekeyed = self._key.changed("group_by", step.site).or_given(key)
        return KGroupedStream(
            self._plan, step, rekeyed, self._value.or_given(value), self._sources, True, _checked(name)
        )

    def to_table(
        self,
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """The stream as a table: the newest value of each key; None deletes."""
        from topology.dsl.tables import KTable

        plan, wanted = self._plan, as_store(store)
        node = plan.named(_checked(name), "KSTREAM-TOTABLE-")
        store_name = wanted.name or generated_store_name(plan, "KSTREAM-TOTABLE-")
        key, value = given_serdes(wanted, key, value, "to_table")
        own_key, own_value = self._key.or_given(key), self._value.or_given(value)
        parent, sources = self._step, self._sources
        if self._repartition_required:
            parent = add_repartition(plan, parent, node, own_key, own_value)
            plan.add(parent)
            sources = frozenset((parent.name,))
        table = TableState(
            kind="source",
            name=node,
            store=key_value_store(wanted, store_name, own_key, own_value),
            materialized=wanted.name is not None,
            make=lambda name: TableSource(store=name),
        )
        step = TableStep(name=node, site=call_site(), parents=(parent,), table=table)
        plan.add(step)
        return KTable(plan, step, table, own_key, own_value, sources)

    # -------------------------------------------------------------------------------------------------- processors

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
        step = self._process("process", supplier, stores, name, fixed_key=False)
        return self._next(
            step,
            self._key.changed("process", step.site, keep=False),
            self._value.changed("process", step.site, keep=False),
            rekeyed=True,
        )

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
    ) -> KStream[K, V2]:
        """As :meth:`process`, with a processor that keeps each record's key."""
        step = self._process("process_values", supplier, stores, name, fixed_key=True)
        return self._next(step, self._key, self._value.changed("process_values", step.site, keep=False))

    def _process(
        self,
        operator: str,
        supplier: Callable[[], Any],
        stores: Iterable[str | Store],
        name: str | None,
        *,
        fixed_key: bool,
    ) -> OperatorStep:
        check_function(supplier, operator, NOTHING)
        if isinstance(stores, (str, Store)):
            raise TopologyError(f"{operator}() takes a list of stores: stores=[{stores!r}]", call_site())
        own: list[PlannedStore] = []
        used: list[str] = []
        for store in stores:
            if isinstance(store, Store):
                own.append(added_store(store))
                used.append(own[-1].name)
            else:
                used.append(check_name(store, "store"))
        prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
        step = OperatorStep(
            name=self._plan.number(prefix) if name is None else check_name(name, "step"),
            site=call_site(),
            parents=(self._step,),
            operation=Process(supplier=supplier, fixed_key=fixed_key),
            stores=tuple(dict.fromkeys(used)),
            own_stores=tuple(own),
        )
        self._plan.add(step)
        return step

    # ---------------------------------------------------------------------------------------------------- internal

    def _repartition_for_join(self, prefix: str, key: Carried, value: Carried) -> RepartitionStep:
        """The repartition of this stream for joins: unnamed joins share one."""
        step = add_repartition(self._plan, self._step, prefix, key, value)
        if self._joined_through is not None and prefix == self._step.name:
            return self._joined_through
        self._joined_through = step
        self._plan.add(step)
        return step

    def _operator(
        self,
        operator: str,
        prefix: str,
        name: str | None,
        fn: object,
        operation: Operation,
        parents: tuple[Step, ...] | None = None,
    ) -> OperatorStep:
        if fn is not None:
            with_key = getattr(operation, "with_key", not isinstance(operation, MapBatches))
            check_function(fn, operator, of_values(with_key))
        step = OperatorStep(
            name=self._plan.named(_checked(name), prefix),
            site=call_site(),
            parents=parents or (self._step,),
            operation=operation,
        )
        self._plan.add(step)
        return step

    def _same_types(
        self, operator: str, prefix: str, name: str | None, fn: object, operation: Operation
    ) -> KStream[K, V]:
        return self._next(self._operator(operator, prefix, name, fn, operation), self._key, self._value)

    def _next(self, step: Step, key: Carried, value: Carried, *, rekeyed: bool = False) -> KStream[Any, Any]:
        return KStream(self._plan, step, key, value, self._sources, rekeyed or self._repartition_required)

    def _same_builder(self, other: object, operator: str) -> None:
        if getattr(other, "_plan", None) is not self._plan:
            raise TopologyError(f"{operator}() needs both sides from one StreamsBuilder", call_site())


class BranchedKStream(Generic[K, V]):
    """A split under construction. Source: org.apache.kafka.streams.kstream.BranchedKStream."""

    __slots__ = ("_source", "_step", "_streams")

    def __init__(self, source: KStream[K, V], step: SplitStep) -> None:
        self._source = source
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
        if predicate is not None:
            check_function(predicate, "branch", OF_RECORD)
        plan = self._source._plan
        child = check_name(self._step.name + (str(index) if name is None else name), "branch")
        plan.number(child)
        self._step.predicates.append(predicate)
        self._step.branches.append(child)
        step = OperatorStep(name=child, site=call_site(), parents=(self._step,), operation=PassThrough())
        plan.add(step)
        self._streams[child] = self._source._next(step, self._source._key, self._source._value)
        return self._streams[child]


def _checked(name: str | None) -> str | None:
    return None if name is None else check_name(name, "step")
