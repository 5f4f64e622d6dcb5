"""One agent in one task: its workers, acknowledgements and exceptions.

1. Records of a run are collected and passed to the workers at its end. The event loop then runs until the workers are
   done or wait for something else. After that the task continues, and checks on them when it is idle (a ``Window`` of
   the environment).
2. A worker is one call of the agent's function, an asyncio task. With ``concurrency`` there are several; all records of
   a key go to the same worker, in order.
3. An agent that raises an exception is called again, as in Faust, and continues after the failed record if the
   processing exception handler returns CONTINUE. Records that can't be decoded go to the deserialization exception
   handler.
4. Sends are passed to the task when no worker can make progress.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import TYPE_CHECKING
from zlib import crc32

from faust.agents.agent import _current_agent
from faust.agents.models import ReqRepRequest
from faust.app import App
from faust.streams import _current_event
from faust.types.tuples import TP
from mode.supervisors import CrashingSupervisor

from streamsrt.errors import DeserializationError, ProcessingError, StreamsError
from streamsrt.faust.current import CURRENT, RunningTask
from streamsrt.faust.decoding import Decoder, Row
from streamsrt.faust.locations import line_of
from streamsrt.faust.monitoring import AgentFlow, monitor_of
from streamsrt.faust.running import RunningApplication
from streamsrt.faust.streams import AgentStream, Chain
from streamsrt.operators.engine.environment import Environment, why_skipped
from streamsrt.operators.engine.handlers import ErrorContext, HandlerResponse
from streamsrt.operators.kinds.user_processors import Context
from streamsrt.wire.records import Headers
from streamsrt.wording import error_text
from topology.spec.processor import ProcessorContext, Record, RecordMetadata

if TYPE_CHECKING:
    import faust

logger = logging.getLogger(__name__)

WORKING: ContextVar[Worker] = ContextVar("WORKING")
"""Whose records what runs works on."""

HELD_MAX = 8192
_FIRST_RECORDS = 256
"""How many records an agent is given before it is known whether it awaits anything else."""
_IDLE_ITERATIONS = 3
"""After so many iterations of the loop without an acknowledgement an agent waits for something."""


class Worker:
    """One call of the agent's function, and the records that it was given."""

    def __init__(self, node: AgentNode, index: int) -> None:
        self.node = node
        self.app = node.app
        self.channel = node.channel
        self.index = index
        self.queue: deque[Row] = deque()
        self.row: Row | None = None
        self.held: list[Row] = []
        self.wants = 0
        self.decode = node.decode
        self.chain: Chain | None = None
        """The streams of the call that runs."""
        self._more: asyncio.Future[bool] | None = None

    @property
    def unfinished(self) -> int:
        """The number of unacknowledged records."""
        return len(self.queue) + len(self.held) + (self.row is not None)

    @property
    def is_hurried(self) -> bool:
        """Whether a commit is waiting for this worker."""
        return self.node.is_finishing

    @property
    def active_partitions(self) -> set[TP] | None:
        """Those that it reads, if the agent wants each by itself."""
        if not self.node.agent.isolated_partitions:
            return None
        names = set(self.channel.topics)
        return {TP(topic, number) for topic, number in self.node.task.partitions() if topic in names}

    def wake(self, has_more: bool = True) -> None:
        """Tells it that there are records, or that none will come in time."""
        if self._more is not None and not self._more.done():
            self._more.set_result(has_more)

    async def more(self, within_s: float | None = None) -> bool:
        """Waits for records until the timeout. Returns whether there are any."""
        loop = asyncio.get_running_loop()
        self._more = loop.create_future()
        timer = None if within_s is None else loop.call_later(max(0.0, within_s), self.wake, False)
        try:
            return await self._more
        finally:
            if timer is not None:
                timer.cancel()

    def acknowledge(self) -> None:
        """The record that it works on is done, and those that it holds are."""
        self.row = None
        node = self.node
        if self.held:
            node.acknowledged += len(self.held)
            self.held.clear()
        node.acknowledged += 1
        if node.is_waiting:
            node.wake()

    def hold_back(self, row: Row) -> Callable[[], bool]:
        """The offset of the record is not committed until the agent calls what this returns."""
        topic, partition, offset = row.metadata
        offsets = self.node.held_back.setdefault((topic, partition), {})
        offsets[offset] = None

        def release() -> bool:
            return offsets.pop(offset, self) is None

        return release

    def passed(self) -> None:
        """One record is done."""
        self.node.acknowledged += 1
        if self.node.is_waiting:
            self.node.wake()

    def is_undecodable(self, row: Row, error: Exception) -> None:
        """Passes over the record, or fails."""
        self.node.undecodable(row, error)
        self.node.release(row)
        self.row = None
        self.passed()

    async def run(self) -> None:
        """Calls the agent's function again and again, until it fails for good."""
        agent, node = self.node.agent, self.node
        CURRENT.set(node.task)
        WORKING.set(self)
        _current_agent.set(agent)
        while True:
            chain = self.chain = Chain(agent.name, agent.channel, self, node.stage, read=node.channels)
            _current_event.set(_event_of(chain, node.stage))
            try:
                await (self._iterate(chain) if node.is_last else self._relay(chain))
            except StreamsError as failure:
                node.fail(failure)
                return
            except asyncio.CancelledError as error:
                if node.is_over:
                    raise
                failed: Exception = RuntimeError(f"the agent was cancelled: {error}")
            except Exception as error:  # noqa: BLE001  # an agent may raise anything
                failed = error
            else:
                node.fail(
                    ProcessingError(
                        f"agent {agent.name} ({line_of(agent.fun)}) has returned. An agent iterates over its stream for as "
                        "long as the application runs: remove what ends its loop"
                    )
                )
                return
            if not await self._goes_on(failed):
                return

    async def _relay(self, chain: Chain) -> None:
        """Lets the agent derive its streams, then feeds the stream of this node."""
        starting = asyncio.ensure_future(self._iterate(chain))
        asked = asyncio.ensure_future(chain.asked.wait())
        try:
            await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                return
            async for _ in chain.streams[self.node.stage]:
                pass
        finally:
            starting.cancel()
            asked.cancel()

    async def _iterate(self, chain: Chain) -> None:
        agent = self.node.agent
        result = agent.fun(chain.streams[0])
        if not isinstance(result, AsyncIterable):
            await result
            return
        for stream in chain.streams:
            stream.unwrap = True
        async for value in result:
            event = chain.streams[-1].current_event
            if event is not None:
                await self._reply(event, value)
            await agent._delegate_to_sinks(value)

    async def _reply(self, event: faust.EventT, value: object) -> None:
        request, headers = event.value, event.headers
        if isinstance(request, ReqRepRequest):
            await self.node.agent._reply(event.key, value, request.reply_to, request.correlation_id)
        elif headers and headers.get("Faust-Ag-ReplyTo"):
            reply_to, correlation = headers["Faust-Ag-ReplyTo"], headers.get("Faust-Ag-CorrelationId") or b""
            await self.node.agent._reply(event.key, value, reply_to.decode(), correlation.decode())

    async def _goes_on(self, error: Exception) -> bool:
        node, row = self.node, self.row
        if row is None and self.held:
            row = self.held.pop()
        if row is None:
            node.fail(
                ProcessingError(
                    f"agent {node.agent.name} ({line_of(node.agent.fun)}) raised {error_text(error)} before it "
                    "took a record, so it would do so again"
                )
            )
            return False
        try:
            await self._tell(error)
            for each in (*self.held, row):
                if node.crashes:
                    raise ProcessingError(
                        f"agent {node.agent.name} ({line_of(node.agent.fun)}) raised {error_text(error)} at "
                        f"{row.metadata.topic}-{row.metadata.partition} offset {row.metadata.offset}, and its supervisor is "
                        "CrashingSupervisor"
                    ) from error
                node.failed(each, error)
                node.release(each)
        except StreamsError as failure:
            node.fail(failure)
            return False
        self.acknowledge()
        return True

    async def _tell(self, error: Exception) -> None:
        """Calls the agent's ``on_error``. Raises StreamsError."""
        agent = self.node.agent
        if agent._on_error is None or self.node.has_default_on_error:
            return
        try:
            await agent._on_error(agent, error)
        except StreamsError:
            raise
        except Exception as raised:
            raise ProcessingError(
                f"on_error of agent {agent.name} ({line_of(agent.fun)}) raised {error_text(raised)}, when it was told "
                f"{error_text(error)}"
            ) from raised


class HeardWorker(Worker):
    """A call whose messages and events are told to the application's monitor one by one, as it wants them."""

    def __init__(self, node: AgentNode, index: int) -> None:
        super().__init__(node, index)
        self.decode = self._hear
        self._open: list[tuple[TP, faust.EventT, AgentStream, object]] = []
        self._counts = node.flow.counts_messages
        self._is_undecodable = False

    def _hear(self, row: Row) -> tuple[object, object]:
        try:
            key, value = self.node.decode(row)
        except Exception:
            self._is_undecodable = True
            raise
        assert self.chain is not None
        monitor, stream = monitor_of(self.app), self.chain.streams[self.node.stage]
        event = self.app.create_event(key, value, row.headers or None, row.message())
        tp = TP(row.metadata.topic, row.metadata.partition)
        if self._counts:
            _told(monitor.on_message_in, tp, row.metadata.offset, event.message)
        state = _told(monitor.on_stream_event_in, tp, row.metadata.offset, stream, event)
        self._open.append((tp, event, stream, state))
        return key, value

    def _tell_end(self, index: int) -> None:
        tp, event, stream, state = self._open.pop(index)
        monitor, message = monitor_of(self.app), event.message
        _told(monitor.on_stream_event_out, tp, message.offset, stream, event, state)
        if self._counts:
            _told(monitor.on_message_out, tp, message.offset, message)

    def acknowledge(self) -> None:
        """Tells what is done."""
        super().acknowledge()
        while self._open:
            self._tell_end(0)

    def passed(self) -> None:
        """Tells that a record was filtered out. For Faust, one that can't be decoded has not come."""
        super().passed()
        if not self._is_undecodable:
            self._tell_end(-1)
        self._is_undecodable = False


def _told(method: Callable[..., object], tp: TP, offset: int, *more: object) -> object:
    """Calls a method of a monitor. What it raises is no failure of the record, nor of the agent."""
    try:
        return method(tp, offset, *more)
    except Exception:
        name = getattr(method, "__name__", method)
        logger.exception("%s of the monitor raised at %s-%d offset %d", name, tp.topic, tp.partition, offset)
        return None


def _event_of(chain: Chain, stage: int) -> Callable[[], faust.EventT | None]:
    def event() -> faust.EventT | None:
        return chain.streams[stage].current_event if stage < len(chain.streams) else None

    return event


class AgentNode:
    """The processor of one stream of an agent, in one task. It takes records as the source has them, as bytes.

    ``channels``: what the agent's streams read, one after the other. ``stage``: the number of this one; the agent itself
    works on the last one, and the others relay.
    """

    def __init__(
        self,
        running: RunningApplication,
        agent: faust.Agent,
        channels: Sequence[faust.ChannelT],
        stage: int = 0,
    ) -> None:
        self.app = running.app
        self.agent = agent
        self.channels = channels
        self.channel = channels[stage]
        self.stage = stage
        self.is_last = stage == len(channels) - 1
        self._is_first = stage == 0 and running.first_agent is agent
        self.acknowledged = 0
        self.is_waiting = False
        """Whether an acknowledgement ends a wait."""
        self.is_over = False
        self.has_default_on_error = getattr(agent._on_error, "__func__", None) is App._on_agent_error
        self.crashes = issubclass(agent._get_supervisor_strategy(), CrashingSupervisor)
        """Whether the application stops when the agent raises."""
        self._running = running
        self._awaits = False
        """Whether it has awaited anything but records."""
        self._waiting: list[Row] = []
        self._next_worker = 0
        self._failure: StreamsError | None = None
        self.held_back: dict[tuple[str, int], dict[int, None]] = {}
        """By partition, the offsets of the records that the agent acknowledges itself, and has not yet."""

    def init(self, context: ProcessorContext[bytes, bytes]) -> None:
        """The task begins."""
        given: object = context
        assert isinstance(given, Context)
        # It may raise, and an agent that has not entered need not leave.
        decode = Decoder(self.app, self.channel).decode
        self.begin(self._running.enter(given, is_first=self._is_first), given.node_name, decode)

    def begin(self, task: RunningTask, name: str, decode: Callable[[Row], tuple[object, object]]) -> None:
        """Calls the agent's function, as often as it has ``concurrency``."""
        self.task = task
        self._env: Environment = task.env
        self._name = name
        self.decode = decode
        self.flow = self._new_flow(task)
        kind = HeardWorker if self._running.figures.hears_events else Worker
        self._workers = [kind(self, index) for index in range(self.agent.concurrency)]
        self.calls = [self._running.host.start(worker.run(), copy_context()) for worker in self._workers]
        self._env.windows.append(self)
        self._env.held_back.append(self._first_held_back)
        self._running.figures.add_agent(self, self.flow)

    def _new_flow(self, task: RunningTask) -> AgentFlow:
        topics: Sequence[str] = getattr(self.channel, "topics", ())
        group = str(self.channel)
        is_first = bool(topics or getattr(self.channel, "pattern", None)) and group not in task.counted
        task.counted.add(group)
        topic = topics[0] if len(topics) == 1 else None
        calls, tp = self.agent.concurrency, (group, task.partition)
        return AgentFlow(f"<Stream: {group}>", self.agent.name, topic, tp, counts_messages=is_first, calls=calls)

    def close(self) -> None:
        """The task ends. What is not acknowledged is forgotten."""
        self.is_over = True
        self._running.figures.remove_agent(self)
        self._running.leave(self.task, self.calls)
        self.task.outbox.clear()

    def process(self, record: Record[bytes, bytes]) -> None:
        """One record (the runtime calls :meth:`take_row` instead)."""
        self.take_row(record.key, record.value, record.timestamp, record.headers, None)

    def take_row(self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, old: object) -> None:
        """One record as it was read."""
        if not self._waiting:
            self._env.batches.append(self._work)
        assert self._env.metadata is not None
        self._waiting.append(Row(key, value, timestamp, headers, self._env.metadata))

    def _work(self) -> None:
        rows, self._waiting = self._waiting, []
        self.flow.gave(rows)
        if self._running.figures.is_rebalancing:
            self._running.figures.rebalanced()
        if self._running.has_news:
            self._announce()
        if len(self._workers) == 1:
            self._workers[0].queue.extend(rows)
        else:
            for row in rows:
                self._workers[self._worker_of(row)].queue.append(row)
        for worker in self._workers:
            if worker.queue:
                worker.wake()
        self._turn()

    def _announce(self) -> None:
        try:
            self._running.announce()
        except StreamsError as error:
            error.is_in_order = False
            raise

    def _worker_of(self, row: Row) -> int:
        if row.key is not None:
            return crc32(row.key) % len(self._workers)
        self._next_worker = (self._next_worker + 1) % len(self._workers)
        return self._next_worker

    def _turn(self) -> None:
        idle, began_s, done = 0, monotonic(), self.acknowledged
        while idle < _IDLE_ITERATIONS and self._is_working and self._failure is None:
            before = self.acknowledged
            self._running.host.iterate()
            idle = idle + 1 if self.acknowledged == before else 0
        self._count(began_s, done)
        # One that has not asked for its first record yet is on its way to it.
        self._awaits = self._awaits or any(worker.row is not None or worker.held for worker in self._workers)
        self._settle()

    def _settle(self) -> None:
        failure, self._failure = self.task.failure or self._failure, None
        if failure is not None:
            for worker in self._workers:
                worker.queue.clear()
                worker.held.clear()
                worker.row = None
            self.task.outbox.clear()
            failure.is_in_order = False
            raise failure
        try:
            self.task.outbox.flush(self._name)
        except StreamsError as error:
            error.is_in_order = False
            raise

    # ------------------------------------------------------------------------------------- as a window of asynchronous calls

    @property
    def unfinished(self) -> int:
        """How many records are not acknowledged."""
        return sum(worker.unfinished for worker in self._workers)

    queued = 0
    """They have no turns that could be foreseen."""

    @property
    def waiting(self) -> int:
        """How many records its calls have not taken."""
        return sum(len(worker.queue) for worker in self._workers)

    @property
    def in_work(self) -> int:
        """How many they work on, or have not acknowledged by hand."""
        by_hand = sum(map(len, self.held_back.values()))
        return by_hand or sum((worker.row is not None) + len(worker.held) for worker in self._workers)

    @property
    def is_calling(self) -> bool:
        """Whether there are any, or what came of them is not handed to the task.

        The loop is shared: an agent of another task may have let it run, and this one end.
        """
        return (
            self._is_working or self.task.outbox.is_filled or self._failure is not None or self.task.failure is not None
        )

    @property
    def _is_working(self) -> bool:
        return any(worker.row is not None or worker.queue or worker.held for worker in self._workers)

    @property
    def is_finishing(self) -> bool:
        """Whether a commit waits for it."""
        return self._env.is_finishing

    @property
    def room(self) -> int:
        """How many records more it takes now."""
        if not self.acknowledged:
            return max(0, _FIRST_RECORDS - self.unfinished)
        if not self._awaits:
            return HELD_MAX - self.unfinished
        wanted = sum(worker.wants for worker in self._workers)
        return max(0, 2 * len(self._workers) + wanted - self.unfinished)

    @property
    def under_way(self) -> str:
        """Describes what a commit is waiting for."""
        count = self.unfinished
        if not count:
            return ""
        what = "record" if count == 1 else "records"
        where = f"agent {self.agent.name} ({line_of(self.agent.fun)})"
        return f"{count} {what} of {where}, {len(self._workers)} at a time, for as long as it takes"

    def advance(self, wait_s: float | None = 0.0) -> bool:
        """Lets it go on, and waits for an acknowledgement for so long (None: for as long as it takes)."""
        if not self.is_calling:
            return False
        before, began_s = self.acknowledged, monotonic()
        if self.is_finishing:
            for worker in self._workers:
                if worker.held and not worker.queue:
                    worker.wake(False)
        self._running.host.iterate()
        if wait_s != 0.0 and self.acknowledged == before and self._is_working and self._failure is None:
            self.is_waiting = True
            try:
                self._running.host.wait(wait_s)
            finally:
                self.is_waiting = False
        self._count(began_s, before)
        self._settle()
        return self.acknowledged != before

    def _count(self, began_s: float, done_before: int) -> None:
        self.flow.worked(began_s, self.acknowledged - done_before, self.flow.given - self.acknowledged)
        self._running.figures.is_stale = True

    def wake(self) -> None:
        """Ends the wait."""
        self._running.host.wake()

    def cancel(self) -> None:
        """Nothing comes of what is under way any more."""
        self.is_over = True

    def _first_held_back(self) -> dict[tuple[str, int], int]:
        return {partition: min(offsets) for partition, offsets in self.held_back.items() if offsets}

    def release(self, row: Row) -> None:
        """Marks the record as skipped, so that a commit may include it."""
        topic, partition, offset = row.metadata
        self.held_back.get((topic, partition), {}).pop(offset, None)

    # --------------------------------------------------------------------------------------------------------- failures

    def fail(self, failure: StreamsError) -> None:
        """The agent can't go on: the task fails with this."""
        self._failure = failure
        if self.is_waiting:
            self.wake()

    @contextmanager
    def _at(self, row: Row) -> Iterator[None]:
        env = self._env
        before = env.metadata, env.source
        env.metadata, env.source = row.metadata, (row.key, row.value, row.headers, row.timestamp)
        try:
            yield
        finally:
            env.metadata, env.source = before

    def failed(self, row: Row, error: Exception) -> None:
        """The agent raised at a record. Raises ProcessingError unless the handler lets it go."""
        with self._at(row):
            self._env.failed(self._name, error, row.key, row.value, row.timestamp, row.headers)
        logger.error(
            "agent %s raised an exception and continues after the record at %s-%d offset %d",
            self.agent.name,
            *row.metadata,
            exc_info=error,
        )

    def undecodable(self, row: Row, error: Exception) -> None:
        """A record can't be decoded. Raises DeserializationError unless the handler lets it go."""
        plan, counters = self._env.plan, self._env.counters
        topic, partition, offset = row.metadata
        self.flow.skipped(topic)
        context = ErrorContext(
            topic=topic,
            partition=partition,
            offset=offset,
            node=self._name,
            timestamp=row.timestamp,
            key=row.key,
            value=row.value,
            headers=row.headers,
            source_key=row.key,
            source_value=row.value,
            source_headers=row.headers,
            source_timestamp=row.timestamp,
        )
        if self._env.ask(plan.handlers.deserialization, context, error) is HandlerResponse.CONTINUE:
            counters.failed_deserialization += 1
            counters.last_skipped["failed_deserialization"] = why_skipped(plan, context, error)
            logger.error(
                "agent %s skips the record at %s-%d offset %d, which can't be decoded: %s",
                self.agent.name,
                *row.metadata,
                error,
            )
            return
        raise DeserializationError(
            f"a record can't be decoded for agent {self.agent.name} ({line_of(self.agent.fun)}): {type(error).__name__}: "
            f"{error} (at {topic}-{partition} offset {offset}). Check the types of the topic, or skip such records with "
            "deserialization.exception.handler=continue",
            *RecordMetadata(topic, partition, offset),
        )
