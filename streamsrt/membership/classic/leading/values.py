"""A generation in progress at the leader, the effects that it requests, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamsrt.assignment.in_flight import (
    Unread,
)
from streamsrt.assignment.refused_update import Refusal
from streamsrt.assignment.topics import NO_TOPICS, TopicsImage, TopicSpec
from streamsrt.membership.classic.leader_assignments import LeaderOutcome, LeaderSettings
from streamsrt.membership.classic.stream_layout import UserDataVersions
from streamsrt.membership.classic.task_assignment import (
    older_versions,
)
from streamsrt.membership.classic.unread_records import NOTHING_LEFT, LeftBehind
from streamsrt.membership.classic.values import ToldSetbacks
from streamsrt.membership.classic.version_checks import Verdicts
from streamsrt.membership.classic.view import Memory, Version, View
from streamsrt.membership.session_events import Tick
from streamsrt.membership.values import TopicPartition


@dataclass(frozen=True, slots=True)
class ListTopics:
    """Finds out which of these topics exist; None: lists all topics."""

    names: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class CreateTopics:
    specs: tuple[TopicSpec, ...]


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """Requests the end offsets of ``partitions``, and the group's committed offsets for ``committed``. ``written``:
    partitions whose ends include records of open transactions, because these may become readable at any moment."""

    partitions: frozenset[TopicPartition]
    committed: frozenset[TopicPartition] = frozenset()
    written: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class CountUnread:
    """Counts the records of these partitions that the group has not read, in topics for which it has committed offsets."""

    partitions: frozenset[TopicPartition]


Effect: TypeAlias = ListTopics | CreateTopics | EndOffsets | CountUnread


@dataclass(frozen=True, slots=True)
class TopicsListed:
    image: TopicsImage


@dataclass(frozen=True, slots=True)
class TopicsUnknown:
    """The topics can't be listed. ``reason``: the message of the failed attempt."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicsCreated:
    """The attempt is finished: error code and message for each topic that could not be created."""

    errors: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndOffsetsListed:
    """The known offsets of both kinds; None after a failure."""

    offsets: Mapping[TopicPartition, int] | None


@dataclass(frozen=True, slots=True)
class UnreadCounted:
    """None: the records could not be counted."""

    unread: Unread | None


Event: TypeAlias = TopicsListed | TopicsUnknown | TopicsCreated | EndOffsetsListed | UnreadCounted | Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """A generation in progress. ``version``: the one that the leader tries to assign; ``candidates``: this one, if it is to
    become the group's, and others after it. ``awaits``: the effect whose result is expected. ``ends``: the end offsets, kept
    while the committed offsets of removed topics are requested. ``lists_all``: the image has all topics; ``has_counted``:
    the unread records of older versions are known for this version, or can't be known; ``left``: the consequences;
    ``again``: members of earlier versions that are accepted because of them. ``setbacks``: what members are told of them."""

    view: View
    verdicts: Verdicts
    settings: LeaderSettings
    memory: Memory
    leader_id: str
    sizes: int
    deadline_ms: int
    versions: UserDataVersions = field(default_factory=UserDataVersions)
    candidates: tuple[Version, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    postponed: str = ""
    must_send_topology: frozenset[str] = frozenset()
    unknown: str = ""
    image: TopicsImage = NO_TOPICS
    awaits: Effect | None = None
    created: Mapping[str, int] | None = None
    creation_detail: str = ""
    ends: Mapping[TopicPartition, int] | None = None
    lists_all: bool = False
    has_counted: bool = False
    left: LeftBehind = NOTHING_LEFT
    again: frozenset[str] = frozenset()
    setbacks: ToldSetbacks | None = None

    @property
    def version(self) -> Version | None:
        return self.candidates[0] if self.candidates else self.verdicts.group

    @property
    def lead(self) -> Version | None:
        """The version whose tasks are assigned: ``version``, or, if no member runs it, the newest older one that a
        member runs."""
        version = self.version
        if version is None or self.runners:
            return version
        return next(iter(older_versions(self.view, version, self.refused)), None)

    @property
    def runners(self) -> list[str]:
        return [m.member_id for m in self.view.members if m.version == self.version and m.member_id not in self.refused]

    @property
    def is_update(self) -> bool:
        """Whether there are members to protect from a version that can't run."""
        return bool(self.candidates) and any(
            m.version != self.version and m.member_id not in self.refused for m in self.view.members
        )


@dataclass(frozen=True, slots=True)
class LeadingStep:
    """The result of a step: an effect whose result is the next event, or the outcome. ``wake_at_ms``: when to send a
    Tick."""

    leading: Leading
    effect: Effect | None = None
    outcome: LeaderOutcome | None = None
    wake_at_ms: int | None = None
