"""Records by day."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.backfill.day_counts import DayCounts, iso_date
from streamsrt.wire.records import RecordColumns

_MOST_MS = 253_402_300_799_999  # the last millisecond of the year 9999


def _columns(times: list[int], *, as_array: bool) -> RecordColumns:
    bounds = (min(times), max(times)) if times and as_array else None
    array = np.array(times, np.int64) if as_array else None
    nothing: list[bytes | None] = [None] * len(times)
    return RecordColumns(nothing, nothing, times, 0, len(times), timestamp_bounds=bounds, times=array)


@given(st.lists(st.lists(st.integers(-1, _MOST_MS) | st.integers(0, 3 * 86_400_000), max_size=6)), st.booleans())
def test_each_record_counts_once_on_its_day(batches: list[list[int]], as_array: bool) -> None:
    counts = DayCounts()
    for times in batches:
        counts.add(_columns(times, as_array=as_array))
    days = Counter(datetime.fromtimestamp(ms // 1000, UTC).date().isoformat() for times in batches for ms in times)
    assert counts.by_date() == dict(sorted(days.items()))


def test_a_day_that_no_calendar_has_is_a_number() -> None:
    assert iso_date(0) == "1970-01-01"
    assert iso_date(10_000_000) == "10000000"
