"""What feeds each store and repartition topic, for comparing two versions of a program whose names are generated.

1. A generated name ends in a number that counts the steps of the program. Another version may give the same name to
   something else, so such names are compared by what they stand for: the topics that feed them, through repartition topics
   too, the kinds of the steps that change keys on the way, and the kind of step that fills them.
2. If all of that is equal, the functions on the way may still differ. They are compared by their compiled code, unless
   the two versions ran on different versions of Python. Any edit of a function changes the code, so this is only a hint:
   it counts only if two names have exchanged what they stand for.
3. Of a store or internal topic of a join, each side is told by itself (:mod:`topology.graph.join_sides`), whether its name
   is generated or not: it would have the rows of the other side if the sides changed places.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial, singledispatch
from hashlib import sha256
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from uuid import UUID

from topology.graph.join_sides import sides_changed, sides_of_stores, stores_of_topics
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from topology.graph.operations import Function, Operation
from topology.graph.operations.sides import join_side
from topology.graph.operations.traits import branches_of, changes_key, row_windows
from topology.graph.row_windows import RowWindows
from topology.graph.topology import Topology

_PLAIN = (str, bytes, int, float, bool, type(None))
_DIGITS = 16
_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What feeds one side of a join."""

    topics: tuple[str, ...]
    keyed_by: tuple[str, ...]
    functions: str

    def __str__(self) -> str:
        return _came(self.topics, self.keyed_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What feeds a store or a repartition topic, and what fills it. ``functions``: a digest of the code on the way.
    ``sides``: of what a join keeps, the side whose records these are, and the other one. ``windows``: those of the rows;
    None where they have none, and in the outline of a version that did not write them.
    """

    topics: tuple[str, ...]
    keyed_by: tuple[str, ...]
    filled_by: tuple[str, ...]
    functions: str
    sides: tuple[Side, ...] = ()
    windows: RowWindows | None = field(default=None, compare=False)

    @property
    def structure(self) -> tuple[tuple[str, ...], ...]:
        """All but the code."""
        return self.topics, self.keyed_by, self.filled_by

    def has_equal_structure(self, other: Origin) -> bool:
        """Whether all but the code is equal."""
        return self.structure == other.structure

    def is_same_as(self, other: Origin) -> bool:
        """Whether it is the same table, regardless of functions. A source more or less does not make it another one."""
        one, two = set(self.topics), set(other.topics)
        return (one <= two or two <= one) and self.structure[1:] == other.structure[1:]

    def has_other_functions(self, other: Origin) -> bool:
        """Whether the code differs, unless it was compiled by different versions of Python."""
        (python, _, mine), (other_python, _, theirs) = self.functions.partition(":"), other.functions.partition(":")
        return python == other_python and mine != theirs

    def has_sides_changed(self, after: Origin) -> bool:
        """Whether what a join keeps of one side would be taken for what came from the other one."""
        return sides_changed(self.sides, after.sides, _LIKENESSES)

    def __str__(self) -> str:
        return f"{'/'.join(self.filled_by) or 'repartition'} of {_came(self.topics, self.keyed_by)}"


def _came(topics: Sequence[str], keyed_by: Sequence[str]) -> str:
    way = f", keyed by {', '.join(keyed_by)}" if keyed_by else ""
    return f"{', '.join(topics) or 'nothing'}{way}"


def _is_equal(one: Side, other: Side) -> bool:
    return one == other


def _is_keyed_alike(one: Side, other: Side) -> bool:
    return (one.topics, one.keyed_by) == (other.topics, other.keyed_by)


def _is_wider(one: Side, other: Side) -> bool:
    """A topic more or less is the same side."""
    return set(one.topics) <= set(other.topics) or set(other.topics) <= set(one.topics)


_LIKENESSES = (_is_equal, _is_keyed_alike, _is_wider)


def origins(topology: Topology) -> dict[str, Origin]:
    """Of every store and every repartition topic, by name."""
    ways = _Ways(topology)
    found = {topic: ways.of(writers, ()) for topic, writers in ways.writers.items()}
    for subtopology in topology.subtopologies:
        for spec in subtopology.stores:
            users = [node for node in subtopology.nodes if isinstance(node, ProcessorNode) and spec.name in node.stores]
            owners = [node for node in users if getattr(node.operation, "store", None) == spec.name] or users[:1]
            found[spec.name] = ways.of(owners, tuple(sorted({type(node.operation).__name__ for node in owners})))
    sides = {
        store: tuple(ways.side(name) for name in names)
        for store, names in sides_of_stores(topology.subtopologies).items()
    }
    of_topics = stores_of_topics(topology.subtopologies).items()
    sides.update((topic, sides[store]) for topic, store in of_topics if store in sides)
    return {name: replace(origin, sides=sides.get(name, ())) for name, origin in found.items()}


class _Ways:
    """The nodes of a topology by name, and who writes which repartition topic."""

    def __init__(self, topology: Topology) -> None:
        self._nodes: dict[str, Node] = {}
        self.writers: dict[str, list[Node]] = {}
        self._codes: dict[tuple[str, frozenset[str]], str] = {}
        for subtopology in topology.subtopologies:
            for node in subtopology.nodes:
                self._nodes[node.name] = node
                if isinstance(node, SinkNode) and node.repartition and node.topic is not None:
                    self.writers.setdefault(node.topic, []).append(node)

    def of(self, nodes: Sequence[Node], filled_by: tuple[str, ...]) -> Origin:
        topics: set[str] = set()
        keyed_by: set[str] = set()
        functions: set[str] = set()
        above = list(self._above(nodes))
        names = {node.name for node in above}
        for node in above:
            if isinstance(node, SourceNode) and not node.repartition:
                topics.update(node.topics)
                if node.pattern is not None:
                    topics.add(f"pattern {node.pattern}")
            elif isinstance(node, ProcessorNode):
                functions.add(self._code_of(node, names))
                if changes_key(node.operation):
                    keyed_by.add(type(node.operation).__name__)
        return Origin(
            topics=tuple(sorted(topics)),
            keyed_by=tuple(sorted(keyed_by)),
            filled_by=filled_by,
            functions=f"{_python()}:{_digest(sorted(functions))}",
            windows=self._windows(nodes),
        )

    def _windows(self, nodes: Sequence[Node]) -> RowWindows | None:
        """Those of the rows that these nodes make: of the nearest windowed step above."""
        waiting, seen = list(nodes), {node.name for node in nodes}
        while waiting:
            node = waiting.pop(0)
            if isinstance(node, ProcessorNode):
                own = row_windows(node.operation)
                if own is not None:
                    return own
                if changes_key(node.operation):
                    continue
            fresh = [each for each in self._feeding(node) if each.name not in seen]
            seen.update(each.name for each in fresh)
            waiting += fresh
        return None

    def side(self, name: str) -> Side:
        """What feeds the side of a join that has a step or table of this name."""
        origin = self.of(self._inputs(self._nodes[name]), ())
        return Side(topics=origin.topics, keyed_by=origin.keyed_by, functions=origin.functions)

    def _inputs(self, node: Node) -> list[Node]:
        side = join_side(node.operation) if isinstance(node, ProcessorNode) else None
        if not isinstance(node, ProcessorNode) or side is None:
            return [node]
        begins_at = side.begins_at or type(node.operation)
        above = self._above([node])
        first = next(
            each for each in above if isinstance(each, ProcessorNode) and isinstance(each.operation, begins_at)
        )
        return self._feeding(first)

    def _code_of(self, node: ProcessorNode, names: Set[str]) -> str:
        # Once, however many stores are behind it: a function may hold a large table.
        branches = frozenset(branches_of(node.operation)) & names
        if (node.name, branches) not in self._codes:
            self._codes[node.name, branches] = code_of(node.operation, branches)
        return self._codes[node.name, branches]

    def _above(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """These nodes and all that feeds them."""
        waiting, seen = list(nodes), {node.name for node in nodes}
        while waiting:
            node = waiting.pop()
            yield node
            fresh = [each for each in self._feeding(node) if each.name not in seen]
            seen.update(each.name for each in fresh)
            waiting += fresh

    def _feeding(self, node: Node) -> list[Node]:
        if isinstance(node, SourceNode):
            return [writer for topic in node.topics if node.repartition for writer in self.writers.get(topic, ())]
        return [self._nodes[name] for name in node.parents if name in self._nodes]


def code_of(operation: Operation, branches: Set[str]) -> str:
    """A digest of an operation's kind and functions. ``branches``: of a split, those that are on the way."""
    assert is_dataclass(operation)
    values = [getattr(operation, each.name) for each in fields(operation)]
    if branches_of(operation):
        values = [predicate for child, predicate in branches_of(operation).items() if child in branches]
    return _digest([type(operation).__name__, *(_code(value) for value in values if callable(value))])


def function_code(function: Function | None) -> str:
    """A digest of a function's code, behind the version of Python that compiled it: others are not comparable."""
    return f"{_python()}:{_digest(_code(function))}"


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _digest(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()[:_DIGITS]


def _code(value: object, depth: int = 0) -> object:
    """What a function does, as far as its code and what it has captured say it: the same in every process."""
    if isinstance(value, _PLAIN):
        return value
    if depth > _DEPTH:
        return type(value).__qualname__
    return _parts(value, depth + 1)


def _all(values: Iterable[object], depth: int) -> list[object]:
    return [_code(each, depth) for each in values]


@singledispatch
def _parts(value: object, depth: int) -> object:
    """What a value consists of, without addresses and without the order of a set, which differ between processes."""
    if isinstance(value, type):
        return value.__qualname__
    if is_dataclass(value):
        held = [getattr(value, each.name, None) for each in fields(value)]
        return type(value).__qualname__, _all(held, depth)
    wrapped = getattr(value, "__wrapped__", None)
    if isinstance(wrapped, FunctionType):
        return type(value).__qualname__, _code(wrapped, depth)
    return getattr(value, "__qualname__", type(value).__qualname__)


@_parts.register
def _(value: FunctionType, depth: int) -> object:
    captured = (*(value.__defaults__ or ()), *(_held(cell) for cell in value.__closure__ or ()))
    keywords = sorted((value.__kwdefaults__ or {}).items())
    return _code(value.__code__, depth), _all(captured, depth), _all(keywords, depth)


def _held(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        # The variable is not assigned yet, or was deleted, like that of an except clause at its end.
        return _Unbound


class _Unbound:
    """Stands for what a variable holds that has no value."""


@_parts.register
def _(value: CodeType, depth: int) -> object:
    return value.co_code, value.co_names, _all(value.co_consts, depth)


@_parts.register
def _(value: MethodType, depth: int) -> object:
    return _code(value.__func__, depth), _code(value.__self__, depth)


@_parts.register(BuiltinMethodType)
@_parts.register(MethodWrapperType)
def _(value: BuiltinMethodType | MethodWrapperType, depth: int) -> object:
    # A method of a value, as ``wanted.__contains__``; that of a module has the module here.
    owner = getattr(value, "__self__", None)
    return value.__qualname__, owner.__name__ if isinstance(owner, ModuleType) else _code(owner, depth)


@_parts.register
def _(value: partial, depth: int) -> object:  # type: ignore[type-arg]
    return _code(value.func, depth), _all(value.args, depth), _all(sorted(value.keywords.items()), depth)


@_parts.register(itemgetter)
@_parts.register(attrgetter)
@_parts.register(methodcaller)
def _(value: object, depth: int) -> object:
    return _all(value.__reduce__(), depth)


@_parts.register(tuple)
@_parts.register(list)
def _(value: Iterable[object], depth: int) -> object:
    return _all(value, depth)


@_parts.register(set)
@_parts.register(frozenset)
def _(value: Iterable[object], depth: int) -> object:
    # Of a copy: threads that run may change it, as a mapping below.
    return "set", sorted(map(repr, _all(list(value), depth)))


@_parts.register(dict)
@_parts.register(MappingProxyType)
def _(value: Mapping[object, object], depth: int) -> object:
    return "dict", [(_code(key, depth), _code(item, depth)) for key, item in list(value.items())]


@_parts.register
def _(value: Enum, _depth: int) -> object:
    return type(value).__qualname__, value.name


@_parts.register
def _(value: re.Pattern, _depth: int) -> object:  # type: ignore[type-arg]
    return "pattern", value.pattern, value.flags


@_parts.register
def _(value: slice, depth: int) -> object:
    return "slice", _all((value.start, value.stop, value.step), depth)


@_parts.register(range)
@_parts.register(complex)
@_parts.register(Decimal)
@_parts.register(date)
@_parts.register(time)
@_parts.register(timedelta)
@_parts.register(UUID)
def _(value: object, _depth: int) -> object:
    return repr(value)
