from __future__ import annotations

import contextlib
import random
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsrt.wire.compression import SLACK_BYTES, Compression, check_lz4_frame, compress, decompress, inflate
from streamsrt.wire.primitives import DecodeError

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b"user-%06d says the same thing again and again. " % number for number in range(4000))
BOMBS = {
    Compression.GZIP: zlib.compress(bytes(30_000_000), wbits=31),
    Compression.SNAPPY: bytes(compress(Compression.SNAPPY, bytes(30_000_000))),
    Compression.LZ4: bytes(compress(Compression.LZ4, bytes(30_000_000))),
    Compression.ZSTD: bytes(compress(Compression.ZSTD, bytes(30_000_000))),
}


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, random.Random(1).randbytes(100_000)], ids=["0", "1", "text", "noise"]
)
def test_what_goes_in_comes_out(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_text_gets_smaller(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 3


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Compression.GZIP, 1, 9), (Compression.ZSTD, 1, 19), (Compression.LZ4, 0, 9)]
)
def test_a_higher_level_is_smaller(codec: Compression, low: int, high: int) -> None:
    small = compress(codec, TEXT, high)
    assert len(small) < len(compress(codec, TEXT, low))
    assert decompress(codec, small) == TEXT


def test_lz4_blocks_are_independent() -> None:
    flags = bytes(compress(Compression.LZ4, TEXT))[4]
    assert flags >> 5 & 1 == 1


LINKED = cramjam.lz4.Compressor(block_linked=True)
LINKED.compress(TEXT)
FULL = cramjam.lz4.Compressor(block_linked=False, content_checksum=True)
FULL.compress(TEXT)
FRAME, EMPTY_FRAME = bytes(compress(Compression.LZ4, TEXT)), bytes(compress(Compression.LZ4, b""))
FRAME_WITH_CHECKSUM, LINKED_FRAME = bytes(FULL.finish()), bytes(LINKED.finish())


@pytest.mark.parametrize("frame", [FRAME, FRAME_WITH_CHECKSUM, EMPTY_FRAME])
def test_an_lz4_frame_that_all_clients_read(frame: bytes) -> None:
    check_lz4_frame(frame)
    for behind in (b"\0", frame):
        with pytest.raises(DecodeError, match="only one frame"):
            check_lz4_frame(frame + behind)
    for end in {*range(0, len(frame), 97), len(frame) - 1}:
        with pytest.raises(DecodeError):
            check_lz4_frame(frame[:end])


def test_linked_lz4_blocks_are_not_what_all_clients_read() -> None:
    assert decompress(Compression.LZ4, LINKED_FRAME) == TEXT
    with pytest.raises(DecodeError, match="not independent"):
        check_lz4_frame(LINKED_FRAME)


def test_snappy_of_librdkafka_is_not_framed() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_frames_may_follow_each_other() -> None:
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        assert decompress(codec, bytes(compress(codec, TEXT)) + bytes(compress(codec, b"end"))) == TEXT + b"end"


def test_zstd_without_a_stated_size() -> None:
    stream = cramjam.zstd.Compressor(3)
    stream.compress(TEXT)
    assert decompress(Compression.ZSTD, bytes(stream.finish())) == TEXT


@pytest.mark.parametrize("codec", list(Compression))
def test_inflate_puts_the_head_before_and_zeros_behind(codec: Compression) -> None:
    view = inflate(codec, compress(codec, TEXT), head=b"head")
    assert bytes(view) == b"head" + TEXT
    whole = view.obj
    assert bytes(memoryview(whole)[len(view) : len(view) + SLACK_BYTES]) == bytes(SLACK_BYTES)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: Compression) -> None:
    with pytest.raises(DecodeError, match="limit"):
        decompress(codec, BOMBS[codec], limit_bytes=1_000_000)


def test_a_mere_promise_gets_no_memory() -> None:
    promises = {
        Compression.SNAPPY: b"\x80\x80\x80\x28" + b"\x00x",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd\xa0" + (80 << 20).to_bytes(4, "little") + b"\x01\x00\x00",
        Compression.GZIP: zlib.compress(b"", wbits=31)[:-4] + (80 << 20).to_bytes(4, "little"),
    }
    tracemalloc.start()
    try:
        for codec, data in promises.items():
            with pytest.raises(DecodeError):
                decompress(codec, data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_much_of_the_same_fits(codec: Compression) -> None:
    assert decompress(codec, BOMBS[codec]) == bytes(30_000_000)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_limit_is_exact(codec: Compression) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, limit_bytes=len(TEXT)) == TEXT
    with pytest.raises(DecodeError, match="limit"):
        decompress(codec, data, limit_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_data_is_refused(codec: Compression) -> None:
    data = bytes(compress(codec, TEXT))
    sizes = {*range(1, 40), len(data) // 2, len(data) - 1}
    if codec is Compression.SNAPPY:
        sizes.discard(16)  # the framing's header, after which nothing need follow
    for size in sizes:
        with pytest.raises(DecodeError):
            decompress(codec, data[:size], limit_bytes=1 << 20)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=200))
@settings(max_examples=60)
def test_noise_is_refused_or_decompressed(codec: Compression, data: bytes) -> None:
    for candidate in (data, bytes(compress(codec, b""))[:8] + data):
        with contextlib.suppress(DecodeError):
            assert len(decompress(codec, candidate, limit_bytes=100_000)) <= 100_000


@pytest.mark.parametrize("codec", CODECS)
@given(position=st.integers(0, 2000), flip=st.integers(1, 255))
@settings(max_examples=60)
def test_a_flipped_byte_stays_within_the_limit(codec: Compression, position: int, flip: int) -> None:
    data = bytearray(compress(codec, TEXT[:3000]))
    data[position % len(data)] ^= flip
    with contextlib.suppress(DecodeError):
        assert len(decompress(codec, data, limit_bytes=100_000)) <= 100_000


def test_names_are_those_of_compression_type() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [codec.type_name for codec in Compression] == names
