"""Record batches, format version 2 (KIP-98): header fields, columns of records, control batches.

| module | what it is |
| --- | --- |
| ``header`` | the header of a record batch, and its fields |
| ``columns`` | records as columns |
| ``merged`` | records of several batches in one order |
| ``decoding`` | batches and fetch responses into columns |
| ``uniform`` | the same for batches whose records are all of one size |
| ``placed`` | several batches at once, for what takes keys and values from where they lie |
| ``items`` | bytes out of a buffer, many items at once |
| ``quick`` | aiokafka's codec, in Cython |
| ``plain`` | the same for header keys that are not UTF-8, for very long records, and for single ones |
| ``latest`` | the largest timestamp of records that lie as producers mostly write them |
| ``attributes`` | whether the quick reader has misread the attributes of a record |
| ``overlong`` | whether the quick reader may have read a number that Kafka refuses as too long |
| ``unlike`` | reads records of different sizes, field by field |
| ``survey`` | the contents of a batch, without its columns |
| ``encoding`` | columns into batches, batches with other headers |
| ``small`` | small records of many sizes: numpy finds where each of them begins, and reads them column by column |
| ``texts`` | short texts that are keys and values at once, from many strings to batches of them |

1. The unit is a batch, its form is columns. Nothing here makes an object per record for its caller to keep.
2. The codec is aiokafka's. The checksum and the compression are our own: aiokafka's are several times slower.
3. Offsets here are absolute, timestamps are milliseconds since the epoch, -1 meaning none.
"""

from streamsrt.wire.compression import Compression
from streamsrt.wire.records.columns import Headers, RecordColumns
from streamsrt.wire.records.decoding import (
    decode_batch,
    decode_batches,
    decode_control_batch,
    iter_columns,
)
from streamsrt.wire.records.encoding import (
    empty_batch,
    encode_batch,
    encode_control_batch,
    encode_written,
    patch_base_offset,
    rewrite_log_append_time,
    rewrite_timestamps,
    stamp_producer,
    stamped,
)
from streamsrt.wire.records.header import (
    HEADER_SIZE_BYTES,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    ControlRecord,
    ControlType,
    CorruptBatchError,
    check_crc,
    iter_headers,
    read_header,
)
from streamsrt.wire.records.latest import largest_of_simple
from streamsrt.wire.records.survey import (
    Survey,
    find_timestamp,
    largest_timestamp,
    renumbered_records,
    survey_batch,
    survey_unpacked,
    unpacked,
)

__all__ = [
    "HEADER_SIZE_BYTES",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Compression",
    "ControlRecord",
    "ControlType",
    "CorruptBatchError",
    "Headers",
    "RecordColumns",
    "Survey",
    "check_crc",
    "decode_batch",
    "decode_batches",
    "decode_control_batch",
    "empty_batch",
    "encode_batch",
    "encode_control_batch",
    "encode_written",
    "find_timestamp",
    "iter_columns",
    "iter_headers",
    "largest_of_simple",
    "largest_timestamp",
    "patch_base_offset",
    "read_header",
    "renumbered_records",
    "rewrite_log_append_time",
    "rewrite_timestamps",
    "stamp_producer",
    "stamped",
    "survey_batch",
    "survey_unpacked",
    "unpacked",
]
