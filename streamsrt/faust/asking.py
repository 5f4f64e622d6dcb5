"""Replies to ``ask``, ``map``, ``kvmap``, ``join`` and ``kvjoin``.

1. Tasks, services, timers and listeners may ask. A commit that waited for a timer no longer does so when it asks.
2. An agent may not: the commit waits for the agent's record, the agent for the reply, and the reply for a commit of the
   same thread, or of one that waits as well: a deadlock. ``cast`` and ``send(reply_to=)`` wait for nothing.
3. What is asked is sent as everything else is: with exactly once, it is read when its transaction is committed.
4. Answers come to a topic that this process reads from its end on, all by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from faust.agents.models import ReqRepResponse
from faust.models import maybe_model

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import LATEST, FetchConfig, NewTopic, ProducerConfig
from streamsrt.config import StreamsConfig
from streamsrt.errors import RequestFailedError, StreamsError
from streamsrt.operators.engine.environment import Environment
from streamsrt.runtime.assembly import client_config
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.records import iter_columns

if TYPE_CHECKING:
    import faust

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 10.0
_LEAST = 64


class Answers(Protocol):
    """Where answers come from."""

    def open(self, topic: str) -> None:
        """Reads that topic from now on."""

    def declare(self, topic: NewTopic) -> None:
        """Creates that topic, if it is not there."""

    def arrived(self) -> Iterator[bytes]:
        """What has come since the last call."""

    def close(self) -> None:
        """Nobody waits any more."""


OpenAnswers = Callable[["faust.App", Environment], Answers]


class BrokerAnswers:
    """Answers from the cluster of the application, by a connection of their own."""

    def __init__(self, app: faust.App, env: Environment) -> None:
        config = client_config(StreamsConfig.of(env.plan.given_settings))
        fetch = FetchConfig(isolation_level="read_committed", max_wait_ms=20)
        own = replace(config, client_id=f"{config.client_id}-replies", fetch=fetch, producer=ProducerConfig())
        self._app = app
        self._network = NetworkThread(own)
        self._network.start(timeout_s=_START_TIMEOUT_S)

    def open(self, topic: str) -> None:
        """Creates the topic, if it is not there. Raises StreamsError."""
        conf, admin = self._app.conf, self._network.admin
        retention = {"cleanup.policy": "delete", "retention.ms": str(round(conf.reply_expires * 1000))}
        replicas = conf.topic_replication_factor or 1
        self.declare(NewTopic(name=topic, partitions=1, replication_factor=replicas, configs=retention))
        partitions = [(topic, number) for number in range(admin.partitions_for([topic])[topic])]
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        self._network.fetcher.add_partitions({tp: ends[tp].offset for tp in partitions})

    def declare(self, topic: NewTopic) -> None:
        """Creates that topic, if it is not there. Raises StreamsError."""
        admin = self._network.admin
        if topic.name in admin.topics([topic.name]):
            return
        for error in admin.create_topics([topic]).values():
            if error is not None and not is_there_already(error):
                raise error

    def arrived(self) -> Iterator[bytes]:
        """What has come since the last call. Raises StreamsError where the topic can't be read."""
        for fetched in self._network.fetcher.poll(0.0):
            if fetched.error is not None:
                raise fetched.error
            for columns in iter_columns(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted):
                yield from (value for value in columns.values if value is not None)

    def close(self) -> None:
        """Ends the connection."""
        self._network.stop()


def is_there_already(error: StreamsError) -> bool:
    """Whether a topic was not created as another instance that starts at the same time was first."""
    return isinstance(error, RequestFailedError) and error.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


class Replies:
    """Waiting callers (replaces Faust's ``ReplyConsumer``). ``begin`` is called for each request."""

    def __init__(self, app: faust.App, answers: Callable[[], Answers], begin: Callable[[], None]) -> None:
        self._app = app
        self._open = answers
        self._begin = begin
        self._answers: Answers | None = None
        self._topics: set[str] = set()
        self._waiting: dict[str, WeakSet[asyncio.Future[object]]] = {}
        self._enough = _LEAST
        """So many entries of :attr:`_waiting` there are before it is looked which of them are still waited for."""

    async def add(self, correlation_id: str, promise: asyncio.Future[object]) -> None:
        """Somebody waits for that answer. Raises UserError where nobody may."""
        self._begin()
        topic = promise.reply_to  # type: ignore[attr-defined]  # faust's ReplyPromise
        if topic not in self._topics:
            self._topics.add(topic)
            self.answers().open(topic)
        self._waiting.setdefault(correlation_id, WeakSet()).add(promise)
        if len(self._waiting) > self._enough:
            self._forget_given_up()

    def _forget_given_up(self) -> None:
        """Drops what callers no longer wait for: their time was over, and the answer may never come."""
        waiting = self._waiting.items()
        self._waiting = {name: given for name, given in waiting if not all(each.done() for each in given)}
        self._enough = max(_LEAST, 2 * len(self._waiting))

    def answers(self) -> Answers:
        """Where answers come from: a connection that is made when it is needed."""
        if self._answers is None:
            self._answers = self._open()
        return self._answers

    def deliver(self) -> None:
        """Hands on what has come. Raises StreamsError."""
        if self._answers is None:
            return
        for raw in self._answers.arrived():
            try:
                answer = self._app.serializers.loads_value(ReqRepResponse, raw, serializer="json")
                value = maybe_model(answer.value)
            except Exception:
                # Others may write to the topic, too, and the answers behind this are waited for.
                logger.exception(
                    "a record in a topic of answers can't be read as one, and is passed over: %r", raw[:80]
                )
                continue
            for promise in self._waiting.pop(answer.correlation_id, ()):
                if not promise.done():
                    promise.fulfill(answer.correlation_id, value)  # type: ignore[attr-defined]

    def close(self) -> None:
        """The last agent ends."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None
