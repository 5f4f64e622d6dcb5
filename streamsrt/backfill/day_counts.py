"""Counts records by day (UTC), batch by batch.

1. A batch whose records are all of one day, as most are, costs no look at its records: see ``timestamp_bounds``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np

from streamsrt.wire.records import RecordColumns

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DayCounts:
    """How many records have a timestamp of each day."""

    def __init__(self) -> None:
        self._days: dict[int, int] = {}

    def add(self, columns: RecordColumns) -> None:
        """Counts the records of a batch."""
        if not len(columns):
            return
        first, last = columns.timestamp_min // DAY_MS, columns.timestamp_max // DAY_MS
        if first == last:
            self._days[first] = self._days.get(first, 0) + len(columns)
            return
        times = np.array(columns.timestamps, np.int64) if columns.times is None else columns.times
        for day, count in zip(*np.unique(times // DAY_MS, return_counts=True), strict=True):
            self._days[int(day)] = self._days.get(int(day), 0) + int(count)

    def by_date(self) -> dict[str, int]:
        """The counts by ISO date, in the order of days. A day that no calendar has stands as its number since 1970."""
        return {iso_date(day): count for day, count in sorted(self._days.items())}


def iso_date(day: int) -> str:
    """The date of a day, counted from 1970; the number itself where no calendar has that day."""
    try:
        return (_EPOCH + timedelta(days=day)).date().isoformat()
    except OverflowError:
        return str(day)
