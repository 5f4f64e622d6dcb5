"""Which closed segments may be compacted now, and whether it is worth it.

Rules (Kafka's ``LogCleanerManager``)
1. The active segment is never touched, nor anything at or above the limit: records that may not be on disk yet, and
   those that an open transaction may still abort.
2. With ``min.compaction.lag.ms``, a segment with a younger record is not touched, nor any segment after it.
3. The part that was compacted before is clean, the rest dirty. Compaction is worth it when the dirty part is more than
   ``min.cleanable.dirty.ratio`` of both, or when its first record is older than ``max.compaction.lag.ms``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from coordinator.log.config import FOREVER_MS, LogConfig
from coordinator.log.segment import OFFSETS_MAX, Segment
from streamsrt.wire.records import HEADER_SIZE_BYTES, read_header


class Assessment(NamedTuple):
    """What compaction would read: ``clean_bytes`` and ``dirty_bytes`` lie below ``end_offset``."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty part as a ratio of everything that can be compacted, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, config: LogConfig) -> bool:
        """Whether enough can be gained, or the dirty part is too old to wait."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio)


def assess(
    segments: Sequence[Segment], cleaned_offset: int, limit_offset: int, config: LogConfig, now_ms: int
) -> Assessment:
    """What could be compacted of ``segments``, whose last one is active; nothing at or above ``limit_offset``."""
    clean_bytes = dirty_bytes = 0
    end_offset = segments[0].base_offset
    first_dirty: Segment | None = None
    for segment, following in pairwise(segments):
        if following.base_offset > limit_offset or _is_too_young(segment, config, now_ms):
            break
        end_offset = following.base_offset
        if end_offset <= cleaned_offset:
            clean_bytes += segment.size_bytes
        else:
            dirty_bytes += segment.size_bytes
            if first_dirty is None and segment.size_bytes:
                first_dirty = segment
    overdue = first_dirty is not None and _is_overdue(first_dirty, config, now_ms)
    return Assessment(max(cleaned_offset, segments[0].base_offset), end_offset, clean_bytes, dirty_bytes, overdue)


def _is_too_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.size_bytes > 0 and segment.newest_ms() > now_ms - lag_ms


def _is_overdue(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.max_compaction_lag_ms
    if lag_ms >= FOREVER_MS:
        return False
    first = read_header(os.pread(segment.file.fd, HEADER_SIZE_BYTES, 0))
    made_ms = first.max_timestamp if first.max_timestamp >= 0 else segment.newest_ms()
    return made_ms < now_ms - lag_ms


def group_segments(segments: Sequence[Segment], segment_bytes: int) -> list[list[Segment]]:
    """Groups of adjacent segments that together fit into one segment, so that many small ones become few."""
    groups: list[list[Segment]] = []
    size_bytes = 0
    for segment in segments:
        fits = groups and size_bytes + segment.size_bytes <= segment_bytes
        if fits and segment.next_offset - groups[-1][0].base_offset <= OFFSETS_MAX:
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return groups
