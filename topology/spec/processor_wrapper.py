"""``processor.wrapper.class``: an application wraps every processor node, for example to time or to log it.

1. A wrapper is asked once for each node, when the topology is built, and gets the node's name and a supplier of what the
   node does: the program's own processor, or an :class:`OperatorProcessor` for an operator of the DSL. Sources and sinks are
   no processors.
2. What it returns runs in place of that. A node whose supplier it returns as it is stays as it was.
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
    """What ``processor.wrapper.class`` is set to: a function, or an object that can be called."""

    def __call__(self, name: str, supplier: ProcessorSupplier, /) -> ProcessorSupplier:
        """The supplier of what is to run as the node ``name``: ``supplier``, or something around what it makes."""


class TableRecord(Record[Any, Any]):
    """A change of a table's row on its way between nodes: ``value`` is the new one, ``old_value`` the one before.

    Records that are made of it by its methods keep the old value.
    """

    old_value: Any

    @classmethod
    def of(cls, record: AnyRecord, old_value: Any) -> TableRecord:
        """The record, with the value that it replaces."""
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
    """An operator of the DSL as a processor, for what is put around it. ``name``: of its node.

    It needs the context that the wrapper's processor got, or one that passes on to that what it does not know itself.
    Results go through the ``forward`` of the context that it is given.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: Callable[[AnyRecord], None] = self._too_early
        self._close: Callable[[], None] = _nothing

    def init(self, context: ProcessorContext[object, object]) -> None:
        begin = getattr(context, "begin_operator", None)
        if begin is None:
            raise TopologyError(
                f"{PROCESSOR_WRAPPER_KEY}: the context given to {self.name!r} is not the one of its node. Give it the "
                "context of init(), or one that passes on to that what it does not know (__getattr__)"
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
