"""Batches that lost records to compaction: the rest encoded anew, everything else as it was."""

from __future__ import annotations

from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.primitives import Buffer
from streamsrt.wire.records import BatchHeader, RecordColumns
from streamsrt.wire.records.encoding import assemble, encode_records, offset_deltas
from streamsrt.wire.records.header import DELETE_HORIZON


def compacted_batch(header: BatchHeader, columns: RecordColumns, *, delete_horizon_ms: int | None = None) -> bytes:
    """A batch with only these of its records left (at least one): offsets, producer and all other attributes stay.

    ``delete_horizon_ms`` is set where it is given; one that the batch has already stays. EncodeError as of encode_batch.
    """
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    offsets = columns.offsets or range(columns.base_offset, columns.base_offset + len(columns))
    deltas, _ = offset_deltas(len(columns), header.base_offset, offsets, header.last_offset)
    base_timestamp = columns.timestamps[0] if horizon is None else horizon
    records: Buffer = encode_records(
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
