"""Runs the machine of a classic group's member: two lanes, the work of a leader, and requests about the group.

Joins and syncs have a connection of their own: a broker reads nothing more from a connection on which a JoinGroup
waits, and this client closes a connection on a request timeout. Heartbeats do not wait for the description of the
group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, cast

from streamsrt.client.blocking import THREADS, Blocking
from streamsrt.client.cluster import Cluster, Purpose
from streamsrt.client.group import GroupDriver, GroupMachine, Todo
from streamsrt.client.leading import LeaderAnswer, LeaderWork
from streamsrt.client.signal import Signal
from streamsrt.client.spawned import spawn
from streamsrt.errors import StreamsError
from streamsrt.wire.schema import Message, Request

JOIN_SLACK_MS = 5_000
"""How much longer than the rebalance timeout a join is waited for (Kafka's ``joinGroupTimeoutMs``)."""

Work: TypeAlias = Callable[[LeaderWork], Awaitable[LeaderAnswer]]


class ClassicTodo(Todo, Protocol):
    """``work``: what the leader needs to know or create; newer work replaces it. ``describe``: one request at a time."""

    @property
    def rebalance_request(self) -> Request[Message] | None: ...
    @property
    def describe(self) -> Request[Message] | None: ...
    @property
    def work(self) -> Work | None: ...


class ClassicMachine(GroupMachine, Protocol):
    """A member of a classic group as a machine (:class:`streamsrt.membership.classic.member.ClassicMember`)."""

    @property
    def instance_id(self) -> str | None: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    def rebalance_responded(self, response: Message, now_ms: int) -> Todo: ...
    def rebalance_failed(self, reason: str, now_ms: int) -> Todo: ...
    def described(self, response: Message, now_ms: int) -> Todo: ...
    def describe_failed(self, reason: str, now_ms: int) -> Todo: ...
    def worked(self, answer: LeaderAnswer, now_ms: int) -> Todo: ...
    def work_failed(self, reason: str, now_ms: int) -> Todo: ...


class ClassicDriver(GroupDriver):
    """Runs a :class:`ClassicMachine`. See the module, and :class:`streamsrt.client.group.GroupDriver`."""

    def __init__(
        self,
        machine: ClassicMachine,
        work: LeaderWork,
        cluster: Cluster,
        signal: Signal,
        blocking: Blocking = THREADS,
    ) -> None:
        super().__init__(machine, cluster, signal, blocking)
        self._classic = machine
        self._leader_work = work
        self._rebalance_task: asyncio.Task[None] | None = None
        self._work_task: asyncio.Task[None] | None = None
        self._describe_task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stops without leaving the group."""
        super().close()
        for task in (self._rebalance_task, self._work_task, self._describe_task):
            if task is not None:
                task.cancel()

    def _do(self, todo: Todo) -> None:
        super()._do(todo)
        if self.has_ended:
            return
        wanted = cast(ClassicTodo, todo)
        if wanted.rebalance_request is not None:
            self._rebalance_task = spawn(self._send_rebalance(wanted.rebalance_request))
        if wanted.describe is not None:
            self._describe_task = spawn(self._describe(wanted.describe))
        if wanted.work is not None:
            if self._work_task is not None and self._work_task is not asyncio.current_task():
                self._work_task.cancel()
            self._work_task = spawn(self._lead(wanted.work))

    async def _send_rebalance(self, request: Request[Message]) -> None:
        try:
            response = await self._cluster.send_to_coordinator(
                self._classic.group_id,
                request,
                purpose=Purpose.REBALANCE,
                timeout_ms=self._classic.rebalance_timeout_ms + JOIN_SLACK_MS,
            )
        except StreamsError as error:
            self._report_failure(error, self._classic.rebalance_failed)
        else:
            self._take(self._classic.rebalance_responded, response)

    async def _describe(self, request: Request[Message]) -> None:
        try:
            response = await self._cluster.send_to_coordinator(self._classic.group_id, request)
        except StreamsError as error:
            self._take(self._classic.describe_failed, str(error))
        else:
            self._take(self._classic.described, response)

    async def _lead(self, work: Work) -> None:
        try:
            answer = await work(self._leader_work)
        except StreamsError as error:
            self._take(self._classic.work_failed, str(error))
        else:
            self._take(self._classic.worked, answer)
