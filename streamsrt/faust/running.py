"""What all agents of one task share, and the application while its tasks run.

Which task runs is known by a context variable: agents of several tasks share an event loop, and the tables and topics of
the application are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from streamsrt.errors import UserError
from streamsrt.faust.host import Host
from streamsrt.faust.sends import Attachments, Outbox, Producer
from streamsrt.faust.tables import BoundTable, Rows, expire, watch_expiry
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.kinds.user_processors import Context
from topology.spec.processor import PunctuationType

if TYPE_CHECKING:
    import asyncio

    import faust


class RunningTask:
    """One task with its stores, and with what its agents sent."""

    def __init__(self, env: Environment, stores: dict[str, Rows]) -> None:
        self.env = env
        self.partition = env.task_partition
        self.stores = stores
        self.outbox = Outbox(env)
        self.agents = 0


CURRENT: ContextVar[RunningTask] = ContextVar("CURRENT")


def current_task() -> RunningTask:
    """The task whose agent runs. Raises UserError outside of one."""
    task = CURRENT.get(None)
    if task is None:
        raise UserError("tables and sends of an application that runs here belong to its agents: use them in one")
    return task


class RunningApplication:
    """An application in this process: from the first agent that begins to the last one that ends."""

    def __init__(self, app: faust.App, tables: tuple[faust.Table, ...]) -> None:
        self.app = app
        self.host = Host()
        self._tables = tables
        self._bound: list[BoundTable] = []
        self._tasks: dict[int, RunningTask] = {}
        self._before: tuple[object, ...] = ()

    def enter(self, context: Context) -> RunningTask:
        """An agent begins: with it the application, where it is the first one, and its task."""
        self.host.enter()
        if not self._tasks:
            self._bind()
        env = context.environment
        task = self._tasks.get(id(env))
        if task is None:
            task = self._tasks[id(env)] = self._begin(context)
        task.agents += 1
        return task

    def _begin(self, context: Context) -> RunningTask:
        stores: dict[str, Rows] = {table.name: context.get_state_store(table.name) for table in self._tables}
        task = RunningTask(context.environment, stores)
        expiring = [table for table in self._tables if table._should_expire_keys()]
        for table in expiring:
            watch_expiry(table, task.partition, stores[table.name])

        def clean(now_ms: int) -> None:
            for table in expiring:
                expire(table, task.partition, stores[table.name], now_ms / 1000)

        if expiring:
            interval_ms = max(1, round(self.app.conf.table_cleanup_interval * 1000))
            context.schedule(interval_ms, PunctuationType.WALL_CLOCK_TIME, clean)
        return task

    def leave(self, task: RunningTask, workers: list[asyncio.Task[None]]) -> None:
        """An agent of that task ends."""
        task.agents -= 1
        if not task.agents:
            del self._tasks[id(task.env)]
        if self.host.leave(workers):
            self._unbind()

    def _bind(self) -> None:
        app = self.app
        self._before = app._attachments, app._producer, app._consumer
        # Events are acknowledged through it; without one faust would connect another.
        app._consumer = object()
        app._attachments = Attachments(app, _outbox)
        producer = app.producer = Producer(_outbox)

        async def its_producer() -> Producer:
            return producer

        app.maybe_start_producer = its_producer
        self._bound = [BoundTable(table, _rows(table.name), _partition) for table in self._tables]

    def _unbind(self) -> None:
        for bound in self._bound:
            bound.unbind()
        self._bound = []
        app = self.app
        app._attachments, app._producer, app._consumer = self._before
        del app.maybe_start_producer


def _outbox() -> Outbox:
    return current_task().outbox


def _partition() -> int:
    return current_task().partition


def _rows(name: str) -> Callable[[], Rows]:
    def find() -> Rows:
        return current_task().stores[name]

    return find
