"""Versions of an application as they are compared: a module, a saved file, or the group that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

import orjson

from streamsrt.assignment.internal_topics import CHANGELOG_SUFFIX
from streamsrt.cli.application import load_described
from streamsrt.cli.described_group import described_group
from streamsrt.cli.told_state import ToldState
from streamsrt.cli.told_topology import told_subtopologies
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST
from streamsrt.config import StreamsConfig
from streamsrt.errors import ConfigError
from streamsrt.membership.state_marks import OriginMark
from streamsrt.runtime.assembly import ready_topology, topology_settings
from streamsrt.runtime.group_facts import Committed, GroupFacts, describe_when_settled
from streamsrt.runtime.topology_version import FILE
from streamsrt.wire import types
from streamsrt.wording import counted
from topology.graph.diff import ClusterTopics, StateChange, TopologyDiff
from topology.graph.misread import KeptVersions, kept_by
from topology.graph.new_state import FoundTopics
from topology.graph.outline import StoreOutline, SubtopologyOutline, TopologyOutline, outline
from topology.graph.topology import Topology
from topology.spec.errors import MissingSerdeError

_FILES = (".json", ".lock")
"""How the names of saved versions end; no module is called so."""

DescribedPart: TypeAlias = types.StreamsGroupDescribeResponse.Subtopology


class TopicFacts(TypedDict):
    """What is known of a topic. ``configs``: own settings; ``in_flight``: records that are written and not read yet, of
    repartition topics, and of source topics that the new version does not read."""

    partitions: int
    records: int
    configs: Mapping[str, str | None]
    in_flight: NotRequired[int]


def ready_application(name: str, config: Mapping[str, Any] | None = None) -> Topology:
    """The topology of an application as it runs with the settings of its module, and ``config`` over them."""
    loaded = load_described(name)
    values = {**loaded.config, **(config or {})}
    named = values.get("application.id", values.get("application_id", "application"))
    settings = StreamsConfig.of(values, application_id=str(named))
    try:
        return ready_topology(loaded.topology, settings)
    except MissingSerdeError:
        # It does not run without, but it can be looked at.
        topology = loaded.topology.configured(topology_settings(settings))
        return topology if settings.topology_epoch is None else replace(topology, epoch=settings.topology_epoch)


def version_of(name: str, config: Mapping[str, Any] | None = None) -> TopologyOutline:
    """The outline of a module or of a saved file. Raises ConfigError."""
    path = Path(name)
    if path.suffix in _FILES and not path.is_file():
        raise ConfigError(
            f"the file {name} is missing: make it with `streamsrt topology describe APPLICATION --json > {name}`"
        )
    if not path.is_file() or path.suffix == ".py":
        return outline(ready_application(name, config))
    try:
        return TopologyOutline.from_json(orjson.loads(path.read_bytes()))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}; make one with `streamsrt topology describe APPLICATION --json`") from None


_NOTHING_TOLD = ToldState({})


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """An application as its cluster knows it: the group, and the topics of it and of its next version.

    ``members``: how many run with which topology epoch. ``strangers``: members of other clients. ``rolled_back_to``: the
    epochs under which members run the group's topology since it was rolled back. ``digests``: the beginnings of those of the
    topologies that they run with the group's epoch, as far as they tell; of a stopped group, of the one that it remembers.
    ``told``: what those say that they keep. ``topics``: by name. ``read``: those of which the group has committed offsets;
    None: not known. ``awaited``: repartition topics without a reader that tasks wait for; if it ``stands_still``, all do.
    """

    name: str
    kind: str
    epoch: int
    state: str
    members: Mapping[int, int]
    digests: frozenset[str]
    subtopologies: Sequence[DescribedPart]
    topics: Mapping[str, TopicFacts]
    told: ToldState = _NOTHING_TOLD
    strangers: str = ""
    rolled_back_to: tuple[int, ...] = ()
    read: frozenset[str] | None = None
    awaited: frozenset[str] = frozenset()
    stands_still: bool = False

    def to_json(self) -> dict[str, Any]:
        """What a program is told of it."""
        return {
            "group": self.name,
            "protocol": self.kind,
            "state": self.state,
            "topology_epoch": self.epoch,
            "members_by_epoch": dict(self.members),
            "topics": [{"topic": name, **about} for name, about in sorted(self.topics.items())],
        }

    def cluster_topics(self) -> ClusterTopics:
        """How many partitions there are, and what new stores find."""
        prefix = f"{self.name}-"
        counts = {name: about["partitions"] for name, about in self.topics.items()}
        internal = {name.removeprefix(prefix): about for name, about in self.topics.items() if name.startswith(prefix)}
        return ClusterTopics(
            counts,
            {name: about["partitions"] for name, about in internal.items()},
            FoundTopics({name: about["records"] for name, about in internal.items()}, self.read),
        )

    def records(self, change: StateChange) -> int | None:
        """How many records the topics hold that a change is about, of repartition topics those that are in flight; None
        where that is not known."""
        internal = change.fate == "orphaned"
        names = [f"{self.name}-{topic}" if internal else topic for topic in change.topics]
        which: Literal["in_flight", "records"] = "in_flight" if change.kind == "repartition topic" else "records"
        found = [self.topics[name][which] for name in names if name in self.topics]
        return sum(found) if found and len(found) == len(names) else None

    def of_topic(self, name: str) -> dict[str, int | None]:
        """Its partitions and records; None where the topic is not there."""
        about = self.topics.get(name)
        if about is None:
            return {"partitions": None, "records": None}
        return {"partitions": about["partitions"], "records": about["records"]}

    def unread_sources(self, found: TopologyDiff) -> Iterator[str]:
        """A sentence for each source topic that is read no more, and holds records that the group has not read."""
        for source in found.sources:
            about = self.topics.get(source.name)
            count = None if about is None else about.get("in_flight")
            if source.change == "gone" and count:
                yield (
                    f"source topic {source.name} is no longer read: {counted(count, 'record')} not read yet. The new "
                    "version never reads them. Stop the producers of this topic and let the old version read it to the end "
                    f"first: `streamsrt groups describe {self.name}` shows how much is left"
                )

    def runs(self, version: TopologyOutline) -> bool:
        """Whether a member runs this version, or none tells what it runs."""
        return not self.digests or any(version.digest.startswith(each) for each in self.digests)

    def check_runs(self, old: TopologyOutline, new: TopologyOutline) -> None:
        """Raises ConfigError if the members tell that they run another version than ``old``, which was given as the running
        one."""
        if self.runs(old):
            return
        told = " and ".join(sorted(self.digests))
        given = old.digest[: max(map(len, self.digests))]
        if self.runs(new):
            what = (
                f"They run the new version: the upgrade has begun. `streamsrt upgrade status --group {self.name}` shows it, "
                f"and a plan without --old what is left"
            )
        else:
            what = (
                "A plan would compare with state that is not there. Leave --old out: running instances tell what they keep. "
                "Or give the version that runs, with its settings: `streamsrt topology describe APPLICATION --config "
                "KEY=VALUE --json` writes its file, with the digest"
            )
        raise ConfigError(
            f"group {self.name!r} does not run the version given with --old, whose digest is {given}: "
            f"{'its instances with topology' if self.members else 'topology'} epoch {self.epoch} "
            f"{'run' if self.members else 'was'} {told}. {what}"
        )

    def seen_by(self, old: TopologyOutline) -> TopologyOutline:
        """A version as the group runs it: with its epoch, and with what its changelogs really keep."""
        stores = tuple(self._kept(store) for store in old.stores)
        return replace(old, epoch=self.epoch, stores=stores)

    def _kept(self, store: StoreOutline) -> StoreOutline:
        about = self.topics.get(f"{self.name}-{store.changelog}")
        retention_ms = None if about is None else about["configs"].get("retention.ms")
        if store.changelog_retention_ms is None or retention_ms is None:
            return store
        return replace(store, changelog_retention_ms=int(retention_ms))

    def outline(self, new: TopologyOutline) -> TopologyOutline:
        """The version that runs, as far as a group and its members tell: topics and names, formats and settings of stores.
        Everything else is as in ``new``.

        Where no member tells what it runs, nobody knows whether it was ``new``, even if the topics are the same. If the
        members of a classic group tell no subtopologies, they run ``new``.
        """
        if self.kind == "classic" and not self.subtopologies:
            return self.seen_by(new)
        is_new, parts_of_new = self.runs(new), {part.id: part for part in new.subtopologies}
        # What another version calls a store is not known: its state's name is taken.
        seen = [store if is_new else replace(store, name=store.kept_as, renamed_from=None) for store in new.stores]
        stores_of_new = {store.name: store for store in seen}
        names_of_new = {store.kept_as: store.name for store in seen}
        parts = [self._part(number, part, names_of_new) for number, part in enumerate(self.subtopologies)]
        if is_new:
            parts = [_known(part, parts_of_new.get(part.id)) for part in parts]
        names = [name for part in parts for name in part.stores]
        repartition = {
            name: new.repartition_topics.get(name) for part in parts for name in part.repartition_source_topics
        }
        unlogged = {store.name: store for store in seen if store.changelog != store.own_changelog}
        known = {name: stores_of_new.get(name) or _unknown(name) for name in names}
        kept = kept_by(new)
        described = TopologyOutline(
            digest=new.digest if is_new and self.digests else "",
            epoch=self.epoch,
            subtopologies=tuple(parts),
            stores=tuple(self.told.store(store, kept) for store in {**unlogged, **known}.values()),
            repartition_topics=repartition,
        )
        return self.seen_by(described)

    def kept(self, before: TopologyOutline, new: TopologyOutline) -> KeptVersions[OriginMark]:
        """What both versions keep, as the members tell it. ``before``: of :meth:`outline`."""
        return self.told.kept(new, kept_by(before))

    def not_compared(self, before: TopologyOutline, new: TopologyOutline, how: str) -> str:
        """What the members don't tell, so that it was not compared; empty if they tell everything. ``how``: the user can
        compare it."""
        if before.digest == new.digest:
            return ""
        return self.told.not_compared(kept_by(before).keys() & kept_by(new).keys(), how)

    def _part(self, number: int, part: DescribedPart, names: Mapping[str, str]) -> SubtopologyOutline:
        """A subtopology as the group describes it. ``names``: those of stores, by the names that their changelogs have."""

        def own(topics: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(name.removeprefix(f"{self.name}-") for name in topics))

        changelogs = own(topic.name for topic in part.state_changelog_topics)
        return SubtopologyOutline(
            id=part.subtopology_id,
            number=number,
            digest="",
            nodes=(),
            stores=tuple(
                names.get(name.removesuffix(CHANGELOG_SUFFIX), name.removesuffix(CHANGELOG_SUFFIX))
                for name in changelogs
                if name.endswith(CHANGELOG_SUFFIX)
            ),
            source_topics=tuple(sorted(part.source_topics)),
            source_topic_patterns=(),
            repartition_source_topics=own(topic.name for topic in part.repartition_source_topics),
            repartition_sink_topics=own(part.repartition_sink_topics),
        )


def _known(part: SubtopologyOutline, new: SubtopologyOutline | None) -> SubtopologyOutline:
    """The new version's own part, where all that is described of the old one fits it."""
    if new is None:
        return part
    described = (part.source_topics, part.repartition_source_topics, part.repartition_sink_topics)
    wanted = (new.source_topics, new.repartition_source_topics, new.repartition_sink_topics)
    fits = all(set(one) == set(other) for one, other in zip(described, wanted, strict=True))
    return new if fits and set(part.stores) <= set(new.stores) else part


def _unknown(name: str) -> StoreOutline:
    return StoreOutline(
        name=name,
        kind="unknown",
        key_serde=None,
        value_serde=None,
        timestamped=True,
        persistent=True,
        changelog=f"{name}{CHANGELOG_SUFFIX}",
        retention_ms=None,
        window_size_ms=None,
        retain_duplicates=False,
    )


def running_group(
    network: NetworkThread, name: str, new: TopologyOutline, old: TopologyOutline | None = None, *, how: str
) -> RunningGroup:
    """The group as it is now. ``old``: the version that is said to run; ``how`` it is said, for messages.

    Raises ConfigError where there is none, or where nobody tells its topology.
    """
    facts = describe_when_settled(network.admin, name)
    epoch = facts.epoch if facts.epoch is not None else max(facts.epochs, default=None)
    # After a rollback, instances go on with the group's topology under the epoch that they had.
    newest = facts.with_epoch(epoch) or [each for back in facts.rolled_back_to for each in facts.with_epoch(back)]
    digests = frozenset(each.digest for each in newest if each.digest is not None)
    if not newest:
        # Nobody runs it, but the bundled broker remembers what it was.
        digests = frozenset({facts.known_digest} - {""})
    parts = _described_parts(network, name) if facts.kind == "streams" else []
    if facts.kind == "classic" and old is None and not any(new.digest.startswith(each) for each in digests):
        parts = told_subtopologies(newest, network.admin.topics())
    if facts.kind == "classic" and not parts:
        old = old or _version_of_members(facts, digests, new, how)
        epoch = old.epoch if epoch is None else epoch
    assert epoch is not None
    repartitions = _repartition_topics(name, parts, old)
    committed = network.admin.committed(name)
    return RunningGroup(
        name=name,
        kind=facts.kind,
        epoch=epoch,
        state=facts.state,
        members=dict(sorted(Counter(each.epoch for each in facts.members if each.epoch is not None).items())),
        digests=digests,
        subtopologies=parts,
        topics=_topics(
            network,
            repartitions | _other_topics(name, parts, (new, old)),
            repartitions | _dropped_sources(parts, old, new),
            committed,
        ),
        told=ToldState.of(newest),
        strangers=facts.strangers,
        rolled_back_to=facts.rolled_back_to,
        read=frozenset(topic for topic, _ in committed),
        awaited=facts.awaited,
        stands_still=facts.stands_still,
    )


def _described_parts(network: NetworkThread, name: str) -> list[DescribedPart]:
    """The subtopologies that a streams group has. Raises ConfigError if it has no topology yet."""
    described = described_group(network, name).topology
    if described is None:
        raise ConfigError(f"group {name!r} has no topology yet: no member has joined it")
    return list(described.subtopologies or ())


def _version_of_members(facts: GroupFacts, digests: frozenset[str], new: TopologyOutline, how: str) -> TopologyOutline:
    """The version that the members of a classic group say they run. Raises ConfigError if it is not ``new``."""
    name = facts.name
    if any(new.digest.startswith(each) for each in digests):
        return new
    if facts.strangers:
        raise ConfigError(
            f"group {name!r} has {facts.strangers}, which tell no topology: give the one that they run{how}, as a program "
            "for streamsrt (MODULE:ATTRIBUTE of a topology or of a faust.App)"
        )
    which = "running version"
    if facts.epochs and facts.epoch is not None and facts.epoch > facts.epochs[0]:
        # It has failed, or was stopped: what it left counts, too.
        which = f"version of topology epoch {facts.epoch}, which no instance runs any more,"
    raise ConfigError(
        f"group {name!r} is a classic group, whose topology is known only to its members, and no running one tells it: "
        f"give the {which}{how}, as its module, a lock file, a file written by `topology describe --json`, or the "
        f"one that an instance leaves in its state directory (STATE_DIR/{name}/{FILE}) and that says which version ran last"
    )


def _repartition_topics(group: str, parts: Iterable[DescribedPart], old: TopologyOutline | None) -> set[str]:
    """The repartition topics that are read now."""
    found = {topic.name for part in parts for topic in part.repartition_source_topics}
    return found | ({f"{group}-{topic}" for topic in old.repartition_topics} if old is not None else set())


def _other_topics(group: str, parts: Iterable[DescribedPart], versions: Iterable[TopologyOutline | None]) -> set[str]:
    """The changelogs and source topics of the group that runs, and all topics of the versions that are known."""
    found: set[str] = set()
    for part in parts:
        found.update(topic.name for topic in part.state_changelog_topics)
        found.update(part.source_topics)
    for version in versions:
        found |= set() if version is None else _topics_of(group, version)
    return found


def _dropped_sources(
    parts: Iterable[DescribedPart], old: TopologyOutline | None, new: TopologyOutline
) -> frozenset[str]:
    """Source topics that are read now, and not by the new version."""
    read = {topic for part in parts for topic in part.source_topics}
    read.update(topic for part in (() if old is None else old.subtopologies) for topic in part.source_topics)
    return frozenset(topic for topic in read if not new.reads_source(topic))


def _topics_of(group: str, version: TopologyOutline) -> set[str]:
    wanted = {topic for each in version.subtopologies for topic in each.source_topics}
    wanted |= {f"{group}-{store.changelog}" for store in version.stores if store.changelog}
    return wanted | {f"{group}-{topic}" for topic in version.repartition_topics}


def _topics(
    network: NetworkThread, names: set[str], repartitions: Collection[str], read: Committed
) -> dict[str, TopicFacts]:
    """What is known of these topics. ``repartitions``: those of which the unread records count; ``read``: offsets."""
    admin = network.admin
    counts = admin.partitions_for(names)
    if not counts:
        return {}
    partitions = [(topic, partition) for topic, count in counts.items() for partition in range(count)]
    first = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    last = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    configs = admin.describe_topic_configs(sorted(counts))
    shown = ("cleanup.policy", "retention.ms", "min.compaction.lag.ms")
    found: dict[str, TopicFacts] = {}
    for topic, count in counts.items():
        known = [(topic, each) for each in range(count) if (topic, each) in last and (topic, each) in first]
        ends = [(last[one].offset, first[one].offset, read.get(one)) for one in known]
        found[topic] = {
            "partitions": count,
            "records": sum(end - begin for end, begin, _ in ends),
            "configs": {key: value for key, value in configs.get(topic, {}).items() if key in shown},
        }
        if topic in repartitions:
            ats = [(end, begin if at is None else max(begin, at.offset)) for end, begin, at in ends]
            found[topic]["in_flight"] = sum(max(0, end - at) for end, at in ats)
    return found
