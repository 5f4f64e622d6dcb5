"""Records as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class RecordColumns:
    """Records of one batch, column by column.

    `offsets` is None if the offsets are `base_offset`, `base_offset + 1`, ...; `headers` is None if no record has one.
    `next_offset` is the position to read from after these records. `timestamp_bounds`: the lowest and the highest
    timestamp, if known; `times`: the timestamps as a numpy array, if numpy read them.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    base_offset: int
    next_offset: int
    offsets: list[int] | None = None
    headers: list[Headers] | None = None
    timestamp_bounds: tuple[int, int] | None = None
    times: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def timestamp_min(self) -> int:
        """The lowest timestamp; there is at least one record."""
        return min(self.timestamps) if self.timestamp_bounds is None else self.timestamp_bounds[0]

    @property
    def timestamp_max(self) -> int:
        """The highest timestamp; there is at least one record."""
        return max(self.timestamps) if self.timestamp_bounds is None else self.timestamp_bounds[1]

    def offset_at(self, index: int) -> int:
        """Offset of the record with this index (0 or more)."""
        return self.base_offset + index if self.offsets is None else self.offsets[index]

    def cut(self, start: int, stop: int | None = None) -> RecordColumns:
        """The records from index `start` to before `stop` (None: to the end), as new columns."""
        if stop is None or stop >= len(self.keys):
            stop, next_offset = len(self.keys), self.next_offset
        else:
            next_offset = self.offset_at(stop)
        base_offset = self.offset_at(start) if start < stop else next_offset
        return RecordColumns(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            base_offset,
            next_offset,
            None if self.offsets is None else self.offsets[start:stop],
            None if self.headers is None else self.headers[start:stop],
        )

    def from_offset(self, offset: int) -> RecordColumns:
        """The records at `offset` and after; the object itself if these are all of its records."""
        if offset <= self.base_offset:
            return self
        if self.offsets is None:
            return self.cut(min(offset - self.base_offset, len(self.keys)))
        return self.cut(sum(1 for known in self.offsets if known < offset))
