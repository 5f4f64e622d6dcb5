"""Some of the records of a batch."""

from __future__ import annotations

from itertools import compress

from streamsrt.wire.records import RecordColumns


def selected(columns: RecordColumns, timestamps: list[int], keep: list[bool]) -> RecordColumns:
    """The records whose place in ``keep`` is true, with these timestamps. Offsets stay as they are."""
    if all(keep):
        return RecordColumns(
            columns.keys,
            columns.values,
            timestamps,
            columns.base_offset,
            columns.next_offset,
            columns.offsets,
            columns.headers,
        )
    offsets = [columns.offset_at(index) for index, kept in enumerate(keep) if kept]
    return RecordColumns(
        list(compress(columns.keys, keep)),
        list(compress(columns.values, keep)),
        list(compress(timestamps, keep)),
        offsets[0] if offsets else columns.next_offset,
        columns.next_offset,
        offsets,
        None if columns.headers is None else list(compress(columns.headers, keep)),
    )
