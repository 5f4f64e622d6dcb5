"""Suppression: of the changes of a row, only the last one within a time is forwarded.

1. A change is held back until stream time is ``wait_ms`` behind its time: the end of its window, or the time of its row's
   first change that is held back. It flows on with its own timestamp, headers and origin.
2. Where the buffer is full, the oldest changes go early, or the application stops.
3. The old value that goes with a change is the one that was forwarded before, not those that were held back in between.
4. Final results of windows leave out deletions.

Source: org.apache.kafka.streams.kstream.internals.suppress.KTableSuppressProcessorSupplier.
"""

from __future__ import annotations

from typing import Any

from streamsrt.errors import UserError
from streamsrt.operators.plan import StreamTime
from streamsrt.operators.processor_nodes import PathBuilder, PathNode, Process, makes
from streamsrt.state.buffer import Held, SuppressionBuffer
from topology.nodes import ProcessorNode
from topology.operations import Suppress
from topology.processor import RecordMetadata

NO_ORIGIN = RecordMetadata("", -1, -1)


@makes(Suppress)
def make_suppress(builder: PathBuilder, node: ProcessorNode, made: PathNode) -> Process:
    op = node.operation
    assert isinstance(op, Suppress)
    return _Suppression(builder, node, op, made).process


class _Suppression:
    def __init__(self, builder: PathBuilder, node: ProcessorNode, op: Suppress, made: PathNode) -> None:
        buffer = builder.env.caches[op.store]
        assert isinstance(buffer, SuppressionBuffer)
        self._op = op
        self._buffer = buffer
        self._env = builder.env
        self._time = builder.env.stream_times.setdefault(node.name, StreamTime())
        self._serde = builder.plan.key_serde(builder.plan.specs[op.store])
        self._name = node.name
        self._sends_old = node.sends_old_values
        self._forward_on = made.forward

    def process(self, key: Any, value: Any, timestamp: int, headers: Any, old: Any) -> None:
        if self._op.max_bytes is not None and not self._buffer.counts_bytes:
            self._buffer.count_bytes()
        time = self._time
        if timestamp > time.ms:
            time.ms = timestamp
        at_ms = key.end_ms if self._op.by_window else timestamp
        raw = self._serde.serialize(key)
        origin = self._env.metadata or NO_ORIGIN
        self._buffer.put(Held(raw, at_ms, value, old, old, timestamp, headers, origin))
        self._let_go(time.ms - self._op.wait_ms)

    def _let_go(self, until_ms: int) -> None:
        buffer = self._buffer
        while (first := buffer.first()) is not None and first.time_ms <= until_ms:
            buffer.remove_first()
            self._forward(first)
        if not self._is_full():
            return
        if self._op.shuts_down:
            size = "" if self._op.max_bytes is None else f" of {buffer.size_in_bytes} bytes"
            raise UserError(
                f"{self._name} holds back {len(buffer)} changes{size}, more than its buffer may have: raise max_records or "
                "max_bytes, or let it emit early"
            )
        while self._is_full() and (first := buffer.first()) is not None:
            buffer.remove_first()
            self._forward(first)

    def _is_full(self) -> bool:
        records, size = self._op.max_records, self._op.max_bytes
        if records is not None and len(self._buffer) > records:
            return True
        return size is not None and self._buffer.size_in_bytes > size

    def _forward(self, held: Held) -> None:
        if held.new is None and self._op.by_window:
            return
        env = self._env
        before, env.metadata = env.metadata, RecordMetadata(*held.origin)
        try:
            old = held.prior if self._sends_old else None
            key = self._serde.deserialize(held.key)
            self._forward_on(key, held.new, held.timestamp, tuple(held.headers), old)
        finally:
            env.metadata = before
