"""Which task runs, with what its agents share.

A context variable knows it: agents of several tasks share an event loop, and the tables and topics of the application are
the same for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol

from streamsrt.errors import StreamsError, UserError
from streamsrt.faust.rows import Rows
from streamsrt.faust.sends import Outbox
from streamsrt.faust.timers import Jobs
from streamsrt.operators.kinds.user_processors import Context
from streamsrt.wire.records import Headers

if TYPE_CHECKING:
    import faust


class ChannelFeed(Protocol):
    """An agent over a channel, in one task."""

    channel: faust.ChannelT
    calls: list[asyncio.Task[None]]

    def take(self, key: object, value: object, timestamp: float | None, headers: Headers) -> None: ...
    def end(self) -> None: ...


class RunningTask:
    """One task with its stores, and with what its agents sent."""

    def __init__(self, context: Context, stores: dict[str, Rows], outbox: Outbox) -> None:
        self.context = context
        env = self.env = context.environment
        self.partition = env.task_partition
        self.stores = stores
        self.outbox = outbox
        self.counted: set[str] = set()
        """The topics whose messages one of its agents counts."""
        self.agents = 0
        self.leads = False
        """Whether it has partition 0 of the first agent: timers of the leader run there."""
        self.jobs: Jobs | None = None
        self.failure: StreamsError | None = None
        """Why none of its agents may go on, whatever they make of it."""
        self.has_ended = False
        """Whether its last commit is next."""
        self.ticks = False
        """Whether it looks at what callbacks do."""
        self.channels: list[ChannelFeed] = []
        """Its agents over channels."""

    def partitions(self) -> list[tuple[str, int]]:
        """Those that its agents read, with their topics."""
        env = self.env
        topics = env.plan.subtopology.source_topics
        return [(topic, self.partition) for topic in topics if env.partitions_of_topic(topic) > self.partition]


class WholeProcess(NamedTuple):
    """What a timer uses instead of a task: all rows of the process, and the outbox of one of its tasks."""

    stores: dict[str, Rows]
    outbox: Outbox
    partition: int
    channels: Sequence[ChannelFeed] = ()


CURRENT: ContextVar[RunningTask | WholeProcess] = ContextVar("CURRENT")


def current_task() -> RunningTask | WholeProcess:
    """The task whose agent runs. Raises UserError outside of one."""
    task = CURRENT.get(None)
    if task is None:
        raise UserError("tables and sends of an application that runs here belong to its agents: use them in one")
    return task


@contextmanager
def as_current(task: RunningTask | WholeProcess) -> Iterator[None]:
    """Within, it is the one that runs."""
    token = CURRENT.set(task)
    try:
        yield
    finally:
        CURRENT.reset(token)


def current_outbox() -> Outbox:
    """That of the task that runs. Raises as :func:`current_task` does."""
    return current_task().outbox


def give_to_channel(
    channel: faust.ChannelT, key: object, value: object, timestamp: float | None, headers: Headers
) -> bool:
    """Hands a message to the agents of the task that runs which read the channel; whether there are any."""
    feeds = [feed for feed in current_task().channels if feed.channel is channel]
    for feed in feeds:
        feed.take(key, value, timestamp, headers)
    return bool(feeds)


def fail_current(error: StreamsError) -> None:
    """No agent of the task that runs may go on."""
    task = CURRENT.get(None)
    if isinstance(task, RunningTask):
        task.failure = error


def is_in_agent() -> bool:
    """Whether an agent runs, or what belongs to its task."""
    return isinstance(CURRENT.get(None), RunningTask)


def current_partition() -> int:
    """That of the task that runs. Raises as :func:`current_task` does."""
    return current_task().partition


def current_rows(name: str) -> Callable[[], Rows]:
    """Finds the rows of a table for the task that runs. Raises as :func:`current_task` does."""

    def find() -> Rows:
        return current_task().stores[name]

    return find
