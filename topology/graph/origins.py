"""What a store or repartition topic is made from: what tells two of them apart whose names say nothing.

1. A generated name ends in a number that counts the steps of the program. Another version may give the same name to
   something else, so such names are compared by what they stand for: the topics that feed them, through repartition topics
   too, the kinds of the steps that change keys on the way, and the kind of step that fills them.
2. Where all of that is equal, the functions on the way may differ. They are compared by their compiled code, which says
   nothing where the two versions ran on different versions of Python. An edited function changes it, so it is no more than a
   hint: it counts only where two names have exchanged what they stand for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from hashlib import sha256
from types import CodeType, FunctionType, MethodType
from typing import Any

from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from topology.graph.operations.traits import changes_key
from topology.graph.topology import Topology

_PLAIN = (str, bytes, int, float, bool, type(None))
_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What feeds a store or a repartition topic, and what fills it. ``functions``: a digest of the code on the way."""

    topics: tuple[str, ...]
    keyed_by: tuple[str, ...]
    filled_by: tuple[str, ...]
    functions: str

    @property
    def structure(self) -> tuple[tuple[str, ...], ...]:
        """All but the code."""
        return self.topics, self.keyed_by, self.filled_by

    def __str__(self) -> str:
        way = f", keyed by {', '.join(self.keyed_by)}" if self.keyed_by else ""
        return f"{'/'.join(self.filled_by) or 'repartition'} of {', '.join(self.topics) or 'nothing'}{way}"


def origins(topology: Topology) -> dict[str, Origin]:
    """Of every store and every repartition topic, by name."""
    ways = _Ways(topology)
    found = {topic: ways.of(writers, ()) for topic, writers in ways.writers.items()}
    for subtopology in topology.subtopologies:
        for spec in subtopology.stores:
            users = [node for node in subtopology.nodes if isinstance(node, ProcessorNode) and spec.name in node.stores]
            owners = [node for node in users if getattr(node.operation, "store", None) == spec.name] or users[:1]
            found[spec.name] = ways.of(owners, tuple(sorted({type(node.operation).__name__ for node in owners})))
    return found


class _Ways:
    """The nodes of a topology by name, and who writes which repartition topic."""

    def __init__(self, topology: Topology) -> None:
        self._nodes: dict[str, Node] = {}
        self.writers: dict[str, list[Node]] = {}
        for subtopology in topology.subtopologies:
            for node in subtopology.nodes:
                self._nodes[node.name] = node
                if isinstance(node, SinkNode) and node.repartition and node.topic is not None:
                    self.writers.setdefault(node.topic, []).append(node)

    def of(self, nodes: list[Any], filled_by: tuple[str, ...]) -> Origin:
        topics: set[str] = set()
        keyed_by: set[str] = set()
        functions: set[str] = set()
        for node in self._above(nodes):
            if isinstance(node, SourceNode) and not node.repartition:
                topics.update(node.topics)
                if node.pattern is not None:
                    topics.add(f"pattern {node.pattern}")
            elif isinstance(node, ProcessorNode):
                functions.add(code_of(node.operation))
                if changes_key(node.operation):
                    keyed_by.add(type(node.operation).__name__)
        return Origin(
            topics=tuple(sorted(topics)),
            keyed_by=tuple(sorted(keyed_by)),
            filled_by=filled_by,
            functions=f"{sys.version_info[0]}.{sys.version_info[1]}:{_digest(sorted(functions))}",
        )

    def _above(self, nodes: list[Any]) -> Iterator[Node]:
        """These nodes and all that feeds them."""
        waiting, seen = list(nodes), {node.name for node in nodes}
        while waiting:
            node = waiting.pop()
            yield node
            above: list[Node] = []
            if isinstance(node, SourceNode):
                above = [writer for topic in node.topics if node.repartition for writer in self.writers.get(topic, ())]
            else:
                above = [self._nodes[name] for name in node.parents if name in self._nodes]
            fresh = [each for each in above if each.name not in seen]
            seen.update(each.name for each in fresh)
            waiting += fresh


def code_of(operation: Any) -> str:
    """A digest of an operation's kind and functions."""
    assert is_dataclass(operation)
    values = [getattr(operation, field.name) for field in fields(operation)]
    return _digest([type(operation).__name__, *(_code(value) for value in values if callable(value))])


def _digest(value: Any) -> str:
    return sha256(repr(value).encode()).hexdigest()[:_DIGITS]


def _code(value: Any, depth: int = 0) -> Any:
    """What a function does, as far as its code and what it has captured say it: the same in every process."""
    if isinstance(value, _PLAIN):
        return value
    if depth > 4:
        return type(value).__qualname__
    inner = depth + 1
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell is not None]
        captured = (*(value.__defaults__ or ()), *cells)
        return _code(value.__code__, inner), [_code(each, inner) for each in captured]
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, [_code(each, inner) for each in value.co_consts]
    if isinstance(value, MethodType):
        return _code(value.__func__, inner), type(value.__self__).__qualname__
    if isinstance(value, partial):
        return _code(value.func, inner), [_code(each, inner) for each in value.args]
    if isinstance(value, tuple | list):
        return [_code(each, inner) for each in value]
    return getattr(value, "__qualname__", type(value).__qualname__)
