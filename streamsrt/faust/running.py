"""An application while its tasks run: what replaces faust's worker around them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from faust import App
from faust.tables.base import Collection

from streamsrt.client.values import NewTopic
from streamsrt.errors import StreamsError, UserError
from streamsrt.faust.asking import BrokerAnswers, OpenAnswers, Replies
from streamsrt.faust.background import TICK_MS, Background, app_tasks
from streamsrt.faust.current import (
    CURRENT,
    ChannelFeed,
    RunningTask,
    WholeProcess,
    as_current,
    current_outbox,
    current_partition,
    current_rows,
    fail_current,
    give_to_channel,
    is_in_agent,
)
from streamsrt.faust.expiry import RowExpiry
from streamsrt.faust.host import Host
from streamsrt.faust.lifecycle import bind_life, unbind_life
from streamsrt.faust.locations import caller, line_of
from streamsrt.faust.monitoring import Figures, bind_monitor, unbind_monitor
from streamsrt.faust.names import BY_HAND, REFUSED, REFUSED_METHODS, bind_attributes, unbind_attributes
from streamsrt.faust.pages import LocalAssignor, LocalRouter
from streamsrt.faust.reading import Declared
from streamsrt.faust.recovery import call_for_rows, hears_of_changes
from streamsrt.faust.rows import ReadableRows, Rows
from streamsrt.faust.sends import (
    Attachments,
    Outbox,
    Producer,
    bind_channels,
    bind_sends,
    placed,
    unbind_channels,
    unbind_sends,
)
from streamsrt.faust.services import BoundServices
from streamsrt.faust.sets import TakenSets, refuse_changes
from streamsrt.faust.spawned import Spawned
from streamsrt.faust.tables import (
    BoundTable,
    GlobalRows,
    changelog_of,
    hears_of_closed_windows,
    is_global,
    is_of_sets,
    shared_name,
)
from streamsrt.faust.timers import Jobs, ReadOnlyRows
from streamsrt.operators.engine.environment import Environment
from streamsrt.operators.engine.punctuation_queue import PunctuationSchedule
from streamsrt.operators.kinds.user_processors import Context
from streamsrt.wire.murmur2 import partition_for_key
from topology.spec.processor import PunctuationType

if TYPE_CHECKING:
    import faust


class LocalConsumer:
    """What events are acknowledged through (in the place of faust's consumer, which would connect)."""

    def __init__(self, refuse: Callable[[str, str], NoReturn]) -> None:
        self._refuse = refuse
        self._unacked_messages: set[object] = set()
        """Faust's streams over values and channels note theirs here."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raises UserError for what an application wants of a consumer."""
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse(f"app.consumer.{name}", REFUSED[App]["consumer"])


OpenChannels = Callable[["RunningApplication", RunningTask], Sequence[ChannelFeed]]
logger = logging.getLogger(__name__)

_CHECK_INTERVAL_MS, _SECOND_MS = 100, 1_000
_TAKEN_MAX = 10_000
"""How many sets are written at once."""
_REPLACED = ("_attachments", "_producer", "_consumer", "_loop", "_started", "_stopped", "rebalancing_count")


def _no_channels(running: RunningApplication, task: RunningTask) -> Sequence[ChannelFeed]:
    return ()


class RunningApplication:
    """An application in this process: from the first agent that begins to the last one that ends."""

    def __init__(
        self,
        app: faust.App,
        found: Declared,
        open_answers: OpenAnswers = BrokerAnswers,
        open_channels: OpenChannels = _no_channels,
        *,
        serves: bool = True,
        says_init: bool = True,
    ) -> None:
        self.app = app
        self.first_agent = found.agents[0]
        """Whose partition 0 makes a task the leader."""
        self._agents = (*found.agents, *found.of_channels)
        self._open_channels = open_channels
        self._channels = {id(agent.channel): agent.channel for agent in found.of_channels}
        self._open_answers = open_answers
        self._serves = serves
        self._replies: Replies | None = None
        self._timers = found.timers
        self._timer_calls: dict[int, asyncio.Task[None]] = {}
        """The last call of each."""
        self._app_tasks = app_tasks(found.tasks)
        self.figures = Figures(app)
        self.taken = TakenSets()
        self.host = Host()
        self._tables = found.tables
        self._bound: list[BoundTable] = []
        self._tasks: dict[int, RunningTask] = {}
        self._shared: dict[str, ReadableRows] = {}
        """By global table, what has the rows of all partitions."""
        self._expiries: dict[str, dict[int, RowExpiry]] = {table.name: {} for table in self._tables}
        """By table and partition."""
        self._spawned: Spawned[RunningTask] = Spawned(self._owner, self._run_loop_for)
        self._before: dict[str, object] = {}
        self._background: Background | None = None
        self._says_init = says_init
        self._has_begun = False
        self._request_stop: Callable[[], None] = lambda: None
        self.has_news = False
        """Whether those who listen have to hear of other partitions."""

    def enter(self, context: Context, *, is_first: bool = False) -> RunningTask:
        """An agent begins: with it the application, where it is the first one, and its task.

        ``is_first``: it is the first agent of the application.
        """
        env = context.environment
        task = self._tasks.get(id(env))
        own = self._stores(context) if task is None else {}
        loop = self.host.enter()
        if not self._tasks:
            self._request_stop = env.request_stop
            self._bind(loop)
            self._loose = self._outbox(env)
        if task is None:
            is_beginning = not self._tasks
            task = self._tasks[id(env)] = self._begin(context, own)
            try:
                if is_beginning:
                    self._begin_life()
                self._call_for_rows(task, own)
            except StreamsError:
                # Nobody leaves who has not entered.
                task.agents = 1
                self.leave(task, [])
                raise
            self.has_news = self._background is not None and self._background.listens
        task.agents += 1
        task.leads = task.leads or (is_first and task.partition == 0)
        return task

    def _begin_life(self) -> None:
        """Calls ``on_first_start`` and ``on_start``. Raises ProcessingError."""
        background = self._background
        assert background is not None
        with as_current(self._process()):
            background.begin(is_first=not self._has_begun)
        self._has_begun = True

    def _end_life(self, context: Context, task: RunningTask) -> None:
        """The last commit of the task is next: with the last task, the application ends, and what it sends belongs to it."""
        task.has_ended = True
        background = self._background
        if background is None or not all(each.has_ended for each in self._tasks.values()):
            return
        self._loose.env = task.env
        with as_current(self._process()):
            background.end()
        self._loose.flush(context.node_name)

    def _call_for_rows(self, task: RunningTask, own: Mapping[str, Rows]) -> None:
        """Calls ``on_changelog_event``, and waits for it. Raises StreamsError."""
        for table in self._tables:
            if hears_of_changes(table):
                with as_current(self._process()):
                    self.host.run(call_for_rows(table, own[table.name], task.partition))

    def _stores(self, context: Context) -> dict[str, Rows]:
        """Those of a task. Raises UserError for one that can't be read."""
        own: dict[str, Rows] = {}
        for table in self._tables:
            rows = own[table.name] = context.get_state_store(table.name)
            if is_of_sets(table) and is_global(table):
                refuse_changes(table, rows)
        return own

    def _begin(self, context: Context, own: dict[str, Rows]) -> RunningTask:
        stores = dict(own)
        for table in self._tables:
            if is_global(table):
                shared = self._shared[table.name] = context.get_state_store(shared_name(table))
                stores[table.name] = GlobalRows(own[table.name], shared)
        task = RunningTask(context, stores, self._outbox(context.environment))
        self.figures.add_task(task.env)
        task.channels = list(self._open_channels(self, task))
        task.env.endings.append(lambda: self._end_life(context, task))
        task.env.committed.append(lambda: self._hear_of_commit(context, task))
        jobs = task.jobs = Jobs(task.env, self.host, lambda: task.outbox.flush(context.node_name))
        self._watch(context, task, jobs)
        self._schedule(context, task, jobs)
        for table in self._tables:
            self._write_taken(context, table, own[table.name])
        context.schedule(_SECOND_MS, PunctuationType.WALL_CLOCK_TIME, lambda _: self._sample(task))
        return task

    def _write_taken(self, context: Context, table: faust.Table, rows: Rows) -> None:
        """Writes the sets that were made of Faust's changes to the changelog."""
        keys = [key for key in self.taken.of(table.name) if rows.get(key) is not None]
        if not keys:
            return
        logger.info(
            "table %s: %d sets are made of the changes that Faust has written to %s, and are written there as whole sets. "
            "When they are committed, set cleanup.policy=compact of the topic, unless it is set",
            *(table.name, len(keys), changelog_of(table)),
        )

        def write(now_ms: int) -> None:
            for key in keys[:_TAKEN_MAX]:
                rows.put(key, rows.get(key))
            del keys[:_TAKEN_MAX]
            if not keys:
                schedule.cancel()

        schedule = context.schedule(_CHECK_INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, write)

    def _sample(self, task: RunningTask) -> None:
        if next(iter(self._tasks.values())) is task:
            self.figures.tick()

    def _watch(self, context: Context, task: RunningTask, jobs: Jobs) -> None:
        """Lets the rows of the task expire."""
        expiring = [table for table in self._tables if table._should_expire_keys()]
        for table in expiring:
            self._expiries[table.name][task.partition] = RowExpiry(
                table, task.partition, context.get_state_store(table.name)
            )

        rest: PunctuationSchedule | None = None

        def clean(now_ms: int) -> None:
            nonlocal rest
            if any([self._expire(table, task, jobs, now_ms) for table in expiring]):
                rest = rest or context.schedule(_CHECK_INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, clean)
            elif rest is not None:
                rest.cancel()
                rest = None

        if expiring:
            interval_ms = max(1, round(self.app.conf.table_cleanup_interval * 1000))
            context.schedule(interval_ms, PunctuationType.WALL_CLOCK_TIME, clean)
            # Once soon: tasks that begin more often than that would let nothing expire.
            rest = context.schedule(_CHECK_INTERVAL_MS, PunctuationType.WALL_CLOCK_TIME, clean)

    def _expire(self, table: faust.Table, task: RunningTask, jobs: Jobs, now_ms: int) -> bool:
        """Deletes what has expired. Returns whether there is more."""
        closed, has_more = self._expiries[table.name][task.partition].expire(now_ms / 1000)
        if closed and hears_of_closed_windows(table):
            with as_current(task):
                jobs.begin(partial(_close, table, closed), f"on_window_close of table {table.name}")
        return has_more

    def _outbox(self, env: Environment) -> Outbox:
        signal = self.app.on_produce_message
        is_heard = any(True for _ in signal.iter_receivers(self.app))
        return Outbox(self.app, env, self.figures.sends, signal.send if is_heard else None)

    def _schedule(self, context: Context, task: RunningTask, jobs: Jobs) -> None:
        """Every task looks after the timers, and the first one of the process runs them, and what runs beside the agents."""
        background = self._background
        assert background is not None
        now_ms = context.current_system_time_ms()
        due = {number: timer.next_ms(now_ms) for number, timer in enumerate(self._timers)}
        ahead_ms = task.env.plan.clock.ahead_ms

        def run_timers(now_ms: int) -> None:
            nonlocal ahead_ms
            if by_ms := task.env.plan.clock.ahead_ms - ahead_ms:
                ahead_ms += by_ms
                due.update({each: self._timers[each].moved(at_ms, by_ms, now_ms) for each, at_ms in due.items()})
            is_first = next(iter(self._tasks.values())) is task
            if is_first and self.has_news:
                self.announce()
            for number, timer in enumerate(self._timers):
                if due[number] > now_ms:
                    continue
                due[number] = timer.next_ms(now_ms)
                if (task.leads if timer.on_leader else is_first) and self._is_over(number):
                    with as_current(WholeProcess(self._all_rows(), task.outbox, task.partition, task.channels)):
                        self._timer_calls[number] = jobs.begin(
                            timer.function, f"the timer at {line_of(timer.function)}"
                        )
            if is_first:
                self._advance_background(background, task.env, context.node_name)

        intervals = [
            _CHECK_INTERVAL_MS,
            *(round(each.interval_s * 1000) or _CHECK_INTERVAL_MS for each in self._timers),
        ]
        if background.is_wanted:
            intervals.append(TICK_MS)
        if self._timers or background.is_wanted or background.listens:
            context.schedule(max(1, min(intervals)), PunctuationType.WALL_CLOCK_TIME, run_timers)

    def _is_over(self, timer: int) -> bool:
        """Whether the last call of a timer has ended."""
        last = self._timer_calls.get(timer)
        return last is None or last.done()

    def _advance_background(self, background: Background, env: Environment, node: str) -> None:
        self._loose.env = env
        replies = self._replies
        if replies is not None:
            replies.deliver()
        if background.is_wanted or background.is_running or self._spawned.is_running:
            with as_current(self._process()):
                background.advance(leads=self._leads())
        else:
            # app.crash() of an application that has nothing else beside its agents.
            background.check()
        self._loose.flush(node)

    def _hear_of_commit(self, context: Context, task: RunningTask) -> None:
        """Calls the callbacks of what was sent. Nothing else runs meanwhile: other tasks may be within their commit."""
        done = task.outbox.committed()
        if self._loose.env is task.env:
            done += self._loose.committed()
        background = self._background
        if not done or background is None:
            return
        with as_current(self._process()):
            for future in done:
                background.call_back(future)
        if background.is_running or self._loose.is_filled:
            self._go_on(task)

    def _go_on(self, task: RunningTask) -> None:
        """Looks at what callbacks and tasks of the program do until that is over."""
        background, context = self._background, task.context
        if background is None or task.ticks:
            return

        def check_background(now_ms: int) -> None:
            self._advance_background(background, task.env, context.node_name)
            if self._spawned.is_running:
                task.outbox.flush(context.node_name)
            if not background.is_running and not self._spawned.keeps(task):
                task.ticks = False
                task.env.wait_max_ms = None
                schedule.cancel()

        task.ticks = True
        task.env.wait_max_ms = TICK_MS
        schedule = context.schedule(TICK_MS, PunctuationType.WALL_CLOCK_TIME, check_background)

    def _declare(self, topic: NewTopic) -> None:
        assert self._replies is not None
        self._replies.answers().declare(topic)

    def _begin_to_ask(self) -> None:
        """Called when running code calls ``ask``. Raises UserError if an agent does; commits no longer wait for a timer
        that does."""
        if not isinstance(CURRENT.get(None), WholeProcess):
            self._refuse(
                "ask, map or join in an agent or in on_window_close",
                "a commit waits for the record that it works on, and the answer for that commit: send with agent.cast() or "
                "agent.send(reply_to=topic), and let an agent read that topic. Tasks, services and timers may ask",
            )
        asks = asyncio.current_task()
        for task in self._tasks.values():
            if task.jobs is not None and asks in task.jobs.tasks:
                task.jobs.tasks.discard(asks)
                assert self._background is not None
                self._background.adopt(asks)
        CURRENT.set(self._process())

    def _stream_of(self, channel: object, *arguments: object, **named: object) -> object:
        """``app.stream`` of all but topics. Raises UserError."""
        from faust.types import TopicT

        if isinstance(channel, TopicT):
            self._refuse(f"app.stream of topic {channel}", BY_HAND)
        return type(self.app).stream(self.app, channel, *arguments, **named)

    def _refuse_method(self, name: str, *_: object, **__: object) -> NoReturn:
        self._refuse(f"app.{name}", REFUSED[App][name])

    def _refuse_monitor(self) -> NoReturn:
        self._refuse(
            "app.monitor = ... while the application runs", "give it before the start, or as Monitor= of the App"
        )

    def _refuse_of_table(self, table: str, name: str) -> NoReturn:
        self._refuse(f"{name} of table {table}", REFUSED[Collection][name])

    def _refuse(self, what: str, instead: str) -> NoReturn:
        """Ends the application, whatever its code makes of the exception. Raises UserError with the line of the call."""
        location = caller() or self._spawned.location()
        error = UserError(
            f"{what} ({location}) is not supported by streamsrt.faust: {instead}. The application ends here"
        )
        fail_current(error)
        if self._background is not None and not isinstance(CURRENT.get(None), RunningTask):
            self._background.fail(error)
        raise error

    def has_all(self, table: str, key: object) -> bool:
        """Whether a row would be in this process, if there is one."""
        tasks = list(self._tasks.values())
        topics = {topic for task in tasks for topic in task.env.plan.subtopology.source_topics}
        count = max((tasks[0].env.partitions_of_topic(topic) for topic in topics), default=0) if tasks else 0
        return len({task.partition for task in tasks}) >= count or self._all_rows()[table].get(key) is not None

    def reads(self, topic: str, key: bytes) -> bool:
        """Whether an agent of this process gets the records of that key."""
        found = [task for task in self._tasks.values() if topic in task.env.plan.subtopology.source_topics]
        if not found:
            return False
        count = found[0].env.partitions_of_topic(topic)
        chosen = placed(self.app, key, count)
        tp = (topic, partition_for_key(key, count) if chosen is None else chosen)
        return any(tp in task.partitions() for task in found)

    def of_topics(self) -> set[tuple[str, int]]:
        """The partitions that agents of this process read, with their topics."""
        return {each for task in self._tasks.values() for each in task.partitions()}

    def of_tables(self) -> dict[str, set[int]]:
        """The partitions whose rows are in this process, by table."""
        tasks = list(self._tasks.values())
        return {each.name: {task.partition for task in tasks if each.name in task.stores} for each in self._tables}

    def _leads(self) -> bool:
        return any(task.leads for task in self._tasks.values())

    def _process(self) -> WholeProcess:
        first = next(iter(self._tasks.values()), None)
        return WholeProcess(self._all_rows(), self._loose, 0, () if first is None else first.channels)

    def announce(self) -> None:
        """Tells those who listen which partitions there are. Raises ProcessingError."""
        self.has_news = False
        assert self._background is not None
        partitions = self.of_topics()
        with as_current(self._process()):
            self._background.announce(partitions)

    def _all_rows(self) -> dict[str, Rows]:
        def stores(name: str) -> Callable[[], Iterator[Rows]]:
            return lambda: (task.stores[name] for task in list(self._tasks.values()))

        found: dict[str, Rows] = {table.name: ReadOnlyRows(table.name, stores(table.name)) for table in self._tables}
        for name, shared in self._shared.items():
            found[name] = GlobalRows(found[name], shared)
        return found

    def leave(self, task: RunningTask, workers: list[asyncio.Task[None]]) -> None:
        """An agent of that task ends."""
        task.agents -= 1
        if not task.agents:
            del self._tasks[id(task.env)]
            self.figures.remove_task(task.env)
            for expiries in self._expiries.values():
                expiries.pop(task.partition, None)
            workers = [*workers, *(task.jobs.tasks if task.jobs else ()), *self._spawned.of(task)]
            for feed in task.channels:
                feed.end()
                workers += feed.calls
            self.has_news = self._background is not None and self._background.listens
        if not self._tasks and self._background is not None:
            # Where it has not ended yet, it has failed, or lost its tasks: what is sent now is not written.
            with as_current(self._process()):
                self._background.end()
            self._background = None
            workers = [*workers, *self._spawned.all()]
        if self.host.leave(workers):
            self._unbind()
        elif not task.agents and self._spawned.is_running:
            # That task may have been the one that the loop ran for.
            self._run_loop_for(None)

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        app = self.app
        self._before = {name: getattr(app, name) for name in _REPLACED}
        app._consumer = LocalConsumer(self._refuse)
        # Channels that no agent reads are queues of the process.
        app.flow_control.resume()
        app._attachments = Attachments(app, current_outbox, give_to_channel)
        bind_channels(app, self._channels.values())
        bind_sends(app)
        bind_life(app, lambda: self._background)
        bind_attributes(app, self._refuse_method)
        bind_monitor(self.figures, app, is_in_agent, self._refuse_monitor)
        producer = app.producer = Producer(current_outbox, self._declare)

        async def its_producer() -> Producer:
            return producer

        async def nothing() -> None:
            """The client runs already."""

        app.stream = self._stream_of
        for name in REFUSED_METHODS:
            setattr(app, name, partial(self._refuse_method, name))
        app.maybe_start_producer = its_producer
        app.maybe_start_client = nothing
        self._replies = app._reply_consumer = Replies(
            app, lambda: self._open_answers(app, self._loose.env), self._begin_to_ask
        )
        self._background = Background(app, self.host, self._app_tasks, serves=self._serves)
        self._services = BoundServices(
            app, self._agents, self._tables, self._background, self._stop, self._refuse, self._keep_iterating
        )
        app._loop = loop
        loop.set_task_factory(self._spawned.factory)  # type: ignore[arg-type]  # typeshed wants generators, too
        # It belongs to the loop that the application has when it is made.
        app._stopped = app._new_stopped_event()
        app.is_leader = self._leads
        self._bound = [
            BoundTable(
                *(table, current_rows(table.name), current_partition, self._expiries[table.name], fail_current),
                *(self.figures.of_table(table), partial(self._refuse_of_table, table.name)),
            )
            for table in self._tables
        ]
        app.router = LocalRouter(app, self)
        app.assignor = LocalAssignor(
            app, self, lambda name: self._refuse(f"app.assignor.{name}", REFUSED[App]["assignor"])
        )
        if self._says_init:
            self._says_init = False
            app.on_worker_init.send()

    def _keep_iterating(self) -> None:
        """Lets the loop run for what has been added while the application runs."""
        if self._background is not None and not self._background.is_wanted:
            self._run_loop_for(None)

    def _owner(self) -> RunningTask | None:
        """The task whose agent or timer runs."""
        outbox = getattr(CURRENT.get(None), "outbox", None)
        return next((task for task in self._tasks.values() if task.outbox is outbox), None)

    def _run_loop_for(self, owner: RunningTask | None) -> None:
        """Lets the loop run for a task of the program: in the first task if no other one has begun it."""
        task = owner or next(iter(self._tasks.values()), None)
        if task is not None:
            self._go_on(task)

    async def _stop(self) -> None:
        """``app.stop()``: asks for the end, and waits for nothing, as the end waits for who calls it."""
        if not self.app._stopped.is_set():
            logger.info("application %s calls app.stop(): this instance commits and ends", self.app.conf.id)
            self.app._stopped.set()
        self._request_stop()

    def _unbind(self) -> None:
        for bound in self._bound:
            bound.unbind()
        self._bound = []
        app = self.app
        unbind_sends(app)
        unbind_life(app)
        unbind_attributes(app)
        unbind_monitor(app)
        unbind_channels(self._channels.values())
        app.flow_control.suspend()
        for name, value in self._before.items():
            setattr(app, name, value)
        if self._replies is not None:
            self._replies.close()
        self._services.unbind()
        for name in REFUSED_METHODS:
            delattr(app, name)
        del app.stream
        del app.maybe_start_producer
        del app.maybe_start_client
        del app._reply_consumer
        del app.is_leader
        del app.router
        del app.assignor


async def _close(table: faust.Table, windows: list[tuple[object, object]]) -> None:
    for key, value in windows:
        try:
            await table.on_window_close(key, value)
        except StreamsError:
            raise
        except Exception:
            logger.exception("on_window_close of table %s raised for %s", table.name, key)
