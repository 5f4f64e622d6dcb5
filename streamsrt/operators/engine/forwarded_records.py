"""Serializes a record that a punctuation forwarded, for its dead letter: such a record was never read.

A processor's output has no serdes. The serdes of the nearest sink downstream are used if that sink can write the
record, otherwise the application's defaults. If neither can write it, it becomes text: strings unchanged, anything else
as JSON or as its ``repr``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import orjson

from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.wire.records import Headers
from topology.graph.nodes import SinkNode
from topology.spec.codecs import ProgramSerde
from topology.spec.processor import Record


def forwarded_record(
    plan: ResolvedSubtopology, node: str, record: Record[object, object]
) -> tuple[bytes | None, bytes | None, Headers, int]:
    """Key, value, headers and timestamp of a record that the processor node ``node`` forwarded."""
    sink = next(_sinks(plan, node), None)
    keys = (None if sink is None else sink.key_serde, plan.default_key_serde)
    values = (None if sink is None else sink.value_serde, plan.default_value_serde)
    return _bytes(record.key, keys), _bytes(record.value, values), record.headers, record.timestamp


def _sinks(plan: ResolvedSubtopology, node: str) -> Iterator[SinkNode]:
    """Behind that node, the nearest first."""
    names, seen = [node], {node}
    for name in names:
        found = plan.node(name)
        if isinstance(found, SinkNode):
            yield found
            continue
        names += [child for child in found.children if child not in seen]
        seen.update(found.children)


def _bytes(value: object, serdes: Iterable[ProgramSerde | None]) -> bytes | None:
    if value is None:
        return None
    for serde in serdes:
        # A user's serde may raise anything, and is not meant for this value.
        with suppress(Exception):
            if serde is not None:
                return serde.serialize(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode(errors="backslashreplace")
    try:
        return orjson.dumps(value)
    except TypeError:
        return repr(value).encode(errors="backslashreplace")
