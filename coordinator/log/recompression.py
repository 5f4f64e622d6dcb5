"""Compresses batches with the codec of their topic (``compression.type``), whatever the producer chose.

The bytes of the records do not change, only how the batch packs them, its length, its attributes and its CRC. If their
offsets within the batch are not 0, 1, 2 ... they are written again.
"""

from __future__ import annotations

from crc32c import crc32c

from coordinator.log.config import LogConfig
from coordinator.log.errors import RecordTooLargeError
from coordinator.log.scan import CRC_START, FRAME_BYTES
from coordinator.log.validation import Batch
from streamsrt.wire.compression import Compression, compress
from streamsrt.wire.records import HEADER_SIZE_BYTES, BatchHeader, Survey, read_header, renumbered_records

_LENGTH = slice(8, FRAME_BYTES)
_CRC = slice(17, CRC_START)
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07


def in_codec(header: BatchHeader, survey: Survey, codec: Compression, config: LogConfig) -> Batch:
    """The batch of that survey in another codec. Raises RecordTooLargeError for what is too large in it."""
    records = survey.batch[HEADER_SIZE_BYTES:] if survey.is_in_order else renumbered_records(survey.batch)
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
    made[_CRC] = crc32c(memoryview(made)[CRC_START:]).to_bytes(4, "big")
    view = memoryview(bytes(made))
    return read_header(view), view
