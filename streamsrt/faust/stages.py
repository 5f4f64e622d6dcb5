"""Which streams an agent derives from its own, learned before it runs.

``group_by`` and ``through`` stand in the agent's function or in one that it calls, and the topics that they read must be in
the topology. An agent whose code names one of them is called once at the start, without any record, until it asks for the
first one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from streamsrt.errors import StreamsError, UserError
from streamsrt.faust.locations import line_of
from streamsrt.faust.names import reachable
from streamsrt.faust.reading import called
from streamsrt.faust.streams import Chain, Silent
from streamsrt.wording import error_text

if TYPE_CHECKING:
    import faust

_DERIVING = frozenset(("group_by", "through"))
_PATIENCE_S = 10.0


def channels_of(agent: faust.Agent) -> list[faust.TopicT]:
    """What the agent reads: its topic, and those of the streams that it derives. Raises UserError."""
    if not any(name in _DERIVING for each in reachable(agent.fun) for name, _ in called(each)):
        return [agent.channel]
    location = f"agent {agent.name} ({line_of(agent.fun)})"
    loop = asyncio.new_event_loop()
    try:
        chain = loop.run_until_complete(_tried(agent, location))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    if agent.concurrency > 1 and len(chain.streams) > 1:
        raise UserError(f"{location} has concurrency={agent.concurrency}, so it can't use group_by or through")
    channels: list[faust.TopicT] = [stream.channel for stream in chain.streams]
    _require_different(location, channels)
    return channels


def _require_different(location: str, channels: Sequence[faust.TopicT]) -> None:
    """Raises UserError for a topic that is read and written by steps of one agent: its records would go round for ever."""
    seen: set[str] = set()
    for number, channel in enumerate(channels):
        if number and len(channel.topics) != 1:
            raise UserError(
                f"{location} derives a stream for {channel}, which is not one topic: name the one to send to, "
                "group_by(topic=app.topic(name)) or through(name)"
            )
        again = seen.intersection(channel.topics)
        if again:
            raise UserError(
                f"{location} derives two streams for the topic {again.pop()}, so its records would go round for ever: name "
                "another topic in group_by or through"
            )
        seen.update(channel.topics)


async def _tried(agent: faust.Agent, location: str) -> Chain:
    asked = asyncio.Event()
    chain = Chain(agent.name, agent.channel, Silent(agent.app, agent.channel, asked.set), None)
    beginning = asyncio.ensure_future(_begin(agent.fun, chain))
    waiting = asyncio.ensure_future(chain.asked.wait())
    try:
        await asyncio.wait((beginning, waiting), timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if beginning.done():
            await beginning
        if not chain.asked.is_set():
            raise UserError(
                f"{location} did not ask for a record within {_PATIENCE_S:g} s. It was called without any, to learn what "
                "its group_by or through derives: do less before the loop over the stream"
            )
    except StreamsError:
        raise
    except Exception as error:
        raise UserError(f"{location} raised {error_text(error)} before it asked for a record") from error
    finally:
        for each in (beginning, waiting):
            each.cancel()
        await asyncio.gather(beginning, waiting, return_exceptions=True)
    return chain


async def _begin(function: Callable[..., Awaitable[None] | AsyncIterable[object]], chain: Chain) -> None:
    result = function(chain.streams[0])
    if isinstance(result, AsyncIterable):
        async for _ in result:
            pass
    else:
        await result
