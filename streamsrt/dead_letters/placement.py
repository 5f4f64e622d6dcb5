"""To which partition the record of a letter is written.

1. To the one that it came from: whichever partitioner its producer has, the other records of its key are there.
2. If the topic has got more partitions since, the key's later records and its state are in another one, and the record has
   to follow them. No letter says how many partitions there were; but keys that Kafka's default partitioner has placed show
   it.
3. It is not guessed which of the two is right: such a replay is refused until somebody says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wording import counted


class PlacedBy(Enum):
    """Which partition a record is written to."""

    ORIGIN = "origin"
    """The one that it came from; where its topic does not have that any more, that of its key."""
    KEY = "key"
    """The one to which Kafka's default partitioner assigns its key."""


class PlacesOfKeys:
    """Where records came from, compared with where the default partitioner puts their keys. ``partitions``: how many the
    topic has now."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.elsewhere = 0
        """How many records came from another partition than that of their key."""
        self.gone = 0
        """How many came from a partition that the topic does not have."""
        self._counts = set(range(1, partitions))

    def add(self, key: bytes | None, partition: int) -> None:
        self.gone += partition >= self.partitions > 0
        if key is None or not 0 <= partition < self.partitions or partition_for_key(key, self.partitions) == partition:
            return
        self.elsewhere += 1
        self._counts = {count for count in self._counts if partition_for_key(key, count) == partition}

    @property
    def former_partitions(self) -> int | None:
        """How many partitions there were when the records were written, if their keys' places have that reason."""
        return max(self._counts, default=None) if self.elsewhere else None


def why_not_placed(places: Mapping[str, PlacesOfKeys]) -> str | None:
    """Why it has to be said which partitions the records of these topics go to; None where there is no doubt."""
    for topic, found in places.items():
        if found.former_partitions is not None:
            return (
                f"{counted(found.elsewhere, 'record')} came from another partition than that of the key: {topic} has "
                f"{counted(found.partitions, 'partition')}, and the keys are placed as if it had "
                f"{found.former_partitions:,}. If it has got partitions since, the keys' state is in other partitions now: "
                "`--partition-by key` writes each record to that of its key. If the records' producer has a partitioner of "
                "its own, `--partition-by origin` writes them to the partitions that they came from"
            )
    return None
