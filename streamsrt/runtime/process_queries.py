"""Queries from the application's process to the stores in the processes of its stream threads.

::

    application ── socket of stream thread i ──> a thread there ──> its query gate

1. Both ends have the same topology, because one is forked from the other: a query is sent with its keys as bytes, rows
   come back as bytes, and values are deserialized at the caller. So serdes and values need not be picklable.
2. A connection serves one query. A scan keeps it open, and its snapshot lives as long.
3. Errors of a stream thread are raised here. One that is being started has no tasks yet: the instance is rebalancing.
4. The answers of one stream thread are from one moment, those of several are not.
5. The application's process listens, too: the first stream thread asks it for the metrics of all.
6. The socket has an abstract address (there is no file to delete), and a client must know a secret that was created at
   the start of the application. Every process of the machine can connect: what it sends, or does not send, keeps no other
   client waiting.
7. A process that does not run at all, because it is stopped, answers nothing: connecting has a time limit, too.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any, NamedTuple, Protocol

from streamsrt.errors import StreamsError, UserError
from streamsrt.queries.errors import QueryTimedOutError, StreamsRebalancingError
from streamsrt.queries.gate import DEFAULT_TIMEOUT_S
from streamsrt.queries.preparation import Prepared, prepare
from streamsrt.queries.readers import RawRow
from streamsrt.queries.routing import Partitions, Routing, SerializedKey, StoreDirectory
from streamsrt.queries.store_queries import CHUNK_ROWS, Selection, StoreQueries
from streamsrt.queries.values import HostInfo, PrefixQuery, Query, QueryResult, StoreSize
from streamsrt.runtime.metrics import Metric
from streamsrt.runtime.supervisor import Failure
from topology import serdes

logger = logging.getLogger(__name__)

_HOSTS_FOR_S = 0.2
_GRACE_S = 5.0
_ACCEPT_AGAIN_S = 0.5
"""After a connection could not be accepted: the process has no files left to open, for example."""
_KEYS = ("key", "lower", "upper")
WHOLE_INSTANCE = 0
"""The number of the application's process; stream threads are numbered from 1."""


class StoreRequest(NamedTuple):
    """A query, with keys as bytes."""

    store: str
    query: Query
    selection: Selection


class More(NamedTuple):
    """Requests the next rows of a scan."""

    scan: int
    timeout_s: float


class KnownInstances(NamedTuple):
    """Requests the instances that the group coordinator reported."""


class CountPartitions(NamedTuple):
    topic: str


class Sizes(NamedTuple):
    timeout_s: float


class Metrics(NamedTuple):
    """Requests the metrics of the stream thread."""


Request = StoreRequest | More | KnownInstances | CountPartitions | Sizes | Metrics


@dataclass(frozen=True, slots=True)
class QueryChannel:
    """The address at which an application's stream threads listen."""

    name: str
    secret: bytes

    @classmethod
    def new(cls) -> QueryChannel:
        return cls(f"streamsrt-{os.getpid()}-{secrets.token_hex(8)}", secrets.token_bytes(32))

    def address(self, index: int) -> str:
        return f"\0{self.name}-{index}"

    def metrics_of_all(self) -> list[Metric] | None:
        """The metrics of the instance with all of its stream threads; None while it can't tell them: it starts or ends."""
        try:
            connection, found = _send(self, WHOLE_INSTANCE, Metrics(), DEFAULT_TIMEOUT_S)
        except StreamsError:
            return None
        connection.close()
        metrics: list[Metric] = found
        return metrics


class Answering(Protocol):
    """What the server needs of a stream thread: :class:`streamsrt.app.KafkaStreams`."""

    def local_queries(self) -> StoreQueries:
        """Raises InvalidStateStoreError."""

    def metrics(self) -> list[Metric]: ...


class QueryServer:
    """Answers in a stream thread's process, on its own threads, as long as that runs."""

    def __init__(self, channel: QueryChannel, index: int, instance: Answering) -> None:
        self._instance = instance
        self._address, self._secret = channel.address(index), channel.secret
        self._over = threading.Event()
        self._listener = Listener(self._address, "AF_UNIX", backlog=64)
        threading.Thread(target=self._accept, name="streamsrt-queries", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            # A thread that waits for connections notices nothing else.
            Client(self._address, "AF_UNIX").close()
        self._listener.close()

    def _accept(self) -> None:
        """Accepts connections, and exchanges nothing with a client: one that is silent would keep all others waiting."""
        while not self._over.is_set():
            try:
                connection = self._listener.accept()
            except OSError as error:
                if self._over.is_set():
                    return
                logger.warning("a connection to the query socket can't be accepted, trying again: %s", error)
                self._over.wait(_ACCEPT_AGAIN_S)
                continue
            if self._over.is_set():
                connection.close()
                return
            threading.Thread(target=self._serve, args=(connection,), name="streamsrt-query", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        scans: dict[int, Any] = {}
        with connection, suppress(EOFError, OSError):
            if not self._over.is_set() and self._knows_secret(connection):
                while True:
                    connection.send(self._answered(connection.recv(), scans))

    def _knows_secret(self, connection: Connection) -> bool:
        try:
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
        except (AuthenticationError, AssertionError, EOFError, OSError) as error:
            logger.warning("a connection to the query socket was refused: %s", error)
            return False
        return True

    def _answered(self, request: Request, scans: dict[int, Any]) -> Any:
        try:
            return self._answer(request, scans)
        except Exception as error:  # noqa: BLE001  # raised where it was asked
            return Failure.of(error)

    def _answer(self, request: Request, scans: dict[int, Any]) -> Any:
        if isinstance(request, Metrics):
            return self._instance.metrics()
        queries = self._instance.local_queries()
        match request:
            case StoreRequest():
                return _query(queries, request, scans)
            case More(scan, timeout_s):
                return queries.more(scans[scan], timeout_s)
            case KnownInstances():
                return dict(queries.routing.hosts)
            case CountPartitions(topic):
                return queries.routing.partitions_of_topic(topic)
            case Sizes(timeout_s):
                return queries.store_sizes(timeout_s=timeout_s)
        raise TypeError(f"{request!r} is not a request")


def _query(queries: StoreQueries, request: StoreRequest, scans: dict[int, Any]) -> dict[int, QueryResult[Any]]:
    prepared = prepare(queries.routing, request.store, request.query)
    found = queries.query_store(request.store, request.query, prepared, request.selection)
    answers = {}
    for partition, answer in found.items():
        if prepared is not None and not prepared.of_one_row and answer.result is not None:
            first, rows = answer.result
            if len(first) >= CHUNK_ROWS:
                scans[partition] = rows
            answers[partition] = replace(answer, result=(first, partition))
        else:
            answers[partition] = answer
    return answers


class _Scan(NamedTuple):
    """Rows of a scan that a stream thread holds for the caller."""

    connection: Connection
    lock: threading.Lock
    number: int


class _ProcessRouting(Routing):
    """The other instances, as the stream threads know them; refreshed regularly."""

    def __init__(self, stores: StoreDirectory, queries: ProcessQueries) -> None:
        self._counts: dict[str, int] = {}
        super().__init__(stores, self._count)
        self._queries = queries
        self._requested_s = 0.0

    @property
    def hosts(self) -> Mapping[HostInfo, tuple[Partitions, Partitions]]:
        if time.monotonic() - self._requested_s > _HOSTS_FOR_S:
            self._hosts = self._queries.first_answer(KnownInstances())
            self._requested_s = time.monotonic()
        return self._hosts

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._queries.first_answer(CountPartitions(topic))
        return self._counts[topic]


class ProcessQueries(StoreQueries):
    """Queries all stream threads of this instance. ``threads``: their current number."""

    def __init__(self, channel: QueryChannel, stores: StoreDirectory, threads: Callable[[], int]) -> None:
        self._channel = channel
        self._threads = threads
        self._routing = _ProcessRouting(stores, self)

    @property
    def routing(self) -> Routing:
        return self._routing

    def query_store(
        self, store: str, query: Query, prepared: Prepared | None, selection: Selection
    ) -> dict[int, QueryResult[Any]]:
        request = StoreRequest(store, _with_bytes(query, store, self._routing.stores), selection)
        found: dict[int, QueryResult[Any]] = {}
        rebalancing: StreamsRebalancingError | None = None
        answered = 0
        for index in range(1, self._threads() + 1):
            try:
                connection, answers = _send(self._channel, index, request, selection.timeout_s)
            except StreamsRebalancingError as error:
                # Its future partitions are unknown: without it no key can be reported as missing.
                if selection.active_only:
                    raise
                rebalancing = error
                continue
            answered += 1
            lock = threading.Lock()
            for partition, answer in answers.items():
                if prepared is not None and not prepared.of_one_row and answer.result is not None:
                    first, number = answer.result
                    answer = replace(answer, result=(first, _Scan(connection, lock, number)))
                if partition not in found or not found[partition].is_success:
                    found[partition] = answer
            if self._routing.stores.is_global(store):
                break
        if not answered and rebalancing is not None:
            raise rebalancing
        return found

    def more(self, rows: Any, timeout_s: float) -> list[RawRow]:
        scan: _Scan = rows
        with scan.lock:
            answer: list[RawRow] = _exchange(scan.connection, More(scan.number, timeout_s), timeout_s)
        return answer

    def store_sizes(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[StoreSize]:
        return [size for sizes in self._all_answers(Sizes(timeout_s), timeout_s) for size in sizes]

    def metrics(self) -> list[Metric]:
        """Returns the metrics of all stream threads that answer."""
        return [metric for found in self._all_answers(Metrics(), DEFAULT_TIMEOUT_S) for metric in found]

    def first_answer(self, request: Request) -> Any:
        """Returns the first answer of any stream thread. Raises StreamsRebalancingError."""
        for answer in self._all_answers(request, DEFAULT_TIMEOUT_S):
            return answer
        raise StreamsRebalancingError("no stream thread of this instance has joined the group yet: try again")

    def _all_answers(self, request: Request, timeout_s: float) -> Iterator[Any]:
        for index in range(1, self._threads() + 1):
            with suppress(StreamsRebalancingError):
                connection, answer = _send(self._channel, index, request, timeout_s)
                connection.close()
                yield answer


def _send(channel: QueryChannel, index: int, request: Request, timeout_s: float) -> tuple[Connection, Any]:
    try:
        connection = _connected(channel, index, timeout_s)
    except (OSError, EOFError, AuthenticationError) as error:
        raise StreamsRebalancingError(
            f"stream thread {index} of this instance is being started ({error}): try again"
        ) from error
    try:
        return connection, _exchange(connection, request, timeout_s)
    except BaseException:
        connection.close()
        raise


def _connected(channel: QueryChannel, index: int, timeout_s: float) -> Connection:
    """Raises QueryTimedOutError if the process does not take the connection in time, and what says that there is none."""
    mute = QueryTimedOutError(
        f"stream thread {index} of this instance took no query in {timeout_s:g} s: its process is stopped, or a function "
        "of the application lets no other thread run. Try again"
    )
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(channel.address(index))
        except BlockingIOError:
            # Only so many may wait for it; those who gave up count, too.
            raise mute from None
        client.setblocking(True)
        connection = Connection(client.detach())
    try:
        if not connection.poll(timeout_s):
            raise mute
        answer_challenge(connection, channel.secret)
        deliver_challenge(connection, channel.secret)
    except BaseException:
        connection.close()
        raise
    return connection


def _exchange(connection: Connection, request: Request, timeout_s: float) -> Any:
    try:
        connection.send(request)
        if not connection.poll(timeout_s + _GRACE_S):
            raise QueryTimedOutError(f"a stream thread of this instance did not answer in {timeout_s:g} s: try again")
        answer = connection.recv()
    except (OSError, EOFError) as error:
        raise StreamsRebalancingError(
            f"the queried stream thread has ended and is being replaced ({error}): try again"
        ) from error
    if isinstance(answer, Failure):
        raise answer.error()
    return answer


def _with_bytes(query: Query, store: str, stores: StoreDirectory) -> Query:
    """Returns the query with keys serialized by the store's serde. Raises UserError."""
    if isinstance(query, PrefixQuery):
        try:
            return replace(query, prefix=query.serde.serialize(query.prefix), serde=serdes.bytes)
        except StreamsError:
            raise
        except Exception as error:
            raise UserError(f"{query.prefix!r} can't be serialized as a prefix: {error}") from error
    keys = {
        field.name: SerializedKey(stores.key_bytes(store, key))
        for field in fields(query)
        if field.name in _KEYS and (key := getattr(query, field.name)) is not None
    }
    changed: Query = replace(query, **keys) if keys else query  # type: ignore[arg-type]
    return changed
