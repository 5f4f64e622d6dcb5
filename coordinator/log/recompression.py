"""Batches in the codec of their topic (``compression.type``), whatever the producer chose.

The records stay the bytes that they were: only how the batch packs them changes, its length, its attributes and its CRC.
"""

from __future__ import annotations

from crc32c import crc32c

from coordinator.log.config import LogConfig
from coordinator.log.errors import InvalidRecordError, RecordTooLargeError
from coordinator.log.scan import CRC_START, FRAME_BYTES
from coordinator.log.validation import Batch
from streamsrt.wire.compression import Compression, compress, decompress
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import HEADER_SIZE_BYTES, read_header

_LENGTH = slice(8, FRAME_BYTES)
_CRC = slice(17, CRC_START)
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07


def recompressed(batches: list[Batch], config: LogConfig) -> list[Batch]:
    """The batches in the log's codec; as they are where producers choose.

    Raises InvalidRecordError for what can't be unpacked, RecordTooLargeError for what is too large in the other codec.
    """
    codec = config.compression
    if codec is None:
        return batches
    return [batch if batch[0].compression is codec else _converted(batch, codec, config) for batch in batches]


def _converted(batch: Batch, codec: Compression, config: LogConfig) -> Batch:
    header, data = batch
    try:
        records = decompress(header.compression, data[HEADER_SIZE_BYTES:])
    except DecodeError as error:
        raise InvalidRecordError(f"the records of a batch can't be unpacked: {error}") from error
    made = bytearray(data[:HEADER_SIZE_BYTES])
    made += compress(codec, records)
    if len(made) > min(config.max_message_bytes, config.segment_bytes):
        raise RecordTooLargeError(
            f"the batch has {len(made)} bytes in the codec of compression.type; max.message.bytes is "
            f"{config.max_message_bytes}, segment.bytes {config.segment_bytes}"
        )
    made[_LENGTH] = (len(made) - FRAME_BYTES).to_bytes(4, "big")
    made[_ATTRIBUTES_LOW_BYTE] = made[_ATTRIBUTES_LOW_BYTE] & ~_CODEC_MASK | codec
    made[_CRC] = crc32c(memoryview(made)[CRC_START:]).to_bytes(4, "big")
    view = memoryview(bytes(made))
    return read_header(view), view
