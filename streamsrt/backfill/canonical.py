"""Normalizes records: decodes and encodes them with their serdes.

Parts of a record that no operator reads are copied as bytes. A serde may accept several encodings of a value, such as
JSON with spaces or in another field order. Two correct computations of a task may therefore differ in bytes unless
their input is normalized first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamsrt.tasks.input.partition_group import TopicPartition
from streamsrt.wire.records import RecordColumns
from topology.graph.nodes import SinkNode, SourceNode
from topology.spec.codecs import ProgramSerde

Canonical = Callable[[Sequence[bytes | None]], list[bytes | None]]


class CanonicalRecords:
    """The records that a task reads or writes. ``node_of``: the source or the sink of a topic."""

    def __init__(self, node_of: Callable[[str], SourceNode | SinkNode]) -> None:
        self._node_of = node_of
        self._known: dict[str, tuple[Canonical, Canonical]] = {}

    def of(self, tp: TopicPartition, columns: RecordColumns) -> RecordColumns:
        """The same records. What a serde can't read is left unchanged: the task reports it."""
        if tp[0] not in self._known:
            node = self._node_of(tp[0])
            self._known[tp[0]] = _canonical(node.key_serde), _canonical(node.value_serde)
        keys, values = self._known[tp[0]]
        return replace(columns, keys=keys(columns.keys), values=values(columns.values))


def _canonical(serde: ProgramSerde | None) -> Canonical:
    if serde is None:
        return list
    deserialize, serialize = serde.deserialize, serde.serialize

    def one(data: bytes | None) -> bytes | None:
        if data is None:
            return None
        try:
            return serialize(deserialize(data))
        except Exception:  # noqa: BLE001 - whatever a user's serde raises
            return data

    return lambda column: [one(data) for data in column]
