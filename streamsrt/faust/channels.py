"""Agents over channels (``app.channel()``): what is sent to one goes on in memory, within a task.

1. Each task calls such an agent itself. What an agent of the task sends to the channel comes to that call, which has the
   tables of the same partition. A commit waits for both: a message belongs to the record that its sender worked on, and is
   made anew with it after a crash.
2. Keys and values are handed over as they are: nothing is encoded.
3. What timers, tasks and pages send belongs to no record. It goes to the first task of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

from streamsrt.faust.agents import HELD_MAX, WORKING, AgentNode
from streamsrt.faust.current import RunningTask
from streamsrt.faust.decoding import Row
from streamsrt.faust.events import AgentMessage
from streamsrt.faust.running import RunningApplication
from streamsrt.wire.records import Headers
from topology.spec.processor import RecordMetadata

if TYPE_CHECKING:
    import faust

_NOWHERE = RecordMetadata("", -1, -1)


class ChannelMessage(Row):
    """A message of a channel, with the bytes and the place of the record that its sender worked on."""

    given: tuple[object, object]

    def message(self) -> AgentMessage:
        """The same as faust knows it."""
        topic, partition, offset = self.metadata
        key, value = self.given
        return AgentMessage(topic, partition, offset, self.timestamp / 1000, 0, self.headers or None, key, value, None)


class ChannelNode(AgentNode):
    """An agent over a channel, in one task. It is no processor of the topology: :meth:`take` is what feeds it."""

    def __init__(self, running: RunningApplication, agent: faust.Agent, task: RunningTask) -> None:
        super().__init__(running, agent, [agent.channel])
        self.begin(task, agent.name, _as_given)

    def take(self, key: object, value: object, timestamp: float | None, headers: Headers) -> None:
        """One message. ``timestamp``: epoch seconds; None: that of the record that the sender works on."""
        sender = WORKING.get(None)
        source = None if sender is None else sender.row
        if source is None:
            source = Row(None, None, self._env.program_time_ms, (), _NOWHERE)
        at_ms = source.timestamp if timestamp is None else round(timestamp * 1000)
        row = ChannelMessage(source.key, source.value, at_ms, headers, source.metadata)
        row.given = key, value
        worker = self._workers[self._worker_of(row)]
        worker.queue.append(row)
        self.flow.given += 1
        worker.wake()

    def _worker_of(self, row: Row) -> int:
        assert isinstance(row, ChannelMessage)
        key = row.given[0]
        if len(self._workers) == 1:
            return 0
        if key is None:
            return super()._worker_of(row._replace(key=None))
        return crc32(repr(key).encode()) % len(self._workers)

    @property
    def room(self) -> int:
        """How many records more the task may take: what is sent to the channel has to be kept."""
        return max(0, HELD_MAX - self.unfinished)

    def end(self) -> None:
        """The task ends, with all that was sent."""
        self.is_over = True
        self._running.figures.remove_agent(self)


def _as_given(row: Row) -> tuple[object, object]:
    assert isinstance(row, ChannelMessage)
    return row.given


def open_channels(agents: tuple[faust.Agent, ...]) -> Callable[[RunningApplication, RunningTask], list[ChannelNode]]:
    """What begins those agents in a task."""

    def begin(running: RunningApplication, task: RunningTask) -> list[ChannelNode]:
        return [ChannelNode(running, agent, task) for agent in agents]

    return begin
