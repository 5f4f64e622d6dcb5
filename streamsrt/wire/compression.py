"""Compression of record batches, as the attribute bits of a batch name it.

Rules of this module:
- What comes from the network decompresses to at most a stated size; more than that, or broken data, is a `DecodeError`.
- Output is what every Kafka client reads: snappy in the xerial framing of Java's client, LZ4 frames with independent
  blocks (KIP-57), gzip and zstd streams. Input may also be raw snappy (librdkafka) and several concatenated frames.
- Defaults favour speed: zstd level 1, LZ4's fast mode, gzip level 1 (on small records level 6 takes five times as long
  and saves nothing). Levels are those of KIP-390.
- The library is loaded with the first compressed batch: it takes 2 MB of a process.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from streamsrt.wire.later_numpy import np
from streamsrt.wire.primitives import Buffer, DecodeError

DECOMPRESSED_LIMIT_BYTES = 100 * 1024 * 1024
"""Default bound of one batch's decompressed records."""

SLACK_BYTES = 32
"""Readable zero bytes that `inflate` leaves behind its result: a varint cut off at the end reads into them."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")
_LITTLE_UINT32 = Struct("<I")
_LZ4_STEP_BYTES = 1 << 20
_LARGE_BYTES = 1 << 18
_SNAPPY_RATIO_MAXIMUM = 22  # a copy of 64 bytes takes three
_UNTOUCHED = b"\xa5\x5a\xc3\x3c\x96\x69\xf0\x0f"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_RESERVED = 0x20, 0x10, 8, 4, 3
_LZ4_HEADER_BYTES = 7
_LZ4_BLOCK_MASK = 0x7FFFFFFF
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Compression(IntEnum):
    """Codec of a batch; the value is what stands in bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def type_name(self) -> str:
        """The codec's name in Kafka's `compression.type`."""
        return self.name.lower()


class TooLargeError(DecodeError):
    """Unpacked data is larger than the caller allows."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """`data` compressed; None as level means the codec's default here. Snappy has no levels."""
    import cramjam  # see the last rule

    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return memoryview(cramjam.gzip.compress(data, level=1 if level is None else level))
        case Compression.SNAPPY:
            return _xerial_compress(memoryview(data))
        case Compression.LZ4:
            # cramjam.lz4.compress links blocks, which Java's reader refuses.
            level = 0 if level is None else level
            frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
            view = memoryview(data)
            for start in range(0, len(view), _LZ4_STEP_BYTES):
                # It keeps the interpreter to itself.
                frame.compress(bytes(view[start : start + _LZ4_STEP_BYTES]))
            return memoryview(frame.finish())
        case Compression.ZSTD:
            return memoryview(cramjam.zstd.compress(data, level=1 if level is None else level))


def decompress(codec: Compression, data: Buffer, *, limit_bytes: int = DECOMPRESSED_LIMIT_BYTES) -> bytes:
    """Reverses `compress`. Raises DecodeError if the data is broken or is larger than `limit_bytes`."""
    return bytes(inflate(codec, data, limit_bytes=limit_bytes))


def inflate(
    codec: Compression, data: Buffer, *, head: Buffer = b"", limit_bytes: int = DECOMPRESSED_LIMIT_BYTES
) -> memoryview:
    """`head` followed by the decompressed data in one buffer of its own, with `SLACK_BYTES` zeros behind the view.

    Errors as of `decompress`. The buffer grows from what the data promises; a promise above the limit is refused.
    """
    import cramjam  # see the last rule

    source = memoryview(data)
    try:
        if codec is Compression.NONE:
            return _copied(source, head, limit_bytes)
        if codec is Compression.SNAPPY:
            return _snappy_inflate(source, head, limit_bytes)
        return _stream_inflate(codec, source, head, limit_bytes)
    except (cramjam.DecompressionError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, DecodeError):
            raise
        raise DecodeError(f"broken {codec.type_name} data of {len(source)} bytes: {error}") from error


def check_lz4_frame(data: Buffer) -> None:
    """DecodeError for LZ4 data that Kafka's clients can't read though `decompress` does.

    Java's reader stops behind the first frame and has no blocks that depend on others; librdkafka refuses a second frame.
    """
    source = memoryview(data)
    if len(source) < _LZ4_HEADER_BYTES or source[:4] != _LZ4_MAGIC:
        raise DecodeError("the data does not begin with the header of an LZ4 frame")
    flags = source[4]
    if flags & _LZ4_RESERVED or not flags & _LZ4_INDEPENDENT:
        raise DecodeError("the blocks of the LZ4 frame are not independent, as they have to be in Kafka (KIP-57)")
    at = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    size = -1
    while size and at + 4 <= len(source):
        (size,) = _LITTLE_UINT32.unpack_from(source, at)
        at += 4
        if size:
            at += (size & _LZ4_BLOCK_MASK) + checksum_bytes
    if flags & _LZ4_CONTENT_CHECKSUM:
        at += 4
    if at != len(source):
        raise DecodeError(f"the data has {len(source)} bytes, its LZ4 frame {at}; only one frame is allowed")


def _copied(source: memoryview, head: Buffer, limit_bytes: int) -> memoryview:
    _check_size(Compression.NONE, len(source), limit_bytes)
    end = len(head) + len(source)
    return memoryview(b"".join((head, source, bytes(SLACK_BYTES))))[:end]


def _check_size(codec: Compression, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise TooLargeError(f"{codec.type_name} data holds {size_bytes} bytes or more; the limit is {limit_bytes}")


def _stream_inflate(codec: Compression, source: memoryview, head: Buffer, limit_bytes: int) -> memoryview:
    import cramjam  # see the last rule

    decompress_into = getattr(cramjam, codec.type_name).decompress_into
    capacity = _first_capacity(codec, source, limit_bytes)
    start = len(head)
    while True:
        end = start + capacity
        buffer = _zeros(end + SLACK_BYTES)
        buffer[max(start, end - len(_UNTOUCHED)) : end] = _UNTOUCHED[:capacity]
        try:
            written = decompress_into(source, buffer[start:end])
        except cramjam.DecompressionError:
            # The library has one error for "broken" and "does not fit", but only the second fills the buffer.
            if buffer[end - len(_UNTOUCHED) : end] == _UNTOUCHED:
                raise
            if capacity == limit_bytes:
                _check_size(codec, limit_bytes + 1, limit_bytes)
            capacity = min(capacity * 4, limit_bytes)
            continue
        if codec is Compression.ZSTD and written < _zstd_content_bytes(source):
            raise DecodeError(
                f"zstd data of {len(source)} bytes is cut off: it unpacks to {written} bytes, fewer than its header "
                "says"
            )
        buffer[:start] = head
        behind = max(start + written, end - len(_UNTOUCHED))
        buffer[behind:end] = bytes(end - behind)
        return buffer[: start + written]


def _zeros(size_bytes: int) -> memoryview:
    """Large ones cost nothing before they are written to: no thread waits while they are made."""
    return memoryview(bytearray(size_bytes)) if size_bytes < _LARGE_BYTES else np.zeros(size_bytes, np.uint8).data


def _first_capacity(codec: Compression, source: memoryview, limit_bytes: int) -> int:
    promised = 0
    if codec is Compression.ZSTD:
        promised = _zstd_content_bytes(source)
        _check_size(codec, promised, limit_bytes)
    elif codec is Compression.GZIP and len(source) >= 18:
        # Modulo 2**32 and of the last member only: a hint.
        promised = int(_LITTLE_UINT32.unpack_from(source, len(source) - 4)[0])
    # A claimed size alone is not trusted: larger buffers are allocated only after the smaller one is full.
    capacity = promised if promised <= 64 * len(source) + 65536 else 0
    return min(max(capacity, 4 * len(source), 1024), limit_bytes)


def _zstd_content_bytes(source: memoryview) -> int:
    # RFC 8878, section 3.1.1.1.
    if len(source) < 6 or source[:4] != _ZSTD_MAGIC:
        return 0
    descriptor = source[4]
    single_segment = descriptor >> 5 & 1
    field_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    if field_bytes == 0 or len(source) < start + field_bytes:
        return 0
    content_bytes = int.from_bytes(source[start : start + field_bytes], "little")
    return content_bytes + 256 if field_bytes == 2 else content_bytes


def _xerial_compress(data: memoryview) -> bytes:
    import cramjam  # see the last rule

    parts: list[Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = memoryview(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_inflate(source: memoryview, head: Buffer, limit_bytes: int) -> memoryview:
    import cramjam  # see the last rule

    blocks = _xerial_blocks(source) if source[:8] == _XERIAL_MAGIC else [source]
    sizes = [int(cramjam.snappy.decompress_raw_len(block)) for block in blocks]
    _check_size(Compression.SNAPPY, sum(sizes), limit_bytes)
    if sum(sizes) > _SNAPPY_RATIO_MAXIMUM * len(source):
        raise DecodeError(f"snappy data of {len(source)} bytes claims to hold {sum(sizes)}")
    buffer = _zeros(len(head) + sum(sizes) + SLACK_BYTES)
    buffer[: len(head)] = head
    position = len(head)
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, buffer[position : position + size])
        position += size
    return buffer[:position]


def _xerial_blocks(source: memoryview) -> list[memoryview]:
    blocks = []
    position = len(_XERIAL_HEADER)
    if len(source) < position:
        raise DecodeError("snappy data ends within its header")
    while position < len(source):
        if source[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Another stream begins; its first byte would make a block's length negative.
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(source):
            raise DecodeError("snappy data ends within the length of a block")
        size = _INT32.unpack_from(source, position)[0]
        position += 4
        if size < 0 or position + size > len(source):
            raise DecodeError(f"snappy block of {size} bytes with {len(source) - position} bytes left")
        blocks.append(source[position : position + size])
        position += size
    return blocks
