"""A topology as text and as a drawing.

:func:`describe` returns, character for character, the text of Kafka Streams' ``Topology.describe().toString()``, and its
orders: nodes by the number of paths down from them, then by name; children and parents as in Java's tree set of such nodes,
whose elements still change while it is filled; sets of names in the order of Java's hash set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from graphlib import TopologicalSorter

from topology.graph.java_set_order import TreeSet, hash_order
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, Subtopology


def describe(subtopologies: Sequence[Subtopology]) -> str:
    """The text of ``Topology.describe()``."""
    parts = []
    for subtopology in subtopologies:
        text, is_global = _describe_subtopology(subtopology), subtopology.is_global
        title = f"  Sub-topology: {subtopology.number}"
        parts.append(
            f"{title} for global store (will not generate tasks)\n{text}" if is_global else f"{title}\n{text}\n"
        )
    return "Topologies:\n " + "".join(parts)


def mermaid(subtopologies: Sequence[Subtopology]) -> str:
    """The graph as a Mermaid flowchart: topics, subtopologies with their steps, stores."""
    lines = ["flowchart TD"]
    edges: list[str] = []
    topics: dict[str, str] = {}
    ids: dict[str, str] = {}

    def topic(name: str) -> str:
        return topics.setdefault(name, f"topic{len(topics)}")

    for subtopology in subtopologies:
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
    lines += [f'  {identifier}[/"{_in_entities(name)}"/]' for name, identifier in topics.items()]
    return "\n".join(lines + edges) + "\n"


def dot(subtopologies: Sequence[Subtopology], digest: str) -> str:
    """The graph in Graphviz' language, with ``digest``, the topology's, and those of its subtopologies as tooltips."""
    lines = ["digraph topology {", "  rankdir=TB;", f'  tooltip="{digest}";']
    edges: list[str] = []
    topics: dict[str, None] = {}
    for subtopology in subtopologies:
        number = subtopology.number
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f'    label="Sub-topology {number} ({subtopology.id})"; tooltip="{subtopology.digest}";')
        lines += [f'    "{node.name}" [shape=box];' for node in subtopology.nodes]
        lines += [f'    "store {store.name}" [shape=cylinder, label="{store.name}"];' for store in subtopology.stores]
        lines.append("  }")
        for node in subtopology.nodes:
            edges += _dot_edges(node, topics)
    lines += [f'  "topic {_quoted(name)}" [shape=cds, label="{_quoted(name)}"];' for name in topics]
    return "\n".join([*lines, *edges, "}"]) + "\n"


def _dot_edges(node: Node, topics: dict[str, None]) -> list[str]:
    if isinstance(node, SourceNode):
        read = node.topics if node.pattern is None else (node.pattern,)
        topics.update(dict.fromkeys(read))
        return [f'  "topic {_quoted(name)}" -> "{node.name}";' for name in read]
    edges = [f'  "{parent}" -> "{node.name}";' for parent in node.parents]
    if isinstance(node, SinkNode):
        topic = node.topic or "(chosen by record)"
        topics[topic] = None
        return [*edges, f'  "{node.name}" -> "topic {_quoted(topic)}";']
    return edges + [f'  "{node.name}" -> "store {store}" [dir=none, style=dashed];' for store in node.stores]


def _in_entities(name: str) -> str:
    """A pattern of topics as Mermaid, which has no escapes, shows it."""
    return re.sub(r'[&<>"#\\`]', lambda found: f"#{ord(found[0])};", name)


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


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
        above = {node.name: () if isinstance(node, SourceNode) else node.parents for node in sources_first}
        self._parents_last = [*TopologicalSorter(above).static_order()][::-1]
        self.parents: dict[str, TreeSet] = {name: TreeSet(self.before) for name in by_name}
        self.children: dict[str, TreeSet] = {name: TreeSet(self.before) for name in by_name}
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
        children = "\n      --> " + (", ".join(self.children[node.name].items()) or "none")
        parents = "\n      <-- " + (", ".join(self.parents[node.name].items()) or "none")
        if isinstance(node, SourceNode):
            topics = node.pattern if node.pattern is not None else _names(node.topics)
            return f"Source: {node.name} (topics: {topics}){children}"
        if isinstance(node, ProcessorNode):
            return f"Processor: {node.name} (stores: {_names(node.stores)}){children}{parents}"
        if node.topic is None:
            return f"Sink: {node.name} (extractor class: {_function_name(node)}){parents}"
        return f"Sink: {node.name} (topic: {node.topic}){parents}"

    def _grow(self, name: str, by: int) -> None:
        """Adds to the sizes of a node and of all above it: once for each way that leads down to it, of which there may be
        many."""
        grown = {name: by}
        for each in self._parents_last:
            added = grown.pop(each, 0)
            if not added:
                continue
            self.size[each] += added
            for parent in self.parents[each].items():
                grown[parent] = grown.get(parent, 0) + added
            if not grown:
                break


def _names(names: Iterable[str]) -> str:
    return f"[{', '.join(hash_order(names))}]"


def _function_name(node: SinkNode) -> str:
    return getattr(node.topic_extractor, "__qualname__", type(node.topic_extractor).__qualname__)
