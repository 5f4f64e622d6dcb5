"""Batches that lost records to compaction: the rest encoded again, everything else as it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.records import BatchHeader, RecordColumns
from streamsrt.wire.records.columns import Headers
from streamsrt.wire.records.encoding import assemble, encode_records, offset_deltas
from streamsrt.wire.records.header import DELETE_HORIZON
from streamsrt.wire.records.plain import written_number

_MANY_HEADERS = 50_000
"""From so many on, the Cython writer would hold the GIL for milliseconds: it writes a record in one go."""


def compacted_batch(header: BatchHeader, columns: RecordColumns, *, delete_horizon_ms: int | None = None) -> bytes:
    """A batch with only these of its records left (at least one): offsets, producer and all other attributes stay.

    ``delete_horizon_ms`` is set if given, unless the batch already has one. EncodeError as of encode_batch.
    """
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    offsets = columns.offsets or range(columns.base_offset, columns.base_offset + len(columns))
    deltas, _ = offset_deltas(len(columns), header.base_offset, offsets, header.last_offset)
    base_timestamp = columns.timestamps[0] if horizon is None else horizon
    records: Buffer
    if columns.headers is not None and max(map(len, columns.headers)) > _MANY_HEADERS:
        records = _in_turns(columns, columns.headers, deltas, base_timestamp)
    else:
        records = encode_records(
            columns.keys, columns.values, columns.timestamps, columns.headers, deltas, base_timestamp
        )
    if header.compression is not Compression.NONE:
        records = compress(header.compression, records, None)
    return assemble(
        header._replace(
            attributes=header.attributes | (0 if horizon is None else DELETE_HORIZON),
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else max(columns.timestamps),
            records_count=len(columns),
        ),
        records,
    )


def _in_turns(columns: RecordColumns, all_headers: Sequence[Headers], deltas: Iterable[int], base: int) -> bytes:
    """Like ``encode_records``, but in small steps, so that a million headers do not block other threads."""
    found = bytearray()
    rows = zip(columns.keys, columns.values, columns.timestamps, all_headers, deltas, strict=True)
    for key, value, timestamp, headers, delta in rows:
        record = bytearray(
            b"\0" + written_number(timestamp - base) + written_number(delta) + _sized(key) + _sized(value)
        )
        record += written_number(len(headers))
        for name, content in headers:
            record += _sized(name.encode())
            record += _sized(content)
        found += written_number(len(record))
        found += record
    return bytes(found)


def _sized(data: bytes | None) -> bytes:
    return written_number(-1) if data is None else written_number(len(data)) + data
