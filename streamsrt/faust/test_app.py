"""An application in a test, without a broker.

    with TestApp(app) as test:
        test.send("words", value="hello")
        assert test.received("counts") == [("hello", 1)]
        assert test.table("word-counts") == {"hello": 1}

It runs what ``streamsrt faust run`` runs. An agent by itself is tested as with faust: ``agent.test_context()``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from streamsrt.client.values import NewTopic
from streamsrt.errors import UserError
from streamsrt.faust.decoding import Decoder, Row
from streamsrt.faust.program import topology_with
from streamsrt.faust.reading import topics_known
from streamsrt.faust.sends import Attachments, is_bound, placed
from streamsrt.faust.settings import config
from streamsrt.testing.topology_test_driver import TopologyTestDriver
from streamsrt.wire.records import Headers
from topology.spec.processor import RecordMetadata

if TYPE_CHECKING:
    import faust


class DriverAnswers:
    """Answers to what the application asks, out of what the driver has seen."""

    def __init__(self, test: TestApp) -> None:
        self._test = test
        self._at = 0
        self._topics: set[str] = set()

    def open(self, topic: str) -> None:
        """Reads that topic from now on."""
        self._topics.add(topic)

    def declare(self, topic: NewTopic) -> None:
        """The driver has every topic."""

    def arrived(self) -> Iterator[bytes]:
        """What has come since the last call."""
        history = self._test.driver.producer_history
        new, self._at = history[self._at :], len(history)
        yield from (each.value for each in new if each.topic in self._topics and each.value is not None)

    def close(self) -> None:
        """There is nothing to be closed."""


class TestApp:
    """Runs ``app`` record by record. ``settings``: of the runtime, in addition to those of the application.

    ``serves``: whether the application's pages are served, at its port. ``partitions``: the partition count of every
    topic, or a mapping by topic. Raises UserError for what is not supported.
    """

    __test__ = False

    def __init__(
        self,
        app: faust.App,
        settings: Mapping[str, object] | None = None,
        *,
        partitions: int | Mapping[str, int] = 1,
        now_ms: int = 0,
        serves: bool = False,
    ) -> None:
        if is_bound(app):
            raise UserError(
                f"the application {app.conf.id} runs in this process already: its tables and topics can belong to one run "
                "only. Close the other TestApp or KafkaStreams first, or make another faust.App"
            )
        self._app = app
        self._partitions = partitions
        self.driver = TopologyTestDriver(
            topology_with(app, lambda _, __: DriverAnswers(self), serves=serves),
            {**config(app), **(settings or {})},
            partitions=partitions,
            initial_wall_clock_ms=now_ms,
        )

    def send(
        self,
        topic: str | faust.TopicT,
        *,
        key: object = None,
        value: object = None,
        timestamp: float = 0.0,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Sends a record as ``topic.send`` does, and processes it. ``timestamp``: epoch seconds."""
        known = self._topic(topic)
        raw_key, _ = known.prepare_key(key, None, None, {})
        raw_value, _ = known.prepare_value(value, None, None, {})
        name = topic if isinstance(topic, str) else topic.get_topic_name()
        if partition is None:
            count = self._partitions if isinstance(self._partitions, int) else self._partitions.get(name, 1)
            partition = placed(self._app, raw_key, count)
        self.driver.pipe_raw(name, raw_key, raw_value, round(timestamp * 1000), headers, partition=partition)

    def received(self, topic: str | faust.TopicT) -> list[tuple[object, object]]:
        """Keys and values of the records sent to a topic since the last call, decoded by the topic's schema."""
        known = self._topic(topic)
        decoder = Decoder(self._app, known)
        queue = self.driver.output_queue(topic if isinstance(topic, str) else topic.get_topic_name())
        found = [
            decoder.decode(
                Row(each.key, each.value, each.timestamp, each.headers, RecordMetadata(each.topic, each.partition, -1))
            )
            for each in queue
        ]
        queue.clear()
        return found

    def table(self, table: str | faust.Table, *, partition: int = 0) -> dict[object, object]:
        """The rows of a table, which is given by its name or as the object that ``app.Table()`` returned."""
        name = table if isinstance(table, str) else table.name
        return dict(self.driver.get_key_value_store(name, partition=partition).all())

    def _topic(self, topic: str | faust.TopicT) -> faust.TopicT:
        if not isinstance(topic, str):
            return topic
        known = (each for each in topics_known(self._app) if topic in each.topics)
        attachments = self._app._attachments
        sent = attachments.topic_called(topic) if isinstance(attachments, Attachments) else None
        return next(known, None) or sent or self._app.topic(topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the agents."""
        try:
            self.driver.end()
        finally:
            self.driver.close()
