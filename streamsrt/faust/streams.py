"""The stream that an agent iterates over (in the place of ``faust.Stream``).

1. Asking for the next value acknowledges the one before.
2. Events are made when somebody asks for them: by ``events()``, ``current_event``, ``faust.current_event()``.
3. Values go through the processors (``filter``, ``echo``, ``add_processor``) in the order in which they were added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from faust.agents.models import ReqRepRequest
from faust.exceptions import Skip
from mode.utils.futures import maybe_async

from streamsrt.errors import UserError
from streamsrt.faust.decoding import Row

if TYPE_CHECKING:
    import faust


class Feed(Protocol):
    """Where a stream gets its records, one after the other."""

    app: faust.App
    channel: faust.ChannelT
    queue: deque[Row]
    row: Row | None
    """The record that is not acknowledged yet."""

    def decode(self, row: Row) -> tuple[object, object]: ...
    def acknowledge(self) -> None: ...
    def is_undecodable(self, row: Row, error: Exception) -> None: ...
    def more(self) -> Awaitable[None]: ...


_SKIPPED = object()


class AgentStream:
    """What an agent is called with. ``unwrap``: values that came by ``ask`` are taken out of their requests."""

    def __init__(self, feed: Feed, *, unwrap: bool = False) -> None:
        self.app = feed.app
        self.channel = feed.channel
        self.unwrap = unwrap
        self._feed = feed
        self._processors: list[Callable[[object], object]] = []
        self._key: object = None
        self._value: object = None
        self._event: faust.EventT | None = None

    # ----------------------------------------------------------------------------------------------------- iteration

    def __aiter__(self) -> AsyncIterator[object]:
        return self._values(None)

    def events(self) -> AsyncIterator[object]:
        """Iterates over events instead of values."""
        return self._values(AgentStream._its_event)

    def items(self) -> AsyncIterator[object]:
        """Iterates over keys with values."""
        return self._values(AgentStream._its_item)

    async def enumerate(self, start: int = 0) -> AsyncIterator[tuple[int, object]]:
        """Iterates over values with their numbers."""
        number = start
        async for value in self._values(None):
            yield number, value
            number += 1

    def _its_event(self, value: object) -> object:
        return self.current_event

    def _its_item(self, value: object) -> object:
        return self._key, value

    async def _values(self, shape: Callable[[AgentStream, object], object] | None) -> AsyncIterator[object]:
        feed, processors = self._feed, self._processors
        queue, decode = feed.queue, feed.decode
        if feed.row is not None:
            # Left by ``break``.
            feed.acknowledge()
        while True:
            while queue:
                row = feed.row = queue.popleft()
                try:
                    self._key, value = decode(row)
                except Exception as error:  # noqa: BLE001  # a user's codec may raise anything
                    feed.is_undecodable(row, error)
                    continue
                self._value, self._event = value, None
                if self.unwrap and isinstance(value, ReqRepRequest):
                    value = value.value
                if processors:
                    value = await self._processed(value)
                if value is not _SKIPPED:
                    yield value if shape is None else shape(self, value)
                feed.acknowledge()
            await feed.more()

    async def _processed(self, value: object) -> object:
        try:
            for processor in self._processors:
                value = await maybe_async(processor(value))
        except Skip:
            return _SKIPPED
        return value

    @property
    def current_event(self) -> faust.EventT | None:
        """The event of the record that the agent works on; None between two."""
        row = self._feed.row
        if row is None:
            return None
        if self._event is None:
            message = row.message()
            message.on_ack = _acknowledged
            self._event = self.app.create_event(self._key, self._value, row.headers or None, message)
        return self._event

    def event_now(self) -> faust.EventT | None:
        """The same as a function, for ``faust.current_event()``."""
        return self.current_event

    # --------------------------------------------------------------------------------------------------- processors

    def add_processor(self, processor: Callable[[object], object]) -> None:
        """Adds a function, asynchronous or not, that gets each value and returns what goes on in its place."""
        self._processors.append(processor)

    def filter(self, fun: Callable[[object], object]) -> AgentStream:
        """Passes over values for which a function, asynchronous or not, says no."""

        async def choose(value: object) -> object:
            if not await maybe_async(fun(value)):
                raise Skip
            return value

        self.add_processor(choose)
        return self

    def echo(self, *channels: str | faust.ChannelT) -> AgentStream:
        """Sends each value to the channels, too."""
        topics = [self.app.topic(each) if isinstance(each, str) else each for each in channels]

        async def send(value: object) -> object:
            for topic in topics:
                await topic.send(value=value)
            return value

        self.add_processor(send)
        return self

    # --------------------------------------------------------------------------------------------------- the rest

    def get_active_stream(self) -> AgentStream:
        """This stream: nothing is derived from it."""
        return self

    def get_root_stream(self) -> AgentStream:
        """This stream."""
        return self

    async def ack(self, event: faust.EventT) -> bool:
        """Acknowledges an event. What the agent works on is acknowledged when it asks for the next one."""
        return bool(event.ack())

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UserError(
            f"stream.{name} of an agent of {self.channel} is not supported by streamsrt.faust: see docs/faust.md"
        )


def _acknowledged() -> bool:
    return True
