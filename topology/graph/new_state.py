"""What a store begins with that the old version does not have, and how to complete it.

1. If its changelog has no records, it starts empty: it is *rebuilt* from what is read from now on. It lacks what the group
   has read of its topics already. Of a topic that the old version does not read, and of which the group has no offsets, it
   lacks nothing: it is read from its start.
2. If its changelog has records, a version that had the store ran before and was rolled back. The store is *resumed*: it
   continues with these rows. It lacks what other versions have read since. To read its topics again would process twice
   what the rows include, so the changelog is deleted first, unless the rows are the same in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from topology.graph.operations.traits import TRAITS, Rereading
from topology.graph.origins import Origin
from topology.graph.outline import StoreOutline, TopologyOutline
from topology.graph.patterns import matches

PATTERN = "pattern "
"""What stands in front of a pattern in the topics of an origin."""
_STAYS_THE_SAME = frozenset(kind.__name__ for kind, row in TRAITS.items() if row.rereading is not Rereading.AGAIN)
"""Steps whose stores hold the same in the end if all of a topic is read again."""


@dataclass(frozen=True, slots=True)
class FoundTopics:
    """What a cluster has for new stores. ``records``: their number by internal topic, without the application id.
    ``read``: topics of which the group has committed offsets; None: not known."""

    records: Mapping[str, int] = field(default_factory=dict)
    read: frozenset[str] | None = None

    def is_read(self, topic: str) -> bool:
        """Whether the group may have read records of a topic, or of those that match a pattern."""
        if self.read is None:
            return True
        if topic.startswith(PATTERN):
            return any(matches((topic.removeprefix(PATTERN),), each) for each in self.read)
        return topic in self.read

    def rows(self, store: StoreOutline) -> int:
        """How many records its own changelog has."""
        return self.records.get(store.own_changelog, 0) if store.changelog == store.own_changelog else 0


NOTHING_FOUND = FoundTopics()


class NewState(NamedTuple):
    """What becomes of a new store; the fields are those of :class:`topology.graph.diff.StateChange`."""

    fate: Literal["resumed", "rebuilt"]
    reason: str
    cure: str = ""
    topics: tuple[str, ...] = ()
    read_anew: tuple[str, ...] = ()


def new_state(
    store: StoreOutline, why: str | None, old: TopologyOutline, new: TopologyOutline, found: FoundTopics
) -> NewState:
    """What a store of ``new`` begins with. ``why``: it does not continue with what the old version has; None: that does not
    have it."""
    origin = new.origins.get(store.name)
    fed = () if origin is None else origin.topics
    if found.rows(store):
        return NewState("resumed", *_resumed(store, origin, old, new, found))
    reason = why or _why_new(store, old)
    was_read = [topic for topic in fed if found.is_read(topic) or _is_read_by(old, topic)]
    if store.has_source_topic:
        reason = (
            f"new: its changelog is its source topic {store.changelog}, so it also has what the group has read of that, as "
            "far as the topic still has it"
        )
        return NewState("rebuilt", reason, "", fed, fed)
    if origin is None or not was_read:
        return NewState("rebuilt", reason, "", fed, fed)
    unread = tuple(topic for topic in fed if topic not in was_read)
    reason += f" and does not include records of {', '.join(was_read)} that were already read"
    return NewState("rebuilt", reason, _how_to_fill(store.name, was_read, old, new, found), fed, unread)


def _why_new(store: StoreOutline, old: TopologyOutline) -> str:
    """Why there is nothing that a store continues with."""
    if store.renamed_from is not None:
        renamed = next((each for each in old.stores if each.name == store.renamed_from), None)
        first = "" if renamed is None or renamed.renamed_from is None else renamed.renamed_from
        if first:
            return (
                f"{store.renamed_from} was renamed itself, and its state has its first name: use "
                f'renamed_from="{first}". Otherwise it starts empty'
            )
        return f"new: there is no store {store.renamed_from} whose state it could take over, so it starts empty"
    lost = next((each for each in old.stores if each.name == store.name), None)
    if lost is None:
        return "new: it starts empty"
    first = lost.kept_as
    return f'its state has the name {first}: use renamed_from="{first}" as before. Otherwise it starts empty'


def _resumed(
    store: StoreOutline, origin: Origin | None, old: TopologyOutline, new: TopologyOutline, found: FoundTopics
) -> tuple[str, str]:
    """What a store has whose changelog has records, and how to complete it."""
    fed = () if origin is None else origin.topics
    reason = (
        f"not empty: its changelog {store.changelog} has {found.rows(store):,} records of an earlier run of a version with "
        "this store, and it continues with them"
    )
    missing = [topic for topic in fed if _is_read_by(old, topic)]
    unread = [topic for topic in fed if topic not in missing and not found.is_read(topic)]
    kept = [topic for topic in fed if topic not in unread and topic not in missing]
    if missing:
        reason += f". It does not include records of {', '.join(missing)} that other versions have read since"
    if kept:
        reason += (
            f". Of {', '.join(kept)} it misses nothing and gets nothing twice, if no other version has read it since"
        )
    is_the_same = origin is not None and _STAYS_THE_SAME.issuperset(origin.filled_by)
    if is_the_same and missing:
        return reason, _how_to_fill(store.name, missing, old, new, found)
    if not is_the_same and (missing or unread):
        return reason, "; ".join(_instead_of_reading_again(store, missing, unread))
    return reason, "" if is_the_same or origin is None else "don't reset the offsets: it would process records twice"


def _instead_of_reading_again(store: StoreOutline, missing: list[str], unread: list[str]) -> Iterator[str]:
    """How to complete a store that counts what it has already if it reads its topics again."""
    if unread:
        yield (
            f"the group has no offsets of {', '.join(unread)}, so the topic is read from the start (auto.offset.reset) and "
            "what the store includes already is processed twice"
        )
    begin = "" if unread else f"if what is missing of {', '.join(missing)} matters, begin anew: "
    yield (
        f"{begin}delete the changelog (streamsrt topics delete APP-{store.changelog} --execute) and the local state of "
        "stopped instances that had the store (streamsrt state clean -a APP --execute), and make the plan again. Don't "
        "reset the offsets before that: the store would process records twice"
    )


def _is_read_by(old: TopologyOutline, topic: str) -> bool:
    """Whether a version may read a topic, or what matches a pattern."""
    if not topic.startswith(PATTERN):
        return old.reads_source(topic)
    pattern = topic.removeprefix(PATTERN)
    return any(
        pattern in part.source_topic_patterns or any(matches((pattern,), each) for each in part.source_topics)
        for part in old.subtopologies
    )


def _how_to_fill(
    name: str, topics: Iterable[str], old: TopologyOutline, new: TopologyOutline, found: FoundTopics
) -> str:
    """How to fill a store with what the group has read of its topics."""
    known = {store.kept_as for store in old.stores}
    kept = {store.name for store in new.stores if store.kept_as in known or found.rows(store)}
    counted = sorted(
        other
        for other, each in new.origins.items()
        if other in kept
        and other != name
        and not _STAYS_THE_SAME.issuperset(each.filled_by)
        and set(each.topics) & set(topics)
    )
    if not counted:
        options = " ".join(f"--topic {topic}" for topic in topics if not topic.startswith(PATTERN))
        return (
            "read the topics again before the new version starts: stop all instances, streamsrt groups "
            f"reset-offsets APP {options} --to-earliest --execute (the application writes its results again, too)"
        )
    backfill = "" if _refuses_backfill(new) else "; streamsrt backfill can fill its state"
    return (
        f"don't reset the offsets: {', '.join(counted)} would process the records twice. Instead, run "
        f"the new version beside the old one under another application id{backfill}"
    )


def _refuses_backfill(new: TopologyOutline) -> bool:
    filled = {each for origin in new.origins.values() for each in origin.filled_by}
    return any(each.startswith("Subscription") for each in filled)
