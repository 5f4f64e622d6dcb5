"""Whether a version would misread what another one keeps: one comparison, for outlines and for what members tell.

1. What is compared of a store or repartition topic is a :class:`Kept`, by the name that its topic has. Its origin is known
   in full (:class:`topology.graph.origins.Origin`), or as a short mark that a member of the group tells. Both are compared
   by the same rules, so a comparison of two programs and a running member don't disagree.
2. A mark may take two things for equal that are not. It never takes equal things for different ones.
3. What a version does not say is not compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from topology.graph.join_sides import changed_places
from topology.graph.origins import Origin
from topology.graph.outline import StoreOutline, TopicSerdes, TopologyOutline
from topology.graph.row_windows import RowWindows, misread_meaning
from topology.spec.names import REPARTITION_SUFFIX, is_generated

FORMAT = ("kind", "key_serde", "value_serde", "timestamped", "plain_rows", "window_size_ms", "retain_duplicates")
"""What the bytes of a store's rows depend on."""

KEY_SERDE, VALUE_SERDE, PLAIN_ROWS = "key_serde", "value_serde", "plain_rows"
PARTITIONER, OWN_PARTITIONER, DEFAULT_PARTITIONER = "partitioner", "one of the program", "the default one"

Why: TypeAlias = Literal["version", "upcast", "format", "windows", "sides", "swapped", "another"]


class ComparableOrigin(Protocol):
    """What feeds a store, as far as it can be compared; equal if all of it is."""

    @property
    def filled_by(self) -> Hashable: ...

    def has_equal_structure(self, other: Self) -> bool:
        """Whether all but the code is equal."""
        ...

    def is_same_as(self, other: Self) -> bool:
        """Whether it is the same table, regardless of functions. A source more or less does not make it another one."""
        ...

    def has_other_functions(self, other: Self) -> bool:
        """Whether the code differs, as far as that can be said."""
        ...

    def has_sides_changed(self, after: Self) -> bool:
        """Whether what a join keeps of one side would be taken for what came from the other one."""
        ...


T = TypeVar("T", bound=ComparableOrigin)


class KeptSettings(NamedTuple):
    """What a store is set to, and may change while its rows stay; in milliseconds, None where it has none. ``ttl_ms``
    may be NOT_WRITTEN. ``advance_ms``: of the windows of its rows."""

    persistent: bool
    retention_ms: int | None = None
    segment_interval_ms: int | None = None
    ttl_ms: int | None = None
    advance_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Generic[T]):
    """A store or repartition topic.

    ``format``: by the names of :data:`FORMAT`; of a topic its serdes and who chooses partitions, as far as known. None for
    plain rows: not known. ``upcasts``: value serdes by version, as far as they are known. ``windows``: what those of the
    rows mean; empty: none, or not known. ``settings``: None of a topic, and where they are not known.
    """

    is_generated: bool
    origin: T | None
    format: Mapping[str, Hashable] = field(default_factory=dict)
    version: int = 1
    upcasts: Mapping[int, Hashable] = field(default_factory=dict)
    windows: str = ""
    settings: KeptSettings | None = None

    @property
    def has_rows(self) -> bool:
        """Whether it is known to be a store."""
        return "kind" in self.format

    @property
    def row_windows(self) -> RowWindows | None:
        """The windows of its rows; None: it has none, or they are not known."""
        if not self.windows:
            return None
        return RowWindows(meaning=self.windows, advance_ms=None if self.settings is None else self.settings.advance_ms)


class ComparedState(Protocol):
    """What two versions keep, compared by the names that the topics have."""

    def misread(self, name: str) -> Misread | None:
        """Why the later version would misread what is kept under this name; None if it would not, or nobody can tell."""
        ...

    def row_windows(self, name: str) -> tuple[RowWindows | None, RowWindows | None]:
        """The windows of the rows before and after."""
        ...

    def is_fed_otherwise(self, name: str) -> bool:
        """Whether other topics or steps fill it; False where that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class KeptVersions(Generic[T]):
    """What two versions keep, by the names that the topics have: ``before``, as far as it is known, and ``after``."""

    before: Mapping[str, Kept[T]]
    after: Mapping[str, Kept[T]]

    def misread(self, name: str) -> Misread | None:
        """Why the later version would misread what is kept under this name; None if it would not, or nobody can tell."""
        return misread(name, self.before, self.after) if name in self.before and name in self.after else None

    def row_windows(self, name: str) -> tuple[RowWindows | None, RowWindows | None]:
        """The windows of the rows before and after."""
        before, after = self.before.get(name), self.after.get(name)
        return None if before is None else before.row_windows, None if after is None else after.row_windows

    def is_fed_otherwise(self, name: str) -> bool:
        """Whether other topics or steps fill it; False where that is not known."""
        before, after = (kept.get(name) for kept in (self.before, self.after))
        if before is None or after is None or before.origin is None or after.origin is None:
            return False
        return not before.origin.is_same_as(after.origin)


class Misread(NamedTuple):
    """Why something would be misread. ``fields``: of the format, those that differ. ``other``: what it was swapped with."""

    why: Why
    fields: tuple[str, ...] = ()
    other: str = ""


def kept_by(version: TopologyOutline) -> dict[str, Kept[Origin]]:
    """All that a version keeps, by the name that its topic has."""
    found = {
        name: Kept(
            is_generated=is_generated(name.removesuffix(REPARTITION_SUFFIX)),
            origin=version.origins.get(name),
            format=_topic_format(version, name),
        )
        for name in version.repartition_topics
    }
    for store in version.stores:
        found[store.kept_as] = _kept(store, version.origins.get(store.name))
    return found


def _topic_format(version: TopologyOutline, topic: str) -> dict[str, str]:
    """What the bytes of a topic's records depend on, and, if they meet rows, their partitions. A default serde is not known
    without the application."""
    serdes = version.repartition_serdes.get(topic, TopicSerdes(key=None, value=None))
    found = {name: serde for name, serde in ((KEY_SERDE, serdes.key), (VALUE_SERDE, serdes.value)) if serde is not None}
    has_rows = any(part.stores and topic in part.repartition_source_topics for part in version.subtopologies)
    if has_rows and topic in version.partitioners:
        found[PARTITIONER] = OWN_PARTITIONER if version.partitioners[topic] else DEFAULT_PARTITIONER
    return found


def _kept(store: StoreOutline, origin: Origin | None) -> Kept[Origin]:
    windows = None if origin is None else origin.windows
    return Kept(
        is_generated=is_generated(store.name),
        origin=origin,
        format={name: getattr(store, name) for name in FORMAT},
        version=store.version,
        upcasts={int(version): serde for version, serde in store.upcasts.items()},
        windows="" if windows is None else windows.meaning,
        settings=KeptSettings(
            persistent=store.persistent,
            retention_ms=store.retention_ms,
            segment_interval_ms=store.segment_interval_ms,
            ttl_ms=store.ttl_ms,
            advance_ms=None if windows is None else windows.advance_ms,
        ),
    )


def misread(name: str, before: Mapping[str, Kept[T]], after: Mapping[str, Kept[T]]) -> Misread | None:
    """Why the version ``after`` would misread what ``before`` keeps under this name, which both have; None if it would
    not, or if nobody can tell."""
    old, new = before[name], after[name]
    if new.version < old.version:
        return Misread("version")
    if new.version > old.version and old.version not in new.upcasts:
        return Misread("upcast")
    fields = tuple(_changed_format(old, new))
    if fields and new.has_rows:
        return Misread("format", fields)
    if misread_meaning(old.windows, new.windows):
        return Misread("windows")
    # Of a topic, what its name stands for says more than its serdes.
    return _another(name, before, after) or (Misread("format", fields) if fields else None)


def _changed_format(old: Kept[T], new: Kept[T]) -> Iterator[str]:
    expected = dict(new.format)
    if old.version in new.upcasts:
        expected[VALUE_SERDE] = new.upcasts[old.version]
    for name, now in expected.items():
        was = old.format.get(name, now)
        if was != now and not (name == PLAIN_ROWS and None in (was, now)):
            yield name


def _another(name: str, before: Mapping[str, Kept[T]], after: Mapping[str, Kept[T]]) -> Misread | None:
    """Whether a name now stands for something else."""
    old, new = before[name], after[name]
    if old.origin is None or new.origin is None:
        return None
    if old.origin.has_sides_changed(new.origin):
        return Misread("sides")
    if not old.is_generated and not new.is_generated:
        other = _swapped_with(name, before, after)
        return None if other is None else Misread("swapped", other=other)
    if old.origin.is_same_as(new.origin) and not _is_code_of_another(old.origin, new.origin, before):
        return None
    return Misread("another")


def _swapped_with(name: str, before: Mapping[str, Kept[T]], after: Mapping[str, Kept[T]]) -> str | None:
    """The name with which this one was swapped: each now refers to what the other one referred to."""
    was, now = before[name].origin, after[name].origin
    if was is None or now is None or was == now:
        return None
    for other, kept in before.items():
        found = after[other].origin if other in after else None
        if other == name or found is None or kept.origin is None:
            continue
        if {was.filled_by, now.filled_by} != {kept.origin.filled_by}:
            continue
        if changed_places((was, kept.origin), (now, found), (_is_equal, _has_equal_structure)):
            return other
    return None


def _is_code_of_another(old: T, new: T, before: Mapping[str, Kept[T]]) -> bool:
    """Whether it is the code of another one that a generated name stands for now, where all else is equal."""
    if not old.has_other_functions(new):
        return False
    return any(kept.origin == new for kept in before.values() if kept.is_generated)


def _is_equal(one: T, other: T) -> bool:
    return one == other


def _has_equal_structure(one: T, other: T) -> bool:
    return one.has_equal_structure(other)
