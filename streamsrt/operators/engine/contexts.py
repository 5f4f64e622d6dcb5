"""Which record of a run is being processed, and which one failed, as exception handlers get it: one of a run, or a change
that a cache held back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint

from streamsrt.operators.engine.handlers import ErrorContext
from streamsrt.state.cache import Flushed
from streamsrt.wire.records import Headers, RecordColumns
from streamsrt.wire.records.merged import MergedColumns
from topology.spec.processor import RecordMetadata

_new = tuple.__new__
"""What a named tuple does to make one, at a third of the time."""


class RunPosition:
    """Which record of a run is being processed, by how far an iterator over its keys has come. ``partitions``: of the
    columns, or of each of their parts."""

    __slots__ = ("_count", "_offsets", "_origins", "columns", "keys", "partitions")

    def __init__(self, partitions: Sequence[tuple[str, int]], columns: RecordColumns | MergedColumns) -> None:
        self.partitions = partitions
        self.columns = columns
        self.keys: Iterator[bytes | None] = iter(columns.keys)
        """Whoever processes the run takes the keys from here."""
        self._count = len(columns.keys)
        self._origins = columns.origins if isinstance(columns, MergedColumns) else None
        self._offsets: Sequence[int] | None = None

    @property
    def index(self) -> int:
        """0 also before the first record."""
        return max(self._count - length_hint(self.keys) - 1, 0)

    @property
    def metadata(self) -> RecordMetadata:
        """Where the record was read."""
        offsets = self._offsets
        if offsets is None:
            offsets = self._offsets = self.columns.each_offset
        index = max(self._count - length_hint(self.keys) - 1, 0)
        topic, partition = self.partitions[0 if self._origins is None else self._origins[index]]
        return _new(RecordMetadata, (topic, partition, offsets[index]))

    @property
    def source(self) -> tuple[bytes | None, bytes | None, Headers, int]:
        """The record as it was read: key, value, headers and timestamp."""
        columns, index = self.columns, self.index
        headers: Headers = () if columns.headers is None else columns.headers[index]
        return columns.keys[index], columns.values[index], headers, columns.timestamps[index]


def place_in(
    partitions: Sequence[tuple[str, int]], columns: RecordColumns | MergedColumns, keys: Iterator[object]
) -> RecordMetadata:
    """Where the record was read that a generated function has come to. ``keys``: those behind it. See :func:`places_of`."""
    index = len(columns.keys) - length_hint(keys) - 1
    topic, partition = partitions[columns.origins[index] if isinstance(columns, MergedColumns) else 0]
    return RecordMetadata(topic, partition, columns.offset_at(index))


def places_of(
    partitions: Sequence[tuple[str, int]], columns: RecordColumns | MergedColumns
) -> tuple[Sequence[tuple[str, int]], Sequence[int]]:
    """Topic and partition, and offset, of each record. ``partitions``: of the columns, or of each of their parts."""
    if isinstance(columns, MergedColumns):
        return list(map(partitions.__getitem__, columns.origins)), columns.each_offset
    return [partitions[0]] * len(columns.keys), columns.each_offset


def flushed_context(flushed: Flushed, index: int, node: str) -> ErrorContext:
    """The context of a change that a cache held back: its source record is unknown."""
    key, value, headers = flushed.store_keys[index], flushed.raw_values[index], flushed.headers[index]
    return ErrorContext(
        topic="",
        partition=-1,
        offset=-1,
        node=node,
        timestamp=flushed.timestamps[index],
        key=key,
        value=value,
        headers=tuple(headers),
        source_key=key,
        source_value=value,
        source_headers=tuple(headers),
    )


def context_at(
    partitions: Sequence[tuple[str, int]], columns: RecordColumns | MergedColumns, index: int, node: str
) -> ErrorContext:
    if isinstance(columns, MergedColumns):
        part = columns.origins[index]
        return context_of(*partitions[part], columns.parts[part], columns.counts(index)[part], node)
    return context_of(*partitions[0], columns, index, node)


def context_of(topic: str, partition: int, columns: RecordColumns, index: int, node: str) -> ErrorContext:
    headers: Headers = () if columns.headers is None else columns.headers[index]
    return ErrorContext(
        topic=topic,
        partition=partition,
        offset=columns.offset_at(index),
        node=node,
        timestamp=columns.timestamps[index],
        key=columns.keys[index],
        value=columns.values[index],
        headers=headers,
        source_key=columns.keys[index],
        source_value=columns.values[index],
        source_headers=tuple(headers),
        source_timestamp=columns.timestamps[index],
    )
