"""Runs the machine of a group protocol on the network thread: finds the coordinator, sends, waits, wakes.

The machine is pure and decides everything; it has this shape so that memberships of other protocols fit as well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.cluster import Cluster, Purpose
from streamsrt.client.signal import Signal
from streamsrt.client.spawned import spawn
from streamsrt.errors import RequestFailedError, StreamsError, UnsupportedBrokerError
from streamsrt.wire.error_codes import error_name, is_retriable
from streamsrt.wire.schema import Message, Request

T = TypeVar("T")
Command: TypeAlias = Any  # of the machine's protocol; the driver passes it on
GroupEvent: TypeAlias = Any  # likewise


class Todo(Protocol):
    """The requests of a machine (:class:`streamsrt.membership.session.SessionStep`). Times are monotonic milliseconds."""

    @property
    def request(self) -> Request[Message] | None: ...
    @property
    def find_coordinator(self) -> bool: ...
    @property
    def events(self) -> tuple[GroupEvent, ...]: ...
    @property
    def wake_at_ms(self) -> int | None: ...


class GroupMachine(Protocol):
    """A member of a group as a machine (:class:`streamsrt.membership.member.Member`)."""

    request_type: type[Message]
    group_id: str

    @property
    def member_id(self) -> str: ...
    @property
    def member_epoch(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    def start(self, now_ms: int) -> Todo: ...
    def command(self, command: Command, seen: int, now_ms: int) -> Todo: ...
    def coordinator_found(self, version: int, now_ms: int) -> Todo: ...
    def responded(self, response: Message, now_ms: int) -> Todo: ...
    def request_failed(self, reason: str, now_ms: int) -> Todo: ...
    def refused(self, error: StreamsError, now_ms: int) -> Todo: ...
    def tick(self, now_ms: int) -> Todo: ...
    def polled(self, at_ms: int) -> None: ...


class GroupDriver:
    """Runs a :class:`GroupMachine`. See the module, and :class:`streamsrt.client.interface.GroupMember` for what other
    threads may call."""

    def __init__(self, machine: GroupMachine, cluster: Cluster, signal: Signal, blocking: Blocking = THREADS) -> None:
        self._machine = machine
        self._cluster = cluster
        self._signal = signal
        self._loop = asyncio.get_running_loop()
        self._events: deque[GroupEvent] = deque()
        self._ended = blocking.flag()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._polled_at_ms = self._now_ms()
        self._member_epoch = -1
        self._seen = 0

    # ------------------------------------------------------------------------------------ from the processing thread

    @property
    def member_id(self) -> str:
        return self._machine.member_id

    @property
    def member_epoch(self) -> int:
        return self._member_epoch

    def send(self, command: Command) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._command, command, self._seen)

    def events(self) -> list[GroupEvent]:
        if not self._events:
            return []
        self._seen += 1
        return [self._events.popleft()]

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def polled(self) -> None:
        self._polled_at_ms = self._now_ms()

    def join(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    # --------------------------------------------------------------------------------------------------- on the loop

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def start(self) -> None:
        """Sends the first heartbeat."""
        self._do(self._machine.start(self._now_ms()))

    def close(self) -> None:
        """Stops without leaving the group."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._ended.set()

    def _take(self, method: Callable[[T, int], Todo], value: T) -> None:
        if not self._ended.is_set():
            self._machine.polled(self._polled_at_ms)
            self._do(method(value, self._now_ms()))

    def _command(self, command: Command, seen: int) -> None:
        if not self._ended.is_set():
            self._machine.polled(self._polled_at_ms)
            self._do(self._machine.command(command, seen, self._now_ms()))

    def _tick(self) -> None:
        self._machine.polled(self._polled_at_ms)
        self._do(self._machine.tick(self._now_ms()))

    def _do(self, todo: Todo) -> None:
        self._member_epoch = self._machine.member_epoch
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if todo.events:
            self._events.extend(todo.events)
            self._signal.set()
        if self._machine.ended:
            self._ended.set()
            self._signal.set()
            return
        if todo.wake_at_ms is not None:
            self._timer = self._loop.call_at(todo.wake_at_ms / 1000 + 0.001, self._tick)
        if todo.find_coordinator:
            self._task = spawn(self._find_coordinator())
        elif todo.request is not None:
            self._task = spawn(self._send(todo.request))

    async def _find_coordinator(self) -> None:
        group_id = self._machine.group_id
        self._cluster.forget_coordinator(group_id)
        try:
            node_id = await self._cluster.find_coordinator(group_id)
            connection = await self._cluster.connection(node_id, Purpose.GROUP)
            version = connection.version_of(self._machine.request_type)
        except StreamsError as error:
            self._failed(error)
        else:
            self._take(self._machine.coordinator_found, version)

    async def _send(self, request: Request[Message]) -> None:
        try:
            response = await self._cluster.send_to_coordinator(self._machine.group_id, request)
        except StreamsError as error:
            self._failed(error)
        else:
            self._take(self._machine.responded, response)

    def _failed(self, error: StreamsError) -> None:
        self._report_failure(error, self._machine.request_failed)

    def _report_failure(self, error: StreamsError, failed: Callable[[str, int], Todo]) -> None:
        final = isinstance(error, UnsupportedBrokerError)
        if isinstance(error, RequestFailedError):
            final = not is_retriable(error.error_code)
        if final:
            self._take(self._machine.refused, error)
        else:
            code = f" ({error_name(error.error_code)})" if isinstance(error, RequestFailedError) else ""
            self._take(failed, f"{error}{code}")
