"""A summary of a topology for a JSON file, with everything that the next version is compared with.

``streamsrt topology describe --json`` prints it. If it is kept with a release, the next release can be compared with it
(:mod:`topology.graph.diff`) without the code of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from topology.graph.nodes import StoreSpec, Subtopology
from topology.graph.origins import Origin, Side, function_code, origins
from topology.graph.patterns import matches
from topology.graph.row_windows import RowWindows
from topology.graph.topology import Topology
from topology.spec.codecs import ProgramSerde
from topology.spec.names import CHANGELOG_SUFFIX
from topology.spec.row_versions import Upcast, plain_serde, writing_serde

FORMAT = 1
NOT_WRITTEN = -1
"""Of a number in the outline of a version that did not write it, where None says that there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOutline:
    """A store: what its bytes look like, and where its changelog is. Times in milliseconds.

    The last ones are None in the outline of a version that did not write them.
    """

    name: str
    kind: str
    key_serde: str | None
    value_serde: str | None
    timestamped: bool
    persistent: bool
    changelog: str | None
    retention_ms: int | None
    window_size_ms: int | None
    retain_duplicates: bool
    plain_rows: bool | None = None
    segment_interval_ms: int | None = None
    changelog_retention_ms: int | None = None
    """``retention.ms`` of the changelog."""
    renamed_from: str | None = None
    version: int = 1
    """Of its values."""
    upcasts: Mapping[str, str | None] = field(default_factory=dict)
    """The serdes that values of earlier versions are read by, by version."""
    ttl_ms: int | None = None
    """After which entries expire by the stream time of their task; None where they don't, or NOT_WRITTEN."""
    max_entries: int | None = None
    """How many entries a partition keeps; None: all, or NOT_WRITTEN."""

    @property
    def kept_as(self) -> str:
        """The name that its changelog and its files have."""
        return self.renamed_from or self.name

    @property
    def own_changelog(self) -> str:
        """What its changelog is called, where it has one of its own."""
        return f"{self.kept_as}{CHANGELOG_SUFFIX}"

    @property
    def has_source_topic(self) -> bool:
        """Whether a source topic is its changelog: it has all that the group has read of it and that it still has."""
        return self.changelog not in (None, self.own_changelog)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtopologyOutline:
    """A subtopology by what it owns and what it reads. Internal topics have no application id in front."""

    id: str
    number: int
    digest: str
    nodes: tuple[str, ...]
    stores: tuple[str, ...]
    source_topics: tuple[str, ...]
    source_topic_patterns: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    copartition_groups: tuple[tuple[str, ...], ...] | None = None
    sink_topics: tuple[str, ...] | None = None
    """The topics that it writes and that have names; None in the outline of a version that did not write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSerdes:
    """The names of the serdes of a repartition topic's records; None: the application's default serde, not known here."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyOutline:
    """A topology. ``repartition_topics``: partition count by name, None where the coordinator derives it.

    ``origins``: of stores and repartition topics, by name. ``repartition_serdes``, ``partitioners``: by name; the digests of
    the functions that choose partitions, none where the default partitioner does. Both are without those of the file of an
    earlier release. ``sink_partitioners``: the same of topics that the program writes to (``to``) and reads itself; None in
    such a file, and of a version that running instances tell. ``incomplete``: of which stores and repartition topics such a
    file does not say all that is compared.
    """

    digest: str
    epoch: int
    subtopologies: tuple[SubtopologyOutline, ...]
    stores: tuple[StoreOutline, ...]
    repartition_topics: Mapping[str, int | None]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    repartition_serdes: Mapping[str, TopicSerdes] = field(default_factory=dict)
    partitioners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sink_partitioners: Mapping[str, tuple[str, ...]] | None = None
    incomplete: frozenset[str] = field(default=frozenset(), compare=False)

    def to_json(self) -> dict[str, object]:
        """A value for a JSON file."""
        found = {"format": FORMAT, **asdict(self)}
        del found["incomplete"]
        return found

    def reads_source(self, topic: str) -> bool:
        """Whether it reads a source topic, by its name or by a pattern."""
        parts = self.subtopologies
        return any(topic in each.source_topics or matches(each.source_topic_patterns, topic) for each in parts)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TopologyOutline:
        """The outline of :meth:`to_json`. Raises ValueError for what is not one."""
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            raise ValueError(f"not the outline of a topology in format {FORMAT}")
        try:
            serdes = value.get("repartition_serdes", {})
            return cls(
                digest=value["digest"],
                epoch=_epoch(value["epoch"]),
                subtopologies=tuple(
                    SubtopologyOutline(**{key: _tupled(item) for key, item in row.items()})
                    for row in value["subtopologies"]
                ),
                stores=tuple(StoreOutline(**{**_UNKNOWN, **row}) for row in value["stores"]),
                repartition_topics=dict(value["repartition_topics"]),
                origins={
                    name: Origin(
                        topics=_tupled(row["topics"]),
                        keyed_by=_tupled(row["keyed_by"]),
                        filled_by=_tupled(row["filled_by"]),
                        functions=row["functions"],
                        sides=_sides(row.get("sides", ())),
                        windows=None if row.get("windows") is None else RowWindows(**row["windows"]),
                    )
                    for name, row in value.get("origins", {}).items()
                },
                repartition_serdes={name: TopicSerdes(**row) for name, row in serdes.items()},
                partitioners={name: _tupled(row) for name, row in value.get("partitioners", {}).items()},
                sink_partitioners=None
                if value.get("sink_partitioners") is None
                else {name: _tupled(row) for name, row in value["sink_partitioners"].items()},
                incomplete=frozenset(
                    _incomplete(value["stores"], value["repartition_topics"], value.get("origins", {}), serdes)
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not the outline of a topology: {error}") from None


def outline(topology: Topology) -> TopologyOutline:
    """The outline of a topology."""
    stores = {spec.name: spec for each in topology.subtopologies for spec in each.stores}
    retentions = {
        topic.name: int(configs["retention.ms"])
        for each in topology.subtopologies
        for topic in each.changelog_topics
        if "retention.ms" in (configs := dict(topic.configs))
    }
    return TopologyOutline(
        digest=topology.digest,
        epoch=topology.epoch,
        subtopologies=tuple(_subtopology(each) for each in topology.subtopologies),
        stores=tuple(_store(stores[name], retentions.get(stores[name].changelog_name)) for name in sorted(stores)),
        repartition_topics={
            topic.name: topic.partitions
            for each in topology.subtopologies
            for topic in sorted(each.repartition_source_topics, key=lambda topic: topic.name)
        },
        origins=dict(sorted(origins(topology).items())),
        repartition_serdes=dict(sorted(_repartition_serdes(topology))),
        partitioners=_partitioners(topology, of_repartition=True),
        sink_partitioners=_partitioners(topology, of_repartition=False),
    )


def _partitioners(topology: Topology, *, of_repartition: bool) -> dict[str, tuple[str, ...]]:
    """Those of repartition topics, or of other topics that the program both writes and reads."""
    found: dict[str, set[str]] = {}
    read = {topic for part in topology.subtopologies for topic in part.source_topics}
    for part in topology.subtopologies:
        for sink in part.sinks:
            is_own = sink.repartition if of_repartition else not sink.repartition and sink.topic in read
            if is_own and sink.topic is not None:
                own = found.setdefault(sink.topic, set())
                own.update(() if sink.partitioner is None else (function_code(sink.partitioner),))
    return {topic: tuple(sorted(codes)) for topic, codes in sorted(found.items())}


def _repartition_serdes(topology: Topology) -> Iterator[tuple[str, TopicSerdes]]:
    """Of each repartition topic, those that read it: what writes to it has equal ones."""
    for part in topology.subtopologies:
        for source in part.sources:
            if source.repartition:
                key, value = (None if serde is None else serde.name for serde in (source.key_serde, source.value_serde))
                yield from ((name, TopicSerdes(key=key, value=value)) for name in source.topics)


def _subtopology(subtopology: Subtopology) -> SubtopologyOutline:
    return SubtopologyOutline(
        id=subtopology.id,
        number=subtopology.number,
        digest=subtopology.digest,
        nodes=tuple(node.name for node in subtopology.nodes),
        stores=tuple(sorted(spec.name for spec in subtopology.stores)),
        source_topics=tuple(sorted(subtopology.source_topics)),
        source_topic_patterns=tuple(sorted(subtopology.source_topic_patterns)),
        repartition_source_topics=tuple(sorted(topic.name for topic in subtopology.repartition_source_topics)),
        repartition_sink_topics=tuple(sorted(subtopology.repartition_sink_topics)),
        copartition_groups=subtopology.copartition_groups,
        sink_topics=tuple(sorted(_sink_topics(subtopology))),
    )


def chosen_sinks(topology: Topology) -> list[str]:
    """The ids of the subtopologies that write to topics which their records choose; no outline names these topics."""
    return [part.id for part in topology.subtopologies if any(sink.topic is None for sink in part.sinks)]


def global_tables(topology: Topology) -> list[dict[str, list[str]]]:
    """Topics and stores of the global tables, which no group knows; no outline has them, as they differ in no version."""
    return [
        {
            "topics": [topic for source in part.sources for topic in source.topics],
            "stores": [spec.name for spec in part.stores],
            "nodes": [node.name for node in part.nodes],
        }
        for part in topology.global_subtopologies
    ]


def _sink_topics(subtopology: Subtopology) -> set[str]:
    return {node.topic for node in subtopology.sinks if node.topic is not None and not node.repartition}


def _store(spec: StoreSpec, changelog_retention_ms: int | None) -> StoreOutline:
    value_serde = None if spec.value_serde is None else plain_serde(spec.value_serde)
    return StoreOutline(
        name=spec.name,
        kind=spec.kind,
        key_serde=None if spec.key_serde is None else spec.key_serde.name,
        value_serde=None if value_serde is None else value_serde.name,
        timestamped=spec.timestamped,
        persistent=spec.persistent,
        changelog=spec.changelog_name if spec.logging or spec.source_topic else None,
        retention_ms=spec.retention_ms,
        window_size_ms=spec.window_size_ms,
        retain_duplicates=spec.retain_duplicates,
        plain_rows=spec.plain_rows,
        segment_interval_ms=spec.segment_interval_ms,
        changelog_retention_ms=changelog_retention_ms,
        renamed_from=spec.renamed_from,
        version=spec.version,
        upcasts={str(version): _name_of_read(upcast, value_serde) for version, upcast in spec.upcasts},
        ttl_ms=spec.ttl_ms,
        max_entries=spec.max_entries,
    )


def _name_of_read(upcast: Upcast, serde: ProgramSerde | None) -> str | None:
    if serde is not None:
        return writing_serde(upcast, serde).name
    return None if upcast.serde is None else upcast.serde.name


def _incomplete(
    stores: Iterable[Mapping[str, object]],
    topics: Iterable[str],
    told: Mapping[str, Mapping[str, object]],
    serdes: Mapping[str, object],
) -> Iterator[str]:
    """What the rows of a file leave out: some of its fields, its origin, or the serdes of a topic."""
    for row in stores:
        if row["name"] not in told or not row.keys() >= _STORE_FIELDS:
            yield str(row["name"])
    yield from (name for name in topics if name not in told or name not in serdes)
    yield from (name for name, row in told.items() if not row.keys() >= _ORIGIN_FIELDS)


_UNKNOWN = dict.fromkeys(("ttl_ms", "max_entries"), NOT_WRITTEN)
_STORE_FIELDS = {each.name for each in fields(StoreOutline)}
_ORIGIN_FIELDS = {each.name for each in fields(Origin)}


def _epoch(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"epoch is {value!r}, and must be a whole number from 0 on")
    return value


def _sides(rows: Iterable[Mapping[str, Sequence[str]]]) -> tuple[Side, ...]:
    return tuple(
        Side(topics=tuple(row["topics"]), keyed_by=tuple(row["keyed_by"]), functions=str(row["functions"]))
        for row in rows
    )


def _tupled(value: Any) -> Any:  # of a file: the fields that it fills judge it
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
