"""From the steps of a plan to a topology, in passes: each takes an unfinished topology and returns a fuller one.

1. Names were assigned and repartition steps inserted when the operators were called. The passes do not rename.
2. Nodes are laid out in the order of their steps, parents first; a child's place among its siblings is its place in that
   order. This is the order of forwarding, of ``describe()`` and of the subtopologies' numbers.
3. A subtopology consists of nodes that are connected by parents and shared stores. Topics do not connect nodes.
4. The first pass that can detect a mistake raises it, with the line of the program that caused it.

Source: InternalStreamsBuilder, InternalTopologyBuilder and CopartitionedTopicsEnforcer of Kafka Streams.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace

from topology.build.layout import Layout, children_of, in_order
from topology.build.optimizer import merge_repartitions, optimizations, reuse_source_topics, single_store_self_joins
from topology.build.plan import OperatorStep, Plan, RepartitionStep, SourceStep, Step, StreamJoinStep
from topology.build.processor_wrapper import wrap_processors
from topology.build.unfinished import UnfinishedTopology
from topology.graph.identity import subtopology_digest, subtopology_id, topology_digest
from topology.graph.internal_topics import (
    changelog_topics,
    repartition_topic,
)
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, Subtopology
from topology.graph.operations.sides import joins_null_keys
from topology.graph.operations.traits import ResultsPerRecord, traits_of
from topology.graph.origins import function_code
from topology.graph.topology import Topology
from topology.spec.codecs import AnySerde, ProgramSerde
from topology.spec.errors import (
    CallSite,
    CopartitionError,
    CycleError,
    NameInUseError,
    TopicInUseError,
    TopologyError,
    UnknownStoreError,
)
from topology.spec.names import REPARTITION_SUFFIX, is_generated
from topology.spec.processor_wrapper import PROCESSOR_WRAPPER_KEY

EXPLICIT_NAMES_KEY = "ensure.explicit.internal.resource.naming"


def build(plan: Plan, config: Mapping[str, object] | None, epoch: int) -> Topology:
    """The topology of a plan. Raises TopologyError."""
    if epoch < 0:
        raise TopologyError(f"a topology epoch must be 0 or greater, not {epoch}")
    unfinished = UnfinishedTopology(plan=plan, config=config or {})
    for run in PASSES:
        unfinished = run(unfinished)
    topology = Topology(
        subtopologies=unfinished.subtopologies,
        global_subtopologies=unfinished.global_subtopologies,
        digest=topology_digest((*unfinished.subtopologies, *unfinished.global_subtopologies)),
        epoch=epoch,
        open_serdes=unfinished.open_serdes,
        is_wrapped=unfinished.config.get(PROCESSOR_WRAPPER_KEY) is not None,
    )
    return topology if config is None else topology.configured(config)


# -------------------------------------------------------------------------------------------------------------- passes


def check_config(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Refuses settings that there are not."""
    optimizations(unfinished.config)
    return unfinished


def merge_sources(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Streams of the same topics, or of the same pattern, read them once: the first one's source serves all."""
    kept: list[Step] = []
    first: dict[tuple[tuple[str, ...], str | None], SourceStep] = {}
    of_topic: dict[str, SourceStep] = {}
    merged: dict[str, str] = {}
    for step in sorted(unfinished.plan.steps, key=lambda step: step.order):
        if type(step) is not SourceStep or not step.is_shared:
            kept.append(step)
            continue
        main = first.setdefault((tuple(sorted(step.topics)), step.pattern), step)
        if main is not step:
            _check_read_alike(main, step)
            merged[step.name] = main.name
            continue
        kept.append(step)
        for topic in step.topics:
            other = of_topic.setdefault(topic, step)
            if other is not step:
                raise TopicInUseError(
                    f"topic {topic!r} is read here among {list(step.topics)} and at {other.site} among "
                    f"{list(other.topics)}: read the same topics at both places, or each topic in one place",
                    step.site,
                )
    return replace(unfinished, steps=tuple(kept), merged=merged)


def keep_null_keys(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Records without a key go through a repartition topic where a left or outer join of a stream follows, however far
    below.
    """
    by_name = {step.name: step for step in unfinished.steps}
    waiting = [step for step in unfinished.steps if _joins_null_keys(step)]
    found = set(waiting)
    while waiting:
        for parent in waiting.pop().parents:
            step = by_name[unfinished.merged.get(parent.name, parent.name)]
            if step not in found:
                found.add(step)
                waiting.append(step)
    for step in found:
        if isinstance(step, RepartitionStep):
            step.keeps_null_keys = True
    return unfinished


def lay_out(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Makes the nodes of each step, parents before children."""
    layout = Layout(unfinished.merged)
    for step in in_order(unfinished.steps, unfinished.merged):
        layout.add(step)
    return replace(
        unfinished,
        nodes=layout.finished(),
        stores=layout.stores,
        repartitions=layout.repartitions,
        open_serdes=tuple(layout.open_serdes),
    )


def check_names(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """No two nodes have one name."""
    seen: dict[str, Node] = {}
    for node in unfinished.nodes:
        other = seen.setdefault(node.name, node)
        if other is not node:
            raise NameInUseError(
                f"the name {node.name!r} is taken by the step at {other.site}: choose another", node.site
            )
    return unfinished


def check_topics(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Each topic is read by one source."""
    sources = [node for node in unfinished.nodes if isinstance(node, SourceNode)]
    if not sources:
        raise TopologyError("the topology reads no topic: begin it with stream() or table()")
    patterns: list[tuple[str, SourceNode]] = []
    topics: dict[str, SourceNode] = {}
    for node in sources:
        for topic in node.topics:
            if topic in topics:
                raise TopicInUseError(
                    f"topic {topic!r} is read already at {topics[topic].site}: a topic has one source. Use that stream or "
                    "table here too",
                    node.site,
                )
            topics[topic] = node
        if node.pattern is not None:
            patterns.append((node.pattern, node))
    for pattern, node in patterns:
        for topic, other in topics.items():
            if re.fullmatch(pattern, topic):
                raise TopicInUseError(
                    f"the pattern {pattern!r} matches topic {topic!r}, read at {other.site}", node.site
                )
    return unfinished


def connect_stores(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Every store that a node uses is there."""
    global_sources = {node.name for node in unfinished.nodes if isinstance(node, SourceNode) and node.is_global}
    global_stores = {
        store: node.name
        for node in unfinished.nodes
        if isinstance(node, ProcessorNode) and global_sources.intersection(node.parents)
        for store in node.stores
    }
    for node in unfinished.nodes:
        for store in node.stores if isinstance(node, ProcessorNode) else ():
            if store not in unfinished.stores:
                known = ", ".join(sorted(unfinished.stores)) or "none"
                raise UnknownStoreError(
                    f"there is no store {store!r}: add it with add_state_store(Store({store!r}, ...)) or name it in an "
                    f"operator's store=. Stores of this topology: {known}",
                    node.site,
                )
            filled_by = global_stores.get(store)
            if filled_by is not None and filled_by != node.name:
                raise TopologyError(
                    f"store {store!r} is global: every processor may read it, so leave it out of stores=", node.site
                )
    return unfinished


def check_feedback(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Refuses a circle in which every record that is read is written again to where it is read."""
    topics_after: dict[str, set[str]] = defaultdict(set)
    site_of: dict[str, CallSite | None] = {}
    children = children_of(unfinished.nodes)
    by_name = {node.name: node for node in unfinished.nodes}
    for source in unfinished.nodes:
        if not isinstance(source, SourceNode):
            continue
        for sink in _always_reached(source, by_name, children):
            for topic in source.topics:
                topics_after[topic].add(sink.topic or "")
            site_of[sink.topic or ""] = sink.site
    for topic in sorted(topics_after):
        circle = _circle(topic, topics_after)
        if circle:
            raise CycleError(
                f"records go in a circle, {' -> '.join(circle)}: every record that is read is written again, forever. "
                "Write to another topic, or filter",
                site_of.get(circle[-1]),
            )
    return unfinished


def copartition(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Finds the topics that need equal partition counts, and refuses counts that the program makes unequal.

    A repartition topic without a count gets the others' from the coordinator. A pattern stands for the topics that it
    matches.
    """
    topics_of = {
        node.name: node.topics if node.pattern is None else (node.pattern,)
        for node in unfinished.nodes
        if isinstance(node, SourceNode)
    }
    groups = _Groups()
    for sources, site in unfinished.plan.copartitioned:
        topics = sorted({topic for source in sources for topic in topics_of[unfinished.merged.get(source, source)]})
        for topic in topics:
            groups.unite(topics[0], topic)
        _check_partitions(groups.members(topics[0]) if topics else [], unfinished.repartitions, site)
    together = [tuple(sorted(group)) for group in groups.all()]
    return replace(unfinished, copartition_groups=tuple(sorted(together)))


def cut(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Cuts the graph into subtopologies, numbered by their first source."""
    groups = _Groups()
    user_of_store: dict[str, str] = {}
    for node in unfinished.nodes:
        groups.unite(node.name, node.name)
        for parent in () if isinstance(node, SourceNode) else node.parents:
            groups.unite(parent, node.name)
        for store in node.stores if isinstance(node, ProcessorNode) else ():
            groups.unite(user_of_store.setdefault(store, node.name), node.name)
    members: dict[str, list[Node]] = {}
    sources_first = sorted(unfinished.nodes, key=lambda node: not isinstance(node, SourceNode))
    for node in sources_first:
        members.setdefault(groups.root(node.name), [])
    for node in unfinished.nodes:
        members[groups.root(node.name)].append(node)
    parts = [_subtopology(unfinished, number, tuple(nodes)) for number, nodes in enumerate(members.values())]
    with_tasks = tuple(part for part in parts if not part.is_global)
    return replace(
        unfinished,
        subtopologies=with_tasks,
        global_subtopologies=tuple(part for part in parts if part not in with_tasks),
    )


def check_identity(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """No two subtopologies have one id."""
    seen: dict[str, Subtopology] = {}
    for subtopology in unfinished.subtopologies:
        other = seen.setdefault(subtopology.id, subtopology)
        if other is not subtopology:
            raise NameInUseError(
                f"subtopologies {other.number} and {subtopology.number} have the same id {subtopology.id}, by chance: name "
                "a store or repartition topic of one of them differently"
            )
    return unfinished


def check_explicit_names(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Where the application asks for it: stores and internal topics have names that the program gave."""
    if str(unfinished.config.get(EXPLICIT_NAMES_KEY, "false")).lower() != "true":
        return unfinished
    sites = {node.topic: node.site for node in unfinished.nodes if isinstance(node, SinkNode)}
    generated = [
        f"store {name} ({unfinished.stores[name].site})" for name in sorted(unfinished.stores) if is_generated(name)
    ]
    for topic in sorted(unfinished.repartitions):
        if is_generated(topic.removesuffix(REPARTITION_SUFFIX)):
            generated.append(f"repartition topic {topic} ({sites.get(topic)})")
    if generated:
        raise TopologyError(
            f"{EXPLICIT_NAMES_KEY} is set, but these have no name of their own: {', '.join(generated)}. Name them with "
            "store= and name="
        )
    return unfinished


PASSES: tuple[Callable[[UnfinishedTopology], UnfinishedTopology], ...] = (
    check_config,
    merge_sources,
    reuse_source_topics,
    merge_repartitions,
    single_store_self_joins,
    keep_null_keys,
    lay_out,
    wrap_processors,
    check_names,
    check_topics,
    connect_stores,
    check_feedback,
    copartition,
    cut,
    check_identity,
    check_explicit_names,
)


# ------------------------------------------------------------------------------------------------------------- details


def _joins_null_keys(step: Step) -> bool:
    if isinstance(step, StreamJoinStep):
        return joins_null_keys(step.this_operation) or joins_null_keys(step.other_operation)
    return isinstance(step, OperatorStep) and joins_null_keys(step.operation)


def _check_read_alike(main: SourceStep, other: SourceStep) -> None:
    """Topics are read once, as the first stream says. Another one may leave serdes and extractor away: what it gives would
    have no effect where that is something else."""
    extractor, key, value = other.timestamp_extractor, other.key.serde, other.value.serde
    options = (
        ("offset_reset", main.offset_reset, other.offset_reset, main.offset_reset == other.offset_reset),
        ("key", main.key.serde, key, key is None or _has_name_of(main.key.serde, key)),
        ("value", main.value.serde, value, value is None or _has_name_of(main.value.serde, value)),
        (
            "timestamp_extractor",
            main.timestamp_extractor,
            extractor,
            extractor is None or function_code(main.timestamp_extractor) == function_code(extractor),
        ),
    )
    for option, there, here, is_same in options:
        if not is_same:
            raise TopicInUseError(
                f"{option} is {here!r} here and {there!r} at {main.site}, for the same topics: give one",
                other.site,
            )


def _has_name_of(one: AnySerde, other: ProgramSerde) -> bool:
    """Whether two serdes are the same as far as their names say it: of a model, each call makes another object."""
    return one is not None and one.name == other.name


class _Groups:
    """Disjoint sets of names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        parent = self._parent.setdefault(name, name)
        while parent != self._parent[parent]:
            parent = self._parent[parent]
        self._parent[name] = parent
        return parent

    def unite(self, one: str, other: str) -> None:
        self._parent[self.root(other)] = self.root(one)

    def members(self, name: str) -> list[str]:
        root = self.root(name)
        return [other for other in self._parent if self.root(other) == root]

    def all(self) -> list[list[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for name in list(self._parent):
            groups[self.root(name)].append(name)
        return list(groups.values())


_ALWAYS = {ResultsPerRecord.PASSED, ResultsPerRecord.ONE}
"""Results of a step that forwards each record that comes."""


def _always_reached(
    source: SourceNode, by_name: Mapping[str, Node], children: Mapping[str, list[str]]
) -> list[SinkNode]:
    """The sinks with a fixed topic to which every record of the source comes."""
    sinks: list[SinkNode] = []
    pending = list(children.get(source.name, ()))
    seen = set(pending)
    while pending:
        node = by_name[pending.pop()]
        if isinstance(node, SinkNode):
            if node.topic is not None:
                sinks.append(node)
        elif isinstance(node, ProcessorNode) and traits_of(node.operation).results in _ALWAYS:
            for child in children.get(node.name, ()):
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
    return sinks


def _circle(start: str, after: Mapping[str, set[str]]) -> list[str]:
    """A way from ``start`` back to it, or nothing."""
    paths = [[start]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        for topic in sorted(after.get(path[-1], ())):
            if topic == start:
                return [*path, start]
            if topic not in seen:
                seen.add(topic)
                paths.append([*path, topic])
    return []


def _check_partitions(topics: list[str], repartitions: Mapping[str, int | None], site: CallSite) -> None:
    given = {topic: repartitions[topic] for topic in sorted(topics) if repartitions.get(topic) is not None}
    if len(set(given.values())) > 1:
        counts = ", ".join(f"{topic} {partitions}" for topic, partitions in given.items())
        raise CopartitionError(
            f"joined topics need equal partition counts, but repartition() gives: {counts}. Give all the same partitions=",
            site,
        )


def _subtopology(unfinished: UnfinishedTopology, number: int, nodes: tuple[Node, ...]) -> Subtopology:
    sources = [node for node in nodes if isinstance(node, SourceNode)]
    used = dict.fromkeys(store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores)
    stores = tuple(unfinished.stores[name] for name in used)
    topics = tuple(sorted(topic for node in sources if not node.repartition for topic in node.topics))
    patterns = tuple(sorted(node.pattern for node in sources if node.pattern is not None))
    repartitions = tuple(
        repartition_topic(topic, unfinished.repartitions[topic], {})
        for topic in sorted(topic for node in sources if node.repartition for topic in node.topics)
    )
    sinks = {node.topic for node in nodes if isinstance(node, SinkNode) and node.repartition and node.topic is not None}
    read = {*topics, *patterns, *(topic.name for topic in repartitions)}
    groups = tuple(group for group in unfinished.copartition_groups if read.intersection(group))
    changelogs = changelog_topics(stores, {})
    return Subtopology(
        number=number,
        id=subtopology_id(
            (topic.name for topic in changelogs), (topic.name for topic in repartitions), topics, patterns
        ),
        digest=subtopology_digest(nodes, stores, repartitions, groups),
        nodes=nodes,
        stores=stores,
        source_topics=topics,
        source_topic_patterns=patterns,
        repartition_source_topics=repartitions,
        repartition_sink_topics=tuple(sorted(sinks)),
        changelog_topics=changelogs,
        copartition_groups=groups,
    )
