"""What processor nodes write in a run, a flush or a punctuation: handed over at its end, as generated functions do.

1. A collector takes columns. Handing over a record at a time costs several times what the record itself costs.
2. Records for one topic keep their order, however their partitions are chosen. Between topics there is no order.
3. Outside of these records are handed over at once.
4. A run that is not to be committed hands over nothing: what is kept in stores would get into their changelogs before the
   results that follow from it are written.
5. A topic is looked up with its first record of a run, so that a missing one fails where it is written to. What the
   collector refuses later is no single record's: nothing of the run counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamsrt.errors import StreamsError
from streamsrt.operators.engine.placement import Choice
from streamsrt.state.columns import Headers

Collect = Callable[..., None]
"""As :meth:`streamsrt.tasks.output.record_collector.RecordCollector.add`."""


class TopicOutput:
    """Records for one topic that wait for the end of the run. ``partition``: of all of them; None: each one's choice, or
    that of its key. ``keys``, ``values`` and ``timestamps`` are always the same lists: whoever finds that ``keys`` is not
    empty may append to all three a record without headers and without a choice, which is what :meth:`append` does then."""

    __slots__ = ("_choices", "_headers", "_output", "keys", "partition", "timestamps", "topic", "values")

    def __init__(self, output: GatheredOutput, topic: str, partition: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self._output = output
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        # Up to the last record that has any.
        self._headers: list[Headers] = []
        self._choices: list[Choice] = []

    def append(
        self, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, choice: Choice = None
    ) -> None:
        """Adds a record. ``choice``: its partitioner's. Raises MissingTopicError."""
        if not self.keys:
            self._output.begin(self)
        if choice is not None:
            self._choices += [None] * (len(self.keys) - len(self._choices))
            self._choices.append(choice)
        if headers:
            self._headers += [()] * (len(self.keys) - len(self._headers))
            self._headers.append(headers)
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        if not self._output.is_gathering:
            self._output.hand_over()

    def hand_over(self, collect: Collect) -> None:
        """Gives the records to the collector, and forgets them."""
        count = len(self.keys)
        headers = [*self._headers, *[()] * (count - len(self._headers))] if self._headers else None
        choices = [*self._choices, *[None] * (count - len(self._choices))] if self._choices else None
        columns = self.topic, self.keys[:], self.values[:], self.timestamps[:], headers
        self.clear()
        collect(*columns, self.partition if choices is None else choices)

    def clear(self) -> None:
        """Forgets the records."""
        for column in (self.keys, self.values, self.timestamps, self._headers, self._choices):
            column.clear()


class GatheredOutput:
    """Of one task. ``collect`` hands over; ``partitions_of_topic`` raises MissingTopicError. Used as a context manager, it
    gathers meanwhile; within another one, that one hands over."""

    def __init__(self, collect: Collect, partitions_of_topic: Callable[[str], int]) -> None:
        self.is_gathering = False
        self.gathers = True
        """If not, nothing ever waits."""
        self._depth = 0
        self._collect = collect
        self._partitions_of_topic = partitions_of_topic
        self._topics: dict[tuple[str, int | None], TopicOutput] = {}
        self._waiting: dict[str, TopicOutput] = {}

    def __enter__(self) -> None:
        self._depth += 1
        self.is_gathering = self.gathers

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.is_gathering = False
            if isinstance(failure, StreamsError) and not failure.is_in_order and not failure.is_of_program:
                self.discard()
            else:
                self.hand_over()

    def to(self, topic: str, partition: int | None = None) -> TopicOutput:
        """Returns where records for a topic are added."""
        found = self._topics.get((topic, partition))
        if found is None:
            found = self._topics[topic, partition] = TopicOutput(self, topic, partition)
        return found

    def begin(self, output: TopicOutput) -> None:
        """A first record comes."""
        if output.partition is None:
            self._partitions_of_topic(output.topic)
        before = self._waiting.pop(output.topic, None)
        if before is not None:
            # Records for the same topic that are placed in another way keep their place.
            before.hand_over(self._collect)
        self._waiting[output.topic] = output

    def collect(self, topic: str, keys: Sequence[bytes | None], *columns: object, **placed: object) -> None:
        """Hands over columns at once, behind what waits for that topic."""
        before = self._waiting.pop(topic, None)
        if before is not None:
            before.hand_over(self._collect)
        self._collect(topic, keys, *columns, **placed)

    def discard(self) -> None:
        """Forgets all that waits."""
        while self._waiting:
            _, output = self._waiting.popitem()
            output.clear()

    def hand_over(self) -> None:
        """Hands over all that waits."""
        while self._waiting:
            _, output = self._waiting.popitem()
            output.hand_over(self._collect)
