"""What all agents of one task share, and the application while its tasks run.

Which task runs is known by a context variable: agents of several tasks share an event loop, and the tables and topics of
the application are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from streamsrt.errors import UserError
from streamsrt.faust.host import Host
from streamsrt.faust.sends import Attachments, Outbox, Producer
from streamsrt.faust.tables import BoundTable, Rows, expire, watch_expiry
from streamsrt.faust.timers import ReadOnlyRows, Timer, TimerJobs
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
        self.leads = False
        """Whether it has partition 0 of the first agent: timers of the leader run there."""
        self.jobs: TimerJobs | None = None


class WholeProcess(NamedTuple):
    """What a timer has in the place of a task: all rows of the process, and the sends of one of its tasks."""

    stores: dict[str, Rows]
    outbox: Outbox
    partition: int


CURRENT: ContextVar[RunningTask | WholeProcess] = ContextVar("CURRENT")


def current_task() -> RunningTask | WholeProcess:
    """The task whose agent runs. Raises UserError outside of one."""
    task = CURRENT.get(None)
    if task is None:
        raise UserError("tables and sends of an application that runs here belong to its agents: use them in one")
    return task


class NoReplies:
    """Stands for what would wait for the answer of an agent."""

    async def add(self, correlation_id: str, promise: object) -> None:
        """Raises UserError."""
        raise UserError(
            "an agent was asked by ask, map or join, and nothing here waits for answers: send with agent.cast() or "
            "agent.send(reply_to=topic), and let an agent read that topic"
        )


class RunningApplication:
    """An application in this process: from the first agent that begins to the last one that ends."""

    def __init__(self, app: faust.App, tables: tuple[faust.Table, ...], timers: Sequence[Timer] = ()) -> None:
        self.app = app
        self._timers = timers
        self.host = Host()
        self._tables = tables
        self._bound: list[BoundTable] = []
        self._tasks: dict[int, RunningTask] = {}
        self._before: tuple[object, ...] = ()

    def enter(self, context: Context, *, is_first: bool = False) -> RunningTask:
        """An agent begins: with it the application, where it is the first one, and its task.

        ``is_first``: it is the first agent of the application.
        """
        self.host.enter()
        if not self._tasks:
            self._bind()
        env = context.environment
        task = self._tasks.get(id(env))
        if task is None:
            task = self._tasks[id(env)] = self._begin(context)
        task.agents += 1
        task.leads = task.leads or (is_first and task.partition == 0)
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
        if self._timers:
            self._schedule(context, task)
        return task

    def _schedule(self, context: Context, task: RunningTask) -> None:
        """Every task looks after the timers, and the first one of the process runs them."""

        def settle() -> None:
            task.outbox.flush(context.node_name)

        jobs = task.jobs = TimerJobs(task.env, self.host, settle)
        now_ms = context.current_system_time_ms()
        due = {number: timer.next_ms(now_ms) for number, timer in enumerate(self._timers)}

        def look(now_ms: int) -> None:
            for number, timer in enumerate(self._timers):
                if due[number] > now_ms:
                    continue
                due[number] = timer.next_ms(now_ms)
                if task.leads if timer.on_leader else next(iter(self._tasks.values())) is task:
                    token = CURRENT.set(WholeProcess(self._all_rows(), task.outbox, task.partition))
                    try:
                        jobs.begin(timer)
                    finally:
                        CURRENT.reset(token)

        shortest_ms = min((round(each.interval_s * 1000) or 1000) for each in self._timers)
        context.schedule(max(1, min(shortest_ms, 1000)), PunctuationType.WALL_CLOCK_TIME, look)

    def _all_rows(self) -> dict[str, Rows]:
        def stores(name: str) -> Callable[[], Iterator[Rows]]:
            return lambda: (task.stores[name] for task in list(self._tasks.values()))

        return {table.name: ReadOnlyRows(stores(table.name)) for table in self._tables}

    def leave(self, task: RunningTask, workers: list[asyncio.Task[None]]) -> None:
        """An agent of that task ends."""
        task.agents -= 1
        if not task.agents:
            del self._tasks[id(task.env)]
            workers = [*workers, *(task.jobs.tasks if task.jobs else ())]
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
        app._reply_consumer = NoReplies()
        self._bound = [BoundTable(table, _rows(table.name), _partition) for table in self._tables]

    def _unbind(self) -> None:
        for bound in self._bound:
            bound.unbind()
        self._bound = []
        app = self.app
        app._attachments, app._producer, app._consumer = self._before
        del app.maybe_start_producer
        del app._reply_consumer


def _outbox() -> Outbox:
    return current_task().outbox


def _partition() -> int:
    return current_task().partition


def _rows(name: str) -> Callable[[], Rows]:
    def find() -> Rows:
        return current_task().stores[name]

    return find
