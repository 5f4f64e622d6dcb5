"""What running instances tell of what they keep, as a comparison with the next version takes it.

1. Hashes are compared with those of the new version: what is equal is called as there, everything else is "another one".
2. What is not told is not compared, and is said: of stores beyond the first ones, of instances of earlier releases, and
   where no instance runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from streamsrt.membership.state_marks import Marks, OriginMark, marks_of, name_mark
from streamsrt.membership.state_settings import told_state
from streamsrt.runtime.group_facts import MemberFacts
from topology.graph.misread import PLAIN_ROWS, VALUE_SERDE, Kept, KeptVersions, kept_by
from topology.graph.origins import Origin
from topology.graph.outline import StoreOutline, TopologyOutline

ANOTHER = "another one"
_ALL = "serdes, versions of values, windows, ttl, retention and generated names"
_SETTINGS = "ttl, retention, the advance of windows and earlier value versions"


@dataclass(frozen=True, slots=True)
class ToldState:
    """What the running version keeps, as far as its instances tell: marks by the hashes of names."""

    marks: Marks

    @classmethod
    def of(cls, members: Iterable[MemberFacts]) -> ToldState:
        """What these members tell, which run the same version."""
        found: dict[str, Kept[OriginMark]] = {}
        for member in members:
            found.update(told_state(member.state_tags))
        return cls(found)

    def kept(self, new: TopologyOutline, names: Iterable[str]) -> KeptVersions[OriginMark]:
        """What both versions keep. ``names``: of what only the running one keeps."""
        after = kept_by(new)
        marks = marks_of(after)
        known = {name: self.marks.get(name_mark(name)) for name in (*after, *names)}
        return KeptVersions(
            before={name: mark for name, mark in known.items() if mark is not None},
            after={name: marks[name_mark(name)] for name in after},
        )

    def store(self, now: StoreOutline, kept: Mapping[str, Kept[Origin]]) -> StoreOutline:
        """A store of the new version as the running one has it. What is not told is as in the new one. ``kept``: by the new
        version."""
        name = name_mark(now.kept_as)
        mark = self.marks.get(name)
        if mark is None or not mark.has_rows or now.kept_as not in kept:
            return now
        of_now = marks_of({now.kept_as: kept[now.kept_as]})[name]
        was = _as_told(mark, of_now, now)
        if mark.settings is None:
            return was
        return replace(
            was,
            upcasts={
                str(version): now.upcasts[str(version)] if of_now.upcasts.get(version) == serde else ANOTHER
                for version, serde in sorted(mark.upcasts.items())
            },
            persistent=mark.settings.persistent,
            retention_ms=mark.settings.retention_ms,
            segment_interval_ms=mark.settings.segment_interval_ms,
            ttl_ms=mark.settings.ttl_ms,
        )

    def not_compared(self, names: Iterable[str], how: str) -> str:
        """A sentence about what is not told of these stores and repartition topics, which both versions have; empty if all
        is. ``how``: the user can compare it."""
        known = {name: self.marks.get(name_mark(name)) for name in sorted(set(names))}
        missing = [name for name, mark in known.items() if mark is None]
        if known and len(missing) == len(known):
            return f"{_ALL} were not compared: no running instance tells them ({how} compares them)"
        if missing:
            listed = f"{', '.join(missing[:5])}{' and others' if len(missing) > 5 else ''}"
            return (
                f"{_ALL} of {listed} were not compared: instances tell them of some stores only ({how} compares them)"
            )
        if any(mark is not None and mark.has_rows and mark.settings is None for mark in known.values()):
            return f"{_SETTINGS} were not compared: instances of an earlier release run ({how} compares them)"
        return ""


def _as_told(mark: Kept[OriginMark], of_now: Kept[OriginMark], now: StoreOutline) -> StoreOutline:
    """A store with the format that a mark tells."""

    def text(field: str, now: str | None) -> str | None:
        return now if mark.format.get(field) == of_now.format[field] else ANOTHER

    was_read_by = of_now.upcasts.get(mark.version)
    is_upcast = was_read_by is not None and mark.format.get(VALUE_SERDE) == was_read_by
    plain_rows, size_ms = mark.format.get(PLAIN_ROWS), mark.format.get("window_size_ms")
    return replace(
        now,
        kind=text("kind", now.kind) or now.kind,
        key_serde=text("key_serde", now.key_serde),
        value_serde=now.upcasts[str(mark.version)] if is_upcast else text(VALUE_SERDE, now.value_serde),
        timestamped=bool(mark.format.get("timestamped")),
        retain_duplicates=bool(mark.format.get("retain_duplicates")),
        plain_rows=now.plain_rows if plain_rows is None else bool(plain_rows),
        window_size_ms=size_ms if isinstance(size_ms, int) else None,
        version=mark.version,
        upcasts={},
    )
