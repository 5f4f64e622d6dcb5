"""Whether the quick reader has taken the attributes of a record for more than they are.

1. The attributes of a record are one byte, which Kafka reads and ignores. The quick reader takes them for a number of any
   length: from 0x80 on it swallows what follows, and reads the offset as the timestamp, the key's length as the offset, and
   so on. Where that does not end with the record it raises, else its answer is wrong.
2. So a record that was read wrongly has its index as the time since the first one. Where no record has that, only the first
   one is looked at.
3. All records are looked at where some are missing, so that indexes are not offsets, and where all have the broker's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq

from streamsrt.wire.primitives import Buffer, DecodeError
from streamsrt.wire.records.header import BatchHeader
from streamsrt.wire.records.plain import read_number
from streamsrt.wire.records.uniform import BASE_TIMESTAMP_MAX


def is_misread(records: Buffer, header: BatchHeader, timestamps: Sequence[int], largest: int, first: int = 0) -> bool:
    """Whether some of the records that fill the buffer were read wrongly, by the timestamps that were read.

    ``largest`` is one of them. ``first``: how many records of the batch come before.
    """
    base_ms = header.base_timestamp + first
    if (
        header.records_count > header.last_offset_delta
        and not header.is_log_append_time
        and -BASE_TIMESTAMP_MAX < header.base_timestamp < BASE_TIMESTAMP_MAX
    ):
        limit = min(len(timestamps), largest - base_ms + 1)
        if not any(map(eq, timestamps[1:limit], range(base_ms + 1, base_ms + limit))):
            return has_long_attributes(records, 1)
    data = bytes(records)
    return not data.isascii() and has_long_attributes(data, len(timestamps))


def has_long_attributes(records: Buffer, count: int) -> bool:
    """Whether one of the first ``count`` records has attributes from 0x80 on. Looks no further than records are whole."""
    at = 0
    end = len(records)
    try:
        for _ in range(count):
            size = records[at]
            if size < 0x80:
                start = at + 1
            elif (second := records[at + 1]) < 0x80:
                start = at + 2
                size = size & 0x7F | second << 7
            else:
                number, start = read_number(memoryview(records), at)
                size = number << 1
            if size & 1 or size < 0 or start >= end:
                return False
            if records[start] >= 0x80:
                return True
            at = start + (size >> 1)
    except (IndexError, DecodeError):
        pass
    return False
