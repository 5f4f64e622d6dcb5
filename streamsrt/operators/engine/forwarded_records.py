"""Records that processors forward: they are checked, and serialized for the dead letters of those that punctuations forward.

A record that a punctuation forwards was never read, and a processor's output has no serdes. The serdes of the nearest sink
downstream are used if that sink can write the record, otherwise the application's defaults. If neither can write it, it
becomes text: strings unchanged, anything else as JSON or as its ``repr``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import orjson

from streamsrt.errors import UserError
from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.wire.records import Headers
from topology.graph.nodes import SinkNode
from topology.spec.codecs import ProgramSerde
from topology.spec.processor import Record
from topology.spec.timestamps import is_whole_ms


def check_forwarded(node: str, record: Record[object, object]) -> None:
    """Raises UserError for what could not be written: at the call, and not in the step that writes it."""
    if not is_whole_ms(record.timestamp, 0):
        raise UserError(
            f"{node}: forward() got a record with the timestamp {record.timestamp!r}; give a whole number of milliseconds "
            "from 0 (1970) on"
        )
    if record.headers and not _are_headers(record.headers):
        raise UserError(
            f"{node}: forward() got a record with the headers {record.headers!r}; give a tuple of tuples of a str and bytes "
            "(or None)"
        )


def _are_headers(headers: object) -> bool:
    return isinstance(headers, tuple) and all(
        isinstance(each, tuple)
        and len(each) == 2
        and isinstance(each[0], str)
        and (each[1] is None or isinstance(each[1], bytes))
        for each in headers
    )


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
