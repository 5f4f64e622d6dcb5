"""Records of several batches in one order, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeVar

from streamsrt.wire.records.columns import Headers, RecordColumns

T = TypeVar("T")


class MergedColumns:
    """Records of ``parts``, which keep their order. ``origins``: for each record the index of its part.

    ``headers`` is None if no record has one.
    """

    __slots__ = ("_offsets", "_pick", "headers", "keys", "origins", "parts", "timestamps", "values")

    def __init__(self, parts: Sequence[RecordColumns], order: Sequence[int]) -> None:
        """``order``: the indexes of at least two records, counted through all parts."""
        pick = self._pick = itemgetter(*order)
        self._offsets: Sequence[int] | None = None
        self.parts = parts
        self.origins: Sequence[int] = pick(_joined([[number] * len(part.keys) for number, part in enumerate(parts)]))
        self.keys: Sequence[bytes | None] = pick(_joined([part.keys for part in parts]))
        self.values: Sequence[bytes | None] = pick(_joined([part.values for part in parts]))
        self.timestamps: Sequence[int] = pick(_joined([part.timestamps for part in parts]))
        self.headers: Sequence[Headers] | None = None
        if any(part.headers is not None for part in parts):
            each = [[()] * len(part.keys) if part.headers is None else part.headers for part in parts]
            self.headers = pick(_joined(each))

    def __len__(self) -> int:
        return len(self.keys)

    def counts(self, stop: int) -> list[int]:
        """Returns how many of the first ``stop`` records belong to each part."""
        origins = self.origins[:stop]
        return [origins.count(number) for number in range(len(self.parts))]

    def in_parts(self, indexes: Sequence[int]) -> list[list[int]]:
        """Returns the indexes that these records have in each part. ``indexes`` ascend."""
        found: list[list[int]] = [[] for _ in self.parts]
        if not indexes:
            return found
        before, start = [0] * len(self.parts), 0
        for index in indexes:
            for number in self.origins[start:index]:
                before[number] += 1
            start = index
            number = self.origins[index]
            found[number].append(before[number])
        return found

    @property
    def each_offset(self) -> Sequence[int]:
        """The offset of each record in its part."""
        if self._offsets is None:
            # Few callers need it, but those may need it for each record.
            self._offsets = self._pick(list(chain.from_iterable(part.each_offset for part in self.parts)))
        return self._offsets

    def offset_at(self, index: int) -> int:
        """The offset of the record with this index in its part."""
        return self.each_offset[index]


def _joined(columns: Sequence[list[T]]) -> list[T]:
    return list(chain.from_iterable(columns))
