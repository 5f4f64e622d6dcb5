"""``processor.wrapper.class``: an application wraps every processor node, for example to time or to log it.

1. The wrapper is called once for each node, when the topology is built. It gets the node's name and the supplier of the
   node's processor: the program's own, or an :class:`OperatorProcessor` for an operator of the DSL. It is not called for
   sources and sinks.
2. The supplier that it returns replaces that one. If it returns the same supplier, the node does not change.
3. Names, topics and digests are those of the topology without a wrapper.

Source: KIP-1112, org.apache.kafka.streams.processor.api.ProcessorWrapper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from topology.spec.errors import TopologyError
from topology.spec.processor import Headers, Processor, ProcessorContext, Record

PROCESSOR_WRAPPER_KEY = "processor.wrapper.class"

AnyProcessor: TypeAlias = Processor[Any, Any, Any, Any]  # of types that only the program knows
AnyRecord: TypeAlias = Record[Any, Any]  # likewise
ProcessorSupplier: TypeAlias = Callable[[], AnyProcessor]


class ProcessorWrapper(Protocol):
    """The value of ``processor.wrapper.class``: a function, or another callable."""

    def __call__(self, name: str, supplier: ProcessorSupplier, /) -> ProcessorSupplier:
        """Returns the supplier for the node ``name``: ``supplier`` itself, or one that wraps its processors."""


class TableRecord(Record[Any, Any]):
    """A change of a table's row, passed between nodes: ``value`` is the new value, ``old_value`` the previous one.

    The records that its methods return keep the old value.
    """

    old_value: Any

    @classmethod
    def of(cls, record: AnyRecord, old_value: Any) -> TableRecord:
        """The record with the value that it replaces."""
        made = cls(*record)
        made.old_value = old_value
        return made

    def with_key(self, key: Any) -> TableRecord:
        return TableRecord.of(super().with_key(key), self.old_value)

    def with_value(self, value: Any) -> TableRecord:
        return TableRecord.of(super().with_value(value), self.old_value)

    def with_timestamp(self, timestamp: int) -> TableRecord:
        return TableRecord.of(super().with_timestamp(timestamp), self.old_value)

    def with_headers(self, headers: Headers) -> TableRecord:
        return TableRecord.of(super().with_headers(headers), self.old_value)


class OperatorProcessor:
    """An operator of the DSL as a processor, which a wrapper can wrap. ``name``: the name of its node.

    Its context must be the one that the wrapping processor got, or one that delegates to it. Results go through the
    ``forward`` of the context that it is given.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Callable[[AnyRecord], None] = self._too_early
        self._close: Callable[[], None] = _nothing

    def init(self, context: ProcessorContext[object, object]) -> None:
        begin = getattr(context, "begin_operator", None)
        if begin is None:
            raise TopologyError(
                f"{PROCESSOR_WRAPPER_KEY}: the context given to {self.name!r} is not that of its node. Give it the "
                "context of init(), or one that delegates to it (__getattr__)"
            )
        self._process, self._close = begin(context)

    def process(self, record: AnyRecord) -> None:
        self._process(record)

    def close(self) -> None:
        self._close()

    def _too_early(self, record: AnyRecord) -> None:
        raise TopologyError(f"{PROCESSOR_WRAPPER_KEY}: init(context) of {self.name!r} was not called before process()")


def _nothing() -> None:
    pass
