"""Fetched data that is not decoded yet, per partition.

1. A fetch returns up to a megabyte of a partition, which is many record batches. They are decoded one at a time, when
   the task needs more of that partition: if a hundred thousand records are decoded at once, each costs five times as
   much as with a thousand.
2. Transaction markers are skipped and aborted records dropped, as in :func:`streamsrt.wire.records.decode_batches`.
3. The position of a partition is the offset after the last record that was handed out; if everything fetched was handed
   out, it is the next offset to fetch, so that markers at the end of a log count as read.
4. ``buffered_bytes`` includes a fetch until its last batch was handed out. A buffer that is not empty has a batch to
   hand out, or only a position to advance, which takes no bytes. ``held_bytes`` is what all of it takes in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from streamsrt.client.values import FETCHED_BYTES, Fetched
from streamsrt.wire.records import RecordColumns, iter_columns


class InputBuffer:
    """Undecoded fetches of one partition. ``lazily``: their records are only counted, and values may stay unread."""

    __slots__ = (
        "_fetches",
        "_lazily",
        "_open",
        "_open_bytes",
        "_open_end",
        "buffered_bytes",
        "fetched_bytes",
        "high_watermark",
        "position",
    )

    def __init__(self, position: int, *, lazily: bool = False) -> None:
        self._lazily = lazily
        self._fetches: deque[Fetched] = deque()
        self._open: Iterator[RecordColumns] | None = None
        self._open_end = position
        self._open_bytes = 0
        self.position = position
        self.high_watermark = -1
        self.buffered_bytes = 0
        self.fetched_bytes = 0
        """All that was fetched, since the start."""

    def add(self, fetched: Fetched) -> None:
        """Adds a fetch; fetches come in order."""
        self._fetches.append(fetched)
        self.buffered_bytes += len(fetched.buffer)
        self.fetched_bytes += len(fetched.buffer)
        self.high_watermark = fetched.readable_end

    def jump(self, fetched: Fetched, position: int) -> None:
        """Continues reading at another offset: after everything fetched before, the position moves to ``position``."""
        self._fetches.append(replace(fetched, offset=position, next_offset=position, error=None))

    def next_columns(self) -> RecordColumns | None:
        """Decodes and returns the next batch, None if there is none. A batch without records only moves the position.
        Raises DecodeError."""
        while self._open is not None or self._fetches:
            if self._open is None:
                fetched = self._fetches.popleft()
                self._open_bytes = len(fetched.buffer)
                self._open = iter_columns(
                    fetched.buffer, from_offset=fetched.offset, aborted=fetched.aborted, lazily=self._lazily
                )
                self._open_end = fetched.next_offset
            columns = next(self._open, None)
            if columns is None:
                self._open = None
                self.buffered_bytes -= self._open_bytes
                if self._open_end == self.position:
                    continue
                columns = RecordColumns([], [], [], self._open_end, self._open_end)
            self.position = columns.next_offset
            return columns
        return None

    @property
    def held_bytes(self) -> int:
        return self.buffered_bytes + FETCHED_BYTES * len(self._fetches)

    @property
    def is_empty(self) -> bool:
        """Whether :meth:`next_columns` has nothing to hand out."""
        return self._open is None and not self._fetches

    @property
    def lag_records(self) -> int | None:
        """Returns how far the position is behind the end of the log; None if nothing has been fetched yet."""
        return None if self.high_watermark < 0 else max(0, self.high_watermark - self.position)
