"""A topology as text and as a drawing.

:func:`describe` gives, character for character, what ``Topology.describe().toString()`` of Kafka Streams gives. Its orders
come from there: nodes by the number of ways down from them, then by name; children and parents in Java's tree set of such
nodes, whose elements still grow while it is filled; sets of names in the order of Java's hash set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, Subtopology, Topology


def describe(topology: Topology) -> str:
    """The text of ``Topology.describe()``."""
    parts = [_describe_subtopology(subtopology) for subtopology in topology.subtopologies]
    return "Topologies:\n " + "".join(f"  Sub-topology: {i}\n{text}\n" for i, text in enumerate(parts))


def mermaid(topology: Topology) -> str:
    """The graph as a Mermaid flowchart: topics, subtopologies with their steps, stores."""
    lines = ["flowchart TD"]
    edges: list[str] = []
    topics: dict[str, str] = {}
    ids: dict[str, str] = {}

    def topic(name: str) -> str:
        return topics.setdefault(name, f"topic{len(topics)}")

    for subtopology in topology.subtopologies:
        lines.append(f'  subgraph sub{subtopology.number}["Sub-topology {subtopology.number} ({subtopology.id})"]')
        for node in subtopology.nodes:
            ids[node.name] = f"n{len(ids)}"
            lines.append(f'    {ids[node.name]}["{node.name}"]')
        for index, store in enumerate(subtopology.stores):
            ids[f"store {store.name}"] = f"s{subtopology.number}_{index}"
            lines.append(f'    {ids[f"store {store.name}"]}[("{store.name}")]')
        lines.append("  end")
        for node in subtopology.nodes:
            edges += _edges(node, ids, topic)
    lines += [f'  {identifier}[/"{name}"/]' for name, identifier in topics.items()]
    return "\n".join(lines + edges) + "\n"


def _edges(node: Node, ids: dict[str, str], topic: Callable[[str], str]) -> list[str]:
    own = ids[node.name]
    if isinstance(node, SourceNode):
        read = [topic(name) for name in (node.topics if node.pattern is None else (node.pattern,))]
        return [f"  {name} --> {own}" for name in read]
    edges = [f"  {ids[parent]} --> {own}" for parent in node.parents]
    if isinstance(node, SinkNode):
        return [*edges, f"  {own} --> {topic(node.topic or '(chosen by record)')}"]
    return edges + [f"  {own} -.- {ids[f'store {store}']}" for store in node.stores]


def _describe_subtopology(subtopology: Subtopology) -> str:
    nodes = _Sized(subtopology)
    return "".join(f"    {nodes.text(node)}\n" for node in nodes.sorted_nodes())


class _Sized:
    """Nodes with the sizes that order them: how many ways lead down from a node, itself included."""

    def __init__(self, subtopology: Subtopology) -> None:
        sources_first = sorted(subtopology.nodes, key=lambda node: not isinstance(node, SourceNode))
        by_name = {node.name: node for node in sources_first}
        self.nodes = [by_name[name] for name in hash_order(by_name)]
        self.size = dict.fromkeys(by_name, 1)
        self.parents: dict[str, _TreeSet] = {name: _TreeSet(self) for name in by_name}
        self.children: dict[str, _TreeSet] = {name: _TreeSet(self) for name in by_name}
        for node in self.nodes:
            for parent in () if isinstance(node, SourceNode) else node.parents:
                self.parents[node.name].add(parent)
                self.children[parent].add(node.name)
                self._grow(parent, self.size[node.name])

    def before(self, one: str, other: str) -> bool:
        return (-self.size[one], one) < (-self.size[other], other)

    def sorted_nodes(self) -> list[Node]:
        return sorted(self.nodes, key=lambda node: (-self.size[node.name], node.name))

    def text(self, node: Node) -> str:
        children = f"\n      --> {self.children[node.name].text()}"
        parents = f"\n      <-- {self.parents[node.name].text()}"
        if isinstance(node, SourceNode):
            topics = node.pattern if node.pattern is not None else _names(node.topics)
            return f"Source: {node.name} (topics: {topics}){children}"
        if isinstance(node, ProcessorNode):
            return f"Processor: {node.name} (stores: {_names(node.stores)}){children}{parents}"
        if node.topic is None:
            return f"Sink: {node.name} (extractor class: {_function_name(node)}){parents}"
        return f"Sink: {node.name} (topic: {node.topic}){parents}"

    def _grow(self, name: str, by: int) -> None:
        self.size[name] += by
        for parent in self.parents[name].items():
            self._grow(parent, by)


class _TreeSet:
    """A search tree of names whose order may change while it is filled; it is never balanced again.

    Java's is a red-black tree, which differs only where three children or more of one node were added and then grew.
    """

    def __init__(self, nodes: _Sized) -> None:
        self._nodes = nodes
        self._tree: list[list[int | str | None]] = []

    def add(self, name: str) -> None:
        at = 0 if self._tree else None
        side = 0
        previous = None
        while at is not None:
            other = str(self._tree[at][0])
            if other == name:
                return
            previous, side = at, 1 if self._nodes.before(name, other) else 2
            below = self._tree[at][side]
            at = below if isinstance(below, int) else None
        if previous is not None:
            self._tree[previous][side] = len(self._tree)
        self._tree.append([name, None, None])

    def items(self) -> list[str]:
        return self._walk(0) if self._tree else []

    def text(self) -> str:
        return ", ".join(self.items()) or "none"

    def _walk(self, at: int) -> list[str]:
        name, left, right = self._tree[at]
        before = self._walk(left) if isinstance(left, int) else []
        after = self._walk(right) if isinstance(right, int) else []
        return [*before, str(name), *after]


def hash_order(names: Iterable[str]) -> list[str]:
    """The names in the order in which a HashSet<String> of Java gives them, filled one by one."""
    distinct = list(dict.fromkeys(names))
    capacity = 16
    while len(distinct) > capacity * 3 // 4:
        capacity *= 2
    return sorted(distinct, key=lambda name: _spread_hash(name) & (capacity - 1))


def _spread_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _names(names: Iterable[str]) -> str:
    return f"[{', '.join(hash_order(names))}]"


def _function_name(node: SinkNode) -> str:
    return getattr(node.topic_extractor, "__qualname__", type(node.topic_extractor).__qualname__)
