"""Where the partitioners of the program place the record of a row, for any number of partitions.

1. What feeds a store are the topics from which there is a way to the steps that fill it. If the program itself writes one of
   them with a partitioner, that function decides about the rows, as it decides about the records of a sink. The response
   topic of a foreign-key join has the partitions of the left rows, so what feeds these counts.
2. A row has the key of its record. It has the record's value only if it is the row of a table that the topic fills.
   Otherwise the partitioner gets a :class:`_NoValue`, and the row has no place if it uses that. A check of its type or
   identity is not noticed: the survey compares the places of all rows with those that the partitioner names.
3. If several topics feed a store, all must name the same partition: their records were meant to meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from streamsrt.backfill.errors import UnplacedRowError
from streamsrt.operators.engine.placement import checked
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wording import error_text
from topology.graph.join_sides import stores_of_topics
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, StoreSpec, Subtopology, internal_topic_name
from topology.graph.operations.traits import Reads, Rereading, traits_of
from topology.graph.partitioned_bytes import to_its_partition
from topology.graph.topology import Topology
from topology.spec.codecs import SessionWindowedSerde, TimeWindowedSerde

_INSTEAD = (
    "Run the application under another application id, with state from streamsrt backfill, which reads the records"
)

ReadValue: TypeAlias = Callable[[bytes], object]


class _ValueUsed(BaseException):
    """No Exception: a partitioner that catches those does not catch this one."""


def _used(*_: object) -> NoReturn:
    raise _ValueUsed


class _NoValue:
    """The value of a record that nobody has any more."""

    __getattribute__ = __getitem__ = __iter__ = __len__ = __contains__ = __call__ = _used
    __bool__ = __str__ = __repr__ = __format__ = __bytes__ = __int__ = __float__ = __index__ = _used
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __floordiv__ = _used
    __hash__ = _used


_NO_VALUE = _NoValue()


def _no_value() -> object:
    return _NO_VALUE


@dataclass(frozen=True, slots=True)
class ProgramPartitioner:
    """A partitioner with the topic whose records it places, and the sink's serdes."""

    topic: str
    sink: SinkNode

    @property
    def takes_windows(self) -> bool:
        """Whether the keys that it gets are windowed."""
        return isinstance(self.sink.key_serde, TimeWindowedSerde | SessionWindowedSerde)

    def __str__(self) -> str:
        function = self.sink.partitioner
        function = getattr(function, "__wrapped__", function)
        code = getattr(function, "__code__", None)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        where = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
        return f"partitioner {name}{where} of topic {self.topic}"

    def partition(self, key: bytes, value: Callable[[], object], count: int) -> int | None:
        """The partition that it chooses; None: that of the default partitioner. ``value``: reads that of the record. Raises
        UnplacedRowError."""
        function, serde = self.sink.partitioner, self.sink.key_serde
        assert function is not None
        assert serde is not None
        try:
            choice = checked(self.topic, function(self.topic, serde.deserialize(key), value(), count), count)
        except _ValueUsed:
            raise UnplacedRowError(
                f"the {self} needs the values of the records, and the rows do not have them, so nobody knows where they "
                f"belong. {_INSTEAD}"
            ) from None
        except Exception as error:
            raise UnplacedRowError(
                f"the {self} fails for key {key!r} and {count} partitions: {error_text(error)}. Correct it so "
                "that it takes every key and any number of partitions, and do this again"
            ) from error
        if isinstance(choice, list) and len(choice) != 1:
            raise UnplacedRowError(
                f"the {self} sends a record to {len(choice)} partitions, the first with key {key!r}: its rows have no one "
                f"place. {_INSTEAD}"
            )
        return choice[0] if isinstance(choice, list) else choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Where the program places records: with ``partitioners``, and elsewhere with the default one if ``has_default``.
    ``read_value``: reads a record's value from a row; None: the rows do not have it."""

    partitioners: tuple[ProgramPartitioner, ...]
    has_default: bool
    read_value: ReadValue | None = None

    def __str__(self) -> str:
        return " and the ".join(map(str, self.partitioners))

    def partition(self, key: bytes, whole_key: bytes, value: bytes | None, count: int) -> int:
        """The partition of a row. ``key``: of its record, without windows; ``whole_key``: with them. Raises
        UnplacedRowError."""
        read = self.read_value
        known = _no_value if read is None else lambda: None if value is None else read(value)
        found = {partition_for_key(key, count): "the default partitioner"} if self.has_default else {}
        for each in self.partitioners:
            chosen = each.partition(whole_key if each.takes_windows else key, known, count)
            found.setdefault(partition_for_key(key, count) if chosen is None else chosen, f"the {each}")
        if len(found) > 1:
            listed = ", ".join(f"{name} names {partition}" for partition, name in sorted(found.items()))
            raise UnplacedRowError(
                f"key {key!r} has no one place among {count} partitions: {listed}. Topics that one step reads need the same "
                "partitioner"
            )
        return next(iter(found))


class Placements:
    """What places the rows of the stores of a topology, and the records of its topics."""

    def __init__(self, topology: Topology, application_id: str) -> None:
        self._parts = topology.subtopologies
        self._id = application_id
        self._joins = stores_of_topics(topology.subtopologies)

    def of_store(self, spec: StoreSpec, subtopology: Subtopology) -> Placing | None:
        """What places the rows of a store; None: the default partitioner does."""
        users = [node for node in subtopology.nodes if isinstance(node, ProcessorNode) and spec.name in node.stores]
        owners = [node for node in users if getattr(node.operation, "store", None) == spec.name] or users
        serde = spec.value_serde
        has_values = serde is not None and all(_is_filled_by_topic(node, subtopology) for node in owners)
        return self._placing(subtopology, owners, serde.deserialize if has_values and serde is not None else None)

    def of_left_rows(self, responses: Iterable[str], subtopology: Subtopology) -> Placing | None:
        """What places the left rows of a foreign-key join, whose answers come through these topics."""
        readers = [node for node in subtopology.sources if not set(responses).isdisjoint(node.topics)]
        return self._placing(subtopology, readers, None)

    def of_topic(self, topic: str) -> Placing | None:
        """What places the records of a topic that is not internal; None: the default partitioner, as far as is known."""
        sinks = self._sinks(topic, internal=False)
        serde = next((sink.value_serde for sink in sinks), None)
        return _of_sinks(sinks, topic, None if serde is None else serde.deserialize)

    def _placing(self, subtopology: Subtopology, nodes: Sequence[Node], read: ReadValue | None) -> Placing | None:
        partitioners: dict[tuple[str, int], ProgramPartitioner] = {}
        has_default = False
        for source in self._feeding(subtopology, nodes):
            for topic in source.topics:
                sinks = self._sinks(topic, internal=source.repartition)
                found = _of_sinks(sinks, self._named(topic, internal=source.repartition), read)
                has_default = has_default or found is None or found.has_default
                for each in () if found is None else found.partitioners:
                    partitioners.setdefault((each.topic, id(each.sink.partitioner)), each)
            has_default = has_default or source.pattern is not None
        if not partitioners:
            return None
        return Placing(partitioners=tuple(partitioners.values()), has_default=has_default, read_value=read)

    def _feeding(self, subtopology: Subtopology, nodes: Iterable[Node]) -> Iterator[SourceNode]:
        """The sources from which there is a way to these nodes; in place of those of answers, those of the left rows."""
        waiting, seen = list(nodes), {node.name for node in nodes}
        while waiting:
            node = waiting.pop()
            above: list[Node] = []
            if not isinstance(node, SourceNode):
                above = [subtopology.node(name) for name in node.parents]
            elif self._is_of_answers(node):
                stores = {self._joins.get(topic) for topic in node.topics}
                above = [
                    sink
                    for sink in subtopology.sinks
                    if sink.repartition and self._joins.get(sink.topic or "") in stores
                ]
            else:
                yield node
            fresh = [each for each in above if each.name not in seen]
            seen.update(each.name for each in fresh)
            waiting += fresh

    def _is_of_answers(self, source: SourceNode) -> bool:
        sinks = [sink for topic in source.topics for sink in self._sinks(topic, internal=True)]
        return source.repartition and any(sink.partitioner is to_its_partition for sink in sinks)

    def _sinks(self, topic: str, *, internal: bool) -> list[SinkNode]:
        return [
            sink for part in self._parts for sink in part.sinks if (sink.topic, sink.repartition) == (topic, internal)
        ]

    def _named(self, topic: str, *, internal: bool) -> str:
        return internal_topic_name(self._id, topic) if internal else topic


def _of_sinks(sinks: Sequence[SinkNode], topic: str, read: ReadValue | None) -> Placing | None:
    own = {id(sink.partitioner): sink for sink in sinks if sink.partitioner not in (None, to_its_partition)}
    if not own:
        return None
    return Placing(
        partitioners=tuple(ProgramPartitioner(topic, sink) for sink in own.values()),
        has_default=any(sink.partitioner is None for sink in sinks),
        read_value=read,
    )


def _is_filled_by_topic(node: Node, subtopology: Subtopology) -> bool:
    """Whether the rows that a step makes are the records of a topic."""
    return (
        isinstance(node, ProcessorNode)
        and traits_of(node.operation).keeps_result
        and traits_of(node.operation).reads is Reads.NOTHING
        and traits_of(node.operation).rereading is Rereading.SAME
        and all(isinstance(subtopology.node(name), SourceNode) for name in node.parents)
    )
