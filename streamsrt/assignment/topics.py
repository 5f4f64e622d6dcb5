"""Topics as values: existing ones, and one to create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic as an assignor sees it."""

    id: bytes
    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicsImage(Mapping[str, TopicImage]):
    """All topics at one moment, by name. A change makes a new image, so "the same object" means "unchanged"."""

    __slots__ = ("_names", "_topics")
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __init__(self, topics: Mapping[str, TopicImage] | None = None) -> None:
        self._topics = dict(topics or {})
        self._names: dict[bytes, str] | None = None

    @classmethod
    def of(cls, *topics: TopicImage) -> TopicsImage:
        return cls({topic.name: topic for topic in topics})

    @property
    def names_by_id(self) -> Mapping[bytes, str]:
        """Topic id -> name."""
        if self._names is None:
            self._names = {topic.id: name for name, topic in self._topics.items()}
        return self._names

    def __getitem__(self, name: str) -> TopicImage:
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


NO_TOPICS = TopicsImage()


@dataclass(frozen=True, slots=True)
class TopicErrors:
    """The result of an attempt to create topics: error code and message of each that could not be created."""

    errors: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Ends:
    """The known offsets, by partition."""

    offsets: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Left:
    """The number of records that a group has not read, by partition, in topics for which it has committed offsets."""

    unread: Mapping[tuple[str, int], int]


class TopicSpec(NamedTuple):
    """A topic to create; a replication factor of -1 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
