"""Buffers what agents send until their batch of records is processed.

1. Records of one topic keep the order in which they were sent. Without a timestamp a record has the time of the iteration,
   as faust's have the time of the call.
2. A send is done when it is gathered: the record goes out with the commit of what the agent read. Offsets are known then
   only, so the metadata that ``await`` gives has none. A callback is called after that commit.
3. :class:`Attachments` and :class:`Producer` take the places of the application's own while agents run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import timedelta
from functools import partial
from itertools import repeat
from operator import index
from typing import TYPE_CHECKING

from faust.channels import Channel
from faust.topics import Topic
from faust.types.tuples import TP, FutureMessage, RecordMetadata

from streamsrt.client.values import NewTopic
from streamsrt.errors import UserError
from streamsrt.faust.codecs import of_send, require_codecs
from streamsrt.faust.encoding import Encoder
from streamsrt.faust.host import SENDER
from streamsrt.faust.locations import declared_at
from streamsrt.faust.monitoring import SendFigures
from streamsrt.faust.reading import topic_configs
from streamsrt.operators.engine.environment import Environment, RefusedRecordError
from streamsrt.wire.records import Headers
from topology.spec.timestamps import is_whole_ms

if TYPE_CHECKING:
    import faust

_ENCODERS_MAX = 1000
OnPut = Callable[..., None]
Give = Callable[["faust.ChannelT", object, object, float | None, Headers], bool]
"""Hands a message to the agents over a channel, and says whether there are any."""
Loose = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None
"""Headers as a program gives them."""


class _Columns:
    __slots__ = ("headers", "keys", "partitions", "sender", "timestamps", "values")

    def __init__(self) -> None:
        self.sender = SENDER.get()
        """Of the first record."""
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.partitions: list[int | None] | None = None
        self.headers: list[Headers] | None = None


class Outbox:
    """What the agents of one task have sent since the last :meth:`flush`. ``on_put`` hears of each record."""

    def __init__(self, app: faust.App, env: Environment, figures: SendFigures, on_put: OnPut | None = None) -> None:
        self.env = env
        self._figures = figures
        self._since_s: float | None = None
        """When the first record after the last commit was handed to the task."""
        self._pending: list[tuple[object, RecordMetadata]] = []
        self._app = app
        self._has_partitioner = app.conf.producer_partitioner is not None
        self._on_put = on_put
        self._topics: dict[str, _Columns] = {}
        self._noted: list[FutureMessage] = []
        """What has a callback, and is not handed to the task."""
        self._sent: list[FutureMessage] = []
        """What has one, and waits for the commit."""

    def note(self, future: FutureMessage) -> None:
        """Its callback is to be called after the commit."""
        self._noted.append(future)

    def committed(self) -> list[FutureMessage]:
        """Whose callbacks are to be called: a commit is over."""
        if self._since_s is not None:
            self._figures.committed(self._since_s, self._pending)
            self._since_s, self._pending = None, []
        done, self._sent = self._sent, []
        return done

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Loose,
    ) -> None:
        """One record. ``timestamp``: epoch seconds; None: now. Raises TypeError or ValueError for what can't be written, and
        keeps nothing of it."""
        at_ms = self.env.program_time_ms if timestamp is None else _in_ms(timestamp)
        pairs = _pairs(headers) if headers else ()
        if self._on_put is not None:
            marked = list(pairs)
            self._on_put(key=key, value=value, partition=partition, timestamp=timestamp, headers=marked)
            pairs = _pairs(marked)
        if partition is not None:
            partition = index(partition)
        elif self._has_partitioner:
            partition = self._placed(topic, key)
        columns = self._topics.get(topic)
        if columns is None:
            columns = self._topics[topic] = _Columns()
        count = len(columns.keys)
        columns.keys.append(key)
        columns.values.append(value)
        columns.timestamps.append(at_ms)
        if partition is not None and columns.partitions is None:
            columns.partitions = [None] * count
        if columns.partitions is not None:
            columns.partitions.append(partition)
        if pairs and columns.headers is None:
            columns.headers = [()] * count
        if columns.headers is not None:
            columns.headers.append(pairs)

    def _placed(self, topic: str, key: bytes | None) -> int | None:
        try:
            count = self.env.partitions_of_topic(topic)
        except UserError:
            # It does not exist, which is found when the record is handed over.
            return None
        return placed(self._app, key, count)

    def flush(self, node: str) -> None:
        """Hands all of it to the task. ``node``: named in the error if the cluster rejects a record. Raises
        RecordError."""
        if self._noted:
            self._sent += self._noted
            self._noted.clear()
        while self._topics:
            topic, columns = self._topics.popitem()
            keys, values, times, partitions = columns.keys, columns.values, columns.timestamps, columns.partitions
            if self._since_s is None:
                self._since_s = time.monotonic()
            self._pending += self._figures.handed_over(topic, keys, values, times)
            try:
                self.env.collect(topic, keys, values, times, columns.headers, partitions or None)
            except (UserError, RefusedRecordError):
                # None of them was taken. The handler is asked for each that is not.
                self._hand_over_singly(topic, columns, columns.sender or node)

    def _hand_over_singly(self, topic: str, columns: _Columns, node: str) -> None:
        partitions, all_headers = columns.partitions or repeat(None), columns.headers or repeat(())
        records = zip(columns.keys, columns.values, columns.timestamps, partitions, all_headers, strict=False)
        for key, value, at_ms, partition, headers in records:
            try:
                self.env.collect(
                    topic,
                    [key],
                    [value],
                    [at_ms],
                    [headers] if headers else None,
                    None if partition is None else [partition],
                )
            except (UserError, RefusedRecordError) as error:
                self.env.failed_to_produce(node, error, key, value, at_ms, headers)

    @property
    def is_filled(self) -> bool:
        """Whether there is anything."""
        return bool(self._topics)

    def clear(self) -> None:
        """Forgets all of it."""
        self._topics.clear()
        self._noted.clear()
        self._sent.clear()
        self._pending.clear()
        self._since_s = None


def placed(app: faust.App, key: bytes | None, partitions: int) -> int | None:
    """Where the application's ``producer_partitioner`` puts a record; None where it has none. Raises UserError."""
    partitioner = app.conf.producer_partitioner
    if partitioner is None:
        return None
    numbers = list(range(partitions))
    chosen = partitioner(key, numbers, list(numbers))
    if not isinstance(chosen, int) or not 0 <= chosen < partitions:
        raise UserError(
            f"producer_partitioner= of the application {app.conf.id}{declared_at(app)} gives {chosen!r} for key {key!r}, "
            f"which is none of the {partitions} partitions that the topic has: return one of those that it is given"
        )
    return chosen


def _in_ms(timestamp: float) -> int:
    at_ms = round(timestamp * 1000)
    if not is_whole_ms(at_ms):
        raise ValueError(f"the timestamp {timestamp!r} of a send is no time: give seconds since 1970")
    return at_ms


def _pairs(headers: Loose) -> Headers:
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((_header_name(name), _header_value(name, value)) for name, value in pairs)


def _header_name(name: object) -> str:
    if isinstance(name, str):
        return name
    raise TypeError(f"the name {name!r} of a header is {type(name).__name__}, not str")


def _header_value(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"the header {name!r} is {value!r}, which is {type(value).__name__}, not bytes")


class Sent:
    """What a send gives back: awaiting it waits for nothing more."""

    __slots__ = ("_metadata",)

    def __init__(self, topic: str, partition: int | None, timestamp: float | None) -> None:
        number = -1 if partition is None else partition
        self._metadata = (topic, number, timestamp)

    def __await__(self) -> Generator[None, None, RecordMetadata]:
        yield from ()
        return self.result()

    def result(self) -> RecordMetadata:
        """Topic and partition, as far as they are known; the offset is -1."""
        topic, partition, timestamp = self._metadata
        return RecordMetadata(
            topic=topic,
            partition=partition,
            topic_partition=TP(topic, partition),
            offset=-1,
            timestamp=timestamp,
            timestamp_type=0,
        )


class Attachments:
    """Takes what is sent while an event is processed (faust's attachments of an event)."""

    enabled = True

    def __init__(self, app: faust.App, outbox: Callable[[], Outbox], give: Give) -> None:
        self._app = app
        self._outbox = outbox
        self._give = give
        self._encoders: dict[str | int, Encoder] = {}

    async def maybe_put(
        self,
        channel: str | faust.ChannelT,
        key: object = None,
        value: object = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Loose = None,
        schema: faust.SchemaT | None = None,
        key_serializer: object = None,
        value_serializer: object = None,
        callback: object = None,
        force: bool = False,
    ) -> Sent:
        """Sends at once, as every send does here."""
        return self.put(
            None,
            channel,
            key,
            value,
            partition,
            timestamp,
            headers,
            schema,
            key_serializer,
            value_serializer,
            callback,
        )

    def put(
        self,
        message: object,
        channel: str | faust.ChannelT,
        key: object = None,
        value: object = None,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Loose = None,
        schema: faust.SchemaT | None = None,
        key_serializer: object = None,
        value_serializer: object = None,
        callback: object = None,
    ) -> Sent:
        """One record to a channel. Raises UserError for what can't be sent to."""
        if type(channel) is Channel and self._give(channel, key, value, timestamp, _pairs(headers)):
            if callback is not None:
                plain: Channel = channel
                self._outbox().note(plain.as_future_message(key, value, timestamp=timestamp, callback=callback))
            return Sent("", None, timestamp)
        encoder = self._encoder(channel)
        topic, name = encoder.topic, encoder.name
        if key_serializer is not None or value_serializer is not None or schema is not None:
            require_codecs(of_send(name, key_serializer, value_serializer, schema))
        if callback is not None:
            future = topic.as_future_message(
                key, value, partition, timestamp, headers, schema, key_serializer, value_serializer, callback
            )
            return self.put_future(future, name)
        if encoder.is_plain and schema is None and key_serializer is None and value_serializer is None:
            raw_key, raw_value = encoder.key(key), encoder.value(value)
            if type(raw_key) is not bytes:
                raw_key = _bytes(raw_key)
            if type(raw_value) is not bytes:
                raw_value = _bytes(raw_value)
            self._outbox().put(name, raw_key, raw_value, partition, timestamp, headers)
            return Sent(name, partition, timestamp)
        open_headers = topic.prepare_headers(headers)
        raw_key, open_headers = topic.prepare_key(key, key_serializer, schema, open_headers)
        raw_value, open_headers = topic.prepare_value(value, value_serializer, schema, open_headers)
        self._outbox().put(name, _bytes(raw_key), _bytes(raw_value), partition, timestamp, open_headers)
        return Sent(name, partition, timestamp)

    def put_future(self, future: FutureMessage, name: str) -> Sent:
        """One record to the topic of that name, whose callback is called after the commit."""
        outbox = self._outbox()
        sent = _put_message(outbox, name, future)
        outbox.note(future)
        return sent

    def topic_called(self, name: str) -> faust.TopicT | None:
        """The topic of that name that the application has sent to, with its types and serializers; None: it has not."""
        found = (each.topic for key, each in self._encoders.items() if each.name == name and not isinstance(key, str))
        return next(found, None)

    def _encoder(self, channel: str | faust.ChannelT) -> Encoder:
        key = channel if isinstance(channel, str) else id(channel)
        encoder = self._encoders.get(key)
        if encoder is None:
            if len(self._encoders) >= _ENCODERS_MAX:
                self._encoders.clear()
            topic = self._app.topic(channel) if isinstance(channel, str) else channel
            encoder = self._encoders[key] = Encoder(self._app, topic)
        return encoder


_PLAIN_SEND = Topic.send


async def _send(
    self: faust.Topic,
    *,
    key: object = None,
    value: object = None,
    partition: int | None = None,
    timestamp: float | None = None,
    headers: Loose = None,
    schema: faust.SchemaT | None = None,
    key_serializer: object = None,
    value_serializer: object = None,
    callback: object = None,
    force: bool = False,
) -> object:
    """``Topic.send`` while agents run: nobody needs the event whose attachment it becomes."""
    attachments = self.app._attachments
    if type(attachments) is Attachments and not force:
        return attachments.put(
            None,
            self,
            key,
            value,
            partition,
            timestamp,
            headers,
            schema,
            key_serializer,
            value_serializer,
            callback,
        )
    return await _PLAIN_SEND(
        self,
        key=key,
        value=value,
        partition=partition,
        timestamp=timestamp,
        headers=headers,
        schema=schema,
        key_serializer=key_serializer,
        value_serializer=value_serializer,
        callback=callback,
        force=force,
    )


_binding: list[faust.App] = []


def bind_sends(app: faust.App) -> None:
    """Lets the topics of applications that run here send at once."""
    _binding.append(app)
    Topic.send = _send


def is_bound(app: faust.App) -> bool:
    """Whether the application runs in this process."""
    return any(each is app for each in _binding)


def unbind_sends(app: faust.App) -> None:
    """Gives them back, when the last of these applications ends."""
    _binding.remove(app)
    if not _binding:
        Topic.send = _PLAIN_SEND


def bind_channels(app: faust.App, channels: Iterable[faust.ChannelT]) -> None:
    """Lets what is sent to the channels go to the agents of the task that runs."""
    for channel in channels:
        channel.send = partial(_send_to_channel, app, channel)


async def _send_to_channel(app: faust.App, channel: faust.ChannelT, *, force: bool = False, **record: object) -> object:
    return app._attachments.put(None, channel, **record)


def unbind_channels(channels: Iterable[faust.ChannelT]) -> None:
    """Gives the channels back."""
    for channel in channels:
        del channel.send


def _bytes(raw: object) -> bytes | None:
    """What Kafka takes. faust's serializers give other things for keys that nobody told them how to write."""
    if raw is None or isinstance(raw, bytes):
        return raw
    if isinstance(raw, str):
        return raw.encode()
    raise TypeError(f"{raw!r} is {type(raw).__name__}, not bytes: name a serializer")


def _put_message(outbox: Outbox, topic: str, future: FutureMessage) -> Sent:
    message = future.message
    outbox.put(topic, _bytes(message.key), _bytes(message.value), message.partition, message.timestamp, message.headers)
    return Sent(topic, message.partition, message.timestamp)


class Producer:
    """Takes what is sent without an event: at a start, or with ``force=True`` (faust's producer)."""

    def __init__(self, outbox: Callable[[], Outbox], declare: Callable[[NewTopic], None]) -> None:
        self._outbox = outbox
        self._declare = declare

    async def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,
        *,
        config: Mapping[str, object] | None = None,
        retention: float | timedelta | None = None,
        compacting: bool | None = None,
        deleting: bool | None = None,
        **_: object,
    ) -> None:
        """Creates a topic, if it is not there: ``topic.declare()`` and ``maybe_declare()``. Raises StreamsError."""
        configs = topic_configs(config, retention, compacting=compacting, deleting=deleting)
        self._declare(NewTopic(name=topic, partitions=partitions, replication_factor=replication, configs=configs))

    async def send(
        self,
        topic: str,
        key: object,
        value: object,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Loose = None,
        **_: object,
    ) -> asyncio.Future[RecordMetadata]:
        """One record; the future is done."""
        done: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        done.set_result(await self.send_and_wait(topic, key, value, partition, timestamp, headers))
        return done

    async def send_and_wait(
        self,
        topic: str,
        key: object,
        value: object,
        partition: int | None = None,
        timestamp: float | None = None,
        headers: Loose = None,
        **_: object,
    ) -> RecordMetadata:
        """One record."""
        self._outbox().put(topic, _bytes(key), _bytes(value), partition, timestamp, headers)
        return Sent(topic, partition, timestamp).result()

    def send_soon(self, future: faust.types.FutureMessage) -> None:
        """One record of code that can't await."""
        message, outbox = future.message, self._outbox()
        future.set_result(_put_message(outbox, message.channel.get_topic_name(), future).result())
        if message.callback is not None:
            outbox.note(future)
