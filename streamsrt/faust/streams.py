"""The stream that an agent iterates over (in the place of ``faust.Stream``).

1. Asking for the next value acknowledges the one before. After ``noack()`` the agent does that itself: a commit waits until
   it asks for the next record, and stops before the first one that it has not acknowledged.
2. Events are made when somebody asks for them: by ``events()``, ``current_event``, ``faust.current_event()``.
3. Values go through the processors (``filter``, ``echo``, ``add_processor``) in the order in which they were added.
4. ``group_by`` and ``through`` derive a stream: what the one before sends to a topic is read from there. Each has a node of
   its own, which calls the agent's function anew and feeds the stream that is its own; the others are silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from faust.agents.models import ReqRepRequest
from faust.exceptions import Skip
from faust.streams import Stream
from faust.types.models import FieldDescriptorT
from faust.types.topics import TopicT
from faust.types.tuples import TP
from mode.utils.futures import maybe_async
from mode.utils.times import want_seconds

from streamsrt.errors import UserError
from streamsrt.faust.decoding import Row
from streamsrt.faust.locations import caller, said
from streamsrt.faust.names import INTERNAL, REFUSED

if TYPE_CHECKING:
    import faust


class Feed(Protocol):
    """Where a stream gets its records, one after the other."""

    app: faust.App
    channel: faust.ChannelT
    queue: deque[Row]
    row: Row | None
    """The record that is not acknowledged yet."""
    held: list[Row]
    """Those before it that are not, either: ``take``."""
    wants: int
    """How many records an agent takes at once."""

    @property
    def is_hurried(self) -> bool: ...
    @property
    def active_partitions(self) -> set[TP] | None: ...
    def hold_back(self, row: Row) -> Callable[[], bool]: ...
    def decode(self, row: Row) -> tuple[object, object]: ...
    def acknowledge(self) -> None: ...
    def passed(self) -> None: ...
    def is_undecodable(self, row: Row, error: Exception) -> None: ...
    def more(self, within_s: float | None = None) -> Awaitable[bool]: ...


logger = logging.getLogger(__name__)

_SKIPPED = object()


class Silent:
    """A feed of a stream that is another node's."""

    active_partitions: set[TP] | None = None

    def __init__(self, app: faust.App, channel: faust.ChannelT, asked: Callable[[], None]) -> None:
        self.app = app
        self.channel = channel
        self.queue: deque[Row] = deque()
        self.row: Row | None = None
        self.held: list[Row] = []
        self.wants = 0
        self.is_hurried = False
        self._asked = asked

    def decode(self, row: Row) -> tuple[object, object]:
        raise AssertionError("it has no records")

    def acknowledge(self) -> None:
        """There is nothing."""

    def passed(self) -> None:
        """There is nothing."""

    def is_undecodable(self, row: Row, error: Exception) -> None:
        """There is nothing."""

    def hold_back(self, row: Row) -> Callable[[], bool]:
        raise AssertionError("it has no records")

    async def more(self, within_s: float | None = None) -> bool:
        """For ever."""
        self._asked()
        await asyncio.get_running_loop().create_future()
        return False


_AS_AT_THE_START = (
    "call group_by and through before the loop over the stream, and the same ones in each call of the agent. The topics "
    "that it reads are known from the start"
)


class Chain:
    """The streams of one call of an agent's function: the first one, and those that are derived from it.

    ``name``: the agent's. ``first``: what it reads. ``own``: the number of the stream that gets ``feed``; None: nobody does.
    ``read``: what the streams read that were derived at the start; None: this is the start.
    """

    def __init__(
        self,
        name: str,
        first: faust.ChannelT,
        feed: Feed,
        own: int | None,
        *,
        read: Sequence[faust.ChannelT] | None = None,
    ) -> None:
        self.name = name
        self._read = read
        self.asked = asyncio.Event()
        """Set when the agent iterates over a stream that is not its own."""
        self.streams: list[AgentStream] = []
        self._feed = feed
        self._own = own
        self.add(first)

    def add(self, channel: faust.ChannelT) -> AgentStream:
        """One stream more. Raises UserError for one whose topic is not read, as the start did not see it."""
        self._require_read(channel)
        is_own = self._own == len(self.streams)
        feed = self._feed if is_own else Silent(self._feed.app, channel, self._ask)
        self.streams.append(AgentStream(feed, self, channel))
        return self.streams[-1]

    def _ask(self) -> None:
        self.require_all()
        self.asked.set()

    def require_all(self) -> None:
        """Raises UserError if the agent asks for a record before it has derived the streams that it derived at the start."""
        if self._read is not None and len(self.streams) != len(self._read):
            raise UserError(
                f"agent {self.name} does not derive a stream that it derived at the start: {_AS_AT_THE_START}"
            )

    def _require_read(self, channel: faust.ChannelT) -> None:
        if self._read is None:
            return
        number = len(self.streams)
        if number == len(self._read):
            raise UserError(
                f"agent {self.name}{said(caller())} derives a stream for {channel} that it did not derive at the start: "
                f"{_AS_AT_THE_START}"
            )
        if _names(channel) != _names(self._read[number]):
            raise UserError(
                f"agent {self.name}{said(caller())} derives a stream for {channel}, and at the start one for "
                f"{self._read[number]}, which is the topic that it reads: derive the same streams in each call of the agent"
            )


class AgentStream:
    """What an agent is called with. ``unwrap``: values that came by ``ask`` are taken out of their requests."""

    def __init__(self, feed: Feed, chain: Chain, channel: faust.ChannelT) -> None:
        self.app = feed.app
        self.channel = channel
        self.unwrap = False
        self._feed = feed
        self._chain = chain
        self._processors: list[Callable[[object], object]] = []
        self._is_by_hand = False
        self._release: Callable[[], bool] = _acknowledged
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

    def take(self, max_: int, within: float | timedelta) -> AsyncIterator[list[object]]:
        """Iterates over lists of up to ``max_`` values, each of which waits ``within`` so many seconds for the last of them.

        A commit does not wait for more: the list has what there is.
        """
        return self._taken(max_, want_seconds(within), AgentStream._its_value)

    def take_events(self, max_: int, within: float | timedelta) -> AsyncIterator[list[object]]:
        """The same with events."""
        return self._taken(max_, want_seconds(within), AgentStream._its_event)

    def take_with_timestamp(
        self, max_: int, within: float | timedelta, timestamp_field_name: str
    ) -> AsyncIterator[list[object]]:
        """The same with values that are dictionaries, each of which gets the time of its record in that field."""

        def timed(stream: AgentStream, value: object) -> object:
            row = stream._feed.row
            if isinstance(value, dict) and timestamp_field_name and row is not None:
                value[timestamp_field_name] = row.timestamp / 1000
            return value

        return self._taken(max_, want_seconds(within), timed)

    def noack(self) -> AgentStream:
        """The same stream, but the agent acknowledges each event itself: ``event.ack()`` or ``stream.ack(event)``.

        Nothing from the first record on that is not acknowledged is committed.
        """
        self._is_by_hand = True
        return self

    def noack_take(self, max_: int, within: float | timedelta) -> AsyncIterator[list[object]]:
        """Like :meth:`take_events`, but the agent acknowledges each event itself."""
        return self.noack().take_events(max_, within)

    async def _taken(
        self, count: int, within_s: float, shape: Callable[[AgentStream, object], object]
    ) -> AsyncIterator[list[object]]:
        self._chain.require_all()
        feed = self._feed
        feed.wants = max(feed.wants, count)
        if feed.row is not None:
            feed.acknowledge()
        while True:
            values = await self._gathered(count, within_s, shape)
            if values:
                if feed.row is None:
                    feed.row = feed.held.pop()
                yield values
                feed.acknowledge()

    async def _gathered(
        self, count: int, within_s: float, shape: Callable[[AgentStream, object], object]
    ) -> list[object]:
        feed, loop = self._feed, asyncio.get_running_loop()
        values: list[object] = []
        end_s = 0.0
        while len(values) < count:
            if not feed.queue:
                is_over = values and feed.is_hurried
                if is_over or not await feed.more(end_s - loop.time() if values else None):
                    break
                continue
            row, before = feed.queue.popleft(), (self._key, self._value, self._event, self._release)
            try:
                value = await self._opened(row)
            except Exception:
                if not values:
                    raise
                # The agent has not got those before it, which are not to blame. It gets them first.
                feed.queue.appendleft(row)
                feed.row = None
                self._key, self._value, self._event, self._release = before
                break
            if value is _SKIPPED:
                self._key, self._value, self._event, self._release = before
                continue
            end_s = end_s if values else loop.time() + within_s
            values.append(shape(self, value))
            if len(values) < count:
                assert feed.row is not None
                feed.held.append(feed.row)
                feed.row = None
        return values

    async def _opened(self, row: Row) -> object:
        """The value of a record, which is the current one then; what is passed over is acknowledged."""
        feed = self._feed
        feed.row = row
        if self._is_by_hand:
            self._release = feed.hold_back(row)
        try:
            self._key, value = feed.decode(row)
        except Exception as error:  # noqa: BLE001  # a user's codec may raise anything
            feed.is_undecodable(row, error)
            return _SKIPPED
        self._value, self._event = value, None
        if self.unwrap and isinstance(value, ReqRepRequest):
            value = value.value
        if self._processors:
            value = await self._processed(value)
        if value is _SKIPPED:
            self._release()
            feed.row = None
            feed.passed()
        return value

    def _its_value(self, value: object) -> object:
        return value

    def _its_event(self, value: object) -> object:
        return self.current_event

    def _its_item(self, value: object) -> object:
        return self._key, value

    async def _values(self, shape: Callable[[AgentStream, object], object] | None) -> AsyncIterator[object]:
        self._chain.require_all()
        feed, processors = self._feed, self._processors
        queue, decode = feed.queue, feed.decode
        if feed.row is not None:
            # Left by ``break``.
            feed.acknowledge()
        while True:
            while queue:
                row = feed.row = queue.popleft()
                if self._is_by_hand:
                    self._release = feed.hold_back(row)
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
                if value is _SKIPPED:
                    self._release()
                else:
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
            message.on_ack = self._release
            self._event = self.app.create_event(self._key, self._value, row.headers or None, message)
        return self._event

    def event_now(self) -> faust.EventT | None:
        """The same as a function, for ``faust.current_event()``."""
        return self.current_event

    # --------------------------------------------------------------------------------------------------- processors

    @property
    def task_owner(self) -> asyncio.Task[object] | None:
        """The asyncio task that runs."""
        return asyncio.current_task()

    @property
    def active_partitions(self) -> set[TP] | None:
        """The partition of the agent, if it has ``isolated_partitions``; else None, as with faust."""
        return self._feed.active_partitions

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

    # ---------------------------------------------------------------------------------------------- derived streams

    def group_by(
        self,
        key: object,
        *,
        name: str | None = None,
        topic: faust.TopicT | None = None,
        partitions: int | None = None,
    ) -> AgentStream:
        """The same values with other keys, by a topic of the agent's own.

        ``key``: a field of the model, or a function, asynchronous or not, of a value; it needs a ``name``.
        """
        if not name:
            if not isinstance(key, FieldDescriptorT):
                raise UserError(
                    f"group_by of agent {self._chain.name}{said(caller())} with a function needs name=, which ends its topic"
                )
            name = key.ident
        if topic is None:
            # With Faust, derived streams have no prefix of their own.
            is_first = self._chain.streams[0] is self
            prefix = f"{self._chain.name}-" if is_first and not self.channel.has_prefix else ""
            count = partitions or self.app.conf.topic_partitions
            topic = self.channel.derive(prefix=prefix, suffix=f"-{name}-repartition", partitions=count, internal=True)
        channel = topic

        async def send(value: object) -> object:
            try:
                new = key.getattr(value) if isinstance(key, FieldDescriptorT) else await maybe_async(_call(key, value))
            except Exception:
                logger.exception("the key of a value can't be computed for %s, which skips the record", channel)
                raise Skip from None
            row = self._feed.row
            assert row is not None
            self.app._attachments.put(None, channel, new, row.value, headers=row.headers or None)
            return value

        return self._derived(channel, send)

    def through(self, channel: str | faust.TopicT) -> AgentStream:
        """The same records by another topic."""
        topic = channel if isinstance(channel, TopicT) else self.channel.derive_topic(topics=[channel])

        async def send(value: object) -> object:
            event = self.current_event
            assert event is not None
            await event.forward(topic)
            return value

        return self._derived(topic, send)

    def _derived(self, channel: faust.TopicT, send: Callable[[object], object]) -> AgentStream:
        if self._chain.streams[-1] is not self:
            raise UserError(
                f"agent {self._chain.name}{said(caller())} derives two streams from one by group_by or through: derive one"
            )
        derived = self._chain.add(channel)
        # As with faust, what was added before goes with the new stream.
        derived._processors, self._processors = self._processors, [send]
        return derived

    # --------------------------------------------------------------------------------------------------- the rest

    def get_active_stream(self) -> AgentStream:
        """The stream that was derived last."""
        return self._chain.streams[-1]

    def get_root_stream(self) -> AgentStream:
        """The stream that the agent was called with."""
        return self._chain.streams[0]

    async def ack(self, event: faust.EventT) -> bool:
        """Acknowledges an event. What the agent works on is acknowledged when it asks for the next one."""
        return bool(event.ack())

    @property
    def shortlabel(self) -> str:
        """Its name in logs."""
        return f"Stream: {self.channel}"

    label = shortlabel

    def __repr__(self) -> str:
        return f"<{self.shortlabel}>"

    def __iter__(self) -> Iterator[object]:
        raise TypeError(
            f"the stream of agent {self._chain.name}{said(caller())} is not iterable: write 'async for', in an 'async def'"
        )

    def __and__(self, other: object) -> object:
        raise _refused(self._chain.name, "combine")

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _refused(self._chain.name, name)


def _refused(agent: str, name: str) -> UserError:
    if not hasattr(Stream, name):
        meant = get_close_matches(name, [each for each in dir(AgentStream) if not each.startswith("_")], n=1)
        question = f": did you mean {meant[0]!r}?" if meant else ", in faust either"
        return UserError(f"stream.{name} of agent {agent}{said(caller())}: Stream has no {name!r}{question}")
    return UserError(
        f"stream.{name} of agent {agent}{said(caller())} is not supported by streamsrt.faust: "
        f"{REFUSED[Stream].get(name, INTERNAL)}. docs/faust.md lists what is supported"
    )


def _names(channel: faust.ChannelT) -> object:
    return (tuple(channel.topics), channel.pattern) if isinstance(channel, TopicT) else channel


def _acknowledged() -> bool:
    return True


def _call(function: object, value: object) -> object:
    assert callable(function)
    return function(value)
