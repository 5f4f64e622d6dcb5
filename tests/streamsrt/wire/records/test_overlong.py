"""Numbers of records that are longer than Kafka reads them are refused of producers, and read where they are in a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsrt.wire.compression import Compression
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.records import decode_batch, largest_timestamp, read_header, survey_batch
from tests.coordinator.broker.odd_batches import batch, varint
from tests.streamsrt.wire.records.reference import has_long_number

T0 = 1_700_000_000_000
FIELDS = ("length", "offset", "key", "value", "headers", "header key", "header value")


def padded(number: int, size: int) -> bytes:
    """The number in so many bytes, or in as many as it takes."""
    written = varint(number)
    missing = size - len(written)
    return written if missing <= 0 else written[:-1] + bytes((written[-1] | 0x80,)) + b"\x80" * (missing - 1) + b"\0"


def made(
    index: int,
    sizes: dict[str, int],
    key: bytes | None = b"k",
    value: bytes | None = b"value",
    header: bytes | None = b"v",
    offset: int | None = None,
    null: int = -1,
) -> bytes:
    """A record whose numbers take so many bytes at least. ``null`` is written as the size of nulls."""

    def sized(name: str, data: bytes | None) -> bytes:
        return padded(null if data is None else len(data), sizes.get(name, 0)) + (data or b"")

    content = (
        b"\0"
        + padded(index % 5, sizes.get("time", 0))
        + padded(index if offset is None else offset, sizes.get("offset", 0))
        + sized("key", key)
        + sized("value", value)
        + padded(1, sizes.get("headers", 0))
        + sized("header key", b"h")
        + sized("header value", header)
    )
    return padded(len(content), sizes.get("length", 0)) + content


def among(odd: Callable[[int], bytes], count: int, value: Callable[[int], bytes], codec: Compression) -> bytes:
    """A batch with such a record in the middle."""
    rows = [odd(index) if index == count // 2 else made(index, {}, value=value(index)) for index in range(count)]
    return batch(b"".join(rows), count, base_ms=T0, max_ms=T0 + min(count - 1, 4), codec=codec)


OTHERS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "alone": (1, lambda _: b""),
    "a few": (5, lambda i: b"v" * i),
    "text": (40, lambda i: b"some text " * (i % 20)),
    "other text": (40, lambda i: "\u043a\u043b\u044e\u0447 \u5024".encode() * (i % 20)),
    "binary": (40, lambda i: bytes(range(256)) * (i % 3)),
    "more than a piece": (90, lambda i: b"v" * (300 + i)),
    "many": (300, lambda i: b"v" * (60 + i % 40)),
    "equal": (500, lambda _: b"v" * 80),
}


def survey(data: bytes) -> None:
    header = read_header(data)
    found = survey_batch(data, header)
    assert len(found.timestamps) == header.records_count
    if not header.compression:
        assert largest_timestamp(data, header)[0] == max(found.timestamps)


def refuse(data: bytes) -> None:
    header = read_header(data)
    with pytest.raises(DecodeError, match="more than 5 bytes"):
        survey_batch(data, header)
    if not header.compression:
        with pytest.raises(DecodeError, match="more than 5 bytes"):
            largest_timestamp(data, header)
    assert len(decode_batch(data)) == header.records_count


def odd_ones(others: str, codec: Compression, **fields: Any) -> bytes:
    return among(lambda index: made(index, **{"sizes": {}, **fields}), *OTHERS[others], codec)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("others", OTHERS)
def test_up_to_five_bytes_are_taken(others: str, codec: Compression) -> None:
    for field in FIELDS:
        for size in (2, 3, 4, 5):
            survey(odd_ones(others, codec, sizes={field: size}))
    for size in (5, 6, 10):
        survey(odd_ones(others, codec, sizes={"time": size}))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("others", OTHERS)
def test_more_are_refused_and_read(others: str, codec: Compression) -> None:
    for field in FIELDS:
        for size in (6, 7, 10):
            refuse(odd_ones(others, codec, sizes={field: size}))
    for null in (-(1 << 34) - 1, -(1 << 40)):
        for name in ("key", "value", "header"):
            refuse(odd_ones(others, codec, null=null, **{name: None}))
    for offset in (1 << 40, -(1 << 40), 1 << 34):
        refuse(odd_ones(others, codec, offset=offset))
    for offset in (1 << 14, 1 << 20, 1 << 27, (1 << 31) - 1, -(1 << 31)):
        refuse(odd_ones(others, codec, sizes={"offset": 6}, offset=offset))


@given(
    st.lists(
        st.builds(
            made,
            st.integers(0, 3),
            st.dictionaries(st.sampled_from((*FIELDS, "time")), st.integers(1, 7), max_size=2),
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=90),
            st.none() | st.binary(max_size=9),
            st.none() | st.integers(-(1 << 36), 1 << 36),
            st.integers(-(1 << 36), -1),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([Compression.NONE, Compression.ZSTD]),
)
def test_those_and_no_others_are_refused(rows: list[bytes], codec: Compression) -> None:
    records = b"".join(rows)
    data = batch(records, len(rows), base_ms=T0, max_ms=T0 + 4, codec=codec)
    (refuse if has_long_number(records, len(rows)) else survey)(data)
