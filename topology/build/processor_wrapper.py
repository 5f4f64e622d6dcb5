"""The pass that wraps processor nodes (``processor.wrapper.class``).

The rules are in :mod:`topology.spec.processor_wrapper`.
"""

from __future__ import annotations

from dataclasses import replace

from topology.build.unfinished import UnfinishedTopology
from topology.graph.nodes import Node, ProcessorNode
from topology.graph.operations.traits import processor_of, with_fields
from topology.spec.errors import TopologyError
from topology.spec.processor_wrapper import (
    PROCESSOR_WRAPPER_KEY,
    OperatorProcessor,
    ProcessorSupplier,
    ProcessorWrapper,
)


def wrap_processors(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Lets the application put something around each processor node."""
    wrapper = unfinished.config.get(PROCESSOR_WRAPPER_KEY)
    if wrapper is None:
        return unfinished
    if not callable(wrapper):
        raise TopologyError(
            f"{PROCESSOR_WRAPPER_KEY} is a callable (name, supplier) that returns a supplier, not {wrapper!r}"
        )
    return replace(unfinished, nodes=tuple(_wrapped(node, wrapper) for node in unfinished.nodes))


def _wrapped(node: Node, wrapper: ProcessorWrapper) -> Node:
    if not isinstance(node, ProcessorNode):
        return node
    processor = processor_of(node.operation)
    if processor is not None:
        return replace(node, operation=with_fields(node.operation, supplier=_supplier(node, wrapper, processor)))
    name = node.name

    def own() -> OperatorProcessor:
        return OperatorProcessor(name)

    supplier = _supplier(node, wrapper, own)
    return node if supplier is own else replace(node, wrapped_by=supplier)


def _supplier(node: ProcessorNode, wrapper: ProcessorWrapper, own: ProcessorSupplier) -> ProcessorSupplier:
    supplier = wrapper(node.name, own)
    if not callable(supplier):
        raise TopologyError(
            f"{PROCESSOR_WRAPPER_KEY} returned {supplier!r} for {node.name!r}: it must return a supplier", node.site
        )
    return supplier
