"""Operators of a stream that Kafka Streams does not have.

1. Each is an operator like the others: it runs in its task, its state is in a store with a changelog, and nothing is
   committed before everything that was read is done with.
2. Operators over batches (``map_batches``, ``map_async``) see the records that one fetch brought, in order. Where a batch
   ends is not defined: what a function makes of a record must not depend on the others in its batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast, overload

from topology.build.plan import Carried, LateSource, OperatorStep, Step
from topology.dsl.deduplication import Deduplicator
from topology.dsl.late_records import late_stream
from topology.dsl.lookup_joins import LookupJoins
from topology.dsl.printing import Output, ShownTable
from topology.graph.operations.batches import Frame, MapAsync, MapBatches
from topology.spec.codecs import Serde, long
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import OF_RECORD, FailedValue, check_arguments, check_function, of_values
from topology.spec.stores import Store
from topology.spec.windows import Duration, to_ms

if TYPE_CHECKING:
    from topology.dsl.streams import KStream
    from topology.graph.operations import Operation

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")


class _Mapped(NamedTuple):
    value: Any


class StreamExtras(LookupJoins[K, V], Generic[K, V]):
    """What a :class:`topology.KStream` has beyond Kafka Streams'."""

    __slots__ = ()

    if TYPE_CHECKING:
        _key: Carried
        _value: Carried
        _late: Mapping[str, LateSource]

        def _operator(
            self,
            operator: str,
            prefix: str,
            name: str | None,
            fn: object,
            operation: Operation,
            parents: tuple[Step, ...] | None = None,
        ) -> OperatorStep: ...

        def _next(self, step: Step, key: Carried, value: Carried, *, rekeyed: bool = False) -> KStream[Any, Any]: ...

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
        value: Serde[Any] | None = None,
    ) -> KStream[K, Any]:
        """What the join of two streams that made this stream did not keep of one side, since it came too late.

        A record of a join within windows is joined with what the other side's store still has, and belongs here where its
        own store does not keep it: what comes after it does not meet it. ``value``: serde of that side's values. Raises
        TopologyError for a stream that is not the result of such a join, and where these records have been taken already.
        """
        found = self._late.get(side)
        if found is None:
            raise TopologyError(
                f"late({side!r}) is for the result of a join of two streams (sides 'left' and 'right'): nothing is "
                "dropped as late here. Of a windowed table call late() on the table",
                call_site(),
            )
        stream = cast("KStream[K, V]", self)
        return late_stream(stream._plan, found, name, key, value)

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
        check_function(id, "deduplicate", OF_RECORD)
        ttl_ms, grace_ms = to_ms(ttl, "ttl"), to_ms(grace, "grace")
        if ttl_ms < 1 or grace_ms < 0:
            raise TopologyError(f"deduplicate(ttl={ttl_ms} ms, grace={grace_ms} ms): ttl is 1 ms at least", call_site())
        stream = cast("KStream[K, V]", self)
        own = store or stream._plan.number("KSTREAM-DEDUPLICATE-STATE-STORE-")
        seen = Store(own, key=serde, value=long, ttl=ttl_ms + grace_ms)
        return stream.process_values(
            lambda: Deduplicator(own, id, ttl_ms),
            stores=[seen],
            name=name or stream._plan.number("KSTREAM-DEDUPLICATE-"),
        )

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
        stream = cast("KStream[K, V]", self)
        own = name or stream._plan.number("KSTREAM-PRINTER-")
        shown = own if title is None else title
        stream.process(ShownTable(shown, size, by_key, to).printer, name=own)

    @overload
    def try_map_values(
        self, fn: Callable[[V], V2], *, with_key: Literal[False] = False, name: str | None = None
    ) -> tuple[KStream[K, V2], KStream[K, FailedValue[V]]]: ...
    @overload
    def try_map_values(
        self, fn: Callable[[K, V], V2], *, with_key: Literal[True], name: str | None = None
    ) -> tuple[KStream[K, V2], KStream[K, FailedValue[V]]]: ...
    def try_map_values(
        self, fn: Callable[..., Any], *, with_key: bool = False, name: str | None = None
    ) -> tuple[KStream[K, Any], KStream[K, FailedValue[V]]]:
        """Two streams: values mapped as by ``map_values``, and those for which ``fn`` raised, with the error.

        Nothing is raised and no exception handler is asked. ``name`` names the steps: ``<name>``, ``<name>-ok``,
        ``<name>-failed`` and so on.
        """
        check_function(fn, "try_map_values", of_values(with_key))
        stream = cast("KStream[K, V]", self)

        def attempt(key: K, value: V) -> _Mapped | FailedValue[V]:
            try:
                return _Mapped(fn(key, value) if with_key else fn(value))
            except Exception as error:  # noqa: BLE001  # whatever it raises is the other stream's
                return FailedValue(value, error)

        def named(suffix: str) -> str | None:
            return None if name is None else name + suffix

        tried = stream.map_values(attempt, with_key=True, name=name)
        good = tried.filter(lambda _, each: type(each) is _Mapped, name=named("-ok"))
        failed = tried.filter(lambda _, each: type(each) is FailedValue, name=named("-failed"))
        mapped: KStream[K, Any] = good.map_values(lambda each: each[0], name=named("-value"))
        return mapped, cast("KStream[K, FailedValue[V]]", failed)

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
        if frame not in ("arrow", "pandas"):
            raise TopologyError(f"map_batches(frame={frame!r}): give 'arrow' or 'pandas'", call_site())
        operation = MapBatches(fn=fn, frame=frame, unpack=unpack)
        step = self._operator("map_batches", "KSTREAM-MAPBATCHES-", name, fn, operation)
        key = self._key if keeps_keys else self._key.changed("map_batches", step.site)
        return self._next(step, key, self._value.changed("map_batches", step.site), rekeyed=not keeps_keys)

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
        ``timeout`` is made again ``retries`` times, after ``backoff`` that doubles; then the exception handler is asked. No
        offset is committed before everything that was read has its result; a record that is read again is asked again.
        """
        if not callable(fn) or not _is_async(fn):
            raise TopologyError(f"map_async() takes an async function, not {fn!r}", call_site())
        check_arguments(fn, "map_async", of_values(with_key))
        timeout_ms = None if timeout is None else to_ms(timeout, "timeout")
        backoff_ms = to_ms(backoff, "backoff")
        if concurrency < 1 or retries < 0 or backoff_ms < 0 or (timeout_ms is not None and timeout_ms < 1):
            raise TopologyError(
                f"map_async(concurrency={concurrency}, retries={retries}, timeout={timeout}, backoff={backoff}): "
                "concurrency and timeout are at least 1, retries and backoff at least 0",
                call_site(),
            )
        operation = MapAsync(
            fn=fn,
            concurrency=concurrency,
            ordered=ordered,
            timeout_ms=timeout_ms,
            retries=retries,
            backoff_ms=backoff_ms,
            with_key=with_key,
        )
        step = self._operator("map_async", "KSTREAM-MAPASYNC-", name, None, operation)
        return self._next(step, self._key, self._value.changed("map_async", step.site))


def _is_async(fn: object) -> bool:
    called = getattr(fn, "func", fn)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)
