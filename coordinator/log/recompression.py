"""Compresses batches with the codec of their topic (``compression.type``), whatever the producer chose.

The bytes of the records do not change, only how the batch packs them, its length, its attributes and its CRC. If their
offsets within the batch are not 0, 1, 2 ... they are written again; so are those of a batch with LogAppendTime, whose
records all get its largest timestamp. As in Kafka, no batch is compressed anew that has a producer id without an epoch,
or a timestamp below 0 other than -1.
"""

from __future__ import annotations

from coordinator.log.config import LogConfig
from coordinator.log.errors import InvalidRecordError, RecordTooLargeError
from coordinator.log.scan import CRC_START, FRAME_BYTES
from coordinator.log.validation import Batch
from streamsrt.checksum import crc32c
from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.records import HEADER_SIZE_BYTES, NO_TIMESTAMP, BatchHeader, Survey, read_header, renumbered_records

_LENGTH = slice(8, FRAME_BYTES)
_CRC = slice(17, CRC_START)
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07
_BASE_TIMESTAMP = slice(27, 35)
_NO_PRODUCER_ID = _NO_PRODUCER_EPOCH = -1


def in_codec(header: BatchHeader, survey: Survey, codec: Compression, config: LogConfig) -> Batch:
    """The batch of that survey in another codec. Raises RecordTooLargeError for what is too large in it, and
    InvalidRecordError for what may not be compressed anew."""
    _check(header, survey)
    is_stamped = header.is_log_append_time
    records = (
        survey.batch[HEADER_SIZE_BYTES:]
        if survey.is_in_order and not is_stamped
        else renumbered_records(survey.batch, at_base_time=is_stamped)
    )
    packed = compress(codec, records)
    size_bytes = HEADER_SIZE_BYTES + len(packed)
    if size_bytes > min(config.max_message_bytes, config.segment_bytes):
        raise RecordTooLargeError(
            f"the batch has {size_bytes} bytes in the codec of compression.type; max.message.bytes is "
            f"{config.max_message_bytes}, segment.bytes {config.segment_bytes}"
        )
    made = bytearray(survey.batch[:HEADER_SIZE_BYTES])
    made += packed
    made[_LENGTH] = (len(made) - FRAME_BYTES).to_bytes(4, "big")
    made[_ATTRIBUTES_LOW_BYTE] = made[_ATTRIBUTES_LOW_BYTE] & ~_CODEC_MASK | codec
    if is_stamped:
        made[_BASE_TIMESTAMP] = header.max_timestamp.to_bytes(8, "big", signed=True)
    made[_CRC] = crc32c(memoryview(made)[CRC_START:]).to_bytes(4, "big")
    view = memoryview(bytes(made))
    return read_header(view), view


def _check(header: BatchHeader, survey: Survey) -> None:
    if header.producer_id != _NO_PRODUCER_ID and header.producer_epoch == _NO_PRODUCER_EPOCH:
        raise InvalidRecordError(f"the batch has the producer id {header.producer_id} without an epoch")
    smallest = min(survey.timestamps)
    if smallest < NO_TIMESTAMP:
        raise InvalidRecordError(
            f"a record has the timestamp {smallest}; in a topic with compression.type, the smallest one is 0, or -1 for none"
        )
