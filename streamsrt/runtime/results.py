"""Reads back the records that an application writes while it runs: for notebooks, scripts and experiments.

1. Results are the records written after the end that the topics had before the run: those of every instance, and of any
   other writer.
2. Uncommitted records are not read. Topics that an operation chooses per record have to be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from streamsrt.client.network import NetworkThread
from streamsrt.client.unreadable import unreadable_batch
from streamsrt.client.values import LATEST, ClientConfig, Fetched, ProducerConfig, TopicPartition
from streamsrt.errors import DeserializationError, MissingTopicError, UserError
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import Headers, iter_columns
from streamsrt.wording import counted, error_text
from topology.graph.topology import Topology
from topology.spec.serdes import Serde

_SHOWN, _LETTERS = 100, 200
"""Of a table: rows, and letters of a key or a value."""


class ResultRecord(NamedTuple):
    """A record of an output topic. ``timestamp``: epoch milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers


class CollectedRecords(dict[str, list[ResultRecord]]):
    """Records by topic. A notebook shows them as tables."""

    def _repr_html_(self) -> str:
        return "".join(_table(topic, records) for topic, records in self.items()) or "<p>no topics</p>"


def _table(topic: str, records: Sequence[ResultRecord]) -> str:
    from streamsrt.runtime.html_table import html_table  # in notebooks only

    count = (
        counted(len(records), "record") if len(records) <= _SHOWN else f"the first {_SHOWN} of {len(records)} records"
    )
    rows = (list(map(_text, _cells(each))) for each in records[:_SHOWN])
    return html_table(f"{topic}: {count}", ("key", "value", "timestamp", "partition", "offset"), rows)


def _cells(record: ResultRecord) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp, record.partition, record.offset


def _text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


class Results:
    """Reads the records written to ``topics`` (none: all output topics that the topology names) between :meth:`begin` and
    :meth:`read`.

    Raises UserError for a topic that the topology does not write to.
    """

    def __init__(self, topology: Topology, client: ClientConfig, topics: Iterable[str], timeout_s: float) -> None:
        sinks = [sink for part in topology.subtopologies for sink in part.sinks if not sink.repartition]
        self._sinks = {sink.topic: sink for sink in sinks if sink.topic is not None}
        chosen_by_records = any(sink.topic is None for sink in sinks)
        unknown = [topic for topic in topics if topic not in self._sinks and not chosen_by_records]
        if unknown:
            known = ", ".join(sorted(self._sinks)) or "none"
            raise UserError(f"the topology does not write to {unknown[0]!r}; its topics: {known}")
        self._topics = tuple(dict.fromkeys(topics)) or tuple(sorted(self._sinks))
        if not self._topics:
            raise UserError("name the topics to collect: the topology writes to none, or chooses them for each record")
        self._default = next((sink for sink in sinks if sink.topic is None), None)
        reading = replace(client.fetch, isolation_level="read_committed")
        self._client = replace(client, fetch=reading, producer=ProducerConfig())
        self._timeout_s = timeout_s
        self._from: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        """Remembers the end offsets of the topics. Raises MissingTopicError, BrokerError."""
        with self._connected() as network:
            self._from = self._ends(network)

    def read(self) -> CollectedRecords:
        """Returns the records written since, by topic, in order within each partition. Raises DeserializationError,
        BrokerError."""
        found = CollectedRecords({topic: [] for topic in self._topics})
        with self._connected() as network:
            ends = self._ends(network)
            left = {tp for tp, end in ends.items() if self._from.get(tp, 0) < end}
            network.fetcher.add_partitions({tp: self._from.get(tp, 0) for tp in left})
            while left:
                for fetched in network.fetcher.poll(1.0):
                    if fetched.error is not None:
                        raise fetched.error
                    try:
                        found[fetched.topic] += self._records(fetched)
                    except DecodeError as error:
                        at = fetched.topic, fetched.partition
                        raise unreadable_batch(at, fetched.offset, error) from error
                    tp = (fetched.topic, fetched.partition)
                    if fetched.next_offset >= ends[tp] and tp in left:
                        left.discard(tp)
                        network.fetcher.remove_partitions([tp])
        for records in found.values():
            records.sort(key=lambda record: record[:2])
        return found

    def _records(self, fetched: Fetched) -> Iterator[ResultRecord]:
        sink = self._sinks.get(fetched.topic, self._default)
        assert sink is not None
        for columns in iter_columns(fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted):
            for index, timestamp in enumerate(columns.timestamps):
                offset = columns.offset_at(index)
                try:
                    key = _decoded(sink.key_serde, columns.keys[index])
                    value = _decoded(sink.value_serde, columns.values[index])
                except Exception as error:
                    raise DeserializationError(
                        f"the record at {fetched.topic}-{fetched.partition} offset {offset} can't be read by the "
                        f"serdes of {sink.name}: {error_text(error)}",
                        fetched.topic,
                        fetched.partition,
                        offset,
                    ) from error
                headers = () if columns.headers is None else columns.headers[index]
                yield ResultRecord(fetched.partition, offset, timestamp, key, value, headers)

    @contextmanager
    def _connected(self) -> Iterator[NetworkThread]:
        network = NetworkThread(self._client)
        network.start(self._timeout_s)
        try:
            yield network
        finally:
            network.stop()

    def _ends(self, network: NetworkThread) -> dict[TopicPartition, int]:
        counts = network.admin.partitions_for(self._topics)
        missing = [topic for topic in self._topics if topic not in counts]
        if missing:
            raise MissingTopicError(
                f"no such topic: {', '.join(missing)} (streamsrt topics create {missing[0]} --partitions N creates it)"
            )
        partitions = [(topic, index) for topic in self._topics for index in range(counts[topic])]
        found = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        return {tp: at.offset for tp, at in found.items()}


def _decoded(serde: Serde[Any] | None, data: bytes | None) -> Any:
    return data if data is None or serde is None else serde.deserialize(data)
