"""Compares what a new version keeps with what members of earlier versions keep, by the marks that they tell.

1. An instance compares itself with the members of its group when it starts (:mod:`streamsrt.runtime.store_origins`), but
   brokers don't describe members while a group rebalances. The leader has the subscriptions of all of them in each
   generation, so it refuses what such an instance could not find out.
2. Marks have no names. The names in a message are those of topics that a member has told.
3. A member tells a limited number of upcasts, and one of an earlier release none: if that from the running version is not
   told, the serde of a store whose values get a later version is not compared here. The versions themselves are
   (:func:`streamsrt.assignment.value_versions.problem_of_values`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from streamsrt.assignment.internal_topics import CHANGELOG_SUFFIX
from streamsrt.assignment.topology import Topology
from streamsrt.membership.classic.view import Version, View
from streamsrt.membership.state_marks import Marks, OriginMark, name_mark
from streamsrt.membership.state_settings import told_state
from topology.graph.diff import KEEP_SIDES, SWAP_BACK, cure_of_records, values_not_read
from topology.graph.misread import VALUE_SERDE, Kept, Misread, misread
from topology.graph.row_windows import misread_meaning


def problem_of_state(view: View, version: Version, without: Container[str], group_id: str) -> str | None:
    """Why this version can't follow those that members run: the state that it would misread."""
    known = {m.member_id: told_state(m.subscription.client_tags) for m in view.members}
    mine: Marks = next((known[m.member_id] for m in view.members if m.version == version), {})
    names = _names(view.texts.values(), group_id)
    for member in view.members:
        if member.version.epoch >= version.epoch or member.member_id in without:
            continue
        listed = "; ".join(_misread(known[member.member_id], mine, names))
        if listed:
            return (
                f"The state of its running instances would be misread by this version: {listed}. Compared with member "
                f"{member.member_id}, which runs topology epoch {member.version.epoch}; `streamsrt topology diff OLD NEW` "
                "shows all changes."
            )
    return None


def _names(texts: Iterable[Topology], group_id: str) -> dict[str, str]:
    """What is kept in internal topics, by the mark of its name."""
    start = f"{group_id}-"
    topics = {topic.removeprefix(start) for text in texts for topic in text.topics() if topic.startswith(start)}
    return {
        name_mark(topic.removesuffix(CHANGELOG_SUFFIX)): f"store {topic.removesuffix(CHANGELOG_SUFFIX)!r}"
        if topic.endswith(CHANGELOG_SUFFIX)
        else f"repartition topic {topic!r}"
        for topic in topics
    }


def _misread(theirs: Marks, mine: Marks, names: dict[str, str]) -> Iterator[str]:
    """A sentence for each store or repartition topic that would be misread."""
    comparable = {key: _as_of_version(kept, theirs.get(key)) for key, kept in mine.items()}
    for key in sorted(theirs.keys() & mine.keys(), key=lambda key: names.get(key, "")):
        wrong = misread(key, theirs, comparable)
        if wrong is not None:
            yield f"{names.get(key, 'a store')}: {_reason(wrong, theirs[key], mine[key], names)}"


def _as_of_version(kept: Kept[OriginMark], before: Kept[OriginMark] | None) -> Kept[OriginMark]:
    """What reads values of the earlier version that was kept before: a serde that is not known counts as the right one."""
    if before is None or kept.version <= before.version or before.version in kept.upcasts:
        return kept
    return replace(kept, version=before.version, format={**kept.format, VALUE_SERDE: before.format.get(VALUE_SERDE)})


def _reason(wrong: Misread, before: Kept[OriginMark], after: Kept[OriginMark], names: dict[str, str]) -> str:
    match wrong.why:
        case "version" | "upcast":
            return values_not_read(before.version, after.version)
        case "format":
            cure = "give the new store another name" if after.has_rows else cure_of_records(wrong)
            return f"another {', another '.join(wrong.fields)}: {cure}"
        case "windows":
            return misread_meaning(before.windows, after.windows)
        case "sides":
            return f"the sides of the join have changed places. {KEEP_SIDES}"
        case "swapped":
            return f"it was exchanged with {names.get(wrong.other, 'another one')}: {SWAP_BACK}"
        case "another":
            return "it stands for another table now: name it, and keep the name of what was called so"
