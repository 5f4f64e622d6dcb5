"""The graph that a topology is made of: what the passes produce and the runtime executes.

1. A node is a frozen value. It has a name, and knows its parents and its children by name; order is the order in which
   Kafka Streams would have added the nodes, and forwarding is depth first in the order of ``children``.
2. A processor node carries an operation: one frozen value of this module that holds the user's functions and the names
   of the stores that it uses. An operation says *what* is computed; the runtime decides how.
3. A table's node forwards changes. If :attr:`ProcessorNode.sends_old_values` is set, the forwarded value is a pair
   ``(new, old)``; otherwise it is only the new value, None for a deletion.
4. Names of internal topics are without the application id here. :func:`internal_topic_name` adds it as a prefix.
5. A serde that is None is the application's default serde, known when the application starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from topology.graph.operations import Function, Operation
from topology.spec.codecs import AnySerde, ProgramSerde
from topology.spec.errors import CallSite
from topology.spec.names import CHANGELOG_SUFFIX
from topology.spec.row_versions import StoredUpcasts
from topology.spec.stores import KindName

Side: TypeAlias = Literal["key", "value", "other_value"]
SpecKind: TypeAlias = Literal[KindName, "buffer"]
"""What a program may name, and what an operator makes for itself."""


def internal_topic_name(application_id: str, name: str) -> str:
    """The topic of a changelog or repartition ``name`` in the application (Kafka Streams' ``decoratePseudoTopic``)."""
    return f"{application_id}-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic that the group coordinator creates for the application.

    ``name`` has no application id in front unless ``is_source`` (a source topic that serves as changelog).
    ``partitions`` is None where the coordinator derives it from the source topics.
    """

    name: str
    kind: Literal["changelog", "repartition"]
    partitions: int | None = None
    configs: tuple[tuple[str, str], ...] = ()
    is_source: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A state store as the topology needs it. Times in milliseconds."""

    name: str
    kind: SpecKind = "key_value"
    key_serde: AnySerde = None
    value_serde: AnySerde = None
    timestamped: bool = True
    persistent: bool = True
    default_persistence: bool = False
    """The program leaves it to the application's configuration whether the store is in memory."""
    caching: bool = True
    logging: bool = True
    changelog_configs: tuple[tuple[str, str], ...] = ()
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    window_size_ms: int | None = None
    retain_duplicates: bool = False
    max_entries: int | None = None
    """How many entries a key-value store in memory keeps: those used last."""
    ttl_ms: int | None = None
    """How long after its last update, in stream time, an entry of a key-value store is deleted."""
    bare_values: bool = False
    """Processors see values without timestamps, though rows have some."""
    keeps_headers: bool = False
    """Rows may have headers (``dsl.store.format=headers``). The DSL's operators leave them empty; what shows is that the
    deletion of a session has its record's headers in the changelog."""
    plain_rows: bool = False
    """Rows have no room for timestamps, though the values of the store may have some: they are -1 when they are read."""
    supplier: Function | None = field(default=None, repr=False)
    """``(name) -> store`` of the application's own, instead of those that there are; it is restored as one in memory."""
    source_topic: str | None = None
    """The source topic that is this store's changelog, where the topology is optimised."""
    renamed_from: str | None = None
    """The name under which its state was begun."""
    version: int = 1
    """Of its values."""
    upcasts: StoredUpcasts = field(default=(), compare=False, repr=False)
    site: CallSite | None = field(default=None, compare=False, repr=False)

    @property
    def kept_as(self) -> str:
        """The name that its changelog and its files have."""
        return self.renamed_from or self.name

    @property
    def changelog_name(self) -> str:
        return self.source_topic or f"{self.kept_as}{CHANGELOG_SUFFIX}"

    @property
    def has_own_changelog(self) -> bool:
        """Its rows are in a changelog that the application writes, not in a source topic or nowhere."""
        return self.logging and self.source_topic is None


# -------------------------------------------------------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics. ``repartition``: an internal topic, named without the application id."""

    name: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key_serde: AnySerde = None
    value_serde: AnySerde = None
    timestamp_extractor: Function | None = None
    """``(record, partition_time_ms) -> timestamp_ms``; None: the record's own timestamp."""
    offset_reset: str | None = None
    """``earliest``, ``latest``, ``none`` (an error), or ``by_duration:`` and milliseconds before now."""
    repartition: bool = False
    is_global: bool = False
    """Fills a global store: read wholly by every instance."""
    children: tuple[str, ...] = ()
    site: CallSite | None = field(default=None, compare=False, repr=False)
    """The user's line that made this node; it has no part in equality and digests."""

    @property
    def result_children(self) -> tuple[str, ...]:
        """The children that get the records."""
        return self.children


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    """Applies an operation. ``stores``: every store that it may touch, in the order of ``describe()``.

    ``late``: the child that gets what is dropped as too late, and nothing else; the other children get the results.
    """

    name: str
    operation: Operation
    stores: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    sends_old_values: bool = False
    late: str | None = None
    wrapped_by: Function | None = field(default=None, compare=False, repr=False)
    """Makes what runs in place of the operation, around it. It has no part in digests. See
    :mod:`topology.spec.processor_wrapper`."""
    site: CallSite | None = field(default=None, compare=False, repr=False)

    @property
    def result_children(self) -> tuple[str, ...]:
        """The children that get what the operation forwards."""
        return self.children if self.late is None else tuple(name for name in self.children if name != self.late)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes to a topic, or to the topic that ``topic_extractor(key, value, context)`` names for each record.

    ``partitioner(topic, key, value, partitions) -> partition``; None: murmur2 of the key's bytes (a windowed key: of the
    inner key's). ``repartition``: an internal topic, named without the application id.
    """

    name: str
    topic: str | None = None
    topic_extractor: Function | None = None
    key_serde: AnySerde = None
    value_serde: AnySerde = None
    partitioner: Function | None = None
    repartition: bool = False
    parents: tuple[str, ...] = ()
    site: CallSite | None = field(default=None, compare=False, repr=False)


Node: TypeAlias = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A connected part of the topology, which runs as one task per partition.

    ``number`` is the id in Kafka Streams. ``id`` identifies it in the group (see ``subtopology.id``); it does not change
    when code, a stateless step or another subtopology changes. ``digest`` covers the whole structure. Names of internal
    topics are without the application id. ``copartition_groups``: sets of its topics that need equal partition counts.
    """

    number: int
    id: str
    digest: str
    nodes: tuple[Node, ...]
    stores: tuple[StoreSpec, ...] = ()
    source_topics: tuple[str, ...] = ()
    source_topic_patterns: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[tuple[str, ...], ...] = ()
    _by_name: dict[str, Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {node.name: node for node in self.nodes})

    def node(self, name: str) -> Node:
        """The node of that name. Raises KeyError."""
        return self._by_name[name]

    @property
    def internal_topics(self) -> tuple[InternalTopic, ...]:
        """Those that it reads or restores from, and that are the application's own."""
        changelogs = (topic for topic in self.changelog_topics if not topic.is_source)
        return (*self.repartition_source_topics, *changelogs)

    @property
    def is_global(self) -> bool:
        """Whether it fills global stores."""
        return any(source.is_global for source in self.sources)

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSerde:
    """A serde of a node or store that the program does not name, and what is known about it.

    ``changed_by``: the operator that changed the type, if one did. ``assumed``: the serde from before that.
    ``wrap``: makes what is needed, e.g. a serde of windows, of the serde in question.
    """

    owner: str
    of_store: bool
    side: Side
    changed_by: str | None = None
    assumed: AnySerde = None
    wrap: Callable[[ProgramSerde], ProgramSerde] | None = None
    site: CallSite | None = None


def internal_topic_names(application_id: str, subtopologies: Iterable[Subtopology]) -> frozenset[str]:
    """The full names of an application's changelogs and repartition topics, whether or not they exist."""
    return frozenset(
        internal_topic_name(application_id, topic.name) for each in subtopologies for topic in each.internal_topics
    )
