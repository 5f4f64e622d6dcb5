"""Records that versions without members have left unread: who reads them, which tasks wait for them, and which version is
refused.

When a group starts again:

1. Members of an earlier version that read some of them are accepted together with the new version, as in a rolling
   upgrade. Otherwise they would be refused, and the new version would be refused for the records that it leaves unread.
2. A version that reads some of the unread records waits for members that read the rest. A version that reads none of
   them is refused: it is not needed by those that read the rest.

In a running group:

3. While members run earlier versions, each assignment lists the topics that only those versions have, and the
   subtopologies of the group's version that share state with their readers (``Waits``). Members echo it for the next
   leader.
4. If such a topic has unread records and no reader, tasks of these subtopologies are *held*: the partitions with unread
   records are not assigned until the records are read or may be lost. The records are counted in each generation. A topic
   without unread records is removed from ``Waits``.
5. Meanwhile, a version that does not have the topic either is refused. A version that has the topic reads it.
6. Unread records in topics that are not in ``Waits`` cause a warning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.in_flight import (
    NOTHING_UNREAD,
    Unread,
    held_by_name,
    left_detail,
    refusal_of_moved_feeds,
    repartition_topics,
    topics_met,
)
from streamsrt.assignment.refused_update import topics_problem
from streamsrt.assignment.tasks import TaskId
from streamsrt.assignment.topology import Topology
from streamsrt.assignment.value_versions import NO_VERSIONS, problem_of_values, read_versions
from streamsrt.membership.classic.task_assignment import older_versions
from streamsrt.membership.classic.values import Waits
from streamsrt.membership.classic.view import Version, View
from streamsrt.wire.client_tags import VALUE_VERSIONS


@dataclass(frozen=True, slots=True)
class LeftUnread:
    """Unread records of topics that a version does not have, and of those that it has (``own``)."""

    unread: Unread
    own: Unread

    def without(self, topics: Iterable[str]) -> LeftUnread:
        read = frozenset(topics)
        return LeftUnread({tp: count for tp, count in self.unread.items() if tp[0] not in read}, self.own)


def left_of(topology: Topology, unread: Unread) -> LeftUnread:
    own = topology.topics()
    return LeftUnread(
        {tp: count for tp, count in unread.items() if tp[0] not in own},
        {tp: count for tp, count in unread.items() if tp[0] in own},
    )


def returning(view: View, version: Version, left: LeftUnread) -> tuple[frozenset[str], LeftUnread]:
    """Returns the members of earlier versions that read some of the unread records, and what stays unread with them."""
    topics = {topic for topic, _ in left.unread}
    found = [m for m in view.members if m.version.epoch < version.epoch and topics & m.subscription.topics]
    return frozenset(m.member_id for m in found), left.without(topic for m in found for topic in m.subscription.topics)


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Consequences of unread records. ``held``: tasks that are not assigned, and ``detail``: why; ``warning``: a
    warning about the rest; ``read``: topics of ``Waits`` that have no unread records any more."""

    held: frozenset[TaskId] = frozenset()
    detail: str = ""
    warning: str = ""
    read: frozenset[str] = frozenset()


NOTHING_LEFT = LeftBehind()


def nobodys_topics(view: View, version: Version, without: Container[str]) -> frozenset[str]:
    """Topics of ``Waits`` that no version with members has."""
    texts = [view.texts.get(one.digest) for one in (version, *older_versions(view, version, without))]
    return frozenset(view.waits).difference(*(repartition_topics(text) for text in texts if text is not None))


def left_behind(view: View, version: Version, group_id: str, unread: Unread, *, may_lose: bool) -> LeftBehind:
    """Returns the consequences for the group's version. ``unread``: records of topics that no member reads."""
    waits = view.waits if view.echoed == version else {}
    read = frozenset(waits) - {topic for topic, _ in unread}
    if may_lose:
        return LeftBehind(warning=left_detail(group_id, unread, may_lose=True) if unread else "")
    known = {tp: count for tp, count in unread.items() if waits.get(tp[0])}
    others = {tp: count for tp, count in unread.items() if tp not in known}
    return LeftBehind(
        held=frozenset(TaskId(name, partition) for topic, partition in known for name in waits[topic]),
        detail=held_by_name(group_id, version.epoch, known) if known else "",
        warning=left_detail(group_id, others, may_lose=False) if others else "",
        read=read,
    )


def waits_to_send(view: View, version: Version | None, without: Container[str], left: LeftBehind) -> Waits:
    """Returns the ``Waits`` to send with an assignment for this version."""
    if version is None or view.is_mixed:
        return {}
    sent = view.waits if view.echoed == version else {}
    topology = view.texts.get(version.digest)
    older = [view.texts.get(one.digest) for one in older_versions(view, version, without)]
    met = {} if topology is None else topics_met(topology, [text for text in older if text is not None])
    kept = {topic: names for topic, names in sent.items() if topic not in left.read or topic in met}
    return {**kept, **{topic: names | kept.get(topic, frozenset()) for topic, names in met.items()}}


def problem_of_update(
    view: View, version: Version, configuration: Configuration, without: Container[str]
) -> str | None:
    """Returns why this version can't follow those that members run: its topics, what feeds its stores, or the versions of
    values in them."""
    problem = configuration.problem
    if problem is not None and problem.is_fatal:
        return topics_problem(problem)
    texts = {one: text for one in older_versions(view, version, without) if (text := view.texts.get(one.digest))}
    moved = refusal_of_moved_feeds(configuration.topology, texts.values(), NOTHING_UNREAD, {one.epoch for one in texts})
    if moved is not None:
        return moved
    versions = {m.version: read_versions(m.subscription.client_tags.get(VALUE_VERSIONS)) for m in view.members}
    older = [(text, versions[one]) for one, text in texts.items()]
    return problem_of_values(configuration.topology, versions.get(version, NO_VERSIONS), older)
